//! Where the bytes of a Btrfs' files are on its one disk, and the checksums that prove them.
//!
//! Btrfs tells places in an address space of its own: a tree of chunks says where on which disk a part of it is, another tree
//! holds the CRC-32C of each sector of data.
//! Source: Linux, include/uapi/linux/btrfs.h and btrfs_tree.h.

use std::os::fd::AsRawFd;

use obento_linux_wire::{Answer, PROVED, Run};

use super::data::RUNS_MAX;
use super::table::{Table, Use};
use super::{Errno, last_error, places};

/// `BTRFS_IOC_FS_INFO`: `_IOR(0x94, 31, struct btrfs_ioctl_fs_info_args)`, which has 1,024 bytes.
const FS_INFO: libc::c_ulong = 0x8400_941f;
/// `BTRFS_IOC_TREE_SEARCH_V2`: `_IOWR(0x94, 17, struct btrfs_ioctl_search_args_v2)`, which has 112 bytes before what is found.
const TREE_SEARCH: libc::c_ulong = 0xc070_9411;

/// `BTRFS_CHUNK_TREE_OBJECTID`, `BTRFS_FIRST_CHUNK_TREE_OBJECTID`, `BTRFS_CHUNK_ITEM_KEY`.
const CHUNKS: Items = Items { tree: 3, object: 256, kind: 228 };
/// `BTRFS_CSUM_TREE_OBJECTID`, `BTRFS_EXTENT_CSUM_OBJECTID`, `BTRFS_EXTENT_CSUM_KEY`.
const SUMS: Items = Items { tree: 7, object: 10_u64.wrapping_neg(), kind: 128 };

/// `BTRFS_BLOCK_GROUP_PROFILE_MASK` of a chunk's type without `BTRFS_BLOCK_GROUP_DUP`: more than one disk has a part in it, or more are
/// needed to read it.
const SPREAD: u64 = 0x7d8;

/// What is found at once.
const FOUND_MAX: usize = 256 << 10;
/// One item has no more sums than a block of 64 KiB, the largest that there is.
const ITEM_MAX: u64 = (64 << 10) / 4 * PROVED;

/// Of which items.
#[derive(Clone, Copy)]
struct Items {
    tree: u64,
    object: u64,
    kind: u32,
}

/// `struct btrfs_ioctl_search_args_v2`.
#[repr(C)]
struct Search {
    tree: u64,
    objects: [u64; 2],
    offsets: [u64; 2],
    transactions: [u64; 2],
    kinds: [u32; 2],
    count: u32,
    unused: [u32; 9],
    room: u64,
    found: [u8; FOUND_MAX],
}

const _: () = assert!(std::mem::offset_of!(Search, found) == 112);

/// A part of Btrfs' address space.
struct Chunk {
    start: u64,
    len: u64,
    /// Where on the disk it is, if it is there alone.
    place: Option<u64>,
}

/// Where `ino` has data between two bytes, where on the disk that is, and the sums of those parts that have a place, one after the other.
/// Errors: ENOTSUP where the volume has other sums, sectors of another size or more disks.
pub fn prove(table: &mut Table, ino: u64, offset: u64, end: u64) -> Result<Answer, Errno> {
    if !offset.is_multiple_of(PROVED) {
        return Err(libc::EINVAL.unsigned_abs());
    }
    let mapped = places::map(table, ino, offset, end)?;
    let file = &table.open(ino, Use::Read)?;
    expect_provable(file)?;
    let chunks = chunks(file)?;
    let (mut runs, mut sums, mut at) = (Vec::new(), Vec::new(), offset);
    for run in mapped {
        if runs.len() >= RUNS_MAX {
            break;
        }
        let (start, Some(address)) = (std::mem::replace(&mut at, run.end), run.place) else {
            runs.push(run);
            continue;
        };
        let end = address + (run.end - start);
        let mut address = address;
        while address < end && runs.len() < RUNS_MAX {
            let (stop, place) = placed(&chunks, address, end);
            let known = if place.is_some() { sums_of(file, address, stop)? } else { Vec::new() };
            // What has none is nobody's to prove: up to its end, as a whole.
            let stop = if known.is_empty() { stop } else { stop.min(address + known.len() as u64 * PROVED) };
            let place = place.filter(|_| !known.is_empty());
            runs.push(Run { end: run.end - (end - stop), is_data: true, place });
            sums.extend(known);
            address = stop;
        }
    }
    Ok(Answer::Proved { runs, sums })
}

