//! Directories, which map names to inodes.
//!
//! Layout: records in blocks ([`record`], [`block`]) or in the inode. A directory with an index has a tree of hashes in
//! some of its blocks ([`index`], [`hash`]). A reader from front to back skips the tree because of its form.
//! Invariant: the modules below depend only on the shape of a directory and the source of its blocks. Tests can
//! therefore create every kind of damage.
//! Source: Linux Documentation/filesystems/ext4/directory.rst, inlinedata.rst; fs/ext4/dir.c, namei.c, inline.c.

mod block;
mod case;
mod change;
#[cfg(test)]
mod change_tests;
mod cookie;
mod fold;
mod grow;
mod hash;
mod index;
mod inline;
mod lay_out;
mod leaf;
mod list;
mod lookup;
mod node;
mod rebuild;
mod record;
mod shape;
mod split;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod volume;

use core::ops::ControlFlow;

use obento_base::{Corrupt, Error, Ino, Name, Result, Structure};
use obento_block::Block;
use obento_driver::{Cookie, DirEntry, EntrySink};

use block::{BlockStore, DirBlocks};
pub(crate) use change::{DirEdit, RecordRun};
pub(crate) use cookie::END as COOKIES_END;
use cookie::{Offsets, Resume};
pub(crate) use fold::{Fold, Folder};
pub(crate) use grow::{DirTxn, Grown, Growth};
pub(crate) use hash::{Chars, Hasher};
use index::DirIndex;
pub(crate) use inline::InlineDir;
pub(crate) use lay_out::DirLayout;
pub(crate) use leaf::{EntryPosition, FreeSlot, NewEntry, kind_code, needed};
use list::Listing;
use lookup::NameSearch;
pub(crate) use lookup::{EntriesLocation, EntrySpace, FoundName};
pub(crate) use rebuild::Rebuild;
pub(crate) use record::{Record, Records, record_len};
pub(crate) use shape::{Damaged, DirShape, Order};
pub(crate) use volume::UTF8_12_1;

/// Maximum length of a name: `EXT4_NAME_LEN`.
pub(crate) const NAME_MAX: usize = 255;
/// Offset of the entries of an inline directory after those in `i_block`, counted from its start.
const INLINE_REST: u32 = 60;
/// Offset of the first entry of an inline directory, after the number of the parent.
const INLINE_FIRST: u32 = 4;

/// A readable directory.
pub(crate) struct Directory<'a> {
    pub(crate) shape: DirShape,
    pub(crate) body: EntriesBody<'a>,
}

