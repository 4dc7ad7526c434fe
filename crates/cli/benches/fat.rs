//! FAT with obento beside mtools and mkfs.fat: `cargo bench -p obento-cli --bench fat`.
//!
//! Each line is a ratio of whole commands, the median of paired rounds, with the peak of obento's memory (`VmHWM`, looked at
//! every few milliseconds). The time of each side ends when all that it made is on stable storage: a sync of the image, or of
//! the file system of the folder, counts on both sides. What is read is in the page cache; what a round made is removed, and
//! empty volumes are made, outside of the time. Names of lines on the command line choose among them (`in`, `out`, `esp`);
//! `OBENTO_BENCH_DIR` chooses the folder, which needs 5 GiB; `OBENTO_BENCH_ROUNDS` the rounds, `OBENTO_BENCH_COMMAND` another
//! obento, and `OBENTO_BENCH_SCALE` divides the count of files, to see that it runs.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use obento_testkit::oracle::{Oracle, program};
use obento_testkit::require;

/// Directories that the many files are in.
const DIRECTORIES: u64 = 200;
/// The many files.
const FILES: u64 = 20_000;
/// The longest of them.
const LONGEST: u64 = 64 << 10;
/// What the many files are copied into.
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
    println!("{} rounds each; ratio below 1: obento is faster\n", rounds());
    println!("| what | obento | peer | ratio | least | most | obento's memory |");
    println!("|---|---|---|---|---|---|---|");
    if chosen("in") || chosen("out") {
        let tree = folder.join("many");
        many(&tree)?;
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

/// Whether a line is asked for: all of them, if none is named.
fn chosen(line: &str) -> bool {
    let mut names = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    names.peek().is_none() || names.any(|name| name == line)
}

fn rounds() -> usize {
    usize::try_from(number("ROUNDS", 7)).unwrap_or(1).max(1)
}

/// What `OBENTO_BENCH_NAME` says.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(format!("OBENTO_BENCH_{name}")).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn scratch() -> PathBuf {
    std::env::var_os("OBENTO_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// Numbers that are the same each time (Knuth's linear congruential generator).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

/// Files of 0 to 64 KiB, most of them small, half of them with names of more than eight characters.
fn many(tree: &Path) -> Result<()> {
    let mut dice = Dice(1);
    let block: Vec<u8> = (0..LONGEST).map(|_| dice.next().to_le_bytes()[0]).collect();
    let each = FILES / DIRECTORIES / number("SCALE", 1).max(1);
    for directory in 0..DIRECTORIES {
        let path = tree.join(format!("directory-{directory:03}"));
        fs::create_dir_all(&path)?;
        for file in 0..each {
            // The square of an even distribution: a median of 16 KiB.
            let part = dice.next() % 1000;
            let len = usize::try_from(part * part * LONGEST / 1_000_000)?;
            let name = match file % 2 {
                0 => format!("file{file:04}.bin"),
                _ => format!("Photograph of {directory:03}, {file:04}.jpeg"),
            };
            fs::write(path.join(name), &block[..len])?;
        }
    }
    Ok(())
}

/// What lies on a system partition with a few kernels: boot loaders, entries, fonts, kernels of 8 to 14 MiB, initial file systems
/// of 20 to 60 MiB; about 235 MiB.
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

/// A file of holes with an empty FAT32 in it.
fn format(image: &Path, len: u64) -> Result<()> {
    File::create(image)?.set_len(len)?;
    succeed(program("mkfs.fat").args(["-F", "32"]).arg(image))
}

fn check(image: &Path) -> Result<()> {
    succeed(program("fsck.fat").arg("-n").arg(image))
}

fn sync_file(path: &Path) -> Result<()> {
    Ok(File::open(path)?.sync_all()?)
}

fn obento() -> Command {
    Command::new(std::env::var_os("OBENTO_BENCH_COMMAND").unwrap_or(env!("CARGO_BIN_EXE_obento").into()))
}

/// mcopy with directories and without questions.
fn mcopy(image: &Path) -> Command {
    let mut command = program("mcopy");
    command.args(["-s", "-n", "-Q", "-i"]).arg(image);
    command
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    let status = status.with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// What one run took.
struct Run {
    time: Duration,
    /// Peak of memory in KiB.
    memory: u64,
}

/// Runs a command to its end and then `sync`; its output is thrown away.
fn run(command: &mut Command, sync: impl FnOnce() -> Result<()>) -> Result<Run> {
    let started = Instant::now();
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let status = PathBuf::from(format!("/proc/{}/status", child.id()));
    let mut memory = 0;
    let ended = loop {
        memory = memory.max(peak(&status).unwrap_or(0));
        if let Some(ended) = child.try_wait()? {
            break ended;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    ensure!(ended.success(), "{command:?}: {ended}");
    sync()?;
    Ok(Run { time: started.elapsed(), memory })
}

fn peak(status: &Path) -> Option<u64> {
    let text = fs::read_to_string(status).ok()?;
    text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.split_whitespace().next()?.parse().ok()
}

/// Runs both in turn, once to warm up and to see with `verify` that the work was done, and prints the medians and the ratio of
/// each pair.
fn compare(
    what: &str,
    peer: &str,
    ours: impl Fn() -> Result<Run>,
    theirs: impl Fn() -> Result<Run>,
    verify: impl Fn() -> Result<()>,
) -> Result<()> {
    theirs()?;
    verify()?;
    ours()?;
    verify()?;
    let pairs = (0..rounds()).map(|_| Ok((ours()?, theirs()?))).collect::<Result<Vec<_>>>()?;
    let sorted = |pick: fn(&(Run, Run)) -> f64| {
        let mut values: Vec<f64> = pairs.iter().map(pick).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let mine = sorted(|(ours, _)| ours.time.as_secs_f64());
    let other = sorted(|(_, theirs)| theirs.time.as_secs_f64());
    let ratios = sorted(|(ours, theirs)| ours.time.as_secs_f64() / theirs.time.as_secs_f64());
    let (middle, last) = (pairs.len() / 2, pairs.len() - 1);
    let memory = pairs.iter().map(|(ours, _)| ours.memory).max().unwrap_or(0).div_ceil(1024);
    println!(
        "| {what} | {:.2} s | `{peer}`, {:.2} s | {:.2} | {:.2} | {:.2} | {memory} MiB |",
        mine[middle], other[middle], ratios[middle], ratios[0], ratios[last],
    );
    Ok(())
}
