//! `fuser`'s requests and replies, to and from [`Server`].
//!
//! Invariant: every request is answered once: `fuser`'s replies answer EIO when they are dropped, which is also what
//! happens if the server panics; the thread goes on.
//! What is answered ENOSYS is never asked again: OPEN and OPENDIR because there is nothing to open, FLUSH because closing
//! wants nothing, CREATE because a node is made and then, by itself, open. So RELEASE never comes, and the kernel empties
//! a file that is opened with O_TRUNC by SETATTR.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Generation, INodeNo, InitFlags, IoctlFlags,
    KernelConfig, LockOwner, Notifier, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use obento::{Attr, DeviceNumber, FileKind};

use crate::attr::decode_device;
use crate::linger::Linger;
use crate::pool::Pool;
use crate::server::{Change, Found, Made, Moved, Reply, Server, Time};
use crate::session::SessionOptions;

mod buffer;
mod encode;

use buffer::with_buffer;
use encode::{NOWHERE, empty, errno, file_attr, generation, kind, time, timestamp, xattr};

/// The image is ours alone: what the kernel was told holds until it changes it itself.
const LONG: Duration = Duration::from_secs(24 * 60 * 60);
/// Of a file that is being written to.
const SHORT_TIME: Duration = Duration::from_secs(1);
const NOT: Duration = Duration::ZERO;

/// An offset below 0: the pages are not meant.
const ONLY_ATTRIBUTES: i64 = -1;

/// The bytes of a read and of a write at most.
const MAX_IO: u32 = 1 << 20;

/// Reads up to here are answered at once: they cost less than waking somebody, unless the disk has to be waited for.
const SHORT: usize = 64 << 10;

/// What is asked of the kernel, where it has it.
const WANTED: [InitFlags; 12] = [
    InitFlags::FUSE_ASYNC_READ,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_BIG_WRITES,
    InitFlags::FUSE_MAX_PAGES,
    InitFlags::FUSE_DONT_MASK,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_POSIX_ACL,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_NO_OPEN_SUPPORT,
    InitFlags::FUSE_NO_OPENDIR_SUPPORT,
];

/// A server as `fuser` wants it.
pub(crate) struct Wire {
    pub(crate) server: Arc<Server>,
    pub(crate) options: SessionOptions,
    pub(crate) pool: Pool,
    pub(crate) linger: Linger,
    /// How to speak to the kernel unasked, once there is a session.
    pub(crate) notifier: Arc<OnceLock<Notifier>>,
}

/// Runs `act`; a panic is told, and costs this request.
fn guarded<T>(act: impl FnOnce() -> Reply<T>) -> Result<T, Errno> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(result) => result.map_err(errno),
        Err(_) => {
            tracing::error!("a request met a bug of obento, and fails");
            Err(Errno::EIO)
        }
    }
}

impl Wire {
    /// How long attributes hold: the kernel changes all of them itself, but for the space that written pages take.
    fn attr_ttl(&self, attr: &Attr, id: u64) -> Duration {
        let changes_below = attr.kind == FileKind::Regular && !self.server.options().read_only;
        match changes_below && self.options.writeback && !self.server.holds_for_long(id) {
            true => SHORT_TIME,
            false => LONG,
        }
    }

    /// Lets the kernel ask for the attributes of `ino` again, which a write has made old.
    fn make_old(&self, ino: INodeNo) {
        if !self.options.writeback || !self.server.grows_old(ino.0) {
            return;
        }
        let notifier = Arc::clone(&self.notifier);
        // Not here: the kernel waits for an inode that it is just giving up, and that may wait for an answer of ours.
        self.pool.run(move || {
            if let Some(notifier) = notifier.get() {
                // Who no longer knows it has nothing old.
                let _ = notifier.inval_inode(ino, ONLY_ATTRIBUTES, 0);
            }
        });
    }

