//! The log of a volume against its tree.

mod common;

use std::sync::Arc;

use obento_base::{Error, FileKind, Mode, Name, NameBuf};
use obento_driver::{
    Access, Driver as _, FileSystem, HandoverState, NewNode, OpenOptions, RemovalKind, SetAttr, Usage,
    WritableFileSystem as _,
};
use obento_ext4::Ext4Driver;
use obento_host::FileDevice;
use obento_prov::{
    DIRECTORY, Entries, FileId, Graph, LogOptions, Mark, OpenMode, OpenRecorder as _, Record, Recorded,
};
use obento_testkit::oracle::call;
use obento_testkit::plan::{Actor, Limits, random};
use obento_vfs::{Node, Vfs};

use common::replay::{names_of, replay};
use common::{actor, list, recorded, segments, tmpfs};

fn name(text: &str) -> NameBuf {
    Name::new(text.as_bytes()).unwrap().to_buf()
}

fn node(kind: FileKind) -> NewNode<'static> {
    NewNode {
        kind,
        mode: Mode::new(0o755),
        uid: 0,
        gid: 0,
        rdev: obento_base::DeviceNumber::default(),
        target: b"target",
    }
}

/// Runs a random plan, whose failed operations change nothing.
fn run_plan(fs: &Arc<Recorded>, seed: u64) {
    let fs: Arc<dyn FileSystem> = Arc::clone(fs) as _;
    let mut runner = Actor::new(Vfs::new(fs));
    for (number, op) in random(seed, &Limits { ops: 300, ..Limits::SMALL }).ops.iter().enumerate() {
        let _ = runner.act(number, op);
    }
}

#[test]
fn the_log_of_random_changes_rebuilds_the_names_of_the_volume() {
    for seed in 0..40 {
        let inner = tmpfs(64 << 20);
        let fs = recorded(Arc::clone(&inner), LogOptions::default());
        run_plan(&fs, seed);
        let expected = names_of(&*fs);
        fs.close().unwrap();
        assert_eq!(replay(&segments(&inner)), expected, "seed {seed}");
    }
}

#[test]
fn a_synced_change_has_its_record_after_a_power_failure() {
    let folder = tempfile::tempdir().unwrap();
    let (image, copy) = (folder.path().join("image"), folder.path().join("copy"));
    if !common::make_ext4(&image) {
        return;
    }
    let fs = recorded(common::open_ext4(&image), LogOptions::default());
    for round in 0..4 {
        run_plan(&fs, round);
        fs.sync().unwrap();
        let expected = names_of(&*fs);
        std::fs::copy(&image, &copy).unwrap();
        let after = common::open_ext4(&copy);
        assert_eq!(replay(&segments(&after)), expected, "round {round}");
        // The next recorder marks that it found no end.
        let again = recorded(Arc::clone(&after), LogOptions::default());
        again.close().unwrap();
        let segments = segments(&common::open_ext4(&copy));
        let marks = Entries::new(segments.last().unwrap()).flatten();
        assert_eq!(marks.filter(|entry| entry.record == Record::Mark(Mark::Crash)).count(), 1);
        call("e2fsck", ["-fn".as_ref(), copy.as_os_str()]).unwrap();
        // A plan leaves names behind, with which the next one would collide: each has its own directory.
        let tree: Vec<_> = list(&*fs, fs.root()).into_iter().map(|(name, _)| name).collect();
        assert!(!tree.iter().any(|name| name == DIRECTORY.as_bytes()));
    }
    fs.close().unwrap();
}

