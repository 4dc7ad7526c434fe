use std::io::Cursor;
use std::process::Command;
use std::sync::LazyLock;

use obento_base::wire::{FromBytes, FromZeros, IntoBytes};
use obento_block::MemDevice;

use super::raw::{RawGptEntry, RawGptHeader, RawMbr, RawMbrEntry, header_crc};
use super::*;

const MIB: usize = 1 << 20;

/// Returns a disk of 8 MiB with a GPT created by the crate `gpt`. It has an EFI partition, and a root partition with a
/// name outside ASCII.
fn gpt_disk(sector_size: usize) -> Vec<u8> {
    static DISKS: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| [512, 4096].map(make_gpt_disk));
    DISKS[usize::from(sector_size == 4096)].clone()
}

fn make_gpt_disk(sector_size: usize) -> Vec<u8> {
    let lb = if sector_size == 512 {
        ::gpt::disk::LogicalBlockSize::Lb512
    } else {
        ::gpt::disk::LogicalBlockSize::Lb4096
    };
    let mut bytes = vec![0; 8 * MIB];
    let sectors = u32::try_from(bytes.len() / sector_size - 1).unwrap();
    ::gpt::mbr::ProtectiveMBR::with_lb_size(sectors).overwrite_lba0(&mut Cursor::new(&mut bytes)).unwrap();
    let config = ::gpt::GptConfig::new().writable(true).logical_block_size(lb);
    let mut disk = config.create_from_device(Cursor::new(bytes), None).unwrap();
    disk.add_partition("EFI", MIB as u64, ::gpt::partition_types::EFI, 0, None).unwrap();
    disk.add_partition("wurzel-ß-🍱", 2 * MIB as u64, ::gpt::partition_types::LINUX_FS, 1 << 60, None)
        .unwrap();
    disk.write().unwrap().into_inner()
}

fn read(bytes: &[u8]) -> Option<Table> {
    Table::read(&MemDevice::read_only(bytes.to_vec())).unwrap()
}

#[test]
fn a_gpt_reads_as_its_maker_wrote_it() {
    for sector_size in [512, 4096] {
        let bytes = gpt_disk(sector_size);
        let lb = u64::try_from(sector_size).unwrap();
        let oracle = ::gpt::GptConfig::new().logical_block_size(lb.try_into().unwrap());
        let oracle = oracle.open_from_device(Cursor::new(bytes.clone())).unwrap();
        let table = read(&bytes).unwrap();
        assert_eq!((table.scheme, u64::from(table.sector_size)), (Scheme::Gpt, lb));
        assert_eq!(table.id.to_string(), oracle.guid().to_string());
        assert_eq!(table.notices, []);
        assert_eq!(table.partitions.len(), 2);
        for partition in &table.partitions {
            let expected = &oracle.partitions()[&partition.number];
            assert_eq!(partition.start, expected.first_lba * lb);
            assert_eq!(partition.end(), (expected.last_lba + 1) * lb);
            assert_eq!(String::from_utf8(partition.name.clone()).unwrap(), expected.name);
            assert_eq!(partition.uuid, expected.part_guid.to_string());
            assert_eq!(partition.attributes, expected.flags);
        }
        assert_eq!(table.partitions[0].kind.to_string(), "EFI system");
        assert_eq!(table.partitions[1].kind.to_string(), "Linux filesystem");
    }
}

/// Returns the disk with sectors of 512 bytes, with a table for sectors of `size` bytes.
fn gpt_disk_of(size: usize) -> Vec<u8> {
    let mut bytes = gpt_disk(512);
    let factor = u64::try_from(size / 512).unwrap();
    let mut entries = bytes[1024..1024 + 128 * 128].to_vec();
    for entry in entries.chunks_exact_mut(128) {
        let raw = RawGptEntry::mut_from_bytes(entry).unwrap();
        let (first, last) = (raw.starting_lba.get() / factor, (raw.ending_lba.get() + 1) / factor);
        raw.starting_lba = first.into();
        raw.ending_lba = last.saturating_sub(1).into();
    }
    let mut header = bytes[512..1024].to_vec();
    let raw = RawGptHeader::mut_from_bytes(&mut header[..92]).unwrap();
    raw.alternate_lba = (8 * MIB as u64 / size as u64 - 1).into();
    raw.partition_entry_array_crc32 = obento_base::crc::crc32(&entries).into();
    let crc = header_crc(&header[..92]);
    header[16..20].copy_from_slice(&crc.to_le_bytes());
    bytes[512..MIB].fill(0);
    bytes[8 * MIB - 64 * 512..].fill(0);
    bytes[size..size + 512].copy_from_slice(&header);
    bytes[2 * size..][..entries.len()].copy_from_slice(&entries);
    bytes
}

