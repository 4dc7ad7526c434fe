//! Small files that are made together, for drivers to which a call is dear.
//!
//! Invariant: those that wait are of the directory in which the writer stands, and are made before anything else is.

use std::ops::Range;

use obento_base::{FileKind, Name, NameBuf, Timestamp};
use obento_driver::{Keeps, NEW_FILE_MAX, NewFile, NewNode};
use obento_host::Metadata;
use obento_host::tree::Keep;

use super::slot::Slot;
use super::{ImageWriter, OWNER};
use crate::copy::{Problem, Trouble};

/// The most files that wait.
const FILES: usize = 512;
/// Bytes that wait at most, but for the last file's.
const BYTES: usize = 3 << 20;

/// Seconds that every format holds which takes files together and keeps their owners: those of `time_t` as it began, in 31 bits, but for the first and the
/// last. What becomes of other times is seen when they are set.
const TIMES: Range<i64> = 1..i32::MAX as i64;

fn is_held_everywhere(time: Timestamp) -> bool {
    time == Timestamp::EPOCH || TIMES.contains(&time.secs())
}

/// A file that waits.
struct Waiting {
    name: NameBuf,
    node: NewNode<'static>,
    /// Where its bytes are among those of all.
    bytes: Range<usize>,
    times: Option<(Timestamp, Timestamp)>,
}

/// Them, and what went wrong with those before.
#[derive(Default)]
pub(super) struct Bundle {
    files: Vec<Waiting>,
    bytes: Vec<u8>,
    late: Vec<Problem>,
}

impl ImageWriter {
    /// Makes a regular file of `bytes` with others that follow; what goes wrong with it is told by
    /// [`late_problems`](Self::late_problems). False where it has to be made by itself.
    pub fn file_later(&mut self, name: &Name, meta: &Metadata<'_>, bytes: &[u8]) -> Result<bool, Trouble> {
        if !self.can_wait(meta, bytes) {
            return Ok(false);
        }
        // Whether the name is free is known once those that wait are there.
        if self.waits(name) {
            self.make_waiting();
        }
        let slot = self.slot(name, FileKind::Regular, meta)?;
        if !matches!(slot, Slot::Free) {
            return Ok(false);
        }
        let node = self.new_node(FileKind::Regular, meta, &slot);
        let times = self.options.keep.contains(Keep::TIMES).then_some((meta.atime, meta.mtime));
        let start = self.bundle.bytes.len();
        self.bundle.bytes.extend_from_slice(bytes);
        let bytes = start..self.bundle.bytes.len();
        self.report.bytes += bytes.len() as u64;
        self.bundle.files.push(Waiting { name: name.to_buf(), node, bytes, times });
        self.note_name(name);
        if self.bundle.files.len() >= FILES || self.bundle.bytes.len() >= BYTES {
            self.make_waiting();
        }
        Ok(true)
    }

    /// Whether there is nothing to a file but what a [`NewFile`] has, and somebody who makes many of them at once.
    fn can_wait(&self, meta: &Metadata<'_>, bytes: &[u8]) -> bool {
        let inherits = self.top().inherits;
        self.vfs.file_system().bulk().is_some()
            && !inherits.acl
            && !inherits.group
            && !self.created.returns
            && bytes.len() <= NEW_FILE_MAX
            && (meta.xattrs.is_empty() || !self.options.keep.contains(Keep::XATTRS))
            && self.limits.keeps.contains(Keeps::OWNERS | Keeps::MODES)
            && self.limits.fits_owner(meta.uid, meta.gid)
            && (!self.options.keep.contains(Keep::TIMES)
                || [meta.atime, meta.mtime].into_iter().all(is_held_everywhere))
            && self.report.bytes.saturating_add(bytes.len() as u64) <= self.options.max_bytes
    }

    /// Whether a file of this name waits, or of one that some formats take for it.
    fn waits(&self, name: &Name) -> bool {
        let mut waiting = self.bundle.files.iter().map(|file| file.name.as_bytes());
        waiting.any(|other| other.eq_ignore_ascii_case(name.as_bytes()))
    }

    /// Makes the files that wait.
    pub fn make_waiting(&mut self) {
        let files = std::mem::take(&mut self.bundle.files);
        let mut bytes = std::mem::take(&mut self.bundle.bytes);
        if files.is_empty() {
            return;
        }
        let new: Vec<_> = files
            .iter()
            .map(|file| NewFile {
                name: &file.name,
                node: file.node,
                bytes: bytes.get(file.bytes.clone()).unwrap_or_default(),
                atime: file.times.map(|(atime, _)| atime),
                mtime: file.times.map(|(_, mtime)| mtime),
            })
            .collect();
        let made = self.vfs.create_files(OWNER, &self.top().node, &new);
        for (file, made) in files.iter().zip(made) {
            match made {
                Ok(()) => self.report.files += 1,
                Err(error) => {
                    self.report.bytes -= file.bytes.len() as u64;
                    let trouble = self.made_before(&file.name, error);
                    self.bundle.late.push(Problem { path: self.path(Some(&file.name)), trouble });
                }
            }
        }
        // The memory is used again.
        bytes.clear();
        self.bundle.bytes = bytes;
    }

    /// What went wrong with files that waited.
    pub fn late_problems(&mut self) -> Vec<Problem> {
        std::mem::take(&mut self.bundle.late)
    }
}
