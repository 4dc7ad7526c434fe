//! Transactions without a log: what holds for every kind of log.

use std::sync::Arc;

use obento_base::Error;
use obento_block::{BlockDevice, Cache, MemDevice};
use obento_env::NO_CLOCK;
use obento_journal::{CommitOptions, Credits, Log, NoHooks, Transactions};

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
