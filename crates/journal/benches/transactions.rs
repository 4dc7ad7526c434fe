//! The cost of a transaction in memory: nanoseconds for a handle that changes a number of cached blocks of 4
//! KiB, and for a commit.
//!
//! `cargo bench -p obento-journal`. Each line is the best of many short rounds, because other processes
//! interrupt longer ones.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use obento_block::{BlockDevice, Cache, MemDevice};
use obento_env::NO_CLOCK;
use obento_journal::{CommitOptions, Credits, Log, NoHooks, Transactions};

const ROUNDS: u32 = 400;
const TIMES: u32 = 200;

fn best(name: &str, per: u32, mut work: impl FnMut()) {
    let once = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed().as_nanos() as f64 / f64::from(per)
    };
    let best = (0..ROUNDS).map(|_| once(&mut work)).fold(f64::INFINITY, f64::min);
    println!("{name:45} {best:9.0} ns");
}

fn transactions() -> Arc<Transactions> {
    let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(vec![7; 64 << 20]));
    let cache = Arc::new(Cache::new(device, 4096, 32 << 20));
    let options = CommitOptions::new(Arc::new(NO_CLOCK));
    Transactions::new(cache, Log::None, options, Arc::new(NoHooks))
}

fn change(transactions: &Transactions, blocks: u64, round: u32) {
    let mut txn = transactions.begin(Credits(16)).unwrap();
    for number in 0..blocks {
        let taken = txn.take(number * 3).unwrap();
        txn.edit(&taken)[..4].copy_from_slice(&round.to_le_bytes());
    }
    black_box(txn.commit());
}

fn two_threads() {
    let transactions = transactions();
    let work = |thread: u64| {
        for round in 0..TIMES {
            let mut txn = transactions.begin(Credits(16)).unwrap();
            for number in 0..8 {
                let taken = txn.take(number * 3 + thread * 1000).unwrap();
                txn.edit(&taken)[..4].copy_from_slice(&round.to_le_bytes());
            }
            txn.commit();
        }
    };
    best("the same with 8 blocks, 2 threads", TIMES, || {
        std::thread::scope(|scope| {
            scope.spawn(|| work(0));
            scope.spawn(|| work(1));
        });
    });
}

fn main() {
    for blocks in [0, 1, 8] {
        let transactions = transactions();
        let name = format!("begin, take and edit {blocks} blocks, commit");
        best(&name, TIMES, || (0..TIMES).for_each(|round| change(&transactions, blocks, round)));
    }
    two_threads();
    let transactions = transactions();
    best("read a cached block", TIMES, || {
        for number in 0..TIMES {
            black_box(transactions.cache().get(u64::from(number % 64)).unwrap());
        }
    });
    best("copy a block of 4 KiB", TIMES, || {
        let block = transactions.cache().get(1).unwrap();
        for _ in 0..TIMES {
            black_box(Box::<[u8]>::from(&*block));
        }
    });
    best("commit 8 blocks to their homes in memory", TIMES, || {
        for round in 0..TIMES {
            change(&transactions, 8, round);
            transactions.sync().unwrap();
        }
    });
}
