//! The entries that are lost or doubtful.

use std::ops::Range;

use obento::base::{Attr, FileKind, Ino, Mode};
use obento::copy::{Admission, CopySource};
use obento::env::{Clock as _, SystemClock};
use obento::walk::Walk;

use super::Recovery;
use crate::commands::recover::shared::SharedBlocks;
use crate::commands::recover::verify::is_of_inode;
use crate::open::join;

/// The end of the reason for an inode whose attributes are arbitrary bytes.
pub(super) const NOT_APPLIED: &str = "; its owner, permissions and times were not applied";

/// Gives an entry the attributes of a new private file of this process.
pub(super) fn replace_attributes(attr: &mut Attr) {
    let now = SystemClock.now();
    attr.mode = Mode::new(if attr.is_dir() { 0o700 } else { 0o600 });
    attr.uid = rustix::process::geteuid().as_raw();
    attr.gid = rustix::process::getegid().as_raw();
    (attr.atime, attr.mtime, attr.ctime) = (now, now, now);
}

/// An entry that could not be read.
pub struct LostEntry {
    pub reason: String,
    /// The inode that cannot be read, if the reason is an error of the inode itself.
    pub ino: Option<Ino>,
    /// The type of the file that a repair of a copy has restored.
    pub restored: Option<FileKind>,
}

impl Recovery<'_> {
    /// Returns whether an entry, or a part of a directory, could not be read.
    pub fn has_lost_entries(&self) -> bool {
        !self.lost_entries.is_empty() || self.directories > 0
    }

    /// Prints the entries that could not be read, and whether the copy of a repair contains them.
    pub fn write_lost(&mut self) {
        for (path, LostEntry { reason, restored, .. }) in std::mem::take(&mut self.lost_entries) {
            let Some(kind) = restored else {
                self.lost += 1;
                self.write_line("lost", None, &path, &reason);
                continue;
            };
            match kind {
                FileKind::Directory => self.directories += 1,
                _ => self.damaged += 1,
            }
            let reason = format!("{reason}; a repair of a copy restored it, and its contents may be wrong");
            self.write_line("damaged", None, &path, &reason);
        }
    }

    /// Reports an entry whose checksum is wrong, unless it was reported before. Returns how the entry is copied: a wrong
    /// checksum of the inode means that its attributes are arbitrary bytes.
    pub(super) fn doubt(&mut self, path: &[u8], attr: &mut Attr) -> Admission {
        let Some(verifier) = &self.verifier else { return Admission::Full };
        let Some(error) = verifier.doubt(attr) else {
            let Some(error) = verifier.doubt_of_xattrs(attr) else { return Admission::Full };
            if self.doubtful.insert(path.to_vec()) {
                self.others += 1;
                self.write_line("attributes", None, path, &error.to_string());
            }
            return Admission::Distrusted;
        };
        let mut reason = error.to_string();
        let admission = match is_of_inode(&error) {
            true => Admission::ContentsOnly,
            false => Admission::Distrusted,
        };
        if admission == Admission::ContentsOnly && self.is_copy {
            reason += NOT_APPLIED;
            replace_attributes(attr);
        }
        if attr.kind == FileKind::Regular
            && let Some(size) = verifier.shorter_size(attr)
        {
            reason += &format!("; the size {} is cut to {size}, the end of the data", attr.size);
            attr.size = size;
        }
        if self.lost_entries.contains_key(path) || !self.doubtful.insert(path.to_vec()) {
            return admission;
        }
        match attr.kind {
            FileKind::Directory => self.directories += 1,
            FileKind::Regular | FileKind::Symlink => self.damaged += 1,
            _ => {
                self.lost_entries
                    .insert(path.to_vec(), LostEntry { reason, ino: Some(attr.ino), restored: None });
                return admission;
            }
        }
        self.write_line("damaged", None, path, &reason);
        admission
    }

    /// Reports the entry of a list whose checksum is wrong, or whose blocks another file uses.
    pub fn list(&mut self, path: &[u8], attr: &Attr) {
        let admission = self.doubt(path, &mut attr.clone());
        self.claim(path, attr, admission);
    }

    /// Reports a file that uses blocks of a file before it. The block map of an inode with a wrong checksum does not count.
    pub(super) fn claim(&mut self, path: &[u8], attr: &Attr, admission: Admission) {
        if admission == Admission::ContentsOnly {
            return;
        }
        let found = self.shared.as_mut().and_then(|shared| shared.add(attr));
        self.report_shared(path, found);
    }

    fn report_shared(&mut self, path: &[u8], found: Option<Range<u64>>) {
        let Some(range) = found.filter(|_| self.doubtful.insert(path.to_vec())) else { return };
        self.damaged += 1;
        self.write_line("damaged", Some(range), path, "another file uses some of these blocks, too");
    }

    /// Reports the files at and below `source` whose blocks a later file uses.
    pub fn report_first_owners(&mut self, source: &CopySource) {
        let Some(shared) = self.shared.take().filter(SharedBlocks::is_any_shared) else { return };
        let top = [&source.prefix[..], &source.path].concat();
        for entry in Walk::new(source.node.clone()).flatten() {
            let path = if entry.path.is_empty() { top.clone() } else { join(&top, &entry.path) };
            let found = shared.shared(&entry.attr);
            self.report_shared(&path, found);
        }
    }
}
