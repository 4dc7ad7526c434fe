//! Samples of the functions that run, taken by the clock of the machine. If that clock counts instructions (`qemu -icount`),
//! a profile shows instructions. Interrupts are off in some functions of the kernel; their samples count for the function that
//! enables interrupts again.
//!
//! Source: perf_event_open(2).

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{Ordering, fence};

use anyhow::{Context as _, Result, ensure};

/// Nanoseconds between samples; the kernel takes no more samples than this.
pub const PERIOD: u64 = 10_000;
/// Pages of samples: a power of two.
const PAGES: usize = 2048;
const PAGE: usize = 4096;
/// Offset of `data_head` in `struct perf_event_mmap_page`.
const DATA_HEAD: usize = 1024;
/// Functions that are printed.
const SHOWN: usize = 70;

/// `struct perf_event_attr`, `PERF_ATTR_SIZE_VER0`.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    bp_type: u32,
    bp_address: u64,
}

/// A running sampler of processor 0.
pub struct Sampler {
    fd: libc::c_int,
    ring: *mut u8,
}

impl Sampler {
    /// Starts to take samples.
    pub fn start() -> Result<Self> {
        const SOFTWARE: u32 = 1;
        const IP: u64 = 1;
        const NOT_IDLE: u64 = 1 << 6;
        let attributes = Attributes {
            kind: SOFTWARE,
            size: 64,
            config: 0,
            period: PERIOD,
            sample_type: IP,
            read_format: 0,
            flags: NOT_IDLE,
            wakeup: 0,
            bp_type: 0,
            bp_address: 0,
        };
        // SAFETY: the structure is valid, and has the size that it names.
        let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attributes, -1, 0, -1, 0) };
        ensure!(fd >= 0, "perf_event_open: {}", std::io::Error::last_os_error());
        let fd = libc::c_int::try_from(fd)?;
        let (len, rights) = ((1 + PAGES) * PAGE, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a new mapping of the descriptor.
        let ring = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, libc::MAP_SHARED, fd, 0) };
        ensure!(ring != libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
        Ok(Self { fd, ring: ring.cast() })
    }

    /// Ends sampling, and prints how many samples each function has: `sample: COUNT NAME`.
    pub fn finish(self) -> Result<()> {
        /// `PERF_EVENT_IOC_DISABLE`.
        const DISABLE: libc::Ioctl = 0x2401;
        // SAFETY: the descriptor is open, and only this value closes it.
        unsafe {
            libc::ioctl(self.fd, DISABLE, 0);
            libc::close(self.fd);
        }
        let symbols = symbols()?;
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for address in self.addresses() {
            let found = symbols.range(..=address).next_back();
            let name = if address >> 63 == 0 { "(program)" } else { found.map_or("?", |(_, name)| name) };
            *counts.entry(name).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|&(name, count)| (std::cmp::Reverse(count), name));
        println!("samples: {}", counts.iter().map(|(_, count)| count).sum::<u64>());
        counts.iter().take(SHOWN).for_each(|(name, count)| println!("sample: {count} {name}"));
        Ok(())
    }

    fn addresses(&self) -> Vec<u64> {
        let word = |at: usize| {
            // SAFETY: the mapping lives as long as the process; each offset is inside of it, and aligned.
            unsafe { self.ring.add(at).cast::<u64>().read_volatile() }
        };
        let head = usize::try_from(word(DATA_HEAD)).unwrap_or(0).min(PAGES * PAGE);
        fence(Ordering::Acquire);
        let (mut at, mut addresses) = (0, Vec::new());
        while at + 16 <= head {
            // `struct perf_event_header`: type, misc, size.
            let header = word(PAGE + at);
            let (kind, size) = (header & 0xffff_ffff, usize::try_from(header >> 48).unwrap_or(0));
            const SAMPLE: u64 = 9;
            if kind == SAMPLE {
                addresses.push(word(PAGE + at + 8));
            }
            if size < 8 {
                break;
            }
            at += size;
        }
        addresses
    }
}

/// The functions of the kernel and of its modules by address.
fn symbols() -> Result<BTreeMap<u64, String>> {
    let text = fs::read_to_string("/proc/kallsyms").context("/proc/kallsyms")?;
    let symbol = |line: &str| {
        let mut words = line.split_whitespace();
        let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
        let is_code = matches!(kind, "t" | "T" | "w" | "W");
        is_code.then_some((u64::from_str_radix(address, 16).ok()?, name.to_owned()))
    };
    Ok(text.lines().filter_map(symbol).collect())
}
