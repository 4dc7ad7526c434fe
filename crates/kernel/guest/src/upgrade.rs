//! Replacing the driver of a mounted volume while programs use it.
//!
//! `/drivers` contains modules with drivers: `one` and `two` are the same drivers under different names, and `faulty` fails as its
//! parameter says.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::system::finit_module;

use crate::cases::{has_links, seeds};
use crate::machine::{Machine, disk, umount};
use crate::{model, tree};

/// Replacements of a volume that no program uses, and under load.
const AT_REST: usize = 100;
const UNDER_LOAD: usize = 100;

/// Loads a module with drivers.
pub fn load(name: &str, parameters: &str) -> Result<(), Errno> {
    let file = File::open(format!("/drivers/obento-{name}.ko")).map_err(|_| Errno::NOENT)?;
    finit_module(file, &CString::new(parameters).unwrap_or_default(), 0)
}

pub fn unload(name: &str) -> Result<(), Errno> {
    let name = CString::new(format!("obento_{name}")).unwrap_or_default();
    rustix::system::delete_module(&name, libc::O_NONBLOCK)
}

/// The folder of a mounted volume in /sys.
pub struct Control(PathBuf);

impl Control {
    pub fn of(number: u8) -> Self {
        let disk = disk(number);
        Self(Path::new("/sys/fs/obento").join(disk.trim_start_matches("/dev/")))
    }

    fn number(&self, name: &str) -> Result<u64> {
        Ok(fs::read_to_string(self.0.join(name))?.trim().parse()?)
    }

    /// The module with the driver.
    pub fn module(&self) -> Result<String> {
        let text = fs::read_to_string(self.0.join("driver"))?;
        let (_, rest) = text.split_once('[').with_context(|| text.clone())?;
        Ok(rest.split(']').next().unwrap_or_default().to_owned())
    }

    fn write(&self, text: &str) -> Result<(), Errno> {
        let error = |error: std::io::Error| error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
        fs::write(self.0.join("driver"), text).map_err(error)
    }

    /// Replaces the driver. Returns the pause in nanoseconds.
    fn replace(&self, module: &str) -> Result<u64> {
        let before = self.number("upgrades")?;
        self.write(&format!("upgrade obento_{module}\n"))
            .with_context(|| format!("upgrade obento_{module}"))?;
        ensure!(self.module()? == format!("obento_{module}"), "the driver is of another module");
        ensure!(self.number("upgrades")? == before + 1, "the replacement is not counted");
        self.number("pause")
    }
}

/// Prints the distribution of pauses.
fn report(what: &str, mut pauses: Vec<u64>) {
    pauses.sort_unstable();
    let at = |share: usize| pauses[(pauses.len() * share).div_ceil(100).clamp(1, pauses.len()) - 1] / 1000;
    let (count, max) = (pauses.len(), at(100));
    println!(
        "pauses {what}: {count} replacements, min {} us, median {} us, 90 % {} us, 99 % {} us, max {max} us",
        at(0),
        at(50),
        at(90),
        at(99)
    );
}

/// Replaces the driver `count` times by `one` and `two` in turn, each time after `ready`.
fn alternate(control: &Control, count: usize, mut ready: impl FnMut() -> Result<()>) -> Result<Vec<u64>> {
    let mut pauses = Vec::new();
    for round in 0..count {
        ready()?;
        pauses.push(control.replace(if round % 2 == 0 { "one" } else { "two" })?);
    }
    Ok(pauses)
}

/// The work of one thread: whether the thread should end, and the number of completed steps.
struct Work<'a> {
    ended: &'a AtomicBool,
    steps: &'a AtomicU64,
}

impl Work<'_> {
    /// Repeats `step` until the end, at least once.
    fn repeat(&self, mut step: impl FnMut(u64) -> Result<()>) -> Result<u64> {
        let mut number = 0;
        loop {
            step(number).with_context(|| format!("step {number}"))?;
            number += 1;
            self.steps.fetch_add(1, Ordering::Relaxed);
            if self.ended.load(Ordering::Relaxed) {
                return Ok(number);
            }
        }
    }
}

/// Models of data and names, one folder for each seed.
fn models(work: &Work<'_>, root: &Path, first: u64, links: bool) -> Result<()> {
    work.repeat(|number| {
        let folder = root.join(format!("model{first}"));
        seeds(&folder, 20, first + number, links).context("model")?;
        fs::remove_dir_all(&folder).context("removing the model")
    })?;
    seeds(&root.join(format!("model{first}")), 50, first, links)
}

