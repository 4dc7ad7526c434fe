//! The metadata of a file and the interface for its bytes, shared by directory trees and tar archives.

use obento_base::{Attr, Mode, Timestamp};
use obento_block::BlockDevice;

use crate::HostError;

/// The names of access control lists.
pub(crate) const ACL_ACCESS: &str = "system.posix_acl_access";
pub(crate) const ACL_DEFAULT: &str = "system.posix_acl_default";

/// An extended attribute with its Linux name: `user.note`, `system.posix_acl_access`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Xattr {
    /// The name with its name space.
    pub name: Vec<u8>,
    /// The value, as returned by `getxattr(2)`.
    pub value: Vec<u8>,
}

impl Xattr {
    /// Returns whether the attribute is an access control list.
    pub fn is_acl(&self) -> bool {
        is_acl_name(&self.name)
    }
}

/// Returns whether the attribute `name` is an access control list.
pub(crate) fn is_acl_name(name: &[u8]) -> bool {
    [ACL_ACCESS, ACL_DEFAULT].iter().any(|list| name == list.as_bytes())
}

/// The metadata that a copy of a file keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metadata<'a> {
    /// Permission bits.
    pub mode: Mode,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last change of data or attributes. Archives store it; a host cannot set it.
    pub ctime: Timestamp,
    /// Extended attributes, including ACLs.
    pub xattrs: &'a [Xattr],
}

impl<'a> Metadata<'a> {
    /// Returns the part of `attr` that a copy keeps, with `xattrs`.
    pub fn new(attr: &Attr, xattrs: &'a [Xattr]) -> Self {
        Self {
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
            atime: attr.atime,
            mtime: attr.mtime,
            ctime: attr.ctime,
            xattrs,
        }
    }
}

/// Receives the bytes of one file from front to back.
pub trait DataSink {
    /// Appends `len` zeros that take no space.
    fn hole(&mut self, len: u64) -> Result<(), HostError>;

    /// Appends bytes.
    fn bytes(&mut self, bytes: &[u8]) -> Result<(), HostError>;

    /// Appends the `len` bytes of `device` from `offset` on. If the device has a host file behind it, the
    /// bytes do not pass through this process.
    fn device(&mut self, device: &dyn BlockDevice, offset: u64, len: u64) -> Result<(), SinkError>;
}

/// The reason why bytes of a device did not reach a sink.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SinkError {
    /// The device could not be read. The sink has accepted the bytes before the error. The caller can append
    /// [`DataSink::hole`] in place of the rest.
    #[error(transparent)]
    Source(#[from] obento_base::Error),
    /// The sink failed.
    #[error(transparent)]
    Sink(#[from] HostError),
}
