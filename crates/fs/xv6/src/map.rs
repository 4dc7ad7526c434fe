//! The mapping from blocks of a file to blocks of the volume.
//!
//! Layout: `bmap` of xv6 with the second level of Bento. The inode has `DIRECT` numbers, then one block of numbers,
//! then one block of numbers of such blocks. 0 is a hole at any level.
//! Invariant: every number is checked when it is followed; a bad number damages only the range that it
//! maps.

use core::ops::Range;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, FileKind, Result};
use obento_inodes::Map;

use crate::inode::{Inode, LockedInode};
use crate::raw::{DIRECT, PER_TABLE};
use crate::super_block::SuperBlock;

/// A read or a change of a volume of this format.
pub(crate) type Op<'v> = obento_inodes::Op<'v, SuperBlock>;

/// Maximum number of blocks of a file: `MAXFILE` of xv6.
pub(crate) const FILE_BLOCKS: u64 = 36 + 1024 + 1024 * 1024;
const _: () = assert!(DIRECT == 36 && PER_TABLE == 1024);

/// The block numbers in an inode, as stored on disk.
#[derive(Clone, Debug)]
pub struct Addrs(pub(crate) [u32; DIRECT + 2]);

impl Default for Addrs {
    fn default() -> Self {
        Self([0; DIRECT + 2])
    }
}

impl Addrs {
    fn get(&self, slot: usize) -> u32 {
        self.0.get(slot).copied().unwrap_or(0)
    }

    fn set(&mut self, slot: usize, block: u32) {
        self.0.iter_mut().skip(slot).take(1).for_each(|number| *number = block);
    }
}

/// The path to a block of a file: a number in the inode, then one in each block of numbers.
struct PointerPath {
    slot: usize,
    tables: [usize; 2],
    depth: usize,
}

/// Returns the path to block `at`. Fails with `FileTooBig`.
fn way(at: u64) -> Result<PointerPath> {
    let (direct, table) = (to_u64(DIRECT), to_u64(PER_TABLE));
    if at < direct {
        return Ok(PointerPath { slot: to_usize(at), tables: [0; 2], depth: 0 });
    }
    let at = at.saturating_sub(direct);
    if at < table {
        return Ok(PointerPath { slot: DIRECT, tables: [to_usize(at), 0], depth: 1 });
    }
    let at = at.saturating_sub(table);
    if at >= table.saturating_mul(table) {
        return Err(Error::FileTooBig);
    }
    let slot = DIRECT.saturating_add(1);
    Ok(PointerPath { slot, tables: [to_usize(at >> 10), to_usize(at & 1023)], depth: 2 })
}

/// Returns number `index` of a block of numbers.
fn number_in(bytes: &[u8], index: usize) -> u32 {
    let chunk = bytes.chunks_exact(4).nth(index).and_then(|chunk| chunk.try_into().ok());
    chunk.map_or(0, u32::from_le_bytes)
}

fn set_number(bytes: &mut [u8], index: usize, number: u32) {
    let chunk = bytes.chunks_exact_mut(4).nth(index).unwrap_or_default();
    chunk.iter_mut().zip(number.to_le_bytes()).for_each(|(to, from)| *to = from);
}

/// Returns the number of blocks that a table maps, from the position of these numbers to its end.
fn rest_of(numbers: &[usize]) -> u64 {
    let table = to_u64(PER_TABLE);
    let (at, all) = numbers.iter().fold((0_u64, 1_u64), |(at, all), &number| {
        (at.saturating_mul(table).saturating_add(to_u64(number)), all.saturating_mul(table))
    });
    all.saturating_sub(at).max(1)
}

impl Map for SuperBlock {
    /// Maximum size of a write that `CHANGE_MAX` assumes.
    const WRITE_MAX: usize = 16 << 20;

    fn walk(&self, op: &Op<'_>, inode: &Inode, at: u64) -> Result<(Option<u32>, u64)> {
        let Ok(way) = way(at) else { return Ok((None, u64::MAX)) };
        let mut block = inode.map.get(way.slot);
        let tables = way.tables.get(..way.depth).unwrap_or_default();
        for (level, &index) in tables.iter().enumerate() {
            if block == 0 {
                return Ok((None, rest_of(tables.get(level..).unwrap_or_default())));
            }
            op.expect_data(inode.ino(), at, block)?;
            block = number_in(&op.get(block)?, index);
        }
        if block == 0 {
            return Ok((None, 1));
        }
        op.expect_data(inode.ino(), at, block)?;
        Ok((Some(block), 1))
    }

