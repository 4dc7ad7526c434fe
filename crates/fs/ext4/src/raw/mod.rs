//! On-disk structures. No field here has been checked. Fields have the names of Linux `fs/ext4/ext4.h` and
//! `fs/ext4/ext4_extents.h`; the comment before each is its byte offset.

mod dir;
mod extent;
mod fast_commit;
mod group;
mod inode;
mod super_block;
mod xattr;

pub use dir::{RawDirEntry, RawDirTail, RawDxCountLimit, RawDxEntry, RawDxRootInfo, RawDxTail};
pub use extent::{RawExtent, RawExtentHeader, RawExtentIndex, RawExtentTail};
pub use fast_commit::{
    RawFcAddRange, RawFcDelRange, RawFcDentryInfo, RawFcHead, RawFcInode, RawFcTail, RawFcTl,
};
pub use group::{RawGroup32, RawGroupHigh};
pub use inode::{RawInode, RawInodeExtra};
pub use super_block::RawSuperBlock;
pub use xattr::{RawAclEntry, RawXattrEntry, RawXattrHeader};
