//! Compares changing an image with mounting it: `cargo bench -p obento-cli --bench editing` (as root).
//!
//! Each line is a ratio of whole commands: obento to the kernel's ext4 on a loop mount of an identical image in the
//! same folder. It shows the median of paired rounds. Both sides include opening or mounting, the work, closing or
//! unmounting, and a sync of the image file. All data is in the page cache on both sides. Arguments select lines by
//! name. `OBENTO_BENCH_DIR` sets the folder, which needs 16 GiB, and `OBENTO_BENCH_ROUNDS` the number of rounds. For a
//! trial run, `OBENTO_BENCH_DIRECTORIES` and `OBENTO_BENCH_MIB` set the sizes of smaller trees and files.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use obento_testkit::oracle::{LoopMount, Oracle, call, program};
use obento_testkit::require;

/// Files in each directory of the tree.
const FILES: u64 = 100;

fn main() -> Result<()> {
    if !require(&[Oracle::LoopMount, Oracle::Program("mke2fs"), Oracle::Program("e2fsck")]) {
        return Ok(());
    }
    let folder = tempfile::Builder::new().prefix("obento-bench-").tempdir_in(scratch())?;
    println!("{} rounds each; ratio below 1: obento is faster\n", rounds());
    println!("{:<36} {:>9} {:>9} {:>7} {:>7} {:>7}", "", "obento", "kernel", "ratio", "least", "most");
    if chosen("tree") || chosen("remove") {
        tree(folder.path())?;
    }
    if chosen("large") {
        large_file(folder.path())?;
    }
    Ok(())
}

/// Returns whether a line is selected: without arguments, all lines are.
fn chosen(line: &str) -> bool {
    let mut names = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    names.peek().is_none() || names.any(|name| name == line)
}

fn rounds() -> usize {
    usize::try_from(number("ROUNDS", 7)).unwrap_or(1).max(1)
}

/// Returns the value of the variable `OBENTO_BENCH_NAME`.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(format!("OBENTO_BENCH_{name}")).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn scratch() -> PathBuf {
    std::env::var_os("OBENTO_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// Files of 1 KiB in 1,000 directories: copied into an empty image, and removed again.
fn tree(folder: &Path) -> Result<()> {
    let source = folder.join("tree");
    let directories = number("DIRECTORIES", 1_000);
    let files = directories * FILES;
    for directory in 0..directories {
        let path = source.join(format!("d{directory:04}"));
        fs::create_dir_all(&path)?;
        for file in 0..FILES {
            fs::write(path.join(format!("f{file:03}")), [b'x'; 1024])?;
        }
    }
    let sides = Sides::new(folder, 1 << 30, &["-N", &(files * 11 / 10 + 100).to_string()])?;
    let to = |image: &Path| format!("{}:/", image.display());
    let into = |image: &Path| obento(&["cp".as_ref(), "-a".as_ref(), source.as_os_str(), to(image).as_ref()]);
    if chosen("tree") {
        sides.compare(&format!("cp -a of {files} x 1 KiB"), into, |mount| {
            time(program("cp").arg("-a").arg(&source).arg(mount))
        })?;
    }
    if chosen("remove") {
        into(&sides.pristine)?;
        sides.compare(
            "rm -r of that tree",
            |image| obento(&["rm".as_ref(), "-r".as_ref(), format!("{}tree", to(image)).as_ref()]),
            |mount| time(program("rm").arg("-r").arg(mount.join("tree"))),
        )?;
    }
    Ok(())
}

fn large_file(folder: &Path) -> Result<()> {
    let source = folder.join("plain");
    let block = vec![0x5a; 1 << 20];
    let mut file = File::create(&source)?;
    let mib = number("MIB", 4096);
    for _ in 0..mib {
        std::io::Write::write_all(&mut file, &block)?;
    }
    drop(file);
    call("sync", [&source])?;
    let sides = Sides::new(folder, (mib + 512) << 20, &[])?;
    sides.compare(
        &format!("cp of one file of {mib} MiB"),
        |image| obento(&["cp".as_ref(), source.as_os_str(), format!("{}:/", image.display()).as_ref()]),
        |mount| time(program("cp").arg(&source).arg(mount)),
    )
}

/// Two images, copied from one original for each round.
struct Sides {
    pristine: PathBuf,
    image: PathBuf,
}

impl Sides {
    fn new(folder: &Path, len: u64, arguments: &[&str]) -> Result<Self> {
        let pristine = folder.join("pristine.img");
        File::create(&pristine)?.set_len(len)?;
        let arguments = ["-q", "-F", "-t", "ext4"].iter().chain(arguments).map(|argument| (*argument).into());
        call("mke2fs", arguments.chain([pristine.clone().into_os_string()]))?;
        Ok(Self { pristine, image: folder.join("disk.img") })
    }

    fn fresh(&self) -> Result<()> {
        call("cp", ["--sparse=always".as_ref(), self.pristine.as_os_str(), self.image.as_os_str()])?;
        call("sync", [&self.image])?;
        Ok(())
    }

    fn ours(&self, work: impl Fn(&Path) -> Result<Duration>) -> Result<Duration> {
        self.fresh()?;
        let started = Instant::now();
        work(&self.image)?;
        call("sync", [&self.image])?;
        let elapsed = started.elapsed();
        call("e2fsck", ["-fn".as_ref(), self.image.as_os_str()])?;
        Ok(elapsed)
    }

    fn kernel(&self, work: impl Fn(&Path) -> Result<Duration>) -> Result<Duration> {
        self.fresh()?;
        let started = Instant::now();
        let mount = LoopMount::new(&self.image, "")?;
        work(mount.path())?;
        mount.unmount()?;
        call("sync", [&self.image])?;
        Ok(started.elapsed())
    }

    /// Runs both in turn, once to warm up, and prints the medians and the ratio of each pair.
    fn compare(
        &self,
        what: &str,
        ours: impl Fn(&Path) -> Result<Duration>,
        kernel: impl Fn(&Path) -> Result<Duration>,
    ) -> Result<()> {
        self.ours(&ours)?;
        self.kernel(&kernel)?;
        let rounds = rounds();
        let mut pairs = Vec::new();
        for _ in 0..rounds {
            pairs.push((self.ours(&ours)?.as_secs_f64(), self.kernel(&kernel)?.as_secs_f64()));
        }
        let sorted = |pick: fn(&(f64, f64)) -> f64| {
            let mut values: Vec<f64> = pairs.iter().map(pick).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let (mine, theirs, ratios) = (sorted(|r| r.0), sorted(|r| r.1), sorted(|r| r.0 / r.1));
        let middle = rounds / 2;
        println!(
            "{what:<36} {:>8.3}s {:>8.3}s {:>7.2} {:>7.2} {:>7.2}",
            mine[middle],
            theirs[middle],
            ratios[middle],
            ratios[0],
            ratios[rounds - 1]
        );
        Ok(())
    }
}

fn obento(arguments: &[&std::ffi::OsStr]) -> Result<Duration> {
    let command = std::env::var_os("OBENTO_BENCH_COMMAND").unwrap_or(env!("CARGO_BIN_EXE_obento").into());
    time(Command::new(command).args(arguments))
}

/// Runs a command to its end and discards its output.
fn time(command: &mut Command) -> Result<Duration> {
    let started = Instant::now();
    let output =
        command.stdout(Stdio::null()).output().with_context(|| format!("cannot start {command:?}"))?;
    let elapsed = started.elapsed();
    let reported = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}\n{reported}", output.status);
    Ok(elapsed)
}
