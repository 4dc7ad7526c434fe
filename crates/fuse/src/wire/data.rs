//! Requests about the bytes of files.

use super::abi::{
    CopyFileRangeIn, FallocateIn, InHeader, LseekIn, ReadIn, SizeOut, WRITE_CACHE, WRITE_KILL_SUIDGID,
    WriteIn,
};
use super::reply::{ALL_PAGES, ONLY_ATTRIBUTES};
use super::{MAX_IO, Place, Wire, reply, request};
use crate::server::{Reply, Source, Written};

/// Writes up to here are answered at once, likewise. Of longer ones the next is copied out of the kernel while this one is
/// copied into the image.
const SHORT_WRITE: u32 = 64 << 10;

/// Reads up to here are answered at once: they cost less than waking somebody, unless the disk has to be waited for.
const SHORT: u32 = 64 << 10;

/// What one request copies at most, so that it can be interrupted and others get their turn.
const MOST_COPIED: u64 = 64 << 20;

pub(super) fn place_of_read(mut body: request::Body<'_>) -> Place {
    match body.take::<ReadIn>() {
        Ok(asked) if asked.size > SHORT => Place::Pool,
        _ => Place::Here,
    }
}

pub(super) fn place_of_write(mut body: request::Body<'_>) -> Place {
    match body.take::<WriteIn>() {
        Ok(asked) if asked.size > SHORT_WRITE => Place::PoolWithBuffer,
        _ => Place::Here,
    }
}

pub(super) fn read(
    wire: &Wire,
    header: &InHeader,
    mut body: request::Body<'_>,
    out: &mut reply::Body,
) -> Reply<()> {
    let ReadIn { offset, size, .. } = body.take()?;
    out.fill(size.min(MAX_IO) as usize, |room| wire.server.read(header.nodeid, offset, room))
}

pub(super) fn write(
    wire: &Wire,
    header: &InHeader,
    mut body: request::Body<'_>,
    out: &mut reply::Body,
) -> Reply<()> {
    let WriteIn { offset, size, write_flags, .. } = body.take()?;
    let bytes = body.bytes(size)?;
    let from_cache = wire.options.writeback && write_flags & WRITE_CACHE != 0;
    let written = Written {
        offset,
        bytes,
        source: if from_cache { Source::PageCache } else { Source::Caller },
        kill_privileges: write_flags & WRITE_KILL_SUIDGID != 0,
    };
    wire.server.write(header.nodeid, &written)?;
    wire.make_old(header.nodeid);
    out.push(&SizeOut { size, padding: 0 });
    Ok(())
}

impl Wire {
    /// Lets the kernel ask for the attributes of `id` again, which a write has made old.
    fn make_old(&self, id: u64) {
        if !self.options.writeback || !self.server.grows_old(id) {
            return;
        }
        let channel = self.channel.clone();
        // Not here: the kernel waits for an inode that it is just giving up, and that may wait for an answer of ours.
        self.pool.run(move || channel.make_old(id, ONLY_ATTRIBUTES));
    }
}

pub(super) fn fallocate(
    wire: &Wire,
    header: &InHeader,
    mut body: request::Body<'_>,
    _: &mut reply::Body,
) -> Reply<()> {
    let FallocateIn { offset, length, mode, .. } = body.take()?;
    wire.server.fallocate(header.nodeid, offset, length, mode.cast_signed())
}

pub(super) fn lseek(
    wire: &Wire,
    header: &InHeader,
    mut body: request::Body<'_>,
    out: &mut reply::Body,
) -> Reply<()> {
    let LseekIn { offset, whence, .. } = body.take()?;
    if wire.options.writeback {
        // What the kernel gathers is a hole to us, and it does not write it back before it asks.
        wire.channel.make_old(header.nodeid, ALL_PAGES);
    }
    out.push(&wire.server.seek(header.nodeid, offset.cast_signed(), whence.cast_signed())?);
    Ok(())
}

pub(super) fn copy_file_range(
    wire: &Wire,
    header: &InHeader,
    mut body: request::Body<'_>,
    out: &mut reply::Body,
) -> Reply<()> {
    let CopyFileRangeIn { off_in, nodeid_out, off_out, len, .. } = body.take()?;
    // The answer has room for 32 bits; whoever asked for more asks again.
    let copied = wire.server.copy((header.nodeid, off_in), (nodeid_out, off_out), len.min(MOST_COPIED))?;
    out.push(&SizeOut { size: copied.try_into().unwrap_or(u32::MAX), padding: 0 });
    Ok(())
}
