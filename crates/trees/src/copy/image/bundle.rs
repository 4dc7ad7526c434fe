//! Creates small files in batches, for drivers with a high cost per call.
//!
//! Invariant: all waiting files belong to the writer's current directory. They are created before any other
//! change.

use std::ops::Range;

use obento_base::{FileKind, Name, NameBuf, Timestamp};
use obento_driver::{NEW_FILE_MAX, NewFile, NewNode, StoredProperties};
use obento_host::Metadata;
use obento_host::tree::Keep;

use super::slot::Slot;
use super::{ImageWriter, OWNER};
use crate::copy::{Problem, ProblemReason};

/// Maximum number of files that wait.
const FILES: usize = 512;
/// Maximum number of bytes that wait, without those of the last file.
const BYTES: usize = 3 << 20;

/// The times in seconds that every format with batches and owners can store: the positive 31-bit `time_t`,
/// without the last value. Other times are set one by one, where a loss is noticed.
const TIMES: Range<i64> = 1..i32::MAX as i64;

fn is_held_everywhere(time: Timestamp) -> bool {
    time == Timestamp::EPOCH || TIMES.contains(&time.secs())
}

/// A waiting file.
struct Waiting {
    name: NameBuf,
    node: NewNode<'static>,
    /// The range of its bytes in the common buffer.
    bytes: Range<usize>,
    times: Option<(Timestamp, Timestamp)>,
}

/// The waiting files, and the problems of earlier ones.
#[derive(Default)]
pub(super) struct Bundle {
    files: Vec<Waiting>,
    bytes: Vec<u8>,
    late: Vec<Problem>,
}

impl Bundle {
    /// Returns the problems of files that waited.
    pub fn late_problems(&mut self) -> Vec<Problem> {
        std::mem::take(&mut self.late)
    }
}

impl ImageWriter {
    /// As [`TreeSink::create_later`](crate::copy::tree_sink::TreeSink::create_later).
    pub(super) fn add_to_bundle(
        &mut self,
        name: &Name,
        meta: &Metadata<'_>,
        bytes: &[u8],
    ) -> Result<bool, ProblemReason> {
        if !self.can_wait(meta, bytes) {
            return Ok(false);
        }
        // Whether the name is free is known only after the waiting files are created.
        if self.waits(name) {
            self.make_waiting();
        }
        let slot = self.slot(name, FileKind::Regular, meta)?;
        if !matches!(slot, Slot::Free) {
            return Ok(false);
        }
        self.take_entry(name)?;
        let node = self.new_node(FileKind::Regular, meta, &slot);
        let times = self.options.keep.contains(Keep::TIMES).then_some((meta.atime, meta.mtime));
        let start = self.bundle.bytes.len();
        self.bundle.bytes.extend_from_slice(bytes);
        let bytes = start..self.bundle.bytes.len();
        self.report.bytes = self.report.bytes.saturating_add(bytes.len() as u64);
        self.bundle.files.push(Waiting { name: name.to_buf(), node, bytes, times });
        self.note_name(name);
        if self.bundle.files.len() >= FILES || self.bundle.bytes.len() >= BYTES {
            self.make_waiting();
        }
        Ok(true)
    }

    /// Returns whether a file has only the properties of a [`NewFile`], and the driver creates many files at
    /// once.
    fn can_wait(&self, meta: &Metadata<'_>, bytes: &[u8]) -> bool {
        let inherits = self.top().inherits;
        self.vfs.flushed_file_system().bulk().is_some()
            && !inherits.acl
            && !inherits.group
            && !self.created.returns
            && bytes.len() <= NEW_FILE_MAX
            && !meta.xattrs.iter().any(|xattr| self.options.keep.includes(xattr))
            && self.limits.keeps.contains(StoredProperties::OWNERS | StoredProperties::MODES)
            && self.limits.fits_owner(meta.uid, meta.gid)
            && (!self.options.keep.contains(Keep::TIMES)
                || [meta.atime, meta.mtime].into_iter().all(is_held_everywhere))
            && self.report.bytes.saturating_add(self.xattr_bytes).saturating_add(bytes.len() as u64)
                <= self.options.max_bytes
    }

    /// Returns whether a file waits with this name, or with a name that some formats treat as the same.
    fn waits(&self, name: &Name) -> bool {
        let mut waiting = self.bundle.files.iter().map(|file| file.name.as_bytes());
        waiting.any(|other| other.eq_ignore_ascii_case(name.as_bytes()))
    }

    /// Creates the waiting files.
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
        // The buffer is reused.
        bytes.clear();
        self.bundle.bytes = bytes;
    }
}
