//! The JFFS2 driver. It reads, checks and builds images of flash memory; changing a volume is refused.
//!
//! A volume is a log of nodes. Opening it reads the whole image once (`scan.rs`), verifies every checksum, and keeps the
//! nodes that are valid (`nodes.rs`). The newest versions decide which names and which bytes exist (`catalogue.rs`,
//! `content.rs`). `contract.rs` is the contract, `check` the check, and `build` the builder.
//!
//! Where to start reading: `raw.rs`, `scan.rs`, `catalogue.rs`.
//!
//! Invariant: memory is proportional to the number of nodes, which take at least 12 bytes of the image each.
//! Invariant: a directory has one parent, and the root reaches every inode that is shown.
//! Source of the format: Linux `include/uapi/linux/jffs2.h` and `fs/jffs2`. `docs/formats/jffs2.md` has the facts,
//! `docs/jffs2.md` what is supported.
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

mod build;
mod catalogue;
mod check;
pub mod codec;
mod content;
mod contract;
mod nodes;
mod open;
mod order;
mod raw;
mod scan;
mod volume;
mod xattrs;

pub use check::Issue;
pub use open::Jffs2Driver;
pub use order::Order;
