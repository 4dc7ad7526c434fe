//! The memory for a volume with many files. It is a test program of its own, because it measures its own process.
//!
//! `OBENTO_NTFS_DIRECTORIES` sets the number of directories, with 1000 files each: 1000 creates an MFT of 1 GiB.

mod common;

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::sync::Arc;

use common::open_image;
use obento_driver::{CheckObserver, CheckOptions, CheckProgress, Cookie, Driver as _, FileSystem, Finding};
use obento_env::NO_CLOCK;
use obento_ntfs::NtfsDriver;
use obento_testkit::oracle::{Oracle, program, run};
use obento_testkit::require;

const FILES: usize = 1000;
/// The largest anonymous memory, whatever the number of files. The caches have 16 MiB.
const LIMIT: u64 = 32 << 20;

/// Returns the anonymous memory of this process.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

/// Samples the memory during a check.
#[derive(Default)]
struct Sampled {
    peak: u64,
    findings: Vec<Finding>,
}

impl CheckObserver for Sampled {
    fn found(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    fn progress(&mut self, _: CheckProgress) {
        self.peak = self.peak.max(memory());
    }
}

/// Reads the attributes of all files. Returns their number, and the peak memory.
fn walk(volume: &dyn FileSystem) -> (usize, u64) {
    let (mut todo, mut count, mut peak) = (vec![volume.root()], 0, 0);
    while let Some(dir) = todo.pop() {
        let mut sink = |entry: obento_base::Result<obento_driver::DirEntry<'_>>| {
            let ino = entry.unwrap().ino;
            count += 1;
            if volume.getattr(ino).unwrap().is_dir() {
                todo.push(ino);
            }
            ControlFlow::Continue(())
        };
        volume.read_dir(dir, Cookie::START, &mut sink).unwrap();
        peak = peak.max(memory());
    }
    (count, peak)
}

#[test]
fn a_walk_and_a_check_of_many_files_take_little_memory() {
    if !require(&["mkntfs", "ntfs-3g", "python3"].map(Oracle::Program)) {
        return;
    }
    let directories: usize =
        std::env::var("OBENTO_NTFS_DIRECTORIES").map_or(20, |text| text.parse().expect("a number"));
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let size = (32 << 20) + ((directories * FILES * 3) << 10) as u64;
    File::create(&image).unwrap().set_len(size).unwrap();
    let options = ["-q", "-F", "-f", "-s", "512", "-c", "4096", "-p", "0", "-H", "255", "-S", "63"];
    run(program("mkntfs").args(options).arg(&image)).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/fill.py");
    let counts = [directories, FILES].map(|count| count.to_string());
    run(program("python3").arg(script).arg(&image).args(counts)).unwrap();

    let before = memory();
    let volume = open_image(&image);
    let (count, peak) = walk(&*volume);
    drop(volume);
    assert_eq!(count, directories * (FILES + 1));
    let walked = peak.saturating_sub(before);
    let mut sampled = Sampled::default();
    let device = Arc::new(obento_host::FileDevice::open(&image).unwrap());
    let driver = NtfsDriver::default();
    let options = CheckOptions::new(Arc::new(NO_CLOCK));
    let report = driver.check().unwrap().check(device, &options, &mut sampled).unwrap();
    assert!(sampled.findings.is_empty(), "{:#?}", &sampled.findings[..sampled.findings.len().min(10)]);
    assert!(report.inodes.0 >= (directories * (FILES + 1)) as u64);
    let checked = sampled.peak.saturating_sub(before);
    println!("{count} files: {} KiB for a walk, {} KiB for a check", walked >> 10, checked >> 10);
    assert!(walked < LIMIT && checked < LIMIT, "{walked} bytes for a walk, {checked} for a check");
}
