//! Compares building images with other programs: `cargo bench -p obento-cli --bench build`.
//!
//! Each line is a ratio of whole commands on the same tree in the page cache, each followed by a sync of its output. It
//! shows the median of paired rounds, and then the median of the processor time, which other processes disturb less.
//! obento is compared with `mke2fs -d`, with `fstool create` if it is in `PATH`, and with `cp -r` on the host.
//! Arguments select lines by name (`small`, `large`, `wide`, `flat`). `OBENTO_BENCH_DIR` sets the folder, which needs
//! 12 GiB; `OBENTO_BENCH_ROUNDS` sets the number of rounds; `OBENTO_BENCH_SCALE` divides the sizes, for a trial run.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use obento_testkit::oracle::{Oracle, program};
use obento_testkit::require;

/// No new round of a comparison begins after this time: `mke2fs -d` takes minutes for one round of some
/// lines.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("sync")]) {
        return Ok(());
    }
    if !require(&[Oracle::Program("fstool")]) {
        println!("without fstool, which `cargo install fstool --locked` installs");
    }
    let folder = tempfile::Builder::new().prefix("obento-bench-").tempdir_in(scratch())?;
    println!("{:<28} {:>9} {:>9} {:>9} {:>9}", "", "obento", "other", "ratio", "CPU");
    let scale = number("SCALE", 1).max(1);
    if chosen("small") {
        let tree = folder.path().join("small");
        files(&tree, 1000 / scale, 100, 1024)?;
        compare(folder.path(), "100,000 x 1 KiB", &tree)?;
        fs::remove_dir_all(&tree)?;
    }
    if chosen("large") {
        let tree = folder.path().join("large");
        files(&tree, 1, 1, (1 << 30) / scale)?;
        compare(folder.path(), "one file of 1 GiB", &tree)?;
        fs::remove_dir_all(&tree)?;
    }
    if chosen("wide") {
        let tree = folder.path().join("wide");
        files(&tree, 1, 40_000 / scale, 10)?;
        compare(folder.path(), "40,000 in one directory", &tree)?;
        fs::remove_dir_all(&tree)?;
    }
    if chosen("flat") {
        flat(folder.path(), scale)?;
    }
    Ok(())
}

/// The cost of a file among 10,000 and among 1,000,000, and the peak memory.
fn flat(folder: &Path, scale: u64) -> Result<()> {
    let mut costs = Vec::new();
    for count in [10_000 / scale.min(100), 100_000 / scale.min(1000), 1_000_000 / scale] {
        let tree = folder.join("flat");
        files(&tree, count / 100, 100, 100)?;
        let runs = (0..rounds()).map(|_| obento(folder, &tree)).collect::<Result<Vec<_>>>()?;
        let each = |time: fn(&Time) -> f64| {
            median(runs.iter().map(|(held, _)| time(held) * 1e6 / count as f64).collect())
        };
        let (clock, cpu) = (each(|time| time.clock), each(|time| time.cpu));
        let memory = runs.iter().map(|(_, memory)| *memory).max().unwrap_or(0);
        println!("{count} files: {clock:.1} us a file, {cpu:.1} us of CPU, {} MiB at most", memory >> 10);
        costs.push((clock, cpu));
        fs::remove_dir_all(&tree)?;
    }
    let ((clock, cpu), (first_clock, first_cpu)) = (costs[2], costs[0]);
    println!("ratio of the cost of a file: {:.2}, of CPU {:.2}", clock / first_clock, cpu / first_cpu);
    Ok(())
}

/// Returns whether a line is selected: without arguments, all lines are.
fn chosen(line: &str) -> bool {
    let mut names = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    names.peek().is_none() || names.any(|name| name == line)
}

fn rounds() -> usize {
    usize::try_from(number("ROUNDS", 5)).unwrap_or(1).max(1)
}

