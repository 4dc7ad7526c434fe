//! Block devices and the cache of their blocks.
//!
//! A [`BlockDevice`] is a range of bytes that supports reading, writing, flushing and discarding. The devices of the
//! operating system are in `obento-host`. Other devices are built on top of a device:
//!
//! - a [`Slice`] is a partition of a disk;
//! - an [`Overlay`] stores changes in memory, so that the underlying device does not change;
//! - a [`Remap`] presents a volume as if its journal had been replayed;
//! - a [`Handoff`] can be passed from one process to another.
#![no_std]
#![cfg_attr(
    not(test),
    warn(
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod cache;
mod device;
mod handoff;
mod mem;
mod overlay;
mod redo;
mod remap;
mod slice;
mod slots;

pub use cache::{Block, Cache, CacheUse, Changed, Edit, Seal};
pub use device::{Backing, BlockDevice, ReadRequest, check_range};
pub use handoff::{Frozen, Handoff};
pub use mem::MemDevice;
pub use overlay::Overlay;
pub use redo::{BlockImage, RedoLog};
pub use remap::{Remap, Source};
pub use slice::Slice;
pub use slots::{Key, Slots};
