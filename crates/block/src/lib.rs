//! Block devices and the cache of their blocks.
//!
//! A [`BlockDevice`] is a range of bytes that supports reading, writing, flushing and discarding. Devices
//! compose: a [`Slice`] is a partition of a disk, an [`Overlay`] protects a volume from changes, and a
//! [`Remap`] shows a journal as if it had been replayed. The devices of the operating system are in
//! `obento-host`.
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
mod mem;
mod overlay;
mod remap;
mod slice;

pub use cache::{Block, Cache, Changed, Edit, Seal};
pub use device::{Backing, BlockDevice, ReadRequest, check_range};
pub use mem::MemDevice;
pub use overlay::Overlay;
pub use remap::{Remap, Source};
pub use slice::Slice;
