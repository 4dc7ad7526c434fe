//! Where the time or the instructions of an operation are spent.
//!
//! User-mode-linux is a process, so `perf record` samples the kernel and the module. These samples are taken by time,
//! since not every machine counts instructions. The addresses of functions come from the guest. The stock kernel takes
//! samples itself, by a clock that counts instructions.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use xshell::{Shell, cmd};

use super::ProfileOptions;
use super::guest::{Start, empty};
use crate::packages;

/// Samples per second of processor time.
const RATE: u64 = 5000;
/// Functions that are printed.
const SHOWN: usize = 40;
const MIB: u64 = 512;
const SYMBOLS_MIB: u64 = 16;

/// Profiles one phase of the bench case, and prints the functions that take the most time.
pub fn run(shell: &Shell, options: &ProfileOptions) -> Result<()> {
    packages::ensure(shell, &[("/usr/bin/c++filt", "binutils")])?;
    if options.kernel.stock {
        return instructions(shell, options);
    }
    ensure!(!options.sync, "only the stock kernel profiles a sync: use --stock");
    packages::ensure(shell, &[("/usr/bin/perf", "linux-perf")])?;
    let (guest, target) = super::guest(shell, &options.kernel, options.module.as_deref())?;
    let folder = target.join("images");
    fs::create_dir_all(&folder)?;
    let (disk, symbols) = (folder.join("profile.img"), folder.join("symbols.img"));
    empty(&disk, MIB)?;
    empty(&symbols, SYMBOLS_MIB)?;
    cmd!(shell, "mke2fs -q -F -t ext4 -E lazy_itable_init=0,lazy_journal_init=0 {disk}").quiet().run()?;
    let phase = options.phase.replace(' ', "_");
    let start = Start::new("profile", &[&disk, &symbols])
        .word(format!("obento.type={}", options.fs_type))
        .word(format!("obento.phase={phase}"))
        .word(format!("obento.data={}", options.data))
        .word(format!("obento.count={}", options.count))
        .word(format!("obento.rounds={}", options.rounds));
    let (console, data) = (target.join("run/console"), target.join("run/perf.data"));
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-e", "cpu-clock:u", "-F", &RATE.to_string(), "-k", "CLOCK_BOOTTIME", "-o"]);
    let kernel = guest.uml(&start);
    perf.arg(&data).arg("--").arg(kernel.get_program()).args(kernel.get_args());
    perf.envs(kernel.get_envs().filter_map(|(name, value)| Some((name, value?))));
    perf.stdin(Stdio::null()).stdout(File::create(&console)?).stderr(Stdio::null());
    let (began, ended) = watch(&mut perf, &console)?;
    let text = fs::read_to_string(&console)?;
    let operations = text.lines().find_map(|line| line.strip_prefix("profile: end ")?.trim().parse().ok());
    let operations: u64 = operations.with_context(|| format!("the phase did not end:\n{text}"))?;
    let samples = cmd!(shell, "perf script -i {data} -F time,ip").quiet().ignore_stderr().read()?;
    let symbols = Symbols::new(&String::from_utf8_lossy(&fs::read(&symbols)?));
    print(shell, &symbols.count(&samples, began, ended), operations)
}

/// Profiles one phase in the stock kernel, whose clock counts instructions.
fn instructions(shell: &Shell, options: &ProfileOptions) -> Result<()> {
    /// Instructions between samples: `sampler::PERIOD` of the guest.
    const PERIOD: f64 = 10_000.0;
    let (guest, target) = super::guest(shell, &options.kernel, options.module.as_deref())?;
    let folder = target.join("images");
    fs::create_dir_all(&folder)?;
    let disk = folder.join("profile.img");
    empty(&disk, MIB)?;
    cmd!(shell, "mke2fs -q -F -t ext4 -E lazy_itable_init=0,lazy_journal_init=0 {disk}").quiet().run()?;
    let mut start = Start::new("profile", &[&disk])
        .word(format!("obento.type={}", options.fs_type))
        .word(format!("obento.phase={}", options.phase.replace(' ', "_")))
        .word(format!("obento.data={}", options.data))
        .word(format!("obento.synced={}", if options.sync { "yes" } else { "no" }))
        .word("obento.sampled=yes")
        .word(format!("obento.count={}", options.count))
        .word(format!("obento.rounds={}", options.rounds));
    start.counts = true;
    start.memory = 512;
    let text = guest.run(&start)?;
    let line = |prefix: &str| text.lines().find_map(|line| line.trim().strip_prefix(prefix));
    let operations: f64 = line("profile: end ").context("the phase did not end")?.parse()?;
    let all: f64 = line("samples: ").context("no samples")?.parse()?;
    println!("{operations} operations, {:.0} instructions each, in functions:", all * PERIOD / operations);
    let names: Vec<_> = text.lines().filter_map(|line| line.trim().strip_prefix("sample: ")).collect();
    let names = cmd!(shell, "c++filt").stdin(names.join("\n")).quiet().read()?;
    for (count, name) in names.lines().filter_map(|line| line.split_once(' ')) {
        let count: f64 = count.parse()?;
        println!("{:9.0}  {}", count * PERIOD / operations, name.get(..150).unwrap_or(name));
    }
    Ok(())
}