#[test]
fn a_gpt_with_sectors_of_1024_or_2048_bytes_has_its_partitions_where_it_says() {
    let places = |bytes: &[u8]| {
        let table = read(bytes).unwrap();
        let partitions: Vec<_> =
            table.partitions.iter().map(|partition| (partition.number, partition.range())).collect();
        (table.sector_size, partitions)
    };
    let (_, expected) = places(&gpt_disk(512));
    for size in [1024, 2048, 4096] {
        let (found, partitions) = places(&gpt_disk_of(size));
        // The table with sectors of 512 bytes does not align its partitions.
        let aligned = |at: u64| at - at % u64::from(found);
        let expected =
            expected.iter().map(|(number, range)| (*number, aligned(range.start)..aligned(range.end)));
        assert_eq!((usize::try_from(found), partitions), (Ok(size), expected.collect()));
    }
}

#[test]
fn a_gpt_counts_only_if_the_mbr_protects_it() {
    let mut bytes = gpt_disk(512);
    bytes[446 + 4] = 0;
    let device = MemDevice::read_only(bytes.clone());
    assert_eq!((Table::read(&device), Table::ignores_gpt(&device)), (Ok(None), Ok(true)));
    bytes[446..462].copy_from_slice(entry(0x83, 2048, 100).as_bytes());
    assert_eq!(read(&bytes).unwrap().scheme, Scheme::Mbr);
}

#[test]
fn a_gpt_without_its_protective_mbr_is_written_with_the_mbr_again() {
    for (sector_size, has_signature) in [(512, false), (512, true), (4096, false)] {
        let good = gpt_disk(sector_size);
        let mut bytes = good.clone();
        bytes[440..512].fill(0);
        if has_signature {
            bytes[..440].fill(0x90);
            bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
        }
        let device = std::sync::Arc::new(MemDevice::new(bytes));
        let table = Table::read_unprotected_gpt(&*device).unwrap().unwrap();
        assert_eq!(Some(table.partitions.clone()), read(&good).map(|table| table.partitions));
        TableEditor::open(device.clone(), &table).unwrap().write().unwrap();
        let repaired = Table::read(&*device).unwrap().unwrap();
        assert_eq!((repaired.scheme, repaired.partitions), (Scheme::Gpt, table.partitions));
        assert_eq!(Table::read_unprotected_gpt(&*device), Ok(None));
        let mut code = [0; 440];
        device.read_at(0, &mut code).unwrap();
        assert_eq!(code == [0x90; 440], has_signature);
    }
    // Other data was written over the start of a disk with a GPT. The backup remains.
    for damaged in [446..447, 0..20 << 10] {
        let mut bytes = gpt_disk(512);
        bytes[440..512].fill(0);
        bytes[damaged].fill(0xa7);
        assert_eq!(Table::read_unprotected_gpt(&MemDevice::read_only(bytes)), Ok(None));
    }
    // An MBR with partitions belongs to another table.
    let mut bytes = gpt_disk(512);
    bytes[446..462].copy_from_slice(entry(0x83, 2048, 100).as_bytes());
    assert_eq!(Table::read_unprotected_gpt(&MemDevice::read_only(bytes)), Ok(None));
}

