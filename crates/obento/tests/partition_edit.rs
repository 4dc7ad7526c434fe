//! Changes of partition tables, on disks of `sfdisk` and `sgdisk`, which accept each result; with power failures.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use obento::block::{BlockDevice, MemDevice};
use obento::partition::{
    DiskId, EditError, Guid, NewEntry, NewTable, PartitionType, Placement, Scheme, Table, TableEditor,
};
use obento_testkit::crash::{self, SeenStates};
use obento_testkit::oracle::{Oracle, call, require};
use obento_testkit::record::{Event, RecordDevice};

const MIB: u64 = 1 << 20;
const LINUX: u128 = 0x0fc63daf_8483_4772_8e79_3d69d8477de4;

fn device(bytes: &[u8]) -> Arc<RecordDevice<MemDevice>> {
    Arc::new(RecordDevice::new(MemDevice::new(bytes.to_vec())))
}

fn bytes_of(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(device.len()).unwrap()];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// A disk of `len` bytes of noise, with a table of this program and no partitions.
fn fresh(scheme: Scheme, len: u64) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
    let (head, tail) = (MIB as usize, (len - MIB) as usize);
    bytes[..head].fill(0);
    bytes[tail..].fill(0);
    let device = MemDevice::new(bytes);
    let (id, partitions) = match scheme {
        Scheme::Gpt => (DiskId::Guid(Guid::from_u128(77)), Vec::new()),
        Scheme::Mbr => {
            // An MBR without partitions is no table to a reader, so that the first one exists.
            let entry = obento::partition::NewPartition {
                number: None,
                kind: PartitionType::Mbr(0x83),
                name: String::new(),
                uuid: Guid::from_u128(0),
                attributes: 4,
                range: MIB..3 * MIB,
            };
            (DiskId::Signature(0xcafe_babe), vec![entry])
        }
    };
    NewTable { id, partitions }.write(&device).unwrap();
    bytes_of(&device)
}

fn open(device: &Arc<RecordDevice<MemDevice>>) -> TableEditor {
    let table = Table::read(&**device).unwrap().expect("a table");
    TableEditor::open(device.clone(), &table).unwrap()
}

fn entry(scheme: Scheme, start: Option<u64>, len: Option<u64>, uuid: u128) -> NewEntry {
    NewEntry {
        number: None,
        placement: Placement { start, len },
        kind: match scheme {
            Scheme::Gpt => PartitionType::Gpt(Guid::from_u128(LINUX)),
            Scheme::Mbr => PartitionType::Mbr(0x83),
        },
        name: if scheme == Scheme::Gpt { "größe".into() } else { String::new() },
        uuid: Guid::from_u128(uuid),
        attributes: 0,
    }
}

fn ranges(table: &Table) -> Vec<(u32, Range<u64>)> {
    table.partitions.iter().map(|partition| (partition.number, partition.range())).collect()
}

/// The programs accept the disk, and read the same partitions.
fn judge(bytes: &[u8], table: &Table) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    std::fs::write(&path, bytes).unwrap();
    let run = |program: &str, args: &[&str]| {
        let args = args.iter().map(Path::new).chain([&*path]);
        String::from_utf8(call(program, args).unwrap().stdout).unwrap()
    };
    if require(&[Oracle::Program("sfdisk")]) {
        let said = run("sfdisk", &["--verify"]);
        assert!(said.contains("No errors detected"), "{said}");
        let dump = run("sfdisk", &["--dump"]);
        let number = |line: &str, name: &str| -> u64 {
            line.split(name).nth(1).unwrap().split(',').next().unwrap().trim().parse().unwrap()
        };
        let size = u64::from(table.sector_size);
        let found: Vec<_> = dump
            .lines()
            .filter(|line| line.contains("start="))
            .map(|line| {
                let partition = line.split(" :").next().unwrap().trim_start_matches(path.to_str().unwrap());
                let (start, len) = (number(line, "start=") * size, number(line, "size=") * size);
                (partition.trim().parse().unwrap(), start..start + len)
            })
            .collect();
        assert_eq!(found, ranges(table), "{dump}");
    }
    if table.scheme == Scheme::Gpt && require(&[Oracle::Program("sgdisk")]) {
        let said = run("sgdisk", &["-v"]);
        assert!(said.contains("No problems found"), "{said}");
    }
}

