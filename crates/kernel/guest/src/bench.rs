//! Costs of operations: instructions, device writes and flushes, of the type under test and of the kernel's own ext4.
//!
//! The clock of the machine advances by a nanosecond per instruction (`qemu -icount shift=0`), and the machine has one
//! processor. A thread that runs only when the processor has nothing else to do uses the time in which the processor
//! waits for a device. What remains of the elapsed time are the instructions of the phase, those of kernel threads
//! included.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::os::unix::thread::JoinHandleExt as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::mount::MountFlags;

use crate::machine::{Machine, disk, drop_caches, mount_as, umount};
use crate::sampler::Sampler;

/// The size of the large file.
const LARGE: u64 = 32 << 20;
const PIECE: usize = 64 << 10;
/// Time in which the command notices a line, and in which nothing else runs.
const PAUSE: Duration = Duration::from_millis(300);

/// The volumes that are compared: a name, a type, the disk and the mount options.
const VOLUMES: [(&str, &str, u8, &str); 4] = [
    ("ordered ext4", "ext4", 0, "data=ordered"),
    ("ordered obento", "obento-ext4", 1, "data=ordered"),
    ("journal ext4", "ext4", 2, "data=journal"),
    ("journal obento", "obento-ext4", 3, "data=journal"),
];

/// A phase: a name, and an action that returns the number of operations.
type Phase = (&'static str, fn(u64) -> Result<u64>);

/// The phases, in this order: each finds what the phases before it left.
const PHASES: &[Phase] = &[
    ("getppid", calls),
    ("create", create),
    ("write 4k", write_small),
    ("stat", stat),
    ("open, read 4k, close", read_small),
    ("readdir, per entry", list),
    ("chmod", chmod),
    ("link", link),
    ("symlink", symlink),
    ("mkdir", mkdir),
    ("rename", rename),
    ("unlink", unlink),
    ("rmdir", rmdir),
    ("sequential write 64k", write_large),
    ("sequential read 64k, cached", read_large),
    ("random read 4k, cached", read_random),
    ("random write 4k", write_random),
    ("write 4k, fsync", write_synced),
    ("lookup and stat, not cached", stat_cold),
    ("sequential read 64k, not cached", read_cold),
];

/// Prints the figures of all phases, for each volume in turn: `figure: MODE TYPE: PHASE: NUMBERS`.
pub fn run(machine: &Machine) -> Result<()> {
    let count = machine.value("count").parse().context("obento.count")?;
    let rounds: u32 = machine.value("rounds").parse().context("obento.rounds")?;
    let idle = Idle::start()?;
    for _ in 0..rounds {
        for (name, kind, number, options) in VOLUMES {
            mount_as(kind, number, "/m", MountFlags::NOATIME, options)?;
            phases(&idle, name, number, count)?;
            umount("/m")?;
        }
    }
    Ok(())
}

/// Runs the phases up to `obento.phase`, whose name has `_` for each space, and that phase several times. The command
/// profiles the kernel between the lines `begin` and `end`. Afterwards, the addresses of the functions are on disk 1.
pub fn profile(machine: &Machine) -> Result<()> {
    let (phase, count) = (machine.value("phase"), machine.value("count").parse().context("obento.count")?);
    let rounds: u32 = machine.value("rounds").parse().context("obento.rounds")?;
    let data = if machine.value("data").is_empty() { "ordered" } else { machine.value("data") };
    machine.mount(0, "/m", MountFlags::NOATIME, &format!("data={data}"))?;
    std::env::set_current_dir("/m")?;
    for folder in ["d", "e"] {
        fs::create_dir(folder)?;
    }
    let at = PHASES.iter().position(|(name, _)| name.replace(' ', "_") == phase);
    let at = at.with_context(|| format!("no phase is named {phase}"))?;
    for (name, action) in &PHASES[..at] {
        action(count).with_context(|| *name)?;
    }
    rustix::fs::sync();
    if machine.value("sampled") == "yes" {
        sampled(PHASES[at], rounds, count, machine.value("synced") == "yes")?;
        std::env::set_current_dir("/")?;
        return umount("/m");
    }
    println!("profile: begin");
    thread::sleep(PAUSE);
    let mut operations = 0;
    for _ in 0..rounds {
        operations += PHASES[at].1(count)?;
    }
    println!("profile: end {operations}");
    thread::sleep(PAUSE);
    let mut symbols = fs::read("/proc/kallsyms")?;
    symbols.resize(symbols.len().next_multiple_of(4096), b'\n');
    fs::write(disk(1), symbols)?;
    rustix::fs::sync();
    std::env::set_current_dir("/")?;
    umount("/m")
}

/// Runs a phase several times, and prints in which functions it spends its instructions.
fn sampled((name, action): Phase, rounds: u32, count: u64, is_synced: bool) -> Result<()> {
    let root = File::open(".")?;
    let mut operations = 0;
    if name.contains("not cached") {
        drop_caches()?;
    }
    let sampler = Sampler::start()?;
    for _ in 0..rounds {
        operations += action(count)?;
        if is_synced {
            rustix::fs::syncfs(&root)?;
        }
    }
    println!("profile: end {operations}");
    sampler.finish()
}

fn phases(idle: &Idle, name: &str, number: u8, count: u64) -> Result<()> {
    std::env::set_current_dir("/m")?;
    for folder in ["d", "e"] {
        fs::create_dir(folder)?;
    }
    let root = File::open(".")?;
    for (phase, action) in PHASES {
        rustix::fs::syncfs(&root)?;
        if phase.contains("not cached") {
            drop_caches()?;
            // The kernel frees the inodes later (RCU). Each millisecond is a million instructions of the idle thread.
            thread::sleep(Duration::from_millis(50));
        }
        let (began, before) = (idle.busy()?, Requests::of(number)?);
        let operations = action(count).with_context(|| format!("{name}: {phase}"))?;
        let called = idle.busy()?;
        rustix::fs::syncfs(&root)?;
        let (synced, after) = (idle.busy()?, Requests::of(number)?);
        println!(
            "figure: {name}: {phase}: {operations} {} {} {} {} {}",
            called - began,
            synced - began,
            after.writes - before.writes,
            after.sectors - before.sectors,
            after.flushes - before.flushes
        );
    }
    drop(root);
    for folder in ["d", "e"] {
        fs::remove_dir_all(folder)?;
    }
    fs::remove_file("large")?;
    Ok(std::env::set_current_dir("/")?)
}

/// A thread that uses all time that nothing else uses.
struct Idle {
    clock: libc::clockid_t,
}

impl Idle {
    fn start() -> Result<Self> {
        let thread = thread::spawn(|| {
            let lowest = libc::sched_param { sched_priority: 0 };
            // SAFETY: the structure is valid; 0 is this thread.
            let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &lowest) };
            assert_eq!(set, 0, "sched_setscheduler");
            loop {
                std::hint::spin_loop();
            }
        });
        let mut clock = 0;
        // SAFETY: the thread does not end, and `clock` is valid for writing.
        let got = unsafe { libc::pthread_getcpuclockid(thread.as_pthread_t(), &mut clock) };
        ensure!(got == 0, "pthread_getcpuclockid: {got}");
        Ok(Self { clock })
    }

    /// The time that the processor was busy since the start of the machine.
    fn busy(&self) -> Result<u64> {
        Ok(read_clock(libc::CLOCK_MONOTONIC)? - read_clock(self.clock)?)
    }
}

