//! Running a plan on a folder of the host, by the kernel.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, lchown, symlink};
use std::path::{Path, PathBuf};

use obento_base::FileKind;
use obento_driver::{RenameFlags, Size, XattrMode};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, IFlags, Mode, OFlags, RenameFlags as HostRename, Timespec,
    Timestamps, XattrFlags,
};

use crate::plan::{Op, Space, bytes};

/// A folder of the host on which a plan runs, and the files that the plan keeps open.
#[derive(Debug)]
pub struct HostActor {
    root: PathBuf,
    held: Vec<File>,
    nameless: Vec<File>,
}

impl HostActor {
    /// Uses the folder `root`, the root of a mounted volume. The process must have no umask.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), held: Vec::new(), nameless: Vec::new() }
    }

    /// Runs operation `number` of a plan.
    pub fn act(&mut self, number: usize, op: &Op) -> io::Result<()> {
        let last = self.nameless.last().ok_or(io::Error::from(io::ErrorKind::NotFound));
        match op {
            // A sync of the root flushes the whole volume, because FUSE forwards it to the server.
            Op::Sync => Ok(rustix::fs::syncfs(File::open(&self.root)?)?),
            Op::Flags(path, bits) => set_flags(&File::open(self.root.join(path))?, *bits),
            Op::Hold(path) => {
                self.held.push(File::open(self.root.join(path))?);
                Ok(())
            }
            Op::Release => {
                while self.held.pop().or_else(|| self.nameless.pop()).is_some() {}
                Ok(())
            }
            Op::Nameless => {
                let flags = OFlags::TMPFILE | OFlags::RDWR;
                let file = rustix::fs::open(&self.root, flags, Mode::from_raw_mode(0o644))?;
                self.nameless.push(file.into());
                Ok(())
            }
            Op::WriteNameless(at, len) => last?.write_all_at(&bytes(number, *at, *len), *at),
            Op::Name(path) => {
                rustix::fs::linkat(last?, c"", CWD, self.root.join(path), AtFlags::EMPTY_PATH)?;
                self.nameless.pop();
                Ok(())
            }
            _ => act_on_host(&self.root, number, op),
        }
    }
}

/// Sets the flags that a user can set, and leaves the others.
fn set_flags(file: &File, bits: u32) -> io::Result<()> {
    let changeable = IFlags::NODUMP | IFlags::NOATIME | IFlags::IMMUTABLE | IFlags::APPEND;
    let kept = rustix::fs::ioctl_getflags(file)?.difference(changeable);
    Ok(rustix::fs::ioctl_setflags(file, kept | IFlags::from_bits_retain(bits) & changeable)?)
}

