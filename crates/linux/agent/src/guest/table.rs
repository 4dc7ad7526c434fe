//! The inodes that the host has in use.
//!
//! Each is held by a descriptor that grants nothing (`O_PATH`), so that it lives when its names are gone. Files that are read or
//! written are open besides, a bounded number of them.

use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use obento_linux_wire::{Stat, Step};
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags, openat, statx};

use super::attributes::stat_of;
use super::list::listed;
use super::numbers::Numbers;
use super::{Errno, number};

/// How many files stay open.
const OPEN_MAX: usize = 256;

/// What an open file may be used for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    Read,
    Write,
}

/// What the kernel compares when it looks for a name.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Names {
    #[default]
    Whole,
    /// As many bytes as were asked for, so that it may take another file: Linux 6.1, fs/omfs/dir.c `omfs_scan_list`.
    Beginnings,
}

impl Names {
    /// Those of a type of file system.
    pub fn of(kind: &CStr) -> Self {
        if kind == c"omfs" { Self::Beginnings } else { Self::Whole }
    }
}

struct Held {
    place: OwnedFd,
    open: Option<(Use, OwnedFd)>,
}

/// Them.
#[derive(Default)]
pub struct Table {
    held: HashMap<u64, Held>,
    /// Those that are open, the one opened longest ago first.
    open: VecDeque<u64>,
    numbers: Numbers,
    names: Names,
}

impl Table {
    /// Holds the root, which is the only inode that is there without a way to it.
    pub fn start(&mut self, root: &CStr, names: Names) -> Result<Stat, Errno> {
        self.names = names;
        let place = openat(rustix::fs::CWD, root, place_flags() | OFlags::DIRECTORY, Mode::empty())
            .map_err(number)?;
        let found = look(&place, c"")?;
        self.numbers.start(&found);
        self.hold(found.stx_ino, place);
        Ok(stat_of(found.stx_ino, &found))
    }

