//! Queries through indexes, against a graph of all records.

mod common;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use obento_base::crc::crc32c;
use obento_base::{DeviceNumber, Error, FileKind, Ino, Mode, Name, NameBuf};
use obento_driver::{FileSystem, NewNode, RenameFlags, SetAttr, WritableFileSystem as _};
use obento_prov::{
    Actor, DIRECTORY, Damage, Directories, Entries, FileId, Graph, IndexDefect, IndexedLog, Lineage,
    Location, LogOptions, OpenMode, OpenRecorder as _, Performer, Record, Recorded, SegmentNames, Segments,
    Version, Who, WriteSource, each_name_change,
};
use obento_vfs::{Caller, Node, Vfs};

use common::{actor, clock, list, segments, tmpfs};

/// The process whose turn it is.
#[derive(Default)]
struct Turn(Mutex<Actor>);

impl Who for Turn {
    fn now(&self) -> Option<Actor> {
        Some(*self.0.lock().unwrap())
    }
}

fn name(text: &str) -> NameBuf {
    Name::new(text.as_bytes()).unwrap().to_buf()
}

/// A volume in which random processes work.
struct Office {
    fs: Arc<Recorded>,
    turn: Arc<Turn>,
    seed: u64,
    dirs: Vec<Ino>,
    /// The names of files, with their directories.
    names: Vec<(Ino, NameBuf)>,
    made: u32,
}

impl Office {
    fn open(inner: &Arc<dyn FileSystem>, seed: u64, options: LogOptions) -> Self {
        let turn = Arc::new(Turn::default());
        let options = LogOptions { writes: WriteSource::Host, ..options };
        let fs = Recorded::open(Arc::clone(inner), turn.clone(), clock(), options).unwrap();
        let dirs = vec![fs.root()];
        Self { fs, turn, seed, dirs, names: Vec::new(), made: 0 }
    }

    fn below(&mut self, end: usize) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.seed >> 33).unwrap() % end
    }

    fn make(&mut self, kind: FileKind) {
        let (dir, mode) = (self.below(self.dirs.len()), Mode::new(0o755));
        let dir = self.dirs[dir];
        let node = NewNode { kind, mode, uid: 0, gid: 0, rdev: DeviceNumber::default(), target: b"" };
        let new = name(&format!("name {}", self.made % 70));
        self.made += 1;
        let Ok(made) = self.fs.create(dir, &new, &node) else { return };
        match kind {
            FileKind::Directory => self.dirs.push(made.ino),
            _ => self.names.push((dir, new)),
        }
    }

    fn act(&mut self) {
        let (pid, user) = (self.below(12), self.below(3));
        let (pid, uid) = (u32::try_from(pid).unwrap() + 10, u32::try_from(user).unwrap());
        let who = Actor { uid, ..actor(pid) }.with_comm(format!("program {}", pid % 5).as_bytes());
        *self.turn.0.lock().unwrap() = who;
        let what = self.below(20);
        if self.below(50) == 0 {
            self.fs.sync().unwrap();
        }
        if self.names.is_empty() || what == 0 {
            return self.make(FileKind::Regular);
        }
        let at = self.below(self.names.len());
        let (dir, old) = self.names[at].clone();
        let ino = self.fs.lookup(dir, &old).unwrap();
        let to = self.below(self.dirs.len());
        let to = self.dirs[to];
        let new = name(&format!("name {}", self.made % 70));
        match what {
            1 if self.dirs.len() < 12 => self.make(FileKind::Directory),
            2 | 3 => self.make(FileKind::Regular),
            4 if self.fs.rename(dir, &old, to, &new, RenameFlags::NO_REPLACE).is_ok() => {
                self.names[at] = (to, new);
            }
            5 if self.fs.link(ino, to, &new).is_ok() => self.names.push((to, new)),
            6 | 7 => {
                self.fs.unlink(dir, &old).unwrap();
                self.fs.forget(ino);
                self.names.swap_remove(at);
            }
            8..=11 => self.fs.opened(who, ino, OpenMode { read: true, write: what == 8 }),
            12..=14 => self.fs.opened(who, ino, OpenMode { read: what == 12, write: true }),
            15..=17 => self.fs.wrote(Some(who), ino, &(0..10)),
            _ => self.fs.closed(who, ino),
        }
        self.made += 1;
    }

    /// Moves a directory, so that its files get other paths.
    fn move_directory(&mut self) {
        let Some(&ino) = self.dirs.last().filter(|&&ino| ino != self.fs.root()) else { return };
        let root = self.fs.root();
        let Some((old, _)) = list(&*self.fs, root).into_iter().find(|(_, own)| *own == ino) else { return };
        let old = Name::new(&old).unwrap().to_buf();
        let _ =
            self.fs.rename(root, &old, root, &name(&format!("moved {}", self.made)), RenameFlags::NO_REPLACE);
    }

    fn work(&mut self, count: usize) {
        for number in 0..count {
            self.act();
            if number % 500 == 499 {
                self.move_directory();
            }
        }
    }
}

