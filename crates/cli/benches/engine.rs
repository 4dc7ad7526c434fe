//! Compares the kernel engine with the kernel of the host: `cargo bench -p obento-cli --bench engine`, as
//! root.
//!
//! Each line is a ratio of whole commands, the median of paired rounds. The commands are `obento cp`, and `mount`, `cp`
//! and `umount` of a loop device, both until all data is on stable storage. `first` has no peer: it is the time from
//! the start of the command until the bytes of a small file arrive. All data is in the page cache. Arguments select
//! lines by name (`first`, `out`, `in`, `large`). `OBENTO_BENCH_DIR` sets the folder, which needs 5 GiB, and
//! `OBENTO_BENCH_ROUNDS` the number of rounds.

mod pairs;
#[path = "pairs/trees.rs"]
mod trees;

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};
use obento_testkit::oracle::{Oracle, program};
use obento_testkit::require;

use pairs::{Run, chosen, compare, head, number, obento, run, scratch};
use trees::{succeed, sync_file};

/// The many files, of 8.6 KB on average.
const FILES: u64 = 5_000;
const DIRECTORIES: u64 = 50;
const LONGEST: u64 = 26_000;
/// The image into which the many files are copied.
const VOLUME: u64 = 1 << 30;
/// The number of starts whose median is printed.
const STARTS: u64 = 20;

/// A type, the program that creates its volumes, and the command that fills a volume from a folder.
struct Kind {
    name: &'static str,
    maker: &'static str,
}

const KINDS: [Kind; 2] =
    [Kind { name: "xfs", maker: "mkfs.xfs" }, Kind { name: "btrfs", maker: "mkfs.btrfs" }];

fn main() -> Result<()> {
    let programs = ["linux.uml", "mkfs.xfs", "mkfs.btrfs", "mount", "umount", "cp", "sync", "diff"];
    if !require(&programs.map(Oracle::Program)) {
        return Ok(());
    }
    let folder = tempfile::Builder::new().prefix("obento-bench-").tempdir_in(scratch())?;
    let folder = folder.path();
    let tree = folder.join("many");
    trees::many(&tree, FILES / number("SCALE", 1).max(1), DIRECTORIES, LONGEST)?;
    fs::create_dir(folder.join("mnt"))?;
    head();
    for kind in &KINDS {
        let image = folder.join(kind.name);
        if chosen("in") {
            copy_in(kind, folder, &tree, &image)?;
        }
        if chosen("out") || chosen("first") {
            kind.format(&image, VOLUME)?;
            mounted(folder, &image, "rw", |target| Ok(vec![cp(&tree, target)]))?;
        }
        if chosen("out") {
            copy_out(kind, folder, &tree, &image)?;
        }
        if chosen("first") {
            first(kind, &tree, &image)?;
        }
        if chosen("large") {
            large(kind, folder, &image)?;
        }
        let _ = fs::remove_file(&image);
    }
    Ok(())
}

impl Kind {
    fn format(&self, image: &Path, len: u64) -> Result<()> {
        File::create(image)?.set_len(len)?;
        succeed(program(self.maker).arg("-q").arg(image))
    }
}

fn copy_in(kind: &Kind, folder: &Path, tree: &Path, image: &Path) -> Result<()> {
    let target = format!("{}:/", image.display());
    let ours = || {
        kind.format(image, VOLUME)?;
        run(obento().args(["cp", "-r"]).arg(tree).arg(&target), || sync_file(image))
    };
    let theirs = || {
        kind.format(image, VOLUME)?;
        mounted(folder, image, "rw", |target| Ok(vec![cp(tree, target)]))
    };
    let same = || {
        mounted(folder, image, "ro", |target| {
            let mut diff = program("diff");
            diff.arg("-r").arg(tree).arg(target.join("many"));
            Ok(vec![diff])
        })
        .map(drop)
    };
    compare(&format!("{}: 5,000 files in", kind.name), "mount, cp, umount", ours, theirs, same)
}

