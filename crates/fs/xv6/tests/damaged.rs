//! Damage: each kind is found by the check and named, and whatever the bytes say, nothing panics or goes on for ever.

mod common;

use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use common::{clock, findings, format, open};
use obento_base::{FileKind, Ino};
use obento_block::{BlockDevice as _, MemDevice};
use obento_driver::{Access, Cookie, Driver as _, OpenOptions};
use obento_testkit::mutants::{Random, mutate};
use obento_testkit::opening::assert_read_once;
use obento_testkit::plan::{Actor, Limits, Op, random};
use obento_vfs::Vfs;
use obento_xv6::raw::{BLOCK, RawSuperBlock};
use obento_xv6::{SuperBlock, Xv6Driver};

/// A volume with files, directories and links; closed, or with its log not replayed.
fn with_files(closed: bool) -> Vec<u8> {
    let device = Arc::new(MemDevice::new(format(2 << 20, 64)));
    let mut actor = Actor::new(Vfs::new(open(device.clone(), clock()).unwrap()));
    let plan = random(3, &Limits { ops: 60, space: false, sync: 0, ..Limits::SMALL });
    let large =
        [Op::Create("large".into(), FileKind::Regular, 0o644), Op::Write("large".into(), 100_000, 100_000)];
    let many = (0..200).map(|n| Op::Link("large".into(), format!("name {n}")));
    for op in plan.ops.iter().chain(&large).cloned().chain(many) {
        // What the plan tries in vain is no matter here.
        let _ = actor.act(1, &op);
    }
    if closed {
        actor.vfs().close().unwrap()
    } else {
        actor.vfs().sync().unwrap()
    };
    device.snapshot()
}

