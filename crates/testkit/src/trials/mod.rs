//! Tests for volumes of any format: power failures at every write, faults of every request, full volumes, and volumes
//! that one process passes to another.
//!
//! A driver describes how its volumes are created, opened and checked, as a [`Volume`]. The cases are the same for all
//! drivers, and [`crash_trials!`](crate::crash_trials) creates tests of those about power failures.

pub mod cuts;
pub mod faults;
pub mod format;
pub mod handover;
pub mod model;

use std::ops::Deref;
use std::sync::Arc;

use obento_base::Result;
use obento_block::BlockDevice;
use obento_driver::{
    Access, CheckOptions, DataMode, Driver, FileSystem, Finding, OpenOptions, RepairMode, Severity,
};
use obento_env::{Clock, NO_CLOCK};

use crate::crash::campaign::Volume;
use crate::crash::volume::{Check, CheckClosed, Open, Subject};
use crate::oracle::call;
use crate::plan::{Bounds, Limits, catalogue};

/// Opens a volume for changes.
pub fn open(
    driver: &dyn Driver,
    device: Arc<dyn BlockDevice>,
    clock: Arc<dyn Clock>,
) -> Result<Arc<dyn FileSystem>> {
    driver.open(device, &OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(clock) })
}

/// Repairs a volume after a power failure, and opens it for changes.
pub fn repair_and_open(
    driver: &dyn Driver,
    device: Arc<dyn BlockDevice>,
    clock: Arc<dyn Clock>,
) -> Result<Arc<dyn FileSystem>> {
    let options = CheckOptions { repair_mode: RepairMode::All, ..CheckOptions::new(clock.clone()) };
    let check = driver.check().expect("it checks");
    check.check(device.clone(), &options, &mut Vec::<Finding>::new())?;
    open(driver, device, clock)
}

/// Fails with the findings of the driver's check of a closed volume, without notes.
pub fn check(driver: &dyn Driver, device: &Arc<dyn BlockDevice>) -> std::result::Result<(), String> {
    let mut found = Vec::<Finding>::new();
    let check = driver.check().expect("it checks");
    check
        .check(device.clone(), &CheckOptions::new(Arc::new(NO_CLOCK)), &mut found)
        .map_err(|e| e.to_string())?;
    found.retain(|finding| finding.severity != Severity::Note);
    let reported: Vec<String> = found.iter().take(5).map(ToString::to_string).collect();
    if reported.is_empty() { Ok(()) } else { Err(reported.join("; ")) }
}

/// Fails with the output of `program -n` for a volume.
pub fn judge(program: &str, device: &dyn BlockDevice) -> std::result::Result<(), String> {
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("judged.img");
    let mut bytes = vec![0; usize::try_from(device.len()).expect("it is in memory")];
    device.read_at(0, &mut bytes).expect("memory can be read");
    std::fs::write(&image, bytes).expect("room");
    call(program, ["-n".as_ref(), image.as_os_str()]).map(drop).map_err(|error| error.to_string())
}

/// Returns the subject for a driver whose volumes require a repair after a power failure.
pub fn repaired_subject<'a>(
    open: &'a Open<'a>,
    check: &'a CheckClosed<'a>,
    second: &'a Check<'a>,
) -> Subject<'a> {
    Subject { open, check, second, second_every: 100, recovery_every: 0, data: DataMode::Ordered }
}

/// Returns a small volume, and plans for a format without allocation ahead; `bounds` states the other missing features.
pub fn volume<'a>(name: &str, base: Arc<[u8]>, subject: Subject<'a>, bounds: Bounds) -> Volume<'a> {
    let limits = Limits { space: false, ..Limits::SMALL };
    let bare = Volume {
        name: name.into(),
        base,
        subject,
        whole: 0..0,
        named: Vec::new(),
        bounds,
        limits,
        left_out: &[],
    };
    let named = catalogue::every_operation(false).into_iter().map(|plan| bare.without_lacking(plan));
    Volume { named: named.collect(), ..bare }
}

/// Returns the same volume, opened in another way.
fn opened_by<'a>(volume: &'a Volume<'a>, open: &'a Open<'a>) -> Volume<'a> {
    let Subject { check, second, second_every, recovery_every, data, .. } = volume.subject;
    let subject = Subject { open, check, second, second_every, recovery_every, data };
    Volume {
        name: volume.name.clone(),
        base: volume.base.clone(),
        subject,
        whole: volume.whole.clone(),
        named: volume.named.clone(),
        bounds: volume.bounds,
        limits: volume.limits.clone(),
        left_out: volume.left_out,
    }
}

/// A volume that is closed and then checked on drop.
pub struct Judged {
    fs: Arc<dyn FileSystem>,
    judge: Option<Box<dyn FnOnce()>>,
}

impl Judged {
    /// Wraps `fs`, which is open for changes; `judge` contains the device.
    pub fn new(fs: Arc<dyn FileSystem>, judge: impl FnOnce() + 'static) -> Self {
        Self { fs, judge: Some(Box::new(judge)) }
    }
}

impl Deref for Judged {
    type Target = dyn FileSystem;
    fn deref(&self) -> &Self::Target {
        &*self.fs
    }
}

impl Drop for Judged {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        close(&*self.fs);
        if let Some(judge) = self.judge.take() {
            judge();
        }
    }
}

/// Ends the changes of a volume on a sound device, unless they have ended.
pub fn close(fs: &dyn FileSystem) {
    fs.writable().map_or(Ok(()), |changes| changes.close()).expect("a sound device");
}
