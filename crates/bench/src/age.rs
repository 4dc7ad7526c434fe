//! Ageing of a fresh file system: creates and removes files until the free space is fragmented. A fresh file system
//! gives better figures than an old one.
//!
//! After K. Smith and M. Seltzer, "File System Aging", SIGMETRICS 1997: a history of creations and deletions fills the
//! file system to a share and replaces the contents several times. The sizes have a gamma distribution with many small
//! and few large files. The history depends only on the seed, so it is the same on all targets.

use std::io;

use crate::error::IoContext as _;
use crate::files::{OpenMode, create_dirs, write_span};
use crate::random::{Rng, gamma};
use crate::workload::WorkloadContext;
use crate::{BenchError, Result};

const FOLDER: &str = "aged";
const DIRECTORIES: u64 = 64;
const SHAPE: f64 = 0.3;
const MEAN: f64 = 96.0 * 1024.0;
/// The number of times that the contents are replaced.
const TURNS: u64 = 3;
/// The divisor of the number of files: this part of the files is removed at a time.
const ROUND: u64 = 8;

/// The existing files and their sizes.
struct History<'s> {
    context: &'s WorkloadContext,
    rng: Rng,
    files: Vec<(u64, u64)>,
    next: u64,
    bytes: u64,
}

/// Fills `percent` hundredths of a file system of `size` bytes. Fails with the errors of the file system.
pub fn age(context: &WorkloadContext, percent: u8, size: u64) -> Result<()> {
    let share = size / 100 * u64::from(percent.min(90));
    let rng = context.rng(usize::from(percent));
    let mut history = History { context, rng, files: Vec::new(), next: 0, bytes: 0 };
    let run = |history: &mut History<'_>| -> io::Result<()> {
        for directory in 0..DIRECTORIES {
            create_dirs(&*context.files, &format!("{FOLDER}/{directory}"))?;
        }
        history.fill(share)?;
        for _ in 0..TURNS * ROUND {
            history.remove(share - share / ROUND)?;
            history.fill(share)?;
        }
        context.files.sync()
    };
    match run(&mut history) {
        Err(error) if error.kind() == io::ErrorKind::StorageFull => Err(BenchError::Absent(format!(
            "the files for an age of {percent} % do not fit into the file system; use a smaller `--age`"
        ))),
        done => done.during("age", FOLDER),
    }
}

fn path(number: u64) -> String {
    format!("{FOLDER}/{}/{number:08}", number % DIRECTORIES)
}

impl History<'_> {
    fn fill(&mut self, share: u64) -> io::Result<()> {
        while self.bytes < share {
            let size = (gamma(&mut self.rng, SHAPE, MEAN) as u64).max(1);
            let file = self.context.files.open(&path(self.next), OpenMode::Create)?;
            write_span(&*file, 0, size, &[0x5a; 64 << 10])?;
            self.files.push((self.next, size));
            self.next += 1;
            self.bytes += size;
        }
        Ok(())
    }

    fn remove(&mut self, share: u64) -> io::Result<()> {
        while self.bytes > share && !self.files.is_empty() {
            let (number, size) = self.files.swap_remove(self.rng.usize(0..self.files.len()));
            self.context.files.remove_file(&path(number))?;
            self.bytes -= size;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::files::ImageFiles;
    use crate::workload::Settings;

    fn aged(seed: u64, percent: u8) -> Vec<(u64, u64)> {
        let files = Arc::new(ImageFiles::new(obento::Volume::in_memory()));
        let settings = Settings { seed, ..Settings::default() };
        let context = WorkloadContext { files: files.clone(), path: None, settings };
        age(&context, percent, 8 << 20).unwrap();
        let stat = |number| Some((number, context.files.stat(&path(number)).ok()?));
        (0..2000).filter_map(stat).collect()
    }

    #[test]
    fn a_history_leaves_its_share_and_is_the_same_for_a_seed() {
        let files = aged(1, 50);
        let bytes: u64 = files.iter().map(|(_, size)| size).sum();
        assert!((4 << 20..8 << 20).contains(&bytes), "{bytes}");
        // Some of the first files were removed.
        assert!(files.windows(2).any(|pair| pair[1].0 > pair[0].0 + 1));
        assert_eq!(files, aged(1, 50));
        assert_ne!(files, aged(2, 50));
    }
}