/// Runs operation `number` of a plan below `root`. Operations that keep files open are ignored.
pub fn act_on_host(root: &Path, number: usize, op: &Op) -> io::Result<()> {
    let at = |path: &str| root.join(path);
    match op {
        Op::Create(path, kind, mode) => create(&at(path), *kind, *mode),
        Op::Symlink(path, len) => {
            use std::os::unix::ffi::OsStringExt as _;
            symlink(std::ffi::OsString::from_vec(super::target(*len)), at(path))
        }
        Op::Link(from, to) => fs::hard_link(at(from), at(to)),
        Op::Unlink(path) => fs::remove_file(at(path)),
        Op::Rmdir(path) => fs::remove_dir(at(path)),
        Op::Rename(from, to, flags) => {
            let mut host = HostRename::empty();
            host.set(HostRename::NOREPLACE, flags.contains(RenameFlags::NO_REPLACE));
            host.set(HostRename::EXCHANGE, flags.contains(RenameFlags::EXCHANGE));
            Ok(rustix::fs::renameat_with(CWD, at(from), CWD, at(to), host)?)
        }
        Op::SetXattr(path, name, len, mode) => {
            let flags = match mode {
                XattrMode::Set => XattrFlags::empty(),
                XattrMode::Create => XattrFlags::CREATE,
                XattrMode::Replace => XattrFlags::REPLACE,
            };
            Ok(rustix::fs::lsetxattr(at(path), name.as_str(), &bytes(number, 0, *len), flags)?)
        }
        Op::RemoveXattr(path, name) => Ok(rustix::fs::lremovexattr(at(path), name.as_str())?),
        Op::Chmod(path, mode) => match at(path).symlink_metadata()?.is_symlink() {
            true => Ok(()),
            false => fs::set_permissions(at(path), fs::Permissions::from_mode((*mode).into())),
        },
        Op::Chown(path, uid, gid) => lchown(at(path), Some(*uid), Some(*gid)),
        Op::Utime(path, secs) => {
            let time = Timespec { tv_sec: *secs, tv_nsec: 0 };
            let kept = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT as _ };
            let times = Timestamps { last_access: kept, last_modification: time };
            Ok(rustix::fs::utimensat(CWD, at(path), &times, AtFlags::SYMLINK_NOFOLLOW)?)
        }
        Op::Touch(path) => {
            let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW as _ };
            let times = Timestamps { last_access: now, last_modification: now };
            Ok(rustix::fs::utimensat(CWD, at(path), &times, AtFlags::SYMLINK_NOFOLLOW)?)
        }
        // Opening a pipe would wait for a writer.
        Op::Fsync(path) => match at(path).symlink_metadata()?.file_type() {
            kind if kind.is_file() || kind.is_dir() => File::open(at(path))?.sync_all(),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        },
        Op::Flags(..) | Op::Sync | Op::Hold(_) | Op::Release => Ok(()),
        Op::Nameless | Op::WriteNameless(..) | Op::Name(_) => Err(io::ErrorKind::Unsupported.into()),
        Op::Write(..) | Op::Append(..) | Op::Truncate(..) | Op::Space(..) => data(root, number, op),
    }
}

fn create(path: &Path, kind: FileKind, mode: u16) -> io::Result<()> {
    let file_type = match kind {
        FileKind::Directory => {
            rustix::fs::mkdir(path, Mode::from_raw_mode(mode.into()))?;
            return fs::set_permissions(path, fs::Permissions::from_mode(mode.into()));
        }
        FileKind::Regular | FileKind::Symlink => FileType::RegularFile,
        FileKind::CharDevice => FileType::CharacterDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
    };
    let device = if kind.is_device() { rustix::fs::makedev(259, 70_000) } else { 0 };
    rustix::fs::mknodat(CWD, path, file_type, Mode::from_raw_mode(mode.into()), device)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode.into()))
}

fn data(root: &Path, number: usize, op: &Op) -> io::Result<()> {
    let open = |path: &str| {
        let path = root.join(path);
        // A device or a pipe must not be opened.
        match path.symlink_metadata()?.is_file() {
            true => OpenOptions::new().read(true).write(true).open(path),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    };
    match op {
        Op::Write(path, at, len) => open(path)?.write_all_at(&bytes(number, *at, *len), *at),
        Op::Append(path, len) => {
            let file = open(path)?;
            let at = file.metadata()?.len();
            file.write_all_at(&bytes(number, 0, *len), at)
        }
        Op::Truncate(path, size) => open(path)?.set_len(*size),
        Op::Space(path, space, range) => {
            let flags = match space {
                Space::Allocate(Size::Grow) => FallocateFlags::empty(),
                Space::Allocate(Size::Keep) => FallocateFlags::KEEP_SIZE,
                Space::Zero(Size::Grow) => FallocateFlags::ZERO_RANGE,
                Space::Zero(Size::Keep) => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
                Space::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                Space::Collapse => FallocateFlags::COLLAPSE_RANGE,
                Space::Insert => FallocateFlags::INSERT_RANGE,
            };
            Ok(rustix::fs::fallocate(open(path)?, flags, range.start, range.end - range.start)?)
        }
        _ => Ok(()),
    }
}
