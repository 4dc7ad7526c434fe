//! A volume and its journal on one recording device, and a model of its permitted contents after a cut.

use std::collections::BTreeMap;
use std::sync::Arc;

use obento_block::{BlockDevice, Cache, MemDevice};
use obento_env::FixedClock;
use obento_journal::{
    Checksums, CommitOptions, Credits, Journal, JournalFeatures, JournalWriter, Log, NoHooks, Run, Runs, Tid,
    Transactions, raw,
};
use obento_testkit::crash::State;
use obento_testkit::mutants::Random;
use obento_testkit::record::{Event, RecordDevice};

use super::{BLOCK, Maker, VOLUME};

/// Returns the contents of version `version`; every fifth looks like a control block.
pub fn content(version: u64) -> [u8; BLOCK] {
    let mut bytes = [0; BLOCK];
    bytes.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&version.to_be_bytes()));
    if version % 5 == 4 {
        bytes[..4].copy_from_slice(&raw::MAGIC.to_be_bytes());
    }
    bytes
}

/// The journal after the volume on `device`.
pub fn journal(device: Arc<dyn BlockDevice>, len: u32) -> Journal {
    let mut runs = Runs::new();
    runs.push(Run { at: 0, block: VOLUME.into(), len }).unwrap();
    Journal::open(device, 1024, runs).unwrap()
}

/// The same in three pieces that are out of order.
fn scattered(device: Arc<dyn BlockDevice>, len: u32) -> Journal {
    let (mut runs, volume) = (Runs::new(), u64::from(VOLUME));
    let (first, second) = (4, len - 11);
    runs.push(Run { at: 0, block: volume, len: first }).unwrap();
    runs.push(Run { at: first, block: volume + u64::from(len - second), len: second }).unwrap();
    runs.push(Run { at: first + second, block: volume + 4, len: len - first - second }).unwrap();
    Journal::open(device, 1024, runs).unwrap()
}

pub fn options() -> CommitOptions {
    CommitOptions::new(Arc::new(FixedClock(obento_base::Timestamp::new(1_700_000_000, 5))))
}

/// Transactions on `device`, whose journal is clean.
pub fn transactions(
    device: Arc<dyn BlockDevice>,
    len: u32,
    features: JournalFeatures,
    options: CommitOptions,
) -> Arc<Transactions> {
    transactions_on(journal(Arc::clone(&device), len), device, features, options)
}

fn transactions_on(
    journal: Journal,
    device: Arc<dyn BlockDevice>,
    features: JournalFeatures,
    options: CommitOptions,
) -> Arc<Transactions> {
    let writer = JournalWriter::open(journal, features).unwrap();
    let cache = Arc::new(Cache::new(device, 1024, 0));
    Transactions::new(cache, Log::Jbd2(writer), options, Arc::new(NoHooks))
}

/// A clean volume and journal, without checksums so far.
pub fn clean(len: u32) -> Vec<u8> {
    let mut maker = Maker::new(Checksums::None, len);
    maker.start = 0;
    maker.bytes()
}

/// The contents of a block of the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    /// The initial contents.
    Untouched,
    /// Metadata of this version.
    Meta(u64),
    /// Freed by this transaction; any contents.
    Free(Tid),
    /// Data, written without the journal, for the first time as this version.
    Data(u64),
}

/// The state of the last sync.
#[derive(Clone, Default)]
struct Promise {
    /// The number of durable steps.
    steps: usize,
    /// The synced data.
    data: BTreeMap<usize, Data>,
}

/// Data in a freed block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Data {
    /// The first version since the block was freed.
    since: u64,
    version: u64,
}

/// A run of random changes.
pub struct World {
    device: Arc<RecordDevice<MemDevice>>,
    base: Vec<u8>,
    len: u32,
    pub transactions: Arc<Transactions>,
    /// The volume after each number of steps.
    states: Vec<Vec<Use>>,
    promises: Vec<Promise>,
    /// The data written since the last sync.
    data: BTreeMap<usize, Data>,
    version: u64,
}

impl World {
    pub fn new(len: u32, features: JournalFeatures, options: CommitOptions) -> Self {
        let base = clean(len);
        let device = Arc::new(RecordDevice::new(MemDevice::new(base.clone())));
        let shared = Arc::clone(&device) as Arc<dyn BlockDevice>;
        let journal = scattered(Arc::clone(&shared), len);
        let transactions = transactions_on(journal, shared, features, options);
        let states = vec![vec![Use::Untouched; usize::try_from(VOLUME).unwrap()]];
        let (promises, data) = (vec![Promise::default()], BTreeMap::new());
        Self { device, base, len, transactions, states, promises, data, version: 0 }
    }

    pub fn base(&self) -> &[u8] {
        &self.base
    }

    pub fn events(&self) -> Vec<Event> {
        self.device.take_events()
    }