/// Writes through a mapping that lasts until the end.
fn mapping(work: &Work<'_>, root: &Path) -> Result<()> {
    const LEN: usize = 64 << 12;
    let file =
        OpenOptions::new().create(true).truncate(true).read(true).write(true).open(root.join("mapped"))?;
    file.set_len(LEN as u64)?;
    let map = model::Mapping::new(&file, LEN)?;
    let last = work.repeat(|number| {
        let page = number as usize % 64;
        map.write(page << 12, &number.to_le_bytes());
        if number % 64 == 63 {
            file.sync_data()?;
        }
        Ok(())
    })?;
    let first = last.saturating_sub(64);
    for number in first..last {
        let mut found = [0; 8];
        file.read_exact_at(&mut found, (number % 64) << 12)?;
        ensure!(u64::from_le_bytes(found) == number, "page {} of the mapping", number % 64);
    }
    Ok(())
}

/// Appends to a file that has no name, and reads all of it at the end.
fn nameless(work: &Work<'_>, root: &Path, is_tmpfile: bool) -> Result<()> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let mut file = if is_tmpfile {
        options.custom_flags(libc::O_TMPFILE).open(root)?
    } else {
        let path = root.join("removed");
        let file = options.create_new(true).open(&path)?;
        fs::remove_file(path)?;
        file
    };
    let line = |number: u64| format!("line {:>4}\n", number % 1000).repeat(50);
    let last = work.repeat(|number| {
        if number % 200 == 0 {
            file.set_len(0)?;
            file.rewind()?;
        }
        Ok(file.write_all(line(number).as_bytes())?)
    })?;
    let first = (last - 1) / 200 * 200;
    let expected: String = (first..last).map(line).collect();
    let mut found = String::new();
    file.rewind()?;
    file.read_to_string(&mut found)?;
    ensure!(found == expected, "the file without a name has {} bytes, not {}", found.len(), expected.len());
    Ok(())
}

/// Creates, renames, reads and removes files in the working directory.
fn working_directory(work: &Work<'_>) -> Result<()> {
    work.repeat(|number| {
        let text = number.to_string();
        fs::write("here", &text)?;
        fs::rename("here", "there")?;
        ensure!(fs::read_to_string("there")? == text, "a renamed file has other contents");
        ensure!(fs::read("here").is_err_and(|error| error.kind() == ErrorKind::NotFound), "both names exist");
        Ok(fs::remove_file("there")?)
    })?;
    Ok(fs::write("last", "the end")?)
}

/// Direct I/O to a file that grows and is cut: each part is read after it was written.
fn direct(work: &Work<'_>, root: &Path) -> Result<()> {
    #[repr(align(4096))]
    struct Aligned([u8; 1 << 16]);
    let path = root.join("direct");
    let file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)?;
    let mut buffer = Box::new(Aligned([0; 1 << 16]));
    work.repeat(|number| {
        if number % 16 == 0 {
            file.set_len(0)?;
        }
        let at = (number % 16) << 16;
        buffer.0.fill(number as u8);
        file.write_all_at(&buffer.0, at)?;
        buffer.0.fill(!0);
        file.read_exact_at(&mut buffer.0, at)?;
        let wrong = buffer.0.iter().position(|&byte| byte != number as u8);
        let found = wrong.map(|wrong| (wrong, buffer.0[wrong]));
        ensure!(found.is_none(), "direct I/O at {at} returned other bytes: {found:?}, not {}", number as u8);
        Ok(())
    })?;
    Ok(())
}

/// Syncs all volumes, which use the lock of their mounts.
fn syncs(work: &Work<'_>) -> Result<()> {
    work.repeat(|_| {
        rustix::fs::sync();
        Ok(())
    })?;
    Ok(())
}

type Job<'a> = Box<dyn FnOnce(&Work<'_>) -> Result<()> + Send + 'a>;

