//! A small journal, correct or with one bug, for tests of the crash explorer.
//!
//! There are eight objects, each a block with one value. Two tables contain the block of each object. A change of an
//! object is written to a free block, and the changed tables are written through the journal.
//!
//! Blocks of 1 KiB:
//! - 0 and 1 are the tables;
//! - 2 is the journal's super block (the transaction that may be replayed);
//! - 3 is its descriptor, with the home of the second table in the second sector;
//! - 4 and 5 are the copies;
//! - 6 is the commit record;
//! - data begins at 8.

use std::collections::BTreeSet;
use std::sync::Arc;

use obento_block::{BlockDevice, MemDevice};
use obento_testkit::record::{Event, RecordDevice};

pub const BLOCK: usize = 1024;
pub const OBJECTS: usize = 8;
const SUPER: u64 = 2;
const DESCRIPTOR: u64 = 3;
const COPIES: u64 = 4;
const COMMIT: u64 = 6;
const DATA: u64 = 8;
const BLOCKS: u64 = 24;
const MAGIC: u64 = 0x6f62_656e_746f;
/// The offset of the second home in the descriptor.
const SECOND: usize = 512;

/// The rule that makes a commit record valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// It is written after everything before it is on stable storage.
    Barrier,
    /// It contains a checksum of everything before it, and is written at the same time.
    Checksum,
}

/// The bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    MissingBarrier,
    CommitWrittenEarly,
    TornDescriptorAccepted,
    FreedBlockReusedTooSoon,
    AcknowledgedBeforeTheFlush,
    HomeWrittenBeforeTheCommit,
    LogReusedTooSoon,
    DataWrittenAfterTheCommit,
}

type Buffer = [u8; BLOCK];

fn word(block: &Buffer, at: usize) -> u64 {
    u64::from_le_bytes(block[at..at + 8].try_into().unwrap())
}

