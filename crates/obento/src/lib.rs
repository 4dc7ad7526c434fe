//! File systems as a library: open a disk image, look inside, copy out, without root and without mounting.
#![warn(rustdoc::broken_intra_doc_links)]

mod address;
pub mod partition;
mod text;

pub use address::{Address, AddressError, HostEntry, Operand, Part, Place};
pub use text::{Escaped, escaped};
