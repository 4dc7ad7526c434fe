//! A target for partition tables: GPT and MBR.

use obento::partition::Table;
use obento_base::Result;
use obento_base::crc::crc32;
use obento_block::MemDevice;

const SECTOR: usize = 512;
const SECTORS: usize = 64;
/// The number of bytes of a boot record before its partitions.
const RECORDS: usize = 446;

/// Reads the table of a disk. The first byte chooses the scheme. Signatures and checksums, which a fuzzer cannot guess,
/// are corrected so that the fields after them are reached.
pub fn read(data: &[u8]) {
    if let Some((&scheme, data)) = data.split_first() {
        let _ = table(scheme, data);
    }
}

fn table(scheme: u8, data: &[u8]) -> Result<Option<Table>> {
    let mut disk = vec![0; SECTORS * SECTOR];
    match scheme % 4 {
        0 => put(&mut disk, 0, data),
        1 => boot_records(&mut disk, data),
        _ => gpt(&mut disk, data, scheme % 4 == 2),
    }
    Table::read(&MemDevice::read_only(disk))
}

fn put(disk: &mut [u8], at: usize, data: &[u8]) {
    let len = data.len().min(disk.len() - at);
    disk[at..at + len].copy_from_slice(&data[..len]);
}

/// Writes a chain of boot records: 64 bytes of partitions in each sector.
fn boot_records(disk: &mut [u8], data: &[u8]) {
    for (sector, records) in disk.chunks_exact_mut(SECTOR).zip(data.chunks(64)) {
        sector[RECORDS..RECORDS + records.len()].copy_from_slice(records);
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
    }
}

/// Writes a header to the second or to the last sector, and the entries to their place. The entries follow the header
/// in `data`.
fn gpt(disk: &mut [u8], data: &[u8], primary: bool) {
    let (mut header, rest) = (vec![0; SECTOR], data.get(92..).unwrap_or_default());
    put(&mut header, 0, &data[..data.len().min(92)]);
    // These fields contain sectors: of this header, of the other header, of the usable area, and of the entries. Small
    // numbers are often right.
    for field in [24, 32, 40, 48, 72] {
        header[field + 1..field + 8].fill(0);
        header[field] %= 80;
    }
    header[..8].copy_from_slice(b"EFI PART");
    header[8..16].copy_from_slice(&[0, 0, 1, 0, 92, 0, 0, 0]);
    header[82..84].fill(0);
    let entries = usize::from(header[72]) * SECTOR;
    if entries < disk.len() {
        put(disk, entries, rest);
    }
    put(disk, RECORDS, &[0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1, 0, 0, 0, 63, 0, 0, 0]);
    put(disk, 510, &[0x55, 0xaa]);
    let count = u32::from_le_bytes([header[80], header[81], 0, 0]) as usize;
    let size = u32::from_le_bytes([header[84], header[85], header[86], header[87]]) as usize;
    if let Some(array) = count.checked_mul(size).and_then(|len| disk.get(entries..entries.checked_add(len)?))
    {
        let checksum = crc32(array);
        header[88..92].copy_from_slice(&checksum.to_le_bytes());
    }
    header[16..20].fill(0);
    let checksum = crc32(&header[..92]);
    header[16..20].copy_from_slice(&checksum.to_le_bytes());
    put(disk, if primary { SECTOR } else { (SECTORS - 1) * SECTOR }, &header);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds;

    #[test]
    fn the_seeds_are_tables_with_partitions() {
        let count = |seed: &Vec<u8>| table(seed[0], &seed[1..]).unwrap().unwrap().partitions.len();
        let counts: Vec<_> = seeds::partition_tables().iter().map(count).collect();
        // The extended partition itself is one of the five.
        assert_eq!(counts, [5, 2, 2]);
    }
}
