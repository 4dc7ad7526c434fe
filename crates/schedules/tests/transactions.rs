//! The transactions of a volume without a log, and the thread that commits: parallel changes succeed, and all
//! threads end.
#![cfg(obento_env = "shuttle")]

use std::sync::Arc;
use std::time::Duration;

use obento_base::{DeviceError, Error, Result};
use obento_block::{BlockDevice, Cache, MemDevice};
use obento_env::NO_CLOCK;
use obento_env::sync::atomic::{AtomicU64, Ordering};
use obento_env::thread::{Thread, spawn};
use obento_journal::{CommitOptions, Credits, Log, NoHooks, Tid, Transactions};
use obento_schedules::explore;

const BLOCK: usize = 1024;
const THREADS: u8 = 3;
/// The number of changes of each thread.
const ROUNDS: u8 = 2;

/// A device that fails from a certain write on.
struct Failing {
    below: MemDevice,
    writes_left: AtomicU64,
}

impl BlockDevice for Failing {
    fn len(&self) -> u64 {
        self.below.len()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.below.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        let spent = |left: u64| left.checked_sub(1);
        match self.writes_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, spent) {
            Ok(_) => self.below.write_at(offset, buf),
            Err(_) => Err(DeviceError::Write { offset, len: buf.len() as u64, errno: 5 }.into()),
        }
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

#[derive(Clone)]
struct World {
    device: Arc<Failing>,
    transactions: Arc<Transactions>,
}

impl World {
    /// Creates transactions that hold `budget` blocks in memory.
    fn new(budget: usize, interval: Option<Duration>, writes_left: u64) -> Self {
        let below = MemDevice::new(vec![0; 16 * BLOCK]);
        let device = Arc::new(Failing { below, writes_left: AtomicU64::new(writes_left) });
        let cache = Arc::new(Cache::new(Arc::clone(&device) as Arc<dyn BlockDevice>, BLOCK as u32, 1 << 20));
        let options =
            CommitOptions { budget: budget * BLOCK, interval, ..CommitOptions::new(Arc::new(NO_CLOCK)) };
        Self { device, transactions: Transactions::new(cache, Log::None, options, Arc::new(NoHooks)) }
    }

    /// Fills two blocks with the same byte.
    fn change(&self, block: u8, byte: u8) -> Result<Tid> {
        let mut txn = self.transactions.begin(Credits(2))?;
        for number in [block, block + 8] {
            let taken = txn.take(number.into())?;
            txn.edit(&taken)[0] = byte;
        }
        Ok(txn.commit())
    }

    fn on_device(&self, block: u8) -> u8 {
        let mut byte = [0];
        self.device.read_at(u64::from(block) * BLOCK as u64, &mut byte).expect("memory can be read");
        byte[0]
    }

    #[track_caller]
    fn expect_on_device(&self, block: u8, byte: u8) {
        assert_eq!((self.on_device(block), self.on_device(block + 8)), (byte, byte), "block {block}");
    }

    /// Runs `work` in several threads, each with a number.
    fn each(&self, work: impl Fn(&Self, u8) + Clone + Send + 'static) {
        let start = |n: u8| {
            let (world, work) = (self.clone(), work.clone());
            spawn("worker", move || work(&world, n)).expect("there are threads")
        };
        let threads: Vec<Thread> = (0..THREADS).map(start).collect();
        threads.into_iter().for_each(Thread::join);
    }
}

const SOON: Option<Duration> = Some(Duration::from_secs(5));

fn write_and_wait(world: &World, n: u8) {
    for round in 1..=ROUNDS {
        let tid = world.change(n, round).expect("a sound device");
        world.transactions.wait_durable(tid).expect("a sound device");
        world.expect_on_device(n, round);
    }
}

#[test]
fn awaited_transactions_are_on_the_device_whichever_thread_commits() {
    explore(|| World::new(64, None, u64::MAX).each(write_and_wait));
}

#[test]
fn awaited_transactions_are_on_the_device_beside_a_committing_thread() {
    explore(|| {
        let world = World::new(64, SOON, u64::MAX);
        world.each(write_and_wait);
        world.transactions.close().expect("a sound device");
    });
}

/// One transaction fits at a time, so the other threads wait for its commit.
#[test]
fn threads_without_space_wait_and_continue() {
    for interval in [None, SOON] {
        explore(move || {
            let world = World::new(2, interval, u64::MAX);
            world.each(|world, n| {
                for round in 1..=ROUNDS {
                    world.change(n, round).expect("a sound device");
                }
            });
            world.transactions.close().expect("a sound device");
            (0..THREADS).for_each(|n| world.expect_on_device(n, ROUNDS));
        });
    }
}

#[test]
fn closing_writes_earlier_changes_and_refuses_later_ones() {
    explore(|| {
        let world = World::new(64, SOON, u64::MAX);
        world.each(|world, n| match n {
            0 => world.transactions.close().expect("a sound device"),
            _ => {
                let changed = world.change(n, 1);
                assert!(changed.is_ok() || changed == Err(Error::ReadOnly), "{changed:?}");
            }
        });
        for n in 1..THREADS {
            let byte = world.on_device(n);
            world.expect_on_device(n, byte);
        }
        assert_eq!(world.change(0, 1), Err(Error::ReadOnly));
    });
}

/// The thread that commits may hold the last reference to the transactions.
#[test]
fn a_volume_that_is_dropped_ends_its_thread() {
    explore(|| {
        let world = World::new(64, SOON, u64::MAX);
        world.each(|world, n| {
            world.change(n, 1).expect("a sound device");
        });
    });
}

#[test]
fn an_error_of_the_device_reaches_every_waiting_caller() {
    for interval in [None, SOON] {
        explore(move || {
            let world = World::new(4, interval, 3);
            world.each(|world, n| {
                for round in 1..=ROUNDS {
                    let durable = world.change(n, round).and_then(|tid| world.transactions.wait_durable(tid));
                    if durable.is_ok() {
                        world.expect_on_device(n, round);
                    }
                }
            });
            assert!(world.transactions.close().is_err(), "three writes are not enough");
            assert_eq!(world.change(0, 1), Err(Error::ReadOnly));
        });
    }
}

#[test]
fn a_sync_beside_changes_and_a_checkpoint_waits_for_earlier_changes() {
    explore(|| {
        let world = World::new(64, SOON, u64::MAX);
        world.each(|world, n| match n {
            0 => world.transactions.checkpoint().expect("a sound device"),
            _ => {
                world.change(n, 1).expect("a sound device");
                world.transactions.sync().expect("a sound device");
                world.expect_on_device(n, 1);
            }
        });
        world.transactions.close().expect("a sound device");
    });
}