fn copy_out(kind: &Kind, folder: &Path, tree: &Path, image: &Path) -> Result<()> {
    let out = folder.join("out");
    let source = format!("{}:/many", image.display());
    let sync = || succeed(program("sync").arg("-f").arg(&out));
    let ours = || {
        fresh(&out)?;
        run(obento().args(["cp", "-r", &source]).arg(&out), sync)
    };
    let theirs = || {
        fresh(&out)?;
        let started = Instant::now();
        let copied = mounted(folder, image, "ro", |mnt| Ok(vec![cp(&mnt.join("many"), &out)]))?;
        sync()?;
        Ok(Run { time: started.elapsed(), ..copied })
    };
    let same = || succeed(program("diff").arg("-r").arg(tree).arg(out.join("many")));
    compare(&format!("{}: 5,000 files out", kind.name), "mount, cp, umount", ours, theirs, same)?;
    Ok(fs::remove_dir_all(&out)?)
}

/// Measures the time from the start of the command to the bytes of a small file.
fn first(kind: &Kind, tree: &Path, image: &Path) -> Result<()> {
    let file = "directory-007/file0002.bin";
    let expected = fs::read(tree.join(file))?;
    let source = format!("{}:/many/{file}", image.display());
    let mut times = Vec::new();
    for _ in 0..STARTS {
        let started = Instant::now();
        let output = obento().arg("cat").arg(&source).output()?;
        times.push(started.elapsed().as_secs_f64());
        ensure!(output.stdout == expected, "{source}: {}", String::from_utf8_lossy(&output.stderr));
    }
    times.sort_by(f64::total_cmp);
    let (least, median, most) = (times[0], times[times.len() / 2], times[times.len() - 1]);
    println!("| {}: a small file's bytes | {median:.3} s | | | {least:.3} s | {most:.3} s | |", kind.name);
    Ok(())
}

/// Copies a file of 1 GiB out of an image, and a file of the host.
fn large(kind: &Kind, folder: &Path, image: &Path) -> Result<()> {
    let (file, out) = (folder.join("large"), folder.join("out"));
    let mut dice = trees::Dice(3);
    let block: Vec<u8> = (0..1 << 20).map(|_| dice.next().to_le_bytes()[0]).collect();
    let bytes = block.repeat(usize::try_from((1024 / number("SCALE", 1)).max(1))?);
    fs::write(&file, bytes)?;
    kind.format(image, 2 << 30)?;
    mounted(folder, image, "rw", |target| Ok(vec![cp(&file, target)]))?;
    let source = format!("{}:/large", image.display());
    let sync = || sync_file(&out.join("large"));
    let ours = || {
        fresh(&out)?;
        run(obento().args(["cp", &source]).arg(&out), sync)
    };
    let theirs = || {
        fresh(&out)?;
        run(&mut cp(&file, &out), sync)
    };
    let same = || succeed(program("cmp").arg(&file).arg(out.join("large")));
    compare(&format!("{}: 1 GiB out", kind.name), "cp", ours, theirs, same)?;
    fs::remove_dir_all(&out)?;
    Ok(fs::remove_file(&file)?)
}

fn fresh(folder: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(folder);
    Ok(fs::create_dir(folder)?)
}

fn cp(from: &Path, to: &Path) -> Command {
    let mut command = program("cp");
    command.arg("-r").arg(from).arg(to);
    command
}

/// Mounts, runs `work` on the mount point, unmounts, and syncs the image.
fn mounted(
    folder: &Path,
    image: &Path,
    options: &str,
    work: impl FnOnce(&Path) -> Result<Vec<Command>>,
) -> Result<Run> {
    let mnt = folder.join("mnt");
    let commands = work(&mnt)?;
    let (started, before) = (Instant::now(), pairs::ticks());
    succeed(program("mount").args(["-o", &format!("loop,{options}")]).arg(image).arg(&mnt))?;
    let done = commands.into_iter().try_for_each(|mut command| succeed(&mut command));
    succeed(program("umount").arg(&mnt))?;
    done?;
    sync_file(image)?;
    Ok(Run { time: started.elapsed(), ticks: pairs::ticks().saturating_sub(before), memory: 0 })
}
