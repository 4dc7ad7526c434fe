//! Files created and deleted: `filemicro_createfiles.f` and `filemicro_delete.f`.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Result;
use crate::files::{How, write_span};
use crate::workload::file_set::{FileSet, Plan, Sizes};
use crate::workload::{Cache, Load, Measure, Phase, Scene, Settings, Team};

/// `createfile`, `writewholefile`, `closefile`, over and over.
#[derive(Clone, Copy, Debug)]
pub struct CreateFiles {
    /// Files that are made.
    pub files: u64,
    /// Threads.
    pub threads: usize,
}

impl CreateFiles {
    fn plan(&self, settings: &Settings) -> Plan {
        let entries = settings.scaled(self.files);
        Plan { name: "bigfileset", entries, width: 100_000, sizes: Sizes::Fixed(1024), preallocated: 0 }
    }
}

impl Load for CreateFiles {
    fn cache(&self) -> Cache {
        Cache::Kept
    }

    fn prepare(&self, scene: &Scene) -> Result<()> {
        FileSet::plan(&self.plan(&scene.settings), scene).make(scene)
    }

    fn run(&self, scene: &Scene) -> Result<Vec<Phase>> {
        let set = FileSet::plan(&self.plan(&scene.settings), scene);
        let phase = Team::new("", Measure::Rate, self.threads).run(scene, |member| {
            let data = vec![0x55; 1024];
            while let Some(number) = set.pick_missing().filter(|_| !member.is_over()) {
                let entry = set.entry(number);
                let file = scene.files.open(&entry.path, How::Create)?;
                write_span(&*file, 0, entry.size, &data)?;
                drop(file);
                // Filebench counts each of the three.
                member.count(3, entry.size);
            }
            Ok(())
        })?;
        Ok(vec![phase])
    }

    fn needs(&self, settings: &Settings) -> u64 {
        // A block of data and a share of an inode table and a directory each.
        settings.scaled(self.files) * (4096 + 512)
    }
}

/// `deletefile`, so many times.
#[derive(Clone, Copy, Debug)]
pub struct DeleteFiles {
    /// Files that are there.
    pub files: u64,
    /// How many of them are deleted.
    pub deleted: u64,
    /// Threads.
    pub threads: usize,
}

impl DeleteFiles {
    fn plan(&self, settings: &Settings) -> Plan {
        let entries = settings.scaled(self.files);
        Plan { name: "bigfileset", entries, width: 100, sizes: Sizes::Fixed(16 << 10), preallocated: 100 }
    }
}

impl Load for DeleteFiles {
    fn cache(&self) -> Cache {
        Cache::Kept
    }

    fn prepare(&self, scene: &Scene) -> Result<()> {
        FileSet::plan(&self.plan(&scene.settings), scene).make(scene)
    }

    fn run(&self, scene: &Scene) -> Result<Vec<Phase>> {
        let set = FileSet::plan(&self.plan(&scene.settings), scene);
        let (begun, most) = (AtomicU64::new(0), scene.settings.scaled(self.deleted));
        let phase = Team::new("", Measure::Rate, self.threads).run(scene, |member| {
            while begun.fetch_add(1, Ordering::Relaxed) < most && !member.is_over() {
                let Some(number) = set.pick_to_delete() else { break };
                scene.files.remove_file(&set.entry(number).path)?;
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
