//! A node: sets of sorted keys, one appended after the other.
//!
//! On disk: checksum, magic number, flags, bounds, format of keys, and the first set. Further sets have a checksum and
//! start at a block. Each set has the sequence number of the node, so that what follows the last one is ignored.
//! Invariant: the keys of a decoded node are sorted, within its bounds, and differ in position. A later set overrides
//! an earlier one, and the journal overrides both.
//! Source: Linux `fs/bcachefs/bcachefs_format.h` (`struct btree_node`, `struct bset`), `btree_io.c`
//! (`bch2_btree_node_read_done`, `validate_bset`).

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::{split, to_u64};
use obento_base::{Corrupt, Error, Feature, Result, Structure};

use super::format::Format;
use super::id;
use super::key::{Key, Pos, kind, swap_value};
use super::tree::{Child, Overlay};
use crate::checksum::Method;
use crate::layout::bytes::{bits, slice, u8_at, u16_at, u32_at, u64_at};
use crate::layout::super_block::{SuperBlock, VERSION_MAX, VERSION_MIN};

/// `BSET_MAGIC`, which is combined with the identifier of the volume.
const MAGIC: u64 = 0x9013_5c78_b99e_07f5;
/// Bytes of a checksum.
const SUM: usize = 16;
/// Bytes of `struct bset` before its keys.
const SET: usize = 24;
/// Bytes of `struct btree_node` before its first set.
const NODE: usize = 136;

/// A key of a node; its value is a range of the bytes of the node.
#[derive(Clone, Debug)]
struct Slot {
    pos: Pos,
    size: u32,
    kind: u8,
    value: Range<u32>,
}

/// A decoded node.
#[derive(Clone, Debug, Default)]
pub struct Node {
    values: Vec<u8>,
    keys: Vec<Slot>,
}

/// What decoding a node requires of the volume.
pub struct Context<'a> {
    /// The super block.
    pub super_block: &'a SuperBlock,
    /// The keys of the journal, and the sequence numbers to ignore.
    pub overlay: &'a Overlay,
}

impl Node {
    /// Returns the key at an index.
    pub fn key(&self, index: usize) -> Option<Key<'_>> {
        let slot = self.keys.get(index)?;
        let range = slot.value.start.try_into().ok()?..slot.value.end.try_into().ok()?;
        Some(Key { pos: slot.pos, size: slot.size, kind: slot.kind, value: self.values.get(range)? })
    }

    /// Returns the index of the first key at `from` or after it.
    pub fn first_from(&self, from: Pos) -> usize {
        self.keys.partition_point(|slot| slot.pos < from)
    }

    fn push(&mut self, key: Key<'_>) -> Option<()> {
        let start = u32::try_from(self.values.len()).ok()?;
        self.values.extend_from_slice(key.value);
        let end = u32::try_from(self.values.len()).ok()?;
        self.keys.push(Slot { pos: key.pos, size: key.size, kind: key.kind, value: start..end });
        Some(())
    }

    /// Adds the keys of the journal, sorts, and removes deleted keys.
    fn finish(mut self, child: &Child, tree: u8, overlay: &Overlay) -> Option<Self> {
        for key in overlay.keys(tree, child.level, child.min..=child.max) {
            self.push(key)?;
        }
        // The sort is stable, so that the newest key of a position is the last one.
        self.keys.sort_by_key(|slot| slot.pos);
        let mut keys: Vec<Slot> = Vec::with_capacity(self.keys.len());
        for slot in self.keys {
            match keys.last_mut() {
                Some(last) if last.pos == slot.pos => *last = slot,
                _ => keys.push(slot),
            }
        }
        keys.retain(|slot| slot.kind != kind::DELETED);
        Some(Self { values: self.values, keys })
    }
}

/// A node that has only the keys of the journal: a tree without a root.
pub fn empty(child: &Child, tree: u8, overlay: &Overlay) -> Option<Node> {
    Node::default().finish(child, tree, overlay)
}

/// One set of keys.
struct Set<'a> {
    version: u16,
    seq: u64,
    journal_seq: u64,
    is_big_endian: bool,
    keys: &'a [u8],
    /// Bytes up to the end of the keys.
    len: usize,
}

/// Where a node lies, for errors.
struct Site {
    tree: u8,
    block: u64,
}

impl Site {
    fn field(&self, field: &'static str, offset: usize, found: u64) -> Error {
        let offset = u32::try_from(offset).unwrap_or(u32::MAX);
        let structure = Structure::Tree(id::name(self.tree));
        Corrupt::Field { structure, field, block: self.block, offset, found }.into()
    }

