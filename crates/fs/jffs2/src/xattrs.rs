//! Extended attributes.
//!
//! Source: Linux `fs/jffs2/xattr.c`, `fs/jffs2/acl.c`.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{Error, Feature, Ino, Result};
use obento_driver::{XattrMode, Xattrs};

use crate::nodes::Xattr;
use crate::order::Order;
use crate::volume::Volume;

/// Namespaces (`JFFS2_XPREFIX_`), by their numbers.
const PREFIXES: &[(u8, &[u8])] = &[
    (1, b"user."),
    (2, b"security."),
    (ACCESS, b"system.posix_acl_access"),
    (DEFAULT, b"system.posix_acl_default"),
    (5, b"trusted."),
];
/// `JFFS2_XPREFIX_ACL_ACCESS`: the whole name.
const ACCESS: u8 = 3;
/// `JFFS2_XPREFIX_ACL_DEFAULT`: the whole name.
const DEFAULT: u8 = 4;
/// `JFFS2_ACL_VERSION`.
const ACL_VERSION: u32 = 1;
/// `XATTR_LIST_MAX` of Linux include/uapi/linux/limits.h: maximum length of all names, each with a NUL.
const LIST_MAX: usize = 64 << 10;
const TOO_MANY: Feature = Feature::Named("a list of extended attributes over 64 KiB");
/// Tags of entries for one user or group (`ACL_USER`, `ACL_GROUP`).
const NAMED: [u16; 2] = [0x02, 0x08];

/// The attributes of an inode, by name.
#[derive(Debug)]
pub enum Found {
    /// Each attribute, in its newest version.
    All(BTreeMap<Vec<u8>, Xattr>),
    /// The names have more than [`LIST_MAX`] bytes.
    TooMany,
}

impl Volume {
    /// Returns the attributes of an inode. Keeps them, because a caller reads all names and then each value.
    fn all_xattrs(&self, ino: Ino) -> Result<Arc<Found>> {
        let number = self.file(ino)?.ino;
        if let Some(found) = self.xattrs.get(&number.into()) {
            return Ok(found);
        }
        let found = Arc::new(self.read_names(number)?);
        Ok(self.xattrs.put(number.into(), found))
    }

    fn read_names(&self, number: u32) -> Result<Found> {
        let (mut found, mut len) = (BTreeMap::<Vec<u8>, (u32, Xattr)>::new(), 0_usize);
        for (sequence, xattr) in self.catalogue.xattrs(number) {
            let Some(name) = self.xattr_name(xattr)? else { continue };
            let name_len = name.len().saturating_add(1);
            match found.entry(name) {
                Entry::Occupied(mut known) if known.get().0 < sequence => {
                    known.insert((sequence, *xattr));
                }
                Entry::Occupied(_) => {}
                Entry::Vacant(place) => {
                    len = len.saturating_add(name_len);
                    place.insert((sequence, *xattr));
                }
            }
            if len > LIST_MAX {
                return Ok(Found::TooMany);
            }
        }
        Ok(Found::All(found.into_iter().map(|(name, (_, xattr))| (name, xattr)).collect()))
    }

    /// Returns the newest attribute of a name, and reads the names of the same namespace and length only.
    fn find_xattr(&self, ino: Ino, name: &[u8]) -> Result<Option<Xattr>> {
        let Some((prefix, rest)) = split(name) else { return Ok(None) };
        let mut newest: Option<(u32, Xattr)> = None;
        for (sequence, xattr) in self.catalogue.xattrs(self.file(ino)?.ino) {
            let is_list = prefix == ACCESS || prefix == DEFAULT;
            let may_be = xattr.prefix == prefix && (is_list || usize::from(xattr.name_len) == rest.len());
            if may_be
                && newest.is_none_or(|(known, _)| known < sequence)
                && self.xattr_name(xattr)?.as_deref() == Some(name)
            {
                newest = Some((sequence, *xattr));
            }
        }
        Ok(newest.map(|(_, xattr)| xattr))
    }

