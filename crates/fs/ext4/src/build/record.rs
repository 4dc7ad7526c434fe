//! The records of a tree's inodes.
//!
//! Source: Linux `fs/ext4/inode.c` `ext4_fill_raw_inode`, `ext4_inode_blocks_set`.

use obento_base::FileKind;
use obento_base::wire::{FromZeros, IntoBytes, split};
use obento_driver::Unfit;
use obento_driver::tree::{Body, Node};

use crate::checksum::inode_seed;
use crate::feature::{Incompat, RoCompat};
use crate::inode::{InodeFlags, encode_device, encode_time, fits_device, seal_record};
use crate::raw::{RawInode, RawInodeExtra};
use crate::super_block::SuperBlock;

/// Size of a record before the fields that `i_extra_isize` counts.
const SHORT: u16 = 128;

/// Permissions of an inode that contains a value.
const VALUE_MODE: u16 = 0o600;

/// The properties of a record that do not follow from the node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    pub ino: u32,
    pub size: u64,
    /// Number of blocks that it owns, including that of its attributes.
    pub blocks: u64,
    pub flags: InodeFlags,
    pub i_block: [u8; 60],
    /// The bytes after the fields.
    pub attributes: &'a [u8],
    /// The block of attributes; 0 for none.
    pub attribute_block: u64,
}

/// Returns the space for attributes after the fields of an inode.
pub(super) fn attribute_room(sb: &SuperBlock) -> usize {
    let extra = sb.raw.s_want_extra_isize.get();
    if extra == 0 { 0 } else { sb.inode_size.saturating_sub(SHORT).saturating_sub(extra).into() }
}

fn has_extra(sb: &SuperBlock) -> bool {
    sb.raw.s_want_extra_isize.get() > 0
}

/// Checks whether a record can store the attributes of `node`.
pub(super) fn expect_fit(sb: &SuperBlock, node: &Node) -> Result<(), Unfit> {
    encode_time(node.attr.mtime, has_extra(sb)).ok_or(Unfit::Time)?;
    match node.body {
        Body::CharDevice(number) | Body::BlockDevice(number) if !fits_device(number) => Err(Unfit::Device),
        _ => Ok(()),
    }
}

/// Returns the link count of a node. A directory counts its own two names and the `..` of its subdirectories. The count
/// is 1 if it exceeds the maximum.
fn links(sb: &SuperBlock, node: &Node) -> u16 {
    let count = match node.body {
        Body::Directory => node.links.saturating_add(2),
        _ => node.links,
    };
    match u16::try_from(count) {
        Ok(links) if count <= sb.link_max() => links,
        _ => 1,
    }
}

/// Fills in the record of `node`, whose bytes are zero.
pub(super) fn fill(sb: &SuperBlock, node: &Node, facts: &Facts<'_>, record: &mut [u8]) {
    let mut raw = RawInode::new_zeroed();
    let halves = |id: u32| {
        let [a, b, c, d] = id.to_le_bytes();
        (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]))
    };
    let ((uid, uid_high), (gid, gid_high)) = (halves(node.attr.uid), halves(node.attr.gid));
    raw.i_mode.set(node.body.kind().mode_bits() | node.attr.mode.bits());
    raw.i_uid.set(uid);
    raw.l_i_uid_high.set(uid_high);
    raw.i_gid.set(gid);
    raw.l_i_gid_high.set(gid_high);
    raw.i_links_count.set(links(sb, node));
    let (low, high) = split(facts.size);
    raw.i_size_lo.set(low);
    raw.i_size_high.set(high);
    raw.i_block = facts.i_block;
    if let Body::CharDevice(number) | Body::BlockDevice(number) = node.body {
        raw.i_block.iter_mut().zip(encode_device(number)).for_each(|(to, from)| *to = from);
    }
    let mut flags = facts.flags;
    set_sectors(sb, &mut raw, &mut flags, facts.blocks);
    raw.i_flags.set(flags.bits());
    let (low, high) = split(facts.attribute_block);
    raw.i_file_acl_lo.set(low);
    raw.l_i_file_acl_high.set(u16::try_from(high).unwrap_or(0));
    let wide = has_extra(sb);
    // The check has shown that it fits.
    let (secs, extra) = encode_time(node.attr.mtime, wide).unwrap_or_default();
    for time in [&mut raw.i_atime, &mut raw.i_ctime, &mut raw.i_mtime] {
        time.set(secs);
    }
    put(record, 0, raw.as_bytes());
    if wide {
        put(record, SHORT.into(), extra_fields(sb, secs, extra).as_bytes());
        let start = SHORT.saturating_add(sb.raw.s_want_extra_isize.get());
        put(record, start.into(), facts.attributes);
    }
    if sb.has_metadata_csum() {
        seal_record(record, inode_seed(sb.checksum_seed, facts.ino, 0));
    }
}

