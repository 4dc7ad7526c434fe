//! Which block of the volume holds which block of a file.
//!
//! Layout: xv6's `bmap` with Bento's second level: `DIRECT` numbers in the inode, then one block of numbers, then one
//! block of numbers of such blocks. 0 is a hole, at any level.
//! Invariant: every number is checked when it is followed; a bad one costs the run that it stands for.

use core::ops::Range;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, Result};

use crate::inode::Inode;
use crate::op::Op;
use crate::raw::{DIRECT, PER_TABLE};

/// Blocks that a file can have: xv6's `MAXFILE`.
pub(crate) const FILE_BLOCKS: u64 = 36 + 1024 + 1024 * 1024;
const _: () = assert!(DIRECT == 36 && PER_TABLE == 1024);
/// The most blocks that are looked at for one answer.
const RUN_MAX: u64 = 1024;

/// The way to a block of a file: a number in the inode, then one in each block of numbers.
struct Way {
    slot: usize,
    tables: [usize; 2],
    depth: usize,
}

/// Errors: FileTooBig.
fn way(at: u64) -> Result<Way> {
    let (direct, table) = (to_u64(DIRECT), to_u64(PER_TABLE));
    if at < direct {
        return Ok(Way { slot: to_usize(at), tables: [0; 2], depth: 0 });
    }
    let at = at.saturating_sub(direct);
    if at < table {
        return Ok(Way { slot: DIRECT, tables: [to_usize(at), 0], depth: 1 });
    }
    let at = at.saturating_sub(table);
    if at >= table.saturating_mul(table) {
        return Err(Error::FileTooBig);
    }
    let slot = DIRECT.saturating_add(1);
    Ok(Way { slot, tables: [to_usize(at >> 10), to_usize(at & 1023)], depth: 2 })
}

/// Number `index` of a block of numbers.
pub(crate) fn number_in(bytes: &[u8], index: usize) -> u32 {
    let chunk = bytes.chunks_exact(4).nth(index).and_then(|chunk| chunk.try_into().ok());
    chunk.map_or(0, u32::from_le_bytes)
}

fn set_number(bytes: &mut [u8], index: usize, number: u32) {
    let chunk = bytes.chunks_exact_mut(4).nth(index).unwrap_or_default();
    chunk.iter_mut().zip(number.to_le_bytes()).for_each(|(to, from)| *to = from);
}

/// How many blocks a table stands for from the one on that these numbers lead to, in it and in what it names.
fn rest_of(numbers: &[usize]) -> u64 {
    let table = to_u64(PER_TABLE);
    let (at, all) = numbers.iter().fold((0_u64, 1_u64), |(at, all), &number| {
        (at.saturating_mul(table).saturating_add(to_u64(number)), all.saturating_mul(table))
    });
    all.saturating_sub(at).max(1)
}

