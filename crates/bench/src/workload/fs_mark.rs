//! fs_mark: several threads create files of one size, with different ways to sync.
//!
//! Source: R. Wheeler's fs_mark 3.3 (`-S`: 0 syncs nothing, 1 syncs each file before it is closed, 5 syncs all files
//! after all are created; `-s` 10,240 bytes, `-n` 1,000 files per thread, `-w` 16 KiB per call).

use crate::Result;
use crate::error::IoContext as _;
use crate::files::{OpenMode, create_dirs, write_span};
use crate::workload::{Measure, Phase, Settings, ThreadGroup, Workload, WorkloadContext};

const SIZE: u64 = 10 << 10;
const FILES: u64 = 1000;

/// The time at which files are synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// Never (`-S 0`).
    Never,
    /// Before each file is closed (`-S 1`).
    Each,
    /// After the last file is written (`-S 5`).
    After,
}

/// Files that threads create and sync.
#[derive(Clone, Copy, Debug)]
pub struct FsMark(pub Method);

impl Workload for FsMark {
    fn prepare(&self, context: &WorkloadContext) -> Result<()> {
        let folder = |thread| format!("fs_mark/{thread}");
        (0..context.settings.threads).try_for_each(|thread| {
            create_dirs(&*context.files, &folder(thread)).during("create", folder(thread))
        })
    }

    fn run(&self, context: &WorkloadContext) -> Result<Vec<Phase>> {
        let files = context.settings.scaled(FILES);
        let phase = ThreadGroup::new("", Measure::Rate, context.settings.threads).run(context, |member| {
            let name = |at| format!("fs_mark/{}/{at:08x}", member.index);
            for at in 0..files {
                let file = context.files.open(&name(at), OpenMode::Create)?;
                write_span(&*file, 0, SIZE, &[0x55; 16 << 10])?;
                if self.0 == Method::Each {
                    file.sync()?;
                }
                member.count(1, SIZE);
            }
            if self.0 == Method::After {
                for at in 0..files {
                    context.files.open(&name(at), OpenMode::Change)?.sync()?;
                }
            }
            Ok(())
        })?;
        Ok(vec![phase])
    }

    fn needs(&self, settings: &Settings) -> u64 {
        settings.scaled(FILES) * settings.threads as u64 * (SIZE + 4096)
    }
}