/// The bytes outside of tables are those of before.
fn expect_same_data(before: &[u8], after: &[u8], tables: &[Range<u64>]) {
    let end = (before.len().min(after.len()) as u64) - MIB;
    for at in (MIB..end).step_by(512) {
        let sector = at as usize..at as usize + 512;
        if !tables.iter().any(|table| table.contains(&at)) {
            assert!(before[sector.clone()] == after[sector], "byte {at} changed");
        }
    }
}

#[test]
fn gpt_partitions_are_added_changed_and_deleted_as_the_judges_see_them() {
    let bytes = fresh(Scheme::Gpt, 64 * MIB);
    let disk = device(&bytes);
    // An empty GPT is a table.
    let mut editor = open(&disk);
    assert_eq!(editor.add(&entry(Scheme::Gpt, None, Some(8 * MIB), 1)), Ok(1));
    assert_eq!(editor.add(&entry(Scheme::Gpt, Some(20 * MIB), Some(4 * MIB), 2)), Ok(2));
    assert_eq!(editor.add(&entry(Scheme::Gpt, None, None, 3)), Ok(3), "the largest gap");
    assert_eq!(editor.add(&NewEntry { number: Some(9), ..entry(Scheme::Gpt, None, Some(1), 4) }), Ok(9));
    let expected =
        [(1, MIB..9 * MIB), (2, 20 * MIB..24 * MIB), (3, 24 * MIB..63 * MIB), (9, 9 * MIB..9 * MIB + 512)];
    assert_eq!(ranges(editor.table()), expected);
    editor.delete(9).unwrap();
    assert_eq!(editor.limit_of(1), Ok(20 * MIB));
    editor.set_range(1, MIB..20 * MIB).unwrap();
    editor.set_name(2, "boot").unwrap();
    editor.set_kind(2, PartitionType::parse("esp", Scheme::Gpt).unwrap()).unwrap();
    editor.set_attributes(2, 1 << 2 | 1 << 60).unwrap();
    editor.set_uuid(3, Guid::from_u128(30)).unwrap();
    editor.set_id(DiskId::Guid(Guid::from_u128(7))).unwrap();
    editor.write().unwrap();
    let after = bytes_of(&*disk);
    let table = Table::read(&*disk).unwrap().unwrap();
    assert_eq!(table.notices, []);
    assert_eq!(table.id, DiskId::Guid(Guid::from_u128(7)));
    assert_eq!(ranges(&table), [(1, MIB..20 * MIB), (2, 20 * MIB..24 * MIB), (3, 24 * MIB..63 * MIB)]);
    let second = &table.partitions[1];
    assert_eq!((&*second.name, second.attributes), (&b"boot"[..], 1 << 2 | 1 << 60));
    assert_eq!(second.kind.to_string(), "EFI system");
    assert_eq!(table.partitions[2].uuid, Guid::from_u128(30).to_string());
    assert_eq!(table.partitions[0].name, "größe".as_bytes());
    judge(&after, &table);
    expect_same_data(&bytes, &after, &[]);
}

#[test]
fn changes_that_would_lose_a_partition_are_refused() {
    let disk = device(&fresh(Scheme::Gpt, 32 * MIB));
    let mut editor = open(&disk);
    editor.add(&entry(Scheme::Gpt, Some(4 * MIB), Some(4 * MIB), 1)).unwrap();
    let mut add = |start, len, uuid| editor.add(&entry(Scheme::Gpt, start, len, uuid));
    assert_eq!(add(Some(6 * MIB), Some(MIB), 2), Err(EditError::Overlaps { number: 1 }));
    assert_eq!(add(Some(MIB), Some(3 * MIB + 512), 2), Err(EditError::Overlaps { number: 1 }));
    assert!(matches!(add(Some(512), Some(MIB), 2), Err(EditError::OutOfRange { .. })));
    assert!(matches!(add(Some(31 * MIB), Some(MIB), 2), Err(EditError::OutOfRange { .. })));
    assert!(matches!(add(Some(u64::MAX - 511), Some(MIB), 2), Err(EditError::Unaligned { .. })));
    assert_eq!(add(Some(9 * MIB + 1), Some(MIB), 2), Err(EditError::Unaligned { sector_size: 512 }));
    assert_eq!(add(None, Some(40 * MIB), 2), Err(EditError::NoSpace { largest: 24 * MIB - 33 * 512 }));
    assert_eq!(add(None, Some(MIB), 1), Err(EditError::DuplicateUuid { number: 1 }));
    assert_eq!(editor.delete(2), Err(EditError::NoSuchPartition { number: 2 }));
    assert_eq!(editor.set_name(1, &"x".repeat(37)), Err(EditError::LongName { units: 37 }));
    let number = |number| NewEntry { number: Some(number), ..entry(Scheme::Gpt, None, Some(MIB), 3) };
    assert_eq!(editor.add(&number(1)), Err(EditError::NumberInUse { number: 1 }));
    assert_eq!(editor.add(&number(129)), Err(EditError::BadNumber { scheme: Scheme::Gpt, number: 129 }));
    assert!(matches!(editor.end_at(8 * MIB), Err(EditError::PastEnd { .. })));
    assert_eq!(editor.set_kind(1, PartitionType::Mbr(7)), Err(EditError::WrongType { scheme: Scheme::Gpt }));
}

