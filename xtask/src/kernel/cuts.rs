//! Power cuts at every write of the module, in the stock kernel: QEMU records the writes and flushes of a disk.
//!
//! The guest runs the plans of the crash explorer on a mount. Afterwards, a program derives the disks that a power failure
//! could leave from the log, and checks them by the rules of the explorer.
//!
//! Limit: QEMU logs a request after its file operation completed. If the module submits a flush while a write is in
//! flight, and the write completes before the flush, the log contains the write before the flush. The log then promises
//! this write, although a disk need not store it by that flush. A missing wait before a flush is therefore not detected.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use xshell::{Shell, cmd};

use super::guest::{Guest, GuestProgram, Start, empty};
use super::{CutsOptions, KernelOptions};

/// A volume: its name, its size in MiB, and the arguments of `mke2fs`.
type Volume = (&'static str, u64, &'static [&'static str]);

/// Small volumes, because a power failure can leave thousands of disks. The crash tests of the driver use the same ones.
const VOLUMES: [Volume; 3] = [
    ("ext4-4k", 12, &["-b", "4096", "-O", "^resize_inode", "-J", "size=4"]),
    ("ext4-1k", 3, &["-b", "1024", "-O", "^resize_inode", "-J", "size=1"]),
    ("inline-data", 3, &["-b", "1024", "-O", "inline_data,^resize_inode", "-J", "size=1"]),
];

/// The exit code of the judge if a power cut loses data. Other codes except 0 mean that it could not judge each plan.
const LOST: i32 = 1;

const MODES: [&str; 3] = ["ordered", "journal", "writeback"];

/// The volumes and data modes in which something failed.
#[derive(Default)]
struct CutFailures {
    lost: Vec<String>,
    /// The judge ended without a result, or a plan had other results than in the library.
    unjudged: Vec<String>,
}

/// Runs all plans on each volume in each data mode, and prints the number of states. The files of a failing volume are
/// preserved.
pub fn run(shell: &Shell, options: &CutsOptions) -> Result<()> {
    ensure!(!options.kernel.uml, "QEMU records writes, and user-mode-linux does not: leave out --uml");
    let kernel = KernelOptions { stock: true, ..options.kernel.clone() };
    let (guest, target) = super::guest_with(shell, &kernel, options.module.as_deref(), GuestProgram::Hosts)?;
    let folder = target.join("images");
    fs::create_dir_all(&folder)?;
    let mut failures = CutFailures::default();
    for (name, mib, arguments) in VOLUMES {
        let base = folder.join(format!("cuts-{name}.img"));
        empty(&base, mib)?;
        cmd!(shell, "mke2fs -q -F -t ext4 -E lazy_itable_init=0 {arguments...} {base}").quiet().run()?;
        let mut has_passed = true;
        for mode in MODES {
            has_passed &= has_mode_passed(&guest, &base, (name, mib), mode, &mut failures)?;
        }
        if has_passed {
            fs::remove_file(&base)?;
        }
    }
    let CutFailures { lost, unjudged } = failures;
    let reasons = [("a power cut loses data", lost), ("the judge could not judge each plan", unjudged)];
    let reasons = reasons.iter().filter(|(_, names)| !names.is_empty());
    let reasons: Vec<String> =
        reasons.map(|(reason, names)| format!("{reason}: {}", names.join("; "))).collect();
    ensure!(reasons.is_empty(), "{}", reasons.join("\n"));
    Ok(())
}

/// Runs all plans on the volume in `base`, and judges the log. Returns whether all states are correct.
fn has_mode_passed(
    guest: &Guest,
    base: &Path,
    (name, mib): (&str, u64),
    mode: &str,
    failures: &mut CutFailures,
) -> Result<bool> {
    let [log, output] = ["log", "txt"].map(|end| base.with_file_name(format!("cuts-{name}-{mode}.{end}")));
    let disk = base.with_file_name("cuts.img");
    // The marks are behind the volume.
    empty(&disk, mib + 1)?;
    fs::write(&log, "")?;
    let mut start = Start::new("cuts", &[&disk, base]).word(format!("obento.options=data={mode}"));
    start.log = Some(log.clone());
    fs::write(&output, guest.run(&start)?)?;
    println!("{name}, data={mode}:");
    let judge = guest.programs.join("obento-kernel-judge");
    let status = Command::new(&judge).arg(&log).arg(base).arg(mode).arg(&output).status()?;
    let failed = match status.code() {
        Some(0) => {
            fs::remove_file(&log)?;
            fs::remove_file(&output)?;
            return Ok(true);
        }
        Some(LOST) => &mut failures.lost,
        _ => {
            println!("the judge ended without a complete result: {status}");
            &mut failures.unjudged
        }
    };
    failed.push(format!("{name}, data={mode}"));
    let [judge, log, base, output] = [&*judge, &*log, base, &*output].map(Path::display);
    println!("to judge one state again: {judge} {log} {base} {mode} {output} PLAN STATE");
    Ok(false)
}
