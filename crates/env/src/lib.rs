//! The hypercalls: everything that obento requires from its environment.
//!
//! Locks and threads are selected at compile time by `--cfg obento_env="..."`, since every layer uses them.
//! The clock and random numbers are objects that are passed when a volume is opened or created. A run is therefore a
//! function of its inputs.
#![no_std]
#![cfg_attr(not(obento_env = "kernel"), forbid(unsafe_code))]

extern crate alloc;
#[cfg(any(feature = "std", obento_env = "shuttle"))]
extern crate std;

mod clock;
#[cfg(obento_env = "kernel")]
mod hyper;
mod random;
pub mod sync;
pub mod thread;

/// Whether this code is part of a kernel, which leaves out the code for other processes: no process continues there after
/// a failure.
pub const IN_KERNEL: bool = cfg!(obento_env = "kernel");

#[cfg(feature = "std")]
pub use clock::SystemClock;
pub use clock::{Clock, FixedClock, NO_CLOCK};
#[cfg(feature = "std")]
pub use random::SystemRandom;
pub use random::{FixedRandom, Random};
