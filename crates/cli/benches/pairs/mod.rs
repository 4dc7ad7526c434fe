//! Whole commands in pairs, a round of one and a round of the other in turn.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

/// Whether a line is asked for: all of them, if none is named.
pub fn chosen(line: &str) -> bool {
    let mut names = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    names.peek().is_none() || names.any(|name| name == line)
}

fn rounds() -> usize {
    usize::try_from(number("ROUNDS", 7)).unwrap_or(1).max(1)
}

/// What `OBENTO_BENCH_NAME` says.
pub fn number(name: &str, default: u64) -> u64 {
    std::env::var(format!("OBENTO_BENCH_{name}")).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Where a benchmark works.
pub fn scratch() -> PathBuf {
    std::env::var_os("OBENTO_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// The lines above those of [`compare`].
pub fn head() {
    println!("{} rounds each; ratio below 1: obento is faster\n", rounds());
    println!("| what | obento | peer | ratio | least | most | obento's memory |");
    println!("|---|---|---|---|---|---|---|");
}

/// Numbers that are the same each time (Knuth's linear congruential generator).
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

/// `files` of 0 bytes to `longest`, most of them small, half of them with names of more than eight characters.
pub fn many(tree: &Path, files: u64, directories: u64, longest: u64) -> Result<()> {
    let mut dice = Dice(1);
    let block: Vec<u8> = (0..longest).map(|_| dice.next().to_le_bytes()[0]).collect();
    let each = files / directories;
    for directory in 0..directories {
        let path = tree.join(format!("directory-{directory:03}"));
        fs::create_dir_all(&path)?;
        for file in 0..each {
            // The square of an even distribution: a median of a quarter of the longest.
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

/// Has the bytes of a file on stable storage.
pub fn sync_file(path: &Path) -> Result<()> {
    Ok(File::open(path)?.sync_all()?)
}

/// The command, or another in its place.
pub fn obento() -> Command {
    Command::new(std::env::var_os("OBENTO_BENCH_COMMAND").unwrap_or(env!("CARGO_BIN_EXE_obento").into()))
}

/// Runs a command that must succeed.
pub fn succeed(command: &mut Command) -> Result<()> {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    let status = status.with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// What one run took.
pub struct Run {
    pub time: Duration,
    /// Peak of memory in KiB.
    pub memory: u64,
}

/// Runs a command to its end and then `sync`; its output is thrown away.
pub fn run(command: &mut Command, sync: impl FnOnce() -> Result<()>) -> Result<Run> {
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
pub fn compare(
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
