//! The data of files.
//!
//! Invariant: a read returns fewer bytes than requested only at the end of the file, because the kernel takes missing
//! bytes for zeros. A write from the page cache without an error has written all bytes, because the kernel drops pages
//! that it wrote back.

use std::sync::atomic::Ordering;

use obento_base::{Errno, Error, FileFlags};
use obento_driver::{Size, StoredProperties};
use obento_vfs::Node;

use super::{Reply, Server, errno};
use crate::nodes::KernelInode;

const KEEP_SIZE: i32 = libc::FALLOC_FL_KEEP_SIZE;
const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP_SIZE;
const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
const ZERO_KEEP: i32 = ZERO | KEEP_SIZE;
const COLLAPSE: i32 = libc::FALLOC_FL_COLLAPSE_RANGE;
const INSERT: i32 = libc::FALLOC_FL_INSERT_RANGE;

/// The number of bytes that one step of a copy reads and writes.
const COPY_STEP: usize = 1 << 20;

/// The origin of the bytes of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// The writing process: the server updates the times of the file.
    Caller,
    /// The kernel's page cache: the kernel updates the times of the file, and sends them by SETATTR.
    PageCache,
}

/// A write.
#[derive(Clone, Copy)]
pub(crate) struct Written<'b> {
    pub(crate) offset: u64,
    pub(crate) bytes: &'b [u8],
    pub(crate) source: Source,
    /// Whether the write clears set-user-ID and set-group-ID.
    pub(crate) kill_privileges: bool,
}

type Write = fn(&Node, u64, &[u8]) -> obento_base::Result<usize>;

impl Server {
    /// Reads into `buf`. Returns the number of bytes.
    pub(crate) fn read(&self, id: u64, offset: u64, buf: &mut [u8]) -> Reply<usize> {
        let node = self.node(id)?;
        let len = read_to_end(&node, offset, buf)?;
        if !self.options.read_only && !self.no_atime.load(Ordering::Relaxed) {
            // The read succeeds even if the access time cannot be updated.
            let _ = node.stamp_access();
        }
        Ok(len)
    }

    /// Writes the bytes. Returns their number, which is less than requested only for a write that does not come from
    /// the page cache, if the space is exhausted.
    pub(crate) fn write(&self, id: u64, written: &Written<'_>) -> Reply<u32> {
        // Appended data would be gathered first, and lost later.
        if self.has_failed() {
            return Err(Error::ReadOnly.errno());
        }
        let known = self.drop_privileges(id, written.kill_privileges)?;
        let write: Write = match written.source {
            Source::PageCache if known.is_plain => Node::write_back,
            // The kernel may not change the times of a file with flags.
            _ => Node::write_at,
        };
        if !known.is_plain {
            expect_appended(&known.node, written)?;
        }
        let (done, failed) = write_all(&known.node, written.offset, written.bytes, write);
        match failed {
            Some(error) if done == 0 || written.source == Source::PageCache => return Err(error),
            _ => {}
        }
        self.settled(&known.node, u32::try_from(done).unwrap_or(u32::MAX))
    }

    /// Returns the offset of the next data or hole from `offset` on, as lseek(2) does.
    pub(crate) fn seek(&self, id: u64, offset: i64, whence: i32) -> Reply<u64> {
        let node = self.node(id)?;
        let offset = u64::try_from(offset).map_err(|_| Error::NoSuchOffset.errno())?;
        match whence {
            libc::SEEK_DATA => node.seek_data(offset),
            libc::SEEK_HOLE => node.seek_hole(offset),
            _ => Err(Error::Invalid),
        }
        .map_err(errno)
    }

