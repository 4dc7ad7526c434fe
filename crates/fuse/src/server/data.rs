//! The bytes of files.
//!
//! Invariant: a read that is shorter than asked ends at the end of the file, and a write that is answered wrote all:
//! the kernel takes what is missing for zeros, and forgets what it wrote back.

use obento::{Error, FileFlags, Node, Size};

use super::{Reply, Server, errno};
use crate::nodes::Known;

const KEEP_SIZE: i32 = libc::FALLOC_FL_KEEP_SIZE;
const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP_SIZE;
const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
const ZERO_KEEP: i32 = ZERO | KEEP_SIZE;
const COLLAPSE: i32 = libc::FALLOC_FL_COLLAPSE_RANGE;
const INSERT: i32 = libc::FALLOC_FL_INSERT_RANGE;

/// How much is copied from file to file in one step.
const COPY_STEP: usize = 1 << 20;

/// Where the bytes of a write come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// From who writes: the times of the file are ours to stamp.
    Caller,
    /// From the kernel's page cache: the times are the kernel's, which hands over by SETATTR what it changed of them.
    PageCache,
}

/// Bytes that are to be written.
#[derive(Clone, Copy)]
pub(crate) struct Written<'b> {
    pub(crate) offset: u64,
    pub(crate) bytes: &'b [u8],
    pub(crate) source: Source,
    /// Whoever writes may keep no privileges of the file.
    pub(crate) kill_privileges: bool,
}

type Write = fn(&Node, u64, &[u8]) -> obento::Result<usize>;

impl Server {
    /// Reads into `buf`; answers how many bytes.
    pub(crate) fn read(&self, id: u64, offset: u64, buf: &mut [u8]) -> Reply<usize> {
        let node = self.node(id)?;
        let len = read_to_end(&node, offset, buf)?;
        if !self.options.read_only {
            // That it was read must not keep anybody from reading.
            let _ = node.stamp_access();
        }
        Ok(len)
    }

    /// Writes all of the bytes.
    pub(crate) fn write(&self, id: u64, written: &Written<'_>) -> Reply<()> {
        self.drop_privileges(id, written.kill_privileges)?;
        let known = self.known(id)?;
        let write: Write = match written.source {
            Source::PageCache if known.is_plain => Node::write_back,
            // The kernel may not hand over the times of a file with flags.
            _ => Node::write_at,
        };
        if !known.is_plain {
            expect_appended(&known.node, written)?;
        }
        write_all(&known.node, written.offset, written.bytes, write)?;
        self.settled(&known.node, ())
    }

    /// The next data or hole from `offset` on, as lseek(2).
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

    /// Takes, frees or moves space, as fallocate(2).
    pub(crate) fn fallocate(&self, id: u64, offset: u64, len: u64, mode: i32) -> Reply<()> {
        self.drop_privileges(id, true)?;
        let Known { node, is_plain } = self.known(id)?;
        // Of a file that may only be appended to, as ext4: space alone.
        if !is_plain && mode & !KEEP_SIZE != 0 {
            return Err(Error::NotPermitted.errno());
        }
        let end = offset.checked_add(len).ok_or_else(|| Error::FileTooBig.errno())?;
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

    /// Copies from file to file, as copy_file_range(2); answers how many bytes.
    pub(crate) fn copy(&self, from: (u64, u64), to: (u64, u64), len: u64) -> Reply<u64> {
        self.drop_privileges(to.0, true)?;
        let (source, Known { node: target, is_plain }) = (self.node(from.0)?, self.known(to.0)?);
        if !is_plain && to.1 < target.attr().map_err(errno)?.size {
            return Err(Error::NotPermitted.errno());
        }
        let mut buf = vec![0; COPY_STEP.min(usize::try_from(len).unwrap_or(COPY_STEP))];
        let mut done = 0;
        while done < len {
            let step = usize::try_from(len - done).map_or(buf.len(), |left| left.min(buf.len()));
            let result = read_to_end(&source, from.1 + done, &mut buf[..step]).and_then(|read| {
                write_all(&target, to.1 + done, &buf[..read], Node::write_at).map(|()| read)
            });
            match result {
                Ok(0) => break,
                Ok(read) => done += read as u64,
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

fn write_all(node: &Node, offset: u64, bytes: &[u8], write: Write) -> Reply<()> {
    let mut done = 0;
    while done < bytes.len() {
        match write(node, offset.saturating_add(done as u64), &bytes[done..]).map_err(errno)? {
            0 => return Err(Error::NoSpace.errno()),
            len => done += len,
        }
    }
    Ok(())
}

/// Errors: NotPermitted if this changes bytes of a file that may only be appended to. What the page cache writes back
/// starts with the bytes that the last block had before.
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
