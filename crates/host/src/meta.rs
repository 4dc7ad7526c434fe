//! What is written beside the bytes of a file, and where the bytes go: shared by directory trees and tar archives.

use obento_base::{Attr, Mode, Timestamp};
use obento_block::BlockDevice;

use crate::HostError;

/// An extended attribute as Linux spells it: `user.note`, `system.posix_acl_access`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Xattr {
    /// Name with its name space.
    pub name: Vec<u8>,
    /// Value, as `getxattr(2)` gives it.
    pub value: Vec<u8>,
}

/// What a copy of a file keeps.
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
    /// Last change of data or attributes: archives keep it, a host cannot set it.
    pub ctime: Timestamp,
    /// Extended attributes, ACLs among them.
    pub xattrs: &'a [Xattr],
}

impl<'a> Metadata<'a> {
    /// The part of `attr` that a copy keeps, with `xattrs`.
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

/// Takes the bytes of one file from front to back.
pub trait DataSink {
    /// The next `len` bytes are zeros that take no space.
    fn hole(&mut self, len: u64) -> Result<(), HostError>;

    /// The next bytes.
    fn bytes(&mut self, bytes: &[u8]) -> Result<(), HostError>;

    /// The next `len` bytes are those of `device` from `offset` on. Where the device has a file of the host behind it
    /// they do not pass through this process.
    fn device(&mut self, device: &dyn BlockDevice, offset: u64, len: u64) -> Result<(), SinkError>;
}

/// Why bytes did not get from a device to a sink.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SinkError {
    /// The device could not be read. What came before it was taken, and the sink stands where the range began plus
    /// what it took: [`DataSink::hole`] may stand in for the rest.
    #[error(transparent)]
    Source(#[from] obento_base::Error),
    /// The sink could not take it.
    #[error(transparent)]
    Sink(#[from] HostError),
}
