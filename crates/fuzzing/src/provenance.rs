//! The targets for the log of the provenance layer.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use obento::base::{DeviceNumber, FileKind, Ino, Mode, Name, Timestamp};
use obento::driver::{FileSystem, NewNode, RemovalKind, SetAttr, Usage};
use obento::env::FixedClock;
use obento::provenance::{
    Actor, BLOCK, DIRECTORY, Directories, Entries, FileId, FixedWho, Graph, Header, IndexedLog, Lineage,
    LogOptions, OpenMode, OpenRecorder as _, Recorded, SegmentNames, Segments,
};
use obento::tmpfs;
use obento::vfs::{Caller, Vfs};
use obento_base::crc::crc32c;

use crate::seeds::Seeds;

/// Decodes a segment, as it is and with correct checksums, and derives its graph.
pub fn segment(data: &[u8]) {
    decode(data);
    let mut sealed = data.to_vec();
    for block in sealed.chunks_exact_mut(BLOCK) {
        let sum = crc32c(!0, &block[4..]);
        block[..4].copy_from_slice(&sum.to_le_bytes());
    }
    decode(&sealed);
    query(&sealed, data);
}

/// Queries the sealed segment through an index whose entries for the segment's inodes are from `data`.
fn query(segment: &[u8], data: &[u8]) {
    let (Some(first), Some(last)) = (segment.get(..4), segment.chunks(BLOCK).next_back()) else { return };
    let Some(last) = last.get(..4) else { return };
    let files: BTreeSet<FileId> =
        Entries::new(segment).flatten().filter_map(|entry| entry.record.file()).take(50).collect();
    let mut bytes = data.iter().copied().cycle();
    let mut byte = || u64::from(bytes.next().unwrap_or(0));
    // An index with the number of a block that does not exist would not be used.
    let blocks = (segment.len().div_ceil(BLOCK) as u64).max(1);
    let mut entries: Vec<u64> =
        files.iter().map(|file| u64::from(hash_of(file)) << 32 | ((byte() % blocks) << 8) | byte()).collect();
    entries.sort_unstable();
    let entries: Vec<u8> = entries.iter().flat_map(|entry| entry.to_le_bytes()).collect();
    let mut header = b"OBENPIDX\x01\0\0\0".to_vec();
    header.extend((segment.len() as u64).to_le_bytes());
    header.extend([first, last].concat());
    // The ranges of sequence numbers and times.
    header.extend(data.iter().copied().chain([0; 32]).take(32));
    header.extend((entries.len() as u64 / 8).to_le_bytes());
    header.extend(crc32c(!0, &entries).to_le_bytes());
    header.resize(BLOCK - 4, 0);
    let index = [&crc32c(!0, &header).to_le_bytes()[..], &header, &entries].concat();
    ask(segment, &index, &files);
}

/// Queries a segment through an index that consists of `data`, as it is, and with a correct header and checksum.
pub fn index(data: &[u8]) {
    let (segment, valid) = sample();
    let files: BTreeSet<FileId> =
        Entries::new(segment).flatten().filter_map(|entry| entry.record.file()).step_by(20).collect();
    ask(segment, data, &files);
    if let Some(entries) = data.get(BLOCK..) {
        let mut header = valid[..BLOCK].to_vec();
        // The ranges of sequence numbers and times, and the number of entries, are those of `data`.
        header[32..72].copy_from_slice(&data[32..72]);
        let len = entries.len() / 8 * 8;
        header[72..76].copy_from_slice(&crc32c(!0, &entries[..len]).to_le_bytes());
        let sum = crc32c(!0, &header[4..]);
        header[..4].copy_from_slice(&sum.to_le_bytes());
        ask(segment, &[&header, entries].concat(), &files);
    }
}

