//! The bcachefs driver. It reads volumes of one device; writing is refused.
//!
//! Decoding begins with the super block (`layout`) and continues with the roots of the B-trees. The super block of a
//! clean volume contains the roots; otherwise the journal (`journal`) does. `btree` reads nodes and overlays them with
//! the keys of the journal. `snapshot` chooses the version of a key that a subvolume sees. `file` decodes the values
//! (inodes, names, attributes, extents) and reads data. `driver` is the contract.
//!
//! Where to start reading: `layout/super_block.rs`, `btree/node.rs`, `btree/tree.rs`, `driver/volume.rs`.
//!
//! Invariant: memory does not depend on the number of files. Caches have a fixed number of slots, and the tables of
//! subvolumes, snapshots and journal keys have budgets.
//! Source of the format: Linux 6.7 to 6.17, `fs/bcachefs`; each fact names its file. `docs/formats/bcachefs.md` has the
//! overview, `docs/bcachefs.md` what is supported.
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

mod btree;
pub mod checksum;
mod driver;
mod file;
mod journal;
mod layout;
mod snapshot;

pub use driver::open::BcachefsDriver;
pub use file::codec;
pub use file::hash;