fn small(segments: u32) -> LogOptions {
    LogOptions { segment: 16 << 10, segments, ..LogOptions::default() }
}

/// Returns a volume after the work of random processes.
fn volume(seed: u64, options: LogOptions, count: usize) -> Arc<dyn FileSystem> {
    let inner = tmpfs(256 << 20);
    let mut office = Office::open(&inner, seed, options);
    office.work(count);
    // A tmpfs volume that was closed cannot be changed.
    office.fs.sync().unwrap();
    inner
}

fn indexed(inner: &Arc<dyn FileSystem>) -> IndexedLog {
    let segments = Segments::of(&Vfs::new(Arc::clone(inner))).unwrap().unwrap();
    IndexedLog::open(&segments, &mut |number, error| panic!("segment {number}: {error}"))
}

fn graph(segments: &[Vec<u8>]) -> Graph {
    let mut graph = Graph::new();
    segments.iter().flat_map(|segment| Entries::new(segment)).flatten().for_each(|entry| graph.add(&entry));
    graph
}

/// Checks each answer about `inner` against a graph of all records.
#[track_caller]
fn expect_equal_answers(inner: &Arc<dyn FileSystem>) {
    let graph = graph(&segments(inner));
    let mut lineage = Lineage::new(indexed(inner));
    let mut versions: Vec<Version> = graph.generated().into_iter().map(|edge| edge.version).collect();
    versions.extend(graph.used().iter().map(|edge| edge.version));
    assert!(versions.len() > 20 && !graph.used().is_empty());
    for version in versions {
        assert_eq!(lineage.generation(version).as_ref(), graph.generation(version), "{version:?}");
        assert_eq!(lineage.sources(version), graph.sources(version), "{version:?}");
        assert_eq!(lineage.products(version), graph.products(version), "{version:?}");
    }
    for file in graph.files() {
        assert_eq!(lineage.newest(file), graph.newest(file), "{file:?}");
        assert_eq!(lineage.removed(file).as_ref(), graph.removed(file), "{file:?}");
        let location = lineage.location(file).unwrap();
        assert_eq!(Some((location.parent, &*location.name)), graph.location(file), "{file:?}");
        assert!(lineage.log().named(&location.name).contains(&file), "{location:?}");
        assert_eq!(lineage.directory(file.ino).as_ref(), graph.directories().get(file.ino), "{file:?}");
    }
    assert!(lineage.log().take_damage().is_empty());
}

/// Returns a file in the directory of the log.
fn log_file(inner: &Arc<dyn FileSystem>, file: &str) -> Option<Node> {
    let vfs = Vfs::new(Arc::clone(inner));
    vfs.root().lookup(&name(DIRECTORY)).unwrap().lookup(&name(file)).ok()
}

/// Returns the names of the indexes.
fn indexes(inner: &Arc<dyn FileSystem>) -> Vec<String> {
    let dir = inner.lookup(inner.root(), &name(DIRECTORY)).unwrap();
    let names = list(&**inner, dir).into_iter().map(|(name, _)| String::from_utf8(name).unwrap());
    let mut names: Vec<_> = names.filter(|name| name.ends_with(".idx")).collect();
    names.sort();
    names
}

/// Returns the numbers of the segments.
fn segments_of(inner: &Arc<dyn FileSystem>) -> Vec<u32> {
    Segments::of(&Vfs::new(Arc::clone(inner))).unwrap().unwrap().numbers().to_vec()
}

