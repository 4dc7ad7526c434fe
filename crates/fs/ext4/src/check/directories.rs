//! Pass 2: every block of every directory, and every entry in it.
//!
//! Source: e2fsprogs `e2fsck/pass2.c` `check_dir_block`, `check_dot`, `check_dotdot`, `check_filetype`,
//! `encoded_check_name`.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes, to_usize};
use obento_base::{Corrupt, Error, Ino};

use super::budget::InodeBudget;
use super::events::EventSink;
use super::htree::{CheckedIndex, IndexBlockKind};
use super::issue::Issue;
use super::parallel::each_part;
use super::reason::DotName;
use super::state::{CheckState, Dir, DirRun};
use super::view::View;
use crate::checksum::Crc;
use crate::dir::{Fold, Folder, Record, Records, UTF8_12_1};
use crate::feature::{Compat, Incompat};
use crate::inode::InodeFlags;
use crate::raw::{RawDirEntry, RawDirTail};
use crate::unit::VolBlock;

/// Number of directories that a thread takes at a time.
const SHARE: usize = 64;
/// Number of blocks that are read at once.
const BATCH: u64 = 64;
/// Maximum average number of steps to the root for choosing between the names of a directory.
const STEPS_PER_DIRECTORY: usize = 64;
/// Maximum number of issues of one directory that are reported.
const MAX_TOLD: usize = 1000;
pub(super) const ROOT: u32 = 2;
/// Size of a record before its name.
const HEAD: usize = size_of::<RawDirEntry>();
/// `file_type` of the record that contains a checksum.
const CHECKSUM_KIND: u8 = 0xde;

/// Checks all directories.
pub(super) fn check(view: &Arc<View>, state: &Arc<CheckState>, threads: u32, reported: &mut EventSink<'_>) {
    let shares = state.dirs.len().div_ceil(SHARE);
    let shares = u32::try_from(shares).unwrap_or(u32::MAX);
    let work = {
        let (view, state) = (Arc::clone(view), Arc::clone(state));
        Arc::new(move |share: u32| {
            let first = to_usize(share.into()).saturating_mul(SHARE);
            let mut issues = Vec::new();
            let mut bytes = Vec::new();
            for dir in state.dirs.iter().skip(first).take(SHARE) {
                let mut look = DirectoryCheck::new(&view, &state, dir);
                look.all(&mut bytes);
                issues.append(&mut look.issues);
            }
            issues
        })
    };
    each_part(threads, shares, &work, |share, issues: Vec<Issue>| {
        issues.into_iter().for_each(|issue| reported.found(issue));
        reported.progress("directories", share.saturating_add(1).into(), shares.into());
    });
    report_twice(view, state, reported);
}

/// Reports all names but one of directories that have several. The name in the directory that `..` refers to is kept,
/// or the first name if that directory has none.
fn report_twice(view: &View, state: &CheckState, reported: &mut EventSink<'_>) {
    let twice: Vec<&Dir> = state.dirs.iter().filter(|dir| dir.is_twice()).collect();
    let wanted: BTreeSet<u32> = twice.iter().map(|dir| dir.ino).collect();
    if wanted.is_empty() {
        return;
    }
    let mut bytes = Vec::new();
    let mut names_of = |dir: &Dir| {
        let mut look = DirectoryCheck::new(view, state, dir);
        look.wanted = Some(&wanted);
        look.all(&mut bytes);
        look.names
    };
    let parents: BTreeSet<u32> = twice.iter().map(|dir| dir.dot_dot()).collect();
    let mut pairs = BTreeSet::new();
    for parent in parents.iter().filter_map(|&parent| state.dir(parent)) {
        pairs.extend(names_of(parent).into_iter().map(|(ino, _)| (ino, parent.ino)));
    }
    let mut steps = state.dirs.len().saturating_mul(STEPS_PER_DIRECTORY);
    for dir in twice {
        let parent = dir.dot_dot();
        if pairs.contains(&(dir.ino, parent)) && leads_to_root(state, parent, dir.ino, &mut steps) {
            dir.choose_parent(parent);
        }
    }
    let mut seen = BTreeSet::new();
    for dir in &state.dirs {
        for (ino, name) in names_of(dir) {
            let is_kept = state.dir(ino).is_some_and(|child| child.parent() == dir.ino) && seen.insert(ino);
            if !is_kept {
                reported.found(Issue::DirectoryTwice { dir: dir.ino, name, ino });
            }
        }
    }
}

