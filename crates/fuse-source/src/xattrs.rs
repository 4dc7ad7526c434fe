//! [`Xattrs`] over a server.

use obento_base::wire::to_u64;
use obento_base::{Error, Ino, Result};
use obento_driver::{XattrMode, Xattrs};
use obento_fuse_abi::{GetxattrIn, SetxattrIn, opcode};
use zerocopy::IntoBytes as _;

use crate::contract::{Mounted, NOT_SUPPORTED, lock};
use crate::error::{NOT_IMPLEMENTED, of_errno};
use crate::wire::XATTR_MAX;

/// `XATTR_CREATE` and `XATTR_REPLACE`.
const CREATE: u32 = 1;
const REPLACE: u32 = 2;

impl Mounted {
    /// Returns the value of a request for an attribute or for the list of attributes.
    pub(crate) fn xattr(&self, request: u32, ino: Ino, name: &[&[u8]]) -> Result<Vec<u8>> {
        let size = GetxattrIn { size: XATTR_MAX, padding: 0 };
        let body = [&[size.as_bytes()], name].concat();
        let deadline = self.connection.deadline();
        let fits = |reply: &[u8]| to_u64(reply.len()) <= XATTR_MAX.into();
        let take = |reply: &[u8]| fits(reply).then(|| reply.to_vec());
        let value = self.connection.exchange(request, ino.0, &body, deadline, take)?;
        match value {
            Ok(value) => Ok(value),
            Err(NOT_IMPLEMENTED | NOT_SUPPORTED) => Err(Error::NotSupported),
            Err(errno) => Err(of_errno(errno)),
        }
    }

    /// Changes an attribute.
    fn change_xattr(&self, request: u32, ino: Ino, body: &[&[u8]]) -> Result<()> {
        self.expect_writable()?;
        lock(&self.nodes).get(ino)?;
        let changed = self.connection.ask(request, ino.0, body, |_| Some(()));
        // An access control list may have changed the mode.
        self.changed(ino);
        changed
    }
}

impl Xattrs for Mounted {
    fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        lock(&self.nodes).get(ino)?;
        match self.xattr(opcode::GETXATTR, ino, &[name, &[0]]) {
            Err(Error::NotSupported) => Err(Error::NoData),
            value => value,
        }
    }

    fn list_xattrs(&self, ino: Ino, sink: &mut dyn FnMut(&[u8])) -> Result<()> {
        lock(&self.nodes).get(ino)?;
        let list = match self.xattr(opcode::LISTXATTR, ino, &[]) {
            Err(Error::NotSupported) => return Ok(()),
            list => list?,
        };
        list.split(|&byte| byte == 0).filter(|name| !name.is_empty()).for_each(sink);
        Ok(())
    }

    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let size = u32::try_from(value.len()).ok().filter(|&size| size <= XATTR_MAX);
        let flags = match mode {
            XattrMode::Set => 0,
            XattrMode::Create => CREATE,
            XattrMode::Replace => REPLACE,
        };
        let head = SetxattrIn { size: size.ok_or(Error::OutOfRange)?, flags };
        self.change_xattr(opcode::SETXATTR, ino, &[head.as_bytes(), name, &[0], value])
    }

    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.change_xattr(opcode::REMOVEXATTR, ino, &[name, &[0]])
    }
}
