//! The tests that obento has for every driver: the conformance cases, power failures, device errors, damage.

use std::sync::Arc;

use skeletonfs::raw::{PAGE, seal, state_of, volume_of};
use skeletonfs::{MyDriver, TYPE};
use obento::Result;
use obento::base::{FileKind, Timestamp};
use obento::block::{BlockDevice, MemDevice};
use obento::driver::{Driver as _, FileSystem, Format, OpenOptions, DataMode, FormatOptions};
use obento::env::{Clock, FixedClock, FixedRandom, SystemClock};
use obento::vfs::Vfs;
use obento_base::Name;
use obento_testkit::crash::campaign::{self, Volume};
use obento_testkit::crash::volume::Subject;
use obento_testkit::hosts::{Library, expect_all};
use obento_testkit::mutants::{Random, mutate};
use obento_testkit::plan::{Actor, Bounds, Op};
use obento_testkit::trials::{self, Judged};
use obento_testkit::walk::open_and_walk;

fn clock() -> Arc<FixedClock> {
    Arc::new(FixedClock(Timestamp::new(1_700_000_000, 5)))
}

fn formatted(len: usize) -> Vec<u8> {
    let device = MemDevice::new(vec![0xee; len]);
    Format::format(&MyDriver, &device, &FormatOptions::new(TYPE, clock(), Arc::new(FixedRandom(7)))).unwrap();
    device.snapshot()
}

fn open(device: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>) -> Result<Arc<dyn FileSystem>> {
    trials::open(&MyDriver, device, clock)
}

fn check(device: &Arc<dyn BlockDevice>, _: Option<&[u8]>) -> Result<(), String> {
    trials::check(&MyDriver, device)
}

/// Returns an empty volume, which is closed and checked at the end of a case.
fn empty() -> Option<Judged> {
    let device = Arc::new(MemDevice::new(formatted(32 << 20)));
    let fs = open(device.clone(), clock()).unwrap();
    Some(Judged::new(fs, move || trials::check(&MyDriver, &(device as _)).unwrap()))
}

/// Returns a small volume for power failures and damage. The format reserves no space for files and has no extended
/// attributes.
fn small() -> Volume<'static> {
    let data = DataMode::Ordered;
    let subject =
        Subject { open: &open, check: &check, second: &|_| Ok(()), second_every: 0, recovery_every: 0, data };
    let bounds = Bounds { len: 2, space: false, links: true, xattrs: false };
    trials::volume(TYPE, formatted(1 << 20).into(), subject, bounds)
}

// One case for each sentence of the contract.
mod writing {
    obento_testkit::writing_conformance!(super::empty());
}

mod reading {
    obento_testkit::reading_conformance!(super::empty());
}

// Power failures after every write. Synced changes must be present, and the others in their old or new state. Each plan
// also runs in memory, and both volumes must have the same tree after each operation.
mod cuts {
    obento_testkit::crash_trials!(Some(super::small()), 2, 4);
}

/// Runs until `OBENTO_CRASH_STATES` different disks were checked, or checks the one that a failure printed:
/// `OBENTO_CRASH_STATES=100000 cargo test --release campaign -- --ignored --nocapture`, with `OBENTO_CRASH=NAME`.
#[test]
#[ignore = "runs as long as OBENTO_CRASH_STATES requests"]
fn campaign_over_short_and_random_plans() {
    campaign::from_environment(&[small()]).expect_clean();
}

#[test]
fn whichever_request_fails_nothing_acknowledged_is_lost() {
    trials::faults::requests(&small(), 1);
}

#[test]
fn a_read_only_device_opens_for_reading_alone() {
    trials::faults::read_only(&MyDriver, &small());
}

#[test]
fn programs_get_the_expected_results() {
    let device = Arc::new(MemDevice::new(formatted(32 << 20)));
    let mut library = Library::new(move |access| {
        MyDriver.open(device.clone(), &OpenOptions { access, ..OpenOptions::new(Arc::new(SystemClock)) })
    });
    expect_all(&mut library);
    library.close();
}

/// Returns a volume with files, links and directories, and little data. It was synced twice, so that both slots are in
/// use.
fn with_files() -> Vec<u8> {
    let device = Arc::new(MemDevice::new(formatted(96 << 10)));
    let mut actor = Actor::new(Vfs::new(open(device.clone(), clock()).unwrap()));
    let many = (0..12).flat_map(|n| {
        let create = |kind, path: &str| Op::Create(format!("{path}{n}"), kind, 0o755);
        let link = Op::Link(format!("file{n}"), format!("dir{n}/link"));
        [
            create(FileKind::Directory, "dir"),
            create(FileKind::Fifo, "fifo"),
            create(FileKind::Regular, "file"),
            link,
        ]
    });
    let create = Op::Create("last".into(), FileKind::Regular, 0o644);
    for op in many.chain([Op::Write("file3".into(), 0, 50), Op::Sync, create]) {
        actor.act(1, &op).unwrap();
    }
    actor.vfs().close().unwrap();
    device.snapshot()
}

#[test]
fn any_bytes_are_read_without_a_panic_or_an_endless_loop() {
    let sound = with_files();
    let end = sound.iter().rposition(|&byte| byte != 0xee).unwrap().next_multiple_of(PAGE);
    let mut refused = 0;
    // Bytes anywhere in the volume, and bytes of the valid contents.
    for (seed, from) in (0..200).flat_map(|seed| [(seed, 0), (seed, end - 2 * PAGE)]) {
        let mut bytes = sound.clone();
        mutate(&mut bytes[from..end], &mut Random::new(seed));
        seal(&mut bytes);
        let device = Arc::new(MemDevice::read_only(bytes));
        open_and_walk(&MyDriver, device.clone());
        refused += u32::from(trials::check(&MyDriver, &(device as _)).is_err());
    }
    assert!((100..400).contains(&refused), "{refused}");
}

/// Writes inputs for the fuzzer if requested: `OBENTO_SEEDS=fuzz/corpus/walk cargo test seeds`.
#[test]
fn seeds_of_the_fuzzer_are_states_of_volumes_that_open() {
    let state = state_of(&with_files());
    let fs = open(Arc::new(MemDevice::new(volume_of(&state))), clock()).unwrap();
    assert!(fs.lookup(fs.root(), Name::new(b"last").unwrap()).is_ok());
    for end in [0, state.len() / 2] {
        assert!(open(Arc::new(MemDevice::new(volume_of(&state[..end]))), clock()).is_err(), "{end}");
    }
    if let Some(folder) = std::env::var_os("OBENTO_SEEDS") {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(std::path::Path::new(&folder).join("files"), state).unwrap();
    }
}

#[test]
fn damage_that_no_seal_hides_is_refused() {
    let mut bytes = with_files();
    let at = bytes.windows(4).rposition(|name| name == b"last").unwrap();
    bytes[at] = b'k';
    assert!(open(Arc::new(MemDevice::new(bytes)), clock()).is_err());
}
