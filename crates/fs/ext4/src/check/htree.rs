//! Pass 2, the index of a directory: comparing the entries of its root and nodes with the hashes in the blocks below.
//!
//! Invariant: every node is examined once, however many entries refer to it, so that cycles end.
//! Source: e2fsprogs `e2fsck/pass1.c` `handle_htree`, `e2fsck/pass2.c` `parse_int_node`, `e2fsck_pass2`.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes, IntoBytes, to_usize};

use super::issue::Issue;
use super::state::Dir;
use super::view::View;
use crate::checksum::Crc;
use crate::dir::{Chars, Folder, Hasher, record_len};
use crate::feature::Incompat;
use crate::inode::InodeFlags;
use crate::raw::{RawDirEntry, RawDxCountLimit, RawDxEntry, RawDxRootInfo, RawDxTail};

/// Byte offsets of the root's information and its table, and of a node's table.
const INFO: usize = 24;
const ROOT_TABLE: usize = 32;
const NODE_TABLE: usize = 8;
const ENTRY: usize = 8;
/// The bits of `dx_entry.block` that are a block number.
const BLOCK_MASK: u32 = 0x0fff_ffff;
const UNSIGNED_HASH: u32 = 2;

/// The kind of a block of an indexed directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum IndexBlockKind {
    Node,
    Leaf,
}

/// The contents of a block.
#[derive(Debug)]
enum Block {
    /// Hashes and blocks.
    Node(Vec<(u32, u32)>),
    /// The lowest and the highest hash of its names, if it has any.
    Leaf(Option<(u32, u32)>),
}

/// The index of a directory.
pub(super) struct CheckedIndex {
    blocks: BTreeMap<u64, Block>,
    levels: u8,
    hasher: Option<Hasher>,
    folder: Option<Folder>,
    /// The leaf whose names are being read.
    current: u64,
}

type IssueSink<'a> = &'a mut dyn FnMut(Issue);

impl CheckedIndex {
    /// Checks the root, which is the first block. Returns `None` if the index is unusable.
    pub(super) fn root(view: &View, dir: &Dir, bytes: &[u8], emit: IssueSink<'_>) -> Option<Self> {
        let sb = &view.sb;
        let mut bad = |why, found: u64| emit(Issue::Index { dir: dir.ino, at: 0, why, found });
        let info = bytes.get(INFO..).and_then(|bytes| RawDxRootInfo::ref_from_prefix(bytes).ok());
        let (info, _) = info?;
        if info.reserved_zero.get() != 0 || info.info_length != 8 {
            bad("the root's length is", info.info_length.into());
            return None;
        }
        let large = sb.incompat.contains(Incompat::LARGE_DIR);
        if info.hash_version > 2 && info.hash_version != 6 {
            bad("hash version", info.hash_version.into());
            return None;
        }
        if info.unused_flags & 1 != 0 {
            bad("incompatible flags", info.unused_flags.into());
            return None;
        }
        if info.indirect_levels > if large { 2 } else { 1 } {
            bad("levels", info.indirect_levels.into());
            return None;
        }
        let unsigned = sb.raw.s_flags.get() & UNSIGNED_HASH != 0;
        let chars = if unsigned { Chars::Unsigned } else { Chars::Signed };
        let seed = sb.raw.s_hash_seed.map(|word| word.get());
        let casefold = InodeFlags::from_bits_retain(dir.flags).contains(InodeFlags::CASEFOLD);
        let encrypted = InodeFlags::from_bits_retain(dir.flags).contains(InodeFlags::ENCRYPT);
        let hasher = Hasher::new(info.hash_version, chars, seed).ok().filter(|_| !encrypted);
        let folder = casefold.then(Folder::default);
        let table = table(view, dir, bytes, (0, ROOT_TABLE), emit)?;
        let blocks = BTreeMap::from([(0, Block::Node(table))]);
        Some(Self { blocks, levels: info.indirect_levels, hasher, folder, current: 0 })
    }

    /// Checks block `at`, which is not the root.
    pub(super) fn block(
        &mut self,
        view: &View,
        dir: &Dir,
        bytes: &[u8],
        at: u64,
        emit: IssueSink<'_>,
    ) -> IndexBlockKind {
        let fake = RawDirEntry::ref_from_prefix(bytes).ok().map(|(raw, _)| raw);
        let block_size = view.sb.block_size.bytes();
        let is_fake = fake.is_some_and(|raw| {
            raw.inode.get() == 0 && record_len(raw.rec_len.get(), block_size) == block_size
        });
        let limit = room(view, NODE_TABLE);
        let head = bytes.get(NODE_TABLE..).and_then(|bytes| RawDxCountLimit::ref_from_prefix(bytes).ok());
        let is_node =
            is_fake && head.is_some_and(|(head, _)| head.limit.get() == limit && head.count.get() <= limit);
        if !is_node {
            return IndexBlockKind::Leaf;
        }
        if let Some(table) = table(view, dir, bytes, (at, NODE_TABLE), emit) {
            self.blocks.insert(at, Block::Node(table));
        }
        IndexBlockKind::Node
    }

