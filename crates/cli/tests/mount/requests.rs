//! The requests that system calls send to the server, and their cost beside the kernel's ext4.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Instant;

use obento_testkit::oracle::LoopMount;
use obento_testkit::{Oracle, require};

use crate::support::{Disk, text};

/// A system call that is measured.
struct Call {
    name: &'static str,
    /// The requests of one call. docs/benchmarks/mount.md explains them.
    requests: &'static str,
    /// Performs call `number` in a directory.
    run: fn(at: &Path, number: usize) -> std::io::Result<()>,
}

impl Call {
    fn count(&self) -> u64 {
        self.requests.split_whitespace().count() as u64
    }
}

const fn call(
    name: &'static str,
    requests: &'static str,
    run: fn(at: &Path, number: usize) -> std::io::Result<()>,
) -> Call {
    Call { name, requests, run }
}

fn named(at: &Path, prefix: &str, number: usize) -> std::path::PathBuf {
    at.join(format!("{prefix}{number:06}"))
}

/// In this order: later calls use the files of the earlier ones.
const CALLS: [Call; 12] = [
    call("creat, close: a new file", "LOOKUP MKNOD GETATTR", |at, n| {
        File::create_new(named(at, "f", n)).map(drop)
    }),
    call("open, close: an existing file", "", |at, n| File::open(named(at, "f", n)).map(drop)),
    call("stat", "", |at, _| fs::metadata(at.join("stat")).map(drop)),
    call("chmod", "SETATTR", |at, n| {
        fs::set_permissions(named(at, "f", n), std::os::unix::fs::PermissionsExt::from_mode(0o600))
    }),
    call("link: another name of one file", "LOOKUP LINK SETATTR GETATTR", |at, n| {
        fs::hard_link(at.join("one"), named(at, "l", n))
    }),
    call("rename", "LOOKUP RENAME SETATTR GETATTR", |at, n| fs::rename(named(at, "l", n), named(at, "r", n))),
    call("unlink: one of several names", "UNLINK SETATTR GETATTR", |at, n| {
        fs::remove_file(named(at, "r", n))
    }),
    call("unlink: the last name", "UNLINK SETATTR GETATTR FORGET", |at, n| {
        fs::remove_file(named(at, "f", n))
    }),
    call("symlink", "LOOKUP SYMLINK GETATTR", |at, n| symlink("target", named(at, "s", n))),
    call("mkdir", "LOOKUP MKDIR GETATTR", |at, n| fs::create_dir(named(at, "d", n))),
    call("rmdir", "RMDIR GETATTR FORGET", |at, n| fs::remove_dir(named(at, "d", n))),
    call("creat, write, close: a new file", "LOOKUP MKNOD GETATTR GETXATTR WRITE", |at, n| {
        File::create_new(named(at, "w", n))?.write_all(b"contents")
    }),
];

fn prepare(at: &Path) {
    for name in ["one", "stat"] {
        fs::write(at.join(name), "x").unwrap();
    }
    fs::metadata(at.join("stat")).unwrap();
}

/// The number of requests that the server has answered.
pub fn answered(disk: &Disk) -> u64 {
    let status = text(&disk.obento(&["mount", "--status", "mnt", "--json"]).stdout);
    let (_, number) = status.split_once("\"requests\":").unwrap();
    number.split([',', '}']).next().unwrap().parse().unwrap()
}

/// Lists the calls of which `count` sent more requests than documented, with a margin for requests of the kernel's own.
fn exceeded(sent: &[u64; CALLS.len()], count: usize) -> Vec<String> {
    let most = |call: &Call| call.count() * count as u64 + count as u64 / 4;
    let each = CALLS.iter().zip(sent).filter(|(call, sent)| **sent > most(call));
    each.map(|(call, sent)| format!("{}: {sent} requests for {count} calls", call.name)).collect()
}

#[test]
fn each_system_call_sends_at_most_the_documented_number_of_requests() {
    const COUNT: usize = 200;
    let Some(disk) = Disk::sized("1G", &[]) else { return };
    disk.mount("io_uring=off");
    prepare(&disk.at());
    // The kernel requests attributes of recently written files once in a second, and collects FORGET requests. On a busy
    // machine a round takes seconds and so sends more of both: the best of some rounds counts.
    let mut least = [u64::MAX; CALLS.len()];
    for round in 0..5 {
        for (call, least) in CALLS.iter().zip(&mut least) {
            let before = answered(&disk);
            (0..COUNT).for_each(|number| (call.run)(&disk.at(), round * COUNT + number).unwrap());
            *least = (*least).min(answered(&disk) - before);
        }
        if exceeded(&least, COUNT).is_empty() {
            break;
        }
    }
    assert_eq!(exceeded(&least, COUNT), [""; 0]);
    disk.umount();
}

/// Returns the microseconds of one call.
fn measured(call: &Call, at: &Path, count: usize) -> f64 {
    let begin = Instant::now();
    (0..count).for_each(|number| (call.run)(at, number).unwrap());
    begin.elapsed().as_secs_f64() * 1e6 / count as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
#[ignore = "a measurement for docs/benchmarks/mount.md"]
fn the_cost_of_system_calls_is_measured_beside_the_kernels_ext4() {
    const ROUNDS: usize = 7;
    let count = std::env::var("OBENTO_CALLS").ok().and_then(|count| count.parse().ok()).unwrap_or(20_000);
    if !require(&[Oracle::LoopMount, Oracle::Fuse]) {
        return;
    }
    let mut times = CALLS.map(|_| [Vec::new(), Vec::new()]);
    for _ in 0..ROUNDS {
        let [Some(disk), Some(other)] = [(); 2].map(|()| Disk::sized("2G", &[])) else { return };
        disk.mount("rw");
        let kernel = LoopMount::new(&other.image(), "").unwrap();
        let sides = [kernel.path().to_owned(), disk.at()];
        sides.iter().for_each(|at| prepare(at));
        // The sides take turns call by call.
        for (call, times) in CALLS.iter().zip(&mut times) {
            for (at, times) in sides.iter().zip(times) {
                times.push(measured(call, at, count));
            }
        }
        kernel.unmount().unwrap();
        disk.umount();
    }
    println!("{count} calls, {ROUNDS} rounds, µs for one call");
    println!("| call | requests | the kernel's ext4 | obento | ratio |\n|---|---|---|---|---|");
    for (Call { name, requests, .. }, [kernels, ours]) in CALLS.iter().zip(times) {
        let ratios = median(kernels.iter().zip(&ours).map(|(kernel, our)| our / kernel).collect());
        let (kernel, our) = (median(kernels), median(ours));
        println!("| {name} | {requests} | {kernel:.1} | {our:.1} | {ratios:.1} |");
    }
}
