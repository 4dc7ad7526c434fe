//! All descriptors of a volume.
//!
//! Invariant: memory is bounded for every geometry. Descriptors stay in the block cache. Only replacements of damaged
//! descriptors are stored, for volumes of at most [`MAX_LISTED_GROUPS`] groups, whose descriptors are all read when the
//! volume is opened. The descriptors of larger volumes are read when they are needed.
#![allow(clippy::arithmetic_side_effects, reason = "`SuperBlock::decode` limits groups and descriptors")]

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{Corrupt, Error, Result, Structure};
use obento_block::{Block, Cache};
use obento_driver::Notice;

use super::{GroupDescriptor, verify_descriptor};
use crate::super_block::SuperBlock;
use crate::unit::VolBlock;
use crate::zones::{MAX_LISTED_GROUPS, Zones};

/// Maximum number of damaged descriptors that are reported.
const MAX_TOLD: u32 = 16;
/// Maximum number of backups of a descriptor block that are tried.
const MAX_COPIES: usize = 4;

/// Data about the descriptors beyond their bytes.
#[derive(Debug, Default)]
pub struct Groups {
    /// Replacements of damaged descriptors: the backup that is used, or the error if no backup is intact.
    replaced: BTreeMap<u32, Result<GroupDescriptor>>,
    /// The start of the inode table of each group, which every read of an inode needs; 0 if it is damaged.
    tables: Vec<u64>,
    /// Sums over all groups; `None` for a volume with too many groups.
    totals: Option<Totals>,
}

/// Sums over all groups, as Linux uses them for `statfs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Number of free blocks (clusters with bigalloc).
    pub free_blocks: u64,
    /// Number of free inodes.
    pub free_inodes: u64,
}

impl Groups {
    /// Reads every descriptor of a volume of bounded size. Checks it, searches a backup if it is damaged (and adds a
    /// notice), and adds its metadata to `zones`.
    pub fn scan(
        sb: &SuperBlock,
        cache: &Cache,
        zones: &mut Zones,
        notice: &mut dyn FnMut(Notice),
    ) -> Result<Self> {
        let mut this = Self::default();
        if sb.groups > MAX_LISTED_GROUPS {
            return Ok(this);
        }
        let mut totals = Totals::default();
        let mut missing = None;
        let mut reported = 0..MAX_TOLD;
        this.tables.try_reserve_exact(to_usize(sb.groups.into()))?;
        for group in 0..sb.groups {
            zones.add_copies(sb, group)?;
            let descriptor = match missing {
                // The whole block is past the end of a truncated image: all of its groups have the same error.
                Some((index, error)) if index == sb.desc_place(group).0 => Err(error),
                _ => read(sb, cache, group, 0),
            };
            let descriptor = descriptor.or_else(|error| {
                reported.next().into_iter().for_each(|_| notice(Notice::Damaged(error)));
                let replacement = match missing {
                    Some((index, _)) if index == sb.desc_place(group).0 => Err(error),
                    _ => find_copy(sb, cache, group, error),
                };
                if matches!(replacement, Err(Error::Device(_))) {
                    missing = Some((sb.desc_place(group).0, error));
                }
                this.replaced.insert(group, replacement);
                replacement
            });
            this.tables.push(descriptor.map_or(0, |descriptor| descriptor.inode_table.0));
            let Ok(descriptor) = descriptor else { continue };
            zones.add_descriptor(sb, &descriptor)?;
            totals.free_blocks += u64::from(descriptor.free_blocks);
            totals.free_inodes += u64::from(descriptor.free_inodes);
        }
        zones.finish();
        this.totals = Some(totals);
        Ok(this)
    }

    /// Returns whether all descriptors are intact.
    pub fn is_sound(&self) -> bool {
        self.replaced.is_empty()
    }

    /// Returns the sums over all groups, if all descriptors were read.
    pub fn totals(&self) -> Option<Totals> {
        self.totals
    }

