//! The use of a block, and the structure that contains a byte.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;

use obento_base::{Bitmap, Error, Ino, Result};
use obento_driver::{ByteUse, Target};

use crate::feature::Compat;
use crate::group::{GroupDescriptor, GroupFlags};
use crate::super_block::{PRIMARY_OFFSET, SuperBlock};
use crate::unit::VolBlock;
use crate::volume::Volume;

/// Size of a super block.
const SUPER_BLOCK_LEN: u64 = 1024;

/// The use of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BlockUse {
    Boot,
    /// A copy of the super block in this group. In the first block of a volume, boot code precedes it.
    SuperBlock {
        group: u32,
    },
    /// Group descriptors, in this group.
    Descriptors {
        group: u32,
    },
    /// Reserved for descriptors of later groups.
    Reserved {
        group: u32,
    },
    BlockBitmap {
        group: u32,
    },
    InodeBitmap {
        group: u32,
    },
    /// A block of an inode table, by its index in the table.
    InodeTable {
        group: u32,
        at: u64,
    },
    /// A block of the journal, by its number in the journal.
    Journal {
        at: u32,
    },
    Files,
    Free,
}

impl BlockUse {
    /// Returns the use of `block`, which is on the volume. Fails with the error of a damaged descriptor or bitmap, or
    /// if the device fails.
    pub(super) fn of(volume: &Volume, block: VolBlock) -> Result<Self> {
        let sb = volume.super_block();
        let Some(group) = sb.group_of(block) else { return Ok(Self::Boot) };
        let (copies, len) = sb.copy_blocks(group);
        if (copies.0..copies.0.saturating_add(len)).contains(&block.0) {
            let is_first = block == sb.group_start(group) && sb.has_copy(group);
            return Ok(if is_first { Self::SuperBlock { group } } else { Self::Descriptors { group } });
        }
        let kept = copies.0.saturating_add(len).saturating_add(sb.raw.s_reserved_gdt_blocks.get().into());
        let is_kept = sb.compat.contains(Compat::RESIZE_INODE) && sb.has_copy(group) && block.0 < kept;
        if is_kept && sb.has_plain_copies(group) {
            return Ok(Self::Reserved { group });
        }
        for owner in sb.flex_groups(group) {
            // The blocks of a group without a readable descriptor are unknown.
            let Ok(descriptor) = volume.group(owner) else { continue };
            if let Some(used) = Self::in_group(sb, owner, &descriptor, block) {
                return Ok(used);
            }
        }
        if let Some(at) = volume.place_in_journal(block)? {
            return Ok(Self::Journal { at });
        }
        Ok(if is_allocated(volume, group, block)? { Self::Files } else { Self::Free })
    }

    fn in_group(sb: &SuperBlock, group: u32, descriptor: &GroupDescriptor, block: VolBlock) -> Option<Self> {
        let at = block.0.checked_sub(descriptor.inode_table.0);
        match at.filter(|&at| at < sb.inode_table_blocks().into()) {
            _ if block == descriptor.block_bitmap => Some(Self::BlockBitmap { group }),
            _ if block == descriptor.inode_bitmap => Some(Self::InodeBitmap { group }),
            Some(at) => Some(Self::InodeTable { group, at }),
            None => None,
        }
    }
}

impl fmt::Display for BlockUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boot => f.write_str("boot block"),
            Self::SuperBlock { group } => write!(f, "super block, copy in group {group}"),
            Self::Descriptors { group } => write!(f, "group descriptors, copy in group {group}"),
            Self::Reserved { group } => write!(f, "room for group descriptors in group {group}"),
            Self::BlockBitmap { group } => write!(f, "block bitmap of group {group}"),
            Self::InodeBitmap { group } => write!(f, "inode bitmap of group {group}"),
            Self::InodeTable { group, .. } => write!(f, "inode table of group {group}"),
            Self::Journal { at } => write!(f, "block {at} of the journal"),
            Self::Files => f.write_str("file data or metadata of files"),
            Self::Free => f.write_str("free"),
        }
    }
}

fn is_allocated(volume: &Volume, group: u32, block: VolBlock) -> Result<bool> {
    let sb = volume.super_block();
    let descriptor = volume.group(group)?;
    if descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) {
        return Ok(false);
    }
    let inside = block.0.saturating_sub(sb.group_start(group).0);
    let cluster = inside.checked_div(sb.cluster_blocks().into()).unwrap_or(0);
    let bitmap = volume.cache().get(descriptor.block_bitmap.0)?;
    let bit = u32::try_from(cluster).ok().and_then(|bit| Bitmap::new(&bitmap).get(bit));
    Ok(bit.unwrap_or(false))
}

