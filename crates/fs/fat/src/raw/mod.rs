//! On-disk structures. No field here has been checked.

mod boot;
mod dir;
mod fs_info;

pub use boot::{RawBoot, RawBpb16, RawBpb32};
pub use dir::{RawEntry, RawLongEntry};
pub use fs_info::RawFsInfo;