/// Creates a file in the directory of the log.
fn create(inner: &Arc<dyn FileSystem>, file: &str) -> Node {
    let vfs = Vfs::new(Arc::clone(inner));
    create_in(&vfs, &vfs.root().lookup(&name(DIRECTORY)).unwrap(), file)
}

fn create_in(vfs: &Vfs, dir: &Node, file: &str) -> Node {
    let (kind, mode) = (FileKind::Regular, Mode::new(0o600));
    let node = NewNode { kind, mode, uid: 0, gid: 0, rdev: DeviceNumber::default(), target: b"" };
    vfs.create(&Caller::Owner, dir, &name(file), &node).unwrap()
}

fn content(file: &Node) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.attr().unwrap().size).unwrap()];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

fn remove(inner: &Arc<dyn FileSystem>, file: &str) {
    let vfs = Vfs::new(Arc::clone(inner));
    let dir = vfs.root().lookup(&name(DIRECTORY)).unwrap();
    vfs.unlink(&Caller::Owner, &dir, &name(file)).unwrap();
}

#[test]
fn each_segment_defines_the_actors_of_its_records() {
    for seed in 0..8 {
        let inner = volume(seed, small(200), 3000);
        for (number, segment) in segments(&inner).iter().enumerate() {
            let mut actors = HashSet::new();
            for entry in Entries::new(segment).map(Result::unwrap) {
                if let Record::Actor { id, .. } = entry.record {
                    actors.insert(id);
                }
                let is_known = entry.record.actor().is_none_or(|id| actors.contains(&id));
                assert!(is_known, "seed {seed}, segment {number}: {entry:?}");
            }
        }
    }
}

#[test]
fn answers_through_indexes_are_those_of_all_records() {
    for seed in 0..3 {
        let inner = volume(seed, small(200), 4000);
        assert!(indexes(&inner).len() > 3, "{:?}", indexes(&inner));
        expect_equal_answers(&inner);
    }
}

#[test]
fn answers_through_indexes_include_compacted_edges() {
    for seed in 0..3 {
        let inner = volume(seed, small(3), 4000);
        assert!(log_file(&inner, "00000000.prv").is_some());
        expect_equal_answers(&inner);
    }
}

#[test]
fn each_ended_segment_has_an_index_and_a_removed_segment_has_none() {
    let inner = volume(1, small(4), 8000);
    let numbers = segments_of(&inner);
    let (newest, ended) = numbers.split_last().unwrap();
    let expected: Vec<_> =
        ended.iter().filter(|&&number| number != 0).map(|number| format!("{number:08x}.idx")).collect();
    assert_eq!((indexes(&inner), expected.len()), (expected, 3), "{newest}");
}

#[test]
fn an_index_that_is_lost_or_damaged_or_stale_is_not_used() {
    let inner = volume(2, small(200), 4000);
    let all = indexes(&inner);
    remove(&inner, &all[0]);
    // A damaged header, and a damaged entry.
    log_file(&inner, &all[1]).unwrap().write_at(30, b"?").unwrap();
    log_file(&inner, &all[2]).unwrap().write_at(5000, b"?????").unwrap();
    // The index of another segment.
    let other = content(&log_file(&inner, &all[4]).unwrap());
    log_file(&inner, &all[3]).unwrap().write_at(0, &other).unwrap();
    expect_equal_answers(&inner);
}

#[test]
fn an_index_of_a_segment_that_became_longer_is_not_used() {
    let inner = volume(2, small(200), 4000);
    let newest = format!("{:08x}.prv", segments_of(&inner).last().unwrap());
    let records = content(&log_file(&inner, &newest).unwrap());
    remove(&inner, &newest);
    let last = indexes(&inner).pop().unwrap().replace("idx", "prv");
    let segment = log_file(&inner, &last).unwrap();
    let len = segment.attr().unwrap().size;
    // The first block of a segment defines the actors of its records.
    let records = &records[4096..8192];
    let block = [&[0; 4096], records].concat();
    let files: HashSet<_> = Entries::new(&block).flatten().filter_map(|entry| entry.record.file()).collect();
    let known = graph(&segments(&inner)).files();
    assert!(known.into_iter().any(|file| files.contains(&file)));
    segment.write_at(len, records).unwrap();
    expect_equal_answers(&inner);
}

