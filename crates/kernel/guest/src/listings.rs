//! The memory of open directories and files: their process pays for it, and it does not outlast its use.

use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use rustix::mount::{MountFlags, mount};

use crate::machine::{Machine, umount};

/// Number of directories that are open at a time.
const OPEN: usize = 256;
/// Names of the directory: together longer than the longest listing.
const NAMES: usize = 1000;
/// The shortest and the longest listing in the middle.
const LISTING_MIN: u64 = 4 << 10;
const LISTING_MAX: u64 = 64 << 10;
/// What an open directory may use besides its listing: the open file, and a few numbers.
const EACH_MAX: u64 = 1 << 10;

/// Moves this process to a group, and returns the folder of the group.
fn enter_group() -> Result<&'static Path> {
    let (root, group) = (Path::new("/cgroup"), Path::new("/cgroup/open"));
    fs::create_dir_all(root)?;
    mount("cgroup", root, "cgroup2", MountFlags::empty(), c"").context("cgroup2")?;
    fs::write(root.join("cgroup.subtree_control"), "+memory").context("the controller of memory")?;
    fs::create_dir(group)?;
    fs::write(group.join("cgroup.procs"), std::process::id().to_string())?;
    Ok(group)
}

/// The memory of the kernel for which the group is charged, in bytes.
fn charged(group: &Path) -> Result<u64> {
    let stat = fs::read_to_string(group.join("memory.stat"))?;
    let line =
        stat.lines().find_map(|line| line.strip_prefix("kernel ")).context("no memory of the kernel")?;
    Ok(line.parse()?)
}

/// Reads entries of `dir` with a buffer of 1 KiB until `until` entries were read. Returns how many were read.
fn list(dir: &File, until: usize) -> Result<usize> {
    let mut room = [std::mem::MaybeUninit::uninit(); 1024];
    let mut entries = rustix::fs::RawDir::new(dir.as_fd(), &mut room);
    let mut seen = 0;
    while seen < until {
        match entries.next() {
            Some(entry) => entry.map(drop)?,
            None => break,
        }
        seen += 1;
    }
    Ok(seen)
}

/// Leaves listings in the middle, continues them, and ends them.
pub fn run(machine: &Machine) -> Result<()> {
    machine.mount(0, "/m", MountFlags::empty(), "")?;
    fs::create_dir("/m/long")?;
    for number in 0..NAMES {
        File::create(format!("/m/long/{number:0120}"))?;
    }
    let group = enter_group()?;
    let open = || (0..OPEN).map(|_| Ok(File::open("/m/long")?)).collect::<Result<Vec<_>>>();
    // What is in no relation to the number of open directories exists now.
    list(&open()?[0], usize::MAX)?;
    let before = charged(group)?;
    let dirs = open()?;
    for dir in &dirs {
        list(dir, 1)?;
    }
    let begun = charged(group)?.saturating_sub(before) / OPEN as u64;
    for dir in &dirs {
        list(dir, NAMES / 4)?;
    }
    let later = charged(group)?.saturating_sub(before) / OPEN as u64;
    for dir in &dirs {
        ensure!(list(dir, usize::MAX)? > NAMES / 2, "a listing did not continue");
        ensure!(list(dir, usize::MAX)? == 0, "a listing continues after its end");
    }
    let ended = charged(group)?.saturating_sub(before) / OPEN as u64;
    drop(dirs);
    println!("bytes that each open directory is charged for: {begun}, {later} later, {ended} at the end");
    ensure!(begun >= LISTING_MIN, "the process is not charged for listings: {begun} bytes each");
    ensure!(begun <= LISTING_MAX + EACH_MAX, "a listing needs {begun} bytes");
    ensure!(later <= begun / 2 + EACH_MAX, "a listing of which half was read still needs {later} bytes");
    ensure!(ended <= EACH_MAX, "a listing that ended needs {ended} bytes");
    short(group)?;
    umount("/m")
}

/// A listing of a short directory needs little.
fn short(group: &Path) -> Result<()> {
    fs::create_dir("/m/short")?;
    for number in 0..50 {
        File::create(format!("/m/short/{number:040}"))?;
    }
    let before = charged(group)?;
    let dirs = (0..OPEN).map(|_| Ok(File::open("/m/short")?)).collect::<Result<Vec<_>>>()?;
    for dir in &dirs {
        list(dir, 1)?;
    }
    let begun = charged(group)?.saturating_sub(before) / OPEN as u64;
    println!("bytes that each open short directory is charged for: {begun}");
    ensure!(begun <= LISTING_MIN + EACH_MAX, "a short listing needs {begun} bytes");
    Ok(())
}
