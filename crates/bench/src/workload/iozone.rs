//! IOzone: all ways of reading and writing one file, for several sizes of the file and of the record.
//!
//! Source: W. Norcott and D. Capps, "Iozone Filesystem Benchmark" (the tests of section 3; `-a` runs over files of 64
//! KiB to 512 MiB and records of 4 KiB to 16 MiB). The times include closing the file but not a sync, as for IOzone
//! without `-e`.

use std::io;

use crate::Result;
use crate::files::{OpenFile, OpenMode, read_whole, write_span};
use crate::workload::{Measure, Phase, Settings, ThreadGroup, Workload, WorkloadContext};

const FILE: &str = "iozone.tmp";
/// The number of records between two strided reads.
const STRIDE: u64 = 17;

/// The automatic matrix: files from 64 KiB up to the size in the settings, each four times as large as the previous
/// one.
#[derive(Clone, Copy, Debug)]
pub struct Matrix;

/// Throughput mode (`-t`): several threads, each with a file of its own.
#[derive(Clone, Copy, Debug)]
pub struct Throughput;

/// A way to access a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Test {
    Write,
    Rewrite,
    Read,
    Reread,
    RandomRead,
    RandomWrite,
    BackwardRead,
    RecordRewrite,
    StrideRead,
    Mixed,
}

const TESTS: [(Test, &str); 10] = [
    (Test::Write, "write"),
    (Test::Rewrite, "rewrite"),
    (Test::Read, "read"),
    (Test::Reread, "reread"),
    (Test::RandomRead, "random read"),
    (Test::RandomWrite, "random write"),
    (Test::BackwardRead, "backward read"),
    (Test::RecordRewrite, "record rewrite"),
    (Test::StrideRead, "stride read"),
    (Test::Mixed, "mixed"),
];

impl Workload for Matrix {
    fn run(&self, context: &WorkloadContext) -> Result<Vec<Phase>> {
        let mut phases = Vec::new();
        for file in powers(64 << 10, context.settings.file_size.min(512 << 20)) {
            for record in powers(4 << 10, file.min(16 << 20)) {
                for (test, name) in TESTS {
                    let name = format!("{name} {}k/{}k", file >> 10, record >> 10);
                    let team = ThreadGroup::new(name, Measure::Throughput, 1);
                    phases.push(team.run(context, |member| {
                        let bytes = go(test, context, FILE, file, record, member.index as u64)?;
                        member.count(bytes / record, bytes);
                        Ok(())
                    })?);
                }
            }
        }
        Ok(phases)
    }

    fn needs(&self, settings: &Settings) -> u64 {
        settings.file_size
    }
}

impl Workload for Throughput {
    fn run(&self, context: &WorkloadContext) -> Result<Vec<Phase>> {
        const RECORD: u64 = 4 << 10;
        let threads = context.settings.threads;
        let file = context.settings.file_size / threads as u64 / RECORD * RECORD;
        let phase = |(test, name): (Test, &str)| {
            ThreadGroup::new(name, Measure::Throughput, threads).run(context, |member| {
                let name = format!("{FILE}.{}", member.index);
                let bytes = go(test, context, &name, file, RECORD, member.index as u64)?;
                member.count(bytes / RECORD, bytes);
                Ok(())
            })
        };
        TESTS.into_iter().map(phase).collect()
    }

    fn needs(&self, settings: &Settings) -> u64 {
        settings.file_size
    }
}

/// Returns sizes up to `most`, each four times as large as the previous one.
fn powers(least: u64, most: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(least), |size| size.checked_mul(4)).take_while(move |size| *size <= most)
}

/// Runs one test on a file. Returns the number of bytes read or written.
fn go(
    test: Test,
    context: &WorkloadContext,
    name: &str,
    size: u64,
    record: u64,
    seed: u64,
) -> io::Result<u64> {
    let how = if test == Test::Write { OpenMode::Create } else { OpenMode::Change };
    let file = context.files.open(name, how)?;
    let mut buf = vec![0x55; usize::try_from(record).map_err(io::Error::other)?];
    let mut rng = context.rng(usize::try_from(seed).map_err(io::Error::other)?);
    let records = size / record;
    match test {
        Test::Write | Test::Rewrite => write_span(&*file, 0, size, &buf)?,
        Test::Read | Test::Reread => return read_whole(&*file, &mut buf),
        Test::RandomRead => {
            (0..records).try_for_each(|_| read(&*file, rng.u64(0..records) * record, &mut buf))?
        }
        Test::RandomWrite => {
            (0..records).try_for_each(|_| file.write_at(&buf, rng.u64(0..records) * record))?
        }
        Test::BackwardRead => (0..records).rev().try_for_each(|at| read(&*file, at * record, &mut buf))?,
        Test::RecordRewrite => (0..records).try_for_each(|_| file.write_at(&buf, 0))?,
        Test::StrideRead => {
            let start = (0..STRIDE).flat_map(|start| (start..records).step_by(STRIDE as usize));
            start.into_iter().try_for_each(|at| read(&*file, at * record, &mut buf))?;
        }
        Test::Mixed => (0..records).try_for_each(|_| {
            let at = rng.u64(0..records) * record;
            if rng.bool() { read(&*file, at, &mut buf) } else { file.write_at(&buf, at) }
        })?,
    }
    Ok(records * record)
}

fn read(file: &dyn OpenFile, offset: u64, buf: &mut [u8]) -> io::Result<()> {
    match file.read_at(buf, offset)? {
        count if count == buf.len() => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
