//! The NTFS driver. It reads and checks volumes; writing is refused.
//!
//! Decoding begins with the bytes (`layout`), records of the master file table (`mft`) and their attributes
//! (`attribute`). From there it continues with directories (`index`), data (`data`) and permissions (`security`).
//! `driver` is the contract, and `check` the check.
//!
//! Where to start reading: `layout/boot.rs`, `mft/record.rs`, `attribute/mod.rs`, `driver/volume.rs`.
//!
//! Invariant: memory does not depend on the number of files; every cache has a fixed number of slots.
//! Sources of the format: the documentation of the linux-ntfs project, the documentation of libfsntfs, Microsoft's open
//! specifications MS-FSCC, MS-DTYP, MS-XCA and MS-PATCH. `docs/formats/ntfs.md` has the facts, `docs/ntfs.md` what is
//! supported.
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

mod attribute;
mod check;
mod data;
mod driver;
mod index;
mod layout;
mod mft;
mod reparse;
mod security;
mod special;
mod time;
mod up_case;

pub use check::Issue;
pub use data::{lznt1, lzx, xpress};
pub use driver::open::NtfsDriver;
pub use driver::options::NtfsOptions;
