//! Damaged volumes in a kernel: each is mounted, walked, changed and unmounted, and the kernel must stay sound.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use xshell::{Shell, cmd};

use super::DamagedOptions;
use super::guest::{Guest, Start};

/// How many disks one kernel gets.
const DISKS: usize = 16;

/// How many seeds of damage are applied to each volume before the images are tested, for their size.
const SEEDS: u64 = 16;

/// The results of a campaign.
#[derive(Default)]
struct Tally {
    images: usize,
    mounted: usize,
    /// The images with which a kernel reported a bug, crashed or hung.
    failed: Vec<String>,
}

/// Runs all images of a folder, or images that are created for this run.
pub fn run(shell: &Shell, options: &DamagedOptions) -> Result<()> {
    let (guest, target) = super::guest(shell, &options.kernel, options.module.as_deref())?;
    let mut tally = Tally::default();
    match (&options.images, options.mutants) {
        (Some(images), _) => tally.folder(shell, &guest, &target, images)?,
        (None, wanted) => {
            let folder = target.join("mutants");
            for seed in (options.seed..).step_by(SEEDS as usize) {
                if tally.images >= wanted.unwrap_or_default() {
                    break;
                }
                create_mutants(shell, &folder, seed)?;
                tally.folder(shell, &guest, &target, &folder)?;
                println!("seeds {seed} to {}: {}", seed + SEEDS - 1, tally.line());
            }
            shell.remove_path(&folder)?;
        }
    }
    println!("{}", tally.line());
    ensure!(tally.failed.is_empty(), "these images failed: {}", tally.failed.join(", "));
    Ok(())
}

impl Tally {
    fn line(&self) -> String {
        let (images, mounted, failed) = (self.images, self.mounted, self.failed.len());
        format!("{images} images, {mounted} mounts of {}, {failed} failures", images * 2)
    }

    /// Runs all images of a folder.
    fn folder(&mut self, shell: &Shell, guest: &Guest, target: &Path, images: &Path) -> Result<()> {
        let folder = target.join("damaged");
        fs::create_dir_all(&folder)?;
        let mut paths: Vec<PathBuf> = shell.read_dir(images)?;
        paths.retain(|path| path.extension().is_some_and(|end| end == "gz" || end == "img"));
        paths.sort();
        ensure!(!paths.is_empty(), "{} has no images NAME.gz or NAME.img", images.display());
        for batch in paths.chunks(DISKS) {
            self.batch(guest, &folder, batch)?;
        }
        Ok(())
    }

    fn batch(&mut self, guest: &Guest, folder: &Path, batch: &[PathBuf]) -> Result<()> {
        let (output, reason) = start(guest, &copies(batch, folder)?)?;
        self.images += batch.len();
        self.mounted += output.lines().filter(|line| line.contains("files seen")).count();
        if reason.is_none() {
            return Ok(());
        }
        // One image after the other, for the name.
        for (image, disk) in batch.iter().zip(copies(batch, folder)?) {
            let (output, reason) = start(guest, &[disk])?;
            if let Some(reason) = reason {
                println!("FAILED {}: {reason}\n{output}", image.display());
                let name = image.file_name().unwrap_or_default();
                self.failed.push(name.to_string_lossy().into_owned());
            }
        }
        Ok(())
    }
}

/// Fills a folder with mutants of the volumes of the check campaign, from this seed on.
fn create_mutants(shell: &Shell, folder: &Path, seed: u64) -> Result<()> {
    shell.remove_path(folder)?;
    shell.create_dir(folder)?;
    let _folder = shell.push_env("OBENTO_KEEP", folder);
    let _seed = shell.push_env("OBENTO_SEED", seed.to_string());
    let _count = shell.push_env("OBENTO_MUTANTS", SEEDS.to_string());
    let test = "sealed_mutants_are_written_to_a_folder";
    cmd!(
        shell,
        "cargo test --quiet --locked -p obento-ext4 --test check_mutants -- --ignored --exact {test}"
    )
    .ignore_stdout()
    .run()?;
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
