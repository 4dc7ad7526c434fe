//! On-disk structures. No field here has been checked.

mod boot;
mod entry;

pub use boot::RawBoot;
pub use entry::{
    RawBitmap, RawEntry, RawFile, RawGuid, RawLabel, RawName, RawSecondary, RawStream, RawUpCase, kind,
};
