//! Constructed fast commits, and exactly the changes that they make.

use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::vec;
use std::vec::Vec;

use obento_base::crc::crc32c;
use obento_base::wire::le::{U16, U32};
use obento_base::wire::{FromBytes, FromZeros, IntoBytes};
use obento_base::{Corrupt, Error, Feature, Ino, Structure};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::Journalling;
use obento_env::NO_CLOCK;
use obento_journal::{Log, Tid};
use obento_testkit::oracle::{Oracle, call, require};
use proptest::prelude::*;

use super::area::AreaInMemory;
use super::*;
use crate::raw::RawInode;
use crate::volume::Volume;
use crate::writer::Writer;

const BLOCK: usize = 1024;
const TID: Tid = Tid(9);
const EXTENTS: u32 = 0x8_0000;
const INLINE: u32 = 0x1000_0000;

/// Inodes 2 (the root) and 11 (a directory), and the files 12 with one name and 13 with two.
struct Model;

impl BaseVolume for Model {
    fn node(&self, ino: Ino) -> Option<ReplayedInode> {
        match ino.0 {
            2 | 11 => Some(ReplayedInode { links: 3, is_dir: true, folds: false }),
            12 => Some(ReplayedInode { links: 1, is_dir: false, folds: false }),
            13 => Some(ReplayedInode { links: 2, is_dir: false, folds: false }),
            _ => None,
        }
    }

    fn fold(&self) -> Option<Fold> {
        None
    }
}

#[derive(Default)]
struct Maker {
    blocks: Vec<[u8; BLOCK]>,
    records: Vec<u8>,
}

impl Maker {
    fn new() -> Self {
        let mut this = Self::default();
        this.put(9, &[&[0; 4], &TID.0.to_le_bytes()]);
        this
    }

    fn put(&mut self, tag: u16, value: &[&[u8]]) -> &mut Self {
        let value = value.concat();
        self.records.extend(tag.to_le_bytes());
        self.records.extend(u16::try_from(value.len()).unwrap().to_le_bytes());
        self.records.extend(value);
        self
    }

    fn dentry(&mut self, tag: u16, dir: u32, ino: u32, name: &str) -> &mut Self {
        self.put(tag, &[&dir.to_le_bytes(), &ino.to_le_bytes(), name.as_bytes()])
    }

    fn inode(&mut self, ino: u32, raw: &RawInode) -> &mut Self {
        self.put(6, &[&ino.to_le_bytes(), raw.as_bytes()])
    }

    fn add(&mut self, ino: u32, at: u32, len: u16, block: u32) -> &mut Self {
        let extent = [&at.to_le_bytes()[..], &len.to_le_bytes(), &[0; 2], &block.to_le_bytes()];
        self.put(1, &[&ino.to_le_bytes(), &extent.concat()])
    }

    fn delete(&mut self, ino: u32, at: u32, len: u32) -> &mut Self {
        self.put(2, &[&ino.to_le_bytes(), &at.to_le_bytes(), &len.to_le_bytes()])
    }

    /// Ends a fast commit, all of whose records are in one block.
    fn tail(&mut self, tid: Tid) -> &mut Self {
        let mut block = core::mem::take(&mut self.records);
        let rest = BLOCK - block.len() - 4;
        block.extend([8, 0]);
        block.extend(u16::try_from(rest).unwrap().to_le_bytes());
        block.extend(tid.0.to_le_bytes());
        let crc = crc32c(0, &block);
        block.extend(crc.to_le_bytes());
        block.resize(BLOCK, 0);
        self.blocks.push(block.try_into().unwrap());
        self
    }

    fn load(&self) -> FastCommits {
        load(&self.blocks.concat())
    }
}

fn load(bytes: &[u8]) -> FastCommits {
    let geometry = AreaGeometry { block_size: 1024, inode_size: 256 };
    FastCommits::load(&AreaInMemory { bytes, block_size: BLOCK }, geometry, TID, &Model).unwrap()
}