#[test]
fn the_backup_replaces_a_damaged_first_header_or_its_entries() {
    for sector_size in [512, 4096] {
        let good = gpt_disk(sector_size);
        let partitions = read(&good).unwrap().partitions;
        // A signature, a header field, and an entry.
        for at in [sector_size, sector_size + 60, 2 * sector_size + 33] {
            let mut bytes = good.clone();
            bytes[at] ^= 0xff;
            let table = read(&bytes).unwrap();
            assert_eq!(table.partitions, partitions, "byte {at}");
            assert!(matches!(table.notices[..], [TableNotice::Backup(_)]), "{:?}", table.notices);
        }
    }
}

#[test]
fn a_backup_that_is_not_in_the_last_sector_is_found_through_the_first_header() {
    let mut bytes = gpt_disk(512);
    let partitions = read(&bytes).unwrap().partitions;
    bytes.resize(9 * MIB, 0);
    bytes[512 + 60] ^= 1;
    let table = read(&bytes).unwrap();
    assert_eq!(table.partitions, partitions);
}

#[test]
fn entries_without_any_good_checksum_are_shown_with_a_notice() {
    let mut bytes = gpt_disk(512);
    let backup_entries = bytes.len() - 33 * 512;
    bytes[1024 + 57] = 7;
    bytes[backup_entries + 57] = 7;
    let table = read(&bytes).unwrap();
    assert_eq!(table.partitions.len(), 2);
    assert!(matches!(table.notices[..], [TableNotice::DamagedEntries(_)]));
}

#[test]
fn an_unusable_gpt_is_an_error_unless_the_mbr_has_partitions() {
    let mut bytes = gpt_disk(512);
    let last = bytes.len() - 512;
    bytes[512 + 60] ^= 1;
    bytes[last + 60] ^= 1;
    assert!(Table::read(&MemDevice::read_only(bytes.clone())).is_err());
    bytes[446 + 16..446 + 32].copy_from_slice(entry(0x83, 2048, 100).as_bytes());
    let table = read(&bytes).unwrap();
    assert_eq!((table.scheme, table.partitions.len()), (Scheme::Mbr, 1));
    assert!(matches!(table.notices[..], [TableNotice::OnlyMbr(_)]));
}

#[test]
fn a_truncated_image_keeps_its_partitions_with_a_notice() {
    let mut bytes = gpt_disk(512);
    bytes.truncate(2 * MIB);
    let table = read(&bytes).unwrap();
    assert_eq!(table.partitions.len(), 2);
    assert!(matches!(table.notices[..], [TableNotice::Truncated { found: 2_097_152, .. }]));
}

fn entry(os_type: u8, first: u32, sectors: u32) -> RawMbrEntry {
    let mut entry = RawMbrEntry::new_zeroed();
    entry.os_type = os_type;
    entry.starting_lba = first.into();
    entry.size_in_lba = sectors.into();
    entry
}

/// Writes a boot record with these entries into sector `sector`.
fn put_mbr(bytes: &mut [u8], sector: usize, entries: &[RawMbrEntry]) {
    let mbr = RawMbr::mut_from_bytes(&mut bytes[sector * 512..(sector + 1) * 512]).unwrap();
    mbr.disk_signature = 0xdead_beef.into();
    mbr.signature = 0xaa55.into();
    mbr.partition_record[..entries.len()].copy_from_slice(entries);
}

fn mbr_disk() -> Vec<u8> {
    let mut bytes = vec![0; MIB];
    put_mbr(&mut bytes, 0, &[entry(0x83, 8, 16), entry(0x05, 100, 1000)]);
    bytes[446] = 0x80;
    put_mbr(&mut bytes, 100, &[entry(0x83, 2, 10), entry(0x05, 50, 40)]);
    put_mbr(&mut bytes, 150, &[entry(0x82, 1, 5)]);
    bytes
}

fn numbers(table: &Table) -> Vec<(u32, u64, u64)> {
    table.partitions.iter().map(|p| (p.number, p.start / 512, p.len / 512)).collect()
}

#[test]
fn logical_partitions_count_from_five() {
    let table = read(&mbr_disk()).unwrap();
    assert_eq!(numbers(&table), [(1, 8, 16), (2, 100, 1000), (5, 102, 10), (6, 151, 5)]);
    assert_eq!(table.partitions[3].uuid, "deadbeef-06");
    assert_eq!(table.partitions[3].kind.to_string(), "Linux swap");
    assert_eq!((table.partitions[0].attributes, table.notices.len()), (4, 0));
}

