//! The locations of the bytes of Btrfs files on the only disk of the volume, and the checksums that verify them.
//!
//! Btrfs reports locations in its own address space. The chunk tree maps parts of it to disks, and another tree
//! contains the CRC-32C of each sector of data.
//! Source: Linux, include/uapi/linux/btrfs.h and btrfs_tree.h.

use std::ops::Range;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use obento_linux_wire::{Answer, PROVED, Run};

use super::data::RUNS_MAX;
use super::errno::{Errno, last_error};
use super::places;
use super::table::{Table, Use};

/// `BTRFS_IOC_FS_INFO`: `_IOR(0x94, 31, struct btrfs_ioctl_fs_info_args)`.
const FS_INFO: libc::c_ulong = 0x8400_941f;
/// `BTRFS_IOC_TREE_SEARCH_V2`: `_IOWR(0x94, 17, struct btrfs_ioctl_search_args_v2)`, without the results.
const TREE_SEARCH: libc::c_ulong = 0xc070_9411;

/// `BTRFS_FS_INFO_FLAG_CSUM_INFO`, and `BTRFS_CSUM_TYPE_CRC32`.
const WITH_SUMS: u64 = 1;
const CRC32C: u16 = 0;

/// `BTRFS_CHUNK_TREE_OBJECTID`, `BTRFS_FIRST_CHUNK_TREE_OBJECTID`, `BTRFS_CHUNK_ITEM_KEY`.
const CHUNKS: Items = Items { tree: 3, object: 256, kind: 228 };
/// `BTRFS_CSUM_TREE_OBJECTID`, `BTRFS_EXTENT_CSUM_OBJECTID`, `BTRFS_EXTENT_CSUM_KEY`.
const SUMS: Items = Items { tree: 7, object: 10_u64.wrapping_neg(), kind: 128 };

/// `BTRFS_BLOCK_GROUP_PROFILE_MASK` of a chunk's type without `BTRFS_BLOCK_GROUP_DUP`: the chunk is on several disks.
const SPREAD: u64 = 0x7d8;

/// The size of the results of a search, and the largest item in it: a block, which has at most 64 KiB.
const FOUND_MAX: usize = 256 << 10;
const ITEM_MAX: usize = 64 << 10;

/// Shorter pieces are skipped: each needs a search for its checksums, and the host saves little.
const LEAST: u64 = 64 << 10;
/// The time after which an answer ends early.
const PATIENCE: Duration = Duration::from_secs(1);

/// `struct btrfs_ioctl_fs_info_args`.
#[repr(C)]
struct Info {
    max_id: u64,
    disks: u64,
    id: [u8; 16],
    node_size: u32,
    sector_size: u32,
    clone_alignment: u32,
    sums: u16,
    sum_size: u16,
    flags: u64,
    rest: [u8; 968],
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

const _: () = assert!(size_of::<Info>() == 1024 && std::mem::offset_of!(Search, found) == 112);

/// The items to search for.
#[derive(Clone, Copy)]
struct Items {
    tree: u64,
    object: u64,
    kind: u32,
}

/// A part of the address space of Btrfs.
struct Chunk {
    start: u64,
    len: u64,
    /// The location on the disk, if this disk alone contains the part.
    place: Option<u64>,
}

/// The facts about a volume that do not change while it is only read.
pub struct VolumeFacts {
    /// In the order of their addresses.
    chunks: Vec<Chunk>,
    node_size: u64,
}

impl VolumeFacts {
    /// Fails with ENOTSUP if the volume uses other checksums, sectors of another size, or several disks.
    fn of(file: &impl AsRawFd) -> Result<Self, Errno> {
        let mut info = Info {
            max_id: 0,
            disks: 0,
            id: [0; 16],
            node_size: 0,
            sector_size: 0,
            clone_alignment: 0,
            sums: 0,
            sum_size: 0,
            flags: WITH_SUMS,
            rest: [0; 968],
        };
        // SAFETY: the request uses a structure with this layout and fills it.
        if unsafe { libc::ioctl(file.as_raw_fd(), FS_INFO, &raw mut info) } != 0 {
            return Err(last_error());
        }
        let is_crc32c = info.flags & WITH_SUMS != 0 && info.sums == CRC32C;
        if info.disks != 1 || !is_crc32c || u64::from(info.sector_size) != PROVED {
            return Err(libc::ENOTSUP.unsigned_abs());
        }
        let mut chunks = Vec::new();
        Finder::new(file).each(CHUNKS, 0..u64::MAX, |start, item| {
            // `struct btrfs_chunk`: its length, its type, and the disk and location of the first stripe.
            let (len, kind) = (le64(item, 0)?, le64(item, 24)?);
            let (disk, place) = (le64(item, 48)?, le64(item, 56)?);
            let is_here = kind & SPREAD == 0 && disk == info.max_id;
            chunks.push(Chunk { start, len, place: is_here.then_some(place) });
            Some(())
        })?;
        Ok(Self { chunks, node_size: info.node_size.into() })
    }