/// Returns whether the path from `dir` to the root does not contain `below`. Returns false when `steps` are used up.
fn leads_to_root(state: &CheckState, dir: u32, below: u32, steps: &mut usize) -> bool {
    let mut at = dir;
    while at != ROOT && at != below && *steps > 0 {
        *steps = steps.saturating_sub(1);
        let Some(dir) = state.dir(at) else { return false };
        at = dir.parent();
    }
    at == ROOT
}

/// The state of checking a directory.
pub(super) struct DirectoryCheck<'a> {
    pub(super) view: &'a View,
    pub(super) state: &'a CheckState,
    pub(super) dir: &'a Dir,
    issues: Vec<Issue>,
    /// Hashes of the names of a block, with their offsets.
    pub(super) hashes: Vec<(u64, u32)>,
    pub(super) tree: Option<CheckedIndex>,
    /// If set, only entries that refer to one of these directories are collected, and nothing is reported or counted.
    pub(super) wanted: Option<&'a BTreeSet<u32>>,
    pub(super) names: Vec<(u32, Vec<u8>)>,
    /// Its encryption, once an entry needed it.
    pub(super) policy: Option<Option<Vec<u8>>>,
    /// Set if names must be UTF-8 and are compared without case.
    pub(super) folder: Option<Folder>,
    allowance: InodeBudget,
}

impl<'a> DirectoryCheck<'a> {
    fn new(view: &'a View, state: &'a CheckState, dir: &'a Dir) -> Self {
        let (issues, hashes, names) = (Vec::new(), Vec::new(), Vec::new());
        let allowance =
            if dir.ino == ROOT { InodeBudget::of_root(&state.budget) } else { InodeBudget::new() };
        let folder = is_strict(view, dir).then(Folder::default);
        Self {
            view,
            state,
            dir,
            issues,
            hashes,
            tree: None,
            wanted: None,
            names,
            policy: None,
            folder,
            allowance,
        }
    }

    pub(super) fn emit(&mut self, issue: Issue) {
        if self.wanted.is_none() && self.issues.len() < MAX_TOLD {
            self.issues.push(issue);
        }
    }

    pub(super) fn has(&self, flag: InodeFlags) -> bool {
        InodeFlags::from_bits_retain(self.dir.flags).contains(flag)
    }

    fn all(&mut self, bytes: &mut Vec<u8>) {
        if self.has(InodeFlags::INLINE_DATA) {
            return self.inline();
        }
        let sb = &self.view.sb;
        let indexed = self.has(InodeFlags::INDEX) && sb.compat.contains(Compat::DIR_INDEX);
        let mut next = 0;
        let dir = self.dir;
        for run in &dir.runs {
            if run.at > next {
                self.emit(Issue::DirectoryHole { dir: dir.ino, at: next });
            }
            self.run(run, indexed, bytes);
            next = run.at.saturating_add(run.len.into());
        }
        if dir.runs.first().is_some_and(|run| run.at > 0) {
            self.emit(Issue::Dot { dir: dir.ino, block: 0, name: DotName::Dot, why: "is missing" });
        }
        if let Some(tree) = self.tree.take() {
            let mut issues = Vec::new();
            tree.check(dir, &mut |issue| issues.push(issue));
            issues.into_iter().for_each(|issue| self.emit(issue));
        }
    }