#[test]
fn every_removal_of_55_000_files_by_18_threads_has_its_record() {
    const THREADS: usize = 18;
    const FILES: usize = 55_000;
    let inner = tmpfs(256 << 20);
    let fs = recorded(Arc::clone(&inner), LogOptions::default());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let fs = &fs;
            scope.spawn(move || {
                let own = (thread..FILES).step_by(THREADS);
                let names: Vec<_> = own.map(|number| name(&number.to_string())).collect();
                for name in &names {
                    fs.create(fs.root(), name, &node(FileKind::Regular)).unwrap();
                }
                for name in &names {
                    fs.remove(fs.root(), name, RemovalKind::File, &mut |_| Ok(Usage::Unused)).unwrap();
                }
            });
        }
    });
    fs.close().unwrap();
    let segments = segments(&inner);
    assert!(replay(&segments).is_empty());
    let mut graph = Graph::new();
    let mut removed = Vec::new();
    for entry in segments.iter().flat_map(|segment| Entries::new(segment)).map(Result::unwrap) {
        graph.add(&entry);
        if let Record::Remove { name, file, .. } = entry.record {
            assert!(graph.removed(file).is_some_and(|removal| removal.actor == actor(7)));
            removed.push(name.to_vec());
        }
    }
    removed.sort_unstable();
    removed.dedup();
    assert_eq!(removed.len(), FILES);
}

#[test]
fn the_log_is_hidden_and_protected() {
    let inner = tmpfs(64 << 20);
    let fs = recorded(Arc::clone(&inner), LogOptions::default());
    let log = name(DIRECTORY);
    assert_eq!(fs.lookup(fs.root(), &log), Err(Error::NotFound));
    assert!(list(&*fs, fs.root()).is_empty());
    let made = fs.create(fs.root(), &log, &node(FileKind::Regular));
    assert_eq!(made.map(drop), Err(Error::Exists));
    let dir = inner.lookup(inner.root(), &log).unwrap();
    for refused in [
        fs.remove(fs.root(), &log, RemovalKind::EmptyDirectory, &mut |_| Ok(Usage::Unused)),
        fs.create(dir, &name("x"), &node(FileKind::Regular)).map(drop),
        fs.rename(fs.root(), &log, fs.root(), &name("y"), obento_driver::RenameFlags::empty()),
    ] {
        assert_eq!(refused, Err(Error::NotPermitted));
    }
    let inner = tmpfs(64 << 20);
    let shown = recorded(Arc::clone(&inner), LogOptions { shown: true, ..LogOptions::default() });
    let dir = inner.lookup(inner.root(), &log).unwrap();
    assert_eq!(shown.lookup(shown.root(), &log), Ok(dir));
    let (_, segment) = list(&*shown, dir).remove(0);
    assert_eq!(
        shown.set_attr(segment, &SetAttr { uid: Some(1), ..SetAttr::default() }).map(drop),
        Err(Error::NotPermitted)
    );
}

#[test]
fn old_segments_become_edges_and_derivations_remain() {
    let inner = tmpfs(64 << 20);
    let options = LogOptions { segment: 16 << 10, segments: 2, ..LogOptions::default() };
    let fs = recorded(Arc::clone(&inner), options);
    let create = |text: &str| fs.create(fs.root(), &name(text), &node(FileKind::Regular)).unwrap();
    let (input, output) = (create("input"), create("output"));
    let reading = OpenMode { read: true, write: false };
    let other = actor(8);
    fs.opened(other, input.ino, reading);
    fs.closed(other, input.ino);
    // Process 8 derives a file from the input, and then changes of attributes fill many segments.
    let writing = OpenMode { read: false, write: true };
    fs.opened(other, output.ino, writing);
    let vfs = Vfs::new(Arc::clone(&fs) as Arc<dyn FileSystem>);
    vfs.node(output.ino).unwrap().write_at(0, b"derived").unwrap();
    fs.sync().unwrap();
    fs.closed(other, output.ino);
    for number in 0..20_000 {
        let change = SetAttr { uid: Some(number), ..SetAttr::default() };
        fs.set_attr(input.ino, &change).unwrap();
    }
    fs.close().unwrap();
    let segments = segments(&inner);
    assert_eq!(segments.len(), 3, "edges and two segments");
    let mut graph = Graph::new();
    for segment in &segments {
        Entries::new(segment).map(Result::unwrap).for_each(|entry| graph.add(&entry));
    }
    let id = |attr: &obento_base::Attr| FileId { ino: attr.ino, generation: attr.generation };
    let newest = graph.newest(id(&output));
    assert_eq!(graph.sources(newest), [graph.newest(id(&input))]);
    assert_eq!(graph.products(graph.newest(id(&input))), [newest]);
    assert_eq!(graph.location(id(&output)).map(|(_, name)| name), Some(&b"output"[..]));
}

