//! Structures as they lie on disk, and nothing else: no field here was checked.

mod boot;
mod dir;
mod fs_info;

pub use boot::{RawBoot, RawBpb16, RawBpb32};
pub use dir::{RawEntry, RawLongEntry};
pub use fs_info::RawFsInfo;
