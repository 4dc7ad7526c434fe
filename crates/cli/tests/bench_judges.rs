//! The workloads of the laboratory beside those of the programs that they come from, on one file system of
//! the kernel. The figures need an idle machine: `cargo xtask bench-judges` runs the test.

use std::path::Path;
use std::process::Command;

use obento_bench::results::{CellResult, Results};
use obento_bench::statistics::quantile;
use obento_testkit::oracle::{LoopMount, Oracle, call};
use obento_testkit::require;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The maximum difference of medians: of latencies, and of the figures of bonnie++.
const LATENCY: f64 = 0.10;
const BLOCKS: f64 = 0.15;
const ROUNDS: usize = 7;
/// The size of Bonnie's file in MiB. bonnie++ prints no figure for a phase of less than half a second, such as reading
/// 6 GiB of cached pages.
const FILE: usize = 7168;

/// The kernel's ext4 on a file, writable by every user.
fn ext4(folder: &Path) -> LoopMount {
    let image = folder.join("disk.img");
    std::fs::File::create(&image).unwrap().set_len(8 << 30).unwrap();
    call("mke2fs", ["-q".as_ref(), "-t".as_ref(), "ext4".as_ref(), image.as_os_str()]).unwrap();
    LoopMount::new(&image, "").unwrap()
}

/// Makes everything run on one processor, including the kernel threads of the loop device. In a virtual machine it
/// takes about 45 us to wake another processor, and whether that happens differs from program to program.
struct OneProcessor {
    before: CpuSet,
    mask: String,
}

/// Returns the processors for the kernel threads that belong to no processor.
const MASK: &str = "/sys/devices/virtual/workqueue/cpumask";

impl OneProcessor {
    fn new() -> Self {
        let (before, mut one) = (sched_getaffinity(None).unwrap(), CpuSet::new());
        one.set(0);
        sched_setaffinity(None, &one).unwrap();
        let mask = std::fs::read_to_string(MASK).unwrap();
        std::fs::write(MASK, "1").unwrap();
        Self { before, mask }
    }
}

impl Drop for OneProcessor {
    fn drop(&mut self) {
        sched_setaffinity(None, &self.before).unwrap();
        std::fs::write(MASK, self.mask.trim()).unwrap();
    }
}

/// Returns the figures of the laboratory in `folder`.
fn measured(folder: &Path, at: &Path, rounds: usize, arguments: &[&str]) -> Results {
    let results = folder.join("r.json");
    let _ = std::fs::remove_file(&results);
    let rounds = rounds.to_string();
    let target = format!("path:{}", at.display());
    let output = Command::new(env!("CARGO_BIN_EXE_obento"))
        .args(["bench", "-T", &target, "--repeat", &rounds, "--repeat-most", &rounds, "--no-progress"])
        .args(arguments)
        .arg("--dir")
        .arg(folder)
        .arg("--output")
        .arg(&results)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Results::load(&results).unwrap()
}

/// Returns the values of a percentile in order, one per sample.
fn curve(cell: &CellResult, phase: &str, at: &str) -> Vec<f64> {
    let phases = cell.samples.iter().flat_map(|sample| &sample.phases).filter(|known| known.name == phase);
    let mut all: Vec<f64> = phases.filter_map(|known| known.percentiles.get(at).copied()).collect();
    all.sort_by(f64::total_cmp);
    all
}

/// Touches as much memory as a run of `FILE` uses. The host of a virtual machine reclaims memory that is unused for two
/// seconds, and returns it page by page when it is touched. Without this, the first program pays for that, with up to
/// three quarters of its time.
fn take_memory() {
    let mut memory = vec![0_u8; FILE << 20];
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    std::hint::black_box(&memory);
}

fn median(sorted: &[f64]) -> f64 {
    quantile(sorted, 0.5).unwrap()
}