#[test]
fn a_chain_that_runs_in_a_circle_or_off_the_disk_ends_with_a_notice() {
    let mut bytes = mbr_disk();
    put_mbr(&mut bytes, 150, &[entry(0x82, 1, 5), entry(0x05, 0, 40)]);
    let table = read(&bytes).unwrap();
    assert_eq!(table.partitions.len(), 4);
    assert_eq!(table.notices, [TableNotice::CircularChain { after: 6 }]);
    put_mbr(&mut bytes, 150, &[entry(0x82, 1, 5), entry(0x05, u32::MAX, 40)]);
    assert!(matches!(read(&bytes).unwrap().notices[..], [TableNotice::BrokenChain { after: 6, .. }]));
}

#[test]
fn an_endless_chain_is_given_up() {
    let mut bytes = vec![0; MIB];
    put_mbr(&mut bytes, 0, &[entry(0x05, 1, 2000)]);
    for sector in 1..1000 {
        put_mbr(&mut bytes, sector, &[entry(0x83, 1, 1), entry(0x05, u32::try_from(sector).unwrap(), 1)]);
    }
    assert!(read(&bytes).unwrap().partitions.len() < 300);
}

#[test]
fn at_most_252_boot_records_are_read_also_without_logical_partitions() {
    let mut bytes = vec![0; MIB];
    put_mbr(&mut bytes, 0, &[entry(0x05, 1, 2000)]);
    for sector in 1..1000 {
        put_mbr(&mut bytes, sector, &[entry(0x05, u32::try_from(sector).unwrap(), 1)]);
    }
    let device = MemDevice::new(bytes.clone());
    let (table, chain) = mbr::read_with_chain(&device, 512).unwrap().unwrap();
    assert_eq!((table.partitions.len(), chain.len()), (1, mbr::MAX_RECORDS));
    assert_eq!(table.notices, [TableNotice::LongChain { after: 4 }]);
    put_mbr(&mut bytes, 252, &[entry(0x83, 1, 1)]);
    let table = read(&bytes).unwrap();
    assert_eq!((numbers(&table), table.notices.len()), (vec![(1, 1, 2000), (5, 253, 1)], 0));
}

#[test]
fn a_boot_sector_with_code_where_the_records_are_is_no_table() {
    let mut bytes = mbr_disk();
    bytes[446] = 0x33;
    assert_eq!(read(&bytes), None);
    assert_eq!(read(&[0; 4096]), None);
    assert_eq!(read(&[]), None);
}

#[test]
fn large_sectors_of_an_mbr_are_counted_when_asked_for() {
    let table = Table::read_mbr_of_large_sectors(&MemDevice::read_only(mbr_disk()), 4096).unwrap().unwrap();
    assert_eq!(table.partitions[0].start, 8 * 4096);
}

#[test]
fn a_known_type_has_the_name_that_sgdisk_gives_it() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk");
    std::fs::File::create(&image).unwrap().set_len(64 * MIB as u64).unwrap();
    // The code of sgdisk, and the word that both programs use.
    let types = [
        ("8304", "x86-64"),
        ("8305", "ARM64"),
        ("8302", "home"),
        ("8306", "srv"),
        ("8200", "swap"),
        ("8e00", "LVM"),
        ("ef02", "BIOS"),
        ("8300", "filesystem"),
        ("ea00", "boot"),
        ("8310", "var"),
        ("8314", "usr"),
        ("8309", "LUKS"),
        ("fd00", "RAID"),
    ];
    let arguments = (1..).zip(types).flat_map(|(number, (code, _))| {
        [format!("--new={number}:0:+1M"), format!("--typecode={number}:{code}")]
    });
    match Command::new("sgdisk").args(arguments).arg(&image).output() {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(_) => return println!("skipped: no sgdisk"),
    }
    let table = read(&std::fs::read(&image).unwrap()).unwrap();
    assert_eq!(table.partitions.len(), types.len());
    for (partition, (code, word)) in table.partitions.iter().zip(types) {
        let name = partition.kind.name().unwrap_or_else(|| panic!("{code} {}", partition.kind));
        assert!(name.contains(word), "{code} is {name}, which does not say {word}");
    }
}

