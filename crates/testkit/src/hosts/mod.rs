//! What a program sees of a volume, as test cases: one body a behaviour, for any driver behind any host.
//!
//! A [`Host`] offers a volume by paths: the library ([`Library`]), or a folder at which somebody mounted it ([`Folder`]). A case
//! is chosen by the capabilities of the volume, never by its type: where one is missing that it needs, it is refused by the
//! name of that capability. The behaviours are those of NetBSD's `tests/fs/vfs` and what of POSIX a driver cannot see alone.

mod data;
mod folder;
mod library;
mod names;
mod races;
mod rights;

use std::sync::Barrier;

use obento_base::{Errno, FileKind};
use obento_driver::{Access, Limits, RenameFlags};

pub use crate::outcome::{End, Lacks, Need};
use crate::outcome::{Means, tell};
use crate::plan::{Op, bytes};
pub use folder::Folder;
pub use library::Library;

/// What a host answers with.
pub type Answer<T> = Result<T, Errno>;

/// A host with a volume in it. Paths are relative to the root of the volume.
pub trait Host {
    /// What the volume's format can hold.
    fn limits(&self) -> Limits;
    /// Bytes that are free.
    fn free(&self) -> Answer<u64>;
    /// Whether what is in the volume is there when it is opened again.
    fn lasts(&self) -> bool {
        true
    }
    /// Whether a case must do the same in each run.
    fn repeats(&self) -> bool {
        false
    }
    /// Does operation `number` of a case.
    fn act(&mut self, number: usize, op: &Op) -> Answer<()>;
    /// Does an operation as the user `id`, whose group has the same number, and who is not the owner of the volume.
    fn act_as(&mut self, id: u32, number: usize, op: &Op) -> Answer<()>;
    /// Does each of `lists` in a thread of its own, all at once, and says what each operation answered.
    fn together(&mut self, lists: &[Vec<Op>]) -> Vec<Vec<Answer<()>>>;
    /// Returns the value of an extended attribute.
    fn xattr(&self, path: &str, name: &str) -> Answer<Vec<u8>>;
    /// Sets an extended attribute as the user `id`, or as the owner of the volume without one.
    fn set_xattr_as(&mut self, id: Option<u32>, path: &str, name: &str, value: &[u8]) -> Answer<()>;
    /// Opens a file for writing, which empties it, and closes it.
    fn open_emptied(&mut self, path: &str) -> Answer<()>;
    /// Makes a file without a name in a directory, and lets it go.
    fn make_nameless(&mut self, dir: &str) -> Answer<()>;
    /// What is known of a file; a symbolic link is not followed.
    fn seen(&self, path: &str) -> Answer<Seen>;
    /// So many bytes from an offset on, or what there is.
    fn read(&self, path: &str, offset: u64, len: usize) -> Answer<Vec<u8>>;
    /// The names in a directory, but for `.` and `..`.
    fn list(&self, path: &str) -> Answer<Vec<Vec<u8>>>;
    /// At most so many entries of a directory after a place, from its start without one; each with the place behind it. Dots may
    /// be among them.
    fn list_from(&self, path: &str, from: Option<u64>, most: usize) -> Answer<Vec<(Vec<u8>, u64)>>;
    /// The target of a symbolic link.
    fn read_link(&self, path: &str) -> Answer<Vec<u8>>;
    /// Opens a file, in place of the one that was.
    fn hold(&mut self, path: &str) -> Answer<()>;
    /// Reads the file that is held.
    fn read_held(&self, offset: u64, len: usize) -> Answer<Vec<u8>>;
    /// Writes to the file that is held.
    fn write_held(&mut self, offset: u64, bytes: &[u8]) -> Answer<()>;
    /// Brings what was written to it to stable storage.
    fn sync_held(&mut self) -> Answer<()>;
    /// Closes it.
    fn release(&mut self);
    /// Ends the changes, and opens or mounts the volume again.
    fn again(&mut self, access: Access);
}

/// What is known of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Its number.
    pub ino: u64,
    /// What it is.
    pub kind: FileKind,
    /// Its permissions.
    pub mode: u16,
    /// Its names.
    pub nlink: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its bytes.
    pub size: u64,
    /// When its data changed, in seconds.
    pub mtime: i64,
    /// When its data or what is known of it changed, in seconds.
    pub ctime: i64,
}

/// A behaviour.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The sentence.
    pub name: &'static str,
    /// What it needs.
    pub needs: &'static [Need],
    /// Panics if it is not so.
    pub run: fn(&mut Room<'_>),
}

/// Every case, in the order of the page.
pub fn cases() -> Vec<Case> {
    names::CASES
        .iter()
        .chain(data::CASES)
        .chain(rights::CASES)
        .map(|&(name, needs, run)| Case { name, needs, run })
        .collect()
}

/// Runs one case in a directory of its own.
pub fn run(case: &Case, number: usize, host: &mut dyn Host) -> End {
    let limits = host.limits();
    let mut room = Room { host, dir: format!("case-{number}"), done: 0, limits };
    let end = End::of(|| {
        let free = room.host.free().expect("a volume tells its use");
        // A mount point without attributes still answers that a file has no access control list.
        let lists = room.host.xattr(".", "user.none") != Err(NOT_SUPPORTED);
        let means = Means { limits, free, lists, lasts: room.host.lasts(), repeats: room.host.repeats() };
        case.needs.iter().try_for_each(|need| need.check(&means))?;
        let dir = room.dir.clone();
        room.host.act(0, &Op::Create(dir, FileKind::Directory, 0o755)).expect("a directory for the case");
        (case.run)(&mut room);
        Ok(())
    });
    room.host.release();
    end
}

/// Runs every case, and says which were refused. Panics if one fails, or if none had what it needs.
pub fn expect_all(host: &mut dyn Host) {
    let all = cases();
    let ends: Vec<_> = all.iter().enumerate().map(|(n, case)| (case.name, run(case, n, host))).collect();
    let failed: Vec<_> = ends.iter().filter(|(_, end)| matches!(end, End::Failed(_))).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(ends.iter().any(|(_, end)| *end == End::Passed), "no case applies");
    for (name, end) in ends {
        if let End::Refused(lacks) = end {
            tell(name, Err(lacks));
        }
    }
}

/// Has `act` do each list in a thread of its own; they begin at once.
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

/// A directory to run a case in.
pub struct Room<'a> {
    /// The host.
    pub host: &'a mut dyn Host,
    dir: String,
    done: usize,
    limits: Limits,
}

impl Room<'_> {
    fn at(&self, path: &str) -> String {
        format!("{}/{path}", self.dir)
    }

    /// Does an operation whose paths are those of the host.
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

    /// Writes bytes that [`Room::holds`] knows again.
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

    fn look(&self, path: &str) -> Answer<Seen> {
        self.host.seen(&self.at(path))
    }

    #[track_caller]
    fn seen(&self, path: &str) -> Seen {
        self.look(path).unwrap_or_else(|errno| panic!("{path} is not there: {errno:?}"))
    }

    #[track_caller]
    fn is_gone(&self, path: &str) {
        assert_eq!(self.look(path).err(), Some(NOT_FOUND), "{path}");
    }

    #[track_caller]
    fn holds(&self, path: &str, at: u64, expected: &[u8]) {
        let found = self.host.read(&self.at(path), at, expected.len());
        assert!(found.as_deref() == Ok(expected), "{path} holds other bytes at {at}");
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
