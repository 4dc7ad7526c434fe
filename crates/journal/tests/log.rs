//! The writes of transactions to the log, their order, and the handling of errors.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use common::world::{clean, content, journal, options, transactions};
use common::{BLOCK, VOLUME};
use obento_base::{Error, Result};
use obento_block::{BlockDevice, Cache, MemDevice};
use obento_journal::{
    Checksums, CommitHooks, Credits, JournalFeatures, JournalWriter, Log, LogRecordKind, Tid, Transactions,
    Txn,
};
use obento_testkit::fault::{Fault, FaultDevice, FaultKind, Lasting, Request};
use obento_testkit::record::{Event, RecordDevice};

const V3: JournalFeatures = JournalFeatures { checksums: Checksums::V3, wide: true };

/// The position of the volume's end in bytes.
const JOURNAL_AT: u64 = VOLUME as u64 * 1024;

fn change(transactions: &Transactions, numbers: &[u64], version: u64) -> Tid {
    let mut txn = transactions.begin(Credits(u32::try_from(numbers.len()).unwrap())).unwrap();
    for &number in numbers {
        let taken = txn.take(number).unwrap();
        txn.edit(&taken).copy_from_slice(&content(version));
    }
    txn.commit()
}

/// The operations in short: `L` a write to the log, `S` to its super block, `H` to the volume, `F` a flush.
fn order(events: &[Event]) -> String {
    let letter = |event: &Event| match event {
        Event::Flush => 'F',
        Event::Mark(_) => '-',
        Event::Write { offset, .. } if *offset < JOURNAL_AT => 'H',
        Event::Write { offset, .. } if *offset < JOURNAL_AT + 1024 => 'S',
        Event::Write { .. } => 'L',
    };
    events.iter().map(letter).collect()
}

fn recorded(len: u32) -> (Arc<RecordDevice<MemDevice>>, Arc<Transactions>) {
    let device = Arc::new(RecordDevice::new(MemDevice::new(clean(len))));
    let transactions = transactions(Arc::clone(&device) as Arc<dyn BlockDevice>, len, V3, options());
    (device, transactions)
}

#[test]
fn copies_are_flushed_before_the_commit_block_and_homes_are_written_after_it() {
    let (device, transactions) = recorded(64);
    let tid = change(&transactions, &[3, 4, 5], 1);
    assert_eq!(order(&device.take_events()), "");
    transactions.wait_durable(tid).unwrap();
    assert_eq!(order(&device.take_events()), "SLFLF");
    change(&transactions, &[4], 2);
    transactions.sync().unwrap();
    assert_eq!(order(&device.take_events()), "LFLF");
    transactions.checkpoint().unwrap();
    // Adjacent blocks are checkpointed in one write; the tail moves afterwards.
    assert_eq!(order(&device.take_events()), "HFSF");
    transactions.sync().unwrap();
    assert_eq!(order(&device.take_events()), "F");
    transactions.close().unwrap();
    assert_eq!(order(&device.take_events()), "SF");
    let stats = transactions.stats();
    assert_eq!((stats.commits, stats.logged, stats.homes, stats.checkpoints, stats.flushes), (2, 4, 3, 1, 8));
}

#[test]
fn a_full_log_is_written_home_before_it_is_written_over() {
    let (device, transactions) = recorded(22);
    let credits = transactions.credits_max().0;
    assert_eq!(credits, 5);
    for version in 0..4 {
        let tid = change(&transactions, &[1, 2, 3, 4, 5], version);
        transactions.wait_durable(tid).unwrap();
    }
    // Three times seven blocks do not fit into twenty. The second transaction changed all blocks of the first
    // again, so moving the tail is enough to free its space.
    assert_eq!(order(&device.take_events()), ["SLFLF", "LFLF", "SFLFLF", "SFLFLF"].concat());
    assert_eq!(transactions.stats().homes, 0);
    for numbers in [&[11, 12][..], &[21, 22, 23, 24, 25], &[31, 32, 33, 34, 35]] {
        let tid = change(&transactions, numbers, 9);
        transactions.wait_durable(tid).unwrap();
    }
    // The last transaction wraps around the end of the log, in two writes.
    assert_eq!(order(&device.take_events()), ["LFLF", "SFLFLF", "HHHFSFLLFLF"].concat());
    assert_eq!(transactions.stats().homes, 12);
}

