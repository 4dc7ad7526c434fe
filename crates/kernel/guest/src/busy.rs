//! Replacing the drivers of several volumes, some of which a sync uses for a long time.

use std::fs::{self, File};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::fs::syncfs;
use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::machine::{Machine, umount};
use crate::upgrade::{Control, load, unload};

/// The mount points of the disks. A sync uses the first two volumes.
const PLACES: [&str; 3] = ["/m", "/n", "/tmp/third"];
const BUSY: usize = 2;
/// The time for which a request waits for all volumes together.
const PATIENCE: Duration = Duration::from_secs(5);
const ALL: &str = "/sys/fs/obento/upgrade";
const HELD: &str = "/sys/module/obento_faulty/parameters/held";
const WAITING: &str = "/sys/module/obento_faulty/parameters/waiting";

fn modules() -> Result<Vec<String>> {
    (0..3).map(|number| Control::of(number).module()).collect()
}

/// Requests the newest driver for all volumes.
fn replace_all() -> Result<(), Errno> {
    let error = |error: std::io::Error| error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
    fs::write(ALL, "obento-ext4").map_err(error)
}

/// Returns whether the process waits in the kernel.
fn waits(process: Pid) -> Result<bool> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()))?;
    let (_, rest) = stat.rsplit_once(") ").context("a line of /proc/PID/stat")?;
    Ok(rest.starts_with('D'))
}

/// A process that is killed while it waits for a busy volume ends at once, and replaces no driver afterwards.
fn killed() -> Result<()> {
    let file = File::options().write(true).open(ALL)?;
    // SAFETY: between fork(2) and _exit(2), the child only calls write(2).
    let child = unsafe { libc::fork() };
    if child == 0 {
        let _ = rustix::io::write(&file, b"obento-ext4");
        // SAFETY: it ends the child without running destructors of the parent.
        unsafe { libc::_exit(0) }
    }
    let child = Pid::from_raw(child).context("fork")?;
    while !waits(child)? {
        thread::yield_now();
    }
    let begin = Instant::now();
    kill_process(child, Signal::KILL)?;
    waitpid(Some(child), WaitOptions::empty())?;
    ensure!(begin.elapsed() < PATIENCE / 2, "the killed process ended after {:?}", begin.elapsed());
    ensure!(modules()? == ["obento_faulty"; 3], "a killed process has replaced a driver: {:?}", modules()?);
    println!("ok: a killed process ended after {:?}", begin.elapsed());
    Ok(())
}

/// A request waits five seconds for all volumes together, and replaces the driver of the volume that is free.
fn shared_patience() -> Result<()> {
    let begin = Instant::now();
    let refused = replace_all();
    let elapsed = begin.elapsed();
    ensure!(refused == Err(Errno::BUSY), "two busy volumes: {refused:?}");
    let is_shared = elapsed >= PATIENCE - PATIENCE / 50 && elapsed < PATIENCE * 2 - PATIENCE / 10;
    ensure!(is_shared, "a request waited {elapsed:?} for two busy volumes");
    let expected = ["obento_faulty", "obento_faulty", "obento_one"];
    ensure!(modules()? == expected, "with two busy volumes: {:?}", modules()?);
    println!("ok: a request waited {elapsed:?} for two busy volumes");
    Ok(())
}

/// Mounts three volumes, two of which are busy, and replaces their drivers.
pub fn run(machine: &Machine) -> Result<()> {
    load("faulty", "fault=busy").context("loading faulty")?;
    fs::create_dir(PLACES[2])?;
    for (number, place) in (0..).zip(PLACES) {
        machine.mount(number, place, MountFlags::empty(), "")?;
    }
    ensure!(modules()? == ["obento_faulty"; 3], "new mounts do not use the newest driver");
    load("one", "").context("loading one")?;
    fs::write(HELD, BUSY.to_string())?;
    let tried = thread::scope(|scope| -> Result<()> {
        let syncs: Vec<_> = PLACES[..BUSY]
            .iter()
            .map(|place| scope.spawn(move || -> Result<()> { Ok(syncfs(File::open(place)?)?) }))
            .collect();
        let counted = || -> Result<bool> { Ok(fs::read_to_string(WAITING)?.trim() == BUSY.to_string()) };
        let tried = (|| {
            while !counted()? {
                thread::yield_now();
            }
            killed()?;
            shared_patience()
        })();
        fs::write(HELD, "0")?;
        for sync in syncs {
            sync.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        }
        tried
    });
    tried?;
    replace_all().context("after the syncs")?;
    ensure!(modules()? == ["obento_one"; 3], "after the syncs: {:?}", modules()?);
    PLACES.iter().try_for_each(|place| umount(place))?;
    unload("faulty").context("the last unmount")?;
    unload("one").context("the last unmount")?;
    Ok(())
}