    /// Begins with the names of block `at`.
    pub(super) fn begin(&mut self, at: u64) {
        self.current = at;
        if at > 0 {
            self.blocks.insert(at, Block::Leaf(None));
        }
    }

    /// Adds a name of the current block.
    pub(super) fn name(&mut self, name: &[u8]) {
        let Some(hasher) = &self.hasher else { return };
        let folded = self.folder.as_mut().and_then(|folder| folder.fold(name));
        let hash = hasher.hash(folded.unwrap_or(name)).major;
        if let Some(Block::Leaf(range)) = self.blocks.get_mut(&self.current) {
            let (low, high) = range.unwrap_or((hash, hash));
            *range = Some((low.min(hash), high.max(hash)));
        }
    }

    /// Follows the index from its root, and reports differences.
    pub(super) fn check(mut self, dir: &Dir, emit: IssueSink<'_>) {
        let ino = dir.ino;
        let mut waiting = Vec::from([(0_u64, 0_u8, 0_u32, u32::MAX)]);
        while let Some((at, depth, low, high)) = waiting.pop() {
            let reference = |why| Issue::IndexReference { dir: ino, at, why };
            match self.blocks.remove(&at) {
                None if is_mapped(dir, at) => {
                    emit(reference("is in the index twice"));
                }
                None => emit(reference("is in the index but does not exist")),
                Some(Block::Node(table)) => {
                    if depth > self.levels {
                        emit(reference("is a node below the lowest level"));
                    }
                    let ends = table.iter().skip(1).map(|&(hash, _)| hash & !1).chain([high]);
                    let below = table.iter().zip(ends).map(|(&(hash, block), end)| {
                        (u64::from(block & BLOCK_MASK), depth.saturating_add(1), low.max(hash & !1), end)
                    });
                    let below: Vec<_> = below.collect();
                    waiting.extend(below.into_iter().rev());
                }
                Some(Block::Leaf(range)) => {
                    if depth != self.levels.saturating_add(1) {
                        emit(reference("contains entries above the lowest level"));
                    }
                    let (least, most) = range.unwrap_or((low, low));
                    for hash in [least, most] {
                        if hash < low || hash > high {
                            emit(Issue::IndexHash { dir: ino, at, found: hash });
                            break;
                        }
                    }
                }
            }
        }
        for at in self.blocks.keys() {
            emit(Issue::IndexReference { dir: ino, at: *at, why: "is not in the index" });
        }
    }
}

/// Returns whether the directory has block `at`.
fn is_mapped(dir: &Dir, at: u64) -> bool {
    let after = dir.runs.partition_point(|run| run.at <= at);
    let run = after.checked_sub(1).and_then(|before| dir.runs.get(before));
    run.is_some_and(|run| at < run.at.saturating_add(run.len.into()))
}

/// Returns the maximum number of entries of a table at byte `table`.
fn room(view: &View, table: usize) -> u16 {
    let tail = if view.sb.has_metadata_csum() { size_of::<RawDxTail>() } else { 0 };
    let len = to_usize(view.sb.block_size.into()).saturating_sub(table).saturating_sub(tail);
    u16::try_from(len / ENTRY).unwrap_or(u16::MAX)
}

/// Returns the entries of a table.
fn table(
    view: &View,
    dir: &Dir,
    bytes: &[u8],
    (at, start): (u64, usize),
    emit: IssueSink<'_>,
) -> Option<Vec<(u32, u32)>> {
    let (head, _) = RawDxCountLimit::ref_from_prefix(bytes.get(start..)?).ok()?;
    let (limit, count) = (head.limit.get(), head.count.get());
    let ino = dir.ino;
    if limit != room(view, start) {
        emit(Issue::Index { dir: ino, at, why: "the limit of a node is", found: limit.into() });
        return None;
    }
    if count == 0 || count > limit {
        emit(Issue::Index { dir: ino, at, why: "the count of a node is", found: count.into() });
        return None;
    }
    let end = |entries: u16| start.saturating_add(usize::from(entries).saturating_mul(ENTRY));
    if view.sb.has_metadata_csum() {
        let (tail, _) = RawDxTail::ref_from_prefix(bytes.get(end(limit)..)?).ok()?;
        let blank = RawDxTail { dt_checksum: 0.into(), ..*tail };
        let expected = Crc::new(dir.seed).add(bytes.get(..end(count))?).add(blank.as_bytes()).get();
        let found = tail.dt_checksum.get();
        if found != expected {
            emit(Issue::IndexChecksum { dir: ino, at, found, expected });
        }
    }
    let (entries, _) = <[RawDxEntry]>::ref_from_prefix_with_elems(bytes.get(start..)?, count.into()).ok()?;
    let table: Vec<(u32, u32)> = (0_u32..)
        .zip(entries)
        .map(|(n, entry)| (if n == 0 { 0 } else { entry.hash.get() }, entry.block.get()))
        .collect();
    let disorder = table.iter().zip(table.iter().skip(1)).skip(1).find(|(one, next)| one.0 >= next.0);
    if let Some((_, next)) = disorder {
        emit(Issue::Index { dir: ino, at, why: "a hash is out of order:", found: next.0.into() });
    }
    Some(table)
}