    fn fill(&self, op: &mut Op<'_>, inode: &mut LockedInode<'_>, at: u64) -> Result<(u32, bool)> {
        let way = way(at)?;
        if let (Some(block), _) = self.walk(op, inode, at)? {
            return Ok((block, false));
        }
        // The maximum number of missing blocks.
        if to_usize(op.room().into()) < way.depth.saturating_add(1) && missing(op, inode, &way)? > op.room() {
            return Err(Error::NoSpace);
        }
        let mut table = None;
        for level in 0..=way.depth {
            let index = level.checked_sub(1).and_then(|above| way.tables.get(above)).copied().unwrap_or(0);
            let known = match table {
                None => inode.map.get(way.slot),
                Some(table) => number_in(&op.get(table)?, index),
            };
            let block = match known {
                0 => {
                    let is_data = level == way.depth && inode.attr.kind == FileKind::Regular;
                    let new = if is_data { op.data_block(inode)? } else { op.metadata_block(inode)? };
                    match table {
                        None => inode.map.set(way.slot, new),
                        Some(table) => set_number(op.edit(table)?, index, new),
                    }
                    new
                }
                known => known,
            };
            table = Some(block);
        }
        table.map(|block| (block, true)).ok_or(Error::NoSpace)
    }

    fn cut(&self, op: &mut Op<'_>, inode: &mut LockedInode<'_>, range: Range<u64>) -> Result<()> {
        let (direct, table) = (to_u64(DIRECT), to_u64(PER_TABLE));
        for at in range.start..range.end.min(direct) {
            let block = inode.map.get(to_usize(at));
            inode.map.set(to_usize(at), 0);
            op.drop_block(inode, block)?;
        }
        let Addrs([.., single, double]) = inode.map;
        let single = cut_table(op, inode, single, &below(&range, direct))?;
        let double = cut_tables(op, inode, double, &below(&range, direct.saturating_add(table)))?;
        inode.map.set(DIRECT, single);
        inode.map.set(DIRECT.saturating_add(1), double);
        Ok(())
    }

    fn each_block(&self, op: &Op<'_>, inode: &Inode, own: &mut dyn FnMut(u32) -> bool) -> Result<()> {
        let Addrs([direct @ .., single, double]) = inode.map;
        for block in direct {
            own(block);
        }
        each_in_table(op, single, own)?;
        if own(double) {
            for index in 0..PER_TABLE {
                each_in_table(op, number_in(&op.get(double)?, index), own)?;
            }
        }
        Ok(())
    }
}

fn each_in_table(op: &Op<'_>, table: u32, own: &mut dyn FnMut(u32) -> bool) -> Result<()> {
    if own(table) {
        for index in 0..PER_TABLE {
            own(number_in(&op.get(table)?, index));
        }
    }
    Ok(())
}

/// Returns the number of blocks to allocate on the path to a hole.
fn missing(op: &Op<'_>, inode: &Inode, way: &PointerPath) -> Result<u32> {
    let mut block = inode.map.get(way.slot);
    let mut missing = u32::from(block == 0);
    for &index in way.tables.iter().take(way.depth) {
        block = if block == 0 { 0 } else { number_in(&op.get(block)?, index) };
        missing = missing.saturating_add(u32::from(block == 0));
    }
    Ok(missing)
}

/// Removes `range` from the mapping of a block of numbers. Returns that block, or 0 if it was freed.
fn cut_table(op: &mut Op<'_>, inode: &mut LockedInode<'_>, table: u32, range: &Range<u64>) -> Result<u32> {
    let range = to_usize(range.start)..to_usize(range.end).min(PER_TABLE);
    if !op.geometry().is_data(table) || range.is_empty() {
        return Ok(table);
    }
    for index in range {
        match number_in(&op.get(table)?, index) {
            0 => {}
            block => {
                set_number(op.edit(table)?, index, 0);
                op.drop_block(inode, block)?;
            }
        }
    }
    drop_if_empty(op, inode, table)
}

/// Calls [`cut_table`] one level higher.
fn cut_tables(op: &mut Op<'_>, inode: &mut LockedInode<'_>, tables: u32, range: &Range<u64>) -> Result<u32> {
    if !op.geometry().is_data(tables) || range.is_empty() {
        return Ok(tables);
    }
    let last = to_usize(range.end.saturating_sub(1) >> 10).min(PER_TABLE.saturating_sub(1));
    for index in to_usize(range.start >> 10)..=last {
        let table = number_in(&op.get(tables)?, index);
        let left = match table {
            0 => 0,
            _ => cut_table(op, inode, table, &below(range, to_u64(index) << 10))?,
        };
        // A table outside of the data area contains nothing.
        let left = if op.geometry().is_data(left) { left } else { 0 };
        if left != table {
            set_number(op.edit(tables)?, index, left);
        }
    }
    drop_if_empty(op, inode, tables)
}

fn drop_if_empty(op: &mut Op<'_>, inode: &mut LockedInode<'_>, table: u32) -> Result<u32> {
    if op.get(table)?.iter().any(|&byte| byte != 0) {
        return Ok(table);
    }
    op.drop_block(inode, table)?;
    Ok(0)
}

/// Returns `range` relative to `start`.
fn below(range: &Range<u64>, start: u64) -> Range<u64> {
    range.start.saturating_sub(start)..range.end.saturating_sub(start)
}