    /// Returns the name with its namespace, or `None` if Linux does not show the attribute.
    fn xattr_name(&self, xattr: &Xattr) -> Result<Option<Vec<u8>>> {
        let prefix = PREFIXES.iter().find(|(number, _)| *number == xattr.prefix);
        let Some(&(number, prefix)) = prefix else { return Ok(None) };
        if number == ACCESS || number == DEFAULT {
            return Ok(Some(prefix.to_vec()));
        }
        let mut name = vec![0; xattr.name_len.into()];
        self.device_ref().read_at(xattr.data_at(), &mut name)?;
        let is_name = !name.is_empty() && !name.contains(&0);
        Ok(is_name.then(|| [prefix, &name].concat()))
    }
}

impl Xattrs for Volume {
    fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let xattr = match &*self.all_xattrs(ino)? {
            Found::All(found) => found.get(name).copied(),
            Found::TooMany => self.find_xattr(ino, name)?,
        };
        let xattr = xattr.ok_or(Error::NoData)?;
        let mut data = vec![0; xattr.data_len()];
        self.device_ref().read_at(xattr.data_at(), &mut data)?;
        let value = data.split_off(to_usize(xattr.name_len.into()).saturating_add(1).min(data.len()));
        if xattr.prefix != ACCESS && xattr.prefix != DEFAULT {
            return Ok(value);
        }
        let wrong = || self.file(ino).map_or(Error::Stale, |file| self.field(file, "acl", xattr.id.into()));
        acl(self.order(), &value).ok_or_else(wrong)
    }

    fn list_xattrs(&self, ino: Ino, sink: &mut dyn FnMut(&[u8])) -> Result<()> {
        match &*self.all_xattrs(ino)? {
            Found::All(found) => found.keys().for_each(|name| sink(name)),
            Found::TooMany => return Err(Error::Unsupported(TOO_MANY)),
        }
        Ok(())
    }

    fn set_xattr(&self, _ino: Ino, _name: &[u8], _value: &[u8], _mode: XattrMode) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn remove_xattr(&self, _ino: Ino, _name: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }
}

/// Returns an access control list as `getxattr(2)` does: version 2, and an ID in each entry.
fn acl(order: Order, value: &[u8]) -> Option<Vec<u8>> {
    if order.u32(value, 0)? != ACL_VERSION {
        return None;
    }
    let mut output = Vec::from(2_u32.to_le_bytes());
    let mut rest = value.get(4..)?;
    while !rest.is_empty() {
        let (tag, rights) = (order.u16(rest, 0)?, order.u16(rest, 2)?);
        let is_named = NAMED.contains(&tag);
        let id = if is_named { order.u32(rest, 4)? } else { u32::MAX };
        output.extend(tag.to_le_bytes().into_iter().chain(rights.to_le_bytes()).chain(id.to_le_bytes()));
        rest = rest.get(if is_named { 8 } else { 4 }..)?;
    }
    Some(output)
}

/// Returns the number of a namespace and the rest of a name.
pub fn split(name: &[u8]) -> Option<(u8, &[u8])> {
    PREFIXES.iter().find_map(|&(number, prefix)| {
        let rest = name.strip_prefix(prefix)?;
        let is_whole = number == ACCESS || number == DEFAULT;
        (is_whole == rest.is_empty()).then_some((number, rest))
    })
}

/// Returns a value as it is stored, from the form of `getxattr(2)`. Returns `None` for a list that cannot be stored.
pub fn stored(order: Order, prefix: u8, value: &[u8]) -> Option<Vec<u8>> {
    if prefix != ACCESS && prefix != DEFAULT {
        return Some(value.to_vec());
    }
    if Order::Little.u32(value, 0)? != 2 {
        return None;
    }
    let mut output = Vec::from(order.bytes32(ACL_VERSION));
    for entry in value.get(4..)?.chunks(8) {
        let (tag, rights) = (Order::Little.u16(entry, 0)?, Order::Little.u16(entry, 2)?);
        let id = Order::Little.u32(entry, 4)?;
        output.extend(order.bytes16(tag).into_iter().chain(order.bytes16(rights)));
        if NAMED.contains(&tag) {
            output.extend(order.bytes32(id));
        }
    }
    Some(output)
}
