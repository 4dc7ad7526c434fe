//! Runs whole commands in pairs: a round of one and a round of the other in turn.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// Returns whether a line is selected: without arguments, all lines are.
pub fn chosen(line: &str) -> bool {
    let mut names = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    names.peek().is_none() || names.any(|name| name == line)
}

fn rounds() -> usize {
    usize::try_from(number("ROUNDS", 7)).unwrap_or(1).max(1)
}

/// Returns the value of the variable `OBENTO_BENCH_NAME`.
pub fn number(name: &str, default: u64) -> u64 {
    std::env::var(format!("OBENTO_BENCH_{name}")).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Returns the folder of a benchmark.
pub fn scratch() -> PathBuf {
    std::env::var_os("OBENTO_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// Prints the lines above those of [`compare`].
pub fn head() {
    println!("{} rounds each; ratio below 1: obento is faster\n", rounds());
    println!("| what | obento | peer | ratio | least | most | ratio of processor time | obento's memory |");
    println!("|---|---|---|---|---|---|---|---|");
}

/// Returns the command, or the one that replaces it.
pub fn obento() -> Command {
    Command::new(std::env::var_os("OBENTO_BENCH_COMMAND").unwrap_or(env!("CARGO_BIN_EXE_obento").into()))
}

/// The cost of one run.
pub struct Run {
    pub time: Duration,
    /// Processor time of the command and of the processes that it waited for, in ticks.
    pub ticks: u64,
    /// Peak memory in KiB.
    pub memory: u64,
}

/// Runs a command to its end and then `sync`, and discards the output.
pub fn run(command: &mut Command, sync: impl FnOnce() -> Result<()>) -> Result<Run> {
    let before = ticks();
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
    Ok(Run { time: started.elapsed(), ticks: ticks().saturating_sub(before), memory })
}

/// Returns the processor time of all children that ended, in ticks of 10 ms.
/// Source: proc_pid_stat(5), `cutime` and `cstime`, the 16th and the 17th field. The second field ends with `)`.
pub fn ticks() -> u64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

fn peak(status: &Path) -> Option<u64> {
    let text = fs::read_to_string(status).ok()?;
    text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.split_whitespace().next()?.parse().ok()
}

/// Runs both in turn, once to warm up and to let `verify` examine the result. Prints the medians and the
/// ratio of each pair.
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
    let processor = sorted(|(ours, theirs)| ours.ticks as f64 / theirs.ticks.max(1) as f64);
    let memory = pairs.iter().map(|(ours, _)| ours.memory).max().unwrap_or(0).div_ceil(1024);
    println!(
        "| {what} | {:.2} s | `{peer}`, {:.2} s | {:.2} | {:.2} | {:.2} | {:.2} | {memory} MiB |",
        mine[middle], other[middle], ratios[middle], ratios[0], ratios[last], processor[middle],
    );
    Ok(())
}
