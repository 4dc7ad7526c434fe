//! Names, directories and attributes.

use core::ffi::c_void;
use core::ops::ControlFlow;

use obento_base::{Attr, DeviceNumber, Error, FileKind, Ino, Result};
use obento_driver::{Cookie, NewNode, RenameFlags};

use crate::abi::{Attributes, Buffer, Bytes, Change, Emit, Node, Status, lend, mode};
use crate::volume::Volume;

/// A number that the driver returned.
#[repr(transparent)]
pub struct Number(u64);

impl From<Ino> for Number {
    fn from(ino: Ino) -> Self {
        Self(ino.0)
    }
}

/// Finds `name` in `dir`.
///
/// # Safety
///
/// `name` are bytes of this call, and `out` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ob_lookup(volume: &Volume, dir: u64, name: Bytes, out: *mut Number) -> Status {
    // SAFETY: the promise of the caller.
    unsafe { volume.put(out, name.name().and_then(|name| volume.fs.lookup(Ino(dir), name))) }
}

/// Returns the parent of `dir`.
///
/// # Safety
///
/// `out` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ob_parent(volume: &Volume, dir: u64, out: *mut Number) -> Status {
    // SAFETY: the promise of the caller.
    unsafe { volume.put(out, volume.fs.parent(Ino(dir))) }
}

/// Returns the attributes of an inode.
///
/// # Safety
///
/// `out` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ob_getattr(volume: &Volume, ino: u64, out: *mut Attributes) -> Status {
    // SAFETY: the promise of the caller.
    unsafe { volume.put(out, volume.fs.getattr(Ino(ino))) }
}

/// Passes the entries of `dir` after `from` to `emit`, which calls no file system.
///
/// # Safety
///
/// `emit` may be called with `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ob_readdir(
    volume: &Volume,
    dir: u64,
    from: u64,
    emit: Emit,
    data: *mut c_void,
) -> Status {
    let mut damage = Ok(());
    let listed = volume.fs.read_dir_locked(Ino(dir), Cookie(from), &mut |entry| match entry {
        Ok(entry) => {
            let kind = entry.kind.map_or(0, |kind| u32::from(kind.mode_bits() >> 12));
            // SAFETY: the promise of the caller.
            match unsafe { emit(data, lend(entry.name.as_bytes()), entry.ino.0, kind, entry.next.0) } {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        }
        Err(error) => {
            damage = Err(error);
            ControlFlow::Continue(())
        }
    });
    volume.status(listed.and(damage))
}

/// Copies the target of a symbolic link.
///
/// # Safety
///
/// `out` is a buffer of this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ob_readlink(volume: &Volume, ino: u64, out: Buffer) -> i64 {
    let target = volume.fs.read_link(Ino(ino));
    // SAFETY: the promise of the caller.
    volume.count(target.and_then(|target| unsafe { out.take(&target) }.map_err(|_| Error::NameTooLong)))
}

/// Ends the use of an inode.
#[unsafe(no_mangle)]
pub extern "C" fn ob_forget(volume: &Volume, ino: u64) {
    volume.fs.forget(Ino(ino));
}

/// Creates an inode in `dir`; without a name if `name` is empty.
///
/// # Safety
///
/// `name` and `node` belong to this call, and `out` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ob_create(
    volume: &Volume,
    dir: u64,
    name: Bytes,
    node: &Node,
    out: *mut Attributes,
) -> Status {
    // SAFETY: the promise of the caller.
    let (name, target) = unsafe { (name.get(), node.target.get()) };
    let make = || -> Result<Attr> {
        let new = new_node(node, target)?;
        if name.is_empty() {
            return volume.fs.nameless().ok_or(Error::NotSupported)?.create_nameless(Ino(dir), &new);
        }
        // SAFETY: the promise of the caller.
        volume.writable()?.create(Ino(dir), unsafe { lend(name).name() }?, &new)
    };
    // SAFETY: the promise of the caller.
    unsafe { volume.put(out, make()) }
}

/// Returns the attributes of a new inode with the target of a symbolic link.
fn new_node<'a>(node: &Node, target: &'a [u8]) -> Result<NewNode<'a>> {
    let bits = u16::try_from(node.mode).map_err(|_| Error::Invalid)?;
    Ok(NewNode {
        kind: FileKind::from_mode(bits).ok_or(Error::Invalid)?,
        mode: mode(node.mode),
        uid: node.uid,
        gid: node.gid,
        rdev: DeviceNumber { major: node.major, minor: node.minor },
        target,
    })
}

/// Gives an inode another name, or a file without a name its first.
///
/// # Safety
///
/// `name` are bytes of this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ob_link(volume: &Volume, ino: u64, dir: u64, name: Bytes, nameless: bool) -> Status {
    // SAFETY: the promise of the caller.
    let linked = unsafe { name.name() }.and_then(|name| match nameless {
        true => volume.fs.nameless().ok_or(Error::NotSupported)?.name(Ino(ino), Ino(dir), name),
        false => volume.writable()?.link(Ino(ino), Ino(dir), name),
    });
    volume.status(linked.map(|_| ()))
}

/// Removes a name.
///
/// # Safety
///
/// `name` are bytes of this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ob_unlink(volume: &Volume, dir: u64, name: Bytes, is_dir: bool) -> Status {
    // SAFETY: the promise of the caller.
    volume.status(unsafe { name.name() }.and_then(|name| match is_dir {
        true => volume.writable()?.rmdir(Ino(dir), name),
        false => volume.writable()?.unlink(Ino(dir), name),
    }))
}

/// Moves a name, and gives the old name to the new inode `whiteout`, if C passes one.
///
/// # Safety
///
/// `name` and `new_name` are bytes of this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ob_rename(
    volume: &Volume,
    from: u64,
    name: Bytes,
    to: u64,
    new_name: Bytes,
    flags: u32,
    whiteout: Option<&Node>,
) -> Status {
    let rename = || {
        let flags = RenameFlags::from_bits(flags).ok_or(Error::Invalid)?;
        // SAFETY: the promise of the caller.
        let (name, new_name) = unsafe { (name.name()?, new_name.name()?) };
        let Some(node) = whiteout else {
            return volume.writable()?.rename(Ino(from), name, Ino(to), new_name, flags);
        };
        let whiteouts = volume.fs.whiteouts().ok_or(Error::Invalid)?;
        whiteouts.rename_leaving(Ino(from), name, Ino(to), new_name, flags, &new_node(node, &[])?)
    };
    volume.status(rename())
}

/// Changes attributes, and returns the new ones.
///
/// # Safety
///
/// `out` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ob_setattr(
    volume: &Volume,
    ino: u64,
    change: &Change,
    out: *mut Attributes,
) -> Status {
    let changed = volume.writable().and_then(|fs| fs.set_attr(Ino(ino), &change.set_attr()));
    // SAFETY: the promise of the caller.
    unsafe { volume.put(out, changed) }
}