/// `struct btrfs_ioctl_fs_info_args`: the number of disks at byte 8, the size of a sector at 36, the kind of the sums at 44, and at 48 what is
/// asked for besides and then told, `BTRFS_FS_INFO_FLAG_CSUM_INFO`.
fn expect_provable(file: &impl AsRawFd) -> Result<(), Errno> {
    let mut info = [0; 1024];
    info[48] = 1;
    // SAFETY: the request takes a structure of so many bytes and fills it.
    if unsafe { libc::ioctl(file.as_raw_fd(), FS_INFO, info.as_mut_ptr()) } != 0 {
        return Err(last_error());
    }
    let is_one = le(&info, 8, 8) == Some(1);
    let is_crc32c = le(&info, 44, 2) == Some(0) && info[48] & 1 != 0;
    let fits = le(&info, 36, 4) == Some(PROVED);
    if is_one && is_crc32c && fits { Ok(()) } else { Err(libc::ENOTSUP.unsigned_abs()) }
}

fn chunks(file: &impl AsRawFd) -> Result<Vec<Chunk>, Errno> {
    let mut chunks = Vec::new();
    search(file, CHUNKS, 0, u64::MAX, |start, item| {
        // `struct btrfs_chunk`: its length first, its type at 24, its first stripe's place on the disk at 56.
        let (len, kind, place) = (le(item, 0, 8)?, le(item, 24, 8)?, le(item, 56, 8)?);
        chunks.push(Chunk { start, len, place: (kind & SPREAD == 0).then_some(place) });
        Some(())
    })?;
    Ok(chunks)
}

/// How far what is at `address` goes on in one chunk, at most to `end`, and where it is on the disk.
fn placed(chunks: &[Chunk], address: u64, end: u64) -> (u64, Option<u64>) {
    let chunk = chunks.iter().find(|chunk| address.checked_sub(chunk.start).is_some_and(|at| at < chunk.len));
    let Some(Chunk { start, len, place }) = chunk else { return (end, None) };
    (end.min(start.saturating_add(*len)), place.and_then(|place| place.checked_add(address - start)))
}

/// The sums of the sectors from `address` on, as many as follow each other, up to `end`.
fn sums_of(file: &impl AsRawFd, address: u64, end: u64) -> Result<Vec<u32>, Errno> {
    let count = (end - address).div_ceil(PROVED);
    let mut sums = Vec::new();
    // Of the items before, one may reach as far.
    search(file, SUMS, address.saturating_sub(ITEM_MAX), end - 1, |start, item| {
        let next = address + sums.len() as u64 * PROVED;
        let skipped = next.checked_sub(start).map_or(u64::MAX, |skipped| skipped / PROVED);
        let item = item.chunks_exact(4).skip(usize::try_from(skipped).unwrap_or(usize::MAX));
        let left = usize::try_from(count).unwrap_or(usize::MAX) - sums.len();
        sums.extend(item.take(left).filter_map(|sum| sum.try_into().ok()).map(u32::from_le_bytes));
        Some(())
    })?;
    Ok(sums)
}

/// Shows `take` the offset and the bytes of each of `items` whose offset lies within the two. Errors: EUCLEAN if it has no use for one.
fn search(
    file: &impl AsRawFd,
    items: Items,
    from: u64,
    to: u64,
    mut take: impl FnMut(u64, &[u8]) -> Option<()>,
) -> Result<(), Errno> {
    let Items { tree, object, kind } = items;
    let mut search = Box::new(Search {
        tree,
        objects: [object; 2],
        offsets: [from, to],
        transactions: [0, u64::MAX],
        kinds: [kind; 2],
        count: 0,
        unused: [0; 9],
        room: FOUND_MAX as u64,
        found: [0; FOUND_MAX],
    });
    loop {
        search.count = u32::MAX;
        // SAFETY: the request takes a structure of this layout, and fills no more of `found` than `room` says.
        if unsafe { libc::ioctl(file.as_raw_fd(), TREE_SEARCH, &raw mut *search) } != 0 {
            return Err(last_error());
        }
        let (mut rest, mut last) = (&search.found[..], None);
        for _ in 0..search.count {
            // `struct btrfs_ioctl_search_header`: object at byte 8, offset at 16, kind at 24, length at 28.
            let found = (|| {
                let header = rest.split_off(..32)?;
                let (of, offset, of_kind) = (le(header, 8, 8)?, le(header, 16, 8)?, le(header, 24, 4)?);
                let item = rest.split_off(..usize::try_from(le(header, 28, 4)?).ok()?)?;
                if (of, of_kind) == (object, kind.into()) {
                    take(offset, item)?;
                }
                Some(offset)
            })();
            last = Some(found.ok_or(libc::EUCLEAN.unsigned_abs())?);
        }
        match last.and_then(|last| last.checked_add(1)) {
            Some(next) if next <= to => search.offsets[0] = next,
            _ => return Ok(()),
        }
    }
}

/// The little-endian integer of `len` bytes at `at`. (The machine is one.)
fn le(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(len)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}
