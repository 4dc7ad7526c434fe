//! Planning the change of the two tables of an inode for a set or a removal of an attribute.
//!
//! A value is stored in the first of these places where it fits: the inode, the block, and with `ea_inode` a separate
//! inode. The inode or the block refers to the separate inode. A value that would fill a block is stored in its own
//! inode at once. The value in another place is removed.
//! Source: Linux fs/ext4/xattr.c `ext4_xattr_set_handle`, `ext4_xattr_set_entry`; fs/ext4/xattr.h
//! `EXT4_XATTR_MIN_LARGE_EA_SIZE`.

use obento_base::{Error, Result};
use obento_driver::XattrMode;

use super::hash::entry_hash;
use super::name::StoredName;
use super::table::{Form, Table, Value};
use crate::raw::RawXattrEntry;

/// The attributes of an inode. `inode` is missing if the record has no space for any.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Tables<'a> {
    pub(super) inode: Option<Table<'a>>,
    /// Empty if there is no block.
    pub(super) block: Table<'a>,
}

impl Tables<'_> {
    /// Returns the number of attributes whose values are in inodes.
    pub(super) fn values(&self) -> u32 {
        let named = self.inode.iter().chain([&self.block]).flat_map(Table::value_inodes).count();
        u32::try_from(named).unwrap_or(u32::MAX)
    }
}

/// Whether values may be in inodes of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ValueInodes {
    /// Feature `ea_inode`.
    Allowed {
        /// The hash of the value for its inode.
        hash: u32,
    },
    Never,
}

/// The tables after a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct AttributePlan<'a> {
    pub(super) tables: Tables<'a>,
    /// Whether an entry waits for the inode of its value ([`Table::name_value_inode`]).
    pub(super) wants_inode: bool,
    /// The value that was replaced or removed.
    pub(super) old: Option<Value<'a>>,
}

impl<'a> Tables<'a> {
    pub(super) fn get(&self, name: &StoredName<'_>) -> Option<Value<'a>> {
        self.inode.as_ref().and_then(|table| table.get(name)).or_else(|| self.block.get(name))
    }

    /// Plans to set `name` to `value`. Returns `None` if it already has that value. `block_size` determines which
    /// values are too large for a block. Fails with the first error: `Exists` or `NoData` as `mode` requires;
    /// `NoSpace`.
    pub(super) fn plan_set(
        &self,
        name: StoredName<'a>,
        value: &'a [u8],
        mode: XattrMode,
        own: ValueInodes,
        block_size: usize,
    ) -> Result<Option<AttributePlan<'a>>> {
        let old = self.get(&name);
        match mode {
            XattrMode::Create if old.is_some() => return Err(Error::Exists),
            XattrMode::Replace if old.is_none() => return Err(Error::NoData),
            _ if old == Some(Value::Here(value)) => return Ok(None),
            _ => {}
        }
        let here = Value::Here(value);
        let reserve = match own {
            ValueInodes::Allowed { .. } => (block_size / 8).min(1024),
            ValueInodes::Never => 0,
        };
        let in_own = Self::in_own_inode(name, value, own);
        let is_large = value.len().next_multiple_of(4) > large_value(block_size);
        // Without `ea_inode`, even a value that fills a block can only be stored here.
        let small = (in_own.is_none() || !is_large).then_some(here);
        for value in [small, in_own].into_iter().flatten() {
            if let Some(tables) = self.place(name, value, reserve) {
                return Ok(Some(AttributePlan { tables, wants_inode: value != here, old }));
            }
        }
        Err(Error::NoSpace)
    }

    /// Returns the tables with `value` in the inode or else in the block, or `None` if it fits neither.
    fn place(&self, name: StoredName<'a>, value: Value<'a>, reserve: usize) -> Option<Self> {
        if let Some(inode) = self.inode.clone().and_then(|table| table.with(name, value, 0)) {
            return Some(Self { inode: Some(inode), block: self.block.clone().without(&name) });
        }
        let block = self.block.clone().with(name, value, reserve)?;
        Some(Self { inode: self.inode.clone().map(|table| table.without(&name)), block })
    }

    /// Returns the value as a value in an inode whose number will be set later.
    fn in_own_inode(name: StoredName<'a>, value: &'a [u8], own: ValueInodes) -> Option<Value<'a>> {
        let ValueInodes::Allowed { hash } = own else { return None };
        let size = u32::try_from(value.len()).ok().filter(|&size| size != 0)?;
        Some(Value::Inode { ino: 0, size, hash: entry_hash(name.rest, core::iter::once(hash)) })
    }

    /// Plans to remove `name`. Fails with `NoData`.
    pub(super) fn plan_remove(&self, name: StoredName<'_>) -> Result<AttributePlan<'a>> {
        let old = self.get(&name).ok_or(Error::NoData)?;
        let inode = self.inode.clone().map(|table| table.without(&name));
        let tables = Self { inode, block: self.block.clone().without(&name) };
        Ok(AttributePlan { tables, wants_inode: false, old: Some(old) })
    }
}

impl AttributePlan<'_> {
    /// Sets the inode of the new value.
    pub(super) fn name_value_inode(&mut self, ino: u32) {
        if let Some(inode) = &mut self.tables.inode {
            inode.name_value_inode(ino);
        }
        self.tables.block.name_value_inode(ino);
    }
}

/// Returns the maximum size of a value that leaves space for a short name beside it: `EXT4_XATTR_MIN_LARGE_EA_SIZE`.
fn large_value(block_size: usize) -> usize {
    const SHORT_ENTRY: usize = size_of::<RawXattrEntry>() + 4;
    block_size.saturating_sub(SHORT_ENTRY).saturating_sub(Form::Block.header()).saturating_sub(4)
}