/// Returns the structure at byte `offset`. Fails with `NotFound` past the end of the volume, or with the errors of
/// [`BlockUse::of`].
pub(super) fn locate(volume: &Volume, offset: u64) -> Result<ByteUse> {
    let sb = volume.super_block();
    let block_size = u64::from(sb.block_size);
    let block = offset.checked_div(block_size).filter(|&block| block < sb.blocks_count);
    let block = VolBlock(block.ok_or(Error::NotFound)?);
    let inside = offset.checked_rem(block_size).unwrap_or(0);
    let used = BlockUse::of(volume, block)?;
    let (name, target) = match used {
        BlockUse::Free => return Ok(ByteUse::Unused),
        BlockUse::Files => return Ok(ByteUse::OfFiles),
        _ if offset < PRIMARY_OFFSET => (BlockUse::Boot.to_string(), None),
        // With blocks of 1 KiB and clusters it is in block 1, and block 0 belongs to group 0, too.
        _ if offset < PRIMARY_OFFSET.saturating_add(SUPER_BLOCK_LEN) => {
            in_super_block(sb, 0, offset, PRIMARY_OFFSET)
        }
        BlockUse::Boot | BlockUse::SuperBlock { group: 0 } => in_super_block(sb, 0, offset, PRIMARY_OFFSET),
        BlockUse::SuperBlock { group } => {
            in_super_block(sb, group, offset, block.0.saturating_mul(block_size))
        }
        BlockUse::Descriptors { group } => in_descriptors(sb, group, block, inside),
        BlockUse::InodeTable { group, at } => in_inode_table(sb, group, at, inside),
        BlockUse::Journal { .. } => (used.to_string(), Some(Target::Journal)),
        BlockUse::BlockBitmap { .. } | BlockUse::InodeBitmap { .. } | BlockUse::Reserved { .. } => {
            (used.to_string(), None)
        }
    };
    Ok(ByteUse::Structure { name, target })
}

/// Returns the copy of the super block in `group`, which starts at byte `start`, or the bytes after it in its block.
fn in_super_block(sb: &SuperBlock, group: u32, offset: u64, start: u64) -> (String, Option<Target>) {
    if offset >= start.saturating_add(SUPER_BLOCK_LEN) {
        return ("unused space after a super block".to_string(), None);
    }
    let copy = sb.copies().position(|copy| copy == group).and_then(|copy| u32::try_from(copy).ok());
    let name =
        if group == 0 { "super block".to_string() } else { BlockUse::SuperBlock { group }.to_string() };
    (name, copy.map(Target::SuperBlock))
}

fn in_descriptors(sb: &SuperBlock, group: u32, block: VolBlock, inside: u64) -> (String, Option<Target>) {
    let first = sb.desc_block(0, group).0;
    let index = match sb.has_plain_copies(group) {
        true => block.0.checked_sub(first).and_then(|index| u32::try_from(index).ok()),
        false => group.checked_div(sb.descs_per_block()),
    };
    let index = index.filter(|&index| index < sb.desc_blocks());
    let at = inside.checked_div(sb.desc_size.into()).and_then(|at| u32::try_from(at).ok());
    let described = index.and_then(|index| index.checked_mul(sb.descs_per_block())?.checked_add(at?));
    match described.filter(|&described| described < sb.groups) {
        Some(described) if index.is_some_and(|index| sb.desc_block(index, 0) == block) => {
            (format!("descriptor of group {described}"), Some(Target::Group(described.into())))
        }
        Some(described) => (format!("descriptor of group {described}, copy in group {group}"), None),
        None => ("unused space after group descriptors".to_string(), None),
    }
}

fn in_inode_table(sb: &SuperBlock, group: u32, at: u64, inside: u64) -> (String, Option<Target>) {
    let before = u64::from(group).saturating_mul(sb.inodes_per_group.into());
    let blocks = at.saturating_mul(sb.inodes_per_block().into());
    let record = inside.checked_div(sb.inode_size.into()).unwrap_or(0);
    let ino = before.saturating_add(blocks).saturating_add(record).saturating_add(1);
    (format!("inode {ino}"), Some(Target::Inode(Ino(ino))))
}