#[test]
fn a_type_without_a_name_prints_as_its_number() {
    assert_eq!(PartitionType::Mbr(0x83).to_string(), "Linux");
    assert_eq!(PartitionType::Mbr(0x99).to_string(), "type 0x99");
    let unknown = PartitionType::Gpt(Guid::from_u128(1));
    assert_eq!(unknown.to_string(), "00000000-0000-0000-0000-000000000001");
}

proptest::proptest! {
    #[test]
    fn any_boot_records_end_and_stay_within_their_bounds(
        records in proptest::collection::vec((0_usize..64, 0_usize..4, 0_u8..=0x85, 0_u32..80, proptest::prelude::any::<u32>()), 0..40),
        extended in 0_usize..4,
    ) {
        let mut bytes = vec![0; 64 * 512];
        for sector in 0..64 {
            put_mbr(&mut bytes, sector, &[]);
        }
        for (sector, slot, os_type, first, sectors) in records {
            let at = sector * 512 + 446 + slot * 16;
            let os_type = if os_type < 0x40 { 0x05 } else { os_type };
            bytes[at..at + 16].copy_from_slice(entry(os_type, first, sectors).as_bytes());
        }
        bytes[446 + extended * 16..][..16].copy_from_slice(entry(0x0f, 1, 60).as_bytes());
        let table = read(&bytes).unwrap();
        proptest::prop_assert!(table.partitions.len() < 300);
        for partition in table.partitions {
            proptest::prop_assert!(partition.len > 0 && partition.start.checked_add(partition.len).is_some());
        }
    }

    #[test]
    fn a_damaged_table_never_panics_and_keeps_its_invariants(
        large: bool,
        edits in proptest::collection::vec((0_usize..24 << 10, proptest::prelude::any::<u8>()), 0..12),
        fix_crc: bool,
    ) {
        let sector_size = if large { 4096 } else { 512 };
        let mut bytes = gpt_disk(sector_size);
        bytes.truncate(MIB);
        let (header, _) = bytes.split_at_mut(24 << 10);
        for (at, byte) in edits {
            header[at] = byte;
        }
        if fix_crc {
            let crc = header_crc(&header[sector_size..sector_size + 92]);
            header[sector_size + 16..sector_size + 20].copy_from_slice(&crc.to_le_bytes());
        }
        if let Ok(Some(table)) = Table::read(&MemDevice::read_only(bytes)) {
            proptest::prop_assert!(table.partitions.len() <= MAX_PARTITIONS);
            for partition in table.partitions {
                proptest::prop_assert!(partition.len > 0 && partition.start.checked_add(partition.len).is_some());
            }
        }
    }
}