    fn entry(&self, found: Result<Option<Found>, Errno>, reply: ReplyEntry) {
        match found {
            Ok(Some(Found { id, attr, stays })) => {
                let name_ttl = if stays { LONG } else { NOT };
                let file = file_attr(&attr, id);
                reply.entry_with_ttls(&self.attr_ttl(&attr, id), &name_ttl, &file, generation(&attr));
            }
            Ok(None) => reply.entry(&LONG, &NOWHERE, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn attributes(&self, attr: Result<Attr, Errno>, reply: ReplyAttr) {
        match attr {
            Ok(attr) => reply.attr(&self.attr_ttl(&attr, attr.ino.0), &file_attr(&attr, attr.ino.0)),
            Err(error) => reply.error(error),
        }
    }
}

impl fuser::Filesystem for Wire {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for flag in WANTED {
            if config.add_capabilities(flag).is_err() {
                tracing::debug!(?flag, "the kernel lacks it");
            }
        }
        if self.options.writeback && config.add_capabilities(InitFlags::FUSE_WRITEBACK_CACHE).is_err() {
            self.options.writeback = false;
        }
        let _ = config.set_max_write(MAX_IO);
        let _ = config.set_max_readahead(MAX_IO).or_else(|most| config.set_max_readahead(most));
        let _ = config.set_max_background(64);
        let _ = config.set_time_granularity(Duration::from_nanos(1));
        Ok(())
    }

    fn destroy(&mut self) {
        self.pool.finish();
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _next = self.linger.after();
        self.entry(guarded(|| self.server.lookup(parent.0, name.as_bytes())), reply);
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        let _next = self.linger.after();
        let _ = guarded(|| {
            self.server.forget(ino.0, lookups);
            Ok(())
        });
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let _next = self.linger.after();
        self.attributes(guarded(|| self.server.getattr(ino.0)), reply);
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let _next = self.linger.after();
        let change = Change {
            mode,
            uid,
            gid,
            size,
            atime: atime.map(time),
            mtime: mtime.map(time),
            ctime: ctime.map(|ctime| Time::At(timestamp(ctime))),
            // The library does not hand the kernel's own word on.
            kill_privileges: size.is_some() && request.uid() != 0,
        };
        self.attributes(guarded(|| self.server.setattr(ino.0, &change)), reply);
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        let _next = self.linger.after();
        match guarded(|| self.server.read_link(ino.0)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let _next = self.linger.after();
        let Some(kind) = FileKind::from_mode((mode & 0o170_000) as u16) else {
            return reply.error(Errno::EINVAL);
        };
        let rdev = decode_device(rdev);
        let made = Made { kind, mode, umask, uid: request.uid(), gid: request.gid(), rdev, target: &[] };
        self.entry(guarded(|| self.server.make(parent.0, name.as_bytes(), &made).map(Some)), reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let _next = self.linger.after();
        let (uid, gid, rdev) = (request.uid(), request.gid(), DeviceNumber::default());
        let made = Made { kind: FileKind::Directory, mode, umask, uid, gid, rdev, target: &[] };
        self.entry(guarded(|| self.server.make(parent.0, name.as_bytes(), &made).map(Some)), reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let _next = self.linger.after();
        let (uid, gid, rdev) = (request.uid(), request.gid(), DeviceNumber::default());
        let target = target.as_os_str().as_bytes();
        let made = Made { kind: FileKind::Symlink, mode: 0o777, umask: 0, uid, gid, rdev, target };
        self.entry(guarded(|| self.server.make(parent.0, name.as_bytes(), &made).map(Some)), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _next = self.linger.after();
        empty(guarded(|| self.server.unlink(parent.0, name.as_bytes())), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _next = self.linger.after();
        empty(guarded(|| self.server.rmdir(parent.0, name.as_bytes())), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let _next = self.linger.after();
        let from = (parent.0, name.as_bytes());
        let to = (new_parent.0, new_name.as_bytes());
        empty(guarded(|| self.server.rename(&Moved { from, to, flags: flags.bits() })), reply);
    }

    fn link(&self, _: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _next = self.linger.after();
        self.entry(guarded(|| self.server.link(ino.0, parent.0, name.as_bytes()).map(Some)), reply);
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn create(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        reply.error(Errno::ENOSYS);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let _next = self.linger.after();
        let size = size.min(MAX_IO) as usize;
        let answer = move |server: &Server| {
            with_buffer(size, |buf| match guarded(|| server.read(ino.0, offset, buf)) {
                Ok(len) => reply.data(buf.get(..len).unwrap_or_default()),
                Err(error) => reply.error(error),
            });
        };
        if size <= SHORT {
            return answer(&self.server);
        }
        let server = Arc::clone(&self.server);
        self.pool.run(move || answer(&server));
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let _next = self.linger.after();
        let kill = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        match guarded(|| self.server.write(ino.0, offset, data, kill)) {
            Ok(()) => {
                self.make_old(ino);
                reply.written(data.len().try_into().unwrap_or(u32::MAX));
            }
            Err(error) => reply.error(error),
        }
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let server = Arc::clone(&self.server);
        self.pool.run(move || empty(guarded(|| server.fsync(ino.0)), reply));
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let server = Arc::clone(&self.server);
        self.pool.run(move || empty(guarded(|| server.fsync(ino.0)), reply));
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, place: u64, mut reply: ReplyDirectory) {
        let _next = self.linger.after();
        let listed = guarded(|| {
            self.server.list(ino.0, place, &mut |entry| {
                reply.add(INodeNo(entry.ino), entry.next, kind(entry.kind), OsStr::from_bytes(entry.name))
            })
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        place: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let _next = self.linger.after();
        let listed = guarded(|| {
            self.server.list_plus(ino.0, place, &mut |entry, found| {
                let ttl = if found.stays { self.attr_ttl(&found.attr, found.id) } else { NOT };
                let file = file_attr(&found.attr, found.id);
                let name = OsStr::from_bytes(entry.name);
                reply.add(INodeNo(entry.ino), entry.next, name, &ttl, &file, generation(&found.attr))
            })
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let _next = self.linger.after();
        match guarded(|| self.server.statfs()) {
            Ok((stat, name_max)) => reply.statfs(
                stat.blocks,
                stat.free,
                stat.available,
                stat.inodes,
                stat.free_inodes,
                stat.block_size,
                name_max,
                stat.block_size,
            ),
            Err(error) => reply.error(error),
        }
    }

    fn setxattr(
        &self,
        _: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let _next = self.linger.after();
        empty(guarded(|| self.server.set_xattr(ino.0, name.as_bytes(), value, flags)), reply);
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let _next = self.linger.after();
        xattr(guarded(|| self.server.get_xattr(ino.0, name.as_bytes())), size, reply);
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let _next = self.linger.after();
        xattr(guarded(|| self.server.list_xattrs(ino.0)), size, reply);
    }

    fn removexattr(&self, _: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _next = self.linger.after();
        empty(guarded(|| self.server.remove_xattr(ino.0, name.as_bytes())), reply);
    }

    fn ioctl(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        command: u32,
        data: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        match guarded(|| self.server.ioctl(ino.0, command, data)) {
            Ok(data) => reply.ioctl(0, &data),
            Err(error) => reply.error(error),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let server = Arc::clone(&self.server);
        self.pool.run(move || empty(guarded(|| server.fallocate(ino.0, offset, len, mode)), reply));
    }

    fn lseek(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let _next = self.linger.after();
        if self.options.writeback {
            // What the kernel gathers is no data to us, and it does not write it back first: then nothing is a hole.
            return reply.error(Errno::ENOSYS);
        }
        match guarded(|| self.server.seek(ino.0, offset, whence)) {
            Ok(found) => reply.offset(found.try_into().unwrap_or(i64::MAX)),
            Err(error) => reply.error(error),
        }
    }

    fn copy_file_range(
        &self,
        _: &Request,
        from: INodeNo,
        _: FileHandle,
        from_offset: u64,
        to: INodeNo,
        _: FileHandle,
        to_offset: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // The answer has room for 32 bits; whoever asked for more asks again.
        let len = len.min(MOST_COPIED);
        let server = Arc::clone(&self.server);
        self.pool.run(move || match guarded(|| server.copy((from.0, from_offset), (to.0, to_offset), len)) {
            Ok(copied) => reply.written(copied.try_into().unwrap_or(u32::MAX)),
            Err(error) => reply.error(error),
        });
    }
}

/// What one request copies at most, so that it can be interrupted and others get their turn.
const MOST_COPIED: u64 = 64 << 20;
