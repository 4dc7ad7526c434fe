//! A long-lived process retains no resources of ended kernels. The test is alone in its process, whose children it counts.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use obento_block::MemDevice;
use obento_driver::{Driver, OpenOptions};
use obento_env::SystemClock;
use obento_linux::LinuxDriver;
use obento_testkit::oracle::{Oracle, call, require};
use tempfile::NamedTempFile;

/// A limit against a hang; it measures nothing.
const SOON: Duration = Duration::from_secs(30);

/// The number of child processes that were not waited for.
fn children() -> usize {
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    // A thread may end meanwhile.
    let lists = threads.map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    lists.map(|list| list.split_whitespace().count()).sum()
}

#[test]
fn a_long_lived_process_keeps_no_entries_of_ended_kernels() {
    if !require(&[Oracle::Program("linux.uml"), Oracle::Program("mkfs.minix")]) {
        return;
    }
    let image = NamedTempFile::new().unwrap();
    image.as_file().set_len(4 << 20).unwrap();
    call("mkfs.minix", ["-3".as_ref(), image.path().as_os_str()]).unwrap();
    let device = Arc::new(MemDevice::read_only(fs::read(image.path()).unwrap()));
    let driver = LinuxDriver::all().find(|driver| driver.names().contains(&"minix")).unwrap();
    let open = || driver.open(device.clone(), &OpenOptions::new(Arc::new(SystemClock))).unwrap();
    let volumes = [open(), open()];
    assert_eq!(children(), 2, "a warden each");
    drop(volumes);
    let end = Instant::now() + SOON;
    while children() > 0 {
        assert!(Instant::now() < end, "{} processes are left", children());
        std::thread::yield_now();
    }
}
