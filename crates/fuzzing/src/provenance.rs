//! The target for the log of the provenance layer.

use std::sync::Arc;

use obento::driver::{FileSystem, RemovalKind, SetAttr, Usage};
use obento::provenance::{
    Actor, BLOCK, Directories, Entries, FixedWho, Graph, Header, LogOptions, OpenMode, Recorded,
};
use obento::{Caller, DeviceNumber, FileKind, FixedClock, Ino, Mode, Name, NewNode, Timestamp, Vfs, tmpfs};
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
    let new = |kind| NewNode {
        kind,
        mode: Mode::new(0o755),
        uid: 0,
        gid: 0,
        rdev: DeviceNumber::default(),
        target: if kind == FileKind::Symlink { b"target" } else { b"" },
    };
    let create =
        |dir, text, kind| vfs.create(&Caller::Owner, dir, name(text), &new(kind)).expect("it is created");
    let root = vfs.root();
    let dir = create(&root, "dir", FileKind::Directory);
    let file = create(&dir, "file", FileKind::Regular);
    create(&dir, "link", FileKind::Symlink);
    let mode = OpenMode { read: true, write: true };
    recorded.opened(actor, file.ino(), mode);
    file.write_at(10, b"bytes").expect("it is written");
    recorded.closed(actor, file.ino());
    vfs.rename(&Caller::Owner, (&dir, name("file")), (&root, name("moved")), obento::RenameFlags::empty())
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