#[test]
fn a_gpt_follows_the_end_of_its_disk_and_reserved_bytes_are_kept() {
    let bytes = fresh(Scheme::Gpt, 32 * MIB);
    let disk = device(&bytes);
    let mut editor = open(&disk);
    editor.add(&entry(Scheme::Gpt, Some(4 * MIB), Some(4 * MIB), 1)).unwrap();
    editor.write().unwrap();
    let mut grown = bytes_of(&*disk);
    // A loader before the first partition, and a byte after the header.
    grown[40 * 512..40 * 512 + 6].copy_from_slice(b"loader");
    grown[512 + 100] = 0x55;
    grown[440..444].copy_from_slice(b"sign");
    grown.resize(48 * MIB as usize, 0);
    let disk = device(&grown);
    let mut editor = open(&disk);
    assert!(!editor.has_backup());
    let end = editor.limit_of(1).unwrap();
    // The backup table has 33 sectors.
    assert_eq!(end, 48 * MIB - 33 * 512);
    editor.set_range(1, 4 * MIB..end).unwrap();
    editor.write().unwrap();
    assert!(editor.has_backup());
    let after = bytes_of(&*disk);
    assert_eq!(&after[40 * 512..40 * 512 + 6], b"loader");
    assert_eq!((after[512 + 100], &after[440..444]), (0x55, &b"sign"[..]));
    judge(&after, &Table::read(&*disk).unwrap().unwrap());
    // And back: the table first, then the end of the image.
    let mut editor = open(&disk);
    editor.set_range(1, 4 * MIB..10 * MIB).unwrap();
    editor.end_at(16 * MIB).unwrap();
    editor.write().unwrap();
    let cut = device(&bytes_of(&*disk)[..16 * MIB as usize]);
    let table = Table::read(&*cut).unwrap().unwrap();
    assert_eq!((ranges(&table), &table.notices[..]), (vec![(1, 4 * MIB..10 * MIB)], &[][..]));
    judge(&bytes_of(&*cut), &table);
}

#[test]
fn a_hybrid_mbr_and_the_positions_of_entries_of_sgdisk_are_kept() {
    if !require(&[Oracle::Program("sgdisk")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    std::fs::write(&path, vec![0; 32 * MIB as usize]).unwrap();
    // The entries of the first copy are at sector 1000, the way boards with loaders need it.
    let args = ["-j", "1000", "-n", "1:4M:8M", "-n", "2:9M:10M", "-t", "1:ef00", "-h", "1"];
    call("sgdisk", args.into_iter().map(Path::new).chain([&*path])).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let disk = device(&bytes);
    let mut editor = open(&disk);
    editor.set_name(2, "data").unwrap();
    editor.write().unwrap();
    let after = bytes_of(&*disk);
    assert!(after[..512] == bytes[..512]);
    std::fs::write(&path, &after).unwrap();
    let said = call("sgdisk", [Path::new("-v"), &*path]).unwrap().stdout;
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("No problems found"), "{said}");
    let said = call("sgdisk", [Path::new("-p"), &*path]).unwrap().stdout;
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("Main partition table begins at sector 1000") && said.contains("data"), "{said}");
}

