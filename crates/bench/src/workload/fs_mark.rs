//! fs_mark: files of one size made by several threads, each brought to stable storage in one of its ways.
//!
//! Source: R. Wheeler's fs_mark 3.3 (`-S`: 0 syncs nothing, 1 syncs each file before it is closed, 5 syncs all files after all
//! are made; `-s` 10,240 bytes, `-n` 1,000 files a thread, `-w` 16 KiB a call).

use crate::Result;
use crate::error::During as _;
use crate::files::{How, create_dirs, write_span};
use crate::workload::{Cache, Load, Measure, Phase, Scene, Settings, Team};

const SIZE: u64 = 10 << 10;
const FILES: u64 = 1000;

/// When files are synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// Never (`-S 0`).
    Never,
    /// Each before it is closed (`-S 1`).
    Each,
    /// All, after the last is written (`-S 5`).
    After,
}

/// Files made by threads, and synced.
#[derive(Clone, Copy, Debug)]
pub struct FsMark(pub Method);

impl Load for FsMark {
    fn cache(&self) -> Cache {
        Cache::Kept
    }

    fn prepare(&self, scene: &Scene) -> Result<()> {
        let folder = |thread| format!("fs_mark/{thread}");
        (0..scene.settings.threads).try_for_each(|thread| {
            create_dirs(&*scene.files, &folder(thread)).during("create", folder(thread))
        })
    }

    fn run(&self, scene: &Scene) -> Result<Vec<Phase>> {
        let files = scene.settings.scaled(FILES);
        let phase = Team::new("", Measure::Rate, scene.settings.threads).run(scene, |member| {
            let name = |at| format!("fs_mark/{}/{at:08x}", member.index);
            for at in 0..files {
                let file = scene.files.open(&name(at), How::Create)?;
                write_span(&*file, 0, SIZE, &[0x55; 16 << 10])?;
                if self.0 == Method::Each {
                    file.sync()?;
                }
                member.count(1, SIZE);
            }
            if self.0 == Method::After {
                for at in 0..files {
                    scene.files.open(&name(at), How::Change)?.sync()?;
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
