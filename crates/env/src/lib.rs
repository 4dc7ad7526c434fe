//! The hypercalls: all that obento asks of the world it runs in.
//!
//! Locks and threads are chosen when obento is compiled, by `--cfg obento_env="..."`, because every layer names them; the clock
//! and random numbers are objects that are passed when a volume is opened or made, so that a run is a function of its
//! inputs.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(feature = "std", obento_env = "shuttle"))]
extern crate std;

mod clock;
mod random;
pub mod sync;
pub mod thread;

#[cfg(feature = "std")]
pub use clock::SystemClock;
pub use clock::{Clock, FixedClock, NO_CLOCK};
#[cfg(feature = "std")]
pub use random::SystemRandom;
pub use random::{FixedRandom, Random};