#[test]
fn a_damaged_copy_is_written_again_and_two_damaged_ones_are_refused() {
    let disk = device(&fresh(Scheme::Gpt, 16 * MIB));
    let mut editor = open(&disk);
    editor.add(&entry(Scheme::Gpt, None, Some(4 * MIB), 1)).unwrap();
    editor.write().unwrap();
    let good = bytes_of(&*disk);
    let (first, second) = (2 * 512 + 3, 16 * MIB as usize - 40);
    for spoiled in [first, 512 + 60, 16 * MIB as usize - 512 + 60, 16 * MIB as usize - 33 * 512 + 1] {
        let mut bytes = good.clone();
        bytes[spoiled] ^= 0xff;
        let disk = device(&bytes);
        let mut editor = open(&disk);
        assert!(!editor.has_backup(), "{spoiled}");
        editor.write().unwrap();
        assert!(bytes_of(&*disk) == good, "{spoiled}");
    }
    let mut bytes = good;
    bytes[first] ^= 1;
    bytes[second - 33 * 512 + 41] ^= 1;
    let disk = device(&bytes);
    let table = Table::read(&*disk).unwrap().unwrap();
    assert_eq!(TableEditor::open(disk, &table).err(), Some(EditError::Damaged));
}

#[test]
fn an_mbr_gets_primary_extended_and_logical_partitions() {
    let bytes = fresh(Scheme::Mbr, 64 * MIB);
    let disk = device(&bytes);
    let mut editor = open(&disk);
    let new = |start: Option<u64>, len| entry(Scheme::Mbr, start, len, 0);
    assert_eq!(editor.add(&new(None, Some(4 * MIB))), Ok(2));
    let extended = NewEntry { kind: PartitionType::Mbr(0x0f), ..new(Some(10 * MIB), Some(40 * MIB)) };
    assert_eq!(editor.add(&extended), Ok(3));
    assert_eq!(editor.add(&extended), Err(EditError::SecondContainer));
    let logical = |number, len| NewEntry { number: Some(number), ..new(None, len) };
    assert_eq!(editor.add(&logical(5, Some(4 * MIB))), Ok(5));
    assert_eq!(editor.add(&logical(6, Some(4 * MIB))), Ok(6));
    assert_eq!(editor.add(&new(Some(30 * MIB), Some(4 * MIB))), Ok(7));
    assert_eq!(editor.add(&logical(9, Some(MIB))), Err(EditError::NotNext { number: 9, next: 8 }));
    assert_eq!(editor.add(&new(Some(33 * MIB), Some(MIB))), Err(EditError::Overlaps { number: 7 }));
    assert_eq!(editor.delete(3), Err(EditError::ContainerInUse { number: 5 }));
    editor.write().unwrap();
    let table = Table::read(&*disk).unwrap().unwrap();
    assert_eq!(table.notices, []);
    assert_eq!(
        ranges(&table),
        [
            (1, MIB..3 * MIB),
            (2, 3 * MIB..7 * MIB),
            (3, 10 * MIB..50 * MIB),
            (5, 11 * MIB..15 * MIB),
            (6, 16 * MIB..20 * MIB),
            (7, 30 * MIB..34 * MIB),
        ]
    );
    judge(&bytes_of(&*disk), &table);

    let mut editor = open(&disk);
    assert_eq!(editor.limit_of(6), Ok(29 * MIB));
    assert_eq!(editor.limit_of(7), Ok(50 * MIB));
    editor.set_range(6, 16 * MIB..29 * MIB).unwrap();
    let late = editor.set_range(7, 30 * MIB..51 * MIB);
    assert!(matches!(late, Err(EditError::OutOfRange { .. })), "{late:?}");
    editor.set_range(7, 30 * MIB..50 * MIB).unwrap();
    editor.set_attributes(2, 4).unwrap();
    editor.set_kind(6, PartitionType::Mbr(0x0c)).unwrap();
    assert_eq!(editor.set_kind(6, PartitionType::Mbr(0x05)), Err(EditError::Container));
    assert_eq!(editor.set_name(1, "x"), Err(EditError::NotInMbr { what: "name" }));
    assert_eq!(editor.limit_of(3), Ok(64 * MIB));
    let short = editor.set_range(3, 10 * MIB..40 * MIB);
    assert_eq!(short, Err(EditError::ContainerInUse { number: 7 }));
    editor.write().unwrap();
    let table = Table::read(&*disk).unwrap().unwrap();
    assert_eq!([table.partitions[0].attributes, table.partitions[1].attributes], [0, 4]);
    judge(&bytes_of(&*disk), &table);

    // The numbers of later logical partitions change, as with fdisk.
    for (gone, rest) in [(6, vec![5, 6]), (5, vec![5]), (5, vec![])] {
        let mut editor = open(&disk);
        editor.delete(gone).unwrap();
        editor.write().unwrap();
        let table = Table::read(&*disk).unwrap().unwrap();
        let logical: Vec<u32> = table.partitions.iter().map(|it| it.number).filter(|it| *it > 4).collect();
        assert_eq!(logical, rest);
        judge(&bytes_of(&*disk), &table);
    }
    let mut editor = open(&disk);
    assert_eq!(editor.add(&logical(5, None)), Ok(5));
    assert_eq!(editor.partition(5).unwrap().range(), 11 * MIB..50 * MIB);
    editor.write().unwrap();
    judge(&bytes_of(&*disk), &Table::read(&*disk).unwrap().unwrap());
    let mut editor = open(&disk);
    editor.delete(5).unwrap();
    editor.delete(3).unwrap();
    editor.write().unwrap();
    let after = bytes_of(&*disk);
    judge(&after, &Table::read(&*disk).unwrap().unwrap());
    let boot_records = [10, 15, 29].map(|at| at * MIB..at * MIB + 512);
    expect_same_data(&bytes, &after, &boot_records);
}