fn read_clock(clock: libc::clockid_t) -> Result<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is valid for writing.
    let got = unsafe { libc::clock_gettime(clock, &mut time) };
    ensure!(got == 0, "clock_gettime: {}", std::io::Error::last_os_error());
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// What a disk did since the start. Source: Documentation/block/stat.rst.
struct Requests {
    writes: u64,
    sectors: u64,
    flushes: u64,
}

impl Requests {
    fn of(number: u8) -> Result<Self> {
        let name = disk(number);
        let path = format!("/sys/block/{}/stat", name.trim_start_matches("/dev/"));
        let text = fs::read_to_string(&path).context(path)?;
        let fields: Vec<u64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let field = |at: usize| fields.get(at).copied().context("a field is missing");
        Ok(Self { writes: field(4)?, sectors: field(6)?, flushes: field(15)? })
    }
}

fn for_each(count: u64, action: impl Fn(u64) -> Result<()>) -> Result<u64> {
    (0..count).try_for_each(action)?;
    Ok(count)
}

fn calls(count: u64) -> Result<u64> {
    for_each(count * 10, |_| {
        // SAFETY: the call has no arguments.
        unsafe { libc::syscall(libc::SYS_getppid) };
        Ok(())
    })
}

fn create(count: u64) -> Result<u64> {
    for_each(count, |n| Ok(File::create_new(format!("d/f{n}")).map(drop)?))
}