    /// Returns how many of `addresses` are contiguous in one chunk, and their location on the disk.
    fn place(&self, addresses: &Range<u64>) -> (u64, Option<u64>) {
        let at = self.chunks.partition_point(|chunk| chunk.start <= addresses.start);
        let chunk = at.checked_sub(1).and_then(|at| self.chunks.get(at));
        let Some(Chunk { start, len, place }) = chunk else { return (addresses.end, None) };
        let skipped = addresses.start - start;
        if skipped >= *len {
            return (addresses.end, None);
        }
        let place = place.and_then(|place| place.checked_add(skipped));
        (start.saturating_add(*len).min(addresses.end), place)
    }
}

/// Returns where `ino` has data in `range`, which begins at a sector. Also returns the locations on the disk, and the
/// checksums of the located parts in order. The answer may end before the range. Fails with ENOTSUP if the volume
/// does not allow it.
pub fn prove(
    table: &mut Table,
    facts: &mut Option<VolumeFacts>,
    ino: u64,
    range: Range<u64>,
) -> Result<Answer, Errno> {
    if !range.start.is_multiple_of(PROVED) {
        return Err(libc::EINVAL.unsigned_abs());
    }
    let file = &table.open(ino, Use::Read)?;
    let facts = match facts {
        Some(facts) => facts,
        None => facts.insert(VolumeFacts::of(file)?),
    };
    let until = Instant::now() + PATIENCE;
    let mapped = places::runs(file, range.clone(), Some(until))?;
    let mut finder = Finder::new(file);
    let mut sums = |addresses: Range<u64>| finder.sums(facts.node_size, addresses);
    let (runs, sums) = proved(range.start, mapped, facts, &mut sums, until)?;
    Ok(Answer::Proved { runs, sums })
}

/// Replaces the addresses of the runs `mapped`, which begin at `start`, by locations on the disk if checksums for them exist.
/// Ends after the first run that passes `until`.
fn proved(
    start: u64,
    mapped: Vec<Run>,
    facts: &VolumeFacts,
    sums_of: &mut impl FnMut(Range<u64>) -> Result<Vec<u32>, Errno>,
    until: Instant,
) -> Result<(Vec<Run>, Vec<u32>), Errno> {
    let (mut runs, mut sums, mut at) = (Vec::new(), Vec::new(), start);
    for run in mapped {
        let mut address = run.place.filter(|_| run.end - at >= LEAST);
        while at < run.end {
            if runs.len() >= RUNS_MAX || !runs.is_empty() && Instant::now() >= until {
                return Ok((runs, sums));
            }
            // An address that overflows is invalid.
            let addresses = address.and_then(|address| Some(address..address.checked_add(run.end - at)?));
            let (stop, place) = addresses.as_ref().map_or((0, None), |addresses| facts.place(addresses));
            let known = match (&addresses, place) {
                (Some(addresses), Some(_)) => sums_of(addresses.start..stop)?,
                _ => Vec::new(),
            };
            let Some(addresses) = addresses.filter(|_| !known.is_empty()) else {
                push(&mut runs, Run { place: None, ..run.clone() });
                at = run.end;
                continue;
            };
            let len = (stop - addresses.start).min(known.len() as u64 * PROVED);
            (at, address) = (at + len, Some(addresses.start + len));
            runs.push(Run { end: at, is_data: true, place });
            sums.extend(known);
        }
    }
    Ok((runs, sums))
}

/// Adds a run without a location. Merges it with the preceding run if that has no location, either, and both are data
/// or both are holes.
fn push(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last) if last.place.is_none() && last.is_data == run.is_data => last.end = run.end,
        _ => runs.push(run),
    }
}

