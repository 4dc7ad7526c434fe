//! Compares two trees, each on the host or in an image, entry by entry.
//!
//! Both sides are walked together, in the order of the bytes of the names. Differences are reported at once. For each
//! level of the current path, memory contains one directory of each side. A hole equals zeros, and nothing is read
//! where both sides have a hole. Damage is reported, and the comparison continues.
//!
//! Invariant: a directory of an image is entered only once. A directory with two names exists only on a damaged volume.
//! It could contain itself, or double the work at each level.
//! Invariant: the depth is bounded. Every comparison therefore ends.
//! Invariant: at most `MAX_NAMES` names of a directory are compared.

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
use obento_open::walk::MAX_DEPTH;

use crate::copy::{Problem, ProblemReason, join};
pub use bytes::{ByteDifference, diff_bytes};
pub use place::{BytePlace, place_of};
pub use side::DiffSide;
use side::{Directory, Listed, SideEntry};

/// Maximum number of names of a directory. Valid directories have fewer names. A hostile directory could exhaust
/// memory.
const MAX_NAMES: usize = 1 << 20;

/// The properties that are compared in addition to kinds, link targets and device numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiffOptions {
    /// The bytes of files.
    pub content: bool,
    /// The permission bits.
    pub mode: bool,
    /// The numbers of owner and group.
    pub owner: bool,
    /// The modification times of files that are not directories.
    pub times: bool,
    /// The extended attributes.
    pub xattrs: bool,
}

impl DiffOptions {
    /// The properties that `diff -r` compares: kinds, bytes, link targets.
    pub const CONTENT: Self = Self { content: true, mode: false, owner: false, times: false, xattrs: false };
    /// All properties that a copy preserves.
    pub const ALL: Self = Self { content: true, mode: true, owner: true, times: true, xattrs: true };
}

/// A difference between the two sides. The first value belongs to the left side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Only the left side has the entry.
    OnlyLeft(FileKind),
    /// Only the right side has the entry.
    OnlyRight(FileKind),
    /// The kinds differ. No other property is compared.
    Kind(FileKind, FileKind),
    /// The lengths in bytes differ.
    Size(u64, u64),
    /// The contents of two files of the same length differ. The first difference is at this byte.
    Content(u64),
    /// The targets of symbolic links differ.
    Target(Vec<u8>, Vec<u8>),
    /// The numbers of device nodes differ.
    Device(DeviceNumber, DeviceNumber),
    /// The permission bits differ.
    Mode(Mode, Mode),
    /// The owner or the group differs.
    Owner((u32, u32), (u32, u32)),
    /// The modification times differ.
    Modified(Timestamp, Timestamp),
    /// The extended attribute of this name differs. `None` for a side without the attribute.
    Xattr(Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>),
}

/// One difference.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The path of the entry below the start of the comparison. The path of the start is empty.
    pub path: Vec<u8>,
    /// The difference.
    pub change: Change,
}

/// The result of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiffReport {
    /// The number of entries that both sides have.
    pub compared: u64,
    /// The number of reported differences.
    pub differences: u64,
    /// The number of reported problems: unreadable parts that were not compared.
    pub problems: u64,
}

/// Receives the findings of a comparison one by one, and returns whether to continue.
pub type DiffSink<'s> = dyn FnMut(Result<Difference, Problem>) -> ControlFlow<()> + 's;

/// Compares the trees `left` and `right`. An unreadable part is reported as a [`Problem`] with the path of
/// its side, and the comparison continues.
///
/// ```
/// use std::ops::ControlFlow;
/// use obento::diff::{DiffOptions, DiffSide};
///
/// let left = tempfile::tempdir()?;
/// let right = tempfile::tempdir()?;
/// std::fs::write(left.path().join("note"), "old")?;
/// std::fs::write(right.path().join("note"), "new")?;
/// let sides = (DiffSide::Host(left.path().into()), DiffSide::Host(right.path().into()));
/// let report = obento::diff::diff(&sides.0, &sides.1, &DiffOptions::CONTENT, &mut |found| {
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
    /// The paths of the starts, for messages.
    bases: (&'a [u8], &'a [u8]),
    /// The path of the directory on top of the stack, below the starts.
    path: Vec<u8>,
    stack: Vec<Level>,
    /// The directories of images that were entered, by side.
    entered: (HashSet<Ino>, HashSet<Ino>),
    enough: bool,
}

/// A directory of both sides that is being compared.
struct Level {
    left: (Directory, Peekable<IntoIter<Listed>>),
    right: (Directory, Peekable<IntoIter<Listed>>),
    path_len: usize,
}

/// The next name of a level, and the sides that have it.
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
    /// Compares the next entry. Returns whether there was one.
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

    fn only(&mut self, met: Option<Result<SideEntry, Problem>>, change: fn(FileKind) -> Change) {
        match met {
            Some(Ok(met)) => self.difference(change(met.attr().kind)),
            Some(Err(problem)) => self.problem(problem),
            None => {}
        }
    }

    /// Compares two entries, and enters them if they are directories.
    fn pair(&mut self, left: SideEntry, right: SideEntry) {
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

    /// Returns whether two directories may be entered.
    fn enter(&mut self, left: &SideEntry, right: &SideEntry) -> Result<(), Problem> {
        let again = |met: &SideEntry| Err(met.problem(ProblemReason::Volume(obento_base::Error::Loop)));
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
        self.emit(Ok(Difference { path: self.path.clone(), change }));
    }

    fn problem(&mut self, problem: Problem) {
        self.report.problems += 1;
        self.emit(Err(problem));
    }

    fn emit(&mut self, found: Result<Difference, Problem>) {
        self.enough = self.enough || (self.sink)(found).is_break();
    }
}
