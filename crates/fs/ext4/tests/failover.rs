//! A process that fails after any operation: the next process finds exactly the published changes, although none of them
//! was committed.

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::volumes::{SMALL, Shape, e2fsck};
use obento_base::Result;
use obento_block::{Block, BlockDevice, BlockImage, MemDevice, RedoLog};
use obento_driver::{Access, DataMode, Driver as _, Journalling, OpenOptions};
use obento_env::SystemClock;
use obento_ext4::Ext4Driver;
use obento_testkit::plan::{Actor, random};
use obento_testkit::snapshot::{Snapshot, Times};
use obento_testkit::{Oracle, require};
use obento_vfs::{Config, Vfs};

/// A redo log in this process.
#[derive(Default)]
struct Memory {
    is_held: AtomicBool,
    /// Each transaction that is not durable, with its blocks.
    published: Mutex<Vec<(u32, Vec<BlockImage>)>>,
}

impl Memory {
    /// Returns what survives a failure of the process now.
    fn survivor(&self) -> Arc<Self> {
        let published = Mutex::new(self.published.lock().unwrap().clone());
        Arc::new(Self { is_held: AtomicBool::default(), published })
    }
}

impl RedoLog for Memory {
    fn is_held_here(&self) -> bool {
        self.is_held.load(Ordering::Relaxed)
    }

    fn append(&self, transaction: u32, blocks: &[Block]) -> Result<()> {
        let images = blocks.iter().map(|block| (block.number(), block.to_vec())).collect();
        self.published.lock().unwrap().push((transaction, images));
        Ok(())
    }

    fn durable(&self, transaction: u32) {
        self.published.lock().unwrap().retain(|(other, _)| other.wrapping_sub(transaction).cast_signed() > 0);
    }

    fn changes(&self) -> Result<Vec<BlockImage>> {
        let published = self.published.lock().unwrap();
        let newest: BTreeMap<_, _> =
            published.iter().flat_map(|(_, images)| images.iter().cloned()).collect();
        Ok(newest.into_iter().collect())
    }

    fn clear(&self) {
        self.published.lock().unwrap().clear();
    }
}

fn open(device: Arc<dyn BlockDevice>, redo: Arc<Memory>, mode: DataMode) -> Vfs {
    let options = OpenOptions {
        access: Access::ReadWrite,
        journalling: Journalling { mode, commit_interval: Duration::ZERO, ..Journalling::default() },
        redo: Some(redo),
        ..OpenOptions::new(Arc::new(SystemClock))
    };
    let fs = Ext4Driver.open(device, &options).expect("it opens");
    Vfs::with(fs, Config { gather: 0, ..Config::default() })
}

/// Performs a random plan. Publishes each operation, and compares the volume with the one that another process finds
/// that opens a copy of the device now. Returns the number of failures during which changes were not durable.
fn survives(shape: &Shape, mode: DataMode, seed: u64) -> usize {
    let device = Arc::new(MemDevice::new(shape.bytes().to_vec()));
    let redo = Arc::new(Memory::default());
    let mut actor = Actor::new(open(device.clone(), redo.clone(), mode));
    let mut count = 0;
    for (number, op) in random(seed, &shape.limits()).ops.iter().enumerate() {
        // Half of the operations must not be divided.
        if number % 2 == 0 {
            redo.is_held.store(true, Ordering::Relaxed);
            actor.vfs().hold().expect("the volume can be changed");
        }
        // What an operation returns is the subject of other tests.
        let _ = actor.act(number, op);
        actor.vfs().publish().expect("memory can be written");
        redo.is_held.store(false, Ordering::Relaxed);
        let (copy, survivor) = (Arc::new(MemDevice::new(device.snapshot())), redo.survivor());
        count += usize::from(!survivor.changes().unwrap().is_empty());
        let next = open(copy.clone(), survivor, mode);
        let (ours, theirs) = (Snapshot::read(actor.vfs(), None), Snapshot::read(&next, None));
        let (ours, theirs) = (ours.expect("our tree"), theirs.expect("the tree of the next process"));
        let differs =
            ours.difference(&theirs, Times::Compared, None).or_else(|| ours.content_difference(&theirs));
        assert_eq!(differs, None, "{} {mode:?} {seed}, operation {number}: {op:?}", shape.name);
        if number % 8 == 0 {
            next.close().expect("memory can be written");
            drop(next);
            e2fsck(&*copy)
                .unwrap_or_else(|error| panic!("{} {mode:?} {seed}, {number}: {error}", shape.name));
        }
    }
    count
}

#[test]
fn the_next_process_finds_every_published_operation_and_a_consistent_volume() {
    if !require(&["mke2fs", "e2fsck"].map(Oracle::Program)) {
        return;
    }
    for shape in SMALL {
        for (mode, seed) in [(DataMode::Ordered, 0), (DataMode::Ordered, 1), (DataMode::Journal, 2)] {
            assert!(survives(shape, mode, seed) > 10, "{} {mode:?} {seed}", shape.name);
        }
    }
}

#[test]
fn a_next_process_that_fails_while_it_opens_the_volume_leaves_the_changes_to_another_one() {
    if !require(&["mke2fs", "e2fsck"].map(Oracle::Program)) {
        return;
    }
    let shape = &SMALL[0];
    let device = Arc::new(MemDevice::new(shape.bytes().to_vec()));
    let redo = Arc::new(Memory::default());
    let mut actor = Actor::new(open(device.clone(), redo.clone(), DataMode::Ordered));
    for (number, op) in random(3, &shape.limits()).ops.iter().take(20).enumerate() {
        let _ = actor.act(number, op);
        actor.vfs().publish().expect("memory can be written");
    }
    let ours = Snapshot::read(actor.vfs(), None).expect("our tree");
    // One process performs the changes and fails before it has cleared the log.
    let survivor = redo.survivor();
    let copy = Arc::new(MemDevice::new(device.snapshot()));
    std::mem::forget(open(copy.clone(), redo.survivor(), DataMode::Ordered));
    let next = open(copy.clone(), survivor, DataMode::Ordered);
    let theirs = Snapshot::read(&next, None).expect("the tree of the next process");
    assert_eq!(ours.difference(&theirs, Times::Compared, None), None);
    next.close().expect("memory can be written");
    e2fsck(&*copy).expect("a consistent volume");
}
