//! The behaviour of a volume as a program sees it, as test cases: one function for each behaviour, for any driver
//! behind any host.
//!
//! A [`Host`] provides access to a volume by paths: the library ([`Library`]), or a folder with a mount ([`Folder`]).
//! Cases are selected by the capabilities of the volume, never by its type. A case that requires a missing capability
//! is refused with the name of the capability. The behaviours are from NetBSD's `tests/fs/vfs`, and from the parts of
//! POSIX that a driver alone does not determine.

mod data;
mod folder;
mod library;
mod names;
mod races;
mod rights;

use std::sync::Barrier;

use obento_base::{Errno, FileKind};
use obento_driver::{Access, Limits, RenameFlags};

use crate::outcome::{Abilities, report};
pub use crate::outcome::{CaseEnd, Lacks, Need};
use crate::plan::{Op, bytes};
pub use folder::Folder;
pub use library::Library;

/// The result of an operation of a host.
pub type Answer<T> = Result<T, Errno>;

/// A host with a volume. Paths are relative to the root of the volume.
pub trait Host {
    /// Returns the limits of the volume's format.
    fn limits(&self) -> Limits;
    /// Returns the number of free bytes.
    fn free(&self) -> Answer<u64>;
    /// Returns whether changes are present after the volume is opened again.
    fn lasts(&self) -> bool {
        true
    }
    /// Returns whether a case must have the same effect in each run.
    fn repeats(&self) -> bool {
        false
    }
    /// Returns whether an open file can be used after its last name is removed.
    fn keeps_removed(&self) -> bool {
        true
    }
    /// Returns whether files have flags, such as append-only.
    fn has_flags(&self) -> bool {
        true
    }
    /// Runs operation `number` of a case.
    fn act(&mut self, number: usize, op: &Op) -> Answer<()>;
    /// Runs an operation as user `id` with the group of the same number. The user is not the owner of the volume.
    fn act_as(&mut self, id: u32, number: usize, op: &Op) -> Answer<()>;
    /// Runs each of `lists` in a thread of its own, at the same time, and returns the results.
    fn together(&mut self, lists: &[Vec<Op>]) -> Vec<Vec<Answer<()>>>;
    /// Returns the value of an extended attribute.
    fn xattr(&self, path: &str, name: &str) -> Answer<Vec<u8>>;
    /// Sets an extended attribute as the user `id`, or as the owner of the volume without one.
    fn set_xattr_as(&mut self, id: Option<u32>, path: &str, name: &str, value: &[u8]) -> Answer<()>;
    /// Opens a file for writing, which truncates it, and closes it.
    fn open_emptied(&mut self, path: &str) -> Answer<()>;
    /// Creates a file without a name in a directory, and closes it.
    fn make_nameless(&mut self, dir: &str) -> Answer<()>;
    /// Returns whether a rename can leave a whiteout at the old name.
    fn has_whiteouts(&mut self) -> bool;
    /// Renames a file, and leaves a whiteout at the old name.
    fn rename_leaving_whiteout(&mut self, from: &str, to: &str) -> Answer<()>;
    /// Returns the attributes of a file, without following a symbolic link.
    fn seen(&self, path: &str) -> Answer<FileStat>;
    /// Reads up to this number of bytes from an offset.
    fn read(&self, path: &str, offset: u64, len: usize) -> Answer<Vec<u8>>;
    /// Returns the names in a directory without `.` and `..`.
    fn list(&self, path: &str) -> Answer<Vec<Vec<u8>>>;
    /// Returns at most this number of entries of a directory after a position, or from the start. Each entry has the
    /// position after it. `.` and `..` may be among them.
    fn list_from(&self, path: &str, from: Option<u64>, most: usize) -> Answer<Vec<(Vec<u8>, u64)>>;
    /// Returns the target of a symbolic link.
    fn read_link(&self, path: &str) -> Answer<Vec<u8>>;
    /// Opens a file and keeps it open, instead of the previous one.
    fn hold(&mut self, path: &str) -> Answer<()>;
    /// Reads from the open file.
    fn read_held(&self, offset: u64, len: usize) -> Answer<Vec<u8>>;
    /// Writes to the open file.
    fn write_held(&mut self, offset: u64, bytes: &[u8]) -> Answer<()>;
    /// Flushes the open file to stable storage.
    fn sync_held(&mut self) -> Answer<()>;
    /// Closes the open file.
    fn release(&mut self);
    /// Ends the changes, and opens or mounts the volume again.
    fn again(&mut self, access: Access);
}

