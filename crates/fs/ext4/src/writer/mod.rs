//! Changing a volume: what a mounted volume needs beyond reading.

mod inode_edit;
mod locks;

pub use inode_edit::{InodeEdit, Time};
pub use locks::{InodeLocks, LockKey, LockedInodes};
