//! Directories: names to inodes.
//!
//! Layout: records in blocks ([`record`], [`block`]) or in the inode; a directory with an index has a tree of hashes
//! in some of its blocks ([`index`], [`hash`]), dressed so that a reader from front to back passes over it.
//! Invariant: the shape of a directory and the source of its blocks are all that the modules below know, so that
//! every damage can be made by hand in tests.
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

use block::{DirBlocks, Store};
pub(crate) use change::{DirEdit, Run};
pub(crate) use cookie::END as COOKIES_END;
use cookie::{Offsets, Resume};
pub(crate) use fold::{Fold, Folder};
pub(crate) use grow::{DirTxn, Grown, Growth};
use hash::NameHash;
pub(crate) use hash::{Chars, Hasher};
use index::Index;
pub(crate) use inline::InlineDir;
pub(crate) use lay_out::DirLayout;
pub(crate) use leaf::{NewEntry, Slot, Spot, kind_code, needed};
use list::Listing;
use lookup::Search;
pub(crate) use lookup::{Hit, Home, Room};
pub(crate) use rebuild::Rebuild;
pub(crate) use record::{Record, Records, record_len};
pub(crate) use volume::UTF8_12_1;

/// The longest name: `EXT4_NAME_LEN`.
pub(crate) const NAME_MAX: usize = 255;
/// Where the entries of an inline directory go on outside `i_block`, counted from its start.
const INLINE_REST: u32 = 60;
/// The parent of an inline directory stands before its entries.
const INLINE_FIRST: u32 = 4;

/// What the super block and the inode say about a directory.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) dir: Ino,
    pub(crate) block_size: u32,
    /// How many blocks the directory has.
    pub(crate) blocks: u32,
    /// The highest inode number of the volume.
    pub(crate) max_ino: u32,
    /// Whether records say the kind of their inode.
    pub(crate) file_types: bool,
    /// What the checksums of this directory's blocks go on from, if it has any.
    pub(crate) checksum_seed: Option<u32>,
    pub(crate) order: Order,
    /// The hash version of an index that this directory may get; none if the volume has no indexes.
    pub(crate) new_index: Option<u8>,
    /// Whether the inode says that there is an index.
    pub(crate) indexed: bool,
    /// How many levels an index may have, its root included.
    pub(crate) max_levels: u8,
    pub(crate) chars: Chars,
    pub(crate) hash_seed: [u32; 4],
    /// Set if names are compared without case.
    pub(crate) fold: Option<Fold>,
    /// What becomes of blocks whose checksums are wrong.
    pub(crate) damaged: Damaged,
}

/// What becomes of a block of entries whose checksum is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Damaged {
    /// It is an error: a change may rely on nothing in it.
    Refused,
    /// Its entries are shown beside the error.
    Shown,
    /// Checksums are not looked at.
    Ignored,
}

impl Shape {
    /// Returns the hash of `name` in a directory of this shape.
    fn hash(&self, hasher: &Hasher, folder: &mut Folder, name: &[u8]) -> NameHash {
        match self.fold {
            // What cannot be folded is hashed as it is.
            Some(_) => hasher.hash(folder.fold(name).unwrap_or(name)),
            None => hasher.hash(name),
        }
    }
}

/// In which order a directory without an index is listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// By hash, because it is small and may have an index tomorrow.
    Hash(Hasher),
    /// From front to back.
    Offset,
}

/// A directory that can be read.
pub(crate) struct Directory<'a> {
    pub(crate) shape: Shape,
    pub(crate) body: Body<'a>,
}

