//! Transactions, without a log if its kind does not matter.

mod common;

use std::cell::Cell;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use common::world;
use obento_base::{Error, Result};
use obento_block::{Block, BlockDevice, BlockImage, Cache, MemDevice, RedoLog};
use obento_env::NO_CLOCK;
use obento_journal::{
    Checksums, CommitOptions, Credits, Extended, JournalFeatures, Log, NoHooks, Transactions,
};

/// A bound against hangs, not a measurement.
const SOON: Duration = Duration::from_secs(60);

const BLOCK: u32 = 1024;

fn transactions(blocks: u8) -> (Arc<MemDevice>, Arc<Transactions>) {
    let bytes = (0..blocks).flat_map(|n| [n; 1024]).collect();
    let device = Arc::new(MemDevice::new(bytes));
    let cache = Arc::new(Cache::new(Arc::clone(&device) as Arc<dyn BlockDevice>, BLOCK, 1 << 20));
    let options = CommitOptions::new(Arc::new(NO_CLOCK));
    (device, Transactions::new(cache, Log::None, options, Arc::new(NoHooks)))
}

#[test]
fn a_change_is_seen_at_once_and_reaches_the_device_with_the_commit() {
    let (device, transactions) = transactions(8);
    let before = transactions.cache().get(3).unwrap();
    let mut txn = transactions.begin(Credits(2)).unwrap();
    let taken = txn.take(3).unwrap();
    txn.edit(&taken)[0] = 99;
    txn.edit(&taken)[1] = 98;
    assert_eq!((before[0], txn.get(3).unwrap()[..2].to_vec()), (3, vec![99, 98]));
    assert_eq!(txn.credits_left(), Credits(1));
    let tid = txn.commit();
    assert_eq!(device.snapshot()[3 * 1024], 3);
    transactions.wait_durable(tid).unwrap();
    assert_eq!(device.snapshot()[3 * 1024..][..3], [99, 98, 3]);
    let stats = transactions.stats();
    assert_eq!((stats.commits, stats.flushes, transactions.cache().pinned()), (1, 1, 0));
}

#[test]
fn a_handle_dropped_before_its_first_edit_costs_nothing_and_after_it_the_volume() {
    let (device, transactions) = transactions(8);
    let mut txn = transactions.begin(Credits(1)).unwrap();
    txn.take(3).unwrap();
    drop(txn);
    let mut txn = transactions.begin(Credits(1)).unwrap();
    let taken = txn.take(4).unwrap();
    txn.edit(&taken)[0] = 99;
    drop(txn);
    assert_eq!(transactions.begin(Credits(1)).err(), Some(Error::ReadOnly));
    assert_eq!(transactions.sync(), Err(Error::ReadOnly));
    assert_eq!(device.snapshot()[4 * 1024], 4);
}

/// Transactions with a log.
fn logged(options: CommitOptions) -> Arc<Transactions> {
    let device = Arc::new(MemDevice::new(world::clean(64)));
    let features = JournalFeatures { checksums: Checksums::None, wide: false };
    world::transactions(device, 64, features, options)
}

/// Changes these blocks and ends the handle.
fn change(transactions: &Transactions, blocks: std::ops::Range<u64>) {
    let mut txn = transactions.begin(Credits(4)).unwrap();
    for number in blocks {
        let taken = txn.take(number).unwrap();
        txn.edit(&taken)[0] = 99;
    }
    txn.commit();
}

#[test]
fn a_handle_gets_more_credits_as_long_as_its_transaction_has_room_and_is_not_being_committed() {
    let (_, transactions) = transactions(8);
    let mut txn = transactions.begin(Credits(1)).unwrap();
    assert_eq!(txn.extend(Credits(1)), Ok(Extended::Yes));
    assert_eq!(txn.credits_left(), Credits(2));
    let all = transactions.credits_max();
    assert_eq!(txn.extend(all), Ok(Extended::No), "others are left none");
    txn.commit();
}

