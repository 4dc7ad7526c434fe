//! Randomly damaged volumes are opened, walked and, if possible, changed. Each attempt ends in bounded time, a volume that
//! does not open has a reason, and no process is left.

use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use obento_base::{FileKind, Name};
use obento_block::{BlockDevice, MemDevice, Overlay};
use obento_driver::{Access, Driver as _, FileSystem, LayoutLock, OpenOptions};
use obento_env::NO_CLOCK;
use obento_linux::LinuxDriver;
use obento_testkit::mutants::{Random, mutate};
use obento_testkit::plan::{Limits, random};
use obento_testkit::recipes::{EMPTY, FILLED, Recipe};
use obento_testkit::walk::{open_and_change, open_and_walk};

use super::image::{driver, node, open};

/// The time limit of an attempt: the watchdog's minute, the start, and as much again for a busy machine.
const BOUND: Duration = Duration::from_secs(120);
/// The number of volumes of each type.
const MUTANTS: u64 = 11;
const SECTOR: usize = 512;

/// Directories with files, or as many files in a type without directories.
fn fill(fs: &dyn FileSystem) {
    let (writable, lock) = (fs.writable().unwrap(), LayoutLock::new());
    for folder in 0..3 {
        let name = format!("d{folder}");
        let made =
            writable.create(fs.root(), Name::new(name.as_bytes()).unwrap(), &node(FileKind::Directory));
        let dir = made.map_or(fs.root(), |made| made.ino);
        for file in 0..40 {
            let name = format!("file{file}");
            let name = Name::new(name.as_bytes()).unwrap();
            let ino = writable.create(dir, name, &node(FileKind::Regular)).unwrap().ino;
            writable.write(&lock.shared(), ino, 0, &vec![b'x'; file * 300]).unwrap();
        }
        if dir == fs.root() {
            break;
        }
    }
    writable.close().unwrap();
}

/// The bytes of an empty volume that the kernel filled.
fn filled_here(recipe: &Recipe) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let device = Arc::new(MemDevice::new(recipe.bytes(folder.path())));
    fill(&*open(recipe.name, device.clone(), Access::ReadWrite));
    let mut bytes = vec![0; usize::try_from(device.len()).unwrap()];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// The bytes of a volume that its program filled.
fn filled_there(recipe: &Recipe) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..3 {
        let inner = folder.path().join(format!("tree/d{number}"));
        fs::create_dir_all(&inner).unwrap();
        for file in 0..40 {
            fs::write(inner.join(format!("file{file}")), vec![b'x'; file * 300]).unwrap();
        }
    }
    recipe.bytes(folder.path())
}

/// Opens, walks and, if `change`, changes damaged copies. Returns their number.
fn survives(recipe: &Recipe, bytes: Vec<u8>, change: bool) -> u64 {
    let is_used = |at: &usize| bytes[*at..].iter().take(SECTOR).any(|byte| *byte != 0);
    let used: Vec<usize> = (0..bytes.len() / SECTOR * SECTOR).step_by(SECTOR).filter(is_used).collect();
    let sectors: Vec<u8> = used.iter().flat_map(|at| &bytes[*at..*at + SECTOR]).copied().collect();
    let (device, start) = (Arc::new(MemDevice::read_only(bytes)), Instant::now());
    for seed in 0..MUTANTS {
        let mut damaged = sectors.clone();
        mutate(&mut damaged, &mut Random::new(seed));
        let overlay = Overlay::new(device.clone());
        let both = damaged.chunks(SECTOR).zip(sectors.chunks(SECTOR));
        for (at, (new, _)) in used.iter().zip(both).filter(|(_, (new, old))| new != old) {
            overlay.write_at(*at as u64, new).unwrap();
        }
        let (driver, overlay, since) = (driver(recipe.name), Arc::new(overlay), Instant::now());
        open_and_walk(&driver, overlay.clone());
        expect_a_reason(&driver, overlay.clone(), seed);
        assert!(since.elapsed() < BOUND, "{} {seed}: {:?}", recipe.name, since.elapsed());
        if change {
            let since = Instant::now();
            open_and_change(&driver, overlay, &random(seed, &Limits::SMALL));
            // Opened and walked again.
            assert!(since.elapsed() < 2 * BOUND, "{} {seed}, changed: {:?}", recipe.name, since.elapsed());
        }
    }
    println!("{MUTANTS} of {} in {:.1?}", recipe.name, start.elapsed());
    MUTANTS
}

/// A volume that does not open has a message: the kernel's, if the error has none.
fn expect_a_reason(driver: &LinuxDriver, device: Arc<dyn BlockDevice>, seed: u64) {
    let Err(error) = driver.open(device, &OpenOptions::new(Arc::new(NO_CLOCK))) else { return };
    let reported = error.to_string();
    let is_clear = reported.contains(' ') && !reported.ends_with("an unknown error");
    assert!(is_clear, "{:?} {seed}: {reported:?}", driver.names());
}

/// The child processes of this process.
fn children() -> Vec<String> {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let of = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children")).unwrap_or_default();
    let lists = threads.map(|thread| of(thread.unwrap()));
    let reported =
        |pid: &str| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_else(|_| pid.to_owned());
    lists.flat_map(|list| list.split_whitespace().map(reported).collect::<Vec<_>>()).collect()
}

/// The whole campaign runs without other tests.
#[test]
#[ignore = "a campaign of minutes"]
fn two_hundred_damaged_volumes_are_answered_within_bounds() {
    // A type with a program that fills a volume, and none that creates an empty one, is only read.
    let is_read = |recipe: &&Recipe| EMPTY.iter().all(|empty| empty.name != recipe.name);
    let read: Vec<_> = FILLED.iter().filter(is_read).collect();
    if !EMPTY.iter().chain(read.iter().copied()).all(Recipe::is_possible) {
        return;
    }
    let written = EMPTY.iter().map(|recipe| survives(recipe, filled_here(recipe), true));
    let all = written.sum::<u64>()
        + read.iter().map(|recipe| survives(recipe, filled_there(recipe), false)).sum::<u64>();
    assert!(all >= 200, "{all}");
    // The last processes are ending: a limit against one that does not.
    let end = Instant::now() + Duration::from_secs(30);
    while !children().is_empty() && Instant::now() < end {
        thread::yield_now();
    }
    assert_eq!(children(), [""; 0], "processes are left");
}
