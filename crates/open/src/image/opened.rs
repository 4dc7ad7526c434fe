//! The open volumes of an image.
//!
//! Invariant: a volume that is open for change is open only once. Two writers of the same bytes would overwrite each
//! other's changes. A reader beside a writer would read a mixture of old and new bytes. Therefore, a caller that
//! opens a volume that is open for change gets the open volume. Opening another volume that contains some of the same
//! bytes fails.
//! Locking: the list is locked while a volume is selected and opened, so two threads do not open a volume at the same
//! time. The first selection may use probes from the time when the image was opened, before the lock. A probe of bytes
//! that a volume was open for change on is not used.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use obento_base::Error;
use obento_driver::{Access, Driver, FileSystem, OpenOptions, Probe};
use obento_prov::{LogOptions, Recorded};
use obento_vfs::{Vfs, WeakVfs};

use super::{Image, Recording};
use crate::Volume;

/// The volumes that are in use.
#[derive(Default)]
pub(super) struct OpenVolumes(Mutex<Vec<Open>>);

/// A volume that is in use.
pub(super) struct Open {
    range: Range<u64>,
    access: Access,
    vfs: WeakVfs,
    recorded: Option<Weak<Recorded>>,
}

impl Open {
    /// Returns the volume, if it is in use. A closed volume stays readable for its users and excludes no
    /// other volume.
    fn volume(&self) -> Option<Volume> {
        let vfs = self.vfs.upgrade()?;
        let is_in_use = self.access == Access::ReadOnly || vfs.flushed_file_system().writable().is_some();
        let recorded = self.recorded.as_ref().and_then(Weak::upgrade);
        is_in_use.then(|| Volume::of(vfs).with_recorded(recorded))
    }

    fn overlaps(&self, range: &Range<u64>) -> bool {
        self.range.start < range.end && range.start < self.range.end
    }
}

/// The reason why a volume was not opened.
pub(super) enum NotOpened {
    /// Another open volume excludes it.
    InUse,
    /// The driver failed.
    Driver(Error),
    /// The volume has no space for the log of its provenance.
    Unrecorded(Error),
}

impl From<Error> for NotOpened {
    fn from(error: Error) -> Self {
        Self::Driver(error)
    }
}

/// Checks that a volume that was opened for change has a root. A volume without a root is closed, so that it is marked
/// as it was before.
fn expect_root(volume: &Volume) -> Result<(), Error> {
    volume.vfs().expect_root().inspect_err(|_| {
        // The root is the error to report.
        let _ = volume.close();
    })
}

/// A lock on an image. While this lock exists, no other thread opens a volume of the image.
pub(super) struct LockedImage<'i> {
    pub image: &'i Image,
    pub opened: MutexGuard<'i, Vec<Open>>,
}

impl OpenVolumes {
    /// Locks the list.
    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LockedImage<'_> {
    /// Opens the volume in `range` with `driver`. `probe` is the result of a probe since the image was
    /// opened.
    pub(super) fn open_volume(
        &mut self,
        range: &Range<u64>,
        driver: &Arc<dyn Driver>,
        probe: Option<Probe>,
        access: Access,
    ) -> Result<Volume, NotOpened> {
        let Self { image, opened } = self;
        // A volume that was closed after the probe has changed the bytes.
        let was_writable = |open: &Open| open.access == Access::ReadWrite && open.overlaps(range);
        let probe = probe.filter(|_| !opened.iter().any(was_writable));
        opened.retain(|open| open.volume().is_some());
        for open in opened.iter().filter(|open| open.overlaps(range)) {
            match (open.access, access) {
                (Access::ReadOnly, Access::ReadOnly) => {}
                (Access::ReadWrite, _) if open.range.start == range.start => {
                    return open.volume().ok_or(NotOpened::InUse);
                }
                _ => return Err(NotOpened::InUse),
            }
        }
        let journal = image.journal.clone();
        let options = OpenOptions { access, journal, probe, ..image.options.for_driver() };
        let file_system = driver.open(image.bytes(range)?, &options)?;
        let recorded = image.options.recording.as_ref().map(|recording| {
            let Recording { who, log } = recording.clone();
            let log = LogOptions { adopts: image.options.adopt.is_some(), ..log };
            Recorded::open(file_system.clone(), who, image.options.clock.clone(), log)
        });
        let recorded = recorded.transpose().map_err(|error| match error {
            Error::NoSpace | Error::QuotaExceeded => NotOpened::Unrecorded(error),
            error => error.into(),
        })?;
        let file_system = recorded.clone().map_or(file_system, |recorded| recorded as Arc<dyn FileSystem>);
        let weak = recorded.as_ref().map(Arc::downgrade);
        let volume = Volume::of(Vfs::with(file_system, image.options.for_vfs())).with_recorded(recorded);
        if access == Access::ReadWrite {
            expect_root(&volume)?;
        }
        opened.push(Open { range: range.clone(), access, vfs: volume.vfs().downgrade(), recorded: weak });
        Ok(volume)
    }
}
