//! Recognising and opening a volume.
//!
//! The steps of opening, each of which needs the previous step. They are super block (primary or backup), journal in
//! memory, super block again if the journal was applied, group descriptors, fast commits.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::Result;
use obento_block::BlockDevice;
use obento_driver::{Access, Checksums, Decoded, Driver, Evidence, FileSystem, Notice, OpenOptions, Probe};

use crate::contract::Ext4;
use crate::feature::{Compat, Incompat};
use crate::locate::{self, FoundSuperBlock};
use crate::raw::RawSuperBlock;
use crate::replay::look_behind;
use crate::super_block::{PRIMARY_OFFSET, SuperBlock};
use crate::volume::Volume;
use crate::writer::open_writer;

/// The driver of ext2, ext3 and ext4.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ext4Driver;

impl Driver for Ext4Driver {
    fn names(&self) -> &'static [&'static str] {
        &["ext4", "ext3", "ext2"]
    }

    fn access(&self) -> Access {
        Access::ReadWrite
    }

    fn probe(&self, device: &dyn BlockDevice) -> Result<Option<Probe>> {
        let Some(raw) = locate::read_raw(device, PRIMARY_OFFSET)? else { return Ok(None) };
        let has_magic = locate::has_magic(&raw);
        if !has_magic && locate::is_something_else(device)? {
            return Ok(None);
        }
        let found = locate::find_from(device, Some(&raw)).ok();
        // Without a magic number, a backup of a volume that is larger than the device is a remnant of an earlier volume.
        let found = found.filter(|found| has_magic || found.super_block.volume_len() <= device.len());
        let probe = match found {
            Some(found) => found.into_probe(),
            None if has_magic => believe(&raw),
            None => return Ok(None),
        };
        // A backup has the number of its group. A partition over an old volume may begin before a group of it.
        let is_primary = has_magic && raw.s_block_group_nr.get() == 0;
        let evidence = if is_primary { Evidence::Signature } else { Evidence::Traces };
        Ok(Some(Probe { evidence, ..probe }))
    }

    fn may_use_external_journal(&self, device: &dyn BlockDevice) -> Result<bool> {
        let Some(raw) = locate::read_raw(device, PRIMARY_OFFSET)? else { return Ok(true) };
        let has_journal = raw.s_feature_compat.get() & Compat::HAS_JOURNAL.bits() != 0;
        Ok(!locate::has_magic(&raw) || has_journal && raw.s_journal_inum.get() == 0)
    }

    fn open(&self, device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Arc<dyn FileSystem>> {
        match options.access {
            Access::ReadOnly => Ok(Arc::new(Ext4::new(open_volume(device, options)?))),
            Access::ReadWrite => Ok(Arc::new(Ext4::writing(open_writer(device, options)?))),
        }
    }

    obento_driver::capabilities!(build: Build, format: Format, check: Check);
    obento_driver::capabilities!(tune: Tune, resize: Resize, undelete: Undelete);
}

/// Opens the volume on `device` for reading.
#[inline(never)]
pub fn open_volume(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Volume> {
    let found = match (options.super_block, options.checksums) {
        (Some(number), _) => locate::find_at(&*device, number)?,
        (None, Checksums::Verify) => Decoded::of(options.probe.as_ref(), || locate::find(&*device))?,
        (None, Checksums::Ignore | Checksums::IgnoreIfSupported) => locate::find_unverified(&*device)?,
    };
    let found = FoundSuperBlock { super_block: found.super_block.verified_as(options.checksums), ..found };
    let mut notices = Vec::new();
    if let Some(error) = found.instead_of {
        notices.push(Notice::Damaged(error));
    }
    if found.is_copy() {
        notices.push(Notice::BackupSuperBlock { block: found.block().0 });
    }
    let (expected, present) = (found.super_block.volume_len(), device.len());
    if expected > present {
        notices.push(Notice::Truncated { expected, found: present });
    }
    let behind = look_behind(device, &found.super_block, found.is_copy(), options, &mut notices);
    let super_block = match behind.replayed {
        Some(_) => reread(&*behind.device, found, &mut notices).verified_as(options.checksums),
        // The device is unchanged.
        None => found.super_block,
    };
    if super_block.is_marked_with_errors() {
        notices.push(Notice::MarkedWithErrors);
    }
    let mut volume = Volume::new(behind.device, super_block, options.cache)?;
    volume.set_external_journal(options.journal.clone());
    if let Some((journal, summary)) = &behind.replayed {
        let fast = volume.load_fast_commits(journal, summary.next);
        let transactions = u64::from(summary.transactions).saturating_add(fast.into());
        if transactions > 0 {
            notices.push(Notice::Replayed { transactions });
        }
    }
    notices.into_iter().for_each(|notice| volume.notice(notice));
    Ok(volume)
}

/// Returns the super block with the journal applied, or the previous one if that is unusable.
#[inline(never)]
fn reread(device: &dyn BlockDevice, found: FoundSuperBlock, notices: &mut Vec<Notice>) -> SuperBlock {
    match locate::decode_at(device, found.offset) {
        // Fields that define the layout do not change while a volume is mounted, except when it grows.
        Ok(again) if again.block_size == found.super_block.block_size => again,
        Ok(_) => found.super_block,
        Err(error) => {
            notices.push(Notice::Damaged(error));
            found.super_block
        }
    }
}

/// Returns the result of a probe for a super block that is unusable.
fn believe(raw: &RawSuperBlock) -> Probe {
    let incompat = Incompat::from_bits_retain(raw.s_feature_incompat.get());
    Probe {
        fs_type: if incompat.contains(Incompat::JOURNAL_DEV) { "jbd" } else { "ext4" },
        label: crate::super_block::until_nul(&raw.s_volume_name).to_vec(),
        uuid: Some(raw.s_uuid),
        ..Probe::default()
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU32, Ordering};
    use std::vec;

    use obento_block::MemDevice;
    use obento_driver::{Format, FormatOptions};
    use obento_env::{FixedRandom, NO_CLOCK};

    use super::*;

    /// Counts the reads of the primary super block.
    struct CountingDevice(MemDevice, AtomicU32);

    impl BlockDevice for CountingDevice {
        fn len(&self) -> u64 {
            self.0.len()
        }
        fn is_read_only(&self) -> bool {
            true
        }
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
            self.1.fetch_add((offset == PRIMARY_OFFSET).into(), Ordering::Relaxed);
            self.0.read_at(offset, buf)
        }
        fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
            self.0.write_at(offset, buf)
        }
        fn flush(&self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_clean_volume_is_opened_with_one_read_of_its_super_block() {
        let memory = MemDevice::new(vec![0; 8 << 20]);
        let options = FormatOptions::new("ext4", Arc::new(NO_CLOCK), Arc::new(FixedRandom(1)));
        Format::format(&Ext4Driver, &memory, &options).unwrap();
        let device = Arc::new(CountingDevice(memory, AtomicU32::new(0)));
        open_volume(device.clone(), &OpenOptions::new(Arc::new(NO_CLOCK))).unwrap();
        assert_eq!(device.1.load(Ordering::Relaxed), 1);
    }
}
