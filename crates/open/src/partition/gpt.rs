//! The GUID partition table.
//!
//! Invariant: memory for entries is allocated only after they were found to be within the device, and never
//! more than [`MAX_ENTRY_BYTES`].

use obento_base::wire::{FromBytes, FromZeros, IntoBytes};
use obento_base::{Corrupt, Error, Result, Structure};
use obento_block::{BlockDevice, check_range};

use super::raw::{RawGptEntry, RawGptHeader, header_crc, is_zero};
use super::{
    Detail, DiskId, Guid, MAX_PARTITIONS, PartitionType, SECTOR_SIZES, Scheme, Table, TableNotice,
    read_sector,
};

/// Maximum number of bytes that Linux allocates for the entries (KMALLOC_MAX_SIZE in block/partitions/efi.c).
const MAX_ENTRY_BYTES: u64 = 4 << 20;
/// The smallest entry (UEFI specification 5.3.3).
const MIN_ENTRY_SIZE: u32 = 128;

/// A header with a correct checksum.
pub(super) struct Header {
    pub(super) sector_size: u32,
    /// The sector of this header.
    pub(super) sector: u64,
    /// The bytes of that sector.
    pub(super) bytes: Vec<u8>,
    disk_guid: Guid,
    entries_at: u64,
    pub(super) entry_size: u32,
    entry_count: u32,
    entries_crc: u32,
}

/// The entries of a header.
struct Entries {
    bytes: Vec<u8>,
    /// Set if the entries do not match their checksum.
    damage: Option<Error>,
}

/// The copy of a GPT that is used.
pub(super) struct GptCopy {
    pub(super) header: Header,
    /// The bytes of all entries.
    pub(super) entries: Vec<u8>,
    pub(super) notices: Vec<TableNotice>,
}

impl GptCopy {
    fn new(header: Header, entries: Vec<u8>, notice: Option<TableNotice>) -> Self {
        Self { header, entries, notices: notice.into_iter().collect() }
    }

    /// Returns the copy of a new table, whose positions are set when it is written.
    pub(super) fn empty(raw: RawGptHeader, sector_size: u32, entries: Vec<u8>) -> Self {
        let mut bytes = raw.as_bytes().to_vec();
        bytes.resize(usize::try_from(sector_size).unwrap_or(0), 0);
        let header = Header {
            sector_size,
            sector: 1,
            bytes,
            disk_guid: Guid::from_disk(raw.disk_guid),
            entries_at: 0,
            entry_size: raw.size_of_partition_entry.get(),
            entry_count: raw.number_of_partition_entries.get(),
            entries_crc: 0,
        };
        Self::new(header, entries, None)
    }

    /// Returns the partitions.
    pub(super) fn table(&self) -> Table {
        table(&self.header, &self.entries, self.notices.clone())
    }
}

/// Reads the GPT. Returns `None` if neither its header nor its backup exists. Fails with `Corrupt` if one of them
/// exists and neither is usable.
pub fn read(device: &dyn BlockDevice) -> Result<Option<Table>> {
    Ok(find(device)?.map(|copy| copy.table()))
}

