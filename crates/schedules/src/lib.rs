//! What threads do in one order after the other: `cargo xtask schedules`.
//!
//! With `--cfg obento_env="shuttle"` the locks, condition variables, threads and atomics of `obento_env` are those of a scheduler
//! that runs one thread at a time and decides at each of them who goes on. A deadlock is then an error, and so is a wake-up that
//! is lost: whoever waits for it waits for ever. Nothing is found that needs two processors to see each other's writes out
//! of order: every atomic is sequentially consistent here. Without that `cfg` this package is empty.
//!
//! Source: Burckhardt et al., "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs", ASPLOS 2010.
#![cfg(obento_env = "shuttle")]

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, Runner};

/// So many schedules of each test, unless `OBENTO_SCHEDULES` says otherwise.
const SCHEDULES: usize = 100;
/// How often a thread is interrupted where it would not wait: most bugs need one or two (ibid.).
const PREEMPTIONS: usize = 3;
/// A driver's calls are deeper than the threads that shuttle is made for.
const STACK: usize = 1 << 20;

/// Runs `body` in many schedules, half of them drawn at each step, half with few interruptions of threads by their priority.
/// `OBENTO_SCHEDULES` says how many, `OBENTO_SCHEDULE_SEED` which. Panics where one deadlocks or `body` panics, and prints that
/// schedule; `OBENTO_SCHEDULE` runs it alone.
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

/// Runs `body` once, in any schedule: for what a test prepares.
pub fn once(body: impl Fn() + Send + Sync + 'static) {
    Runner::new(RandomScheduler::new_from_seed(0, 1), config()).run(body);
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = STACK;
    config.failure_persistence = FailurePersistence::Print;
    // That atomics are sequentially consistent here is said above.
    config.silence_warnings = true;
    config
}
