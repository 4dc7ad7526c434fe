//! Comparing two trees, each on the host or in an image, entry by entry.
//!
//! Both sides are walked together, by the bytes of the names; differences are told as they are found, so that memory
//! holds one directory of each side for each level. A hole equals zeros, and where both sides have a hole nothing is
//! read. Damage is told, and the rest is compared.
//!
//! Invariants: a directory is entered once, because one with two names, which only a damaged volume has, would double
//! the work at each level, or lie in itself; depth is bounded; so every comparison ends. Of a directory at most
//! [`MAX_NAMES`] names are compared.

mod bytes;
mod content;
mod entry;
mod place;
mod side;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::iter::Peekable;
use std::ops::ControlFlow;
use std::vec::IntoIter;

use obento_base::{DeviceNumber, FileKind, Ino, Mode, NameBuf, Timestamp};

use crate::copy::join;
use crate::copy::{Problem, Trouble};
use crate::walk::MAX_DEPTH;
pub use bytes::{ByteDifference, diff_bytes};
pub use place::{BytePlace, place_of};
pub use side::DiffSide;
use side::{Directory, Listed, Met};

/// More names than directories have; a hostile one could have more than memory holds.
const MAX_NAMES: usize = 1 << 20;

/// What is compared beside types, link targets and device numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiffOptions {
    /// Bytes of files.
    pub content: bool,
    /// Permission bits.
    pub mode: bool,
    /// Owner and group, by their numbers.
    pub owner: bool,
    /// Times of modification, of all but directories.
    pub times: bool,
    /// Extended attributes.
    pub xattrs: bool,
}

impl DiffOptions {
    /// What `diff -r` compares: types, bytes, link targets.
    pub const CONTENT: Self = Self { content: true, mode: false, owner: false, times: false, xattrs: false };
    /// Everything that a copy keeps.
    pub const ALL: Self = Self { content: true, mode: true, owner: true, times: true, xattrs: true };
}

/// Something that is not the same on both sides: first what the left side has, then the right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Only the left side has the entry.
    OnlyLeft(FileKind),
    /// Only the right side has it.
    OnlyRight(FileKind),
    /// They are of different types; nothing else is compared.
    Kind(FileKind, FileKind),
    /// Lengths in bytes.
    Size(u64, u64),
    /// Files of one length differ, first at this byte.
    Content(u64),
    /// Targets of symbolic links.
    Target(Vec<u8>, Vec<u8>),
    /// Numbers of device nodes.
    Device(DeviceNumber, DeviceNumber),
    /// Permission bits.
    Mode(Mode, Mode),
    /// Owner and group.
    Owner((u32, u32), (u32, u32)),
    /// Times of modification.
    Modified(Timestamp, Timestamp),
    /// The extended attribute of this name; `None` where there is none.
    Xattr(Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>),
}

/// One difference.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Which entry, below the starts; empty for the starts themselves.
    pub path: Vec<u8>,
    /// What is not the same.
    pub change: Change,
}

/// What a comparison found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiffReport {
    /// Entries that both sides have.
    pub compared: u64,
    /// Differences told.
    pub differences: u64,
    /// Problems told: what could not be read was not compared.
    pub problems: u64,
}

/// Takes what a comparison finds, as it finds it, and says whether it wants more.
pub type DiffSink<'s> = dyn FnMut(Result<Difference, Problem>) -> ControlFlow<()> + 's;

/// Compares what is at `left` with what is at `right`. What cannot be read is a [`Problem`], with the path of its
/// side, and the rest follows.
///
/// ```
/// use std::ops::ControlFlow;
/// use obento::{DiffOptions, DiffSide};
///
/// let left = tempfile::tempdir()?;
/// let right = tempfile::tempdir()?;
/// std::fs::write(left.path().join("note"), "old")?;
/// std::fs::write(right.path().join("note"), "new")?;
/// let sides = (DiffSide::Host(left.path().into()), DiffSide::Host(right.path().into()));
/// let report = obento::diff(&sides.0, &sides.1, &DiffOptions::CONTENT, &mut |found| {
///     println!("{:?}", found.unwrap().change); // Content(0)
///     ControlFlow::Continue(())
/// });
/// assert_eq!(report.differences, 1);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn diff(left: &DiffSide, right: &DiffSide, options: &DiffOptions, sink: &mut DiffSink<'_>) -> DiffReport {
    let mut diff = Diff {
        options,
        sink,
        report: DiffReport::default(),
        bases: (left.path(), right.path()),
        path: Vec::new(),
        stack: Vec::new(),
        entered: Default::default(),
        enough: false,
    };
    match (left.start(), right.start()) {
        (Ok(left), Ok(right)) => {
            diff.pair(left, right);
            while !diff.enough && diff.step() {}
        }
        (left, right) => {
            [left.err(), right.err()].into_iter().flatten().for_each(|problem| diff.problem(problem))
        }
    }
    diff.report
}

