//! The descriptors of all groups while a volume grows.
#![allow(clippy::arithmetic_side_effects, reason = "`limited` bounds the number of groups")]

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::to_usize;
use obento_base::{Error, Result};
use obento_block::BlockDevice;

use crate::allocator::encode_descriptor;
use crate::group::{GroupDescriptor, verify_descriptor};
use crate::super_block::SuperBlock;

/// The descriptor blocks of the grown volume, and those of the old volume for comparison.
pub(super) struct DescriptorTable {
    bytes: Vec<u8>,
    old: Vec<u8>,
    block_size: usize,
    desc_size: usize,
}

impl DescriptorTable {
    /// Reads the descriptors of the old volume.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: a descriptor is damaged.
    /// - `NoMemory`.
    /// - The device failed.
    pub(super) fn read(device: &dyn BlockDevice, old: &SuperBlock, new: &SuperBlock) -> Result<Self> {
        let block_size = to_usize(old.block_size.into());
        let len = |sb: &SuperBlock| to_usize(sb.desc_blocks().into()).saturating_mul(block_size);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len(new))?;
        bytes.resize(len(old), 0);
        for (index, block) in (0..).zip(bytes.chunks_mut(block_size.max(1))) {
            device.read_at(old.block_size.len(old.desc_block(index, 0).0), block)?;
        }
        let mut before = Vec::new();
        before.try_reserve_exact(bytes.len())?;
        before.extend_from_slice(&bytes);
        let mut this = Self { bytes, old: before, block_size, desc_size: old.desc_size.into() };
        for group in 0..old.groups {
            let block = old.desc_block(old.desc_place(group).0, 0);
            let slot = this.bytes.get(this.slot(old, group)).ok_or(Error::Invalid)?;
            verify_descriptor(old, group, slot, block)?;
            GroupDescriptor::decode(slot, group, block)?.check_group(old, group)?;
        }
        // Bytes after the last descriptor are not used.
        let end = this.slot(old, old.groups - 1).end;
        this.bytes.truncate(end);
        this.bytes.resize(len(new), 0);
        Ok(this)
    }

    /// Returns the descriptor of `group`.
    ///
    /// # Errors
    ///
    /// `Invalid`: the group does not exist.
    pub(super) fn get(&self, sb: &SuperBlock, group: u32) -> Result<GroupDescriptor> {
        let slot = self.bytes.get(self.slot(sb, group)).ok_or(Error::Invalid)?;
        GroupDescriptor::decode(slot, group, sb.desc_block(sb.desc_place(group).0, 0))
    }

    /// Sets the descriptor of `group`, and those checksums of its bitmaps that are given.
    pub(super) fn set(
        &mut self,
        sb: &SuperBlock,
        group: u32,
        descriptor: &GroupDescriptor,
        sums: [Option<u32>; 2],
    ) {
        let slot = self.slot(sb, group);
        if let Some(bytes) = self.bytes.get_mut(slot) {
            descriptor.encode_places(bytes);
            encode_descriptor(sb, group, descriptor, sums, bytes);
        }
    }

    /// Returns the bytes of the descriptor of `group`.
    pub(super) fn bytes_of(&self, sb: &SuperBlock, group: u32) -> &[u8] {
        self.bytes.get(self.slot(sb, group)).unwrap_or_default()
    }

    /// Returns all descriptor blocks with their numbers.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (u32, &[u8])> {
        (0..).zip(self.bytes.chunks(self.block_size.max(1)))
    }

    /// Returns the descriptor blocks that the old volume does not have or that differ there.
    pub(super) fn changed(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.blocks().filter(|(index, block)| {
            let start = to_usize(u64::from(*index)) * self.block_size;
            self.old.get(start..start + block.len()) != Some(*block)
        })
    }

    fn slot(&self, sb: &SuperBlock, group: u32) -> Range<usize> {
        let (block, inside) = sb.desc_place(group);
        let start = to_usize(sb.block_size.len(block.into())) + inside;
        start..start + self.desc_size
    }
}