    fn run(&mut self, run: &DirRun, indexed: bool, bytes: &mut Vec<u8>) {
        let size = to_usize(self.view.sb.block_size.into());
        let (len, mut done) = (u64::from(run.len), 0);
        while done < len {
            let count = len.saturating_sub(done).min(BATCH);
            let start = VolBlock(run.start.0.saturating_add(done));
            if run.is_shared && !self.allowance.blocks(&self.state.budget, count) {
                return self.emit(Issue::TooManyIllegal { ino: self.dir.ino });
            }
            let mut place = (start.0, run.at.saturating_add(done));
            match self.view.read_into(start, count, bytes) {
                Ok(()) => {
                    for block in bytes.chunks_exact(size) {
                        self.block(block, place.0, place.1, indexed);
                        place = (place.0.saturating_add(1), place.1.saturating_add(1));
                    }
                }
                Err(why) => self.emit(Issue::DirectoryUnreadable { dir: self.dir.ino, block: start.0, why }),
            }
            done = done.saturating_add(count);
        }
    }

    /// Checks block `number`, which is file block `at`.
    fn block(&mut self, bytes: &[u8], number: u64, at: u64, indexed: bool) {
        if indexed {
            if at == 0 {
                let mut issues = Vec::new();
                self.tree = CheckedIndex::root(self.view, self.dir, bytes, &mut |issue| issues.push(issue));
                issues.into_iter().for_each(|issue| self.emit(issue));
                self.records(bytes, number, at, false);
                return;
            }
            if let Some(tree) = &mut self.tree {
                let mut issues = Vec::new();
                let kind = tree.block(self.view, self.dir, bytes, at, &mut |issue| issues.push(issue));
                issues.into_iter().for_each(|issue| self.emit(issue));
                if kind == IndexBlockKind::Node {
                    return;
                }
            }
        }
        self.leaf_checksum(bytes, number);
        self.records(bytes, number, at, true);
    }

    fn leaf_checksum(&mut self, bytes: &[u8], block: u64) {
        if !self.view.sb.has_metadata_csum() {
            return;
        }
        let dir = self.dir.ino;
        if !self.has_tail(bytes) {
            return self.emit(Issue::DirectoryNoTail { dir, block });
        }
        let Ok((covered, tail)) = RawDirTail::ref_from_suffix(bytes) else { return };
        let (found, expected) = (tail.det_checksum.get(), Crc::new(self.dir.seed).add(covered).get());
        if found != expected {
            self.emit(Issue::DirectoryChecksum { dir, block, found, expected });
        }
    }

    /// Returns whether a block ends with a record that looks like that of a checksum.
    fn has_tail(&self, bytes: &[u8]) -> bool {
        let is_tail = |tail: &RawDirTail| {
            tail.det_reserved_zero1.get() == 0
                && tail.det_rec_len.get() == 12
                && tail.det_reserved_zero2 == 0
                && tail.det_reserved_ft == CHECKSUM_KIND
        };
        let has_sums = self.view.sb.has_metadata_csum();
        has_sums && RawDirTail::ref_from_suffix(bytes).is_ok_and(|(_, tail)| is_tail(tail))
    }