fn set_word(block: &mut Buffer, at: usize, value: u64) {
    block[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn checksum<'a>(blocks: impl IntoIterator<Item = &'a Buffer>) -> u64 {
    let bytes = blocks.into_iter().flatten();
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, &b| (sum ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

fn full(value: u64) -> Buffer {
    let mut block = [0; BLOCK];
    block.chunks_mut(8).for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
    block
}

pub struct Toy<D> {
    device: D,
    protocol: Protocol,
    bug: Option<Bug>,
    tables: [Buffer; 2],
    changed: BTreeSet<usize>,
    free: Vec<u64>,
    /// Blocks that the running transaction frees.
    freed: Vec<u64>,
    /// Data that waits for the commit, which is a bug.
    late: Vec<(u64, Buffer)>,
    sequence: u64,
}

/// Returns an empty volume: every object has the value 0, in one block that is never freed.
pub fn format() -> Vec<u8> {
    let device = MemDevice::new(vec![0; BLOCK * BLOCKS as usize]);
    let mut table = [0; BLOCK];
    (0..OBJECTS / 2).for_each(|n| set_word(&mut table, n * 8, DATA));
    (0..2).for_each(|n| device.write_at(n * BLOCK as u64, &table).unwrap());
    let mut first = [0; BLOCK];
    set_word(&mut first, 0, 1);
    device.write_at(SUPER * BLOCK as u64, &first).unwrap();
    device.snapshot()
}

impl<D: BlockDevice> Toy<D> {
    /// Replays the journal and reads the tables.
    pub fn open(device: D, protocol: Protocol, bug: Option<Bug>) -> Self {
        let mut toy = Self {
            device,
            protocol,
            bug,
            tables: [[0; BLOCK]; 2],
            changed: BTreeSet::new(),
            free: Vec::new(),
            freed: Vec::new(),
            late: Vec::new(),
            sequence: 0,
        };
        toy.sequence = word(&toy.read(SUPER), 0);
        toy.replay();
        toy.tables = [toy.read(0), toy.read(1)];
        let used: BTreeSet<u64> = (0..OBJECTS).map(|object| toy.place(object)).collect();
        toy.free = (DATA + 1..BLOCKS).filter(|block| !used.contains(block)).collect();
        toy
    }

    fn read(&self, block: u64) -> Buffer {
        let mut buffer = [0; BLOCK];
        self.device.read_at(block * BLOCK as u64, &mut buffer).unwrap();
        buffer
    }

    fn write(&self, block: u64, bytes: &Buffer) {
        self.device.write_at(block * BLOCK as u64, bytes).unwrap();
    }

    fn flush_unless(&self, bug: Bug) {
        if self.bug != Some(bug) {
            self.device.flush().unwrap();
        }
    }

    fn place(&self, object: usize) -> u64 {
        word(&self.tables[object % 2], object / 2 * 8)
    }

    fn replay(&mut self) {
        let (descriptor, commit) = (self.read(DESCRIPTOR), self.read(COMMIT));
        let sequence = self.sequence;
        let speaks = |block: &Buffer| word(block, 0) == MAGIC && word(block, 8) == sequence;
        if !speaks(&descriptor) || !speaks(&commit) {
            return;
        }
        let homes: Vec<u64> = [16, SECOND]
            .into_iter()
            .take(word(&descriptor, 24) as usize)
            .map(|at| word(&descriptor, at))
            .collect();
        let copies: Vec<Buffer> = (COPIES..).zip(&homes).map(|(block, _)| self.read(block)).collect();
        if self.protocol == Protocol::Checksum && word(&commit, 16) != self.sum(&descriptor, &copies) {
            return;
        }
        homes.iter().zip(&copies).for_each(|(&home, copy)| self.write(home, copy));
        self.device.flush().unwrap();
        self.advance();
    }

    fn sum(&self, descriptor: &Buffer, copies: &[Buffer]) -> u64 {
        let descriptor = Some(descriptor).filter(|_| self.bug != Some(Bug::TornDescriptorAccepted));
        checksum(descriptor.into_iter().chain(copies))
    }

    /// Allows overwriting the log.
    fn advance(&mut self) {
        self.sequence += 1;
        let mut block = [0; BLOCK];
        set_word(&mut block, 0, self.sequence);
        self.write(SUPER, &block);
        self.device.flush().unwrap();
    }

    /// Returns the bytes of an object.
    pub fn get(&self, object: usize) -> Vec<u8> {
        self.read(self.place(object)).to_vec()
    }

    pub fn set(&mut self, object: usize, value: u64) {
        let block = self.free.pop().expect("there are more blocks than objects");
        if self.bug == Some(Bug::DataWrittenAfterTheCommit) {
            self.late.push((block, full(value)));
        } else {
            self.write(block, &full(value));
        }
        let before = self.place(object);
        if before != DATA {
            let list =
                if self.bug == Some(Bug::FreedBlockReusedTooSoon) { &mut self.free } else { &mut self.freed };
            list.push(before);
        }
        set_word(&mut self.tables[object % 2], object / 2 * 8, block);
        self.changed.insert(object % 2);
    }

    pub fn sync(&mut self) {
        let mut homes: Vec<u64> = self.changed.iter().map(|&n| n as u64).collect();
        if self.sequence % 2 == 1 {
            homes.reverse();
        }
        let copies: Vec<Buffer> = homes.iter().map(|&home| self.tables[home as usize]).collect();
        let mut descriptor = [0; BLOCK];
        set_word(&mut descriptor, 0, MAGIC);
        set_word(&mut descriptor, 8, self.sequence);
        set_word(&mut descriptor, 24, homes.len() as u64);
        homes.iter().zip([16, SECOND]).for_each(|(&home, at)| set_word(&mut descriptor, at, home));
        let mut commit = [0; BLOCK];
        set_word(&mut commit, 0, MAGIC);
        set_word(&mut commit, 8, self.sequence);
        set_word(&mut commit, 16, self.sum(&descriptor, &copies));

        self.write(DESCRIPTOR, &descriptor);
        if self.bug == Some(Bug::CommitWrittenEarly) {
            self.write(COMMIT, &commit);
            self.device.flush().unwrap();
        }
        (COPIES..).zip(&copies).for_each(|(block, copy)| self.write(block, copy));
        if self.bug == Some(Bug::HomeWrittenBeforeTheCommit) {
            homes.iter().zip(&copies).for_each(|(&home, copy)| self.write(home, copy));
        }
        // With a checksum, this barrier only keeps the data before the commit record. A real journal would wait for the
        // data first.
        if self.protocol == Protocol::Barrier {
            self.flush_unless(Bug::MissingBarrier);
        }
        self.write(COMMIT, &commit);
        self.flush_unless(Bug::AcknowledgedBeforeTheFlush);
        self.late.drain(..).collect::<Vec<_>>().iter().for_each(|(block, bytes)| self.write(*block, bytes));
        self.free.append(&mut self.freed);
        self.changed.clear();
    }

    /// Writes the tables to their homes, so that the log can be used again.
    pub fn checkpoint(&mut self) {
        (0..2).for_each(|n| self.write(n as u64, &self.tables[n]));
        self.flush_unless(Bug::LogReusedTooSoon);
        self.advance();
    }
}

/// The allowed contents after a power failure.
#[derive(Clone, Debug, Default)]
pub struct Promise {
    /// The values of all objects after each transaction that may be found.
    pub allowed: Vec<[u64; OBJECTS]>,
}

/// A recorded run: its base, its events, and the promise at each mark.
pub struct Run {
    pub base: Vec<u8>,
    pub events: Vec<Event>,
    pub promises: Vec<Promise>,
}

/// Changes objects in a fixed order, up to two before each sync.
pub fn run(protocol: Protocol, bug: Option<Bug>) -> Run {
    let base = format();
    let device = Arc::new(RecordDevice::new(MemDevice::new(base.clone())));
    let mut toy = Toy::open(Arc::clone(&device), protocol, bug);
    let (mut durable, mut now) = ([0; OBJECTS], [0; OBJECTS]);
    let mut promises = vec![Promise { allowed: vec![durable] }];
    let mut promise = |allowed: &[[u64; OBJECTS]]| {
        promises.push(Promise { allowed: allowed.to_vec() });
        device.mark(promises.len() - 1);
    };
    for round in 0..6_u64 {
        for n in 0..1 + round % 3 {
            let object = (round * 3 + n * 5) as usize % OBJECTS;
            now[object] = 100 * (round + 1) + n;
            promise(&[durable]);
            toy.set(object, now[object]);
        }
        promise(&[durable, now]);
        // With checksums, the data is written first, on its own.
        if protocol == Protocol::Checksum && bug != Some(Bug::DataWrittenAfterTheCommit) {
            device.flush().unwrap();
        }
        toy.sync();
        durable = now;
        promise(&[durable]);
        toy.checkpoint();
    }
    Run { base, events: device.take_events(), promises }
}

/// Fails unless the contents of `device` were promised.
pub fn judge(
    device: Arc<dyn BlockDevice>,
    protocol: Protocol,
    bug: Option<Bug>,
    promise: &Promise,
) -> Result<(), String> {
    let toy = Toy::open(device, protocol, bug);
    let found: Vec<Vec<u8>> = (0..OBJECTS).map(|object| toy.get(object)).collect();
    let matches =
        |values: &[u64; OBJECTS]| found.iter().zip(values).all(|(found, &value)| found[..] == full(value));
    if promise.allowed.iter().any(matches) {
        return Ok(());
    }
    let first: Vec<u64> = found.iter().map(|bytes| word(&bytes[..].try_into().unwrap(), 0)).collect();
    Err(format!("objects begin with {first:?}, allowed is {:?}", promise.allowed))
}
