//! The measurements of the paper on rump file systems: a recursive listing, and copies of a tree and of a large file.
//!
//! Source: A. Kantee, "Rump file systems: kernel code reborn", USENIX 2009, section 5. The workloads use the operations
//! of [`Files`], so that a driver in this process does the same as a mount.

use std::io;

use crate::Result;
use crate::error::IoContext as _;
use crate::files::{Files, OpenMode, read_whole, write_span};
use crate::workload::file_set::{FileSet, FileSetPlan, Sizes};
use crate::workload::{Cache, Measure, Phase, Settings, ThreadGroup, Workload, WorkloadContext};

const PLAN: FileSetPlan = FileSetPlan {
    name: "tree",
    entries: 10_000,
    width: 20,
    sizes: Sizes::Gamma(14 << 10),
    preallocated: 100,
};
const LARGE: &str = "large";

/// One of the three measurements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rump {
    /// Looks up every name, as `ls -lR` does.
    List,
    /// Copies every file to a tree next to it.
    CopyTree,
    /// Copies a large file.
    CopyFile,
}

impl Rump {
    fn plan(settings: &Settings) -> FileSetPlan {
        FileSetPlan { entries: settings.scaled(PLAN.entries), ..PLAN }
    }
}

impl Workload for Rump {
    fn cache(&self) -> Cache {
        Cache::Dropped
    }

    fn prepare(&self, context: &WorkloadContext) -> Result<()> {
        if *self != Self::CopyFile {
            return FileSet::plan(&Self::plan(&context.settings), context).make(context);
        }
        let file = context.files.open(LARGE, OpenMode::Create).during("create", LARGE)?;
        write_span(&*file, 0, context.settings.file_size, &vec![0x55; 1 << 20]).during("write", LARGE)
    }

    /// The time ends when all data is on stable storage, because the paper measures from mount to unmount.
    fn run(&self, context: &WorkloadContext) -> Result<Vec<Phase>> {
        let files = &*context.files;
        let set = (*self != Self::CopyFile).then(|| FileSet::plan(&Self::plan(&context.settings), context));
        let phase = ThreadGroup::new("", Measure::Time, 1).run(context, |member| {
            let mut buf = vec![0; 1 << 20];
            match (self, &set) {
                (Self::CopyFile, _) | (_, None) => member.count(1, copy(files, LARGE, "copy", &mut buf)?),
                (Self::List, Some(set)) => {
                    for number in 0..set.existing() {
                        files.stat(&set.entry(number).path)?;
                        member.count(1, 0);
                    }
                }
                (Self::CopyTree, Some(set)) => {
                    for number in 0..set.existing() {
                        let from = &set.entry(number).path;
                        let to = format!("copy/{from}");
                        let folder = to.rsplit_once('/').map_or("", |(folder, _)| folder);
                        crate::files::create_dirs(files, folder)?;
                        member.count(1, copy(files, from, &to, &mut buf)?);
                    }
                }
            }
            files.sync()
        })?;
        Ok(vec![phase])
    }

    fn needs(&self, settings: &Settings) -> u64 {
        match self {
            Self::CopyFile => settings.file_size * 2,
            _ => Self::plan(settings).entries * (14 << 10) * 3,
        }
    }
}

fn copy(files: &dyn Files, from: &str, to: &str, buf: &mut [u8]) -> io::Result<u64> {
    let (from, to) = (files.open(from, OpenMode::Read)?, files.open(to, OpenMode::Create)?);
    let len = from.len()?;
    if len <= buf.len() as u64 {
        let len = read_whole(&*from, buf)?;
        write_span(&*to, 0, len, buf)?;
        return Ok(len);
    }
    let mut done = 0;
    while done < len {
        let count = from.read_at(buf, done)?;
        to.write_at(&buf[..count], done)?;
        done += count as u64;
    }
    Ok(done)
}