    /// Executes `steps` random operations.
    pub fn run(&mut self, random: &mut Random, steps: usize) {
        for _ in 0..steps {
            match random.below(8) {
                0 => self.sync(),
                1 => self.write_data(random),
                _ => self.change(random),
            }
        }
        self.sync();
    }

    /// Executes one handle, which changes some blocks and frees others.
    fn change(&mut self, random: &mut Random) {
        let mut uses = self.states.last().unwrap().clone();
        let credits = self.transactions.credits_max().0.min(4);
        let mut txn = self.transactions.begin(Credits(credits)).unwrap();
        let durable = self.transactions.durable();
        for _ in 0..credits {
            let at = usize::try_from(random.below(24)).unwrap();
            let number = u64::try_from(at).unwrap();
            match (uses[at], random.below(6)) {
                (Use::Meta(_) | Use::Untouched, 0) => {
                    txn.revoke(number);
                    uses[at] = Use::Free(txn.tid());
                    continue;
                }
                (Use::Free(tid), _) if tid.is_after(durable) => continue,
                (Use::Data(_) | Use::Free(_), _) => {
                    let taken = txn.take_new(number).unwrap();
                    assert_eq!(txn.view(&taken)[..], [0; BLOCK]);
                    self.version += 1;
                    txn.edit(&taken).copy_from_slice(&content(self.version));
                }
                (Use::Meta(_) | Use::Untouched, _) => {
                    let taken = txn.take(number).unwrap();
                    if let Use::Meta(version) = uses[at] {
                        assert_eq!(txn.view(&taken)[..], content(version));
                    }
                    self.version += 1;
                    txn.edit(&taken).copy_from_slice(&content(self.version));
                }
            }
            uses[at] = Use::Meta(self.version);
        }
        txn.commit();
        self.states.push(uses);
    }

    /// Writes data to a free block immediately.
    fn write_data(&mut self, random: &mut Random) {
        let durable = self.transactions.durable();
        let mut uses = self.states.last().unwrap().clone();
        let free = |used: &Use| match used {
            Use::Free(tid) => !tid.is_after(durable),
            Use::Data(_) => true,
            _ => false,
        };
        let places: Vec<usize> = (0..uses.len()).filter(|&at| free(&uses[at])).collect();
        if places.is_empty() {
            return;
        }
        let at = places[usize::try_from(random.below(places.len() as u64)).unwrap()];
        self.version += 1;
        self.device.write_at(1024 * at as u64, &content(self.version)).unwrap();
        let since = if let Use::Data(since) = uses[at] { since } else { self.version };
        uses[at] = Use::Data(since);
        self.states.push(uses);
        self.data.insert(at, Data { since, version: self.version });
        // The contents of overwritten blocks were not synced.
        let mut promise = self.promises.last().unwrap().clone();
        promise.data.remove(&at);
        self.promise(promise);
    }

    pub fn sync(&mut self) {
        self.transactions.sync().unwrap();
        let mut data = self.promises.last().unwrap().data.clone();
        data.append(&mut self.data);
        self.promise(Promise { steps: self.states.len() - 1, data });
    }

    fn promise(&mut self, promise: Promise) {
        self.promises.push(promise);
        self.device.mark(self.promises.len() - 1);
    }

    /// The position of the last sync.
    pub fn last_promise(&self) -> usize {
        self.promises.len() - 1
    }

    /// Recovers the disk of `state`, and returns its problem, if any.
    pub fn judge(&self, state: &State) -> Result<(), String> {
        let mut journal = scattered(Arc::clone(&state.device), self.len);
        journal.recover(&state.device, VOLUME.into()).map_err(|error| format!("recovery: {error}"))?;
        self.compare(&*state.device, state.mark)
    }

    /// Returns whether `device` has contents that are permitted after the sync at `mark`.
    pub fn compare(&self, device: &dyn BlockDevice, mark: Option<usize>) -> Result<(), String> {
        let promise = &self.promises[mark.unwrap_or(0)];
        let mut bytes = vec![0; BLOCK * usize::try_from(VOLUME).unwrap()];
        device.read_at(0, &mut bytes).unwrap();
        let blocks: Vec<&[u8]> = bytes.chunks(BLOCK).collect();
        let wrong =
            |uses: &Vec<Use>| (0..blocks.len()).find(|&at| !self.fits(uses[at], at, blocks[at], promise));
        let allowed = &self.states[promise.steps..];
        if allowed.iter().any(|uses| wrong(uses).is_none()) {
            return Ok(());
        }
        let found: Vec<_> = allowed.iter().map(wrong).collect();
        Err(format!("no state from step {} on fits; the first wrong blocks are {found:?}", promise.steps))
    }

    fn fits(&self, used: Use, at: usize, block: &[u8], promise: &Promise) -> bool {
        match used {
            Use::Untouched => block == &self.base[at * BLOCK..][..BLOCK],
            Use::Meta(version) => block == content(version),
            Use::Free(_) => true,
            Use::Data(since) => match promise.data.get(&at) {
                Some(data) if data.since == since => block == content(data.version),
                _ => true,
            },
        }
    }
}