    /// Decodes the set whose structure starts at `start` and whose `struct bset` is `header` bytes later.
    fn set<'a>(&self, bytes: &'a [u8], start: usize, header: usize) -> Result<Set<'a>> {
        let past = || self.field("u64s", start, to_u64(bytes.len()));
        let at = start.checked_add(header).ok_or_else(past)?;
        let set = bytes.get(at..).filter(|set| set.len() >= SET).ok_or_else(past)?;
        let flags = u64::from(u32_at(set, 16).unwrap_or(0));
        let words = usize::from(u16_at(set, 22).unwrap_or(0));
        let keys = slice(set, SET, words.saturating_mul(8)).ok_or_else(past)?;
        let len = header.saturating_add(SET).saturating_add(keys.len());
        let sum = slice(bytes, start, len).ok_or_else(past)?;
        self.verify(bits(flags, 0, 4), sum)?;
        if bits(flags, 5, 6) == 1 {
            return Err(Error::Unsupported(Feature::Named(
                "separate whiteouts of bcachefs before version 1.0",
            )));
        }
        Ok(Set {
            version: u16_at(set, 20).unwrap_or(0),
            seq: u64_at(set, 0).unwrap_or(0),
            journal_seq: u64_at(set, 8).unwrap_or(0),
            is_big_endian: bits(flags, 4, 5) == 1,
            keys,
            len,
        })
    }

    fn verify(&self, method: u64, bytes: &[u8]) -> Result<()> {
        let found = u64_at(bytes, 0).unwrap_or(0);
        let expected = Method::decode(method)?.of(bytes.get(SUM..).unwrap_or_default());
        if found == expected || method == 0 {
            return Ok(());
        }
        let ((found, _), (expected, _)) = (split(found), split(expected));
        let structure = Structure::Tree(id::name(self.tree));
        Err(Corrupt::Checksum { structure, block: self.block, found, expected }.into())
    }
}

/// Decodes the node that `child` refers to.
///
/// # Errors
///
/// - `Corrupt`: the bytes are not this node.
/// - `Unsupported`: a set has a version or a feature that is not supported.
pub fn decode(bytes: &[u8], tree: u8, child: &Child, block: u64, context: &Context<'_>) -> Result<Node> {
    let site = Site { tree, block };
    let magic = context.super_block.magic_of(MAGIC);
    let found = u64_at(bytes, 16).unwrap_or(0);
    if found != magic {
        let structure = Structure::Tree(id::name(tree));
        return Err(Corrupt::Magic { structure, block, found, expected: magic }.into());
    }
    let first = site.set(bytes, 0, NODE)?;
    let flags = u64_at(bytes, 24).unwrap_or(0);
    // BTREE_NODE_ID_LO and BTREE_NODE_ID_HI.
    let number = bits(flags, 0, 4) | bits(flags, 9, 25).wrapping_shl(4);
    if number != tree.into() {
        return Err(site.field("id", 24, number));
    }
    if bits(flags, 4, 8) != child.level.into() {
        return Err(site.field("level", 24, bits(flags, 4, 8)));
    }
    if child.seq.is_some_and(|seq| seq != first.seq) {
        return Err(site.field("seq", NODE, first.seq));
    }
    let max = slice(bytes, 52, 20).and_then(|max| Pos::decode_in(max, first.is_big_endian));
    if max != Some(child.max) && !child.is_range_updated {
        return Err(site.field("max_key", 52, max.map_or(0, |max| max.inode)));
    }
    let format = bytes.get(80..).and_then(Format::decode).ok_or_else(|| site.field("format", 80, 0))?;
    let mut node = Node::default();
    let mut at = 0_usize;
    let mut set = first;
    loop {
        if !(VERSION_MIN..=VERSION_MAX).contains(&set.version) {
            return Err(Error::Unsupported(Feature::Named("the version of a node of bcachefs")));
        }
        if !context.overlay.is_ignored(set.journal_seq) {
            collect(&site, &mut node, &set, &format, child, at)?;
        }
        let unit = usize::from(context.super_block.block_sectors).saturating_mul(512);
        at = at.saturating_add(set.len).checked_next_multiple_of(unit).unwrap_or(usize::MAX);
        // Without `sectors_written`, the sequence number alone says where the node ends.
        let is_end = child.written.is_some_and(|written| to_u64(at) >= written);
        let follows = at.checked_add(SUM).and_then(|at| u64_at(bytes, at)) == Some(set.seq);
        if is_end || !follows {
            break;
        }
        set = site.set(bytes, at, SUM)?;
    }
    node.finish(child, tree, context.overlay).ok_or_else(|| site.field("keys", NODE, 0))
}

/// Adds the keys of a set that are within the bounds of the node.
fn collect(
    site: &Site,
    node: &mut Node,
    set: &Set<'_>,
    format: &Format,
    child: &Child,
    start: usize,
) -> Result<()> {
    let mut rest = set.keys;
    while !rest.is_empty() {
        let at = start.saturating_add(set.keys.len().saturating_sub(rest.len()));
        let damaged = || site.field("key", at, u64_at(rest, 0).unwrap_or(0));
        let len = usize::from(u8_at(rest, 0).unwrap_or(0)).saturating_mul(8);
        let key = rest.get(..len).filter(|key| !key.is_empty()).ok_or_else(damaged)?;
        let (pos, size, fields) = format.unpack(key, set.is_big_endian).ok_or_else(damaged)?;
        let (kind, value) = (u8_at(key, 2).unwrap_or(0), key.get(fields..).ok_or_else(damaged)?);
        if (child.min..=child.max).contains(&pos) {
            let from = node.values.len();
            node.push(Key { pos, size, kind, value }).ok_or_else(damaged)?;
            if set.is_big_endian {
                swap_value(kind, node.values.get_mut(from..).unwrap_or_default());
            }
        }
        rest = rest.get(len..).unwrap_or_default();
    }
    Ok(())
}
