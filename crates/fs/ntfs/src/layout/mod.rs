//! The structures on disk, as they mirror the bytes, and the checked values that are decoded from them.

pub mod boot;
pub mod bytes;
pub mod fixup;
pub mod raw;