fn raw(mode: u16, links: u16, flags: u32) -> RawInode {
    let mut raw = RawInode::new_zeroed();
    (raw.i_mode, raw.i_links_count, raw.i_flags) = (U16::new(mode), U16::new(links), U32::new(flags));
    raw.i_block = [0xbb; 60];
    raw
}

/// Returns the record that `changes` shows over a base full of 0xee.
fn merged(changes: &FastCommits, ino: u64) -> RawInode {
    let record = changes.record(Ino(ino), &[0xee; 256]).unwrap().unwrap();
    assert_eq!(record[128..], [0xee; 128]);
    RawInode::read_from_prefix(&record).unwrap().0
}

#[test]
fn a_file_that_was_made_has_its_record_its_blocks_and_its_name() {
    let mut maker = Maker::new();
    maker.inode(20, &raw(0o100_644, 1, EXTENTS)).add(20, 0, 4, 500).dentry(3, 11, 20, "new").tail(TID);
    let changes = maker.load();
    assert_eq!((changes.commits, changes.damage), (1, None));
    let record = merged(&changes, 20);
    assert_eq!((record.i_mode.get(), record.i_links_count.get()), (0o100_644, 1));
    assert_eq!(record.i_block[..12], [0x0a, 0xf3, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
    let run = MappedRun { len: 3, place: Blocks::Mapped(VolBlock(501)) };
    assert_eq!(changes.map(Ino(20), FileBlock(1)), BlockOverlay::Run(run));
    assert_eq!(changes.map(Ino(20), FileBlock(4)), BlockOverlay::Base(u32::MAX));
    assert_eq!(changes.names(Ino(11)).unwrap().resolve(b"new", None), Some(Ino(20)));
    assert!(changes.names(Ino(2)).is_none() && changes.record(Ino(12), &[]).is_none());
}

#[test]
fn a_record_keeps_the_mapping_on_the_volume_and_takes_inline_data_along() {
    let mut maker = Maker::new();
    maker.inode(12, &raw(0o100_644, 1, 0)).inode(13, &raw(0o100_644, 2, INLINE)).tail(TID);
    let changes = maker.load();
    assert_eq!(merged(&changes, 12).i_block, [0xee; 60]);
    assert_eq!(merged(&changes, 13).i_block, [0xbb; 60]);
}

#[test]
fn ranges_are_added_unwritten_and_deleted() {
    let mut maker = Maker::new();
    maker.add(12, 0, 10, 700).add(12, 4, 32768 + 2, 900).delete(12, 8, u32::MAX).tail(TID);
    let changes = maker.load();
    let at = |at| changes.map(Ino(12), FileBlock(at));
    assert_eq!(at(0), BlockOverlay::Run(MappedRun { len: 4, place: Blocks::Mapped(VolBlock(700)) }));
    assert_eq!(at(5), BlockOverlay::Run(MappedRun { len: 1, place: Blocks::Unwritten(VolBlock(901)) }));
    assert_eq!(at(6), BlockOverlay::Run(MappedRun { len: 2, place: Blocks::Mapped(VolBlock(706)) }));
    assert_eq!(at(9), BlockOverlay::Run(MappedRun { len: u32::MAX - 9, place: Blocks::Hole }));
}

#[test]
fn the_last_name_takes_the_inode_and_its_blocks_with_it() {
    let mut maker = Maker::new();
    maker.dentry(5, 11, 12, "one").dentry(5, 11, 13, "two").tail(TID);
    let changes = maker.load();
    assert_eq!((merged(&changes, 12).i_links_count.get(), merged(&changes, 13).i_links_count.get()), (0, 1));
    let names = changes.names(Ino(11)).unwrap();
    assert_eq!((names.resolve(b"one", Some(Ino(12))), names.resolve(b"two", Some(Ino(13)))), (None, None));
}

#[test]
fn an_inode_that_is_used_again_starts_without_blocks() {
    let mut maker = Maker::new();
    maker.add(12, 0, 10, 700).dentry(5, 11, 12, "old").inode(12, &raw(0o100_600, 1, EXTENTS));
    maker.dentry(3, 11, 12, "young").tail(TID);
    let changes = maker.load();
    assert_eq!(changes.map(Ino(12), FileBlock(0)), BlockOverlay::Base(u32::MAX));
    let base_with_tree = [[0xee; 40].as_slice(), &[0x0a, 0xf3, 1, 0, 4, 0], &[0; 82]].concat();
    let record = changes.record(Ino(12), &base_with_tree).unwrap().unwrap();
    assert_eq!(record[40..48], [0x0a, 0xf3, 0, 0, 4, 0, 0, 0]);
}

#[test]
fn a_directory_that_was_made_has_no_blocks_and_counts_in_its_parent() {
    let mut maker = Maker::new();
    maker.inode(21, &raw(0o40_755, 2, EXTENTS)).dentry(3, 11, 21, "sub");
    maker.inode(22, &raw(0o100_644, 1, EXTENTS)).dentry(3, 21, 22, "inner").tail(TID);
    maker.dentry(5, 2, 11, "gone").tail(TID);
    let changes = maker.load();
    assert_eq!((changes.made_in(Ino(21)), changes.made_in(Ino(11))), (Some(Ino(11)), None));
    assert_eq!(changes.names(Ino(21)).unwrap().resolve(b"inner", None), Some(Ino(22)));
    assert_eq!((merged(&changes, 21).i_links_count.get(), merged(&changes, 2).i_links_count.get()), (2, 2));
    // The changed names of the removed directory are dropped.
    assert!(changes.names(Ino(11)).is_none());
    assert_eq!((changes.commits, merged(&changes, 11).i_links_count.get()), (2, 0));
}

#[test]
fn a_directory_on_the_volume_keeps_size_and_index() {
    let mut logged = raw(0o40_700, 3, EXTENTS | 0x1000);
    logged.i_size_lo = U32::new(4096);
    let mut maker = Maker::new();
    maker.inode(11, &logged).tail(TID);
    let mut base = raw(0o40_755, 3, EXTENTS);
    base.i_size_lo = U32::new(1024);
    base.i_block[..2].copy_from_slice(&[0x0a, 0xf3]);
    let record = maker.load().record(Ino(11), base.as_bytes()).unwrap().unwrap();
    let record = RawInode::read_from_prefix(&record).unwrap().0;
    assert_eq!((record.i_mode.get(), record.i_size_lo.get()), (0o40_700, 1024));
    assert_eq!((record.i_flags.get(), record.i_block), (EXTENTS, base.i_block));
}

#[test]
fn fast_commits_of_another_transaction_count_for_nothing() {
    let mut maker = Maker::default();
    maker.put(9, &[&[0; 4], &[8, 0, 0, 0]]).dentry(5, 11, 12, "one").tail(Tid(8));
    assert!(maker.load().is_empty());
    assert!(load(&[0; BLOCK]).is_empty() && load(&[]).is_empty());
}

#[test]
fn a_torn_fast_commit_is_dropped_and_those_before_it_count() {
    let mut maker = Maker::new();
    maker.dentry(5, 11, 12, "one").tail(TID).dentry(5, 11, 13, "two").tail(TID);
    maker.blocks[1][20] ^= 1;
    let changes = maker.load();
    assert_eq!((changes.commits, changes.damage), (1, None));
    assert!(changes.record(Ino(13), &[0; 128]).is_none());
}

#[test]
fn a_first_fast_commit_with_a_bad_checksum_is_noted() {
    let mut maker = Maker::new();
    maker.dentry(5, 11, 12, "one").tail(TID);
    maker.blocks[0][25] ^= 1;
    let changes = maker.load();
    assert!(changes.is_empty());
    let damage = changes.damage;
    assert!(matches!(
        damage,
        Some(Error::Corrupt(Corrupt::Checksum { structure: Structure::FastCommit, block: 0, .. }))
    ));
}

#[test]
fn unknown_features_are_unsupported() {
    let mut maker = Maker::default();
    maker.put(9, &[&[4, 0, 0, 0], &TID.0.to_le_bytes()]).dentry(5, 11, 12, "one").tail(TID);
    let changes = maker.load();
    assert!(changes.is_empty());
    let unknown = Feature::Bits { set: "fast-commit", bits: 4 };
    assert_eq!(changes.damage, Some(Error::Unsupported(unknown)));
}

#[test]
fn a_name_for_an_inode_that_is_not_in_use_is_corrupt_and_skipped() {
    let mut maker = Maker::new();
    maker.dentry(3, 11, 99, "ghost").dentry(4, 11, 13, "third").tail(TID);
    let changes = maker.load();
    assert!(matches!(changes.damage, Some(Error::Corrupt(Corrupt::InodeNumber { found: 99, .. }))));
    let added = changes.names(Ino(11)).unwrap().added(|_| {});
    assert_eq!(added.iter().map(|added| &*added.name).collect::<Vec<_>>(), [b"third"]);
    assert_eq!(merged(&changes, 13).i_links_count.get(), 3);
}

/// Returns a record of any type and length, sometimes of a valid length.
fn any_record() -> impl Strategy<Value = (u16, Vec<u8>)> {
    let numbers =
        prop::collection::vec(prop_oneof![Just(11_u32), Just(12), Just(13), Just(20), any::<u32>()], 3..=3);
    let value =
        (numbers, any::<u64>(), 8_usize..=160, any::<bool>()).prop_map(|(numbers, seed, len, exact)| {
            let mut value: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            value.extend(seed.to_le_bytes().iter().cycle().take(148));
            (value, len, exact)
        });
    (1_u16..=7, value).prop_map(|(tag, (mut value, len, exact))| {
        let right = match tag {
            1 => 16,
            2 => 12,
            6 => 132,
            _ => len,
        };
        value.truncate(if exact { right } else { len });
        (tag, value)
    })
}

/// Returns a volume, open for changes, with the files 12 and 13 (with two names) and the directory 11.
fn volume() -> Option<Writer> {
    static IMAGE: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    let make = || {
        if !require(&[Oracle::Program("mke2fs")]) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let (source, image) = (folder.path().join("source"), folder.path().join("image"));
        std::fs::create_dir(&source).unwrap();
        std::fs::write(source.join("12"), vec![1; 9000]).unwrap();
        std::fs::write(source.join("13"), vec![2; 500]).unwrap();
        std::fs::hard_link(source.join("13"), source.join("again")).unwrap();
        std::fs::File::create(&image).unwrap().set_len(2 << 20).unwrap();
        let args = ["-q", "-F", "-t", "ext4", "-b", "1024", "-O", "^has_journal", "-d"];
        call("mke2fs", args.into_iter().chain([source.to_str().unwrap(), image.to_str().unwrap()])).unwrap();
        Some(std::fs::read(&image).unwrap())
    };
    let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(IMAGE.get_or_init(make).clone()?));
    let sb = crate::locate::find(&*device).unwrap().super_block;
    let volume = Volume::new(device, sb, 1 << 20).unwrap();
    let journalling = Journalling { commit_interval: Duration::ZERO, ..Journalling::default() };
    Some(
        Writer::new(
            Arc::new(volume),
            Log::None,
            Arc::new(NO_CLOCK),
            &journalling,
            None,
            crate::writer::QuotaUpdates::Off,
        )
        .unwrap(),
    )
}

/// Applies the fast commits in `bytes` to a volume.
fn apply(bytes: &[u8]) -> Option<(Writer, obento_base::Result<()>)> {
    let writer = volume()?;
    let geometry = AreaGeometry { block_size: 1024, inode_size: 256 };
    let area = AreaInMemory { bytes, block_size: BLOCK };
    let changes = FastCommits::load(&area, geometry, TID, &**writer.volume()).unwrap();
    let applied = writer.apply_fast_commits(&changes);
    Some((writer, applied))
}

#[test]
fn applied_changes_are_part_of_the_volume() {
    let mut maker = Maker::new();
    maker.inode(20, &raw(0o100_644, 1, EXTENTS)).add(20, 0, 3, 1500).dentry(3, 11, 20, "new");
    maker.dentry(5, 2, 12, "12").dentry(4, 11, 13, "third").tail(TID);
    let Some((writer, applied)) = apply(&maker.blocks.concat()) else { return };
    assert_eq!(applied, Ok(()));
    let volume = writer.volume();
    let (root, dir) = (volume.inode(Ino(2)).unwrap(), volume.inode(Ino(11)).unwrap());
    let lookup = |dir, name: &[u8]| volume.lookup(dir, obento_base::Name::new(name).unwrap());
    assert_eq!(lookup(&dir, b"new"), Ok(Ino(20)));
    assert_eq!(lookup(&dir, b"third"), Ok(Ino(13)));
    assert_eq!(lookup(&root, b"12"), Err(Error::NotFound));
    assert_eq!(
        (volume.inode(Ino(12)).err(), volume.inode(Ino(13)).unwrap().links()),
        (Some(Error::Stale), 3)
    );
    let run = volume.map_run(&volume.inode(Ino(20)).unwrap(), FileBlock(1)).unwrap();
    assert_eq!(run, MappedRun { len: 2, place: Blocks::Mapped(VolBlock(1501)) });
}

proptest! {
    #[test]
    fn an_area_of_any_bytes_ends_in_an_answer(
        commits in prop::collection::vec(prop::collection::vec(any_record(), 0..6), 1..4),
        hits in prop::collection::vec((0_usize..1024, any::<u8>()), 0..3),
    ) {
        let mut maker = Maker::new();
        maker.inode(20, &raw(0o100_644, 1, EXTENTS)).dentry(3, 11, 20, "new");
        for commit in commits {
            for (tag, value) in commit {
                if maker.records.len() + value.len() < BLOCK - 20 {
                    maker.put(tag, &[&value]);
                }
            }
            maker.tail(TID);
        }
        let mut bytes = maker.blocks.concat();
        for (at, value) in hits {
            bytes[at] = value;
        }
        let changes = load(&bytes);
        for ino in (0..30).chain(changes.inodes.keys().map(|ino| ino.0).collect::<Vec<_>>()) {
            let _ = changes.record(Ino(ino), &vec![0; 256]);
            for at in [0, 1, 1 << 20, u32::MAX] {
                match changes.map(Ino(ino), FileBlock(at)) {
                    BlockOverlay::Run(run) => prop_assert!(run.len > 0),
                    BlockOverlay::Base(len) => prop_assert!(len > 0),
                }
            }
            if let Some(names) = changes.names(Ino(ino)) {
                let added = names.added(|_| {});
                prop_assert!(added.len() <= 20);
            }
        }
    }
    #[test]
    fn applying_whatever_is_said_ends_in_an_answer(
        commits in prop::collection::vec(prop::collection::vec(any_record(), 0..6), 1..4),
        mode in prop_oneof![Just(0o100_644_u16), Just(0o040_755), Just(0o120_777), Just(0o010_600)],
        flags in prop_oneof![Just(EXTENTS), Just(0), Just(INLINE)],
        place in prop_oneof![0_u32..2050, any::<u32>()],
    ) {
        let mut maker = Maker::new();
        maker.inode(20, &raw(mode, 1, flags)).add(20, 0, 5, place).dentry(3, 11, 20, "new");
        for commit in commits {
            for (tag, value) in commit {
                if maker.records.len() + value.len() < BLOCK - 20 {
                    maker.put(tag, &[&value]);
                }
            }
            maker.tail(TID);
        }
        let _ = apply(&maker.blocks.concat());
    }
}
