//! The memory and the processor time that an operation costs.
//!
//! The memory of a process includes everything that it does at once, so that a test program that measures has one test.

use std::fs;
use std::time::Duration;

/// How much longer an operation may take with line counters: 4.5 times was measured.
const COUNTED: u32 = 6;

/// The cost of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// The growth of the peak memory in bytes.
    pub memory: u64,
    /// The processor time, which does not depend on other load.
    pub time: Duration,
}

/// Runs `act`, prints its cost, and tests that it is less than `most`. With line counters, more time is allowed.
pub fn bounded<T>(what: &str, most: Cost, act: impl FnOnce() -> T) -> T {
    let (result, cost) = cost(act);
    println!("{what}: {cost:?}");
    assert!(cost.memory < most.memory, "{what}: {} MiB", cost.memory >> 20);
    // The variable names the file of the counters.
    let counted = if std::env::var_os("LLVM_PROFILE_FILE").is_some() { COUNTED } else { 1 };
    assert!(cost.time < most.time * counted, "{what}: {:?}", cost.time);
    result
}

/// Runs `act`. Returns its result and its cost.
fn cost<T>(act: impl FnOnce() -> T) -> (T, Cost) {
    let before = memory("VmRSS:");
    // 5 resets the peak to the current memory.
    fs::write("/proc/self/clear_refs", "5").expect("Linux");
    let started = processor_time();
    let result = act();
    let time = processor_time().saturating_sub(started);
    (result, Cost { memory: memory("VmHWM:").saturating_sub(before), time })
}

/// Returns a line of `/proc/self/status` in bytes.
fn memory(line: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let found = status.lines().find_map(|text| text.strip_prefix(line)).expect("a line of each process");
    found.trim().strip_suffix(" kB").and_then(|count| count.parse::<u64>().ok()).expect("a number") << 10
}

/// Returns the processor time of the process. User and system time, in hundredths of a second, are the 12th and 13th word
/// after the name.
fn processor_time() -> Duration {
    let text = fs::read_to_string("/proc/self/stat").expect("Linux");
    let words = text.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    Duration::from_millis(words.map(|ticks| ticks.parse::<u64>().unwrap_or(0) * 10).sum())
}
