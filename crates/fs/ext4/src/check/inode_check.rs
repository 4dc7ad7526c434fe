//! Pass 1: the state of checking one inode.

use alloc::vec::Vec;

use obento_base::FileKind;
use obento_base::wire::join;

use super::budget::InodeBudget;
use super::issue::Issue;
use super::part::GroupResults;
use super::state::{CheckState, DirRun, Marks};
use super::view::View;
use crate::inode::InodeFlags;
use crate::raw::{RawInode, RawInodeExtra};
use crate::unit::VolBlock;

/// Maximum number of issues of one inode that are reported.
const MAX_TOLD: u32 = 16;
/// Maximum number of blocks of one inode shared with other files that are reported.
const MAX_TWICE: u32 = 64;
/// The resize inode claims only the doubly indirect block; the blocks below it are reserved for descriptors.
pub(super) const RESIZE_INO: u32 = 7;

/// Whether blocks are claimed, or those that were claimed twice are reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    Claim,
    FindTwice,
}

/// The blocks that an inode owns.
#[derive(Debug, Default)]
pub(super) struct Owned {
    /// Number of clusters, including those of trees.
    pub(super) clusters: u64,
    /// The file block after the last mapped one.
    pub(super) end: u64,
    /// The last written file block.
    pub(super) last_written: Option<u64>,
    /// The volume block that was mapped last, and the file block after it.
    pub(super) previous: u64,
    pub(super) next: u64,
    pub(super) illegal: u32,
    /// The runs of a directory.
    pub(super) runs: Vec<DirRun>,
    pub(super) keep_runs: bool,
    pub(super) is_resize: bool,
}

impl Owned {
    /// Creates a state with only `clusters`. The runs are stored if `keep_runs` is set.
    pub(super) fn new(clusters: u64, keep_runs: bool) -> Self {
        Self { clusters, keep_runs, ..Self::default() }
    }
}

/// The state of checking an inode.
pub(super) struct InodeCheck<'a> {
    pub(super) view: &'a View,
    pub(super) state: &'a CheckState,
    pub(super) part: &'a mut GroupResults,
    pub(super) mode: Mode,
    pub(super) ino: u32,
    pub(super) raw: RawInode,
    pub(super) extra: Option<RawInodeExtra>,
    pub(super) record: &'a [u8],
    /// Block of the inode table.
    pub(super) place: VolBlock,
    pub(super) seed: u32,
    pub(super) reported: u32,
    pub(super) marks: Marks,
    /// Number of attribute values in inodes of their own.
    pub(super) values: u64,
    pub(super) allowance: InodeBudget,
}

impl InodeCheck<'_> {
    /// Reports an issue, in the first round and up to the maximum.
    pub(super) fn emit(&mut self, issue: Issue) {
        if self.mode == Mode::Claim && self.reported < MAX_TOLD {
            self.reported = self.reported.saturating_add(1);
            self.part.issues.push(issue);
        }
    }

    /// Reports a block that was claimed twice.
    pub(super) fn report_twice(&mut self, issue: Issue) {
        if self.reported < MAX_TWICE {
            self.reported = self.reported.saturating_add(1);
            self.part.issues.push(issue);
        }
    }

    /// Reports an issue that makes the whole inode doubtful.
    pub(super) fn report_bad(&mut self, issue: Issue) {
        self.marks |= Marks::BAD;
        self.emit(issue);
    }

    pub(super) fn has(&self, flags: InodeFlags) -> bool {
        InodeFlags::from_bits_retain(self.raw.i_flags.get()).contains(flags)
    }

    pub(super) fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(self.raw.i_mode.get())
    }

    pub(super) fn is_dir(&self) -> bool {
        self.kind() == Some(FileKind::Directory)
    }

    /// Returns whether it may contain an attribute value. A missing feature does not exclude that, since the feature
    /// may be wrong.
    pub(super) fn is_value(&self) -> bool {
        self.has(InodeFlags::EA_INODE) && self.kind() == Some(FileKind::Regular)
    }

    /// Returns the size. Directories without `large_dir` use only the low half.
    pub(super) fn size(&self) -> u64 {
        join(self.raw.i_size_lo.get(), self.raw.i_size_high.get())
    }
}
