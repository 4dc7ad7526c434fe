//! A sweep of system calls: about 7,000 combinations of arguments have the results that they have on the kernel's
//! ext4, except for the differences in a list. Each difference has the place in Linux that makes it impossible to avoid,
//! or another reason.

mod differences;

use std::fs;
use std::path::Path;

use obento_testkit::oracle::{LoopMount, python, run};
use obento_testkit::{Oracle, require};

use crate::support::{Disk, text, transports};
use differences::{DIFFERENCES, Difference};

/// The programs of the sweep.
const FILES: [(&str, &str); 5] = [
    ("base.py", include_str!("base.py")),
    ("data.py", include_str!("data.py")),
    ("names.py", include_str!("names.py")),
    ("rights.py", include_str!("rights.py")),
    ("sweep.py", include_str!("sweep.py")),
];

/// Runs the sweep in `at`. Returns its lines: `section: arguments = result`.
fn sweep(programs: &Path, at: &Path) -> Vec<String> {
    for (name, contents) in FILES {
        fs::write(programs.join(name), contents).unwrap();
    }
    let output = run(python().arg("-B").arg(programs.join("sweep.py")).arg(at)).unwrap();
    text(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn a_sweep_of_system_calls_has_the_results_of_the_kernels_ext4_but_for_listed_differences() {
    if !require(&[Oracle::LoopMount, Oracle::Root, Oracle::Program("python3")]) {
        return;
    }
    let programs = tempfile::tempdir().unwrap();
    let format = ["-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"];
    let Some(other) = Disk::new(&format) else { return };
    let kernel = LoopMount::new(&other.image(), "").unwrap();
    let expected = sweep(programs.path(), kernel.path());
    kernel.unmount().unwrap();
    assert!(expected.len() > 7000, "{} lines", expected.len());
    let mut used = [false; DIFFERENCES.len()];
    let transports = transports().iter().map(|transport| (*transport, "rw"));
    for (transport, cache) in transports.chain([("io_uring=off", "no_writeback_cache")]) {
        let Some(disk) = Disk::new(&format) else { return };
        disk.mount(&format!("allow_other,suid,dev,{transport},{cache}"));
        let found = sweep(programs.path(), &disk.at());
        disk.umount();
        assert_eq!(found.len(), expected.len(), "{transport}, {cache}");
        let differing: Vec<_> = expected.iter().zip(&found).filter(|(line, own)| line != own).collect();
        let unknown: Vec<_> = differing
            .into_iter()
            .filter(|(line, own)| {
                let row = DIFFERENCES.iter().position(|row| row.is_of(line, own));
                row.inspect(|&row| used[row] = true).is_none()
            })
            .collect();
        assert!(unknown.is_empty(), "{transport}, {cache}: {} lines: {unknown:#?}", unknown.len());
    }
    let stale: Vec<_> = DIFFERENCES.iter().zip(used).filter(|(_, used)| !used).map(|(row, _)| row).collect();
    assert!(stale.is_empty(), "differences that no longer exist: {stale:#?}");
}

impl Difference {
    /// Returns whether this is the difference between a line of the kernel's ext4 and the same line of obento.
    fn is_of(&self, expected: &str, found: &str) -> bool {
        let split = |line: &str| -> Option<(String, String)> {
            line.split_once(" = ").map(|(call, result)| (call.to_owned(), result.to_owned()))
        };
        let (Some((call, theirs)), Some((same, ours))) = (split(expected), split(found)) else {
            return false;
        };
        let has = |text: &str, part: &str| part.is_empty() || text.contains(part);
        call == same
            && self.calls.iter().any(|part| call.contains(part))
            && has(&theirs, self.kernel)
            && has(&ours, self.obento)
    }
}

#[test]
fn a_difference_is_known_by_its_call_and_both_results() {
    let row = Difference { calls: &["space: 8 "], kernel: "EFBIG", obento: "", reason: "" };
    assert!(row.is_of("space: 8 1 = EFBIG", "space: 8 1 = 0"));
    assert!(!row.is_of("space: 8 1 = EFBIG", "space: 8 2 = 0"));
    assert!(!row.is_of("space: 9 1 = EFBIG", "space: 9 1 = 0"));
    assert!(!row.is_of("space: 8 1 = 0", "space: 8 1 = EFBIG"));
}