#[test]
fn a_written_table_reads_as_its_source() {
    let gpt = |name: &str| PartitionType::parse(name, Scheme::Gpt).unwrap();
    let mbr = |name: &str| PartitionType::parse(name, Scheme::Mbr).unwrap();
    let id = DiskId::Guid(Guid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef));
    for (id, scheme, kinds) in [
        (id, Scheme::Gpt, vec![gpt("esp"), gpt("root-arm64"), gpt("0fc63daf-8483-4772-8e79-3d69d8477de4")]),
        (DiskId::Signature(7), Scheme::Mbr, vec![mbr("esp"); 4]),
        (DiskId::Signature(7), Scheme::Mbr, vec![mbr("83"); 9]),
    ] {
        let lens: Vec<u64> = (1..).map(|at| at * 700_000).take(kinds.len()).collect();
        let (ranges, len) = lay_out(scheme, &lens).unwrap();
        let partitions: Vec<NewPartition> = kinds
            .iter()
            .zip(&ranges)
            .map(|(kind, range)| NewPartition {
                number: None,
                kind: *kind,
                name: if scheme == Scheme::Gpt { "n\u{e4}me".into() } else { String::new() },
                uuid: Guid::from_u128(u128::from(range.start)),
                attributes: 4,
                range: range.clone(),
            })
            .collect();
        let device = MemDevice::new(vec![0; usize::try_from(len).unwrap()]);
        NewTable { id, partitions: partitions.clone() }.write(&device).unwrap();
        let table = Table::read(&device).unwrap().unwrap();
        assert_eq!((table.scheme, table.id, &table.notices), (scheme, id, &Vec::new()));
        let found: Vec<&Partition> =
            table.partitions.iter().filter(|partition| !partition.kind.is_container()).collect();
        assert_eq!(found.len(), partitions.len());
        for (at, (found, made)) in found.into_iter().zip(&partitions).enumerate() {
            assert_eq!(found.number, number_of(scheme, at, partitions.len()));
            assert_eq!((found.range(), found.kind), (made.range.clone(), made.kind));
            assert_eq!((found.attributes, &found.name[..]), (4, made.name.as_bytes()));
            assert!(scheme == Scheme::Mbr || found.uuid == made.uuid.to_string());
            assert!(found.start.is_multiple_of(ALIGNMENT) && found.len.is_multiple_of(ALIGNMENT));
        }
        // Without the first copy, the GPT is still found.
        device.write_at(512, &[0; 512]).unwrap();
        let again = Table::read(&device).unwrap();
        assert!(scheme == Scheme::Mbr || again.is_some_and(|again| again.partitions == table.partitions));
    }
    assert!(lay_out(Scheme::Gpt, &[1; 129]).is_err() && lay_out(Scheme::Mbr, &[1 << 41]).is_err());
}

#[test]
fn every_type_that_can_be_named_is_known_by_name() {
    for name in PartitionType::known(Scheme::Gpt) {
        assert!(PartitionType::parse(name, Scheme::Gpt).unwrap().name().is_some(), "{name}");
    }
    for name in PartitionType::known(Scheme::Mbr) {
        assert!(PartitionType::parse(name, Scheme::Mbr).unwrap().name().is_some(), "{name}");
    }
    assert_eq!(PartitionType::parse("home", Scheme::Mbr), None);
    assert_eq!(PartitionType::parse("0x0f", Scheme::Mbr), None);
    assert_eq!(Guid::parse("4f68bce3-e8cd-4db1-96e7-fbcaf984b70"), None);
}

#[test]
fn the_fields_of_a_table_are_named_by_their_places() {
    let kind = PartitionType::parse("esp", Scheme::Gpt).unwrap();
    let (ranges, len) = lay_out(Scheme::Gpt, &[1, 1]).unwrap();
    let partitions = ranges.into_iter().map(|range| NewPartition {
        number: None,
        kind,
        name: "x".into(),
        uuid: Guid::from_u128(1),
        attributes: 0,
        range,
    });
    let id = DiskId::Guid(Guid::from_u128(2));
    let device = MemDevice::new(vec![0; usize::try_from(len).unwrap()]);
    NewTable { id, partitions: partitions.collect() }.write(&device).unwrap();
    let table = Table::read(&device).unwrap().unwrap();
    let named = |offset: u64| table.field_at(&device, offset);
    assert_eq!(named(3).as_deref(), Some("MBR, BootCode"));
    assert_eq!(named(450).as_deref(), Some("MBR, PartitionRecord 1, OSType"));
    assert_eq!(named(511).as_deref(), Some("MBR, Signature"));
    assert_eq!(named(512 + 56).as_deref(), Some("GPT header, DiskGUID"));
    assert_eq!(named(1024 + 128 + 40).as_deref(), Some("GPT entry 2, EndingLBA"));
    assert_eq!(
        named(len - 512 + 16).as_deref(),
        Some("GPT header, copy at the end of the disk, HeaderCRC32")
    );
    let copy = len - 33 * 512;
    assert_eq!(named(copy + 56).as_deref(), Some("GPT entry 1, copy at the end of the disk, PartitionName"));
    assert_eq!(named(copy - 1), None);
}
