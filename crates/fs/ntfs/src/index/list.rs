//! Listing a directory.

use core::ops::ControlFlow;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Corrupt, FileKind, Ino, Name, Result};
use obento_driver::{Cookie, DirEntry, EntrySink};

use super::{Entry, Index, Node};
use crate::attribute::name::{FileName, to_utf8};
use crate::driver::volume::Volume;
use crate::layout::raw::{file, record, record_of};

/// Bits of a cookie for the place within a node, which has at most 64 KiB.
const INSIDE: u32 = 17;

/// Returns the position before the entry at `offset` of a node. Node 0 is the root.
fn cookie(node: u64, offset: usize) -> Cookie {
    Cookie(node << INSIDE | to_u64(offset))
}

impl Index {
    /// Passes the names of a directory after `from` to `sink`.
    pub fn list(&self, volume: &Volume, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        let (first, mut skip) = (from.0 >> INSIDE, to_usize(from.0 & ((1 << INSIDE) - 1)));
        for number in first..=self.blocks() {
            let node = match number.checked_sub(1) {
                None => Ok(self.root.clone()),
                Some(block) if self.is_used(block) => self.node(volume, block),
                Some(_) => continue,
            };
            let flow = match node {
                Ok(node) => self.list_node(volume, &node, number, skip, sink),
                Err(error) => sink(Err(error)),
            };
            if flow.is_break() {
                break;
            }
            skip = 0;
        }
        Ok(())
    }

    fn list_node(
        &self,
        volume: &Volume,
        node: &Node,
        number: u64,
        skip: usize,
        sink: &mut EntrySink<'_>,
    ) -> ControlFlow<()> {
        for entry in node.entries() {
            match entry {
                Err(at) if at >= skip => sink(Err(self.field(volume, node.offset, "IndexEntry", at, 0)))?,
                Ok(entry) if entry.offset >= skip && !entry.is_last() => {
                    let next = cookie(number, entry.offset.saturating_add(entry.bytes.len()));
                    self.pass(volume, node, &entry, next, sink)?;
                }
                _ => {}
            }
        }
        ControlFlow::Continue(())
    }

    fn pass(
        &self,
        volume: &Volume,
        node: &Node,
        entry: &Entry<'_>,
        next: Cookie,
        sink: &mut EntrySink<'_>,
    ) -> ControlFlow<()> {
        let Some(name) = FileName::decode(entry.key) else {
            return sink(Err(self.field(volume, node.offset, "FileName", entry.offset, 0)));
        };
        if name.is_short() || is_system(entry) {
            return ControlFlow::Continue(());
        }
        let ino = Ino(record_of(entry.raw.reference.get()));
        let bytes = to_utf8(name.name);
        let Ok(valid) = Name::new(&bytes) else {
            let block = node.offset.checked_div(volume.geometry().cluster_size.into()).unwrap_or(0);
            let offset = u32::try_from(entry.offset).unwrap_or(0);
            return sink(Err(Corrupt::EntryName { dir: self.ino, block, offset }.into()));
        };
        let kind = kind_of(&name);
        if kind == Some(FileKind::Directory)
            && let Err(error) = volume.expect_child(self.ino, ino)
        {
            return sink(Err(error));
        }
        sink(Ok(DirEntry { name: valid, ino, kind, next }))
    }
}

/// Returns whether an entry names a file of the file system itself.
pub fn is_system(entry: &Entry<'_>) -> bool {
    record_of(entry.raw.reference.get()) < record::FIRST_USER
}

/// Returns the kind of a file from its entry, unless only the file determines it.
fn kind_of(name: &FileName<'_>) -> Option<FileKind> {
    match name.raw.flags.get() {
        flags if flags & (file::REPARSE_POINT | file::SYSTEM | file::RECALL_ON_OPEN) != 0 => None,
        flags if flags & file::DIRECTORY != 0 => Some(FileKind::Directory),
        _ => Some(FileKind::Regular),
    }
}
