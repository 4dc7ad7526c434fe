//! VMDK, the format of VMware: monolithic sparse and stream-optimised files.
//!
//! Layout, little-endian, in sectors of 512 bytes: a header ([`RawVmdkHeader`]) and a descriptor (text). A grain
//! directory has the location of each grain table, and a grain table has the location of each grain. In a
//! stream-optimised file each grain is compressed behind a marker. A copy of the header at the end of the file
//! ([`FOOTER_BACK`]) has the location of the grain directory.
//! Locking: the cache of grain tables has a leaf lock, which is not held during reads.
//! Source: VMware, "Virtual Disk Format 5.0"; qemu `block/vmdk.c`.

mod descriptor;

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, le, to_u64, to_usize};
use obento_base::{DeviceError, Result as BaseResult};
use obento_block::BlockDevice;
use obento_env::sync::Mutex;

use crate::disk::Disk;
use crate::error::Opening;
use crate::layout::{Extent, Layout, Place, Unit};
use crate::{Inflate, read_bytes, read_raw};

pub(crate) const MAGIC: &[u8; 4] = b"KDMV";
pub(crate) const SECTOR_BYTES: u64 = 512;
/// The value of the directory's location that refers to the footer.
pub(crate) const AT_END: u64 = u64::MAX;
/// The distance of the footer from the end of the file: the footer and the marker of the end.
const FOOTER_BACK: u64 = 1024;

/// Grain tables may contain [`ZEROED`].
const FLAG_ZEROED_GRAINS: u32 = 1 << 2;
pub(crate) const FLAG_COMPRESSED: u32 = 1 << 16;
pub(crate) const FLAG_MARKERS: u32 = 1 << 17;
pub(crate) const DEFLATE: u16 = 1;

/// A grain table entry without a location.
const UNALLOCATED: u32 = 0;
/// A grain that was discarded.
const ZEROED: u32 = 1;
/// The most entries of a grain table. All known writers use this number.
const TABLE_ENTRIES_MAX: u32 = 512;
/// The grain sizes that this decoder accepts, in sectors. The usual size is 64 KiB.
const GRAINS: core::ops::RangeInclusive<u64> = 8..=4096;
/// Grain tables to keep, of 2 KiB each.
const TABLES: usize = 64;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
pub(crate) struct RawVmdkHeader {
    pub magic: [u8; 4],
    pub version: le::U32,
    pub flags: le::U32,
    pub capacity: le::U64,
    pub grain_size: le::U64,
    pub descriptor_offset: le::U64,
    pub descriptor_size: le::U64,
    pub table_entries: le::U32,
    pub redundant_directory: le::U64,
    pub directory: le::U64,
    pub overhead: le::U64,
    pub unclean: u8,
    /// Line ends that a transfer in text mode would change.
    pub line_ends: [u8; 4],
    pub compression: le::U16,
    pub reserved: [u8; 433],
}
const _: () = assert!(size_of::<RawVmdkHeader>() == 512);

/// The marker before a compressed grain.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
pub(crate) struct RawMarker {
    pub sector: le::U64,
    pub size: le::U32,
}
pub(crate) const MARKER_LEN: u64 = 12;
const _: () = assert!(to_u64(size_of::<RawMarker>()) == MARKER_LEN);

pub(crate) fn is_vmdk(start: &[u8]) -> bool {
    start.starts_with(MAGIC) || descriptor::is_descriptor(start)
}

/// A VMDK file with grains.
struct Grains {
    /// The size of the disk in bytes.
    len: u64,
    /// The size of a grain in bytes.
    grain: u64,
    /// The number of entries of a grain table.
    table_entries: u32,
    /// The sectors of the grain tables.
    directory: Vec<u32>,
    is_compressed: bool,
    has_zeroed: bool,
    tables: Mutex<Vec<(u64, Arc<[u32]>)>>,
}

pub(crate) fn open(file: Arc<dyn BlockDevice>, inflate: Inflate) -> Result<Arc<dyn BlockDevice>, Opening> {
    const HEADER: &str = "sparse extent header";
    // A descriptor alone may be shorter than the header.
    if read_bytes(&*file, 0, to_u64(MAGIC.len()), HEADER)? != MAGIC {
        return Err(Opening::Unsupported("its data in other files"));
    }
    let mut header: RawVmdkHeader = read_raw(&*file, 0, HEADER)?;
    if header.directory.get() == AT_END {
        let at = file.len().saturating_sub(FOOTER_BACK);
        header = read_raw(&*file, at, "footer")?;
        if header.magic != *MAGIC || header.directory.get() == AT_END {
            return Err(Opening::damaged("footer", "missing; the file may be truncated"));
        }
    }
    if !matches!(header.version.get(), 1..=3) {
        return Err(Opening::Unsupported("an unknown version"));
    }
    check_descriptor(&*file, &header)?;
    let grains = Grains::new(&*file, &header)?;
    Ok(Disk::packed(file, grains, inflate))
}

/// Rejects a disk that is not complete in this file.
fn check_descriptor(file: &dyn BlockDevice, header: &RawVmdkHeader) -> Result<(), Opening> {
    const DESCRIPTOR: &str = "descriptor";
    if header.descriptor_offset.get() == 0 {
        // The file is one of the extents of a disk. Without its descriptor it may be a part.
        return Err(Opening::Unsupported("its description in another file"));
    }
    let offset = header.descriptor_offset.get().saturating_mul(SECTOR_BYTES);
    let len = header.descriptor_size.get().saturating_mul(SECTOR_BYTES).min(descriptor::LEN_MAX);
    let text = read_bytes(file, offset, len, DESCRIPTOR)?;
    descriptor::check(&text)
}

