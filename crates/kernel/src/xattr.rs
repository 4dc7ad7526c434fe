//! Extended attributes.

use obento_base::{Error, Ino, Result};
use obento_driver::{XattrMode, Xattrs};

use crate::abi::{Buffer, Bytes, Status};
use crate::volume::Volume;

/// The flags of setxattr(2), and one of our own that removes the attribute.
const CREATE: u32 = 1;
const REPLACE: u32 = 2;
const REMOVE: u32 = 1 << 31;

impl Volume {
    fn xattrs(&self) -> Result<&dyn Xattrs> {
        self.fs.xattrs().ok_or(Error::NotSupported)
    }
}

/// Copies the value of an attribute.
///
/// # Safety
///
/// `name` and `out` belong to this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ob_getxattr(volume: &Volume, ino: u64, name: Bytes, out: Buffer) -> i64 {
    // SAFETY: the promise of the caller.
    let value = volume.xattrs().and_then(|xattrs| xattrs.get_xattr(Ino(ino), unsafe { name.get() }));
    // SAFETY: the promise of the caller.
    volume.count(value.and_then(|value| unsafe { out.take(&value) }))
}

/// Copies the names of all attributes, each with a NUL at its end.
///
/// # Safety
///
/// `out` is a buffer of this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ob_listxattr(volume: &Volume, ino: u64, out: Buffer) -> i64 {
    // SAFETY: the promise of the caller.
    let room = unsafe { out.get() };
    let mut len = 0_usize;
    let listed = volume.xattrs().and_then(|xattrs| {
        xattrs.list_xattrs(Ino(ino), &mut |name| {
            let end = len.saturating_add(name.len()).saturating_add(1);
            if let Some([to @ .., last]) = room.get_mut(len..end) {
                to.copy_from_slice(name);
                *last = 0;
            }
            len = end;
        })
    });
    let fits = room.is_empty() || len <= room.len();
    volume.count(listed.and(if fits { Ok(len) } else { Err(Error::OutOfRange) }))
}

/// Sets or removes an attribute.
///
/// # Safety
///
/// `name` and `value` are bytes of this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ob_setxattr(
    volume: &Volume,
    ino: u64,
    name: Bytes,
    value: Bytes,
    flags: u32,
) -> Status {
    // SAFETY: the promise of the caller.
    let (name, value) = unsafe { (name.get(), value.get()) };
    volume.status(volume.xattrs().and_then(|xattrs| {
        let mode = match flags {
            REMOVE => return xattrs.remove_xattr(Ino(ino), name),
            CREATE => XattrMode::Create,
            REPLACE => XattrMode::Replace,
            _ => XattrMode::Set,
        };
        xattrs.set_xattr(Ino(ino), name, value, mode)
    }))
}
