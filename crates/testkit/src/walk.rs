//! Reads a whole volume with arbitrary bytes, for the fuzz target of a driver.
//!
//! ```
//! use std::sync::Arc;
//! use obento_block::MemDevice;
//! use obento_testkit::walk::open_and_walk;
//! # use obento_base::Result;
//! # use obento_block::BlockDevice;
//! # use obento_driver::{Access, Driver, FileSystem, OpenOptions, Probe};
//! # struct MyDriver;
//! # impl Driver for MyDriver {
//! #     fn names(&self) -> &'static [&'static str] { &["mine"] }
//! #     fn access(&self) -> Access { Access::ReadOnly }
//! #     fn probe(&self, _: &dyn BlockDevice) -> Result<Option<Probe>> { Ok(None) }
//! #     fn open(&self, _: Arc<dyn BlockDevice>, _: &OpenOptions) -> Result<Arc<dyn FileSystem>> {
//! #         Err(obento_base::Error::Invalid)
//! #     }
//! # }
//! // In fuzz/fuzz_targets/walk.rs: fuzz_target!(|data: &[u8]| walk(data));
//! fn walk(data: &[u8]) {
//!     open_and_walk(&MyDriver, Arc::new(MemDevice::read_only(data.to_vec())));
//! }
//! # walk(b"bytes");
//! ```