/// Finds items in the trees of Btrfs.
struct Finder<'f, F> {
    file: &'f F,
    search: Box<Search>,
}

impl<'f, F: AsRawFd> Finder<'f, F> {
    fn new(file: &'f F) -> Self {
        let search = Search {
            tree: 0,
            objects: [0; 2],
            offsets: [0; 2],
            transactions: [0, u64::MAX],
            kinds: [0; 2],
            count: 0,
            unused: [0; 9],
            room: FOUND_MAX as u64,
            found: [0; FOUND_MAX],
        };
        Self { file, search: Box::new(search) }
    }

    /// Passes to `take` the offset and the bytes of each of `items` whose offset is in `offsets`. Fails with EUCLEAN
    /// if `take` rejects one.
    fn each(
        &mut self,
        items: Items,
        offsets: Range<u64>,
        mut take: impl FnMut(u64, &[u8]) -> Option<()>,
    ) -> Result<(), Errno> {
        let search = &mut *self.search;
        (search.tree, search.objects, search.kinds) = (items.tree, [items.object; 2], [items.kind; 2]);
        search.offsets = [offsets.start, offsets.end.saturating_sub(1)];
        loop {
            search.count = u32::MAX;
            // SAFETY: the request uses a structure with this layout, and fills no more of `found` than `room` allows.
            if unsafe { libc::ioctl(self.file.as_raw_fd(), TREE_SEARCH, &raw mut *search) } != 0 {
                return Err(last_error());
            }
            let (mut rest, mut last) = (&search.found[..], None);
            for _ in 0..search.count {
                last = Some(found(&mut rest, items, &mut take).ok_or(libc::EUCLEAN.unsigned_abs())?);
            }
            // If any further item had fitted, none was left out.
            let next = last.filter(|_| rest.len() <= ITEM_MAX).and_then(|last| last.checked_add(1));
            match next.filter(|next| *next < offsets.end) {
                Some(next) => search.offsets[0] = next,
                None => return Ok(()),
            }
        }
    }

    /// Returns the checksums of the sectors at `addresses` from the first on, as many as are contiguous.
    fn sums(&mut self, node_size: u64, addresses: Range<u64>) -> Result<Vec<u32>, Errno> {
        let count = usize::try_from((addresses.end - addresses.start).div_ceil(PROVED)).unwrap_or(usize::MAX);
        let mut sums = Vec::new();
        // An earlier item may reach as far, and contains at most the checksums that fit a node.
        let from = addresses.start.saturating_sub(node_size / 4 * PROVED);
        self.each(SUMS, from..addresses.end, |start, item| {
            let next = addresses.start + sums.len() as u64 * PROVED;
            if let Some(skipped) = next.checked_sub(start) {
                let skipped = usize::try_from(skipped / PROVED).unwrap_or(usize::MAX);
                let item = item.chunks_exact(4).skip(skipped).take(count - sums.len());
                sums.extend(item.filter_map(|sum| sum.try_into().ok()).map(u32::from_le_bytes));
            }
            Some(())
        })?;
        Ok(sums)
    }
}

/// Takes an item from `rest` and passes it to `take` if it is one of `items`. Returns its offset; `None` if it is invalid or
/// rejected. Source: `struct btrfs_ioctl_search_header`: transaction, object, offset, kind and length.
fn found(rest: &mut &[u8], items: Items, take: &mut impl FnMut(u64, &[u8]) -> Option<()>) -> Option<u64> {
    let header = rest.split_off(..32)?;
    let (object, offset, kind_and_len) = (le64(header, 8)?, le64(header, 16)?, le64(header, 24)?);
    let item = rest.split_off(..usize::try_from(kind_and_len >> 32).ok()?)?;
    if (object, kind_and_len & u64::from(u32::MAX)) == (items.object, items.kind.into()) {
        take(offset, item)?;
    }
    Some(offset)
}

