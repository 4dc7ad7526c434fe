//! The inodes that the host uses.
//!
//! Each is held by a descriptor without rights (`O_PATH`), so that it outlives its names. In addition, a bounded number of
//! files is open for reading or writing.

use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use obento_linux_wire::{Stat, Step};
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags, openat, statx};

use super::attributes::stat_of;
use super::errno::{Errno, number};
use super::list::listed;
use super::numbers::Numbers;

/// The number of files that stay open.
const OPEN_MAX: usize = 256;

/// The access of an open file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    Read,
    Write,
}

/// The part of a name that the kernel compares in a lookup.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Names {
    #[default]
    Whole,
    /// As many bytes as the requested name has, so that another file may match: Linux 6.1, fs/omfs/dir.c `omfs_scan_list`.
    Beginnings,
}

impl Names {
    /// Returns the comparison of a type of file system.
    pub fn of(kind: &CStr) -> Self {
        if kind == c"omfs" { Self::Beginnings } else { Self::Whole }
    }
}

struct Held {
    place: OwnedFd,
    open: Option<(Use, OwnedFd)>,
}

/// The inodes that the host uses.
#[derive(Default)]
pub struct Table {
    held: HashMap<u64, Held>,
    /// The open files, the one opened first at the front.
    open: VecDeque<u64>,
    numbers: Numbers,
    names: Names,
}

impl Table {
    /// Holds the root, the only inode without a path to it.
    pub fn start(&mut self, root: &CStr, names: Names) -> Result<Stat, Errno> {
        self.names = names;
        let place = openat(rustix::fs::CWD, root, place_flags() | OFlags::DIRECTORY, Mode::empty())
            .map_err(number)?;
        let found = look(&place, c"")?;
        self.numbers.start(&found);
        self.hold(found.stx_ino, place);
        Ok(stat_of(found.stx_ino, &found))
    }

    /// Returns the descriptor that holds `ino`.
    pub fn place(&self, ino: u64) -> Result<BorrowedFd<'_>, Errno> {
        self.held.get(&ino).map(|held| held.place.as_fd()).ok_or(libc::ESTALE.unsigned_abs())
    }

    /// Returns a path to `ino`, for calls that accept no descriptor. Valid while the inode is held.
    pub fn path(&self, ino: u64) -> Result<CString, Errno> {
        let path = format!("/proc/self/fd/{}", self.place(ino)?.as_raw_fd());
        CString::new(path).map_err(|_| libc::EINVAL.unsigned_abs())
    }

    /// Looks up `name` in `dir`, and holds the inode.
    pub fn look(&mut self, dir: u64, name: &[u8]) -> Result<Stat, Errno> {
        let (place, found) = self.find(dir, name)?;
        self.hold(found.ino, place);
        Ok(found)
    }

    /// Looks up `name` in `dir`, and returns the attributes of the inode.
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

    /// Returns the attributes of the inode with `name` in `dir`, which is not held and for which `statx` returned `found`.
    pub fn glance(&mut self, dir: &OwnedFd, name: &CStr, found: &Statx) -> Stat {
        stat_of(self.numbers.of(dir, name, found), found)
    }

    /// Expects that the inode that the kernel `found` is that of the directory entry. Fails with EIO, since no path
    /// leads to the latter.
    pub fn expect_named(&self, found: &Statx, listed: u64) -> Result<(), Errno> {
        let is_it = self.names == Names::Whole || found.stx_ino == listed;
        if is_it { Ok(()) } else { Err(libc::EIO.unsigned_abs()) }
    }

    /// Holds the inode at the end of a step, unless it is held.
    pub fn follow(&mut self, step: &Step) -> Result<(), Errno> {
        if self.held.contains_key(&step.ino) {
            return Ok(());
        }
        let (place, found) = self.find(step.dir, &step.name)?;
        if found.ino != step.ino {
            // Another inode has the name now.
            return Err(libc::ESTALE.unsigned_abs());
        }
        self.hold(step.ino, place);
        Ok(())
    }

    /// Returns the attributes of `ino`.
    pub fn stat(&self, ino: u64) -> Result<Stat, Errno> {
        Ok(stat_of(ino, &look(self.place(ino)?, c"")?))
    }

    /// Opens `ino`. Only regular files and directories are opened, so a device node of an image has no effect.
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

    /// Releases `ino`.
    pub fn forget(&mut self, ino: u64) {
        self.held.remove(&ino);
    }

    /// Closes all open files; a file that is used next is opened again.
    pub fn close_files(&mut self) {
        self.open.clear();
        self.held.values_mut().for_each(|held| held.open = None);
    }

    /// Closes all open files, and releases inodes without names: both prevent a volume from becoming read-only.
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

/// Returns the result of `statx` for `name` in `at`, or for `at` itself.
pub fn look(at: impl AsFd, name: &CStr) -> Result<Statx, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::EMPTY_PATH;
    statx(at, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME).map_err(number)
}

/// Converts a name of the wire for the kernel.
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
    fn a_step_to_a_different_inode_takes_no_reference() {
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
        // No file has this number; the directory may have the next one.
        let other = u64::MAX - 1;
        assert_eq!(table.follow(&step(other)), Err(stale));
        assert_eq!(table.stat(ino), Err(stale), "the guest holds it, and the host has no record of it");
        assert_eq!(table.stat(other), Err(stale));
        assert_eq!(table.follow(&step(ino)), Ok(()));
        assert_eq!(table.stat(ino).map(|stat| stat.size), Ok(1));
        table.forget(ino);
        assert_eq!(table.stat(ino), Err(stale));
    }

    #[test]
    fn names_that_lead_out_of_a_directory_are_invalid() {
        for name in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0b"] {
            assert_eq!(c_name(name), Err(libc::EINVAL.unsigned_abs()), "{name:?}");
        }
        assert_eq!(c_name(b"..a"), Ok(c"..a".to_owned()));
    }
}
