//! The values of keys: inodes, names, attributes, extents, and data.

pub mod codec;
pub mod data;
pub mod dirent;
pub mod extent;
pub mod hash;
pub mod inode;
pub mod xattr;
