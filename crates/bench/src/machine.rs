//! The machine of the measurements, and its load during them.
//!
//! Source: Linux, Documentation/filesystems/proc.rst and Documentation/block/stat.rst.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{command_of, run};
use crate::target::TestBed;

/// The description of a machine.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct Machine {
    /// The kernel, from uname(1).
    pub kernel: String,
    /// The model of the processor.
    pub processor: String,
    /// The number of processors.
    pub processors: usize,
    /// The memory in bytes.
    pub memory: u64,
    /// The type and the device of the file system that contains the images.
    pub setup: String,
    /// Programs and their versions.
    pub versions: BTreeMap<String, String>,
}

impl Machine {
    /// Describes this machine, with images in `folder`.
    pub fn this(folder: &Path) -> Self {
        let uname = rustix::system::uname();
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let mut versions = BTreeMap::from([("obento".to_owned(), env!("CARGO_PKG_VERSION").to_owned())]);
        for (program, argument) in
            [("mke2fs", "-V"), ("fuse2fs", "-V"), ("fio", "--version"), ("git", "--version")]
        {
            if let Some(version) = version(program, argument) {
                versions.insert(program.to_owned(), version);
            }
        }
        Self {
            kernel: format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy()),
            processor: after(&info, "model name").unwrap_or("unknown").to_owned(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory: memory(),
            setup: setup(folder),
            versions,
        }
    }
}

/// Returns the first line that `program argument` prints, on standard output or standard error.
fn version(program: &str, argument: &str) -> Option<String> {
    let output = command_of(program).arg(argument).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).lines().next().map(|line| line.trim().to_owned())
}

/// Returns the memory of this machine in bytes.
pub fn memory() -> u64 {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    kib(after(&info, "MemTotal"))
}

fn setup(folder: &Path) -> String {
    let named = run(command_of("findmnt").args(["-no", "FSTYPE,SOURCE", "-T"]).arg(folder));
    named.map_or_else(|_| "unknown".to_owned(), |text| seen(&text))
}

/// Returns the topmost mount in the output of findmnt(8), whose last line is the topmost.
fn seen(mounts: &str) -> String {
    let last = mounts.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("unknown");
    last.split_whitespace().collect::<Vec<_>>().join(" on ")
}

/// Returns the text after `name:` in a file of /proc.
fn after<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let line = text.lines().find(|line| line.split(':').next().is_some_and(|start| start.trim() == name))?;
    line.split_once(':').map(|(_, rest)| rest.trim())
}

fn kib(text: Option<&str>) -> u64 {
    text.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// Returns the largest memory of a process, in bytes.
pub fn peak_memory(pid: u32) -> u64 {
    kib(after(&fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default(), "VmHWM"))
}

/// The processor time of the whole machine, in seconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Processors {
    busy: f64,
    stolen: f64,
    all: f64,
}

impl Processors {
    /// Reads the counters.
    pub fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = text.lines().next().unwrap_or_default();
        // The fields are user nice system idle iowait irq softirq steal guest guest_nice, in hundredths of a second.
        // The time of guests is part of user.
        let times: Vec<f64> =
            line.split_whitespace().skip(1).take(8).filter_map(|time| time.parse::<f64>().ok()).collect();
        let at = |index: usize| times.get(index).copied().unwrap_or(0.0) / 100.0;
        let all: f64 = (0..8).map(at).sum();
        Self { busy: all - at(3) - at(4) - at(7), stolen: at(7), all }
    }

    /// Returns the busy processor time since `start`, in seconds.
    pub fn busy_since(&self, start: &Self) -> f64 {
        self.busy - start.busy
    }

    /// Returns the share of the time since `start` that the hypervisor took from this machine.
    pub fn stolen_since(&self, start: &Self) -> f64 {
        let all = self.all - start.all;
        if all <= 0.0 { 0.0 } else { (self.stolen - start.stolen) / all }
    }
}

/// Returns a warning if other processes use the processors during several samples.
pub fn company() -> Option<String> {
    let running = || {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("procs_running "))?;
        line.trim().parse::<usize>().ok()
    };
    let mut seen: Vec<usize> = (0..9)
        .filter_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            running()
        })
        .collect();
    seen.sort_unstable();
    // This process is one of the runnable threads.
    busy(seen.get(seen.len() / 2)?.saturating_sub(1))
}

/// Returns a warning if `others` other threads are runnable.
pub fn busy(others: usize) -> Option<String> {
    match others {
        0 => None,
        1 => Some("the machine was busy (1 runnable thread)".to_owned()),
        others => Some(format!("the machine was busy ({others} runnable threads)")),
    }
}

/// The traffic of a device, or of the file that contains a file system.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// The bytes read.
    pub read: u64,
    /// The bytes written.
    pub written: u64,
    /// The number of flushes, if the device counts them.
    pub flushes: Option<u64>,
}

impl Traffic {
    /// Reads the counters, if the target has any. A kernel mount has the counters of its loop device; other targets
    /// have those of the processes that serve the file system.
    pub fn of(bed: &TestBed) -> Option<Self> {
        if let Some(device) = bed.path().and_then(|path| loop_device(&path)) {
            let text = fs::read_to_string(format!("/sys/block/{device}/stat")).ok()?;
            let counts: Vec<u64> = text.split_whitespace().filter_map(|count| count.parse().ok()).collect();
            let sectors = |index: usize| counts.get(index).copied().map(|sectors: u64| sectors * 512);
            return Some(Self { read: sectors(2)?, written: sectors(6)?, flushes: counts.get(15).copied() });
        }
        let own = [std::process::id()];
        let drivers = match bed.path() {
            None => own.as_slice(),
            Some(_) if bed.servers().is_empty() => return None,
            Some(_) => bed.servers(),
        };
        let all = drivers.iter().filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/io")).ok());
        Some(all.fold(Self::default(), |sum, text| {
            let count = |name| after(&text, name).and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
            Self {
                read: sum.read + count("read_bytes"),
                written: sum.written + count("write_bytes"),
                flushes: None,
            }
        }))
    }

    /// Returns the traffic since `start`.
    pub fn since(&self, start: &Self) -> Self {
        Self {
            read: self.read.saturating_sub(start.read),
            written: self.written.saturating_sub(start.written),
            flushes: self.flushes.zip(start.flushes).map(|(now, then)| now.saturating_sub(then)),
        }
    }
}

/// Returns the loop device or zram disk that is mounted at `at`.
fn loop_device(at: &Path) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let line = mounts
        .lines()
        .rev()
        .find(|line| line.split(' ').nth(1).is_some_and(|place| Path::new(place) == at))?;
    line.split(' ')
        .next()?
        .strip_prefix("/dev/")
        .filter(|name| name.starts_with("loop") || name.starts_with("zram"))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_several_mounts_at_one_place_is_used() {
        assert_eq!(seen("tmpfs tmpfs\next4   /dev/vda\n"), "ext4 on /dev/vda");
        assert_eq!(seen("\n"), "unknown");
    }

    #[test]
    fn the_machine_is_described() {
        let machine = Machine::this(Path::new("/"));
        assert!(machine.memory > 1 << 20 && machine.processors > 0, "{machine:?}");
        assert!(machine.kernel.starts_with("Linux "), "{machine:?}");
    }

    #[test]
    fn working_makes_processors_busy() {
        let start = Processors::now();
        let begin = std::time::Instant::now();
        while begin.elapsed() < Duration::from_millis(300) {
            std::hint::black_box(peak_memory(std::process::id()));
        }
        let busy = Processors::now().busy_since(&start);
        assert!(busy > 0.1, "{busy}");
    }
}