#[test]
fn a_revoked_block_is_neither_replayed_nor_written_home() {
    let (device, transactions) = recorded(64);
    let tid = change(&transactions, &[3, 4], 1);
    transactions.wait_durable(tid).unwrap();
    let mut txn = transactions.begin(Credits(1)).unwrap();
    txn.revoke(3);
    let tid = txn.commit();
    transactions.wait_durable(tid).unwrap();
    device.write_at(3 * 1024, &content(77)).unwrap();
    let crashed = RecordDevice::new(MemDevice::new(snapshot(&*device)));
    let crashed: Arc<dyn BlockDevice> = Arc::new(crashed);
    let summary = journal(Arc::clone(&crashed), 64).recover(&crashed, VOLUME.into()).unwrap();
    assert_eq!((summary.transactions, summary.blocks, summary.revoked), (2, 1, 1));
    assert_eq!((block(&*crashed, 3), block(&*crashed, 4)), (content(77), content(1)));
    transactions.checkpoint().unwrap();
    assert_eq!((block(&*device, 3), block(&*device, 4)), (content(77), content(1)));
}

#[test]
fn a_block_in_use_again_in_the_transaction_that_revoked_it_is_replayed() {
    let (device, transactions) = recorded(64);
    transactions.wait_durable(change(&transactions, &[3], 1)).unwrap();
    let mut txn = transactions.begin(Credits(1)).unwrap();
    txn.revoke(3);
    let taken = txn.take_new(3).unwrap();
    txn.edit(&taken).copy_from_slice(&content(2));
    let tid = txn.commit();
    transactions.wait_durable(tid).unwrap();
    assert_eq!(transactions.stats().revoked, 0);
    journal(Arc::clone(&device) as _, 64).recover(&device, VOLUME.into()).unwrap();
    assert_eq!(block(&*device, 3), content(2));
}

#[test]
fn the_log_says_what_jbd2_would_say() {
    let (device, transactions) = recorded(64);
    let mut txn = transactions.begin(Credits(1)).unwrap();
    let taken = txn.take(7).unwrap();
    txn.edit(&taken).copy_from_slice(&content(4));
    txn.revoke(8);
    let tid = txn.commit();
    transactions.wait_durable(tid).unwrap();
    let journal = journal(device, 64);
    let sb = journal.super_block();
    assert_eq!((sb.sequence, sb.start, sb.checksums(), sb.is_wide()), (tid, 1, Checksums::V3, true));
    let kinds: Vec<_> = journal.records().unwrap().map(|record| record.unwrap()).collect();
    assert!(kinds.iter().all(|record| record.tid == tid && record.damage.is_none()));
    assert_eq!(kinds[0].kind, LogRecordKind::Revoke(vec![8]));
    let LogRecordKind::Descriptor(tags) = &kinds[1].kind else { panic!("{kinds:?}") };
    // Escaped, the only tag, the last tag; the UUID follows.
    assert_eq!(
        tags.iter().map(|(tag, at)| (tag.block, tag.flags.bits(), *at)).collect::<Vec<_>>(),
        [(7, 9, 3)]
    );
    let time = LogRecordKind::Commit { seconds: 1_700_000_000, nanoseconds: 5 };
    assert_eq!((kinds.len(), &kinds[2].kind), (3, &time));
}

#[test]
fn an_old_journal_gets_a_super_block_of_version_2_with_the_first_transaction() {
    let mut bytes = clean(64);
    bytes[JOURNAL_AT as usize + 7] = 3;
    // The bytes after the fields of version 1 have no meaning.
    bytes[JOURNAL_AT as usize + 0x28..][..8].fill(0xee);
    let device = Arc::new(MemDevice::new(bytes));
    let none = JournalFeatures { checksums: Checksums::None, wide: false };
    let transactions = transactions(Arc::clone(&device) as _, 64, none, options());
    transactions.wait_durable(change(&transactions, &[3], 1)).unwrap();
    let mut journal = journal(Arc::clone(&device) as _, 64);
    assert_eq!(journal.super_block().version, obento_journal::Version::V2);
    assert_eq!(journal.recover(&device, VOLUME.into()).unwrap().blocks, 1);
}

#[test]
fn without_barriers_nothing_is_flushed() {
    let device = Arc::new(RecordDevice::new(MemDevice::new(clean(64))));
    let mut options = options();
    options.barrier = false;
    let transactions = transactions(Arc::clone(&device) as _, 64, V3, options);
    change(&transactions, &[3], 1);
    transactions.close().unwrap();
    assert_eq!(order(&device.take_events()), "SLLHS");
}