    /// Checks the records of a block. `is_leaf` is whether it is a leaf of the directory; only leaves end with a
    /// checksum.
    fn records(&mut self, bytes: &[u8], block: u64, at: u64, is_leaf: bool) {
        let records = self.run_of(bytes, block, 0, at == 0);
        self.hashes.clear();
        if let Some(tree) = &mut self.tree {
            tree.begin(at);
        }
        let (mut last, mut whole) = (0, true);
        for (position, record) in (0_u32..).zip(records.walk()) {
            let record = match record {
                Ok(record) => record,
                Err(error) => {
                    let (offset, rec_len) = bad_record(&error);
                    self.emit(Issue::DirectoryRecord { dir: self.dir.ino, block, offset, rec_len });
                    if at == 0 && position < 2 {
                        let name = if position == 0 { DotName::Dot } else { DotName::DotDot };
                        self.emit(Issue::Dot { dir: self.dir.ino, block, name, why: "cannot be read" });
                    }
                    whole = false;
                    break;
                }
            };
            last = record.offset;
            if at == 0 && position < 2 && !is_followed_by_zero(bytes, &record) {
                let name = if position == 0 { DotName::Dot } else { DotName::DotDot };
                self.emit(Issue::Dot {
                    dir: self.dir.ino,
                    block,
                    name,
                    why: "does not end with a zero byte",
                });
            }
            match (at, position) {
                (0, 0) => self.dot(&record, block),
                (0, 1) => self.dot_dot(&record, block),
                _ => self.entry(&record, block),
            }
        }
        if at == 0 && whole && last == 0 {
            self.emit(Issue::Dot { dir: self.dir.ino, block, name: DotName::DotDot, why: "is missing" });
        }
        let tail = bytes.len().saturating_sub(size_of::<RawDirTail>());
        if whole && is_leaf && self.has_tail(bytes) && to_usize(last.into()) != tail {
            self.emit(Issue::DirectoryNoTail { dir: self.dir.ino, block });
        }
        self.duplicates(&records, block);
    }

    pub(super) fn run_of<'b>(&self, bytes: &'b [u8], block: u64, base: u32, starts: bool) -> Records<'b> {
        let dir = Ino(self.dir.ino.into());
        Records { dir, block, base, bytes, block_size: self.view.sb.block_size.bytes(), starts }
    }

    /// Returns the form in which names are compared, as by e2fsck: without case only in strict directories.
    fn folded(&mut self, name: &[u8]) -> Vec<u8> {
        let folded = self.folder.as_mut().and_then(|folder| folder.fold(name));
        folded.unwrap_or(name).to_vec()
    }

    /// Reports names that occur twice in a block.
    pub(super) fn duplicates(&mut self, records: &Records<'_>, block: u64) {
        self.hashes.sort_unstable();
        let pairs: Vec<(u32, u32)> = {
            let next = self.hashes.iter().skip(1);
            let same = self.hashes.iter().zip(next).filter(|(one, next)| one.0 == next.0);
            same.map(|(one, next)| (one.1, next.1)).collect()
        };
        for (one, next) in pairs {
            if let (Ok(one), Ok(next)) = (records.at(one), records.at(next))
                && self.folded(one.name) == self.folded(next.name)
            {
                self.emit(Issue::DuplicateName { dir: self.dir.ino, block, name: one.name.to_vec() });
            }
        }
    }
}

/// Returns whether names of a directory must be UTF-8. Encrypted names are not examined.
fn is_strict(view: &View, dir: &Dir) -> bool {
    let (sb, flags) = (&view.sb, InodeFlags::from_bits_retain(dir.flags));
    let folds = sb.incompat.contains(Incompat::CASEFOLD) && sb.raw.s_encoding.get() == UTF8_12_1;
    let is_meant = flags.contains(InodeFlags::CASEFOLD) && !flags.contains(InodeFlags::ENCRYPT);
    folds && is_meant && Fold::from_flags(sb.raw.s_encoding_flags.get()).strict
}

/// Returns whether `.` or `..` is followed by a zero, as every system writes it. Other names are reported elsewhere.
fn is_followed_by_zero(bytes: &[u8], record: &Record<'_>) -> bool {
    let end = to_usize(record.offset.into()).saturating_add(HEAD).saturating_add(record.name.len());
    record.inode == 0 || !matches!(record.name, b"." | b"..") || bytes.get(end).is_none_or(|&byte| byte == 0)
}

/// Returns the place of a damaged record, and its stored length.
pub(super) fn bad_record(error: &Error) -> (u32, u32) {
    match error {
        Error::Corrupt(Corrupt::RecordLength { offset, rec_len, .. }) => (*offset, *rec_len),
        _ => (0, 0),
    }
}