/// Returns the value of the variable `OBENTO_BENCH_NAME`.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(format!("OBENTO_BENCH_{name}")).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn scratch() -> PathBuf {
    std::env::var_os("OBENTO_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

fn files(tree: &Path, directories: u64, each: u64, len: u64) -> Result<()> {
    let block = vec![b'x'; usize::try_from(len.min(1 << 20))?];
    for directory in 0..directories.max(1) {
        let path = tree.join(format!("d{directory:05}"));
        fs::create_dir_all(&path)?;
        for file in 0..each {
            let mut file = File::create(path.join(format!("file-{file:06}")))?;
            let mut left = len;
            while left > 0 {
                let part = left.min(block.len() as u64);
                std::io::Write::write_all(&mut file, &block[..usize::try_from(part)?])?;
                left -= part;
            }
        }
    }
    Ok(())
}

/// The cost of a command, in seconds.
#[derive(Clone, Copy)]
struct Time {
    clock: f64,
    /// User and system time of the started programs.
    cpu: f64,
}

/// The start of a command.
struct Start(Instant, f64);

impl Start {
    fn now() -> Result<Self> {
        Ok(Self(Instant::now(), children()?))
    }

    fn time(&self) -> Result<Time> {
        Ok(Time { clock: self.0.elapsed().as_secs_f64(), cpu: (children()? - self.1).max(0.01) })
    }
}

/// Returns the processor time of all child processes that have ended: `cutime` and `cstime` of proc(5), in
/// hundredths.
fn children() -> Result<f64> {
    let text = fs::read_to_string("/proc/self/stat")?;
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: Vec<f64> = fields.skip(13).take(2).filter_map(|field| field.parse().ok()).collect();
    Ok(ticks.iter().sum::<f64>() / 100.0)
}

/// Runs another program that builds the image. Returns its time with a sync.
type Other<'a> = (&'a str, Box<dyn Fn() -> Result<Time> + 'a>);

fn compare(folder: &Path, name: &str, tree: &Path) -> Result<()> {
    let (image, copy) = (folder.join("other.img"), folder.join("copy"));
    let size = size_of_image(folder, tree)?;
    let mut others: Vec<Other<'_>> = Vec::new();
    others.push((
        "mke2fs -d",
        Box::new(|| {
            let _ = fs::remove_file(&image);
            let start = Start::now()?;
            let inodes = "-N150000";
            let mut command = program("mke2fs");
            command
                .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", inodes, "-d"])
                .arg(tree)
                .arg(&image);
            // The program creates 150,000 inodes of 256 bytes, even if the tree needs fewer.
            run(command.arg(format!("{}k", (size >> 10) + (64 << 10))))?;
            synced(&image, &start)
        }),
    ));
    if program("fstool").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok() {
        others.push((
            "fstool create",
            Box::new(|| {
                let _ = fs::remove_file(&image);
                let start = Start::now()?;
                let mut command = program("fstool");
                command.args(["create", "-t", "ext4", "-O", "block_size=4096"]).arg(tree);
                run(command.arg("-o").arg(&image))?;
                synced(&image, &start)
            }),
        ));
    }
    others.push((
        "cp -r",
        Box::new(|| {
            let _ = fs::remove_dir_all(&copy);
            let start = Start::now()?;
            run(program("cp").arg("-r").arg(tree).arg(&copy))?;
            run(program("sync").arg("-f").arg(&copy))?;
            start.time()
        }),
    ));
    for (other, time) in &others {
        let (mut pairs, start) = (Vec::new(), Instant::now());
        while pairs.is_empty() || pairs.len() < rounds() && start.elapsed() < PATIENCE {
            let (ours, _) = obento(folder, tree)?;
            pairs.push((ours, time()?));
        }
        let count = pairs.len();
        let ours = median(pairs.iter().map(|(ours, _)| ours.clock).collect());
        let theirs = median(pairs.iter().map(|(_, theirs)| theirs.clock).collect());
        let ratio = median(pairs.iter().map(|(ours, theirs)| ours.clock / theirs.clock).collect());
        let cpu = median(pairs.iter().map(|(ours, theirs)| ours.cpu / theirs.cpu).collect());
        println!("{name:<28} {ours:>8.2}s {theirs:>8.2}s {ratio:>9.4} {cpu:>9.4}  {other}, {count} rounds");
    }
    drop(others);
    let _ = fs::remove_dir_all(&copy);
    let _ = fs::remove_file(&image);
    Ok(())
}

/// Returns the size that obento calculates for the image, for programs that require one.
fn size_of_image(folder: &Path, tree: &Path) -> Result<u64> {
    obento(folder, tree)?;
    Ok(fs::metadata(folder.join("ours.img"))?.len())
}

/// Builds the image. Returns the time with a sync, and the peak memory in KiB.
fn obento(folder: &Path, tree: &Path) -> Result<(Time, u64)> {
    let image = folder.join("ours.img");
    let _ = fs::remove_file(&image);
    let start = Start::now()?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    let child = command.args(["build", "-q"]).arg(&image).arg("--from").arg(tree).spawn()?;
    let peak = peak_memory(child)?;
    Ok((synced(&image, &start)?, peak))
}

/// Waits for a child. Returns its peak memory in KiB, as observed.
fn peak_memory(mut child: std::process::Child) -> Result<u64> {
    let status = PathBuf::from(format!("/proc/{}/status", child.id()));
    let mut peak = 0;
    loop {
        if let Ok(text) = fs::read_to_string(&status) {
            let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
            peak = peak.max(kib.unwrap_or(0));
        }
        match child.try_wait()? {
            Some(status) => {
                ensure!(status.success(), "obento build failed: {status}");
                return Ok(peak);
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn synced(path: &Path, start: &Start) -> Result<Time> {
    File::open(path)?.sync_all()?;
    start.time()
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    let status = status.with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