#[test]
fn a_commit_waits_for_the_last_handle_and_is_woken_by_its_end() {
    let (_, transactions) = transactions(8);
    change(&transactions, 3..4);
    let mut txn = transactions.begin(Credits(1)).unwrap();
    let (done, waits) = mpsc::channel();
    let committing = Arc::clone(&transactions);
    let tid = transactions.running();
    thread::spawn(move || done.send(committing.wait_durable(tid)));
    // There is room, so a refusal shows that the commit has begun.
    while txn.extend(Credits(0)) == Ok(Extended::Yes) {
        assert!(waits.try_recv().is_err(), "it waits");
        thread::yield_now();
    }
    txn.commit();
    assert_eq!(waits.recv_timeout(SOON), Ok(Ok(())));
}

#[test]
fn a_new_transaction_writes_excess_blocks_to_their_home_locations() {
    let transactions = logged(CommitOptions { budget: 4 << 10, ..world::options() });
    change(&transactions, 0..4);
    transactions.sync().unwrap();
    change(&transactions, 4..8);
    assert_eq!(transactions.cache().pinned(), 8, "twice what may be");
    transactions.begin(Credits(1)).unwrap().commit();
    assert_eq!((transactions.cache().pinned(), transactions.stats().checkpoints), (0, 1));
}

#[test]
fn nothing_is_done_for_a_volume_that_is_closed_or_broken() {
    let closed = logged(world::options());
    change(&closed, 3..4);
    closed.close().unwrap();
    let before = closed.stats();
    assert_eq!((closed.checkpoint(), closed.close()), (Ok(()), Ok(())));
    assert_eq!(closed.stats(), before);
    let (device, broken) = transactions(8);
    change(&broken, 3..4);
    broken.abort(Error::NoSpace);
    assert_eq!((broken.checkpoint(), broken.close()), (Err(Error::NoSpace), Err(Error::NoSpace)));
    assert_eq!((device.snapshot()[3 * 1024], broken.stats().flushes), (3, 0));
}

thread_local! {
    static HOLDS: Cell<bool> = const { Cell::new(false) };
}

/// A redo log that records the numbers of published blocks and of durable transactions, in order.
#[derive(Default)]
struct Published(Mutex<Vec<Vec<u64>>>);

impl RedoLog for Published {
    fn is_held_here(&self) -> bool {
        HOLDS.get()
    }

    fn append(&self, _: u32, blocks: &[Block]) -> Result<()> {
        self.0.lock().unwrap().push(blocks.iter().map(Block::number).collect());
        Ok(())
    }

    fn durable(&self, _: u32) {
        self.0.lock().unwrap().push(Vec::new());
    }

    fn changes(&self) -> Result<Vec<BlockImage>> {
        Ok(Vec::new())
    }

    fn clear(&self) {}
}

#[test]
fn a_commit_waits_for_a_hold_and_publishes_the_rest_of_its_transaction() {
    let redo = Arc::new(Published::default());
    let transactions = logged(CommitOptions { redo: Some(redo.clone()), ..world::options() });
    HOLDS.set(true);
    transactions.hold().unwrap();
    change(&transactions, 1..3);
    let (tid, other) = (transactions.running(), Arc::clone(&transactions));
    let waiting = thread::spawn(move || other.wait_durable(tid));
    // The commit has locked the transaction or will do so; both handles of the operation are in it.
    change(&transactions, 2..4);
    assert_eq!((transactions.running(), redo.0.lock().unwrap().len()), (tid, 0));
    transactions.publish().unwrap();
    HOLDS.set(false);
    waiting.join().unwrap().unwrap();
    assert_eq!(*redo.0.lock().unwrap(), [vec![1, 2, 3], vec![]]);
    // Published changes are not published again, others are, by the commit.
    change(&transactions, 1..2);
    transactions.publish().unwrap();
    change(&transactions, 5..6);
    transactions.sync().unwrap();
    assert_eq!(redo.0.lock().unwrap()[2..], [vec![1], vec![5], vec![]]);
    // An operation that waits for a commit interrupts its hold.
    HOLDS.set(true);
    transactions.hold().unwrap();
    change(&transactions, 6..7);
    transactions.wait_durable(transactions.running()).unwrap();
    transactions.publish().unwrap();
    HOLDS.set(false);
    assert_eq!(redo.0.lock().unwrap()[5..], [vec![6], vec![], vec![]]);
}