    /// Allocates, frees or moves space, as fallocate(2) does.
    pub(crate) fn fallocate(&self, id: u64, offset: u64, len: u64, mode: i32) -> Reply<()> {
        let KernelInode { node, is_plain } = self.drop_privileges(id, true)?;
        // For an append-only file, as in ext4: only space can be allocated.
        if !is_plain && mode & !KEEP_SIZE != 0 {
            return Err(Error::NotPermitted.errno());
        }
        let end = offset.checked_add(len).filter(|&end| end <= self.vfs.limits().file_size_max);
        let end = end.ok_or_else(|| Error::FileTooBig.errno())?;
        // Even of an empty file, or a program believes that holes exist.
        if !matches!(mode, 0 | KEEP_SIZE) && !self.vfs.limits().keeps.contains(StoredProperties::HOLES) {
            return Err(Error::NotSupported.errno());
        }
        let range = offset..end;
        match mode {
            0 => node.allocate(range, Size::Grow),
            KEEP_SIZE => node.allocate(range, Size::Keep),
            PUNCH => node.punch(range),
            ZERO => node.zero_range(range, Size::Grow),
            ZERO_KEEP => node.zero_range(range, Size::Keep),
            COLLAPSE => node.collapse(range),
            INSERT => node.insert(range),
            _ => Err(Error::NotSupported),
        }
        .map_err(errno)?;
        self.settled(&node, ())
    }

    /// Copies from one file to another, as copy_file_range(2) does. Returns the number of bytes.
    pub(crate) fn copy(&self, from: (u64, u64), to: (u64, u64), len: u64) -> Reply<u64> {
        let KernelInode { node: target, is_plain } = self.drop_privileges(to.0, true)?;
        let source = self.node(from.0)?;
        if !is_plain && to.1 < target.attr().map_err(errno)?.size {
            return Err(Error::NotPermitted.errno());
        }
        let mut buf = vec![0; COPY_STEP.min(usize::try_from(len).unwrap_or(COPY_STEP))];
        let mut done = 0;
        while done < len {
            let step = usize::try_from(len - done).map_or(buf.len(), |left| left.min(buf.len()));
            let result =
                read_to_end(&source, from.1 + done, &mut buf[..step]).and_then(|read| {
                    match write_all(&target, to.1 + done, &buf[..read], Node::write_at) {
                        (0, Some(error)) => Err(error),
                        (written, _) => Ok(written),
                    }
                });
            match result {
                Ok(0) => break,
                Ok(written) => done += written as u64,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        self.settled(&target, done)
    }
}

/// Reads until `buf` is full or the file ends.
fn read_to_end(node: &Node, offset: u64, buf: &mut [u8]) -> Reply<usize> {
    let mut done = 0;
    while done < buf.len() {
        match node.read_at(offset.saturating_add(done as u64), &mut buf[done..]).map_err(errno)? {
            0 => break,
            len => done += len,
        }
    }
    Ok(done)
}

/// Writes until all bytes are written or an error occurs. Returns the number of bytes written, and the error.
fn write_all(node: &Node, offset: u64, bytes: &[u8], write: Write) -> (usize, Option<Errno>) {
    let mut done = 0;
    while done < bytes.len() {
        match write(node, offset.saturating_add(done as u64), &bytes[done..]).map_err(errno) {
            Ok(0) => return (done, Some(Error::NoSpace.errno())),
            Ok(len) => done += len,
            Err(error) => return (done, Some(error)),
        }
    }
    (done, None)
}

/// Fails with `NotPermitted` if a write changes existing bytes of an append-only file. A write from the page cache
/// starts with the unchanged bytes of the last block.
fn expect_appended(node: &Node, written: &Written<'_>) -> Reply<()> {
    let attr = node.attr().map_err(errno)?;
    if !attr.flags.contains(FileFlags::APPEND) {
        return Ok(());
    }
    let old = usize::try_from(attr.size.saturating_sub(written.offset)).unwrap_or(usize::MAX);
    let kept = &written.bytes[..old.min(written.bytes.len())];
    let mut found = vec![0; kept.len()];
    let len = read_to_end(node, written.offset, &mut found)?;
    if len == kept.len() && found == kept { Ok(()) } else { Err(Error::NotPermitted.errno()) }
}
