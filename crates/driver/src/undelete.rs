//! Finding deleted files.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::{ControlFlow, Range};

use obento_base::{Error, Result, Timestamp};
use obento_block::BlockDevice;

/// Finds files that were deleted from a volume.
///
/// The search writes nothing. For any contents of the device, time and memory are bounded by the size of the device.
pub trait Undelete: Send + Sync {
    /// Passes each deleted regular file of the volume on `device` to `found`, until `found` breaks.
    ///
    /// Skips damaged parts of the volume. Returns the parts of directories that were skipped, at most the
    /// first [`Unsearched::MOST`]. A driver that finds deleted files without searching directories returns an
    /// empty list (ext4).
    ///
    /// # Errors
    ///
    /// - `Corrupt`: no usable super block exists.
    /// - `Unsupported`: the volume uses a feature that the search does not support.
    fn deleted(
        &self,
        device: &Arc<dyn BlockDevice>,
        found: &mut dyn FnMut(DeletedFile) -> ControlFlow<()>,
    ) -> Result<Vec<Unsearched>>;
}

/// A part of a directory that was not searched for deleted files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unsearched {
    /// The path of the directory from the root, without a leading `/`.
    pub directory: Vec<u8>,
    /// The reason.
    pub reason: UnsearchedReason,
}

impl Unsearched {
    /// The maximum number of parts that a search returns.
    pub const MOST: usize = 16;

    /// Adds a part to `list`, unless the list is full or already contains it.
    pub fn note(list: &mut Vec<Self>, directory: &[u8], reason: UnsearchedReason) {
        let part = Self { directory: directory.to_vec(), reason };
        if list.len() < Self::MOST && !list.contains(&part) {
            list.push(part);
        }
    }
}

/// The reason why a part of a directory was not searched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnsearchedReason {
    /// The device failed.
    Device(Error),
    /// The directory ends before its stated length, because its cluster chain is damaged.
    Chain,
    /// A cluster of the directory also belongs to another directory.
    Shared,
    /// The directory is longer than the format allows.
    TooLong,
    /// An entry of the directory is damaged. If the entry is a subdirectory, the subdirectory was not
    /// searched.
    Entry,
    /// The directory was deleted, and the start of its space belongs to another file now.
    Overwritten,
    /// The directory was deleted, and a part of its space belongs to another file now.
    PartlyOverwritten,
    /// The directory was deleted, and its end was not found. Its entries may fill its space exactly.
    NoEnd,
}

impl UnsearchedReason {
    /// Returns whether the part may not exist: the directory may be complete, or contained no deleted files.
    pub fn is_uncertain(self) -> bool {
        matches!(self, Self::Overwritten | Self::PartlyOverwritten | Self::NoEnd)
    }
}

impl fmt::Display for UnsearchedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => error.fmt(f),
            Self::Chain => f.write_str("its chain of clusters is damaged"),
            Self::Shared => f.write_str("a cluster also belongs to another directory"),
            Self::TooLong => f.write_str("it is longer than the format allows"),
            Self::Entry => f.write_str("an entry is damaged"),
            Self::Overwritten => f.write_str("the start of this deleted directory was overwritten"),
            Self::PartlyOverwritten => f.write_str("a part of this deleted directory was overwritten"),
            Self::NoEnd => f.write_str("the end of this deleted directory was not found"),
        }
    }
}

/// A regular file that was deleted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeletedFile {
    /// The path from the root, without a leading `/`. The character `_` replaces each lost character. A lost name is
    /// replaced by `#` and the number of the inode.
    pub path: Vec<u8>,
    /// The length in bytes.
    pub size: u64,
    /// The time of the last change, if it is known.
    pub modified: Option<Timestamp>,
    /// The ranges of the device that contain the data, in bytes and in the order of the file. Their total
    /// length may be greater than `size`, because the last block is complete, or smaller, if not all data was
    /// found.
    pub extents: Vec<Range<u64>>,
    /// The ranges of the file without data, which read as zeros, in bytes of the file and in ascending order.
    /// The extents contain the other bytes.
    pub holes: Vec<Range<u64>>,
    /// The likelihood that the extents contain the data of the file.
    pub certainty: Certainty,
}

/// The likelihood that the extents of a deleted file contain its data, in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Certainty {
    /// The start of the space of the file is in use by another file, or the location of the space is lost.
    Overwritten,
    /// A part of the space is in use, belongs to another deleted file as well, or was not found. Or no file with this
    /// extension begins with the bytes that were found.
    Doubtful,
    /// All of the space is free, but its location was chosen among several places.
    Possible,
    /// All of the space is free, but the location of the space is a guess or may be outdated.
    Likely,
    /// The file is empty, or all of the space is free and the location of the space is recorded.
    Certain,
}

impl Certainty {
    /// Returns the name: `overwritten`, `doubtful`, `possible`, `likely` or `certain`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Overwritten => "overwritten",
            Self::Doubtful => "doubtful",
            Self::Possible => "possible",
            Self::Likely => "likely",
            Self::Certain => "certain",
        }
    }
}
