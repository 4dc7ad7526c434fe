//! Changing structures by their names, with their checksums.
//!
//! All changes are made to a copy of the volume in memory, which the next round checks; `commit.rs` writes it to the
//! device.
//! Invariant: the checksum of a changed structure is updated.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes, IntoBytes, to_u64, to_usize};
use obento_base::{Corrupt, Error, Result, Structure, Timestamp};
use obento_block::{BlockDevice, Overlay, check_range};
use obento_driver::CheckOptions;

use super::super::events::{Event, EventSink};
use super::super::state::CheckState;
use super::super::view::View;
use super::bitmaps::RepairedBitmap;
use crate::checksum::{Crc, inode_seed};
use crate::group::descriptor_checksum;
use crate::inode::seal_record;
use crate::raw::{RawGroup32, RawGroupHigh, RawInode, RawSuperBlock};
use crate::super_block::PRIMARY_OFFSET;
use crate::unit::VolBlock;

/// The copy of a volume that is repaired.
pub(super) type Copy = Overlay<Arc<dyn BlockDevice>>;

/// A volume that is being repaired.
pub(super) struct Edits {
    pub(super) view: View,
    pub(super) device: Arc<Copy>,
    /// Whether the view reads from the copy, and not from a journal in front of it.
    is_direct: bool,
    now: Timestamp,
    /// Bitmaps that were rewritten, with their groups.
    pub(super) rewritten: BTreeSet<(RepairedBitmap, u32)>,
    /// Directories and files that were rebuilt.
    pub(super) rebuilt: BTreeSet<u32>,
    /// Number of groups, from the first on, that have no free block.
    pub(super) full_groups: u32,
    /// The blocks and the inodes in use, which the check of this round has found.
    pub(super) used: Option<Arc<CheckState>>,
    /// Blocks of the volume that files claim too, as they were before any repair.
    pub(super) originals: Arc<BTreeMap<u64, Vec<u8>>>,
}

impl Edits {
    /// Opens the copy. Fails in the same cases as a check.
    pub(super) fn open(device: &Arc<Copy>, options: &CheckOptions) -> Result<Self> {
        let mut report = obento_driver::CheckReport::default();
        let emit: &mut dyn FnMut(Event) = &mut |_| {};
        let mut reported = EventSink { report: &mut report, emit };
        let copy: Arc<dyn BlockDevice> = Arc::<Copy>::clone(device);
        let view = View::open(Arc::clone(&copy), options, &mut reported)?;
        let is_direct = Arc::ptr_eq(&view.device, &copy);
        let (device, now) = (Arc::clone(device), options.clock.now());
        Ok(Self {
            view,
            device,
            is_direct,
            now,
            rewritten: BTreeSet::new(),
            rebuilt: BTreeSet::new(),
            full_groups: 0,
            used: None,
            originals: Arc::default(),
        })
    }

    /// Changes the bytes of a block.
    pub(super) fn block(&mut self, block: VolBlock, edit: impl FnOnce(&mut [u8])) -> Result<()> {
        let size = self.view.sb.block_size;
        self.bytes(block.0.saturating_mul(size.into()), to_usize(size.into()), edit)
    }

    /// Changes `len` bytes at byte `at` of the volume.
    fn bytes(&mut self, at: u64, len: usize, edit: impl FnOnce(&mut [u8])) -> Result<()> {
        if self.is_direct {
            return self.device.edit(at, len, edit);
        }
        check_range(self.view.device.len(), at, to_u64(len))?;
        let mut bytes = alloc::vec![0; len];
        self.view.device.read_at(at, &mut bytes)?;
        edit(&mut bytes);
        self.device.write_at(at, &bytes)
    }

    /// Writes a whole block.
    pub(super) fn put(&mut self, block: VolBlock, bytes: &[u8]) -> Result<()> {
        self.device.write_at(block.0.saturating_mul(self.view.sb.block_size.into()), bytes)
    }

