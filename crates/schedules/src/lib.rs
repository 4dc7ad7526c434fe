//! Explores thread schedules: `cargo xtask schedules`.
//!
//! With `--cfg obento_env="shuttle"`, the locks, condition variables, threads and atomics of `obento_env`
//! belong to a scheduler. It runs one thread at a time, and decides at each of these operations which thread
//! continues. A deadlock is then an error. So is a lost wake-up, because its waiter waits forever. Bugs that
//! need two processors to see each other's writes out of order are not found: every atomic is sequentially
//! consistent here. Without that `cfg` this package is empty.
//!
//! Source: Burckhardt et al., "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs", ASPLOS
//! 2010.
#![cfg(obento_env = "shuttle")]

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, Runner};

/// The number of schedules of each test, unless `OBENTO_SCHEDULES` is set.
const SCHEDULES: usize = 100;
/// The number of preemptions of a thread that would not wait. Most bugs need one or two (ibid.).
const PREEMPTIONS: usize = 3;
/// The stack size in bytes. The calls of a driver are deeper than the default of shuttle allows.
const STACK: usize = 1 << 20;

/// Runs `body` in many schedules. Half of them choose a random thread at each step, and half preempt threads
/// rarely, by priority. `OBENTO_SCHEDULES` sets their number, and `OBENTO_SCHEDULE_SEED` the seed. Panics if
/// a schedule deadlocks or `body` panics, and prints that schedule. `OBENTO_SCHEDULE` runs a printed schedule
/// alone.
pub fn explore(body: impl Fn() + Send + Sync + Clone + 'static) {
    if let Ok(schedule) = std::env::var("OBENTO_SCHEDULE") {
        return shuttle::replay(body, &schedule);
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let schedules = number("OBENTO_SCHEDULES").map_or(SCHEDULES, |many: u64| many as usize);
    let seed = number("OBENTO_SCHEDULE_SEED").unwrap_or(1);
    println!("{schedules} schedules of seed {seed}");
    let random = RandomScheduler::new_from_seed(seed, schedules.div_ceil(2));
    Runner::new(random, config()).run(body.clone());
    Runner::new(PctScheduler::new_from_seed(seed, PREEMPTIONS, schedules.div_ceil(2)), config()).run(body);
}

/// Runs `body` once, in any schedule, for the preparation of a test.
pub fn once(body: impl Fn() + Send + Sync + 'static) {
    Runner::new(RandomScheduler::new_from_seed(0, 1), config()).run(body);
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = STACK;
    config.failure_persistence = FailurePersistence::Print;
    // The module documentation explains that atomics are sequentially consistent here.
    config.silence_warnings = true;
    config
}
