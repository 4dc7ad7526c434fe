//! Damaged volumes in a kernel: each is mounted, walked, changed and unmounted, and the kernel must stay sound.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use xshell::Shell;

use super::DamagedOptions;
use super::guest::{Guest, Start};

/// How many disks one kernel gets.
const DISKS: usize = 16;

/// Runs all images of a folder. Errors: those with which a kernel reported a bug, crashed or hung.
pub fn run(shell: &Shell, options: &DamagedOptions) -> Result<()> {
    let (guest, target) = super::guest(shell, &options.kernel, options.module.as_deref())?;
    let folder = target.join("damaged");
    fs::create_dir_all(&folder)?;
    let mut images: Vec<PathBuf> = shell.read_dir(&options.images)?;
    images.retain(|path| path.extension().is_some_and(|end| end == "gz" || end == "img"));
    images.sort();
    ensure!(!images.is_empty(), "{} has no images NAME.gz or NAME.img", options.images.display());
    let (mut mounted, mut failed) = (0, Vec::new());
    for batch in images.chunks(DISKS) {
        let disks = copies(batch, &folder)?;
        let (output, reason) = start(&guest, &disks)?;
        mounted += output.lines().filter(|line| line.contains("files seen")).count();
        if reason.is_some() {
            // One image after the other, for the name.
            for (image, disk) in batch.iter().zip(copies(batch, &folder)?) {
                let (output, reason) = start(&guest, &[disk])?;
                if let Some(reason) = reason {
                    println!("FAILED {}: {reason}\n{output}", image.display());
                    failed.push(image.display().to_string());
                }
            }
        }
    }
    println!("{} images, {mounted} mounts of {}, {} failures", images.len(), images.len() * 2, failed.len());
    ensure!(failed.is_empty(), "these images failed: {}", failed.join(", "));
    Ok(())
}

fn start(guest: &Guest, disks: &[PathBuf]) -> Result<(String, Option<String>)> {
    let paths: Vec<&Path> = disks.iter().map(PathBuf::as_path).collect();
    let mut start = Start::new("damaged", &paths).word(format!("obento.disks={}", disks.len()));
    start.limit = Duration::from_secs(600);
    guest.output(&start)
}

/// Copies the images, unpacked, to files that a kernel may change.
fn copies(images: &[PathBuf], folder: &Path) -> Result<Vec<PathBuf>> {
    let copy = |(number, image): (usize, &PathBuf)| {
        let to = folder.join(format!("disk{number}"));
        if image.extension().is_some_and(|end| end == "gz") {
            let output = Command::new("gzip").arg("-dc").arg(image).stderr(Stdio::inherit()).output()?;
            fs::File::create(&to)?.write_all(&output.stdout)?;
        } else {
            fs::copy(image, &to)?;
        }
        Ok(to)
    };
    images.iter().enumerate().map(copy).collect::<Result<_>>().context("the images cannot be copied")
}
