//! The types that all layers of obento share: inode numbers, names, attributes, times and errors, and tools to decode
//! disk formats.
//!
//! This crate does not access the operating system. No function of this crate panics, for any contents of a disk.
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

mod attr;
mod bitmap;
pub mod crc;
mod cursor;
mod errno;
mod error;
pub mod fields;
mod forward;
mod name;
mod quantity;
mod time;
pub mod utf16;
pub mod wire;

pub use attr::{Attr, DeviceNumber, FileFlags, FileKind, Generation, Ino, Mode};
pub use bitmap::Bitmap;
pub use cursor::Cursor;
pub use errno::Errno;
pub use error::{
    Corrupt, DeviceError, EngineObstacle, Error, Feature, OpenOption, Refusal, Result, Structure,
};
pub use name::{Name, NameBuf, NameError, is_printable, is_printable_after, write_escaped};
pub use quantity::Quantity;
pub use time::Timestamp;