/// Runs the kernel, and returns when the phase began and ended, in seconds since the boot of this machine.
fn watch(perf: &mut Command, console: &Path) -> Result<(f64, f64)> {
    let (mut began, mut ended) = (None, None);
    let mut child = perf.spawn().context("perf")?;
    while child.try_wait()?.is_none() {
        let text = fs::read(console)?;
        let text = String::from_utf8_lossy(&text);
        for (mark, time) in [("profile: begin", &mut began), ("profile: end", &mut ended)] {
            if time.is_none() && text.contains(mark) {
                *time = Some(uptime()?);
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    began.zip(ended).context("the kernel ended before the phase")
}

fn uptime() -> Result<f64> {
    let text = fs::read_to_string("/proc/uptime")?;
    Ok(text.split(' ').next().unwrap_or_default().parse()?)
}

/// The functions of a kernel by their addresses.
struct Symbols(BTreeMap<u64, String>);

impl Symbols {
    /// Reads lines of `/proc/kallsyms`: `60012340 t name [module]`.
    fn new(text: &str) -> Self {
        let symbol = |line: &str| {
            let mut words = line.split_whitespace();
            let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
            let is_code = matches!(kind, "t" | "T" | "w" | "W");
            let name = words.next().map_or(name.to_owned(), |module| format!("{name} {module}"));
            is_code.then_some((u64::from_str_radix(address, 16).ok()?, name))
        };
        Self(text.lines().filter_map(symbol).collect())
    }

    /// Counts the samples of each function in lines of `perf script`: `TIME: ADDRESS`.
    fn count(&self, samples: &str, began: f64, ended: f64) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for line in samples.lines() {
            let mut words = line.split_whitespace();
            let (Some(time), Some(address)) = (words.next(), words.next()) else { continue };
            let time = time.trim_end_matches(':').parse().unwrap_or(0.0);
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            if time < began || time > ended {
                continue;
            }
            // A program of the guest has other addresses than its kernel.
            let found = self.0.range(..=address).next_back().filter(|(start, _)| address - **start < 1 << 17);
            *counts.entry(found.map_or("(program)", |(_, name)| name).to_owned()).or_default() += 1;
        }
        counts
    }
}

fn print(shell: &Shell, counts: &BTreeMap<String, u64>, operations: u64) -> Result<()> {
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_by_key(|&(name, &count)| (std::cmp::Reverse(count), name));
    let nanos = |samples: u64| samples as f64 * 1e9 / RATE as f64 / operations.max(1) as f64;
    let all: u64 = counts.iter().map(|&(_, &count)| count).sum();
    println!("{operations} operations, {:.0} ns each, in functions:", nanos(all));
    let names: Vec<_> = counts.iter().take(SHOWN).map(|(name, _)| name.as_str()).collect();
    let names = cmd!(shell, "c++filt").stdin(names.join("\n")).quiet().read()?;
    for ((_, count), name) in counts.iter().zip(names.lines()) {
        println!("{:9.1} ns  {}", nanos(**count), name.get(..150).unwrap_or(name));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_the_phase_are_counted_by_function() {
        let symbols = Symbols::new("60001000 T first\n60002000 t second [obento]\n60003000 d data\n");
        let samples = " 1.0:  60001004\n 2.5:  60002010\n 2.6:  60002020\n 2.7:  400010\n 9.0: 60001004\n";
        let counts = symbols.count(samples, 2.0, 3.0);
        let expected = [("(program)".to_owned(), 1), ("second [obento]".to_owned(), 2)];
        assert_eq!(counts.into_iter().collect::<Vec<_>>(), expected);
    }
}
