//! Splitting a full leaf of an index by the hashes of its names.
//!
//! Invariant: every entry of the second half has a hash at or above the second half's hash in the index. Every entry of
//! the first half has a hash at or below it. Entries with the same hash may be in both halves, which the lowest bit
//! marks.
//! Source: Linux fs/ext4/namei.c, `do_split`, `dx_make_map`.

use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{Corrupt, Result, Structure};

use super::fold::Folder;
use super::hash::{CONTINUED, Hasher};
use super::leaf::needed;
use super::record::Records;
use super::shape::DirShape;

/// A leaf in two blocks, packed and with their checksums.
#[derive(Debug)]
pub(crate) struct Halves {
    pub(crate) low: Vec<u8>,
    pub(crate) high: Vec<u8>,
    /// The hash of the second block in the index: its lowest hash, with the continuation bit.
    pub(crate) hash: u32,
}

/// An entry of the leaf: its hash, its place and its size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    hash: u32,
    offset: u32,
    size: u32,
}

/// Splits the entries of `leaf`. Fails with `Corrupt` if it has fewer than two, since it cannot have been full.
pub(crate) fn split(shape: &DirShape, hasher: &Hasher, leaf: &Records<'_>) -> Result<Halves> {
    let parts = sorted_parts(shape, hasher, leaf)?;
    let middle = middle(&parts, shape.block_size);
    let (low, high) = parts.split_at_checked(middle).unwrap_or((&parts, &[]));
    let (Some(last), Some(first)) = (low.last(), high.first()) else {
        let structure = Structure::Directory(shape.dir);
        let (field, found) = ("rec_len", parts.len().try_into().unwrap_or(u64::MAX));
        return Err(Corrupt::Field { structure, field, block: leaf.block, offset: 4, found }.into());
    };
    let hash = if last.hash == first.hash { first.hash | CONTINUED } else { first.hash };
    Ok(Halves { low: pack(shape, leaf, low)?, high: pack(shape, leaf, high)?, hash })
}

fn sorted_parts(shape: &DirShape, hasher: &Hasher, leaf: &Records<'_>) -> Result<Vec<Part>> {
    let mut folder = Folder::default();
    let mut parts = Vec::new();
    parts.try_reserve(leaf.bytes.len() / 12)?;
    for record in leaf.walk() {
        let record = record?;
        if record.inode != 0 {
            let hash = shape.hash(hasher, &mut folder, record.name).major;
            parts.push(Part { hash, offset: record.offset, size: needed(record.name.len()) });
        }
    }
    parts.sort_unstable();
    Ok(parts)
}

/// Returns the number of entries that stay. This is about half of the block by size, or half of the entries if they do
/// not fill half of the block.
fn middle(parts: &[Part], block_size: u32) -> usize {
    let (mut moved, mut size) = (0_usize, 0_u32);
    for part in parts.iter().rev() {
        if size.saturating_add(part.size / 2) > block_size / 2 {
            break;
        }
        size = size.saturating_add(part.size);
        moved = moved.saturating_add(1);
    }
    match parts.len().saturating_sub(moved) {
        0 | 1 => parts.len() / 2,
        kept => kept,
    }
}

/// Returns a block with only these records, in their previous order.
fn pack(shape: &DirShape, leaf: &Records<'_>, parts: &[Part]) -> Result<Vec<u8>> {
    let mut offsets = Vec::new();
    offsets.try_reserve_exact(parts.len())?;
    offsets.extend(parts.iter().map(|part| (part.offset, part.size)));
    offsets.sort_unstable();
    let len = to_usize(shape.block_size.into());
    let mut block = Vec::new();
    block.try_reserve_exact(len)?;
    block.resize(len, 0);
    let (mut at, mut last) = (0, 0);
    for (offset, size) in offsets {
        let start = to_usize(offset.into());
        let end = start.saturating_add(to_usize(size.into()));
        last = at;
        at = shape.copy_record(&mut block, at, leaf.bytes.get(start..end).unwrap_or_default());
    }
    shape.set_len(&mut block, last, shape.records_end().saturating_sub(last));
    shape.seal(&mut block);
    Ok(block)
}
