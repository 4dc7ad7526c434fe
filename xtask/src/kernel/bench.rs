//! What operations cost with a driver in the kernel and with the kernel's own ext4: instructions, device writes and flushes.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use xshell::{Shell, cmd};

use super::BenchOptions;
use super::guest::{Start, e2fsck, empty};

/// Volumes: ext4 and obento with `data=ordered`, and both with `data=journal`.
const DISKS: usize = 4;
const MIB: u64 = 512;

/// Runs the bench case, and prints a table for each mode of data.
pub fn run(shell: &Shell, options: &BenchOptions) -> Result<()> {
    ensure!(!options.kernel.uml, "instructions are counted in QEMU only: leave out --uml");
    let kernel = super::KernelOptions { stock: true, ..options.kernel.clone() };
    let (guest, target) = super::guest(shell, &kernel, options.module.as_deref())?;
    let folder = target.join("images");
    fs::create_dir_all(&folder)?;
    let disks: Vec<PathBuf> = (0..DISKS).map(|number| folder.join(format!("bench{number}.img"))).collect();
    for disk in &disks {
        empty(disk, MIB)?;
        cmd!(shell, "mke2fs -q -F -t ext4 -E lazy_itable_init=0,lazy_journal_init=0 {disk}").quiet().run()?;
    }
    let paths: Vec<_> = disks.iter().map(PathBuf::as_path).collect();
    let mut start = Start::new("bench", &paths);
    start = start.word(format!("obento.count={}", options.count));
    start = start.word(format!("obento.rounds={}", options.rounds));
    start.counts = true;
    start.memory = 512;
    start.limit = Duration::from_secs(3600);
    let output = guest.run(&start)?;
    disks.iter().try_for_each(|disk| e2fsck(shell, disk))?;
    let figures = figures(&output)?;
    for mode in ["ordered", "journal"] {
        println!("data={mode}\n\n{}", table(&figures, mode));
    }
    Ok(())
}

/// What one phase cost on one volume in one round.
#[derive(Clone, Copy)]
struct Cost {
    operations: u64,
    /// Instructions of the calls, and with those of the sync that follows.
    called: u64,
    synced: u64,
    writes: u64,
    sectors: u64,
    flushes: u64,
}

/// One line of the output: a volume, a phase and its cost.
struct Figure<'t> {
    volume: &'t str,
    phase: &'t str,
    cost: Cost,
}

/// The lines `figure: VOLUME: PHASE: NUMBERS`.
fn figures(output: &str) -> Result<Vec<Figure<'_>>> {
    let lines = output.lines().filter_map(|line| line.trim().strip_prefix("figure: "));
    lines.map(|line| figure(line).with_context(|| format!("this line has no figure: {line}"))).collect()
}

fn figure(line: &str) -> Option<Figure<'_>> {
    let (volume, rest) = line.split_once(": ")?;
    let (phase, numbers) = rest.rsplit_once(": ")?;
    let numbers: Vec<u64> = numbers.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
    let [operations, called, synced, writes, sectors, flushes] = numbers[..] else { return None };
    Some(Figure { volume, phase, cost: Cost { operations, called, synced, writes, sectors, flushes } })
}

/// The median of the rounds.
fn median(figures: &[Figure<'_>], volume: &str, phase: &str, value: impl Fn(&Cost) -> u64) -> u64 {
    let mut values: Vec<u64> = figures
        .iter()
        .filter(|figure| figure.volume == volume && figure.phase == phase)
        .map(|figure| value(&figure.cost))
        .collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// A table of Markdown. Figures of ext4 come first.
fn table(figures: &[Figure<'_>], mode: &str) -> String {
    let (theirs, ours) = (format!("{mode} ext4"), format!("{mode} obento"));
    let mut phases: Vec<&str> = Vec::new();
    for figure in figures.iter().filter(|figure| figure.volume == ours) {
        if !phases.contains(&figure.phase) {
            phases.push(figure.phase);
        }
    }
    let mut text = String::from(
        "| operation | number | call: ext4 | obento | ratio | with sync: ext4 | obento | ratio | writes | KiB written | flushes |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for phase in phases {
        let both = |value: fn(&Cost) -> u64| {
            (median(figures, &theirs, phase, value), median(figures, &ours, phase, value))
        };
        let (operations, _) = both(|cost| cost.operations);
        let each = |(theirs, ours): (u64, u64)| {
            let ratio = ours as f64 / theirs.max(1) as f64;
            let per = operations.max(1);
            format!("{} | {} | {ratio:.2}", theirs / per, ours / per)
        };
        let pair = |(theirs, ours): (u64, u64)| format!("{theirs} / {ours}");
        let (called, synced) = (each(both(|cost| cost.called)), each(both(|cost| cost.synced)));
        let (writes, flushes) = (pair(both(|cost| cost.writes)), pair(both(|cost| cost.flushes)));
        let kib = pair(both(|cost| cost.sectors / 2));
        text.push_str(&format!(
            "| {phase} | {operations} | {called} | {synced} | {writes} | {kib} | {flushes} |\n"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_contains_the_medians_of_the_rounds_per_operation() {
        let output = "noise\nfigure: ordered ext4: open, read 4k, close: 10 1000 2000 4 64 1\n\
                      figure: ordered obento: open, read 4k, close: 10 500 900 2 32 1\n\
                      figure: ordered obento: open, read 4k, close: 10 520 1000 2 32 1\n\
                      figure: ordered obento: open, read 4k, close: 10 9000 1100 2 32 1\n";
        let text = table(&figures(output).unwrap(), "ordered");
        let row =
            "| open, read 4k, close | 10 | 100 | 52 | 0.52 | 200 | 100 | 0.50 | 4 / 2 | 32 / 16 | 1 / 1 |\n";
        assert!(text.ends_with(row), "{text}");
        assert!(figures("figure: ordered ext4: create: 1 2 x\n").is_err());
    }
}