    /// Returns the place of an inode's record in bytes.
    fn inode_place(&self, ino: u32) -> Result<u64> {
        let structure = Structure::SuperBlock;
        let wrong = Error::from(Corrupt::InodeNumber { structure, block: 0, offset: 0, found: ino.into() });
        let sb = &self.view.sb;
        let place = || {
            let (group, inside) = sb.inode_index(ino.into()).filter(|&(group, _)| group < sb.groups)?;
            let table = self.view.group(group).inode_table;
            let at = u64::from(inside).checked_mul(sb.inode_size.into())?;
            table.0.checked_mul(sb.block_size.into())?.checked_add(at).filter(|_| table.0 != 0)
        };
        place().ok_or(wrong)
    }

    /// Returns the record of an inode.
    pub(super) fn record(&self, ino: u32) -> Result<Vec<u8>> {
        let at = self.inode_place(ino)?;
        let mut record = alloc::vec![0; self.view.sb.inode_size.into()];
        self.view.device.read_at(at, &mut record)?;
        Ok(record)
    }

    /// Changes the record of an inode and updates its checksum.
    pub(super) fn edit_record(&mut self, ino: u32, edit: impl FnOnce(&mut [u8])) -> Result<()> {
        let at = self.inode_place(ino)?;
        let (size, volume_seed) = (usize::from(self.view.sb.inode_size), self.view.sb.checksum_seed);
        let sealed = self.view.sb.has_metadata_csum();
        self.bytes(at, size, |record| {
            edit(record);
            let generation = RawInode::ref_from_prefix(record).map_or(0, |(raw, _)| raw.i_generation.get());
            if sealed {
                seal_record(record, inode_seed(volume_seed, ino, generation));
            }
        })
    }

    /// Changes the first 128 bytes of an inode.
    pub(super) fn inode(&mut self, ino: u32, edit: impl FnOnce(&mut RawInode)) -> Result<()> {
        self.edit_record(ino, |record| {
            if let Ok((raw, _)) = RawInode::mut_from_prefix(record) {
                edit(raw);
            }
        })
    }

    /// Returns the seed for the structures of an inode.
    pub(super) fn seed_of(&self, ino: u32) -> Result<u32> {
        let record = self.record(ino)?;
        let generation = RawInode::ref_from_prefix(&record).map_or(0, |(raw, _)| raw.i_generation.get());
        Ok(inode_seed(self.view.sb.checksum_seed, ino, generation))
    }

    /// Changes the primary super block.
    pub(super) fn super_block(&mut self, edit: impl FnOnce(&mut RawSuperBlock)) -> Result<()> {
        let mut bytes = [0; size_of::<RawSuperBlock>()];
        self.device.read_at(PRIMARY_OFFSET, &mut bytes)?;
        let Ok(raw) = RawSuperBlock::mut_from_bytes(&mut bytes) else { return Ok(()) };
        edit(raw);
        if self.view.sb.has_metadata_csum() {
            let sum = Crc::new(!0).add(raw.as_bytes().get(..0x3fc).unwrap_or_default()).get();
            raw.s_checksum.set(sum);
        }
        *self.view.sb.raw = *raw;
        self.device.write_at(PRIMARY_OFFSET, &bytes)
    }

    /// Changes the descriptor of a group.
    pub(super) fn descriptor(
        &mut self,
        group: u32,
        edit: impl FnOnce(&mut RawGroup32, Option<&mut RawGroupHigh>),
    ) -> Result<()> {
        let sb = self.view.sb.clone();
        let (index, at) = sb.desc_place(group);
        self.block(sb.desc_block(index, 0), |bytes| {
            let Some(bytes) = bytes.get_mut(at..at.saturating_add(sb.desc_size.into())) else { return };
            let Ok((low, rest)) = RawGroup32::mut_from_prefix(bytes) else { return };
            edit(low, RawGroupHigh::mut_from_prefix(rest).ok().map(|(high, _)| high));
            if let Some(sum) = descriptor_checksum(&sb, group, bytes)
                && let Ok((low, _)) = RawGroup32::mut_from_prefix(bytes)
            {
                low.bg_checksum.set(sum);
            }
        })
    }

    /// Returns the time of the repair, in the form of inodes, but never one that could be an entry of an orphan list.
    pub(super) fn now(&self) -> u32 {
        u32::try_from(self.now.secs()).unwrap_or(u32::MAX).max(self.view.sb.inodes_count)
    }
}
