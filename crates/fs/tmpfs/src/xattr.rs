//! Extended attributes, sorted by name.
//!
//! Sources: Linux include/uapi/linux/limits.h (`XATTR_NAME_MAX`, `XATTR_SIZE_MAX`) for the limits, xattr(7)
//! for the namespaces.

use alloc::vec::Vec;

use obento_base::{Error, Ino, Result};
use obento_driver::{WritableFileSystem, XattrMode, Xattrs};

use crate::inode::State;
use crate::volume::Tmpfs;

const NAME_MAX: usize = 255;
const VALUE_MAX: usize = 65536;
/// Maximum size of the names and values of one inode in bytes, so that attributes cannot exceed the memory
/// that `Options` permits.
const TOTAL_MAX: usize = 1 << 20;

/// Returns whether attributes of this name are supported: any name in an open namespace, or one of the two
/// access control lists.
fn is_kept(name: &[u8]) -> bool {
    let spaces: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    let in_space = |space: &&[u8]| name.strip_prefix(*space).is_some_and(|rest| !rest.is_empty());
    spaces.iter().any(in_space) || matches!(name, b"system.posix_acl_access" | b"system.posix_acl_default")
}

fn total(state: &State) -> usize {
    let sizes = state.xattrs.iter().map(|(name, value)| name.len().saturating_add(value.len()));
    sizes.fold(0, usize::saturating_add)
}

impl Xattrs for Tmpfs {
    fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.look(ino, |_, state| state.xattrs.get(name).cloned().ok_or(Error::NoData))
    }

    fn list_xattrs(&self, ino: Ino, sink: &mut dyn FnMut(&[u8])) -> Result<()> {
        let names: Vec<_> = self.look(ino, |_, state| Ok(state.xattrs.keys().cloned().collect()))?;
        names.iter().for_each(|name| sink(name));
        Ok(())
    }

    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let now = self.now();
        self.act(ino, |_, state| {
            if !is_kept(name) {
                return Err(Error::NotSupported);
            }
            let old = state.xattrs.get(name);
            match mode {
                XattrMode::Create if old.is_some() => return Err(Error::Exists),
                XattrMode::Replace if old.is_none() => return Err(Error::NoData),
                _ if name.len() > NAME_MAX || value.len() > VALUE_MAX => return Err(Error::OutOfRange),
                _ => {}
            }
            let freed = old.map_or(0, |old| old.len().saturating_add(name.len()));
            let left = TOTAL_MAX.saturating_sub(total(state).saturating_sub(freed));
            if name.len().saturating_add(value.len()) > left {
                return Err(Error::NoSpace);
            }
            state.xattrs.insert(name.to_vec(), value.to_vec());
            state.attr.touch(now);
            Ok(())
        })
    }

    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let now = self.now();
        self.act(ino, |_, state| {
            state.xattrs.remove(name).ok_or(Error::NoData)?;
            state.attr.touch(now);
            Ok(())
        })
    }
}
