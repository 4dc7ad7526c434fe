//! The catalogue of all workloads.

use super::applications::Application;
use super::bonnie::{Bonnie, EmptyFiles};
use super::compilebench::CompileBench;
use super::database::Database;
use super::filebench::{CreateFiles, DeleteFiles, FILE_SERVER, LargeFile, Pattern, VAR_MAIL, WEB_SERVER};
use super::fs_mark::{FsMark, Method};
use super::latency::Latency;
use super::mdtest::MdTest;
use super::reading::{Operation, Reading};
use super::rump::Rump;
use super::startup::Startup;
use super::tiobench::TioBench;
use super::{Cache, Settings, Workload, iozone};
use crate::{BenchError, Result};

type Make = fn(&Settings) -> Box<dyn Workload>;

macro_rules! large {
    ($pattern:ident, $kib:literal, one) => {
        |_| Box::new(LargeFile { pattern: Pattern::$pattern, io_size: $kib << 10, threads: 1 })
    };
    ($pattern:ident, $kib:literal, many) => {
        |settings| {
            Box::new(LargeFile { pattern: Pattern::$pattern, io_size: $kib << 10, threads: settings.threads })
        }
    };
}

macro_rules! latency {
    ($write:literal, $random:literal, $size:literal, $depth:literal) => {
        |_| Box::new(Latency { write: $write, random: $random, io_size: $size, depth: $depth })
    };
}

macro_rules! reading {
    ($operation:ident, $cache:ident, one) => {
        |_| Box::new(Reading::new(Operation::$operation, Cache::$cache, 1))
    };
    ($operation:ident, $cache:ident, many) => {
        |settings| Box::new(Reading::new(Operation::$operation, Cache::$cache, settings.threads))
    };
}