/// Writes to `file` until the volume is full.
fn fill(file: &Node) {
    let mut len = 0;
    loop {
        match file.write_at(len, &[7; 4096]) {
            Ok(0) | Err(Error::NoSpace) => return,
            Ok(written) => len += written as u64,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_full_volume_loses_records_and_no_change_of_a_user() {
    let inner = tmpfs(2 << 20);
    let fs = recorded(Arc::clone(&inner), LogOptions::default());
    let vfs = Vfs::new(Arc::clone(&fs) as Arc<dyn FileSystem>);
    let file = fs.create(fs.root(), &name("big"), &node(FileKind::Regular)).unwrap();
    let big = vfs.node(file.ino).unwrap();
    fill(&big);
    // Changes that need no space succeed, whether or not there is room for their records.
    let mut at = name("big");
    for number in 0..4000 {
        let next = name(&format!("renamed {number}"));
        fs.rename(fs.root(), &at, fs.root(), &next, obento_driver::RenameFlags::empty()).unwrap();
        at = next;
    }
    fs.sync().unwrap();
    assert!(fs.status().unwrap().lost > 0);
    big.truncate(0).unwrap();
    for number in 0..2000 {
        let next = name(&format!("again {number}"));
        fs.rename(fs.root(), &at, fs.root(), &next, obento_driver::RenameFlags::empty()).unwrap();
        at = next;
    }
    fs.close().unwrap();
    let segments = segments(&inner);
    let entries = segments.iter().flat_map(|segment| Entries::new(segment));
    let lost = entries.flatten().filter_map(|entry| match entry.record {
        Record::Mark(Mark::Lost(count)) => Some(count),
        _ => None,
    });
    assert!(lost.sum::<u64>() > 0);
}

#[test]
fn a_segment_ends_on_a_full_volume_and_each_lost_record_is_counted() {
    let inner = tmpfs(2 << 20);
    let big = inner.writable().unwrap().create(inner.root(), &name("big"), &node(FileKind::Regular)).unwrap();
    let big = Vfs::new(Arc::clone(&inner)).node(big.ino).unwrap();
    let options = LogOptions { segment: 32 << 10, segments: 4, ..LogOptions::default() };
    // The next recorder continues this segment, without space in reserve.
    recorded(Arc::clone(&inner), options).sync().unwrap();
    fill(&big);
    big.sync().unwrap();
    let fs = recorded(Arc::clone(&inner), options);
    // The recorder has added the marks of the crash and of the mount.
    let first = fs.status().unwrap().next - 2;
    let change = |number: u32| {
        fs.set_attr(big.ino(), &SetAttr { uid: Some(number), ..SetAttr::default() }).unwrap();
    };
    // Many more records than two segments can contain.
    (0..20_000).for_each(change);
    big.truncate(0).unwrap();
    (0..20).for_each(change);
    fs.sync().unwrap();
    fs.sync().unwrap();
    let status = fs.status().unwrap();
    assert_eq!(status.lost, 0);
    let segments = segments(&inner);
    let (mut written, mut lost) = (0, 0);
    for segment in &segments {
        assert!(segment.len() <= (32 << 10) + (64 << 10), "{}", segment.len());
        for entry in Entries::new(segment).map(Result::unwrap).filter(|entry| entry.sequence >= first) {
            written += 1;
            if let Record::Mark(Mark::Lost(count)) = entry.record {
                lost += count;
            }
        }
    }
    assert!(lost > 15_000, "{lost}");
    assert_eq!(written + lost, status.next - first);
}

#[test]
fn a_file_with_the_name_of_the_log_is_reported() {
    let inner = tmpfs(1 << 20);
    inner.writable().unwrap().create(inner.root(), &name(DIRECTORY), &node(FileKind::Regular)).unwrap();
    let who = Arc::new(obento_prov::FixedWho(actor(1)));
    let opened = Recorded::open(inner, who, common::clock(), LogOptions::default());
    assert_eq!(opened.map(drop), Err(Error::NotDirectory));
}

#[test]
fn the_log_of_a_volume_that_is_passed_on_has_no_gap() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    if !common::make_ext4(&image) {
        return;
    }
    let first = recorded(common::open_ext4(&image), LogOptions::default());
    let file = first.create(first.root(), &name("open"), &node(FileKind::Regular)).unwrap();
    first.opened(actor(9), file.ino, OpenMode { read: true, write: true });
    first.was_read(actor(9), file.ino, &(0..100));
    let state = first.handover().unwrap().prepare().unwrap();
    let (inodes, files) = (vec![first.root(), file.ino], first.open_files());
    // The first process ends without closing the volume.
    std::mem::forget(first);
    let adopt = Some(Arc::new(HandoverState { inodes, state }));
    let options = OpenOptions { access: Access::ReadWrite, adopt, ..OpenOptions::new(common::clock()) };
    let device = Arc::new(FileDevice::open_writable(&image).unwrap());
    let inner = Ext4Driver.open(device, &options).unwrap();
    let second = recorded(inner, LogOptions { adopts: true, ..LogOptions::default() });
    second.adopt_open_files(files);
    second.create(second.root(), &name("later"), &node(FileKind::Regular)).unwrap();
    second.closed(actor(9), file.ino);
    second.close().unwrap();
    let after = common::open_ext4(&image);
    let segments = segments(&after);
    let entries: Vec<_> =
        segments.iter().flat_map(|segment| Entries::new(segment)).map(Result::unwrap).collect();
    assert!(entries.windows(2).all(|pair| pair[0].sequence + 1 == pair[1].sequence), "{entries:?}");
    let count = |mark: Mark| entries.iter().filter(|entry| entry.record == Record::Mark(mark)).count();
    assert_eq!((count(Mark::Upgrade), count(Mark::Crash), count(Mark::Unmount)), (1, 0, 1));
    let read = entries.iter().find_map(|entry| match entry.record {
        Record::Close { read, .. } => Some(read.bytes),
        _ => None,
    });
    assert_eq!(read, Some(100));
    assert_eq!(replay(&segments), names_of(&*after));
}

/// Returns the sequence numbers of the records in files of a log. No record is damaged.
fn sequences(files: obento_prov::LogFiles) -> Vec<u64> {
    let mut files: Vec<_> = files.map(Result::unwrap).collect();
    files.sort();
    let segments = files.iter().filter(|(name, _)| name.ends_with(".prv") && !name.starts_with("00000000"));
    let entries = segments.flat_map(|(_, segment)| Entries::new(segment));
    entries.map(|entry| entry.unwrap().sequence).collect()
}

#[track_caller]
fn expect_no_gap(sequences: &[u64], next: u64) {
    assert!(sequences.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{sequences:?}");
    assert!(sequences.last().is_some_and(|last| last + 1 >= next), "{:?} {next}", sequences.last());
}

#[test]
fn a_log_is_read_without_a_gap_while_its_segments_are_removed() {
    let inner = tmpfs(64 << 20);
    let options = LogOptions { segment: 16 << 10, segments: 4, ..LogOptions::default() };
    let fs = recorded(Arc::clone(&inner), options);
    let file = fs.create(fs.root(), &name("file"), &node(FileKind::Regular)).unwrap();
    let change = |numbers: std::ops::Range<u32>| {
        for number in numbers {
            fs.set_attr(file.ino, &SetAttr { uid: Some(number), ..SetAttr::default() }).unwrap();
        }
    };
    change(0..20_000);
    let (next, files) = (fs.status().unwrap().next, fs.log_files().unwrap());
    let before = inner.statfs().unwrap().free_inodes;
    // All these segments are removed before they are read.
    change(0..20_000);
    let read = sequences(files);
    expect_no_gap(&read, next);
    assert_eq!(read.last(), Some(&(next - 1)));
    // Four segments and their indexes were removed. The newest segment has no index yet.
    let after = inner.statfs().unwrap().free_inodes;
    assert!(after + 2 >= before, "removed segments are freed after the last use: {before} {after}");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| change(0..30_000));
        while !writer.is_finished() {
            let (next, files) = (fs.status().unwrap().next, fs.log_files().unwrap());
            expect_no_gap(&sequences(files), next);
        }
        writer.join().unwrap();
    });
    fs.close().unwrap();
}