/// The jobs of the threads. Several models at once sometimes fail on xv6, also without a replacement. On FAT, the writes of
/// these jobs last longer than a replacement waits.
fn jobs<'a>(machine: &Machine, root: &'a Path) -> Vec<Job<'a>> {
    let (links, is_ext4) = (has_links(machine), machine.kind() == "obento-ext4");
    let mut jobs: Vec<Job<'a>> = vec![
        Box::new(move |work| mapping(work, root)),
        Box::new(move |work| nameless(work, root, is_ext4)),
        Box::new(working_directory),
    ];
    if is_ext4 {
        jobs.push(Box::new(syncs));
        jobs.push(Box::new(move |work| models(work, root, 1000, links)));
        jobs.push(Box::new(move |work| models(work, root, 2000, links)));
        jobs.push(Box::new(move |work| direct(work, root)));
    }
    jobs
}

/// Runs all jobs, and replaces the driver meanwhile, each time after every thread has made progress.
fn under_load(machine: &Machine, control: &Control, root: &Path) -> Result<Vec<u64>> {
    fs::create_dir_all(root.join("work/deep"))?;
    std::env::set_current_dir(root.join("work/deep"))?;
    let (ended, jobs) = (AtomicBool::new(false), jobs(machine, root));
    let steps: Vec<AtomicU64> = jobs.iter().map(|_| AtomicU64::new(0)).collect();
    let pauses = thread::scope(|scope| -> Result<Vec<u64>> {
        let mut threads = Vec::new();
        for (job, steps) in jobs.into_iter().zip(&steps) {
            let work = Work { ended: &ended, steps };
            threads.push(scope.spawn(move || job(&work)));
        }
        let progress = || {
            let before: Vec<u64> = steps.iter().map(|step| step.load(Ordering::Relaxed)).collect();
            let has_progressed = |(step, &before): (&AtomicU64, &u64)| step.load(Ordering::Relaxed) > before;
            while !threads.iter().any(thread::ScopedJoinHandle::is_finished)
                && !steps.iter().zip(&before).all(has_progressed)
            {
                thread::yield_now();
            }
            Ok(())
        };
        let pauses = alternate(control, UNDER_LOAD, progress);
        ended.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        pauses
    })?;
    std::env::set_current_dir("/")?;
    Ok(pauses)
}

/// Modules that are refused, or fail: the driver stays, and the volume works.
fn faults(control: &Control, root: &Path) -> Result<()> {
    let expected = load("faulty", "fault=abi");
    ensure!(expected == Err(Errno::PROTONOSUPPORT), "another interface: {expected:?}");
    let cases = [
        ("name", Errno::NOENT),
        ("states", Errno::PROTONOSUPPORT),
        ("resume", Errno::IO),
        ("changed", Errno::INVAL),
        ("release", Errno::IO),
    ];
    let module = control.module()?;
    for (number, (fault, error)) in cases.into_iter().enumerate() {
        load("faulty", &format!("fault={fault}")).with_context(|| fault)?;
        let mut open = File::create(root.join("open"))?;
        open.write_all(b"before ")?;
        let refused = control.write("upgrade obento_faulty");
        ensure!(refused == Err(error), "{fault}: {refused:?}");
        ensure!(control.module()? == module, "{fault}: the driver was replaced");
        open.write_all(b"after")?;
        open.sync_all()?;
        ensure!(fs::read(root.join("open"))? == b"before after", "{fault}: other contents");
        fs::write(root.join(format!("fault{number}")), fault)?;
        fs::remove_file(root.join("open"))?;
        unload("faulty").with_context(|| fault)?;
        println!("ok: the driver stays after the fault '{fault}'");
    }
    Ok(())
}