/// Returns the copy that [`read`] uses. Fails with the errors of [`read`].
pub(super) fn find(device: &dyn BlockDevice) -> Result<Option<GptCopy>> {
    let mut first_error = None;
    for sector_size in SECTOR_SIZES {
        match find_with(device, sector_size) {
            Ok(None) => {}
            Ok(Some(copy)) => return Ok(Some(copy)),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    first_error.map_or(Ok(None), Err)
}

/// Returns whether the second copy of the GPT, at the end of the disk, is equal to `copy`, the first copy.
pub(super) fn has_equal_backup(device: &dyn BlockDevice, copy: &GptCopy) -> bool {
    let size = copy.header.sector_size;
    let last = device.len().checked_div(u64::from(size)).and_then(|count| count.checked_sub(1));
    let second = last.and_then(|last| load(device, size, last).ok().flatten());
    second.is_some_and(|(header, entries)| {
        header.disk_guid == copy.header.disk_guid && entries.damage.is_none() && entries.bytes == copy.entries
    })
}

/// Returns whether no other data was written over the first copy of the GPT. `copy` is the backup. The result is `true`
/// if both conditions apply:
///
/// - The sectors of the MBR and of the first header are zeros.
/// - Each sector of the first entries is zero, or equals the same sector of `copy`.
///
/// Fails with the errors of the device.
pub(super) fn starts_with_zeros(device: &dyn BlockDevice, copy: &GptCopy) -> Result<bool> {
    let size = copy.header.sector_size;
    for sector in 0..2 {
        if !is_zero(&read_sector(device, size, sector)?) {
            return Ok(false);
        }
    }
    let entries = copy.entries.chunks(usize::try_from(size).unwrap_or(1).max(1));
    for (sector, expected) in (2..).zip(entries) {
        let found = read_sector(device, size, sector)?;
        // The entries can end within a sector.
        let (entries, rest) = found.split_at(expected.len().min(found.len()));
        if !is_zero(rest) || !is_zero(entries) && entries != expected {
            return Ok(false);
        }
    }
    Ok(true)
}

fn find_with(device: &dyn BlockDevice, sector_size: u32) -> Result<Option<GptCopy>> {
    let primary = match load(device, sector_size, 1) {
        Ok(Some((header, Entries { bytes, damage: None }))) => {
            return Ok(Some(GptCopy::new(header, bytes, None)));
        }
        other => other,
    };
    let backup = load_backup(device, sector_size);
    match (primary, backup) {
        (Ok(None), Ok(Some((header, Entries { bytes, damage: None })))) => {
            Ok(Some(GptCopy::new(header, bytes, Some(TableNotice::Backup(bad_magic())))))
        }
        (primary @ (Err(_) | Ok(Some(_))), Ok(Some((header, Entries { bytes, damage: None })))) => {
            let why = primary.map_or_else(Some, |found| found.and_then(|(_, entries)| entries.damage));
            Ok(Some(GptCopy::new(header, bytes, why.map(TableNotice::Backup))))
        }
        (Ok(Some((header, entries))), _) | (_, Ok(Some((header, entries)))) => {
            let notice = entries.damage.map(TableNotice::DamagedEntries);
            Ok(Some(GptCopy::new(header, entries.bytes, notice)))
        }
        (Err(error), _) => Err(error),
        (Ok(None), _) => Ok(None),
    }
}

/// Loads the copy of the header: from the position in a damaged first header, or from the last sector. The last sector
/// of a device that is longer than its table may contain the copy of an older table.
fn load_backup(device: &dyn BlockDevice, sector_size: u32) -> Result<Option<(Header, Entries)>> {
    let primary = read_sector(device, sector_size, 1)?;
    let named = RawGptHeader::of(&primary).map(|header| header.alternate_lba.get());
    if let Some(sector) = named.filter(|&sector| sector > 1)
        && let Ok(Some(copy)) = load(device, sector_size, sector)
    {
        return Ok(Some(copy));
    }
    let last = device.len().checked_div(u64::from(sector_size)).and_then(|count| count.checked_sub(1));
    last.filter(|&last| last > 1).map_or(Ok(None), |last| load(device, sector_size, last))
}

/// Loads the header in `sector` and its entries. Returns `None` if the sector is not a header or does not
/// exist.
fn load(device: &dyn BlockDevice, sector_size: u32, sector: u64) -> Result<Option<(Header, Entries)>> {
    let bytes = match read_sector(device, sector_size, sector) {
        Err(Error::Device(obento_base::DeviceError::OutOfBounds { .. })) => return Ok(None),
        other => other?,
    };
    let Some(raw) = RawGptHeader::of(&bytes) else { return Ok(None) };
    let header = Header::decode(raw, &bytes, sector_size, sector)?;
    let entries = header.load_entries(device)?;
    Ok(Some((header, entries)))
}

impl Header {
    fn decode(raw: &RawGptHeader, bytes: &[u8], sector_size: u32, sector: u64) -> Result<Self> {
        let structure = Structure::PartitionTable;
        let field = |field, offset, found| Corrupt::Field { structure, field, block: sector, offset, found };
        let size = raw.header_size.get();
        let counted = usize::try_from(size).ok().filter(|&size| size >= size_of::<RawGptHeader>());
        let counted = counted.and_then(|size| bytes.get(..size));
        let counted = counted.ok_or_else(|| field("HeaderSize", 12, size.into()))?;
        let (found, expected) = (raw.header_crc32.get(), header_crc(counted));
        if found != expected {
            return Err(Corrupt::Checksum { structure, block: sector, found, expected }.into());
        }
        if raw.my_lba.get() != sector {
            return Err(field("MyLBA", 24, raw.my_lba.get()).into());
        }
        let (entry_size, entry_count) =
            (raw.size_of_partition_entry.get(), raw.number_of_partition_entries.get());
        if entry_size < MIN_ENTRY_SIZE {
            return Err(field("SizeOfPartitionEntry", 84, entry_size.into()).into());
        }
        if u64::from(entry_size).saturating_mul(entry_count.into()) > MAX_ENTRY_BYTES {
            return Err(field("NumberOfPartitionEntries", 80, entry_count.into()).into());
        }
        let entries_lba = raw.partition_entry_lba.get();
        let entries_at = entries_lba.checked_mul(sector_size.into());
        Ok(Self {
            sector_size,
            sector,
            bytes: bytes.to_vec(),
            disk_guid: Guid::from_disk(raw.disk_guid),
            entries_at: entries_at.ok_or_else(|| field("PartitionEntryLBA", 72, entries_lba))?,
            entry_size,
            entry_count,
            entries_crc: raw.partition_entry_array_crc32.get(),
        })
    }

    /// Returns the fields on disk.
    pub(super) fn raw(&self) -> RawGptHeader {
        RawGptHeader::of(&self.bytes).copied().unwrap_or_else(RawGptHeader::new_zeroed)
    }

    /// Sets the GUID of the disk.
    pub(super) fn set_id(&mut self, id: Guid) {
        self.disk_guid = id;
        if let Ok((raw, _)) = RawGptHeader::mut_from_prefix(&mut self.bytes) {
            raw.disk_guid = id.to_disk();
        }
    }

    fn load_entries(&self, device: &dyn BlockDevice) -> Result<Entries> {
        let len = u64::from(self.entry_size).saturating_mul(self.entry_count.into());
        check_range(device.len(), self.entries_at, len)?;
        let mut bytes = Vec::new();
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        bytes.try_reserve_exact(len)?;
        bytes.resize(len, 0);
        device.read_at(self.entries_at, &mut bytes)?;
        let (found, expected) = (self.entries_crc, obento_base::crc::crc32(&bytes));
        let damage = (found != expected).then(|| {
            let structure = Structure::PartitionTable;
            Corrupt::Checksum { structure, block: self.sector, found, expected }.into()
        });
        Ok(Entries { bytes, damage })
    }
}

fn bad_magic() -> Error {
    let expected = u64::from_le_bytes(*b"EFI PART");
    Corrupt::Magic { structure: Structure::PartitionTable, block: 1, found: 0, expected }.into()
}

fn table(header: &Header, entries: &[u8], notices: Vec<TableNotice>) -> Table {
    let id = DiskId::Guid(header.disk_guid);
    let partitions = Vec::new();
    let mut table = Table { scheme: Scheme::Gpt, sector_size: header.sector_size, id, partitions, notices };
    let entry_size = usize::try_from(header.entry_size).unwrap_or(usize::MAX);
    for (number, bytes) in (1..).zip(entries.chunks_exact(entry_size).take(MAX_PARTITIONS)) {
        let Ok((raw, _)) = RawGptEntry::ref_from_prefix(bytes) else { break };
        if is_zero(&raw.partition_type_guid) {
            continue;
        }
        let (first, last) = (raw.starting_lba.get(), raw.ending_lba.get());
        let sectors = last.checked_sub(first).and_then(|last| last.checked_add(1));
        let detail = Detail {
            kind: PartitionType::Gpt(Guid::from_disk(raw.partition_type_guid)),
            name: name(raw),
            uuid: Guid::from_disk(raw.unique_partition_guid).to_string(),
            attributes: raw.attributes.get(),
        };
        table.add(number, first, sectors, detail);
    }
    table
}

fn name(raw: &RawGptEntry) -> Vec<u8> {
    let units = raw.partition_name.iter().map(|unit| unit.get()).take_while(|&unit| unit != 0);
    let chars = char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER));
    chars.collect::<String>().into_bytes()
}