fn write_small(count: u64) -> Result<u64> {
    for_each(count, |n| {
        let mut file = OpenOptions::new().write(true).open(format!("d/f{n}"))?;
        Ok(file.write_all(&[7; 4096])?)
    })
}

fn stat(count: u64) -> Result<u64> {
    for_each(count, |n| Ok(fs::metadata(format!("d/f{n}")).map(drop)?))
}

fn read_small(count: u64) -> Result<u64> {
    for_each(count, |n| Ok(File::open(format!("d/f{n}"))?.read_exact_at(&mut [0; 4096], 0)?))
}

fn list(_: u64) -> Result<u64> {
    let mut entries = 0;
    for _ in 0..10 {
        for entry in fs::read_dir("d")? {
            entry?;
            entries += 1;
        }
    }
    Ok(entries)
}

fn chmod(count: u64) -> Result<u64> {
    for_each(count, |n| Ok(fs::set_permissions(format!("d/f{n}"), Permissions::from_mode(0o600))?))
}

fn link(count: u64) -> Result<u64> {
    for_each(count, |n| Ok(fs::hard_link(format!("d/f{n}"), format!("e/l{n}"))?))
}

fn symlink(count: u64) -> Result<u64> {
    for_each(count, |n| Ok(std::os::unix::fs::symlink("target", format!("e/s{n}"))?))
}

fn mkdir(count: u64) -> Result<u64> {
    for_each(count, |n| Ok(DirBuilder::new().create(format!("e/d{n}"))?))
}

fn rename(count: u64) -> Result<u64> {
    for_each(count, |n| Ok(fs::rename(format!("d/f{n}"), format!("d/g{n}"))?))
}

/// Removes the links, and then half of the files.
fn unlink(count: u64) -> Result<u64> {
    for_each(count, |n| Ok(fs::remove_file(format!("e/l{n}"))?))?;
    for_each(count / 2, |n| Ok(fs::remove_file(format!("d/g{n}"))?))?;
    Ok(count + count / 2)
}

fn rmdir(count: u64) -> Result<u64> {
    for_each(count, |n| Ok(fs::remove_dir(format!("e/d{n}"))?))
}

fn large() -> Result<File> {
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open("large");
    open.context("large")
}

fn write_large(_: u64) -> Result<u64> {
    let (file, piece) = (large()?, vec![7; PIECE]);
    for_each(LARGE / PIECE as u64, |_| Ok((&file).write_all(&piece)?))
}

fn read_large(_: u64) -> Result<u64> {
    let file = large()?;
    let mut piece = vec![0; PIECE];
    (0..LARGE).step_by(PIECE).try_for_each(|at| file.read_exact_at(&mut piece, at))?;
    Ok(LARGE / PIECE as u64)
}

fn read_cold(count: u64) -> Result<u64> {
    read_large(count)
}

/// A block of the large file, which looks random.
fn random_block(n: u64) -> u64 {
    (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) & (LARGE / 4096 - 1)
}

fn read_random(count: u64) -> Result<u64> {
    let file = large()?;
    for_each(count, |n| Ok(file.read_exact_at(&mut [0; 4096], random_block(n) * 4096)?))
}

fn write_random(count: u64) -> Result<u64> {
    let file = large()?;
    for_each(count, |n| Ok(file.write_all_at(&[8; 4096], random_block(n) * 4096)?))
}

fn write_synced(count: u64) -> Result<u64> {
    let file = large()?;
    for_each(count / 10, |n| {
        file.write_all_at(&[9; 4096], n * 4096)?;
        Ok(file.sync_all()?)
    })
}

fn stat_cold(count: u64) -> Result<u64> {
    for_each(count / 2, |n| {
        let path = format!("d/g{}", count / 2 + n);
        ensure!(Path::new(&path).exists(), "{path} is missing");
        Ok(())
    })
}
