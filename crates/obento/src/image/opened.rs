//! The open volumes of an image.
//!
//! Invariant: a volume that is open for change is open once. Two writers of the same bytes would overwrite
//! each other's changes, and a reader beside a writer would see a mixture. A caller that opens a volume that
//! is open for change gets that volume. Opening other volumes that share bytes with it fails.
//! Locking: the list is locked while a volume is opened, so that two threads do not open it at the same time.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use obento_base::Error;
use obento_driver::{Access, Driver, OpenOptions};
use obento_vfs::{Vfs, WeakVfs};

use super::Image;
use crate::Volume;

/// The volumes that are in use.
#[derive(Default)]
pub(super) struct OpenVolumes(Mutex<Vec<Open>>);

struct Open {
    range: Range<u64>,
    access: Access,
    vfs: WeakVfs,
}

impl Open {
    /// Returns the volume, if it is in use. A closed volume stays readable for its users and excludes no
    /// other volume.
    fn volume(&self) -> Option<Vfs> {
        let vfs = self.vfs.upgrade()?;
        (self.access == Access::ReadOnly || vfs.file_system().writable().is_some()).then_some(vfs)
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
}

impl From<Error> for NotOpened {
    fn from(error: Error) -> Self {
        Self::Driver(error)
    }
}

impl Image {
    /// Opens the volume in `range` with `driver`.
    pub(super) fn open_volume(
        &self,
        range: &Range<u64>,
        driver: &Arc<dyn Driver>,
        access: Access,
    ) -> Result<Volume, NotOpened> {
        let mut opened = self.opened.0.lock().unwrap_or_else(PoisonError::into_inner);
        opened.retain(|open| open.volume().is_some());
        for open in opened.iter().filter(|open| open.overlaps(range)) {
            match (open.access, access) {
                (Access::ReadOnly, Access::ReadOnly) => {}
                (Access::ReadWrite, _) if open.range.start == range.start => {
                    return open.volume().map(Volume::of).ok_or(NotOpened::InUse);
                }
                _ => return Err(NotOpened::InUse),
            }
        }
        let options = OpenOptions { access, journal: self.journal.clone(), ..self.options.for_driver() };
        let file_system = driver.open(self.bytes(range)?, &options)?;
        let volume = Volume::of(Vfs::with(file_system, self.options.for_vfs()));
        opened.push(Open { range: range.clone(), access, vfs: volume.vfs().downgrade() });
        Ok(volume)
    }
}
