//! The plans of the crash explorer on a disk whose writes QEMU records: `cargo xtask kernel cuts`.
//!
//! Disk 0 is recorded. The volume is at its start, and a sector after the volume receives the marks. Disk 1 contains the
//! bytes of the volume before each plan. `src/judge.rs` reads the log and the printed results.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};

use anyhow::{Context as _, Result};
use obento_testkit::plan::{HostActor, Op, Plan, catalogue};
use obento_testkit::write_log::{END, MARK_LEN, UNMOUNTED, mark};
use rustix::mount::MountFlags;
use rustix::time::{ClockId, Timespec, clock_settime};

use crate::machine::{Machine, disk, umount};

/// Seconds at the start of a `StepClock` of `obento_testkit`.
const EPOCH: i64 = 1_000_000_000;

/// The buffer of a mark, aligned as direct I/O requires.
#[repr(align(512))]
struct Sector([u8; MARK_LEN]);

/// The disk with the marks.
struct Marks {
    disk: File,
    offset: u64,
}

impl Marks {
    /// Writes a mark, and returns when the log contains it.
    fn write(&self, number: u64) -> Result<()> {
        let sector = Sector(mark(number));
        self.disk.write_all_at(&sector.0, self.offset).context("writing a mark")
    }
}

/// Runs all plans, each on the same volume, and prints `cuts: PLAN: OPERATION: ERRNO` for each operation that fails. The
/// number is 0 if the operation failed without a system call.
pub fn run(machine: &Machine) -> Result<()> {
    rustix::process::umask(rustix::fs::Mode::empty());
    let base = fs::read(disk(1))?;
    let disk = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(disk(0))?;
    let marks = Marks { disk, offset: base.len() as u64 };
    let mode = machine.value("options").strip_prefix("data=").unwrap_or_default();
    for plan in catalogue::of_kernel(mode) {
        on_volume(machine, &base, &plan, &marks).with_context(|| plan.name.clone())?;
    }
    Ok(())
}

fn on_volume(machine: &Machine, base: &[u8], plan: &Plan, marks: &Marks) -> Result<()> {
    let disk = File::options().write(true).open(disk(0))?;
    disk.write_all_at(base, 0)?;
    disk.sync_all()?;
    drop(disk);
    marks.write(0)?;
    machine.mount(0, "/m", MountFlags::empty(), machine.value("options"))?;
    let mut actor = HostActor::new("/m");
    for (number, op) in plan.ops.iter().enumerate() {
        let now = Timespec { tv_sec: EPOCH + number as i64 + 1, tv_nsec: 0 };
        clock_settime(ClockId::Realtime, now)?;
        marks.write(2 * number as u64 + 1)?;
        match actor.act(number, op) {
            Ok(()) => marks.write(2 * number as u64 + 2)?,
            Err(error) => println!("cuts: {}: {number}: {}", plan.name, error.raw_os_error().unwrap_or(0)),
        }
    }
    let _ = actor.act(plan.ops.len(), &Op::Release);
    umount("/m")?;
    marks.write(UNMOUNTED)?;
    marks.write(END)?;
    Ok(marks.disk.sync_all()?)
}
