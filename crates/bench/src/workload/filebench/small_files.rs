//! Creation and deletion of files: `filemicro_createfiles.f` and `filemicro_delete.f`.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Result;
use crate::files::{OpenMode, write_span};
use crate::workload::file_set::{FileSet, FileSetPlan, Sizes};
use crate::workload::{Measure, Phase, Settings, ThreadGroup, Workload, WorkloadContext};

/// Repeats `createfile`, `writewholefile` and `closefile`.
#[derive(Clone, Copy, Debug)]
pub struct CreateFiles {
    /// The number of files to create.
    pub files: u64,
    /// The number of threads.
    pub threads: usize,
}

impl CreateFiles {
    fn plan(&self, settings: &Settings) -> FileSetPlan {
        let entries = settings.scaled(self.files);
        FileSetPlan {
            name: "bigfileset",
            entries,
            width: 100_000,
            sizes: Sizes::Fixed(1024),
            preallocated: 0,
        }
    }
}

impl Workload for CreateFiles {
    fn prepare(&self, context: &WorkloadContext) -> Result<()> {
        FileSet::plan(&self.plan(&context.settings), context).make(context)
    }

    fn run(&self, context: &WorkloadContext) -> Result<Vec<Phase>> {
        let set = FileSet::plan(&self.plan(&context.settings), context);
        let phase = ThreadGroup::new("", Measure::Rate, self.threads).run(context, |member| {
            let data = vec![0x55; 1024];
            while let Some(number) = set.pick_missing().filter(|_| !member.is_over()) {
                let entry = set.entry(number);
                let file = context.files.open(&entry.path, OpenMode::Create)?;
                write_span(&*file, 0, entry.size, &data)?;
                drop(file);
                // Filebench counts each of the three operations.
                member.count(3, entry.size);
            }
            Ok(())
        })?;
        Ok(vec![phase])
    }

    fn needs(&self, settings: &Settings) -> u64 {
        // A block of data, and a share of an inode table and of a directory for each file.
        settings.scaled(self.files) * (4096 + 512)
    }
}

/// Repeats `deletefile`.
#[derive(Clone, Copy, Debug)]
pub struct DeleteFiles {
    /// The number of existing files.
    pub files: u64,
    /// The number of files to delete.
    pub deleted: u64,
    /// The number of threads.
    pub threads: usize,
}

impl DeleteFiles {
    fn plan(&self, settings: &Settings) -> FileSetPlan {
        let entries = settings.scaled(self.files);
        FileSetPlan {
            name: "bigfileset",
            entries,
            width: 100,
            sizes: Sizes::Fixed(16 << 10),
            preallocated: 100,
        }
    }
}

impl Workload for DeleteFiles {
    fn prepare(&self, context: &WorkloadContext) -> Result<()> {
        FileSet::plan(&self.plan(&context.settings), context).make(context)
    }

    fn run(&self, context: &WorkloadContext) -> Result<Vec<Phase>> {
        let set = FileSet::plan(&self.plan(&context.settings), context);
        let (begun, most) = (AtomicU64::new(0), context.settings.scaled(self.deleted));
        let phase = ThreadGroup::new("", Measure::Rate, self.threads).run(context, |member| {
            while begun.fetch_add(1, Ordering::Relaxed) < most && !member.is_over() {
                let Some(number) = set.pick_to_delete() else { break };
                context.files.remove_file(&set.entry(number).path)?;
                set.deleted(number);
                member.count(1, 0);
            }
            Ok(())
        })?;
        Ok(vec![phase])
    }

    fn needs(&self, settings: &Settings) -> u64 {
        settings.scaled(self.files) * ((16 << 10) + 512)
    }
}
