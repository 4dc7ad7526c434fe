//! The trees of directories.
//!
//! Each block is visited once, so that a cycle ends. Each entry must be after the previous entry, and must be a name
//! that its file has.

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, Ino};

use super::{Issue, Run};
use crate::attribute::name::{FileName, to_utf8};
use crate::index::{Entry, Index, NAMES, Node};
use crate::layout::bytes::units;
use crate::layout::raw::{kind, record_of, sequence_of};

/// No tree is deeper.
const DEPTH_MAX: usize = 32;

/// A walk over a tree.
struct Walk<'w> {
    index: &'w Index,
    /// Blocks that were visited.
    seen: Vec<bool>,
    /// Name of the entry before.
    previous: Vec<u8>,
}

impl Run<'_> {
    /// Checks all directories.
    pub(super) fn directories(&mut self) {
        let total = to_u64(self.names.len());
        for number in 0..total {
            self.progress("directories", number, total);
            let Ok(base) = self.volume.mft().base(Ino(number)) else { continue };
            if !base.is_directory() {
                continue;
            }
            self.report.directories = self.report.directories.saturating_add(1);
            // Damage of the records is reported by the pass before.
            let Ok(file) = self.volume.mft().file(Ino(number)) else { continue };
            match Index::open(&self.volume, &file, NAMES) {
                Ok(index) => self.directory(&index),
                Err(why) => self.found(&Issue::Directory { ino: number, why }),
            }
        }
    }

    fn directory(&mut self, index: &Index) {
        let ino = index.ino.0;
        // A directory on a hostile volume may claim any number of blocks; its bitmap is bounded.
        let blocks = (0..index.blocks()).take_while(|&block| index.has_bit(block)).count();
        let mut walk = Walk { index, seen: vec![false; blocks], previous: Vec::new() };
        let root = index.root.clone();
        self.node(&mut walk, &root, 0);
        let lost =
            walk.seen.iter().zip(0_u64..).filter(|(seen, block)| !**seen && index.is_used(*block)).count();
        if lost > 0 {
            self.found(&Issue::IndexBitmap { ino, blocks: to_u64(lost) });
        }
    }

    fn node(&mut self, walk: &mut Walk<'_>, node: &Node, depth: usize) {
        let ino = walk.index.ino.0;
        let mut has_last = false;
        for entry in node.entries() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(at) => {
                    let why = walk.index.field(&self.volume, node.offset, "IndexEntry", at, 0);
                    self.found(&Issue::Directory { ino, why });
                    return;
                }
            };
            if let Some(vcn) = entry.child {
                self.child(walk, vcn, depth);
            }
            has_last |= entry.is_last();
            if !entry.is_last() {
                self.entry(walk, node, &entry);
            }
        }
        if !has_last {
            let why = walk.index.field(&self.volume, node.offset, "LastEntry", 0, 0);
            self.found(&Issue::Directory { ino, why });
        }
    }

    fn child(&mut self, walk: &mut Walk<'_>, vcn: u64, depth: usize) {
        let ino = walk.index.ino.0;
        let block = walk.index.block_of(&self.volume, vcn);
        let slot = block.and_then(|block| walk.seen.get_mut(to_usize(block)).map(|seen| (block, seen)));
        let why = match slot {
            None => "is outside of the index",
            Some((_, true)) => "has two parents",
            Some(_) if depth >= DEPTH_MAX => "is too deep",
            Some((block, seen)) => {
                *seen = true;
                if !walk.index.is_used(block) {
                    self.found(&Issue::IndexChild { ino, vcn, why: "is marked free" });
                }
                match walk.index.node(&self.volume, block) {
                    Ok(node) => self.node(walk, &node, depth.saturating_add(1)),
                    Err(why) => self.found(&Issue::Directory { ino, why }),
                }
                return;
            }
        };
        self.found(&Issue::IndexChild { ino, vcn, why });
    }

    fn entry(&mut self, walk: &mut Walk<'_>, node: &Node, entry: &Entry<'_>) {
        let ino = walk.index.ino.0;
        let Some(name) = FileName::decode(entry.key) else {
            let why = walk.index.field(&self.volume, node.offset, "FileName", entry.offset, 0);
            return self.found(&Issue::Directory { ino, why });
        };
        let order = self.volume.up_case().collate(units(&walk.previous), units(name.name));
        if order != Ordering::Less && !walk.previous.is_empty() {
            self.found(&Issue::IndexOrder { ino, name: to_utf8(name.name) });
        }
        walk.previous.clear();
        walk.previous.extend_from_slice(name.name);
        let file = record_of(entry.raw.reference.get());
        let why = match self.names_file(walk.index.ino, entry, &name) {
            Ok(None) => {
                if let Some((_, entries)) = self.names.get_mut(to_usize(file)) {
                    *entries = entries.saturating_add(1);
                }
                return;
            }
            Ok(Some(why)) => why,
            // The damage of the file is reported by itself.
            Err(_) => "is damaged",
        };
        self.found(&Issue::IndexEntry { ino, name: to_utf8(name.name), file, why });
    }

    /// Returns why an entry is not a name of its file, or `None` if it is one.
    fn names_file(
        &self,
        dir: Ino,
        entry: &Entry<'_>,
        name: &FileName<'_>,
    ) -> Result<Option<&'static str>, Error> {
        let reference = entry.raw.reference.get();
        let file = match self.volume.mft().file(Ino(record_of(reference))) {
            Err(Error::Stale) => return Ok(Some("is not in use")),
            file => file?,
        };
        if sequence_of(reference) != file.base.header().sequence.get() {
            return Ok(Some("has another sequence number"));
        }
        for attribute in file.all(kind::FILE_NAME)? {
            let Some(own) = attribute.resident().and_then(FileName::decode) else { continue };
            let is_it = record_of(own.raw.parent.get()) == dir.0 && own.name == name.name;
            if is_it && own.namespace() == name.namespace() {
                return Ok(None);
            }
        }
        Ok(Some("has no such name"))
    }
}