/// Fills in the record of an inode that contains a value with this hash and number of references. Its bytes are zero.
///
/// Source: Linux fs/ext4/xattr.c `ext4_xattr_inode_set_hash`, `ext4_xattr_inode_set_ref`.
pub(super) fn fill_value(sb: &SuperBlock, facts: &Facts<'_>, (hash, users): (u32, u64), record: &mut [u8]) {
    let mut raw = RawInode::new_zeroed();
    raw.i_mode.set(FileKind::Regular.mode_bits() | VALUE_MODE);
    raw.i_links_count.set(1);
    let (low, high) = split(facts.size);
    raw.i_size_lo.set(low);
    raw.i_size_high.set(high);
    raw.i_block = facts.i_block;
    let mut flags = facts.flags;
    set_sectors(sb, &mut raw, &mut flags, facts.blocks);
    raw.i_flags.set(flags.bits());
    let (low, high) = split(users);
    raw.i_atime.set(hash);
    raw.i_ctime.set(high);
    raw.l_i_version.set(low);
    put(record, 0, raw.as_bytes());
    if has_extra(sb) {
        put(record, SHORT.into(), extra_fields(sb, 0, 0).as_bytes());
    }
    if sb.has_metadata_csum() {
        seal_record(record, inode_seed(sb.checksum_seed, facts.ino, 0));
    }
}

fn extra_fields(sb: &SuperBlock, secs: u32, extra: u32) -> RawInodeExtra {
    let mut fields = RawInodeExtra::new_zeroed();
    fields.i_extra_isize.set(sb.raw.s_want_extra_isize.get());
    fields.i_crtime.set(secs);
    for field in [
        &mut fields.i_ctime_extra,
        &mut fields.i_mtime_extra,
        &mut fields.i_atime_extra,
        &mut fields.i_crtime_extra,
    ] {
        field.set(extra);
    }
    fields
}

/// Sets the allocated space: in sectors, or in blocks if the number of sectors is too large.
fn set_sectors(sb: &SuperBlock, raw: &mut RawInode, flags: &mut InodeFlags, blocks: u64) {
    let sectors = blocks.saturating_mul(sb.block_size.sectors().into());
    let is_huge = sb.ro_compat.contains(RoCompat::HUGE_FILE) && sectors >> 48 != 0;
    flags.set(InodeFlags::HUGE_FILE, is_huge);
    let (low, high) = split(if is_huge { blocks } else { sectors });
    raw.i_blocks_lo.set(low);
    raw.l_i_blocks_high.set(u16::try_from(high).unwrap_or(u16::MAX));
}

/// Returns the flag of a file with extents, if the volume has extents.
pub(super) fn map_flags(sb: &SuperBlock) -> InodeFlags {
    if sb.incompat.contains(Incompat::EXTENT) { InodeFlags::EXTENTS } else { InodeFlags::empty() }
}

fn put(record: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(target) = record.get_mut(at..) {
        target.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    }
}