/// Where the entries of a directory are.
pub(crate) enum Body<'a> {
    Blocks(&'a dyn DirBlocks),
    Inline(Inline<'a>),
}

/// The entries of a directory that lie in its inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inline<'a> {
    /// The block of the inode table, for errors.
    pub(crate) block: u64,
    /// `i_block` and its byte offset in the block: the parent's number, then records.
    pub(crate) i_block: (u32, &'a [u8]),
    /// The value of the attribute `system.data` and its byte offset in the block: more records.
    pub(crate) rest: (u32, &'a [u8]),
}

impl<'a> Directory<'a> {
    /// Hands the entries from `from` on to `sink`, damage among them.
    pub(crate) fn read_dir(&self, from: Cookie, sink: &mut EntrySink<'_>) {
        let mut listing = Listing::new(&self.shape, sink);
        // Whether the sink broke makes no difference here.
        let _ = match &self.body {
            Body::Inline(inline) => self.list_inline(&inline.runs(&self.shape), &mut listing, from),
            Body::Blocks(blocks) => {
                let store = Store { shape: &self.shape, blocks: *blocks };
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

    /// Returns the inode that `name` names. Fails in the same cases as [`Self::find`].
    #[cfg(test)]
    pub(crate) fn lookup(&self, name: &Name) -> Result<Ino> {
        self.find(name).map(|hit| hit.ino)
    }

    /// Returns where `name` stands. Fails with `NotFound`, or with `Corrupt` if what may have held it cannot be read.
    pub(crate) fn find(&self, name: &Name) -> Result<Hit> {
        if name.as_bytes().len() > NAME_MAX {
            return Err(Error::NotFound);
        }
        let mut search = Search::new(&self.shape, name.as_bytes())?;
        match &self.body {
            Body::Blocks(blocks) => {
                let store = Store { shape: &self.shape, blocks: *blocks };
                if self.shape.indexed { search.indexed(store) } else { search.linear(store) }
            }
            Body::Inline(inline) => {
                let [first, rest] = inline.runs(&self.shape);
                let hit = |part, (spot, ino)| Hit { home: Home::Inline(part), spot, ino, damage: None };
                match (search.look(&first, |_| {}), search.look(&rest, |_| {})) {
                    (Ok(Some(found)), _) => Ok(hit(0, found)),
                    (_, Ok(Some(found))) => Ok(hit(1, found)),
                    (Err(error), _) | (_, Err(error)) => Err(error),
                    (Ok(None), Ok(None)) => Err(Error::NotFound),
                }
            }
        }
    }

    /// Returns where `name`, which is not there, can go. Fails with `NameTooLong`, `Exists`, `Corrupt`, with
    /// `Invalid` for a name that is not UTF-8 where the volume insists on it, or with `NoSpace` if the index is full.
    pub(crate) fn room(&self, name: &Name) -> Result<Room> {
        let bytes = name.as_bytes();
        if bytes.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        if self.shape.fold.is_some_and(|fold| fold.strict) && str::from_utf8(bytes).is_err() {
            return Err(Error::Invalid);
        }
        let mut search = Search::new(&self.shape, bytes)?;
        match &self.body {
            Body::Blocks(blocks) => {
                let store = Store { shape: &self.shape, blocks: *blocks };
                if self.shape.indexed { search.room_in_index(store) } else { search.room_in_blocks(store) }
            }
            Body::Inline(inline) => {
                let room = search.room_inline(&inline.runs(&self.shape))?;
                Ok(room.unwrap_or(Room::Grow(Growth::Inline)))
            }
        }
    }

    /// Returns whether nothing is in the directory but `.` and `..`. Fails with `Corrupt` if a part of it cannot be
    /// read.
    pub(crate) fn is_empty(&self) -> Result<bool> {
        let mut empty = Ok(true);
        let mut sink = |entry: Result<DirEntry<'_>>| {
            empty = entry.map(|_| false);
            ControlFlow::Break(())
        };
        let mut listing = Listing::new(&self.shape, &mut sink);
        let _ = match &self.body {
            Body::Inline(inline) => {
                inline.runs(&self.shape).iter().try_for_each(|run| listing.run(run, 0, 0, Offsets::Plain))
            }
            Body::Blocks(blocks) => {
                let store = Store { shape: &self.shape, blocks: *blocks };
                listing.linear(store, 0, Offsets::Plain)
            }
        };
        empty
    }

    /// Checks whether block `at` is what its place asks for: entries or a node of the index, with the right
    /// checksum.
    pub(crate) fn check_block(&self, at: u32, block: &Block) -> Result<()> {
        let Body::Blocks(blocks) = &self.body else { return Ok(()) };
        let store = Store { shape: &self.shape, blocks: *blocks };
        match at {
            0 if self.shape.indexed => Index::open(store).map(drop),
            // Without checksums a leaf that was emptied looks like a node, but for the table.
            _ if self.shape.indexed && store.is_node(block) => match index::check_node(&store, block.clone())
            {
                Err(_) if self.shape.checksum_seed.is_none() && index::has_no_table(block) => Ok(()),
                checked => checked,
            },
            _ => store.verify_leaf(block),
        }
    }

    /// Returns the directory that `..` names.
    pub(crate) fn parent(&self) -> Result<Ino> {
        match &self.body {
            Body::Blocks(blocks) => self.parent_in_block(Store { shape: &self.shape, blocks: *blocks }),
            Body::Inline(inline) => inline.parent(&self.shape),
        }
    }

    fn parent_in_block(&self, store: Store<'_>) -> Result<Ino> {
        let block = if self.shape.indexed { store.read(0)? } else { store.leaf_to_show(0)?.0 };
        if self.shape.indexed
            && self.shape.damaged == Damaged::Refused
            && let Err(error @ Error::Corrupt(Corrupt::Checksum { .. })) = Index::open(store)
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
    fn runs(&self, shape: &Shape) -> [Records<'a>; 2] {
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

    fn parent(&self, shape: &Shape) -> Result<Ino> {
        let found = self.i_block.1.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        if found == 0 || found > shape.max_ino {
            let structure = Structure::Directory(shape.dir);
            let (block, offset) = (self.block, self.i_block.0);
            return Err(Corrupt::InodeNumber { structure, block, offset, found: found.into() }.into());
        }
        Ok(Ino(found.into()))
    }
}
