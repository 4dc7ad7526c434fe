//! Requests for the data of files.

use obento_base::Errno;

use super::abi::{
    CopyFileRangeIn, FallocateIn, InHeader, LseekIn, ReadIn, SizeOut, WRITE_CACHE, WRITE_KILL_SUIDGID,
    WriteIn, opcode,
};
use super::reply::{ALL_PAGES, ONLY_ATTRIBUTES};
use super::{Call, MAX_IO, Place, Wire, request};
use crate::server::{Reply, Source, Written};

/// The longest write that the reading thread answers itself. A longer write is copied into the image by another thread,
/// while the reading thread copies the next request out of the kernel.
const SHORT_WRITE: u32 = 64 << 10;

/// The longest read that the reading thread answers itself. Such a read takes less time than waking another thread,
/// unless it waits for the disk.
const SHORT: u32 = 64 << 10;

/// The most bytes that one request copies, so that it can be interrupted and does not delay other requests.
const MOST_COPIED: u64 = 64 << 20;

pub(super) fn place_of_read(mut body: request::RequestBody<'_>) -> Place {
    match body.take::<ReadIn>() {
        Ok(asked) if asked.size > SHORT => Place::Pool,
        _ => Place::Here,
    }
}

pub(super) fn place_of_write(mut body: request::RequestBody<'_>) -> Place {
    match body.take::<WriteIn>() {
        Ok(asked) if asked.size > SHORT_WRITE => Place::PoolWithBuffer,
        _ => Place::Here,
    }
}

/// Returns whether the kernel sends data that it has gathered. If the request fails, this data is lost.
pub(super) fn is_from_cache(header: &InHeader, mut body: request::RequestBody<'_>) -> bool {
    header.opcode == opcode::WRITE
        && body.take::<WriteIn>().is_ok_and(|asked| asked.write_flags & WRITE_CACHE != 0)
}

pub(super) fn read(Call { wire, header, mut body, out }: Call<'_>) -> Reply<()> {
    let ReadIn { fh, offset, size, .. } = body.take()?;
    out.fill(size.min(MAX_IO) as usize, |room| {
        let len = wire.server.read(header.nodeid, offset, room)?;
        wire.server.note_read(fh, &(offset..offset.saturating_add(len as u64)));
        Ok(len)
    })
}

pub(super) fn write(Call { wire, header, mut body, out }: Call<'_>) -> Reply<()> {
    let WriteIn { fh, offset, size, write_flags, .. } = body.take()?;
    let bytes = body.bytes(size)?;
    let from_cache = wire.options.writeback && write_flags & WRITE_CACHE != 0;
    let written = Written {
        offset,
        bytes,
        source: if from_cache { Source::PageCache } else { Source::Caller },
        kill_privileges: write_flags & WRITE_KILL_SUIDGID != 0,
    };
    let done = wire.server.write(header.nodeid, &written);
    if done.is_ok() || !from_cache {
        wire.make_old(header.nodeid);
    }
    wire.note_taken(size.into());
    let done = done?;
    wire.server.note_written(fh, header.nodeid, &(offset..offset.saturating_add(done.into())));
    out.push(&SizeOut { size: done, padding: 0 });
    Ok(())
}

impl Wire {
    /// Makes the next write to `id` fail, since data that the kernel had gathered is lost.
    pub(super) fn note_failure(&self, id: u64, error: Errno) {
        self.server.note_failure(id, error);
        let channel = self.channel.clone();
        self.notifiers.run(move || channel.make_old(id, ONLY_ATTRIBUTES));
    }

    /// Invalidates the attributes of `id` that the kernel caches, after a write.
    fn make_old(&self, id: u64) {
        if !self.options.writeback || !self.server.grows_old(id) {
            return;
        }
        let channel = self.channel.clone();
        // A notifier does this instead of this thread. The kernel waits for an inode that it is evicting, and the
        // eviction may wait for a reply of this thread.
        self.notifiers.run(move || channel.make_old(id, ONLY_ATTRIBUTES));
    }
}

pub(super) fn fallocate(Call { wire, header, mut body, .. }: Call<'_>) -> Reply<()> {
    let FallocateIn { offset, length, mode, .. } = body.take()?;
    wire.prepare_to_take(length);
    wire.server.fallocate(header.nodeid, offset, length, mode.cast_signed())
}

pub(super) fn lseek(Call { wire, header, mut body, out }: Call<'_>) -> Reply<()> {
    let LseekIn { offset, whence, .. } = body.take()?;
    if wire.options.writeback {
        // Data in the page cache is a hole in the image, and the kernel does not write it back before LSEEK.
        wire.channel.make_old(header.nodeid, ALL_PAGES);
    }
    out.push(&wire.server.seek(header.nodeid, offset.cast_signed(), whence.cast_signed())?);
    Ok(())
}

pub(super) fn copy_file_range(Call { wire, header, mut body, out }: Call<'_>) -> Reply<()> {
    let CopyFileRangeIn { fh_in, off_in, nodeid_out, fh_out, off_out, len, .. } = body.take()?;
    wire.prepare_to_take(len.min(MOST_COPIED));
    // The reply has room for 32 bits. A caller that wants more calls again.
    let copied = wire.server.copy((header.nodeid, off_in), (nodeid_out, off_out), len.min(MOST_COPIED))?;
    wire.server.note_read(fh_in, &(off_in..off_in.saturating_add(copied)));
    wire.server.note_written(fh_out, nodeid_out, &(off_out..off_out.saturating_add(copied)));
    out.push(&SizeOut { size: copied.try_into().unwrap_or(u32::MAX), padding: 0 });
    Ok(())
}
