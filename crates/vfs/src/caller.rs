//! The user for whom an operation is performed, and the access that it requests.

use alloc::vec::Vec;

use bitflags::bitflags;
use obento_base::Attr;

/// The user for whom an operation is performed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Caller {
    /// The owner of the image, who has the rights of root.
    Owner,
    /// A user that is defined in the image.
    User {
        /// User ID in the image.
        uid: u32,
        /// Group ID in the image.
        gid: u32,
        /// Supplementary groups.
        groups: Vec<u32>,
    },
}

bitflags! {
    /// The requested kinds of access. The values are those of the permission bits of one class (`rwx`).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct AccessRequest: u8 {
        /// Execute a file, or look up names in a directory.
        const EXEC = 1;
        /// Write a file, or create and remove names in a directory.
        const WRITE = 2;
        /// Read a file, or list the names in a directory.
        const READ = 4;
    }
}

impl Caller {
    /// Returns whether the caller is the user `uid`. Returns `false` for the owner of the image, for every `uid`.
    pub fn is_user(&self, uid: u32) -> bool {
        matches!(self, Self::User { uid: own, .. } if *own == uid)
    }

    /// Returns whether the caller is in the group `gid`. Returns `true` for the owner of the image.
    pub fn in_group(&self, gid: u32) -> bool {
        match self {
            Self::Owner => true,
            Self::User { gid: own, groups, .. } => *own == gid || groups.contains(&gid),
        }
    }

    /// Returns whether the caller is the owner of the file, or the owner of the image. Only these callers may
    /// change the mode, the flags and the access control lists of the file. Only these callers may set its
    /// times to other values than the current time.
    pub fn owns(&self, attr: &Attr) -> bool {
        *self == Self::Owner || self.is_user(attr.uid)
    }
}