/// Returns the defects of the indexes of a log.
fn defects(inner: &Arc<dyn FileSystem>) -> Vec<(u32, IndexDefect)> {
    let segments = Segments::of(&Vfs::new(Arc::clone(inner))).unwrap().unwrap();
    let defect = |&number: &u32| {
        let bytes = segments.read(number).ok();
        Some((number, segments.index_defect(number, bytes.as_deref()).unwrap()?))
    };
    segments.indexes().iter().filter_map(defect).collect()
}

/// Changes an index, and corrects its checksums.
fn rewrite(inner: &Arc<dyn FileSystem>, file: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let node = log_file(inner, file).unwrap();
    let mut bytes = content(&node);
    change(&mut bytes);
    let (count, sum) = ((bytes.len() as u64 - 4096) / 8, crc32c(!0, &bytes[4096..]));
    bytes[64..72].copy_from_slice(&count.to_le_bytes());
    bytes[72..76].copy_from_slice(&sum.to_le_bytes());
    let sum = crc32c(!0, &bytes[4..4096]);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
    node.truncate(0).unwrap();
    node.write_at(0, &bytes).unwrap();
}

#[test]
fn each_defect_of_an_index_is_found_and_its_removal_changes_no_answer() {
    let inner = volume(2, small(200), 4000);
    assert_eq!(defects(&inner), []);
    let all = indexes(&inner);
    log_file(&inner, &all[0]).unwrap().write_at(30, b"?").unwrap();
    log_file(&inner, &all[1]).unwrap().write_at(5000, b"?????").unwrap();
    log_file(&inner, &all[2]).unwrap().truncate(4100).unwrap();
    let other = content(&log_file(&inner, &all[4]).unwrap());
    log_file(&inner, &all[3]).unwrap().write_at(0, &other).unwrap();
    rewrite(&inner, &all[4], |bytes| bytes.truncate(bytes.len() - 8));
    rewrite(&inner, &all[5], |bytes| bytes[12] = 9);
    ["00000000.idx", "fffffff0.idx"].iter().for_each(|name| drop(create(&inner, name)));
    let number = |name: &String| u32::from_str_radix(name.strip_suffix(".idx").unwrap(), 16).unwrap();
    let found = defects(&inner);
    let expected = [
        (0, IndexDefect::Orphan),
        (number(&all[0]), IndexDefect::Damaged),
        (number(&all[1]), IndexDefect::Damaged),
        (number(&all[2]), IndexDefect::Damaged),
        (number(&all[3]), IndexDefect::Stale),
        (number(&all[4]), IndexDefect::Wrong),
        (number(&all[5]), IndexDefect::Version(9)),
        (0xffff_fff0, IndexDefect::Orphan),
    ];
    assert_eq!(found, expected);
    let vfs = Vfs::new(Arc::clone(&inner));
    let segments = Segments::of(&vfs).unwrap().unwrap();
    found.iter().for_each(|&(number, _)| segments.remove_index(&vfs, number).unwrap());
    drop(vfs);
    assert_eq!(defects(&inner), []);
    expect_equal_answers(&inner);
}

#[test]
fn the_index_of_a_damaged_segment_is_not_compared_with_the_readable_records() {
    let inner = volume(2, small(200), 4000);
    let index = indexes(&inner).remove(0);
    log_file(&inner, &index.replace("idx", "prv")).unwrap().write_at(2 * 4096 + 100, b"?????").unwrap();
    let segments = Segments::of(&Vfs::new(Arc::clone(&inner))).unwrap().unwrap();
    assert_eq!(segments.index_defect(segments.indexes()[0], None), Ok(None));
}

