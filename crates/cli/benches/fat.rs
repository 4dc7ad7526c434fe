//! Compares FAT volumes of obento with mtools and mkfs.fat: `cargo bench -p obento-cli --bench fat`.
//!
//! Each line is a ratio of whole commands, the median of paired rounds, with the peak memory of obento
//! (`VmHWM`, read every few milliseconds). The time of each side ends when its output is on stable storage. Each side
//! syncs the image or the file system of the folder. All data is in the page cache. The time does not include the
//! removal of the output of a round and the creation of empty volumes. Arguments select lines by name (`in`, `out`,
//! `esp`). `OBENTO_BENCH_DIR` sets the folder, which needs 5 GiB, `OBENTO_BENCH_ROUNDS` the number of rounds, and
//! `OBENTO_BENCH_COMMAND` another obento. For a trial run, `OBENTO_BENCH_SCALE` sets a divisor of the number of files.

mod pairs;
#[path = "pairs/trees.rs"]
mod trees;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result};
use obento_testkit::oracle::{Oracle, program};
use obento_testkit::require;

use pairs::{Run, chosen, compare, head, number, obento, run, scratch};
use trees::{Dice, succeed, sync_file};

/// The many files.
const FILES: u64 = 20_000;
/// The image into which the many files are copied.
const VOLUME: u64 = 2 << 30;
/// The system partition that is built.
const ESP: u64 = 512 << 20;

fn main() -> Result<()> {
    let needed = ["mkfs.fat", "fsck.fat", "mcopy", "sync", "diff"].map(Oracle::Program);
    if !require(&needed) {
        return Ok(());
    }
    let folder = tempfile::Builder::new().prefix("obento-bench-").tempdir_in(scratch())?;
    let folder = folder.path();
    head();
    if chosen("in") || chosen("out") {
        let tree = folder.join("many");
        trees::many(&tree, FILES / number("SCALE", 1).max(1), 200, 64 << 10)?;
        if chosen("in") {
            copy_in(folder, &tree)?;
        }
        if chosen("out") {
            copy_out(folder, &tree)?;
        }
        fs::remove_dir_all(&tree)?;
    }
    if chosen("esp") {
        build(folder)?;
    }
    Ok(())
}

/// Creates the contents of a system partition with a few kernels, about 235 MiB. It has boot loaders, entries, fonts,
/// kernels of 8 to 14 MiB, and initial file systems of 20 to 60 MiB.
fn esp(tree: &Path) -> Result<()> {
    let mut dice = Dice(2);
    let block: Vec<u8> = (0..1 << 20).map(|_| dice.next().to_le_bytes()[0]).collect();
    let write = |path: String, len: u64| -> Result<()> {
        let path = tree.join(path);
        fs::create_dir_all(path.parent().context("a folder")?)?;
        let (mut file, mut left) = (File::create(path)?, len);
        while left > 0 {
            let part = left.min(block.len() as u64);
            file.write_all(&block[..usize::try_from(part)?])?;
            left -= part;
        }
        Ok(())
    };
    for (name, kib) in [("BOOT/BOOTX64.EFI", 940), ("debian/grubx64.efi", 2600), ("debian/shimx64.efi", 940)]
    {
        write(format!("EFI/{name}"), kib << 10)?;
    }
    for (version, (kernel, initrd)) in [(8, 20), (10, 36), (12, 50), (14, 60)].into_iter().enumerate() {
        let token = format!("4f1c6b0e9d5a4c2f/6.{version}.0-amd64");
        write(format!("{token}/linux"), kernel << 20)?;
        write(format!("{token}/initrd.img"), initrd << 20)?;
        write(format!("loader/entries/{}.conf", token.replace('/', "-")), 320)?;
    }
    for module in 0..48 {
        write(format!("EFI/debian/x86_64-efi/module-{module:02}.mod"), (100 + 13 * module) << 10)?;
    }
    write("loader/loader.conf".into(), 90)
}

fn copy_in(folder: &Path, tree: &Path) -> Result<()> {
    let image = folder.join("in.img");
    let target = format!("{}:/", image.display());
    let ours = || {
        format(&image, VOLUME)?;
        run(obento().args(["cp", "-r"]).arg(tree).arg(&target), || sync_file(&image))
    };
    let theirs = || {
        format(&image, VOLUME)?;
        run(mcopy(&image).arg(tree).arg("::/"), || sync_file(&image))
    };
    compare("20,000 files in", "mcopy -s", ours, theirs, || check(&image))?;
    Ok(fs::remove_file(&image)?)
}

fn copy_out(folder: &Path, tree: &Path) -> Result<()> {
    let (image, out) = (folder.join("out.img"), folder.join("out"));
    format(&image, VOLUME)?;
    run(mcopy(&image).arg(tree).arg("::/"), || sync_file(&image))?;
    let source = format!("{}:/many", image.display());
    let fresh = || {
        let _ = fs::remove_dir_all(&out);
        fs::create_dir(&out)
    };
    let sync = || succeed(program("sync").arg("-f").arg(&out));
    let ours = || {
        fresh()?;
        run(obento().args(["cp", "-r", &source]).arg(&out), sync)
    };
    let theirs = || {
        fresh()?;
        run(mcopy(&image).arg("::/many").arg(&out), sync)
    };
    let same = || succeed(program("diff").arg("-r").arg(tree).arg(out.join("many")));
    compare("20,000 files out", "mcopy -s", ours, theirs, same)?;
    fs::remove_file(&image)?;
    Ok(fs::remove_dir_all(&out)?)
}

fn build(folder: &Path) -> Result<()> {
    let (tree, image) = (folder.join("esp"), folder.join("esp.img"));
    esp(&tree)?;
    let size = format!("{}M", ESP >> 20);
    let ours = || {
        let _ = fs::remove_file(&image);
        let mut command = obento();
        command.args(["build", "-q", "-t", "vfat", "--size", &size]).arg(&image).arg("--from").arg(&tree);
        run(&mut command, || sync_file(&image))
    };
    let theirs = || {
        let _ = fs::remove_file(&image);
        let start = Instant::now();
        format(&image, ESP)?;
        let mut command = mcopy(&image);
        for entry in fs::read_dir(&tree)? {
            command.arg(entry?.path());
        }
        let copied = run(command.arg("::/"), || sync_file(&image))?;
        Ok(Run { time: start.elapsed(), ..copied })
    };
    compare("an ESP of 512 MiB", "mkfs.fat, mcopy -s", ours, theirs, || check(&image))?;
    fs::remove_file(&image)?;
    Ok(fs::remove_dir_all(&tree)?)
}

/// Creates a sparse file with an empty FAT32 volume.
fn format(image: &Path, len: u64) -> Result<()> {
    File::create(image)?.set_len(len)?;
    succeed(program("mkfs.fat").args(["-F", "32"]).arg(image))
}

fn check(image: &Path) -> Result<()> {
    succeed(program("fsck.fat").arg("-n").arg(image))
}

/// mcopy for directories, without questions.
fn mcopy(image: &Path) -> Command {
    let mut command = program("mcopy");
    command.args(["-s", "-n", "-Q", "-i"]).arg(image);
    command
}
