//! Encrypted files: each has a context, which describes the encryption of the file and its contents.
//!
//! Source: Linux `include/uapi/linux/fscrypt.h`, `fs/crypto/fscrypt_private.h` `union fscrypt_context`; e2fsprogs
//! `e2fsck/encrypted_files.c`.

use alloc::vec::Vec;

use obento_base::Ino;
use obento_base::wire::{FromBytes, join};

use super::attributes::in_block;
use super::inode_check::InodeCheck;
use super::reason::ContextDefect;
use super::view::View;
use crate::raw::RawInode;
use crate::unit::VolBlock;
use crate::xattr::{AttributeArea, AttributeEntry};

/// `EXT4_XATTR_INDEX_ENCRYPTION` and the name of its one attribute.
const ENCRYPTION: (u8, &[u8]) = (9, b"c");
/// Size of the file's own random bytes at the end of a context.
const NONCE: usize = 16;

impl InodeCheck<'_> {
    /// Checks the context of an encrypted file.
    pub(super) fn encryption(&self) -> Result<(), ContextDefect> {
        let context = context_of(self.view, self.ino, self.record).ok_or(ContextDefect::Missing)?;
        match (context.first(), context.len()) {
            (Some(1), 28) | (Some(2), 40) => Ok(()),
            // The format of later versions is unknown.
            (Some(version), _) if *version > 2 => Ok(()),
            _ => Err(ContextDefect::Damaged),
        }
    }
}

/// Returns the encryption of an inode: its context without the file's own bytes, or `None` without a valid context.
pub(super) fn policy_of(view: &View, ino: u32) -> Option<Vec<u8>> {
    let (record, _) = view.record(ino)?;
    let context = context_of(view, ino, &record)?;
    match (context.first(), context.len()) {
        (Some(1), 28) | (Some(2), 40) => {
            context.get(..context.len().saturating_sub(NONCE)).map(<[u8]>::to_vec)
        }
        (Some(0..=2), _) => None,
        // Unknown versions are taken as equal.
        _ => Some(Vec::new()),
    }
}

/// Returns the context in the attributes of an inode.
fn context_of(view: &View, number: u32, record: &[u8]) -> Option<Vec<u8>> {
    let is_context = |entry: &AttributeEntry<'_>| (entry.raw.e_name_index, entry.name) == ENCRYPTION;
    let (raw, _) = RawInode::ref_from_prefix(record).ok()?;
    let extra = record.get(128..130).and_then(|bytes| bytes.first_chunk().copied());
    let start = usize::from(u16::from_le_bytes(extra.unwrap_or_default())).saturating_add(132);
    let (ino, bytes) = (Ino(number.into()), record.get(start..).unwrap_or_default());
    let inside = AttributeArea { ino, block: 0, base: 0, bytes, table: 0 };
    let block = join(raw.i_file_acl_lo.get(), raw.l_i_file_acl_high.get().into());
    let bytes = if block == 0 { Vec::new() } else { view.read(VolBlock(block), 1).unwrap_or_default() };
    let outside = in_block(number, block, &bytes);
    [&inside, &outside].into_iter().find_map(|area| {
        let entry = area.entries().map_while(Result::ok).find(|entry| is_context(entry))?;
        area.value(&entry).ok().map(<[u8]>::to_vec)
    })
}