#[test]
#[ignore = "figures of an idle machine: cargo xtask bench-judges"]
fn latencies_agree_with_those_of_fio() {
    if !require(&[Oracle::LoopMount, Oracle::Program("mke2fs"), Oracle::Program("fio")]) {
        return;
    }
    let _one = OneProcessor::new();
    let folder = tempfile::tempdir().unwrap();
    let mount = ext4(folder.path());
    let names = ["lat_seq_read_4k", "lat_rand_read_4k", "lat_seq_write_4k", "lat_rand_write_4k"];
    let deep = names.map(|name| format!("{name},depth=16"));
    let all: Vec<&str> = names.into_iter().chain(deep.iter().map(String::as_str)).collect();
    let options = ["--file-size", "256M", "--run-time", "3"];
    let results = measured(folder.path(), mount.path(), ROUNDS, &[all.as_slice(), &options].concat());
    let mut apart = Vec::new();
    for cell in &results.cells {
        let of = |phase, at| curve(cell, phase, at);
        let (ours, fio) = (median(&of("", "50")), median(&of("fio", "50")));
        let ratio = ours / fio;
        let (tail, judge) = (median(&of("", "99")), of("fio", "99"));
        let bounds = (judge[0] * (1.0 - LATENCY), judge[judge.len() - 1] * (1.0 + LATENCY));
        println!(
            "{:<28} p50 {ours:7.1} us, fio {fio:7.1}: {ratio:.2}; p99 {tail:7.1}, fio's {:.1} to {:.1}",
            cell.workload,
            judge[0],
            judge[judge.len() - 1]
        );
        if (ratio - 1.0).abs() > LATENCY || tail < bounds.0 || tail > bounds.1 {
            apart.push(cell.workload.clone());
        }
    }
    assert!(apart.is_empty(), "apart: {}", apart.join(", "));
}

#[test]
#[ignore = "figures of an idle machine: cargo xtask bench-judges"]
fn block_figures_agree_with_those_of_bonnie() {
    if !require(&[Oracle::LoopMount, Oracle::Program("mke2fs"), Oracle::Program("bonnie++")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mount = ext4(folder.path());
    let mut judge: [Vec<f64>; 3] = Default::default();
    let mut ours: [Vec<f64>; 3] = Default::default();
    for _ in 0..ROUNDS {
        // In turns, so that both get the same share of a drift of the machine. Bonnie uses chunks of 16 KiB,
        // and a file twice as large as the memory.
        take_memory();
        let (memory, size) = ((FILE / 2).to_string(), format!("{FILE}m:16k"));
        let said = Command::new("bonnie++")
            .args(["-q", "-f", "-u", "root", "-n", "0", "-r", &memory, "-s", &size, "-m", "judge", "-d"])
            .arg(mount.path())
            .output()
            .unwrap();
        let line = String::from_utf8(said.stdout).unwrap();
        // After nine fields on the run come K/s and %CPU of characters, blocks and rewriting written, of characters and
        // blocks read (bonnie++ 2.00a, bon_csv2html(1)).
        let fields: Vec<&str> = line.trim().split(',').collect();
        let kib = |at: usize| fields[at].parse::<f64>().unwrap_or_else(|_| panic!("{line}")) / 1024.0;
        for (all, at) in judge.iter_mut().zip([11, 13, 17]) {
            all.push(kib(at));
        }
        take_memory();
        let size = format!("{FILE}M");
        let results = measured(folder.path(), mount.path(), 1, &["bonnie-blocks", "--file-size", &size]);
        for (all, phase) in ours.iter_mut().zip(["output block", "rewrite", "input block"]) {
            all.extend(results.cells[0].figures(phase).into_iter().map(|(_, figure)| figure));
        }
    }
    let mut apart = Vec::new();
    for ((judge, ours), name) in
        judge.iter_mut().zip(&mut ours).zip(["output block", "rewrite", "input block"])
    {
        judge.sort_by(f64::total_cmp);
        ours.sort_by(f64::total_cmp);
        let ratio = median(ours) / median(judge);
        println!("{name:<14} {:8.0} MB/s, bonnie++ {:8.0}: {ratio:.2}", median(ours), median(judge));
        if (ratio - 1.0).abs() > BLOCKS {
            apart.push(name);
        }
    }
    assert!(apart.is_empty(), "apart: {}", apart.join(", "));
}
