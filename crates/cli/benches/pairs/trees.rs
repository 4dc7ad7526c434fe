//! Trees of files for benchmarks of copies, and commands that copy them.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// Numbers that are the same in each run (Knuth's linear congruential generator).
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

/// Creates `files` of 0 bytes to `longest`, most of them small, half of them with names of more than eight
/// characters.
pub fn many(tree: &Path, files: u64, directories: u64, longest: u64) -> Result<()> {
    let mut dice = Dice(1);
    let block: Vec<u8> = (0..longest).map(|_| dice.next().to_le_bytes()[0]).collect();
    let each = files / directories;
    for directory in 0..directories {
        let path = tree.join(format!("directory-{directory:03}"));
        fs::create_dir_all(&path)?;
        for file in 0..each {
            // The square of a uniform distribution: the median is a quarter of the maximum.
            let part = dice.next() % 1000;
            let len = usize::try_from(part * part * longest / 1_000_000)?;
            let name = match file % 2 {
                0 => format!("file{file:04}.bin"),
                _ => format!("Photograph of {directory:03}, {file:04}.jpeg"),
            };
            fs::write(path.join(name), &block[..len])?;
        }
    }
    Ok(())
}

/// Writes the bytes of a file to stable storage.
pub fn sync_file(path: &Path) -> Result<()> {
    Ok(File::open(path)?.sync_all()?)
}

/// Runs a command that must succeed.
pub fn succeed(command: &mut Command) -> Result<()> {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    let status = status.with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