#[test]
fn a_recorder_replaces_indexes_that_are_lost_or_damaged() {
    let inner = volume(3, small(200), 4000);
    let all = indexes(&inner);
    let expected = content(&log_file(&inner, &all[0]).unwrap());
    remove(&inner, &all[0]);
    let damaged = log_file(&inner, &all[1]).unwrap();
    let whole = content(&damaged);
    damaged.write_at(4100, b"????").unwrap();
    let mut office = Office::open(&inner, 9, small(200));
    // The names of the first recorder exist.
    office.made = 1000;
    office.work(6000);
    office.fs.sync().unwrap();
    for (file, expected) in [(&all[0], expected), (&all[1], whole)] {
        let found = log_file(&inner, file).unwrap();
        let mut bytes = vec![0; expected.len()];
        found.read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes, expected, "{file}");
    }
    expect_equal_answers(&inner);
}

#[test]
fn files_with_names_like_those_of_indexes_and_segments_do_not_prevent_recording() {
    let inner = volume(3, small(200), 1000);
    let names = ["+0000999.idx", "00000FFF.idx", "+0000999.prv", "00000FFF.prv", "é00000.idx"];
    names.iter().for_each(|name| drop(create(&inner, name)));
    let before = segments_of(&inner);
    let mut office = Office::open(&inner, 9, small(200));
    office.made = 1000;
    office.work(1000);
    office.fs.sync().unwrap();
    assert!(segments_of(&inner).len() > before.len());
    names.iter().for_each(|name| remove(&inner, name));
    expect_equal_answers(&inner);
}

#[test]
fn indexes_without_segments_are_removed_when_a_segment_ends() {
    let inner = volume(3, small(4), 8000);
    let orphans = ["00000000.idx", "00000001.idx", "fffffff0.idx"];
    orphans.iter().for_each(|name| drop(create(&inner, name)));
    let mut office = Office::open(&inner, 9, small(4));
    office.made = 1000;
    assert!(orphans.iter().all(|name| log_file(&inner, name).is_some()));
    office.work(3000);
    office.fs.sync().unwrap();
    for name in orphans {
        assert!(log_file(&inner, name).is_none(), "{name}");
    }
    expect_equal_answers(&inner);
}

#[test]
fn indexes_and_segments_leave_the_space_that_records_leave_to_users() {
    let inner = tmpfs(32 << 20);
    let options = LogOptions { segment: 768 << 10, segments: 2, ..LogOptions::default() };
    let office = Office::open(&inner, 3, options);
    let vfs = Vfs::new(Arc::clone(&inner));
    let big = create_in(&vfs, &vfs.root(), "big");
    let free = || inner.statfs().map(|stat| stat.available * u64::from(stat.block_size)).unwrap();
    let (reserve, buffer) = (256 << 10, 64 << 10);
    // Space for a buffer of records, but not for an index or a segment.
    let mut len = 0;
    while free() >= reserve + buffer + (8 << 10) {
        len += u64::try_from(big.write_at(len, &[7; 4096]).unwrap()).unwrap();
    }
    let mut made = 0;
    let mut change = || {
        for _ in 0..50 {
            *office.turn.0.lock().unwrap() = actor(made / 4);
            office.fs.set_attr(big.ino(), &SetAttr { uid: Some(made), ..SetAttr::default() }).unwrap();
            made += 1;
            assert!(free() >= reserve, "{}", free());
        }
    };
    while segments_of(&inner) == [1] {
        change();
    }
    assert!(indexes(&inner).is_empty());
    // The index of the next segment has space, and did not have it before.
    big.truncate(0).unwrap();
    while log_file(&inner, "00000002.idx").is_none() {
        change();
    }
    assert!(log_file(&inner, "00000002.idx").unwrap().attr().unwrap().size > buffer + (8 << 10));
}

#[test]
fn a_segment_with_the_name_of_another_one_is_damage() {
    let inner = volume(3, small(200), 1000);
    let expected = indexed(&inner).len();
    let vfs = Vfs::new(Arc::clone(&inner));
    let dir = vfs.root().lookup(&name(DIRECTORY)).unwrap();
    let first = log_file(&inner, "00000001.prv").unwrap().ino();
    for copy in ["00000fff.prv", "00001000.prv"] {
        vfs.link(&Caller::Owner, &vfs.node(first).unwrap(), &dir, &name(copy)).unwrap();
    }
    let mut log = indexed(&inner);
    assert_eq!(log.take_damage(), [(0xfff, Damage::Number(1)), (0x1000, Damage::Number(1))]);
    assert_eq!(log.len(), expected);
    // A segment whose header is damaged has no number.
    log_file(&inner, "00000001.prv").unwrap().write_at(20, b"?").unwrap();
    assert_eq!(indexed(&inner).len(), expected + 2);
}

