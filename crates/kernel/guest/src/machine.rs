//! The machine: file systems of the kernel, the module, disks, and the kernel log.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::system::{RebootCommand, finit_module, reboot};

/// Words of the kernel log that no case may cause.
const ALARMS: [&str; 10] = [
    "BUG:",
    ";BUG ",
    "kernel BUG",
    "Oops",
    "WARNING:",
    "hung_task",
    "blocked for more",
    "general protection",
    "Call Trace",
    "obento: panicked",
];

/// The machine, with the module loaded.
pub struct Machine {
    values: BTreeMap<String, String>,
}

impl Machine {
    /// Mounts what programs expect, and loads the module.
    pub fn start() -> Result<Self> {
        for folder in ["/proc", "/sys", "/dev", "/m", "/n", "/tmp"] {
            fs::create_dir_all(folder)?;
        }
        let none = c"";
        mount("proc", "/proc", "proc", MountFlags::empty(), none)?;
        mount("sys", "/sys", "sysfs", MountFlags::empty(), none)?;
        // The kernel may have mounted it.
        let _ = mount("dev", "/dev", "devtmpfs", MountFlags::empty(), none);
        mount("tmp", "/tmp", "tmpfs", MountFlags::empty(), none)?;
        let line = fs::read_to_string("/proc/cmdline")?;
        let values = line.split_whitespace().filter_map(|word| word.strip_prefix("obento.")?.split_once('='));
        let values = values.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        prepare()?;
        load().context("loading obento.ko")?;
        Ok(Self { values })
    }

    /// The value of `obento.KEY` on the kernel command line; empty without one.
    pub fn value(&self, key: &str) -> &str {
        self.values.get(key).map_or("", String::as_str)
    }

    /// The file system type under test.
    pub fn kind(&self) -> &str {
        if self.value("type").is_empty() { "obento-ext4" } else { self.value("type") }
    }

    /// Mounts disk `number` with the type under test.
    pub fn mount(&self, number: u8, at: &str, flags: MountFlags, options: &str) -> Result<()> {
        mount_as(self.kind(), number, at, flags, options)
    }

    /// Unloads the module, and fails if a driver leaked memory or the kernel reported a bug.
    pub fn finish(&self) -> Result<()> {
        let live = fs::read_to_string("/sys/module/obento/parameters/live")?;
        let stack = fs::read_to_string("/sys/module/obento/parameters/stack")?;
        println!("deepest stack at an allocation, a device request, a wait: {}", stack.trim());
        ensure!(live.trim() == "0", "{} allocations remain after the last unmount", live.trim());
        unload().context("unloading obento.ko")?;
        check_log()
    }
}

/// The device of disk `number`.
pub fn disk(number: u8) -> String {
    let letter = char::from(b'a' + number);
    let candidates =
        [format!("/dev/ubd{letter}"), format!("/dev/vd{letter}"), format!("/dev/nvme{number}n1")];
    candidates.iter().find(|path| Path::new(path).exists()).cloned().unwrap_or_default()
}

/// Mounts disk `number` as `kind`.
pub fn mount_as(kind: &str, number: u8, at: &str, flags: MountFlags, options: &str) -> Result<()> {
    let options = CString::new(options)?;
    mount(disk(number), at, kind, flags, options.as_c_str())
        .with_context(|| format!("mount -t {kind} {} {at}", disk(number)))
}

/// Unmounts `at`.
pub fn umount(at: &str) -> Result<()> {
    unmount(at, UnmountFlags::empty()).with_context(|| format!("umount {at}"))
}

/// Loads the modules of the kernel itself that its disks and file systems need.
fn prepare() -> Result<()> {
    let mut paths = fs::read_dir("/modules")?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        // Code for an instruction that the processor lacks reports that no device exists.
        match finit_module(File::open(&path)?, c"", 0) {
            Ok(()) | Err(rustix::io::Errno::NODEV) => {}
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        }
    }
    Ok(())
}

/// Loads the module.
pub fn load() -> Result<()> {
    Ok(finit_module(File::open("/obento.ko")?, c"", 0)?)
}

/// Unloads the module.
pub fn unload() -> Result<()> {
    Ok(rustix::system::delete_module(c"obento", libc::O_NONBLOCK)?)
}

/// Drops clean pages, dentries and inodes.
pub fn drop_caches() -> Result<()> {
    Ok(fs::write("/proc/sys/vm/drop_caches", "3")?)
}

/// The kernel log since the start.
pub fn log() -> String {
    let kmsg = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg");
    let Ok(mut kmsg) = kmsg else { return String::new() };
    let mut text = String::new();
    let mut record = [0; 8192];
    loop {
        match kmsg.read(&mut record) {
            Ok(len) if len > 0 => text.push_str(&String::from_utf8_lossy(&record[..len])),
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            _ => return text,
        }
    }
}

/// Fails if the kernel reported a bug.
pub fn check_log() -> Result<()> {
    let log = log();
    let found = log.lines().find(|line| ALARMS.iter().any(|word| line.contains(word)));
    ensure!(found.is_none(), "the kernel log reports: {}", found.unwrap_or_default());
    Ok(())
}

/// Prints the end of the kernel log.
pub fn print_log() {
    let log = log();
    let lines: Vec<_> = log.lines().collect();
    for line in &lines[lines.len().saturating_sub(60)..] {
        println!("kernel: {line}");
    }
}

/// Ends the machine at once. Nothing is written: the disks are as after a power cut.
pub fn power_off() -> ! {
    let _ = reboot(RebootCommand::PowerOff);
    loop {
        std::thread::park();
    }
}