/// The attributes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileStat {
    /// The inode number.
    pub ino: u64,
    /// The kind.
    pub kind: FileKind,
    /// The permissions.
    pub mode: u16,
    /// The number of names.
    pub nlink: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The size in bytes.
    pub size: u64,
    /// The time of the last change of data, in seconds.
    pub mtime: i64,
    /// The time of the last change, in seconds.
    pub ctime: i64,
}

/// A behaviour.
#[derive(Clone, Copy, Debug)]
pub struct HostCase {
    /// The description.
    pub name: &'static str,
    /// The required capabilities.
    pub needs: &'static [Need],
    /// Panics if the behaviour differs.
    pub run: fn(&mut CaseDirectory<'_>),
}

/// Returns every case, in the order of the page.
pub fn cases() -> Vec<HostCase> {
    names::CASES
        .iter()
        .chain(data::CASES)
        .chain(rights::CASES)
        .map(|&(name, needs, run)| HostCase { name, needs, run })
        .collect()
}

/// Runs one case in a directory of its own.
pub fn run(case: &HostCase, number: usize, host: &mut dyn Host) -> CaseEnd {
    let limits = host.limits();
    let mut room = CaseDirectory { host, dir: format!("case-{number}"), done: 0, limits };
    let end = CaseEnd::of(|| {
        let free = room.host.free().expect("statfs succeeds");
        // A mount point without extended attributes may still report that a file has no access control list.
        let lists = room.host.xattr(".", "user.none") != Err(NOT_SUPPORTED);
        let means = Abilities {
            limits,
            free,
            lists,
            whiteouts: room.host.has_whiteouts(),
            lasts: room.host.lasts(),
            repeats: room.host.repeats(),
            keeps_removed: room.host.keeps_removed(),
            flags: room.host.has_flags(),
        };
        case.needs.iter().try_for_each(|need| need.check(&means))?;
        let dir = room.dir.clone();
        room.host.act(0, &Op::Create(dir, FileKind::Directory, 0o755)).expect("a directory for the case");
        (case.run)(&mut room);
        Ok(())
    });
    room.host.release();
    end
}

/// Runs every case, and prints which were refused. Panics if one fails, or if all were refused.
pub fn expect_all(host: &mut dyn Host) {
    let all = cases();
    let ends: Vec<_> = all.iter().enumerate().map(|(n, case)| (case.name, run(case, n, host))).collect();
    let failed: Vec<_> = ends.iter().filter(|(_, end)| matches!(end, CaseEnd::Failed(_))).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(ends.iter().any(|(_, end)| *end == CaseEnd::Passed), "no case applies");
    for (name, end) in ends {
        if let CaseEnd::Refused(lacks) = end {
            report(name, Err(lacks));
        }
    }
}

/// Runs `act` for each list in a thread of its own; the threads start at the same time.
fn each_in_a_thread<T: Send>(lists: &[Vec<Op>], act: &(dyn Fn(&[Op]) -> T + Sync)) -> Vec<T> {
    let start = Barrier::new(lists.len());
    let work = &|list: &[Op]| {
        start.wait();
        act(list)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = lists.iter().map(|list| scope.spawn(move || work(list))).collect();
        threads.into_iter().map(|thread| thread.join().expect("an operation does not panic")).collect()
    })
}