/// Reads all that can be reached, with bounds that a sound volume of this size never reaches.
fn use_all(bytes: Vec<u8>, access: Access) {
    let device = Arc::new(MemDevice::new(bytes));
    let options = OpenOptions { access, ..OpenOptions::new(clock()) };
    let Ok(fs) = Xv6Driver.open(device, &options) else { return };
    let vfs = Vfs::new(Arc::clone(&fs));
    let (mut seen, mut queue, mut names) = (BTreeSet::new(), VecDeque::from([fs.root()]), Vec::new());
    while let Some(ino) = queue.pop_front() {
        let _ = (fs.parent(ino), fs.read_link(ino));
        if fs.getattr(ino).is_ok_and(|attr| attr.kind == FileKind::Regular)
            && let Ok(node) = vfs.node(ino)
        {
            let _ = (node.read_at(0, &mut [0; 9000]), node.read_at(150_000, &mut [0; 9000]));
        }
        let mut count = 0;
        let _ = fs.read_dir(ino, Cookie::START, &mut |entry| {
            count += 1;
            if let Ok(entry) = entry {
                names.push((ino, entry.name.to_buf()));
                if seen.insert(entry.ino) {
                    queue.push_back(entry.ino);
                }
            }
            if count < 20_000 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
    }
    for (dir, name) in &names {
        let found = fs.lookup(*dir, name);
        if let (Some(writable), Ok(ino)) = (fs.writable(), found) {
            let _ = (writable.unlink(*dir, name), writable.rmdir(*dir, name));
            fs.forget(ino);
        }
    }
    if let Some(writable) = fs.writable() {
        let _ = writable.close();
    }
}

#[test]
fn mutants_are_read_changed_and_checked_to_the_end() {
    let count = std::env::var("OBENTO_MUTANTS").map_or(60, |count| count.parse().unwrap());
    for (kind, sound) in [with_files(true), with_files(false)].into_iter().enumerate() {
        use_all(sound.clone(), Access::ReadOnly);
        for seed in 0..count {
            let mut bytes = sound.clone();
            mutate(&mut bytes, &mut Random::new(seed << 8 | kind as u64));
            let outcome = std::panic::catch_unwind(|| {
                use_all(bytes.clone(), Access::ReadOnly);
                use_all(bytes.clone(), Access::ReadWrite);
                let device = Arc::new(MemDevice::read_only(bytes));
                let options = obento_driver::CheckOptions::new(clock());
                let _ = obento_driver::Check::check(&Xv6Driver, device, &options, &mut Vec::new());
            });
            assert!(outcome.is_ok(), "kind {kind}, seed {seed}");
        }
    }
}

#[test]
fn a_log_that_was_not_brought_home_is_shown_without_a_byte_written() {
    let dirty = with_files(false);
    let device = Arc::new(MemDevice::read_only(dirty.clone()));
    let fs = Xv6Driver.open(device, &OpenOptions::new(clock())).unwrap();
    assert_eq!(fs.info().state, "needs recovery");
    assert_eq!(findings(Arc::new(MemDevice::read_only(dirty))), []);
}

/// One damage each, and what the check says of it.
#[test]
fn each_damage_is_found_and_named() {
    let sound = with_files(true);
    let sb = SuperBlock::decode(read_super_block(&sound)).unwrap();
    let inode_of = |name: &str| {
        let fs = Xv6Driver
            .open(Arc::new(MemDevice::read_only(sound.clone())), &OpenOptions::new(clock()))
            .unwrap();
        let ino = fs.lookup(fs.root(), obento_base::Name::new(name.as_bytes()).unwrap()).unwrap();
        place(&sb, ino)
    };
    let (large, root) = (inode_of("large"), place(&sb, Ino(1)));
    let data = sb.geometry.data_start as usize * BLOCK;
    let entry = data + sound[data..].windows(9).position(|bytes| bytes == b"\x05\x08\0\0large").unwrap() - 4;
    let cases: &[(&str, usize, u8)] = &[
        // The offsets are those of `RawInode`.
        ("link-count", large + 12, 77),
        ("block-count", large + 44, 200),
        ("inode", large + 1, 0xf0),
        ("size", large + 26, 0),
        ("block-number", large + 104 + 4 * 30, 1),
        ("link-count", root + 12, 9),
        ("bitmap", sb.geometry.bitmap_start as usize * BLOCK + BLOCK / 200, 0xf0),
        ("block-twice", large + 104 + 4 * 30, sound[large + 104 + 4 * 31]),
        // Those of `RawDirEntry`.
        ("entry-inode", entry, 63),
        ("entry", entry + 4, 0),
        ("entry-kind", entry + 5, 2),
    ];
    for &(code, at, byte) in cases {
        let mut bytes = sound.clone();
        bytes[at] = byte;
        let found = findings(Arc::new(MemDevice::read_only(bytes)));
        assert!(found.iter().any(|finding| finding.code == code), "{code} at {at}: {found:?}");
    }
}

fn place(sb: &SuperBlock, ino: Ino) -> usize {
    (sb.geometry.inode_start as usize + ino.0 as usize / 16) * BLOCK + ino.0 as usize % 16 * 256
}

fn read_super_block(bytes: &[u8]) -> obento_xv6::raw::RawSuperBlock {
    use obento_base::wire::FromBytes as _;
    obento_xv6::raw::RawSuperBlock::read_from_prefix(&bytes[BLOCK..]).unwrap().0
}

#[test]
fn a_super_block_with_a_wrong_byte_is_corrupt_and_one_of_mit_is_not_ours() {
    let mut bytes = format(2 << 20, 64);
    bytes[BLOCK + 5] ^= 1;
    let device = Arc::new(MemDevice::new(bytes.clone()));
    assert!(matches!(open(device.clone(), clock()), Err(obento_base::Error::Corrupt(_))));
    assert!(Xv6Driver.probe(&*device).unwrap().is_some(), "the type is recognised");
    bytes[BLOCK + 32] ^= 1;
    assert!(Xv6Driver.probe(&MemDevice::new(bytes)).unwrap().is_none());
    assert!(device.len() > 0);
}

#[test]
fn a_probe_a_check_and_an_open_read_the_super_block_once() {
    let volume = MemDevice::new(format(2 << 20, 64));
    assert_read_once(&Xv6Driver, volume, 4096, size_of::<RawSuperBlock>());
}