#[test]
fn segments_whose_indexes_have_no_space_in_memory_are_reported() {
    let inner = volume(3, small(200), 4000);
    let segments = Segments::of(&Vfs::new(Arc::clone(&inner))).unwrap().unwrap();
    let open = |max| {
        let mut failed = Vec::new();
        let log = IndexedLog::open_within(&segments, max, &mut |number, error| failed.push((number, error)));
        (log.len(), failed)
    };
    let all = segments.numbers();
    assert!(all.len() > 3);
    let refused: Vec<_> = all[1..].iter().map(|&number| (number, Error::NoMemory)).collect();
    assert_eq!(open(1), (1, refused));
    assert_eq!(open(1 << 20), (all.len(), Vec::new()));
}

#[test]
fn indexes_are_hidden_and_protected() {
    let inner = volume(4, small(200), 4000);
    let fs = common::recorded(Arc::clone(&inner), LogOptions { shown: true, ..small(200) });
    let index = log_file(&inner, &indexes(&inner)[0]).unwrap().ino();
    let change = obento_driver::SetAttr { uid: Some(1), ..obento_driver::SetAttr::default() };
    assert_eq!(fs.set_attr(index, &change).map(drop), Err(Error::NotPermitted));
    drop(fs);
    let fs = common::recorded(Arc::clone(&inner), small(200));
    assert!(!list(&*fs, fs.root()).iter().any(|(name, _)| name == DIRECTORY.as_bytes()));
}

#[test]
fn names_in_a_segment_are_those_at_the_time_of_the_record() {
    let inner = volume(5, small(200), 4000);
    let segments = segments(&inner);
    let mut log = indexed(&inner);
    let mut known: HashMap<FileId, Option<Location>> = HashMap::new();
    let mut directories = Directories::default();
    for (at, segment) in segments.iter().enumerate() {
        let mut names = SegmentNames::new(&mut log, at);
        for entry in Entries::new(segment).map(Result::unwrap) {
            names.add(&entry.record);
            directories.add(&entry.record);
            each_name_change(&entry.record, &mut |file, parent, name, exists| {
                if exists {
                    known.insert(file, Some(Location { parent, name: name.into() }));
                }
            });
            if let Record::Remove { file, links: 0, .. } = entry.record {
                known.insert(file, None);
            }
            if entry.sequence % 37 == 0 {
                for (&file, location) in &known {
                    assert_eq!(&names.name(file), location, "{file:?} in {at}");
                    assert_eq!(names.directory(file.ino).as_ref(), directories.get(file.ino));
                }
            }
        }
    }
}

#[test]
fn all_names_of_a_file_are_those_that_its_records_leave() {
    let inner = volume(6, small(200), 4000);
    let mut log = indexed(&inner);
    let end = log.len();
    let mut expected: HashMap<FileId, Vec<(Ino, Vec<u8>)>> = HashMap::new();
    for ((parent, name), file) in common::replay::replay(&segments(&inner)) {
        expected.entry(file).or_default().push((parent, name));
    }
    assert!(expected.values().any(|names| names.len() > 1));
    for (file, names) in expected {
        assert_eq!(log.names(file, end).into_iter().collect::<Vec<_>>(), names, "{file:?}");
    }
}

#[test]
fn segments_without_records_of_a_process_are_not_read() {
    let inner = volume(7, small(200), 4000);
    let all = segments(&inner);
    let log = indexed(&inner);
    for pid in [10, 15, 21, 99] {
        for (at, segment) in all.iter().enumerate() {
            let mut actors = HashMap::new();
            let has = Entries::new(segment).flatten().fold(false, |has, entry| {
                if let Record::Actor { id, actor } = entry.record {
                    actors.insert(id, actor.pid);
                }
                has | entry.record.actor().is_some_and(|id| actors[&id] == pid)
            });
            assert_eq!(log.may_contain(at, Performer::Process(pid)), has, "{pid} in {at}");
        }
    }
}