/// Asks for the lineage and the names of `files`, and compares the answers with those of all records if the index is valid.
fn ask(segment: &[u8], index: &[u8], files: &BTreeSet<FileId>) {
    let volume = volume_with(&[("00000001.prv", segment), ("00000001.idx", index)]);
    let segments = Segments::of(&volume).expect("a log").expect("a log");
    let is_valid = segments.index_defect(1, Some(segment)).expect("the files are read").is_none();
    let mut graph = Graph::new();
    if is_valid {
        Entries::new(segment).flatten().for_each(|entry| graph.add(&entry));
    }
    let mut lineage = Lineage::new(IndexedLog::open(&segments, &mut |_, error| panic!("{error}")));
    for &file in files {
        let newest = lineage.newest(file);
        let (sources, products) = (lineage.sources(newest), lineage.products(newest));
        if is_valid {
            assert_eq!((newest, &sources), (graph.newest(file), &graph.sources(newest)));
        }
        for version in [sources, products].concat() {
            let _ = (lineage.generation(version), lineage.origin(version));
        }
        let _ = (lineage.removed(file), lineage.directory(file.ino), lineage.log().names(file, 1));
        let mut names = SegmentNames::new(lineage.log(), 1);
        let _ = (names.directory(file.ino), names.name(file));
    }
}

/// Returns a segment that ended, and its index.
fn sample() -> &'static (Vec<u8>, Vec<u8>) {
    static SAMPLE: OnceLock<(Vec<u8>, Vec<u8>)> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let clock = Arc::new(FixedClock(Timestamp::new(1_700_000_000, 0)));
        let inner: Arc<dyn FileSystem> = Arc::new(tmpfs::Tmpfs::new(tmpfs::Options::new(clock.clone())));
        let actor = Actor { pid: 7, start: 9, uid: 1, gid: 2, ..Actor::default() }.with_comm(b"seed");
        let options = LogOptions { segment: 16 << 10, ..LogOptions::default() };
        let recorded = Recorded::open(inner.clone(), Arc::new(FixedWho(actor)), clock, options)
            .expect("the log is created");
        let vfs = Vfs::new(recorded.clone());
        for number in 0..1000 {
            let name = format!("file{}", number % 50);
            let name = Name::new(name.as_bytes()).expect("a valid name");
            let found = vfs.root().lookup(name);
            let create = |_| vfs.create(&Caller::Owner, &vfs.root(), name, &new_node(FileKind::Regular));
            let file = found.or_else(create).expect("it exists");
            let actor = Actor { pid: number % 9, ..actor };
            recorded.opened(actor, file.ino(), OpenMode { read: number % 3 > 0, write: number % 2 > 0 });
            file.write_at(0, b"bytes").expect("it is written");
            recorded.closed(actor, file.ino());
        }
        vfs.close().expect("the log is written");
        let vfs = Vfs::new(inner);
        let name = |text: &str| Name::new(text.as_bytes()).expect("a valid name").to_buf();
        let dir = vfs.root().lookup(&name(DIRECTORY)).expect("a log");
        let read = |file: &str| {
            let file = dir.lookup(&name(file)).expect("a segment ended");
            let mut bytes = vec![0; file.attr().expect("attributes").size as usize];
            file.read_at(0, &mut bytes).expect("it is read");
            bytes
        };
        (read("00000001.prv"), read("00000001.idx"))
    })
}

/// Returns the index of the segment of [`index`].
pub fn index_seeds() -> Seeds {
    let (segment, valid) = sample();
    let files = Entries::new(segment).flatten().filter_map(|entry| entry.record.file()).collect();
    ask(segment, valid, &files);
    [valid.clone()].into_iter().collect()
}

