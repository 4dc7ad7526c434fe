//! Programs that test file systems, on a mount of obento and on the kernel's mount of the same ext4 volume.
//! Each difference has a known reason. This test prints `docs/judges.md`; `cargo xtask judge` installs the
//! programs, runs the test and writes the page.

mod programs;
mod stressor;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use obento_testkit::oracle::LoopMount;
use obento_testkit::{Oracle, require};

use crate::support::Disk;
pub use programs::FSX;
use programs::JUDGES;

/// The result of each case of a judge, in the words of the judge.
type Ends = BTreeMap<String, String>;

/// A program that tests the file system at a mount point.
struct Judge {
    /// The name of the judge, which is that of the program.
    name: &'static str,
    /// Tests a folder; the second folder is for other files of the judge.
    run: fn(at: &Path, own: &Path) -> Ends,
}

/// The known differences between a mount of obento and the kernel's ext4: judge, case, reason.
const KNOWN: &[(&str, &str, &str)] = &[
    (
        "pjdfstest",
        "link::link_count_max",
        "the C library derives the limit from the type of the file system, and has none for FUSE",
    ),
    (
        "stress-ng",
        "fiemap",
        "Linux implements FS_IOC_FIEMAP by an inode operation that FUSE does not provide (ioctl_fiemap in fs/ioctl.c)",
    ),
];

fn reason(judge: &str, case: &str) -> Option<&'static str> {
    let is_it = |(known, of, _): &&(&str, &str, &str)| (*known, *of) == (judge, case);
    KNOWN.iter().find(is_it).map(|(.., reason)| *reason)
}

/// Returns whether a result is a failure, in the words of pjdfstest or of this module.
fn is_failure(end: &str) -> bool {
    end.to_ascii_lowercase().starts_with("fail")
}

/// The results of one judge on both mounts.
struct Opinion {
    judge: &'static str,
    ours: Ends,
    kernels: Ends,
}

impl Opinion {
    /// Runs the judge on both mounts. e2fsck must find both volumes clean.
    fn of(judge: &Judge) -> Option<Self> {
        let disk = Disk::mounted("rw,allow_other")?;
        let ours = (judge.run)(&disk.at(), disk.folder());
        disk.umount();
        disk.fsck();
        let disk = Disk::new(&[])?;
        let mount = LoopMount::new(&disk.image(), "").unwrap();
        let kernels = (judge.run)(mount.path(), disk.folder());
        mount.unmount().unwrap();
        Some(Self { judge: judge.name, ours, kernels })
    }

    /// Returns the cases with different results, and those that fail on the mount of obento.
    fn differences(&self) -> Vec<&String> {
        let all: BTreeSet<&String> = self.ours.keys().chain(self.kernels.keys()).collect();
        let fails = |case: &String| self.ours.get(case).is_some_and(|end| is_failure(end));
        all.into_iter()
            .filter(|case| fails(case) || self.ours.get(*case) != self.kernels.get(*case))
            .collect()
    }

    /// Returns the number of cases for each result, the most frequent first.
    fn counts(ends: &Ends) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        ends.values().for_each(|end| *counts.entry(end).or_default() += 1);
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts.iter().map(|(end, count)| format!("{count} {end}")).collect::<Vec<_>>().join(", ")
    }
}

fn page(opinions: &[Opinion]) -> String {
    let mut page = String::from(include_str!("head.md"));
    page.push_str("| judge | obento | the kernel's ext4 | differ |\n|---|---|---|---|\n");
    for opinion in opinions {
        let (ours, kernels) = (Opinion::counts(&opinion.ours), Opinion::counts(&opinion.kernels));
        writeln!(page, "| {} | {ours} | {kernels} | {} |", opinion.judge, opinion.differences().len())
            .unwrap();
    }
    page.push_str("\n| judge | case | obento | the kernel's ext4 | why |\n|---|---|---|---|---|\n");
    for opinion in opinions {
        for case in opinion.differences() {
            let end = |ends: &Ends| ends.get(case).map_or_else(|| "not run".to_owned(), Clone::clone);
            let why = reason(opinion.judge, case).unwrap_or("NOT KNOWN");
            let (ours, kernels) = (end(&opinion.ours), end(&opinion.kernels));
            writeln!(page, "| {} | {case} | {ours} | {kernels} | {why} |", opinion.judge).unwrap();
        }
    }
    page
}

#[test]
#[ignore = "a campaign: cargo xtask judge"]
fn every_judge_finds_what_it_finds_on_the_kernels_ext4_but_where_the_reason_is_known() {
    let only = std::env::var("OBENTO_JUDGE").ok();
    let is_meant = |judge: &&Judge| only.as_deref().is_none_or(|only| only == judge.name);
    let judges: Vec<&Judge> = JUDGES.iter().filter(is_meant).collect();
    assert!(!judges.is_empty(), "no judge is called {only:?}");
    let mut needed = vec![Oracle::LoopMount, Oracle::Fuse];
    needed.extend(judges.iter().map(|judge| Oracle::Program(judge.name)));
    if !require(&needed) {
        return;
    }
    let Some(opinions) = judges.into_iter().map(Opinion::of).collect::<Option<Vec<_>>>() else { return };
    let page = page(&opinions);
    println!("{page}");
    if std::env::var_os("OBENTO_WRITE_JUDGES").is_some() && only.is_none() {
        fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/judges.md"), &page).unwrap();
    }
    let unknown = |opinion: &Opinion| {
        let cases = opinion.differences().into_iter().filter(|case| reason(opinion.judge, case).is_none());
        cases.map(|case| format!("{}: {case}", opinion.judge)).collect::<Vec<_>>()
    };
    let unknown: Vec<String> = opinions.iter().flat_map(unknown).collect();
    assert!(unknown.is_empty(), "differences without a reason: {unknown:#?}");
}

#[test]
fn a_difference_is_shown_with_its_reason_and_one_without_is_seen() {
    let ends =
        |end: &str| Ends::from([("link::link_count_max".into(), end.into()), ("other".into(), "ok".into())]);
    let mut opinion = Opinion { judge: "pjdfstest", ours: ends("skipped"), kernels: ends("ok") };
    assert_eq!(opinion.differences(), ["link::link_count_max"]);
    opinion.ours.remove("other");
    opinion.ours.insert("both".into(), "FAILED: no".into());
    opinion.kernels.insert("both".into(), "FAILED: no".into());
    assert_eq!(opinion.differences(), ["both", "link::link_count_max", "other"]);
    let page = page(&[opinion]);
    assert!(page.contains("| pjdfstest | link::link_count_max | skipped | ok | the C library"), "{page}");
    assert!(page.contains("| pjdfstest | other | not run | ok | NOT KNOWN |"), "{page}");
    assert!(page.contains("| pjdfstest | 1 FAILED: no, 1 skipped | 2 ok, 1 FAILED: no | 3 |"), "{page}");
}