/// Makes changes, and expects that a power failure at any time leaves one of the tables of `allowed`, or the old one.
fn cut(bytes: &[u8], change: impl Fn(&mut TableEditor)) -> usize {
    let disk = device(bytes);
    let old = Table::read(&*disk).unwrap().unwrap();
    let mut editor = open(&disk);
    change(&mut editor);
    let new = editor.table().clone();
    editor.write().unwrap();
    let mut events = disk.take_events();
    events.push(Event::Flush);
    let summary =
        crash::explore(bytes, &events, &crash::Options::new(7), &SeenStates::default(), &mut |state| {
            let table = Table::read(&*state.device).map_err(|error| error.to_string())?.ok_or("no table")?;
            let is_it = |other: &Table| table.partitions == other.partitions && table.id == other.id;
            match is_it(&old) || is_it(&new) {
                true => Ok(()),
                false => Err(format!("{table:?}")),
            }
        });
    assert_eq!(summary.failures, []);
    summary.judged
}

#[test]
fn a_power_failure_leaves_the_old_or_the_new_table() {
    let disk = device(&fresh(Scheme::Gpt, 16 * MIB));
    let mut editor = open(&disk);
    editor.add(&entry(Scheme::Gpt, None, Some(4 * MIB), 1)).unwrap();
    editor.write().unwrap();
    let gpt = bytes_of(&*disk);
    let change = |editor: &mut TableEditor| {
        editor.set_id(DiskId::Guid(Guid::from_u128(5))).unwrap();
        editor.set_range(1, MIB..7 * MIB).unwrap();
        editor.add(&entry(Scheme::Gpt, None, None, 2)).unwrap();
    };
    assert!(cut(&gpt, change) > 5);
    let mut longer = gpt.clone();
    longer.resize(24 * MIB as usize, 0);
    assert!(cut(&longer, change) > 5);
    let mut spoiled = gpt;
    spoiled[2 * 512 + 3] ^= 1;
    assert!(cut(&spoiled, change) > 5);

    let mbr = fresh(Scheme::Mbr, 32 * MIB);
    let disk = device(&mbr);
    let mut editor = open(&disk);
    let extended = NewEntry { kind: PartitionType::Mbr(0x0f), ..entry(Scheme::Mbr, Some(4 * MIB), None, 0) };
    let step = |editor: &mut TableEditor| {
        editor.add(&extended).unwrap();
    };
    assert!(cut(&mbr, step) > 1);
    step(&mut editor);
    let logical = NewEntry { number: Some(5), ..entry(Scheme::Mbr, None, Some(2 * MIB), 0) };
    editor.add(&logical).unwrap();
    editor.write().unwrap();
    let bytes = bytes_of(&*disk);
    let add = |editor: &mut TableEditor| {
        editor.add(&NewEntry { number: Some(6), ..logical.clone() }).unwrap();
    };
    assert!(cut(&bytes, add) > 1);
    add(&mut editor);
    editor.write().unwrap();
    let bytes = bytes_of(&*disk);
    for number in [5, 6] {
        assert!(cut(&bytes, |editor| editor.delete(number).unwrap()) >= 1);
        let grow = |editor: &mut TableEditor| {
            let (start, end) = (editor.partition(number).unwrap().start, editor.limit_of(number).unwrap());
            editor.set_range(number, start..end).unwrap();
        };
        cut(&bytes, grow);
    }
}