/// The place of the entries of a directory.
pub(crate) enum EntriesBody<'a> {
    Blocks(&'a dyn DirBlocks),
    Inline(Inline<'a>),
}

/// The entries of an inline directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inline<'a> {
    /// The block of the inode table, for error messages.
    pub(crate) block: u64,
    /// `i_block` and its byte offset in the block: the number of the parent, then records.
    pub(crate) i_block: (u32, &'a [u8]),
    /// The value of the attribute `system.data` and its byte offset in the block: more records.
    pub(crate) rest: (u32, &'a [u8]),
}

impl<'a> Directory<'a> {
    /// Passes the entries from `from` on to `sink`, including errors of damaged parts.
    pub(crate) fn read_dir(&self, from: Cookie, sink: &mut EntrySink<'_>) {
        let mut listing = Listing::new(&self.shape, sink);
        // The result is the same if the sink stopped.
        let _ = match &self.body {
            EntriesBody::Inline(inline) => self.list_inline(&inline.runs(&self.shape), &mut listing, from),
            EntriesBody::Blocks(blocks) => {
                let store = BlockStore { shape: &self.shape, blocks: *blocks };
                match self.shape.order {
                    _ if self.shape.indexed => listing.indexed(store, from),
                    Order::Hash(hasher) => listing.single(store, &hasher, from),
                    Order::Offset => listing.linear(store, from.0, Offsets::Plain),
                }
            }
        };
    }

    fn list_inline(
        &self,
        runs: &[Records<'_>; 2],
        listing: &mut Listing<'_, '_>,
        from: Cookie,
    ) -> ControlFlow<()> {
        match (self.shape.order, Resume::from(from)) {
            (Order::Hash(hasher), Resume::Hash(key)) => listing.sorted(runs, &hasher, key),
            (Order::Hash(_), Resume::Offset(_)) => ControlFlow::Continue(()),
            (Order::Offset, _) => runs
                .iter()
                .zip([INLINE_FIRST, INLINE_REST])
                .try_for_each(|(run, start)| listing.run(run, start.into(), from.0, Offsets::Plain)),
        }
    }

    /// Returns the inode that `name` refers to. Fails in the same cases as [`Self::find`].
    #[cfg(test)]
    pub(crate) fn lookup(&self, name: &Name) -> Result<Ino> {
        self.find(name).map(|hit| hit.ino)
    }

    /// Returns the place of `name`. Fails with `NotFound`, or with `Corrupt` if a part that may contain it cannot be
    /// read.
    pub(crate) fn find(&self, name: &Name) -> Result<FoundName> {
        if name.as_bytes().len() > NAME_MAX {
            return Err(Error::NotFound);
        }
        let mut search = NameSearch::new(&self.shape, name.as_bytes())?;
        match &self.body {
            EntriesBody::Blocks(blocks) => {
                let store = BlockStore { shape: &self.shape, blocks: *blocks };
                if self.shape.indexed { search.indexed(store) } else { search.linear(store) }
            }
            EntriesBody::Inline(inline) => {
                let [first, rest] = inline.runs(&self.shape);
                let hit = |part, (spot, ino)| FoundName {
                    home: EntriesLocation::Inline(part),
                    spot,
                    ino,
                    damage: None,
                };
                match (search.look(&first, |_| {}), search.look(&rest, |_| {})) {
                    (Ok(Some(found)), _) => Ok(hit(0, found)),
                    (_, Ok(Some(found))) => Ok(hit(1, found)),
                    (Err(error), _) | (_, Err(error)) => Err(error),
                    (Ok(None), Ok(None)) => Err(Error::NotFound),
                }
            }
        }
    }

    /// Returns the place for `name`, which must not exist. Fails with `NameTooLong`, `Exists` or `Corrupt`, or with
    /// `NoSpace` if the index is full. Fails with `Invalid` for a name that is not UTF-8 if the volume requires UTF-8.
    pub(crate) fn room(&self, name: &Name) -> Result<EntrySpace> {
        let bytes = name.as_bytes();
        if bytes.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        if self.shape.fold.is_some_and(|fold| fold.strict) && str::from_utf8(bytes).is_err() {
            return Err(Error::Invalid);
        }
        let mut search = NameSearch::new(&self.shape, bytes)?;
        match &self.body {
            EntriesBody::Blocks(blocks) => {
                let store = BlockStore { shape: &self.shape, blocks: *blocks };
                if self.shape.indexed { search.room_in_index(store) } else { search.room_in_blocks(store) }
            }
            EntriesBody::Inline(inline) => {
                let room = search.room_inline(&inline.runs(&self.shape))?;
                Ok(room.unwrap_or(EntrySpace::Grow(Growth::Inline)))
            }
        }
    }

    /// Returns whether the directory contains only `.` and `..`. Fails with `Corrupt` if a part of it cannot be read.
    pub(crate) fn is_empty(&self) -> Result<bool> {
        let mut empty = Ok(true);
        let mut sink = |entry: Result<DirEntry<'_>>| {
            empty = entry.map(|_| false);
            ControlFlow::Break(())
        };
        let mut listing = Listing::new(&self.shape, &mut sink);
        let _ = match &self.body {
            EntriesBody::Inline(inline) => {
                inline.runs(&self.shape).iter().try_for_each(|run| listing.run(run, 0, 0, Offsets::Plain))
            }
            EntriesBody::Blocks(blocks) => {
                let store = BlockStore { shape: &self.shape, blocks: *blocks };
                listing.linear(store, 0, Offsets::Plain)
            }
        };
        empty
    }

    /// Checks that block `at` has the contents that its place requires: entries or a node of the index, with the
    /// right checksum.
    pub(crate) fn check_block(&self, at: u32, block: &Block) -> Result<()> {
        let EntriesBody::Blocks(blocks) = &self.body else { return Ok(()) };
        let store = BlockStore { shape: &self.shape, blocks: *blocks };
        match at {
            0 if self.shape.indexed => DirIndex::open(store).map(drop),
            // Without checksums, an empty leaf differs from a node only by the table.
            _ if self.shape.indexed && store.is_node(block) => match index::check_node(&store, block.clone())
            {
                Err(_) if self.shape.checksum_seed.is_none() && index::has_no_table(block) => Ok(()),
                checked => checked,
            },
            _ => store.verify_leaf(block),
        }
    }

    /// Returns the inode that `..` refers to.
    pub(crate) fn parent(&self) -> Result<Ino> {
        match &self.body {
            EntriesBody::Blocks(blocks) => {
                self.parent_in_block(BlockStore { shape: &self.shape, blocks: *blocks })
            }
            EntriesBody::Inline(inline) => inline.parent(&self.shape),
        }
    }

    fn parent_in_block(&self, store: BlockStore<'_>) -> Result<Ino> {
        let block = if self.shape.indexed { store.read(0)? } else { store.leaf_to_show(0)?.0 };
        if self.shape.indexed
            && self.shape.damaged == Damaged::Refused
            && let Err(error @ Error::Corrupt(Corrupt::Checksum { .. })) = DirIndex::open(store)
        {
            return Err(error);
        }
        let run = store.records(0, &block);
        let dot = run.at(0)?;
        let dots = run.at(dot.len)?;
        for (record, name) in [(dot, &b"."[..]), (dots, b"..")] {
            if record.name != name {
                let (dir, block, offset) = (self.shape.dir, run.block, record.offset);
                return Err(Corrupt::EntryName { dir, block, offset }.into());
            }
        }
        run.inode(&dots, self.shape.max_ino)
    }
}

impl<'a> Inline<'a> {
    /// Returns the two runs of records.
    fn runs(&self, shape: &DirShape) -> [Records<'a>; 2] {
        let run = |base: u32, bytes| Records {
            dir: shape.dir,
            block: self.block,
            base,
            bytes,
            block_size: shape.block_size,
            starts: false,
        };
        let ((first, i_block), (rest, more)) = (self.i_block, self.rest);
        [run(first.saturating_add(INLINE_FIRST), i_block.get(4..).unwrap_or_default()), run(rest, more)]
    }

    fn parent(&self, shape: &DirShape) -> Result<Ino> {
        let found = self.i_block.1.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        if found == 0 || found > shape.max_ino {
            let structure = Structure::Directory(shape.dir);
            let (block, offset) = (self.block, self.i_block.0);
            return Err(Corrupt::InodeNumber { structure, block, offset, found: found.into() }.into());
        }
        Ok(Ino(found.into()))
    }
}