#[test]
fn a_journal_of_its_own_device_is_committed_after_the_data_is_flushed() {
    let volume = Arc::new(RecordDevice::new(MemDevice::new(clean(1))));
    let log = Arc::new(RecordDevice::new(MemDevice::new(clean(64))));
    let writer = JournalWriter::open(journal(Arc::clone(&log) as _, 64), V3).unwrap();
    let cache = Arc::new(Cache::new(Arc::clone(&volume) as Arc<dyn BlockDevice>, 1024, 0));
    let hooks = Arc::new(obento_journal::NoHooks);
    let transactions = Transactions::new(cache, Log::Jbd2(writer), options(), hooks);
    change(&transactions, &[3], 1);
    transactions.sync().unwrap();
    assert_eq!((order(&volume.take_events()), order(&log.take_events())), ("F".into(), "SLFLF".into()));
    transactions.close().unwrap();
    assert_eq!((order(&volume.take_events()), order(&log.take_events())), ("HF".into(), "SF".into()));
}

/// Counts its calls, and adds a block to each transaction.
#[derive(Default)]
struct Adds {
    commits: AtomicU32,
    durable: AtomicU32,
}

impl CommitHooks for Adds {
    fn before_commit(&self, txn: &mut Txn<'_>) -> Result<()> {
        let taken = txn.take(40)?;
        let count = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        txn.edit(&taken).copy_from_slice(&content(count.into()));
        Ok(())
    }

    fn durable(&self, tid: Tid) {
        self.durable.store(tid.0, Ordering::Relaxed);
    }
}

fn hooked(len: u32) -> (Arc<MemDevice>, Arc<Adds>, Arc<Transactions>) {
    let device = Arc::new(MemDevice::new(clean(len)));
    let shared = Arc::clone(&device) as Arc<dyn BlockDevice>;
    let writer = JournalWriter::open(journal(Arc::clone(&shared), len), V3).unwrap();
    let hooks = Arc::new(Adds::default());
    let cache = Arc::new(Cache::new(shared, 1024, 0));
    let transactions = Transactions::new(cache, Log::Jbd2(writer), options(), Arc::clone(&hooks) as _);
    (device, hooks, transactions)
}

#[test]
fn hooks_are_part_of_the_transaction_and_an_empty_one_has_none() {
    let (_, hooks, transactions) = hooked(64);
    transactions.sync().unwrap();
    assert_eq!(hooks.commits.load(Ordering::Relaxed), 0);
    let tid = change(&transactions, &[3], 1);
    transactions.wait_durable(tid).unwrap();
    assert_eq!(hooks.durable.load(Ordering::Relaxed), tid.0);
    assert_eq!(transactions.cache().get(40).unwrap()[..], content(1));
    assert_eq!(transactions.stats().logged, 2);
}

#[test]
fn threads_join_one_transaction_and_share_its_commit() {
    let (device, hooks, transactions) = hooked(256);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let transactions = &transactions;
            scope.spawn(move || {
                for round in 0..200 {
                    let mut txn = transactions.begin(Credits(2)).unwrap();
                    // A separate block, and a field of a block that all transactions change.
                    let own = txn.take(10 + thread).unwrap();
                    let shared = txn.take(30).unwrap();
                    txn.edit(&own).copy_from_slice(&content(round));
                    let mut edit = txn.edit(&shared);
                    let field = &mut edit[usize::try_from(thread * 8).unwrap()..][..8];
                    let old = u64::from_be_bytes((&*field).try_into().unwrap());
                    field.copy_from_slice(&old.wrapping_add(1).to_be_bytes());
                    drop(edit);
                    let tid = txn.commit();
                    if round % 8 == thread {
                        transactions.wait_durable(tid).unwrap();
                    }
                }
            });
        }
    });
    transactions.close().unwrap();
    let start = u64::from_be_bytes([30; 8]);
    let shared = block(&*device, 30);
    for thread in 0..4 {
        let count = u64::from_be_bytes(shared[thread * 8..][..8].try_into().unwrap());
        assert_eq!(count, start + 200);
        assert_eq!(block(&*device, 10 + thread as u64), content(199));
    }
    let stats = transactions.stats();
    assert!(stats.commits <= 101 && u64::from(hooks.commits.load(Ordering::Relaxed)) == stats.commits);
}

#[test]
fn changed_blocks_stay_within_their_budget() {
    let device = Arc::new(MemDevice::new(clean(256)));
    let mut options = options();
    options.budget = 16 * 1024;
    let transactions = transactions(device, 256, V3, options);
    for number in 0..60 {
        change(&transactions, &[number], number);
        assert!(transactions.cache().pinned() <= 17, "{}", transactions.cache().pinned());
    }
    assert!(transactions.stats().checkpoints >= 3);
}