    /// Returns the first block of `group`'s inode table. Fails with `Corrupt` if the table is not completely on the
    /// volume.
    pub fn inode_table(&self, sb: &SuperBlock, cache: &Cache, group: u32) -> Result<VolBlock> {
        if let Some(&start) = self.tables.get(to_usize(group.into()))
            && start != 0
        {
            return Ok(VolBlock(start));
        }
        let (table, len) = (self.get(sb, cache, group)?.inode_table, u64::from(sb.inode_table_blocks()));
        if sb.holds_blocks(table, len) {
            return Ok(table);
        }
        let structure = Structure::GroupDescriptor(group.into());
        Err(Corrupt::BlockRange { structure, at: 0, start: table.0, len }.into())
    }

    /// Returns the descriptor of `group`, or its replacement.
    pub fn get(&self, sb: &SuperBlock, cache: &Cache, group: u32) -> Result<GroupDescriptor> {
        if self.totals.is_none() {
            return read(sb, cache, group, 0).or_else(|error| find_copy(sb, cache, group, error));
        }
        match self.replaced.get(&group) {
            Some(replacement) => *replacement,
            None => decode(sb, cache, group, 0).map(|(descriptor, ..)| descriptor),
        }
    }
}

/// Returns the descriptor of `group` from backup `copy`, checked.
fn read(sb: &SuperBlock, cache: &Cache, group: u32, copy: u32) -> Result<GroupDescriptor> {
    let (descriptor, block, start) = decode(sb, cache, group, copy)?;
    let bytes = block.get(start..start + usize::from(sb.desc_size)).unwrap_or_default();
    verify_descriptor(sb, group, bytes, VolBlock(block.number()))?;
    descriptor.check_places(sb, group)?;
    Ok(descriptor)
}

/// Returns the descriptor of `group` from backup `copy`, its block, and its offset in the block.
fn decode(sb: &SuperBlock, cache: &Cache, group: u32, copy: u32) -> Result<(GroupDescriptor, Block, usize)> {
    let (index, start) = sb.desc_place(group);
    let at = sb.desc_block(index, copy);
    let ahead = if sb.is_meta(index) { 1 } else { u64::from(sb.desc_blocks()).saturating_sub(index.into()) };
    let block = cache.get_ahead(at.0, at.0..at.0 + ahead)?;
    let bytes = block.get(start..start + usize::from(sb.desc_size)).unwrap_or_default();
    let descriptor = GroupDescriptor::decode(bytes, group, at)?;
    Ok((descriptor, block, start))
}

/// Returns the replacement of a damaged descriptor of `group`: the first intact backup, or else the descriptor itself
/// if its inode table is on the volume. Reading needs only the inode table. Otherwise fails with `error`.
fn find_copy(sb: &SuperBlock, cache: &Cache, group: u32, error: Error) -> Result<GroupDescriptor> {
    let copies = sb.copies().skip(1).take(MAX_COPIES);
    let sound = copies.map(|copy| read(sb, cache, group, copy)).find_map(Result::ok);
    if let Some(descriptor) = sound {
        return Ok(descriptor);
    }
    let (descriptor, ..) = decode(sb, cache, group, 0).map_err(|_| error)?;
    let usable = sb.holds_blocks(descriptor.inode_table, sb.inode_table_blocks().into());
    if usable { Ok(descriptor) } else { Err(error) }
}

impl SuperBlock {
    /// Returns the groups that contain a copy of the super block, group 0 first.
    pub fn copies(&self) -> impl Iterator<Item = u32> {
        /// All 32-bit powers of 3, 5 and 7 are among this many candidates.
        const SPARSE: usize = 64;
        let dense = (1..self.groups).take(SPARSE).filter(|&group| self.has_copy(group));
        let backups = self.raw.s_backup_bgs.map(|group| group.get());
        let far = backups.into_iter().filter(move |&group| {
            to_usize(group.into()) > SPARSE && group < self.groups && self.has_copy(group)
        });
        core::iter::once(0).chain(dense).chain(far)
    }
}