impl Op<'_> {
    /// Where block `at` of a file is; or `None` for a hole, and how many blocks it is known to have from there on. Errors: Corrupt; those of the device.
    pub(crate) fn walk(&self, inode: &Inode, at: u64) -> Result<(Option<u32>, u64)> {
        let Ok(way) = way(at) else { return Ok((None, u64::MAX)) };
        let mut block = inode.raw.addrs.get(way.slot).map_or(0, |number| number.get());
        let tables = way.tables.get(..way.depth).unwrap_or_default();
        for (level, &index) in tables.iter().enumerate() {
            if block == 0 {
                return Ok((None, rest_of(tables.get(level..).unwrap_or_default())));
            }
            self.expect_data(inode.ino, at, block)?;
            block = number_in(&self.get(block)?, index);
        }
        if block == 0 {
            return Ok((None, 1));
        }
        self.expect_data(inode.ino, at, block)?;
        Ok((Some(block), 1))
    }

    /// Block `at` of a file and how many blocks follow it on the device as they do in the file, or how many are a hole
    /// there; at most `max`, at least 1. Errors: as [`walk`](Self::walk).
    pub(crate) fn run(&self, inode: &Inode, at: u64, max: u64) -> Result<(Option<u32>, u64)> {
        let (first, reach) = self.walk(inode, at)?;
        let (mut len, max) = (reach.min(max).max(1), max.min(RUN_MAX));
        while len < max {
            // Damage further on is for whoever asks there.
            let Ok((next, reach)) = self.walk(inode, at.saturating_add(len)) else { break };
            let follows = match (first, next) {
                (Some(first), Some(next)) => u64::from(first).checked_add(len) == Some(next.into()),
                (first, next) => first == next,
            };
            if !follows {
                break;
            }
            len = len.saturating_add(reach).min(max);
        }
        Ok((first, len))
    }

    /// Block `at` of a file, taken if it was a hole, and whether it was. A new one of a directory is zeros; one of a file
    /// holds anything. Errors: FileTooBig; NoSpace, before anything was taken; Corrupt; those of the device.
    pub(crate) fn fill(&mut self, inode: &mut Inode, at: u64) -> Result<(u32, bool)> {
        let way = way(at)?;
        if let (Some(block), _) = self.walk(inode, at)? {
            return Ok((block, false));
        }
        // As many as can be missing.
        if to_usize(self.room().into()) < way.depth.saturating_add(1)
            && self.missing(inode, &way)? > self.room()
        {
            return Err(Error::NoSpace);
        }
        let is_data = !inode.is_dir();
        let mut table = None;
        for level in 0..=way.depth {
            let index = level.checked_sub(1).and_then(|above| way.tables.get(above)).copied().unwrap_or(0);
            let known = match table {
                None => inode.raw.addrs.get(way.slot).map_or(0, |number| number.get()),
                Some(table) => number_in(&self.get(table)?, index),
            };
            let block = match known {
                0 => {
                    let new =
                        if level == way.depth && is_data { self.take_block()? } else { self.new_block()? };
                    inode.raw.blocks.set(inode.raw.blocks.get().saturating_add(1));
                    match table {
                        None => inode.raw.addrs.iter_mut().skip(way.slot).take(1).for_each(|n| n.set(new)),
                        Some(table) => set_number(self.edit(table)?, index, new),
                    }
                    new
                }
                known => known,
            };
            table = Some(block);
        }
        table.map(|block| (block, true)).ok_or(Error::NoSpace)
    }

    /// How many blocks have to be taken on the way to a hole.
    fn missing(&self, inode: &Inode, way: &Way) -> Result<u32> {
        let mut block = inode.raw.addrs.get(way.slot).map_or(0, |number| number.get());
        let mut missing = u32::from(block == 0);
        for &index in way.tables.iter().take(way.depth) {
            block = if block == 0 { 0 } else { number_in(&self.get(block)?, index) };
            missing = missing.saturating_add(u32::from(block == 0));
        }
        Ok(missing)
    }

    /// Makes the blocks `range` of a file a hole and frees them, with every block of numbers that is empty then. A number
    /// that can be no block's is dropped. Errors: those of the device.
    pub(crate) fn cut(&mut self, inode: &mut Inode, range: Range<u64>) -> Result<()> {
        let (direct, table) = (to_u64(DIRECT), to_u64(PER_TABLE));
        for at in range.start..range.end.min(direct) {
            let Some(slot) = inode.raw.addrs.get_mut(to_usize(at)) else { break };
            let block = slot.get();
            slot.set(0);
            self.drop_block(inode, block)?;
        }
        let [.., single, double] = inode.raw.addrs.map(|number| number.get());
        let single = self.cut_table(inode, single, &below(&range, direct))?;
        let double = self.cut_tables(inode, double, &below(&range, direct.saturating_add(table)))?;
        let [.., last, after] = &mut inode.raw.addrs;
        last.set(single);
        after.set(double);
        Ok(())
    }

    /// Cuts `range` out of what a block of numbers names; answers that block, or 0 if it is gone.
    fn cut_table(&mut self, inode: &mut Inode, table: u32, range: &Range<u64>) -> Result<u32> {
        let range = to_usize(range.start)..to_usize(range.end).min(PER_TABLE);
        if !self.sb().is_data(table) || range.is_empty() {
            return Ok(table);
        }
        for index in range {
            match number_in(&self.get(table)?, index) {
                0 => {}
                block => {
                    set_number(self.edit(table)?, index, 0);
                    self.drop_block(inode, block)?;
                }
            }
        }
        self.drop_if_empty(inode, table)
    }

    /// [`cut_table`](Self::cut_table) one level higher.
    fn cut_tables(&mut self, inode: &mut Inode, tables: u32, range: &Range<u64>) -> Result<u32> {
        if !self.sb().is_data(tables) || range.is_empty() {
            return Ok(tables);
        }
        let last = to_usize(range.end.saturating_sub(1) >> 10).min(PER_TABLE.saturating_sub(1));
        for index in to_usize(range.start >> 10)..=last {
            let table = number_in(&self.get(tables)?, index);
            let left = match table {
                0 => 0,
                _ => self.cut_table(inode, table, &below(range, to_u64(index) << 10))?,
            };
            // A table that lies nowhere holds nothing.
            let left = if self.sb().is_data(left) { left } else { 0 };
            if left != table {
                set_number(self.edit(tables)?, index, left);
            }
        }
        self.drop_if_empty(inode, tables)
    }

    fn drop_if_empty(&mut self, inode: &mut Inode, table: u32) -> Result<u32> {
        if self.get(table)?.iter().any(|&byte| byte != 0) {
            return Ok(table);
        }
        self.drop_block(inode, table)?;
        Ok(0)
    }

    fn drop_block(&mut self, inode: &mut Inode, block: u32) -> Result<()> {
        if block != 0 {
            inode.raw.blocks.set(inode.raw.blocks.get().saturating_sub(1));
            self.free_block(block)?;
        }
        Ok(())
    }
}

/// `range` counted from `start` on.
fn below(range: &Range<u64>, start: u64) -> Range<u64> {
    range.start.saturating_sub(start)..range.end.saturating_sub(start)
}