impl Grains {
    fn new(file: &dyn BlockDevice, header: &RawVmdkHeader) -> Result<Self, Opening> {
        const HEADER: &str = "sparse extent header";
        let (flags, size) = (header.flags.get(), header.grain_size.get());
        if !size.is_power_of_two() || !GRAINS.contains(&size) {
            return Err(Opening::damaged(HEADER, "the grain size is impossible"));
        }
        let table_entries = header.table_entries.get();
        if !(1..=TABLE_ENTRIES_MAX).contains(&table_entries) {
            return Err(Opening::damaged(HEADER, "the number of entries of a grain table is impossible"));
        }
        let is_compressed = flags & FLAG_COMPRESSED != 0;
        if is_compressed && (header.compression.get() != DEFLATE || flags & FLAG_MARKERS == 0) {
            return Err(Opening::Unsupported("another compression than deflate with markers"));
        }
        let len = header.capacity.get().checked_mul(SECTOR_BYTES).filter(|&len| len > 0);
        let len = len.ok_or(Opening::damaged(HEADER, "the capacity is impossible"))?;
        let grain = size.saturating_mul(SECTOR_BYTES);
        let tables = len.div_ceil(grain.saturating_mul(table_entries.into()));
        let offset = header.directory.get().saturating_mul(SECTOR_BYTES);
        let directory = words(&read_bytes(file, offset, tables.saturating_mul(4), "grain directory")?);
        Ok(Self {
            len,
            grain,
            table_entries,
            directory,
            is_compressed,
            has_zeroed: flags & FLAG_ZEROED_GRAINS != 0,
            tables: Mutex::new(Vec::new()),
        })
    }

    /// Returns grain table `index`, or `None` for a table whose grains are all unallocated.
    fn table(&self, file: &dyn BlockDevice, index: u64) -> BaseResult<Option<Arc<[u32]>>> {
        let known = |tables: &Vec<(u64, Arc<[u32]>)>| {
            tables.iter().find(|(known, _)| *known == index).map(|(_, table)| table.clone())
        };
        let sector = match self.directory.get(to_usize(index)) {
            None | Some(&UNALLOCATED) => return Ok(None),
            Some(&sector) => u64::from(sector),
        };
        if let Some(table) = known(&self.tables.lock()) {
            return Ok(Some(table));
        }
        let mut bytes = [0; 4 * 512];
        let len = to_usize(self.table_entries.into()).saturating_mul(4);
        let part = bytes.get_mut(..len).unwrap_or_default();
        file.read_at(sector.saturating_mul(SECTOR_BYTES), part)?;
        let table: Arc<[u32]> = words(part).into();
        let mut tables = self.tables.lock();
        if tables.len() >= TABLES {
            tables.remove(0);
        }
        tables.push((index, table.clone()));
        Ok(Some(table))
    }

    /// Returns the location of byte `inside` of a grain with this entry.
    fn place(&self, entry: u32, inside: u64) -> Place {
        match entry {
            UNALLOCATED => Place::Zeros,
            ZEROED if self.has_zeroed => Place::Zeros,
            sector => Place::Data(u64::from(sector).saturating_mul(SECTOR_BYTES).saturating_add(inside)),
        }
    }

    /// Returns the location of the compressed grain that begins at `start`.
    fn packed(&self, file: &dyn BlockDevice, start: u64, at: u64) -> BaseResult<Place> {
        let failed = DeviceError::Read { offset: start, len: self.grain, errno: 0 };
        let mut bytes = [0; 12];
        file.read_at(at, &mut bytes)?;
        let marker = RawMarker::read_from_bytes(&bytes).map_err(|_| failed)?;
        let packed = u64::from(marker.size.get());
        // Deflate adds a few bytes to data that it cannot compress.
        if packed == 0 || packed > self.grain.saturating_mul(2) {
            return Err(failed.into());
        }
        Ok(Place::Packed(Unit { start, len: self.grain, at: at.saturating_add(MARKER_LEN), packed }))
    }
}

impl Layout for Grains {
    fn len(&self) -> u64 {
        self.len
    }

    fn locate(&self, file: &Arc<dyn BlockDevice>, offset: u64, want: u64) -> BaseResult<Extent> {
        let (index, inside) =
            (offset.checked_div(self.grain).unwrap_or(0), offset.checked_rem(self.grain).unwrap_or(0));
        let per_table = u64::from(self.table_entries);
        let (row, column) =
            (index.checked_div(per_table).unwrap_or(0), index.checked_rem(per_table).unwrap_or(0));
        let first = self.grain.saturating_sub(inside);
        let Some(table) = self.table(&**file, row)? else {
            let rest = per_table.saturating_sub(column).saturating_sub(1).saturating_mul(self.grain);
            return Ok(Extent { len: first.saturating_add(rest), place: Place::Zeros });
        };
        let entries = table.get(to_usize(column)..).unwrap_or_default();
        let place = self.place(entries.first().copied().unwrap_or(UNALLOCATED), inside);
        if let (Place::Data(at), true) = (place, self.is_compressed) {
            let place = self.packed(&**file, offset.saturating_sub(inside), at.saturating_sub(inside))?;
            return Ok(Extent { len: first, place });
        }
        let mut len = first;
        for &entry in entries.iter().skip(1) {
            let joined = match place {
                Place::Data(at) => Place::Data(at.saturating_add(len)),
                other => other,
            };
            if len >= want || self.place(entry, 0) != joined {
                break;
            }
            len = len.saturating_add(self.grain);
        }
        Ok(Extent { len, place })
    }
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks::<4>().0.iter().map(|&bytes| u32::from_le_bytes(bytes)).collect()
}