struct Diff<'a, 's> {
    options: &'a DiffOptions,
    sink: &'a mut DiffSink<'s>,
    report: DiffReport,
    /// Paths of the starts, for messages.
    bases: (&'a [u8], &'a [u8]),
    /// Of the directory on top of the stack, below the starts.
    path: Vec<u8>,
    stack: Vec<Level>,
    /// Directories of images that were entered, by side.
    entered: (HashSet<Ino>, HashSet<Ino>),
    enough: bool,
}

/// A directory that both sides have, under way.
struct Level {
    left: (Directory, Peekable<IntoIter<Listed>>),
    right: (Directory, Peekable<IntoIter<Listed>>),
    path_len: usize,
}

/// The next name of a level, and which sides have it.
enum Next {
    Left(Listed),
    Right(Listed),
    Both(Listed, Listed),
}

impl Level {
    fn next(&mut self) -> Option<Next> {
        let order = match (self.left.1.peek(), self.right.1.peek()) {
            (Some(left), Some(right)) => left.name.cmp(&right.name),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, _) => std::cmp::Ordering::Greater,
        };
        Some(match order {
            std::cmp::Ordering::Less => Next::Left(self.left.1.next()?),
            std::cmp::Ordering::Greater => Next::Right(self.right.1.next()?),
            std::cmp::Ordering::Equal => Next::Both(self.left.1.next()?, self.right.1.next()?),
        })
    }
}

impl Diff<'_, '_> {
    /// Compares the next entry; answers whether there was one.
    fn step(&mut self) -> bool {
        let Some(level) = self.stack.last_mut() else { return false };
        self.path.truncate(level.path_len);
        let Some(next) = level.next() else {
            self.stack.pop();
            return true;
        };
        match next {
            Next::Left(listed) => {
                self.push_name(&listed.name);
                let path = join(self.bases.0, &self.path);
                let met = self.stack.last().map(|level| level.left.0.entry(&listed, path));
                self.only(met, Change::OnlyLeft);
            }
            Next::Right(listed) => {
                self.push_name(&listed.name);
                let path = join(self.bases.1, &self.path);
                let met = self.stack.last().map(|level| level.right.0.entry(&listed, path));
                self.only(met, Change::OnlyRight);
            }
            Next::Both(left, right) => {
                self.push_name(&left.name);
                let paths = (join(self.bases.0, &self.path), join(self.bases.1, &self.path));
                let Some(level) = self.stack.last() else { return false };
                match (level.left.0.entry(&left, paths.0), level.right.0.entry(&right, paths.1)) {
                    (Ok(left), Ok(right)) => self.pair(left, right),
                    (left, right) => self.problems([left.err(), right.err()].into_iter().flatten()),
                }
            }
        }
        true
    }

    fn push_name(&mut self, name: &NameBuf) {
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name.as_bytes());
    }

    fn only(&mut self, met: Option<Result<Met, Problem>>, change: fn(FileKind) -> Change) {
        match met {
            Some(Ok(met)) => self.difference(change(met.attr().kind)),
            Some(Err(problem)) => self.problem(problem),
            None => {}
        }
    }

    /// Compares two entries, and goes on with what is in them if they are directories.
    fn pair(&mut self, left: Met, right: Met) {
        self.report.compared += 1;
        let options = *self.options;
        entry::compare(&left, &right, &options, &mut |found| match found {
            Ok(change) => self.difference(change),
            Err(problem) => self.problem(problem),
        });
        if (left.attr().kind, right.attr().kind) != (FileKind::Directory, FileKind::Directory) {
            return;
        }
        let entered = self.enter(&left, &right);
        if let Err(problem) = entered {
            return self.problem(problem);
        }
        match (left.list(), right.list()) {
            (Ok(left), Ok(right)) => {
                self.problems(left.problems.into_iter().chain(right.problems));
                let left = (left.directory, left.names.into_iter().peekable());
                let right = (right.directory, right.names.into_iter().peekable());
                self.stack.push(Level { left, right, path_len: self.path.len() });
            }
            (left, right) => self.problems([left.err(), right.err()].into_iter().flatten()),
        }
    }

    /// Whether two directories may be entered.
    fn enter(&mut self, left: &Met, right: &Met) -> Result<(), Problem> {
        let again = |met: &Met| Err(met.problem(Trouble::Volume(obento_base::Error::Loop)));
        if left.image_ino().is_some_and(|ino| !self.entered.0.insert(ino)) || self.stack.len() >= MAX_DEPTH {
            return again(left);
        }
        if right.image_ino().is_some_and(|ino| !self.entered.1.insert(ino)) {
            return again(right);
        }
        Ok(())
    }

    fn problems(&mut self, problems: impl Iterator<Item = Problem>) {
        problems.for_each(|problem| self.problem(problem));
    }

    fn difference(&mut self, change: Change) {
        self.report.differences += 1;
        self.tell(Ok(Difference { path: self.path.clone(), change }));
    }

    fn problem(&mut self, problem: Problem) {
        self.report.problems += 1;
        self.tell(Err(problem));
    }

    fn tell(&mut self, found: Result<Difference, Problem>) {
        self.enough = self.enough || (self.sink)(found).is_break();
    }
}