#[test]
fn unsynced_changes_are_committed_by_age() {
    let device = Arc::new(MemDevice::new(clean(64)));
    let mut options = options();
    options.interval = Some(std::time::Duration::from_millis(1));
    let transactions = transactions(Arc::clone(&device) as _, 64, V3, options);
    for version in 1..4 {
        let tid = change(&transactions, &[3], version);
        while tid.is_after(transactions.durable()) {
            std::thread::yield_now();
        }
    }
    drop(transactions);
    assert_eq!(
        journal(Arc::clone(&device) as _, 64).recover(&device, VOLUME.into()).unwrap().transactions,
        3
    );
    assert_eq!(block(&*device, 3), content(3));
}

#[test]
fn with_a_thread_full_transactions_and_full_memory_are_its_work() {
    let device = Arc::new(MemDevice::new(clean(64)));
    let mut options = options();
    options.interval = Some(std::time::Duration::from_secs(3600));
    options.budget = 24 * 1024;
    let transactions = transactions(Arc::clone(&device) as _, 64, V3, options);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let transactions = &transactions;
            scope.spawn(move || {
                for round in 0..300 {
                    change(transactions, &[thread * 20 + round % 20], round);
                }
            });
        }
    });
    assert!(transactions.stats().commits > 20 && transactions.stats().checkpoints > 5);
    transactions.close().unwrap();
    for number in 0..60 {
        assert_eq!(block(&*device, number), content(280 + number % 20));
    }
}

#[test]
fn every_failed_write_and_flush_is_reported_by_every_later_sync() {
    let probe = Arc::new(FaultDevice::new(MemDevice::new(clean(22)), None));
    assert!(eventful(Arc::clone(&probe) as _).is_none());
    for request in [Request::Write, Request::Flush] {
        for lasting in [Lasting::Once, Lasting::ForGood] {
            let failures = |nth| FaultKind::of(request).iter().map(move |&failure| (nth, failure));
            for (nth, failure) in (0..probe.count(request)).flat_map(failures) {
                let memory = Arc::new(MemDevice::new(clean(22)));
                let fault = Fault { request, nth, lasting, failure };
                let failed = eventful(Arc::new(FaultDevice::new(Arc::clone(&memory), Some(fault))));
                let (version, transactions) = failed.unwrap_or_else(|| panic!("{fault:?} is not reported"));
                let error = transactions.sync().unwrap_err();
                assert!(matches!(error, Error::Device(_)), "{fault:?}: {error}");
                assert_eq!(transactions.sync(), Err(error));
                assert_eq!(transactions.begin(Credits(1)).err(), Some(Error::ReadOnly));
                // Acknowledged changes are present; other changes are present completely or not at all.
                let mut journal = journal(Arc::clone(&memory) as _, 22);
                journal.recover(&memory, VOLUME.into()).unwrap();
                let found: Vec<_> = (1..4).map(|number| block(&*memory, number)).collect();
                let untouched = (1..4).map(|number| [number; BLOCK]).collect::<Vec<_>>();
                let fits = |version: u64| match version {
                    0 => found == untouched,
                    _ => found.iter().all(|block| *block == content(version)),
                };
                assert!(fits(version) || fits(version + 1), "{fault:?} after {version}");
            }
        }
    }
}

/// Syncs versions 1 to 8 of three blocks and closes the volume. On an error, returns the last acknowledged
/// version.
fn eventful(device: Arc<dyn BlockDevice>) -> Option<(u64, Arc<Transactions>)> {
    let transactions = transactions(device, 22, V3, options());
    for version in 1..9 {
        let Ok(mut txn) = transactions.begin(Credits(3)) else { return Some((version - 1, transactions)) };
        for number in 1..4 {
            let taken = txn.take(number).unwrap();
            txn.edit(&taken).copy_from_slice(&content(version));
        }
        let tid = txn.commit();
        if transactions.wait_durable(tid).is_err() {
            return Some((version - 1, transactions));
        }
    }
    transactions.close().err().map(|_| (8, transactions))
}

fn block(device: &dyn BlockDevice, number: u64) -> [u8; BLOCK] {
    let mut bytes = [0; BLOCK];
    device.read_at(number * 1024, &mut bytes).unwrap();
    bytes
}

fn snapshot(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(device.len()).unwrap()];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}