/// The directory of a case.
pub struct CaseDirectory<'a> {
    /// The host.
    pub host: &'a mut dyn Host,
    dir: String,
    done: usize,
    limits: Limits,
}

impl CaseDirectory<'_> {
    fn at(&self, path: &str) -> String {
        format!("{}/{path}", self.dir)
    }

    /// Runs an operation whose paths are those of the host.
    #[track_caller]
    fn act(&mut self, op: Op) -> Answer<()> {
        self.done += 1;
        self.host.act(self.done, &op)
    }

    #[track_caller]
    fn does(&mut self, op: Op) {
        let shown = format!("{op:?}");
        let done = self.act(op);
        assert!(done.is_ok(), "{shown}: {done:?}");
    }

    fn act_as(&mut self, id: u32, op: &Op) -> Answer<()> {
        self.done += 1;
        self.host.act_as(id, self.done, op)
    }

    #[track_caller]
    fn make(&mut self, path: &str, kind: FileKind) {
        self.does(Op::Create(self.at(path), kind, 0o755));
    }

    #[track_caller]
    fn dir(&mut self, path: &str) {
        self.make(path, FileKind::Directory);
    }

    #[track_caller]
    fn file(&mut self, path: &str) {
        self.make(path, FileKind::Regular);
    }

    /// Writes bytes for which [`CaseDirectory::holds`] can check.
    #[track_caller]
    fn write(&mut self, path: &str, at: u64, len: usize) -> Vec<u8> {
        self.does(Op::Write(self.at(path), at, len));
        bytes(self.done, at, len)
    }

    #[track_caller]
    fn truncate(&mut self, path: &str, size: u64) {
        self.does(Op::Truncate(self.at(path), size));
    }

    fn rename(&mut self, from: &str, to: &str) -> Answer<()> {
        self.act(Op::Rename(self.at(from), self.at(to), RenameFlags::empty()))
    }

    fn unlink(&mut self, path: &str) -> Answer<()> {
        self.act(Op::Unlink(self.at(path)))
    }

    fn rmdir(&mut self, path: &str) -> Answer<()> {
        self.act(Op::Rmdir(self.at(path)))
    }

    fn look(&self, path: &str) -> Answer<FileStat> {
        self.host.seen(&self.at(path))
    }

    #[track_caller]
    fn seen(&self, path: &str) -> FileStat {
        self.look(path).unwrap_or_else(|errno| panic!("{path} is missing: {errno:?}"))
    }

    #[track_caller]
    fn is_gone(&self, path: &str) {
        assert_eq!(self.look(path).err(), Some(NOT_FOUND), "{path}");
    }

    #[track_caller]
    fn holds(&self, path: &str, at: u64, expected: &[u8]) {
        let found = self.host.read(&self.at(path), at, expected.len());
        assert!(found.as_deref() == Ok(expected), "{path} has other bytes at {at}");
    }

    #[track_caller]
    fn names(&self, path: &str) -> Vec<String> {
        let names = self.host.list(&self.at(path)).expect("a directory lists");
        let mut names: Vec<String> = names.into_iter().map(|name| String::from_utf8(name).unwrap()).collect();
        names.sort();
        names
    }
}

const NOT_PERMITTED: Errno = Errno(1);
const NOT_FOUND: Errno = Errno(2);
const ACCESS_DENIED: Errno = Errno(13);
const BUSY: Errno = Errno(16);
const EXISTS: Errno = Errno(17);
const NOT_DIRECTORY: Errno = Errno(20);
const IS_DIRECTORY: Errno = Errno(21);
const INVALID: Errno = Errno(22);
const FILE_TOO_BIG: Errno = Errno(27);
const NO_SPACE: Errno = Errno(28);
const READ_ONLY: Errno = Errno(30);
const NO_DATA: Errno = Errno(61);
const NOT_SUPPORTED: Errno = Errno(95);
const NAME_TOO_LONG: Errno = Errno(36);
const NOT_EMPTY: Errno = Errno(39);
