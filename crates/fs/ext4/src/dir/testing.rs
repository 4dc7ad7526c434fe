//! Directories for tests that damage one part of them.

use core::ops::ControlFlow;
use std::collections::BTreeMap;
use std::string::{String, ToString};
use std::sync::Arc;
use std::vec::Vec;

use obento_base::{Ino, Result};
use obento_block::{Cache, MemDevice};
use obento_driver::Cookie;

use super::block::{BlockOrHole, DirBlocks};
use super::cookie::END;
use super::hash::{Chars, Hasher};
use super::{Damaged, DirShape, Directory, EntriesBody, Order};
use crate::checksum::Crc;
use crate::unit::FileBlock;

/// Block size of these directories.
pub(super) const SIZE: u32 = 1024;
pub(super) const DIR: Ino = Ino(12);
/// The inode of `..`.
pub(super) const PARENT: u32 = 2;
/// The first block of the volume that belongs to the directory.
pub(super) const FIRST: u64 = 100;

/// Returns a record with `name`, `rec_len` bytes long.
pub(super) fn record(ino: u32, name: &[u8], rec_len: usize) -> Vec<u8> {
    let mut bytes = Vec::from(ino.to_le_bytes());
    bytes.extend(u16::try_from(rec_len).unwrap().to_le_bytes());
    bytes.extend([u8::try_from(name.len()).unwrap(), 1]);
    bytes.extend(name);
    bytes.resize(rec_len, 0);
    bytes
}

/// Returns records that fill `len` bytes; the last one is extended to the end.
pub(super) fn block(len: usize, entries: &[(u32, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (position, (ino, name)) in entries.iter().enumerate() {
        let own = (8 + name.len()).next_multiple_of(4).max(12);
        let rec_len = if position + 1 == entries.len() { len - bytes.len() } else { own };
        bytes.extend(record(*ino, name, rec_len));
    }
    bytes
}

/// Returns block 0 of a directory without an index: `.` and `..` before `entries`.
pub(super) fn first_block(entries: &[(u32, &[u8])]) -> Vec<u8> {
    let dots = [(12, &b"."[..]), (PARENT, b"..")];
    block(1024, &[&dots, entries].concat())
}

/// Returns the root of an index with `leaves`: lowest hash and block of each. `levels` levels of nodes are between
/// them.
pub(super) fn root(levels: u8, leaves: &[(u32, u32)]) -> Vec<u8> {
    let mut bytes = record(12, b".", 12);
    bytes.extend(record(PARENT, b"..", 1012));
    bytes[24..32].copy_from_slice(&[0, 0, 0, 0, 1, 8, levels, 0]);
    table(&mut bytes, 32, leaves);
    bytes
}

/// Returns a node of an index.
pub(super) fn node(children: &[(u32, u32)]) -> Vec<u8> {
    let mut bytes = record(0, b"", 1024);
    table(&mut bytes, 8, children);
    bytes
}

fn table(bytes: &mut [u8], start: usize, entries: &[(u32, u32)]) {
    for (at, (hash, block)) in (start..).step_by(8).zip(entries) {
        bytes[at..at + 4].copy_from_slice(&hash.to_le_bytes());
        bytes[at + 4..at + 8].copy_from_slice(&block.to_le_bytes());
    }
    let limit = u16::try_from((1024 - start) / 8).unwrap();
    bytes[start..start + 2].copy_from_slice(&limit.to_le_bytes());
    bytes[start + 2..start + 4].copy_from_slice(&u16::try_from(entries.len()).unwrap().to_le_bytes());
}

/// Stores the checksum of a block of entries, whose last record leaves 12 bytes free.
pub(super) fn seal(bytes: &mut [u8], seed: u32) {
    let crc = Crc::new(seed).add(&bytes[..1012]).get();
    bytes[1012..1020].copy_from_slice(&[0, 0, 0, 0, 12, 0, 0, 0xde]);
    bytes[1020..].copy_from_slice(&crc.to_le_bytes());
}

/// The blocks of one directory; missing blocks are holes.
pub(super) struct TestBlocks {
    cache: Cache,
    places: BTreeMap<u32, u64>,
    pub(super) shape: DirShape,
}

impl TestBlocks {
    /// Returns a directory of `blocks`, listed in the order that its shape defines.
    pub(super) fn new(blocks: &[(u32, Vec<u8>)]) -> Self {
        let mut image = std::vec![0; 1024 * 100];
        blocks.iter().for_each(|(_, bytes)| image.extend(bytes));
        let places: BTreeMap<u32, u64> = blocks.iter().map(|(at, _)| *at).zip(FIRST..).collect();
        let count = places.keys().max().map_or(0, |last| last + 1);
        let device = Arc::new(MemDevice::read_only(image));
        Self { cache: Cache::new(device, SIZE, 0), places, shape: shape(count) }
    }

    /// Returns a directory of `blocks`, the first of which is the root of an index.
    pub(super) fn indexed(blocks: &[(u32, Vec<u8>)]) -> Self {
        let mut made = Self::new(blocks);
        made.shape.indexed = true;
        made
    }

    pub(super) fn directory(&self) -> Directory<'_> {
        Directory { shape: self.shape.clone(), body: EntriesBody::Blocks(self) }
    }
}

impl DirBlocks for TestBlocks {
    fn block(&self, at: FileBlock) -> Result<BlockOrHole> {
        match self.places.get(&at.0) {
            Some(place) => Ok(BlockOrHole::Block(self.cache.get(*place)?)),
            None => Ok(BlockOrHole::Hole(1)),
        }
    }
}

/// The results of a listing, with names as text.
pub(super) type Seen = Vec<Result<(String, u64)>>;

/// Returns all results of a listing from `from` on.
pub(super) fn list(directory: &Directory<'_>, from: Cookie) -> Seen {
    let mut seen = Vec::new();
    directory.read_dir(from, &mut |entry| {
        seen.push(entry.map(|entry| (entry.name.to_string(), entry.ino.0)));
        ControlFlow::Continue(())
    });
    seen
}

/// Lists one entry at a time, each from the cookie of the one before.
pub(super) fn list_in_steps(directory: &Directory<'_>) -> Seen {
    let mut seen = Vec::new();
    let mut from = Some(Cookie::START);
    while let Some(cookie) = from.take() {
        directory.read_dir(cookie, &mut |entry| {
            seen.push(entry.map(|entry| (entry.name.to_string(), entry.ino.0)));
            match entry {
                Ok(entry) => {
                    assert!(entry.next > cookie && entry.next.0 < END, "{cookie:?} {:?}", entry.next);
                    from = Some(entry.next);
                    ControlFlow::Break(())
                }
                Err(_) => ControlFlow::Continue(()),
            }
        });
    }
    seen
}

pub(super) fn shape(blocks: u32) -> DirShape {
    DirShape {
        dir: DIR,
        block_size: SIZE,
        blocks,
        max_ino: 1000,
        file_types: true,
        checksum_seed: None,
        order: Order::Offset,
        new_index: None,
        indexed: false,
        max_levels: 2,
        chars: Chars::Signed,
        hash_seed: [0; 4],
        fold: None,
        damaged: Damaged::Refused,
    }
}

/// Half-MD4 without a seed.
pub(super) fn hasher() -> Hasher {
    Hasher::new(1, Chars::Signed, [0; 4]).unwrap()
}