/// Returns the integer at byte `at`.
fn le64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn run(end: u64, place: Option<u64>) -> Run {
        Run { end, is_data: true, place }
    }

    /// Contiguous chunks, of which one is elsewhere on the disk, and one on several disks.
    fn facts() -> VolumeFacts {
        let chunk = |start, place| Chunk { start, len: MIB, place };
        let chunks = vec![chunk(4 * MIB, Some(MIB)), chunk(5 * MIB, Some(9 * MIB)), chunk(8 * MIB, None)];
        VolumeFacts { chunks, node_size: 16 << 10 }
    }

    /// Returns the verified parts of `mapped`, where `sums` returns for how many sectors of an address range checksums exist.
    fn reported(mapped: Vec<Run>, mut sums: impl FnMut(Range<u64>) -> u64) -> (Vec<Run>, usize) {
        let mut sums = |addresses: Range<u64>| Ok(vec![7; usize::try_from(sums(addresses)).unwrap()]);
        let until = Instant::now() + PATIENCE;
        let (runs, sums) = proved(0, mapped, &facts(), &mut sums, until).unwrap();
        (runs, sums.len())
    }

    fn all(addresses: Range<u64>) -> u64 {
        (addresses.end - addresses.start).div_ceil(PROVED)
    }

    #[test]
    fn a_range_across_two_chunks_has_two_locations() {
        let half = MIB / 2;
        let expected = vec![run(half, Some(MIB + half)), run(MIB - 777, Some(9 * MIB))];
        assert_eq!(reported(vec![run(MIB - 777, Some(4 * MIB + half))], all), (expected, 256));
    }

    #[test]
    fn runs_without_checksums_or_location_and_short_runs_are_data_without_a_location() {
        let hole = Run { is_data: false, ..run(3 * MIB, None) };
        let mapped = vec![
            run(MIB, None),
            run(MIB + 4096, Some(4 * MIB)),
            run(2 * MIB, Some(8 * MIB)),
            hole.clone(),
            run(4 * MIB, Some(6 * MIB)),
            run(5 * MIB, Some(u64::MAX - 4095)),
        ];
        let expected = vec![run(2 * MIB, None), hole.clone(), run(5 * MIB, None)];
        assert_eq!(reported(mapped, all), (expected, 0));
        // Only the first 64 sectors have checksums.
        let expected = vec![run(64 * PROVED, Some(MIB)), run(MIB, None)];
        let some = |addresses: Range<u64>| if addresses.start == 4 * MIB { 64 } else { 0 };
        assert_eq!(reported(vec![run(MIB, Some(4 * MIB))], some), (expected, 64));
    }

    #[test]
    fn a_workload_that_takes_too_long_ends_after_the_first_run() {
        let mapped = vec![run(MIB / 2, Some(4 * MIB)), run(MIB, Some(5 * MIB))];
        let mut sums = |addresses: Range<u64>| Ok(vec![7; usize::try_from(all(addresses)).unwrap()]);
        let (runs, sums) = proved(0, mapped, &facts(), &mut sums, Instant::now()).unwrap();
        assert_eq!((runs, sums.len()), (vec![run(MIB / 2, Some(MIB))], 128));
    }

    #[test]
    fn an_item_longer_than_the_search_result_is_invalid() {
        let header = |len: u32| {
            let words = [1, SUMS.object, 4096, u64::from(SUMS.kind) | u64::from(len) << 32];
            [words.map(u64::to_le_bytes).concat(), vec![5; 8]].concat()
        };
        let mut shown = Vec::new();
        let mut take = |offset, item: &[u8]| {
            shown.push((offset, item.len()));
            Some(())
        };
        assert_eq!(found(&mut &header(8)[..], SUMS, &mut take), Some(4096));
        assert_eq!(found(&mut &header(8)[..], CHUNKS, &mut take), Some(4096));
        assert_eq!(found(&mut &header(9)[..], SUMS, &mut take), None);
        assert_eq!(found(&mut &header(8)[..31], SUMS, &mut take), None);
        assert_eq!(shown, [(4096, 8)]);
    }
}