use std::collections::{HashSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use obento_base::{FileKind, Ino, Name, Timestamp};
use obento_block::BlockDevice;
use obento_driver::{
    Access, CheckObserver, CheckOptions, CheckReport, Cookie, Driver, FileSystem, Finding, LayoutLock,
    OpenOptions, RepairMode, Span, Target,
};
use obento_env::{FixedClock, NO_CLOCK};
use obento_vfs::Vfs;

use crate::plan::{Actor, Plan};

/// The time of a check grows with the volume; larger ones are only read.
const CHECKED: u64 = 64 << 20;
/// The most findings of one check. A sound volume has none, and a damaged one of a few MiB some thousand.
const FINDINGS: u64 = 1 << 20;

/// Opens the volume on `device` for reading and reads all of it: entries, attributes, links, mappings, data and the
/// structures that the driver shows. The bounds are so large that a sound volume of a few MiB never reaches them. A
/// volume of at most 64 MiB is checked first, if its driver supports that. Panics if a result is impossible for any
/// bytes: an empty run, or one outside of the device.
pub fn open_and_walk(driver: &dyn Driver, device: Arc<dyn BlockDevice>) {
    let _ = driver.probe(&*device);
    check(driver, &device, RepairMode::Nothing);
    let options = OpenOptions { cache: 256 << 10, ..OpenOptions::new(Arc::new(NO_CLOCK)) };
    if let Ok(fs) = driver.open(device, &options) {
        walk(&*fs);
    }
}

/// Opens the volume on `device`, which may have arbitrary bytes, for changes, runs `plan` on it, and reads the result.
/// Operations may fail; opening the volume again must end as well.
pub fn open_and_change(driver: &dyn Driver, device: Arc<dyn BlockDevice>, plan: &Plan) {
    let options = OpenOptions {
        access: Access::ReadWrite,
        cache: 256 << 10,
        ..OpenOptions::new(Arc::new(FixedClock(Timestamp::new(1_700_000_000, 0))))
    };
    let Ok(fs) = driver.open(device.clone(), &options) else { return };
    let mut actor = Actor::new(Vfs::new(fs));
    for (number, op) in plan.ops.iter().enumerate() {
        let _ = actor.act(number, op);
    }
    let _ = (actor.vfs().sync(), actor.vfs().close());
    drop(actor);
    open_and_walk(driver, device);
}

/// Repairs everything that the driver's check finds on `device`, and reads the result. Panics if more is left than the
/// check reports.
pub fn repair_and_walk(driver: &dyn Driver, device: Arc<dyn BlockDevice>) {
    let repaired = check(driver, &device, RepairMode::All);
    let again = check(driver, &device, RepairMode::Nothing);
    if let (Some(repaired), Some(again)) = (repaired, again) {
        assert!(again.found <= repaired.left(), "{repaired:?} left {again:?}");
    }
    open_and_walk(driver, device);
}

/// Checks a volume that is not too large. Returns `None` if it cannot be checked.
fn check(driver: &dyn Driver, device: &Arc<dyn BlockDevice>, repair_mode: RepairMode) -> Option<CheckReport> {
    let check = driver.check().filter(|_| device.len() <= CHECKED)?;
    // Threads find the same, and take longer on small volumes.
    let options = CheckOptions { repair_mode, threads: 0, ..CheckOptions::new(Arc::new(NO_CLOCK)) };
    check.check(device.clone(), &options, &mut Counted(0)).ok()
}

/// Counts findings without storing them.
struct Counted(u64);

impl CheckObserver for Counted {
    fn found(&mut self, finding: Finding) {
        self.0 += 1;
        assert!(self.0 <= FINDINGS && !finding.text.is_empty(), "the {}th finding: {finding:?}", self.0);
    }
}

/// Does [`open_and_walk`] with an open volume.
pub fn walk(fs: &dyn FileSystem) {
    let _ = (fs.info(), fs.statfs());
    let mut seen = HashSet::new();
    let mut queue = VecDeque::from([fs.root()]);
    let (mut entries, mut met) = (0, Vec::new());
    while let Some(dir) = queue.pop_front() {
        let mut children = Vec::new();
        let _ = fs.read_dir(dir, Cookie::START, &mut |entry| {
            entries += 1;
            if let Ok(entry) = entry {
                children.push((entry.ino, entry.name.to_buf()));
            }
            if entries < 20_000 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        let _ = fs.parent(dir);
        for (ino, name) in children.into_iter().take(500) {
            let _ = fs.lookup(dir, &name);
            if seen.insert(ino) && seen.len() < 2_000 {
                if met.len() < 8 {
                    met.push(ino);
                }
                look_at(fs, ino, &mut queue);
            }
        }
        let _ = fs.lookup(dir, Name::new(b"no such name").expect("a name"));
    }
    show(fs, met);
}

/// Shows structures of the volume, including those of the inodes `met`.
fn show(fs: &dyn FileSystem, met: Vec<Ino>) {
    let Some(inspect) = fs.inspect() else { return };
    let fixed =
        [Target::SuperBlock(0), Target::SuperBlock(1), Target::Group(0), Target::Block(2), Target::Journal];
    let inodes = [fs.root(), Ino(2), Ino(12)].into_iter().chain(met);
    let inodes = inodes.flat_map(|ino| [Target::Inode(ino), Target::Directory(ino)]);
    for target in fixed.into_iter().chain(inodes) {
        let mut records = 0;
        let _ = inspect.inspect(target, &mut |_| records += 1);
        assert!(records < 1 << 20, "{target:?} has {records} records");
    }
    for offset in (0..fs.device().map_or(0, |device| device.len())).step_by(4001) {
        let _ = inspect.locate(offset);
    }
}

fn look_at(fs: &dyn FileSystem, ino: Ino, queue: &mut VecDeque<Ino>) {
    let Ok(attr) = fs.getattr(ino) else { return };
    match attr.kind {
        FileKind::Directory => queue.push_back(ino),
        FileKind::Symlink => drop(fs.read_link(ino)),
        FileKind::Regular => read_data(fs, ino, attr.size),
        _ => {}
    }
    if let Some(xattrs) = fs.xattrs() {
        let mut names = Vec::new();
        let _ = xattrs.list_xattrs(ino, &mut |name| names.push(name.to_vec()));
        names.iter().take(100).for_each(|name| drop(xattrs.get_xattr(ino, name)));
    }
}

/// Follows the mapping run by run. A malicious one may have many runs, so only the first ones are read.
fn read_data(fs: &dyn FileSystem, ino: Ino, size: u64) {
    let lock = LayoutLock::new();
    let layout = lock.shared();
    let device_len = fs.device().map_or(0, |device| device.len());
    let mut at = 0;
    let mut buf = [0; 512];
    for _ in 0..3_000 {
        if at >= size {
            return;
        }
        let Ok(extent) = fs.map(&layout, ino, at..size) else {
            at = (at / 1024 + 1) * 1024;
            continue;
        };
        assert!(extent.len > 0 && extent.len <= size - at, "a run of {} bytes at {at} of {size}", extent.len);
        match extent.span {
            Span::Mapped(offset) => {
                assert!(offset.checked_add(extent.len).is_some_and(|end| end <= device_len.max(1 << 24)));
            }
            Span::Driver => drop(fs.read(&layout, ino, at, &mut buf)),
            Span::Hole | Span::Unwritten => {}
        }
        at += extent.len;
    }
}