    /// The descriptor that holds `ino`.
    pub fn place(&self, ino: u64) -> Result<BorrowedFd<'_>, Errno> {
        self.held.get(&ino).map(|held| held.place.as_fd()).ok_or(libc::ESTALE.unsigned_abs())
    }

    /// A path to `ino`, for calls that take no descriptor. Valid while it is held.
    pub fn path(&self, ino: u64) -> Result<CString, Errno> {
        let path = format!("/proc/self/fd/{}", self.place(ino)?.as_raw_fd());
        CString::new(path).map_err(|_| libc::EINVAL.unsigned_abs())
    }

    /// What `name` leads to in `dir`; it is held from now on.
    pub fn look(&mut self, dir: u64, name: &[u8]) -> Result<Stat, Errno> {
        let (place, found) = self.find(dir, name)?;
        self.hold(found.ino, place);
        Ok(found)
    }

    /// What `name` leads to in `dir`, and its attributes.
    fn find(&mut self, dir: u64, name: &[u8]) -> Result<(OwnedFd, Stat), Errno> {
        let name = c_name(name)?;
        let place = openat(self.place(dir)?, &name, place_flags(), Mode::empty()).map_err(number)?;
        let found = look(&place, c"")?;
        let dir = self.held.get(&dir).map(|held| held.place.as_fd()).ok_or(libc::ESTALE.unsigned_abs())?;
        if self.names == Names::Beginnings {
            self.expect_named(&found, listed(dir, &name)?)?;
        }
        let ino = self.numbers.of(dir, &name, &found);
        Ok((place, stat_of(ino, &found)))
    }

    /// Attributes of what `name` leads to in `dir`, which is not held and of which `statx` said `found`.
    pub fn glance(&mut self, dir: &OwnedFd, name: &CStr, found: &Statx) -> Stat {
        stat_of(self.numbers.of(dir, name, found), found)
    }

    /// Expects that what the kernel `found` is the inode that its directory has under the name. Errors: EIO, as nothing leads to the other.
    pub fn expect_named(&self, found: &Statx, listed: u64) -> Result<(), Errno> {
        let is_it = self.names == Names::Whole || found.stx_ino == listed;
        if is_it { Ok(()) } else { Err(libc::EIO.unsigned_abs()) }
    }

    /// Holds what a step leads to, unless it is held.
    pub fn follow(&mut self, step: &Step) -> Result<(), Errno> {
        if self.held.contains_key(&step.ino) {
            return Ok(());
        }
        let (place, found) = self.find(step.dir, &step.name)?;
        if found.ino != step.ino {
            // Another that has the name now, and that nobody asked for.
            return Err(libc::ESTALE.unsigned_abs());
        }
        self.hold(step.ino, place);
        Ok(())
    }

    /// Attributes of `ino`.
    pub fn stat(&self, ino: u64) -> Result<Stat, Errno> {
        Ok(stat_of(ino, &look(self.place(ino)?, c"")?))
    }

    /// `ino`, open. Only regular files and directories are ever opened: a device node of an image leads to nothing of it.
    pub fn open(&mut self, ino: u64, wanted: Use) -> Result<BorrowedFd<'_>, Errno> {
        let held = self.held.get(&ino).ok_or(libc::ESTALE.unsigned_abs())?;
        if held.open.as_ref().is_none_or(|(used, _)| *used < wanted) {
            let mode = look(&held.place, c"")?.stx_mode;
            if !matches!(u32::from(mode) & libc::S_IFMT, libc::S_IFREG | libc::S_IFDIR) {
                return Err(libc::EINVAL.unsigned_abs());
            }
            let access = if wanted == Use::Write { OFlags::RDWR } else { OFlags::RDONLY };
            let path = self.path(ino)?;
            let file =
                openat(rustix::fs::CWD, &path, access | OFlags::CLOEXEC, Mode::empty()).map_err(number)?;
            self.make_room();
            self.open.push_back(ino);
            self.held.get_mut(&ino).ok_or(libc::ESTALE.unsigned_abs())?.open = Some((wanted, file));
        }
        let held = self.held.get(&ino).and_then(|held| held.open.as_ref());
        held.map(|(_, file)| file.as_fd()).ok_or(libc::ESTALE.unsigned_abs())
    }

    /// The host has no more use for `ino`.
    pub fn forget(&mut self, ino: u64) {
        self.held.remove(&ino);
    }

    /// Closes what is open; what is used next is opened again.
    pub fn close_files(&mut self) {
        self.open.clear();
        self.held.values_mut().for_each(|held| held.open = None);
    }

    /// Closes what is open, and lets go of what has no name: both keep a volume from becoming read-only.
    pub fn let_go(&mut self) {
        self.close_files();
        self.held.retain(|_, held| look(&held.place, c"").is_ok_and(|found| found.stx_nlink > 0));
    }

    fn hold(&mut self, ino: u64, place: OwnedFd) {
        self.held.entry(ino).or_insert(Held { place, open: None });
    }

    fn make_room(&mut self) {
        while self.open.len() >= OPEN_MAX {
            let oldest = self.open.pop_front().and_then(|ino| self.held.get_mut(&ino));
            if let Some(held) = oldest {
                held.open = None;
            }
        }
    }
}

fn place_flags() -> OFlags {
    OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// What `statx` says of `name` in `at`, or of `at` itself.
pub fn look(at: impl AsFd, name: &CStr) -> Result<Statx, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::EMPTY_PATH;
    statx(at, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME).map_err(number)
}

/// A name of the wire as the kernel takes it.
pub fn c_name(name: &[u8]) -> Result<CString, Errno> {
    let is_name = !name.is_empty() && !name.contains(&b'/') && name != b"." && name != b"..";
    let name = is_name.then(|| CString::new(name).ok()).flatten();
    name.ok_or(libc::EINVAL.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_step_that_leads_to_another_inode_holds_nothing() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "x").unwrap();
        let ino = fs::metadata(folder.path().join("file")).unwrap().ino();
        let mut table = Table::default();
        let root = table
            .start(&CString::new(folder.path().as_os_str().as_bytes()).unwrap(), Names::Whole)
            .unwrap()
            .ino;
        let step = |ino| Step { dir: root, name: b"file".to_vec(), ino };
        let stale = libc::ESTALE.unsigned_abs();
        assert_eq!(table.follow(&step(ino + 1)), Err(stale));
        assert_eq!(table.stat(ino), Err(stale), "it is held, and the host does not know");
        assert_eq!(table.stat(ino + 1), Err(stale));
        assert_eq!(table.follow(&step(ino)), Ok(()));
        assert_eq!(table.stat(ino).map(|stat| stat.size), Ok(1));
        table.forget(ino);
        assert_eq!(table.stat(ino), Err(stale));
    }

    #[test]
    fn names_that_lead_out_of_a_directory_are_none() {
        for name in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0b"] {
            assert_eq!(c_name(name), Err(libc::EINVAL.unsigned_abs()), "{name:?}");
        }
        assert_eq!(c_name(b"..a"), Ok(c"..a".to_owned()));
    }
}
