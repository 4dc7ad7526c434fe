//! The location of the blocks of a file: addresses in the inode, indirect blocks, and blocks after the checkpoint.

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Corrupt, Ino, Result, Structure};

use crate::inode::{DIRECT, Inode};
use crate::super_block::PAD;
use crate::volume::Volume;

/// What is at a block of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The block is at this address.
    At(u64),
    /// There are no blocks for so many blocks.
    Hole(u64),
}

impl Volume {
    /// Checks an address. `None` means that there is no block.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: the block is outside of the volume, or is a super block.
    pub fn address(&self, ino: Ino, at: u64, address: i64, len: u64) -> Result<Option<u64>> {
        // 0 is `LFS_UNUSED_DADDR`, -1 `UNASSIGNED`, -2 `UNWRITTEN`.
        if (-2..=0).contains(&address) {
            return Ok(None);
        }
        let structure = Structure::Inode(ino);
        let outside =
            Corrupt::BlockRange { structure, at, start: address.unsigned_abs(), len: self.units(len) };
        let start = u64::try_from(address).map_err(|_| outside)?;
        let from = start.checked_mul(self.super_block.unit.into()).ok_or(outside)?;
        let end = from.checked_add(len).ok_or(outside)?;
        let is_super = |&copy: &u64| {
            let copy = self.super_block.bytes(copy);
            from < copy.saturating_add(PAD) && end > copy
        };
        if end > self.limit() || self.super_block.copies.iter().any(is_super) {
            return Err(outside.into());
        }
        Ok(Some(start))
    }

    /// Returns the first position after the blocks of a file: blocks after the direct ones are whole.
    pub fn end_of(&self, inode: &Inode) -> u64 {
        let block = u64::from(self.super_block.block);
        let direct = to_u64(DIRECT).saturating_mul(block);
        let unit = if inode.size > direct { block } else { self.super_block.fragment.into() };
        inode.size.checked_next_multiple_of(unit).unwrap_or(u64::MAX)
    }

    /// Returns the length of block `number` of a file on disk.
    pub fn block_len(&self, inode: &Inode, number: u64) -> u64 {
        let block = u64::from(self.super_block.block);
        self.end_of(inode).saturating_sub(number.saturating_mul(block)).min(block)
    }

    /// Returns the location of block `number` of a file.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: an address is outside of the volume.
    pub fn place(&self, ino: Ino, inode: &Inode, number: u64) -> Result<Place> {
        if let Some(&address) = self.rolled.blocks.get(&(ino.0, number)) {
            let len = self.block_len(inode, number);
            return Ok(self.address(ino, number, address, len)?.map_or(Place::Hole(1), Place::At));
        }
        let place =
            if number >= inode.cut { Place::Hole(u64::MAX) } else { self.stored(ino, inode, number)? };
        // A block after the checkpoint ends a hole.
        let next = self.rolled.blocks.range((ino.0, number)..=(ino.0, u64::MAX)).next();
        Ok(match (place, next) {
            (Place::Hole(len), Some((&(_, next), _))) => {
                Place::Hole(len.min(next.saturating_sub(number)).max(1))
            }
            (place, _) => place,
        })
    }

    /// Returns the location according to the addresses of the checkpoint.
    fn stored(&self, ino: Ino, inode: &Inode, number: u64) -> Result<Place> {
        if let Some(&address) = inode.addresses.get(..DIRECT).and_then(|direct| direct.get(to_usize(number)))
        {
            let len = self.block_len(inode, number);
            return Ok(self.address(ino, number, address, len)?.map_or(Place::Hole(1), Place::At));
        }
        let fan = self.fan();
        let mut rest = number.saturating_sub(to_u64(DIRECT));
        let mut span = fan;
        for &root in inode.addresses.get(DIRECT..).unwrap_or_default() {
            if rest < span {
                return self.descend(ino, number, root, rest, span);
            }
            rest = rest.saturating_sub(span);
            span = span.saturating_mul(fan);
        }
        Ok(Place::Hole(u64::MAX))
    }

    /// Follows indirect blocks from `root`, which covers `span` blocks, to the block at `rest`.
    fn descend(&self, ino: Ino, number: u64, root: i64, mut rest: u64, mut span: u64) -> Result<Place> {
        let mut address = root;
        let block = u64::from(self.super_block.block);
        loop {
            let Some(found) = self.address(ino, number, address, block)? else {
                return Ok(Place::Hole(span.saturating_sub(rest)));
            };
            if span <= 1 {
                return Ok(Place::At(found));
            }
            span = span.checked_div(self.fan()).unwrap_or(1).max(1);
            let index = rest.checked_div(span).unwrap_or(0);
            rest = rest.checked_rem(span).unwrap_or(0);
            let bytes = self.block(found, self.super_block.block)?;
            let encoding = self.super_block.encoding;
            address = encoding.address(&bytes, to_usize(index).saturating_mul(encoding.word_len()));
        }
    }

    /// Returns the number of addresses in an indirect block.
    pub fn fan(&self) -> u64 {
        u64::from(self.super_block.block)
            .checked_div(to_u64(self.super_block.encoding.word_len()))
            .unwrap_or(1)
    }

    /// Returns the number of units that `len` bytes take.
    pub fn units(&self, len: u64) -> u64 {
        self.super_block.units(len)
    }
}