/// A driver without space for dirty pages is refused. The pages stay reserved in the old driver.
///
/// The volume is synced before each attempt, so a thread makes pages dirty all the time. An attempt without a dirty page
/// succeeds, and the next one follows. Each attempt begins after a write: its sync then waits for the device, and the
/// thread can write again meanwhile.
fn no_space(control: &Control, root: &Path) -> Result<()> {
    const ATTEMPTS: usize = 200;
    let module = control.module()?;
    let (ended, writes) = (AtomicBool::new(false), AtomicU64::new(0));
    load("faulty", "fault=reserve").context("reserve")?;
    let refused = thread::scope(|scope| -> Result<bool> {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                // Without the old driver, no write succeeds.
                let _ = fs::write(root.join("dirty"), [1; 1 << 16]);
                writes.fetch_add(1, Ordering::Relaxed);
            }
        });
        let attempt = || {
            let before = writes.load(Ordering::Relaxed);
            while writes.load(Ordering::Relaxed) == before {
                thread::yield_now();
            }
            match control.write("upgrade obento_faulty") {
                Err(Errno::NOSPC) => Ok(true),
                Ok(()) => {
                    Ok(control.write(&format!("upgrade {module}")).map(|()| false).context("the way back")?)
                }
                Err(error) => Err(error).context("reserve"),
            }
        };
        let refused = (0..ATTEMPTS).try_fold(false, |refused, _| if refused { Ok(true) } else { attempt() });
        ended.store(true, Ordering::Relaxed);
        refused
    })?;
    ensure!(refused, "no page was dirty in {ATTEMPTS} attempts");
    ensure!(control.module()? == module, "the driver was replaced");
    let mut file = File::create(root.join("dirty"))?;
    file.write_all(&[2; 1 << 16])?;
    file.sync_all()?;
    ensure!(fs::read(root.join("dirty"))? == [2; 1 << 16], "other contents");
    unload("faulty").context("reserve")?;
    println!("ok: the driver stays after the fault 'reserve'");
    Ok(())
}

/// Requests that make no sense are refused.
fn requests(control: &Control) -> Result<()> {
    for (text, error) in [
        ("upgrade obento_two", Errno::ALREADY),
        ("upgrade obento_three", Errno::NOENT),
        ("replace", Errno::INVAL),
        ("", Errno::INVAL),
    ] {
        // write(2) of no bytes does not reach the kernel.
        let text = if text.is_empty() { "\n" } else { text };
        let found = control.write(text);
        ensure!(found == Err(error), "'{text}': {found:?}");
    }
    Ok(())
}

/// A module that a volume uses cannot be unloaded, and one that was replaced can be.
fn unloading(control: &Control) -> Result<()> {
    ensure!(unload("two") == Err(Errno::AGAIN), "the driver of a mounted volume was unloaded");
    ensure!(crate::machine::unload().is_err(), "the module was unloaded under a mounted volume");
    unload("one").context("a driver that was replaced")?;
    load("one", "")?;
    // Without a name, the newest.
    control.write("upgrade").context("upgrade")?;
    ensure!(control.module()? == "obento_one", "not the newest driver");
    unload("two").context("a driver that was replaced")?;
    load("two", "")?;
    // All volumes of a type.
    let kind = fs::read_to_string("/proc/mounts")?;
    let kind =
        kind.lines().find_map(|line| line.split(' ').nth(2).filter(|kind| kind.starts_with("obento-")));
    fs::write("/sys/fs/obento/upgrade", kind.context("no volume is mounted")?).context("upgrade of all")?;
    ensure!(control.module()? == "obento_two", "not all volumes of the type");
    Ok(())
}

/// Replaces the driver at rest and under load, tries drivers that fail, and compares the tree with the tree
/// after the next mount.
pub fn run(machine: &Machine) -> Result<()> {
    let root = Path::new("/m");
    machine.mount(0, "/m", MountFlags::empty(), machine.value("options"))?;
    let control = Control::of(0);
    ensure!(control.module()? == "obento", "the driver is of module {}", control.module()?);
    fs::write(root.join("first"), "first")?;
    load("one", "").context("loading one")?;
    load("two", "").context("loading two")?;
    report("at rest", alternate(&control, AT_REST, || Ok(()))?);
    ensure!(fs::read(root.join("first"))? == b"first", "a file has other contents");
    report("under load", under_load(machine, &control, root)?);
    requests(&control)?;
    faults(&control, root)?;
    if machine.kind() == "obento-ext4" {
        no_space(&control, root)?;
    }
    unloading(&control)?;
    // The driver that was linked into the module.
    control.write("upgrade obento").context("upgrade obento")?;
    ensure!(fs::read(root.join("first"))? == b"first", "a file has other contents");
    control.replace("two")?;
    let before = tree::read(root)?;
    umount("/m")?;
    machine.mount(0, "/m", MountFlags::RDONLY, machine.value("options"))?;
    ensure!(control.module()? == "obento_two", "a new mount does not use the newest driver");
    control.replace("one").context("a volume that is mounted read-only")?;
    tree::compare(&tree::read(root)?, &before)?;
    umount("/m")?;
    unload("one").context("the last unmount")?;
    unload("two").context("the last unmount")?;
    Ok(())
}
