//! The attribute that continues a file's inline data after `i_block`.
//!
//! Invariant: an inode with inline data always has the attribute, which may be empty, and the attribute is always in
//! the inode.
//! Source: Linux fs/ext4/inline.c `ext4_create_inline_data`, `get_max_inline_xattr_value_size`.

use alloc::vec::Vec;

use obento_base::{Error, Result};

use super::area::AttributeArea;
use super::name::StoredName;
use super::table::{Form, Table, Value};
use crate::inode::Inode;
use crate::raw::RawXattrEntry;

/// Size of the attribute's entry: the name has four bytes.
const ENTRY: usize = size_of::<RawXattrEntry>() + 4;

/// Returns the maximum size of the rest in `inode` beside its other attributes, or `None` if not even an empty
/// attribute fits. Fails with `Corrupt`.
pub(crate) fn inline_rest_max(inode: &Inode) -> Result<Option<usize>> {
    let table = others(inode)?;
    let room = table.room_left().and_then(|room| room.checked_sub(ENTRY));
    Ok(room.map(|room| room & !3))
}

/// Returns the bytes for [`Inode::xattr_bytes`] with `rest` as the rest of the inline data. `rest` is `None` if the
/// inode will have no inline data. Fails with `Corrupt` or `NoSpace`.
pub(crate) fn with_inline_rest(inode: &Inode, rest: Option<&[u8]>) -> Result<Vec<u8>> {
    let table = others(inode)?;
    let table = match rest {
        Some(rest) => table.with(StoredName::INLINE_DATA, Value::Here(rest), 0).ok_or(Error::NoSpace)?,
        None => table,
    };
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(inode.xattr_bytes().len())?;
    bytes.resize(inode.xattr_bytes().len(), 0);
    table.encode(&mut bytes).ok_or(Error::NoSpace)?;
    Ok(bytes)
}

/// Returns the other attributes in the inode.
fn others(inode: &Inode) -> Result<Table<'_>> {
    let len = inode.xattr_bytes().len();
    let table = match AttributeArea::in_inode(inode) {
        Some(area) => Table::decode(Form::Inode, len, &area)?,
        None => Table::empty(Form::Inode, len),
    };
    Ok(table.without(&StoredName::INLINE_DATA))
}
