//! Changes of the usage in quota files that a repair does not compute as a whole.

use obento_base::wire::FromBytes;
use obento_base::{Ino, Result};

use super::edits::Edits;
use crate::quota::{Charge, QuotaKind, RawEntry};
use crate::writer::entry_place;

impl Edits {
    /// Adds `bytes` to the usage of the owners of inode `ino`.
    ///
    /// # Errors
    ///
    /// `Corrupt`: a quota file is damaged. An owner without an entry is no error.
    pub(super) fn add_usage(&mut self, ino: u32, bytes: i64) -> Result<()> {
        let files = self.view.quota_inodes();
        if bytes == 0 || files == [0; 3] || self.view.is_own(ino) {
            return Ok(());
        }
        let record = self.record(ino)?;
        let Some(charge) = Charge::new((&self.view.sb).into(), &record, 0) else { return Ok(()) };
        for ((kind, file), id) in QuotaKind::ALL.into_iter().zip(files).zip(charge.ids) {
            if file == 0 {
                continue;
            }
            let place = entry_place(&self.bare_volume(), kind, (Ino(file.into()), id))?;
            let Some((block, start)) = place else { continue };
            self.block(block, |block| {
                let entry = block.get_mut(start..start.saturating_add(size_of::<RawEntry>()));
                if let Some((raw, _)) = entry.and_then(|entry| RawEntry::mut_from_prefix(entry).ok()) {
                    raw.change(0, bytes);
                }
            })?;
        }
        Ok(())
    }
}