/// Returns the hash of a file in an index.
fn hash_of(file: &FileId) -> u32 {
    let bytes = [1].into_iter().chain(file.ino.0.to_le_bytes()).chain(file.generation.0.to_le_bytes());
    let sum = bytes
        .fold(0xcbf2_9ce4_8422_2325u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    (sum >> 32) as u32 ^ sum as u32
}

/// Returns a volume with these files in the directory of the log.
fn volume_with(files: &[(&str, &[u8])]) -> Vfs {
    let clock = Arc::new(FixedClock(Timestamp::new(1_700_000_000, 0)));
    let vfs = Vfs::new(Arc::new(tmpfs::Tmpfs::new(tmpfs::Options::new(clock))));
    let create = |dir, name: &str, kind| {
        let name = Name::new(name.as_bytes()).expect("a valid name");
        vfs.create(&Caller::Owner, dir, name, &new_node(kind)).expect("it is created")
    };
    let root = vfs.root();
    let dir = create(&root, DIRECTORY, FileKind::Directory);
    for (name, bytes) in files {
        create(&dir, name, FileKind::Regular).write_at(0, bytes).expect("it is written");
    }
    vfs
}

fn new_node(kind: FileKind) -> NewNode<'static> {
    NewNode {
        kind,
        mode: Mode::new(0o755),
        uid: 0,
        gid: 0,
        rdev: DeviceNumber::default(),
        target: if kind == FileKind::Symlink { b"target" } else { b"" },
    }
}

fn decode(segment: &[u8]) {
    let _ = Header::decode(segment);
    let (mut graph, mut directories, mut next) = (Graph::new(), Directories::default(), 0);
    for entry in Entries::new(segment).flatten() {
        assert!(entry.sequence >= next, "records are in the order of their numbers");
        next = entry.sequence.saturating_add(1);
        graph.add(&entry);
        directories.add(&entry.record);
    }
    for file in graph.files() {
        let newest = graph.newest(file);
        for source in graph.sources(newest) {
            assert_ne!(source, newest, "a version is not derived from itself");
            assert!(graph.products(source).contains(&newest), "edges have two ends");
        }
        if let Some((parent, name)) = graph.location(file) {
            let _ = directories.path(Ino(2), parent, name, &mut |_| None);
        }
    }
}

/// Returns a segment with records of all kinds.
pub fn seeds() -> Seeds {
    let clock = Arc::new(FixedClock(Timestamp::new(1_700_000_000, 0)));
    let inner: Arc<dyn FileSystem> = Arc::new(tmpfs::Tmpfs::new(tmpfs::Options::new(clock.clone())));
    let actor = Actor { pid: 7, start: 9, uid: 1, gid: 2, ..Actor::default() }.with_comm(b"seed");
    let recorded = Recorded::open(inner.clone(), Arc::new(FixedWho(actor)), clock, LogOptions::default());
    let recorded = recorded.expect("the log is created");
    let vfs = Vfs::new(recorded.clone());
    let name = |text: &'static str| Name::new(text.as_bytes()).expect("a valid name");
    let create = |dir, text, kind| {
        vfs.create(&Caller::Owner, dir, name(text), &new_node(kind)).expect("it is created")
    };
    let root = vfs.root();
    let dir = create(&root, "dir", FileKind::Directory);
    let file = create(&dir, "file", FileKind::Regular);
    create(&dir, "link", FileKind::Symlink);
    let mode = OpenMode { read: true, write: true };
    recorded.opened(actor, file.ino(), mode);
    file.write_at(10, b"bytes").expect("it is written");
    recorded.closed(actor, file.ino());
    vfs.rename(
        &Caller::Owner,
        (&dir, name("file")),
        (&root, name("moved")),
        obento::driver::RenameFlags::empty(),
    )
    .expect("it is renamed");
    vfs.set_attr(&Caller::Owner, &file, &SetAttr { uid: Some(5), ..SetAttr::default() })
        .expect("it is changed");
    file.truncate(3).expect("it is truncated");
    let _ = recorded.writable().map(|changes| {
        changes.remove(dir.ino(), name("link"), RemovalKind::File, &mut |_| Ok(Usage::Unused))
    });
    vfs.close().expect("the log is written");
    segments(&Vfs::new(inner))
}

fn segments(vfs: &Vfs) -> Seeds {
    let found = obento::provenance::Segments::of(vfs).expect("a log").expect("a log");
    let seeds: Seeds = found.numbers().iter().filter_map(|&number| found.read(number).ok()).collect();
    assert!(!seeds.is_empty());
    seeds
}
