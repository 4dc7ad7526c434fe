//! The log of a volume against its tree.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use obento_base::{Error, FileKind, Ino, Mode, Name, NameBuf};
use obento_driver::{FileSystem, NewNode, RemovalKind, SetAttr, Usage, WritableFileSystem as _};
use obento_prov::{DIRECTORY, Entries, FileId, Graph, LogOptions, Mark, OpenMode, Record, Recorded};
use obento_testkit::oracle::call;
use obento_testkit::plan::{Actor, Limits, random};
use obento_vfs::Vfs;

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

/// Names by directory and bytes.
type Names = BTreeMap<(Ino, Vec<u8>), FileId>;

/// Executes the records of a log on an empty tree. Panics if one contradicts the tree.
fn replay(segments: &[Vec<u8>]) -> Names {
    let mut names = Names::new();
    let mut next = 0;
    for segment in segments {
        for entry in Entries::new(segment) {
            let entry = entry.unwrap();
            assert!(entry.sequence >= next, "{entry:?}");
            next = entry.sequence + 1;
            step(&mut names, &entry.record);
        }
    }
    names
}

fn step(names: &mut Names, record: &Record<'_>) {
    match *record {
        // A file that was created without a name.
        Record::Create { name: b"", .. } => {}
        Record::Create { parent, name, file, .. } | Record::Link { parent, name, file, .. } => {
            assert_eq!(names.insert((parent, name.to_vec()), file), None, "{record:?}");
        }
        Record::Remove { parent, name, file, .. } => {
            assert_eq!(names.remove(&(parent, name.to_vec())), Some(file), "{record:?}");
        }
        Record::Rename { from, name, to, new_name, moved, replaced, exchange, .. } => {
            assert_eq!(names.remove(&(from, name.to_vec())), Some(moved), "{record:?}");
            let old = names.insert((to, new_name.to_vec()), moved);
            assert_eq!(old, replaced, "{record:?}");
            if exchange {
                names.insert((from, name.to_vec()), replaced.unwrap());
            }
        }
        _ => {}
    }
}

/// Returns the names of a volume, without those that it had when it was formatted.
fn names_of(fs: &dyn FileSystem) -> Names {
    let mut names = Names::new();
    let mut dirs = vec![fs.root()];
    while let Some(dir) = dirs.pop() {
        for (name, ino) in list(fs, dir).into_iter().filter(|(name, _)| name != b"lost+found") {
            let attr = fs.getattr(ino).unwrap();
            if attr.kind == FileKind::Directory {
                dirs.push(ino);
            }
            names.insert((dir, name), FileId { ino, generation: attr.generation });
        }
    }
    names
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
fn every_removal_by_many_threads_has_its_record() {
    const THREADS: usize = 18;
    const FILES: usize = 300;
    let inner = tmpfs(256 << 20);
    let fs = recorded(Arc::clone(&inner), LogOptions::default());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let fs = &fs;
            scope.spawn(move || {
                let names: Vec<_> = (0..FILES).map(|number| name(&format!("{thread} {number}"))).collect();
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
    let entries = segments.iter().flat_map(|segment| Entries::new(segment)).map(Result::unwrap);
    let removed = entries.filter(|entry| matches!(entry.record, Record::Remove { .. })).count();
    assert_eq!(removed, THREADS * FILES);
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

#[test]
fn a_full_volume_loses_records_and_no_change_of_a_user() {
    let inner = tmpfs(2 << 20);
    let fs = recorded(Arc::clone(&inner), LogOptions::default());
    let vfs = Vfs::new(Arc::clone(&fs) as Arc<dyn FileSystem>);
    let file = fs.create(fs.root(), &name("big"), &node(FileKind::Regular)).unwrap();
    let big = vfs.node(file.ino).unwrap();
    let mut len = 0;
    loop {
        match big.write_at(len, &[7; 4096]) {
            Ok(0) | Err(Error::NoSpace) => break,
            Ok(written) => len += written as u64,
            Err(error) => panic!("{error}"),
        }
    }
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
fn a_file_with_the_name_of_the_log_is_reported() {
    let inner = tmpfs(1 << 20);
    inner.writable().unwrap().create(inner.root(), &name(DIRECTORY), &node(FileKind::Regular)).unwrap();
    let who = Arc::new(obento_prov::FixedWho(actor(1)));
    let opened = Recorded::open(inner, who, common::clock(), LogOptions::default());
    assert_eq!(opened.map(drop), Err(Error::NotDirectory));
}
