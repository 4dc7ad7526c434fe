//! Pass 2: the entries of a directory, one by one.
//!
//! Source: e2fsprogs `e2fsck/pass2.c` `check_dot`, `check_dotdot`, `check_filetype`.

use super::directories::{DirectoryCheck, ROOT};
use super::encryption;
use super::issue::Issue;
use super::reason::DotName;
use super::state::Marks;
use crate::dir::Record;
use crate::feature::Incompat;
use crate::inode::InodeFlags;

/// A name is encrypted in blocks of this many bytes.
const SHORTEST_ENCRYPTED: usize = 16;
/// Maximum size of the record of `.`. A longer one has space for another name, and is reported.
const LONGEST_DOT: u32 = 24;

impl DirectoryCheck<'_> {
    pub(super) fn dot(&mut self, record: &Record<'_>, block: u64) {
        let dir = self.dir.ino;
        if record.inode == 0 || record.name != b"." {
            self.emit(Issue::Dot { dir, block, name: DotName::Dot, why: "is missing" });
            return self.entry_if_named(record, block);
        }
        self.file_type(record, dir);
        if record.inode != dir {
            self.emit(Issue::DotInode { dir, found: record.inode });
        }
        if record.len > LONGEST_DOT {
            self.emit(Issue::Dot { dir, block, name: DotName::Dot, why: "leaves no room for '..'" });
        }
        self.count(dir);
    }

    pub(super) fn dot_dot(&mut self, record: &Record<'_>, block: u64) {
        let dir = self.dir.ino;
        if record.inode == 0 || record.name != b".." {
            self.emit(Issue::Dot { dir, block, name: DotName::DotDot, why: "is missing" });
            return self.entry_if_named(record, block);
        }
        self.dir.set_dot_dot(record.inode);
        self.file_type(record, record.inode);
        self.count(record.inode);
    }

    fn entry_if_named(&mut self, record: &Record<'_>, block: u64) {
        if !matches!(record.name, b"." | b"..") {
            self.entry(record, block);
        }
    }

    pub(super) fn count(&self, ino: u32) {
        if self.wanted.is_none()
            && let Some(slot) = self.state.slot(ino)
        {
            slot.add_name();
        }
    }

    /// Returns whether inode `ino` is encrypted like this directory. If the context of the directory itself is
    /// damaged, which is already reported, every encrypted inode matches.
    fn shares_policy(&mut self, ino: u32, marks: Marks) -> bool {
        let view = self.view;
        let own = self.policy.get_or_insert_with(|| encryption::policy_of(view, self.dir.ino));
        marks.contains(Marks::ENCRYPTED) && (own.is_none() || *own == encryption::policy_of(view, ino))
    }

    /// Checks an entry other than the first two.
    pub(super) fn entry(&mut self, record: &Record<'_>, block: u64) {
        let (dir, ino) = (self.dir.ino, record.inode);
        if ino == 0 {
            return;
        }
        if let Some(wanted) = self.wanted {
            if wanted.contains(&ino) && !matches!(record.name, b"." | b"..") {
                self.names.push((ino, record.name.to_vec()));
            }
            return;
        }
        let name = || record.name.to_vec();
        if matches!(record.name, b"." | b"..") {
            return self.emit(Issue::DuplicateDot { dir, block, offset: record.offset });
        }
        let encrypted = self.has(InodeFlags::ENCRYPT);
        let is_name =
            !record.name.is_empty() && (encrypted || !record.name.iter().any(|&b| b == b'/' || b == 0));
        let short = encrypted && record.name.len() < SHORTEST_ENCRYPTED;
        if !is_name || short {
            self.emit(Issue::EntryName { dir, block, offset: record.offset, name: name() });
            if short {
                return;
            }
        }
        if self.folder.is_some() && str::from_utf8(record.name).is_err() {
            self.emit(Issue::EntryEncoding { dir, name: name(), ino });
        }
        if ino == ROOT {
            return self.emit(Issue::EntryRoot { dir, name: name() });
        }
        if ino == dir || ino > self.view.sb.inodes_count || self.view.is_own(ino) {
            return self.emit(Issue::EntryInode { dir, name: name(), found: ino });
        }
        let Some(slot) = self.state.slot(ino).filter(|slot| slot.is_used()) else {
            return self.emit(match self.view.group_that_hides(ino) {
                Some(group) => Issue::HiddenInode { group, ino },
                None => Issue::EntryUnused { dir, name: name(), ino },
            });
        };
        if slot.marks.contains(Marks::VALUE) {
            return self.emit(Issue::EntryInode { dir, name: name(), found: ino });
        }
        slot.add_name();
        let is_foreign = encrypted && matches!(slot.kind, 1 | 2 | 7) && !self.shares_policy(ino, slot.marks);
        if is_foreign {
            return self.emit(Issue::EntryEncryption { dir, name: name(), ino });
        }
        self.file_type(record, ino);
        if slot.kind == 2
            && let Some(child) = self.state.dir(ino)
        {
            child.set_parent(dir);
        }
        if let Some(tree) = &mut self.tree {
            tree.name(record.name);
        }
        let folded = self.folder.as_mut().and_then(|folder| folder.fold(record.name));
        self.hashes.push((hash(folded.unwrap_or(record.name)), record.offset));
    }

    /// Checks whether the entry contains the type of inode `ino`.
    fn file_type(&mut self, record: &Record<'_>, ino: u32) {
        let expected = if self.view.sb.incompat.contains(Incompat::FILETYPE) {
            match self.state.slot(ino) {
                Some(slot) if slot.is_used() => slot.kind,
                _ => return,
            }
        } else {
            0
        };
        if record.file_type != expected {
            let (dir, name, found) = (self.dir.ino, record.name.to_vec(), record.file_type);
            self.emit(match found {
                0 => Issue::EntryTypeMissing { dir, name, ino, expected },
                _ => Issue::EntryType { dir, name, ino, found, expected },
            });
        }
    }
}

/// FNV-1a: names with different hashes differ.
fn hash(name: &[u8]) -> u64 {
    name.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