/// The workloads with `T=N` run with the number of threads from the settings.
const ALL: &[(&str, Make)] = &[
    ("seq_read_4k,T=1", large!(SequentialRead, 4, one)),
    ("seq_read_32k,T=1", large!(SequentialRead, 32, one)),
    ("seq_read_128k,T=1", large!(SequentialRead, 128, one)),
    ("seq_read_1024k,T=1", large!(SequentialRead, 1024, one)),
    ("seq_read_4k,T=N", large!(SequentialRead, 4, many)),
    ("seq_read_32k,T=N", large!(SequentialRead, 32, many)),
    ("seq_read_128k,T=N", large!(SequentialRead, 128, many)),
    ("seq_read_1024k,T=N", large!(SequentialRead, 1024, many)),
    ("rand_read_4k,T=1", large!(RandomRead, 4, one)),
    ("rand_read_32k,T=1", large!(RandomRead, 32, one)),
    ("rand_read_128k,T=1", large!(RandomRead, 128, one)),
    ("rand_read_1024k,T=1", large!(RandomRead, 1024, one)),
    ("rand_read_4k,T=N", large!(RandomRead, 4, many)),
    ("rand_read_32k,T=N", large!(RandomRead, 32, many)),
    ("rand_read_128k,T=N", large!(RandomRead, 128, many)),
    ("rand_read_1024k,T=N", large!(RandomRead, 1024, many)),
    ("seq_write_4k,T=1", large!(SequentialWrite, 4, one)),
    ("seq_write_32k,T=1", large!(SequentialWrite, 32, one)),
    ("seq_write_128k,T=1", large!(SequentialWrite, 128, one)),
    ("seq_write_1024k,T=1", large!(SequentialWrite, 1024, one)),
    ("rand_write_4k,T=1", large!(RandomWrite, 4, one)),
    ("rand_write_32k,T=1", large!(RandomWrite, 32, one)),
    ("rand_write_128k,T=1", large!(RandomWrite, 128, one)),
    ("rand_write_1024k,T=1", large!(RandomWrite, 1024, one)),
    ("rand_write_4k,T=N", large!(RandomWrite, 4, many)),
    ("rand_write_32k,T=N", large!(RandomWrite, 32, many)),
    ("rand_write_128k,T=N", large!(RandomWrite, 128, many)),
    ("rand_write_1024k,T=N", large!(RandomWrite, 1024, many)),
    // The Bento study creates 800,000 files and deletes 55,000.
    ("createfiles,T=1", |_| Box::new(CreateFiles { files: 800_000, threads: 1 })),
    ("createfiles,T=N", |settings| Box::new(CreateFiles { files: 800_000, threads: settings.threads })),
    ("deletefiles,T=1", |_| Box::new(DeleteFiles { files: 55_000, deleted: 55_000, threads: 1 })),
    ("deletefiles,T=N", |settings| {
        Box::new(DeleteFiles { files: 55_000, deleted: 55_000, threads: settings.threads })
    }),
    ("varmail", |_| Box::new(VAR_MAIL)),
    ("fileserver", |_| Box::new(FILE_SERVER)),
    ("webserver", |_| Box::new(WEB_SERVER)),
    ("bonnie", |_| Box::new(Bonnie { by_char: true })),
    ("bonnie-blocks", |_| Box::new(Bonnie { by_char: false })),
    ("bonnie-files", |_| Box::new(EmptyFiles)),
    ("iozone", |_| Box::new(iozone::Matrix)),
    ("iozone-throughput", |_| Box::new(iozone::Throughput)),
    ("fs_mark-nosync", |_| Box::new(FsMark(Method::Never))),
    ("fs_mark-fsync", |_| Box::new(FsMark(Method::Each))),
    ("fs_mark-post", |_| Box::new(FsMark(Method::After))),
    ("mdtest,T=1", |_| Box::new(MdTest { threads: 1 })),
    ("mdtest,T=N", |settings| Box::new(MdTest { threads: settings.threads })),
    ("lat_seq_read_512", latency!(false, false, 512, 1)),
    ("lat_seq_read_4k", latency!(false, false, 4096, 1)),
    ("lat_rand_read_512", latency!(false, true, 512, 1)),
    ("lat_rand_read_4k", latency!(false, true, 4096, 1)),
    ("lat_seq_write_512", latency!(true, false, 512, 1)),
    ("lat_seq_write_4k", latency!(true, false, 4096, 1)),
    ("lat_rand_write_512", latency!(true, true, 512, 1)),
    ("lat_rand_write_4k", latency!(true, true, 4096, 1)),
    ("lat_seq_read_4k,depth=16", latency!(false, false, 4096, 16)),
    ("lat_rand_read_4k,depth=16", latency!(false, true, 4096, 16)),
    ("lat_seq_write_4k,depth=16", latency!(true, false, 4096, 16)),
    ("lat_rand_write_4k,depth=16", latency!(true, true, 4096, 16)),
    ("compilebench", |_| Box::new(CompileBench)),
    ("tiobench", |_| Box::new(TioBench)),
    ("dbench", |_| Box::new(Database::Dbench)),
    ("tar", |_| Box::new(Application::Tar)),
    ("untar", |_| Box::new(Application::Untar)),
    ("grep", |_| Box::new(Application::Grep)),
    ("git-clone", |_| Box::new(Application::GitClone)),
    ("cp-a", |_| Box::new(Application::CopyTree)),
    ("rm-rf", |_| Box::new(Application::RemoveTree)),
    ("sqlite", |_| Box::new(Application::Sqlite)),
    ("pgbench", |_| Box::new(Database::Postgres)),
    ("redis-aof", |_| Box::new(Database::Redis)),
    ("db_bench", |_| Box::new(Database::Lsm)),
    ("startup", |_| Box::new(Startup)),
    ("rump-ls-lR", |_| Box::new(Rump::List)),
    ("rump-copy-tree", |_| Box::new(Rump::CopyTree)),
    ("rump-copy-file", |_| Box::new(Rump::CopyFile)),
    ("read-walk-cold,T=1", reading!(Walk, Dropped, one)),
    ("read-walk-cold,T=N", reading!(Walk, Dropped, many)),
    ("read-walk,T=1", reading!(Walk, Warm, one)),
    ("read-walk,T=N", reading!(Walk, Warm, many)),
    ("read-stat,T=1", reading!(Stat, Warm, one)),
    ("read-stat,T=N", reading!(Stat, Warm, many)),
    ("read-files-cold,T=1", reading!(Files, Dropped, one)),
    ("read-files-cold,T=N", reading!(Files, Dropped, many)),
    ("read-files,T=1", reading!(Files, Warm, one)),
    ("read-files,T=N", reading!(Files, Warm, many)),
    ("read-small-cold,T=1", reading!(Small, Dropped, one)),
    ("read-small-cold,T=N", reading!(Small, Dropped, many)),
    ("read-small,T=1", reading!(Small, Warm, one)),
    ("read-small,T=N", reading!(Small, Warm, many)),
    ("read-rand_4k,T=1", reading!(Random, Warm, one)),
    ("read-rand_4k,T=N", reading!(Random, Warm, many)),
];

/// Returns the names and constructors of all workloads.
pub fn all() -> impl Iterator<Item = (&'static str, Make)> {
    ALL.iter().copied()
}

/// Returns the workload with this name. Fails with `NoWorkload`.
pub fn find(name: &str, settings: &Settings) -> Result<Box<dyn Workload>> {
    let made = all().find(|(known, _)| *known == name).map(|(_, make)| make(settings));
    made.ok_or_else(|| BenchError::NoWorkload(name.to_owned()))
}
