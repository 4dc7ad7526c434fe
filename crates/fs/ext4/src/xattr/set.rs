//! All attributes of a new inode at once.
//!
//! Invariant: files with equal attributes have equal sets, so that one encoding serves them all.

use alloc::vec::Vec;

use obento_base::Error;
use obento_driver::XattrMode;
use obento_driver::tree::XattrPair;

use super::block::{self, USERS_MAX};
use super::name::StoredName;
use super::plan::{Tables, ValueInodes};
use super::table::{Form, Table};
use crate::acl;
use crate::super_block::SuperBlock;
use crate::unit::VolBlock;

/// The attributes of an inode as bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct AttributeSet {
    /// What stands behind the inode's fields; empty for nothing.
    pub(crate) inside: Vec<u8>,
    /// The block, with one user and no checksum.
    pub(crate) block: Option<Vec<u8>>,
}

/// Why attributes cannot be stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SetError {
    /// A name space that Linux has no handler for, a name that is too long, or an access control list that is none.
    Name,
    /// They need more than the inode and a block have.
    TooLarge,
}

impl AttributeSet {
    /// Encodes `list` for inodes with `room` bytes behind their fields.
    pub(crate) fn new(list: &[XattrPair], room: usize, block_size: usize) -> Result<Self, SetError> {
        let mut stored = Vec::new();
        for (name, value) in list {
            let name = StoredName::parse(name).map_err(|_| SetError::Name)?;
            name.expect_short().map_err(|_| SetError::Name)?;
            let value = match name.is_acl() {
                true => acl::from_xattr(value).map_err(|_| SetError::Name)?,
                false => value.to_vec(),
            };
            stored.push((name, value));
        }
        let inode = (room > Form::Inode.header()).then(|| Table::empty(Form::Inode, room));
        let mut tables = Tables { inode, block: Table::empty(Form::Block, block_size) };
        for (name, value) in &stored {
            let plan = tables.plan_set(*name, value, XattrMode::Set, ValueInodes::Never, block_size);
            tables = plan.map_err(|_: Error| SetError::TooLarge)?.map_or(tables, |plan| plan.tables);
        }
        let mut inside = Vec::new();
        if let Some(table) = tables.inode.filter(|table| !table.is_empty()) {
            inside.resize(room, 0);
            table.encode(&mut inside).ok_or(SetError::TooLarge)?;
        }
        let block = match tables.block.is_empty() {
            true => None,
            false => Some(block::encode(&tables.block, block_size).map_err(|_| SetError::TooLarge)?),
        };
        Ok(Self { inside, block })
    }

    /// The block for `users` files, as it stands at `number`.
    pub(crate) fn block_at(&self, number: VolBlock, users: u32, sb: &SuperBlock) -> Vec<u8> {
        let mut bytes = self.block.clone().unwrap_or_default();
        block::set_users(&mut bytes, users.min(USERS_MAX));
        if sb.has_metadata_csum() {
            block::set_checksum(&mut bytes, number, sb.checksum_seed);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(pairs: &[(&str, &[u8])]) -> Vec<XattrPair> {
        pairs.iter().map(|(name, value)| (name.as_bytes().into(), (*value).into())).collect()
    }

    #[test]
    fn what_fits_the_inode_goes_there_and_the_rest_to_a_block() {
        let small = AttributeSet::new(&list(&[("user.a", b"1")]), 96, 1024).unwrap();
        assert!(small.block.is_none() && small.inside.len() == 96);
        let both = AttributeSet::new(&list(&[("user.a", &[7; 300]), ("user.b", b"2")]), 96, 1024).unwrap();
        assert!(both.block.is_some() && !both.inside.is_empty());
        let old = AttributeSet::new(&list(&[("user.a", b"1")]), 0, 1024).unwrap();
        assert!(old.block.is_some() && old.inside.is_empty());
    }

    #[test]
    fn what_cannot_be_stored_is_refused() {
        let new = |pairs| AttributeSet::new(&list(pairs), 96, 1024);
        assert_eq!(new(&[("nowhere.a", b"1")]), Err(SetError::Name));
        assert_eq!(new(&[("system.posix_acl_access", b"no list")]), Err(SetError::Name));
        assert_eq!(new(&[("user.a", &[1; 1000])]), Err(SetError::TooLarge));
        assert_eq!(AttributeSet::default(), AttributeSet::new(&[], 96, 1024).unwrap());
    }
}
