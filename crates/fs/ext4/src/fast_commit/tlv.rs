//! The records in a block of the fast-commit area.

use core::mem::offset_of;

use obento_base::Cursor;
use obento_base::wire::to_u64;

use crate::raw::{RawFcAddRange, RawFcDelRange, RawFcDentryInfo, RawFcHead, RawFcInode, RawFcTail, RawFcTl};

/// Maximum length of a name, `EXT4_NAME_LEN`.
const NAME_LEN: usize = 255;
/// `EXT4_GOOD_OLD_INODE_SIZE`
const GOOD_OLD_INODE_SIZE: usize = 128;

/// A decoded record. Names are those of `fs/ext4/fast_commit.h`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tlv<'a> {
    AddRange(&'a RawFcAddRange),
    DelRange(&'a RawFcDelRange),
    Creat(&'a RawFcDentryInfo, &'a [u8]),
    Link(&'a RawFcDentryInfo, &'a [u8]),
    Unlink(&'a RawFcDentryInfo, &'a [u8]),
    Inode(&'a RawFcInode, &'a [u8]),
    Pad,
    Tail(&'a RawFcTail),
    Head(&'a RawFcHead),
}

/// A record with its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Located<'a> {
    /// Byte offset in the block.
    pub(crate) offset: usize,
    /// The part of the record that the checksum covers: all of it, or for a tail only the part before its checksum.
    pub(crate) covered: &'a [u8],
    /// The decoded record.
    pub(crate) tlv: Tlv<'a>,
}

/// The records of a block, up to the first invalid one.
#[derive(Clone, Debug)]
pub(crate) struct Tlvs<'a> {
    cursor: Cursor<'a>,
    inode_size: u16,
    damaged: bool,
}

impl<'a> Tlvs<'a> {
    /// Creates the iterator over `block`, on a volume whose inodes have `inode_size` bytes.
    pub(crate) fn new(block: &'a [u8], inode_size: u16) -> Self {
        Self { cursor: Cursor::new(block), inode_size, damaged: false }
    }

    /// Returns whether an invalid record was found.
    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged
    }

    fn decode(&self, tag: u16, value: &'a [u8]) -> Option<Tlv<'a>> {
        let mut cursor = Cursor::new(value);
        let dentry = |mut cursor: Cursor<'a>| {
            let info = cursor.take_raw()?;
            let name = cursor.rest();
            (1..=NAME_LEN).contains(&name.len()).then_some((info, name))
        };
        Some(match tag {
            1 => Tlv::AddRange(exact(value)?),
            2 => Tlv::DelRange(exact(value)?),
            3 => dentry(cursor).map(|(info, name)| Tlv::Creat(info, name))?,
            4 => dentry(cursor).map(|(info, name)| Tlv::Link(info, name))?,
            5 => dentry(cursor).map(|(info, name)| Tlv::Unlink(info, name))?,
            6 => {
                let inode = cursor.take_raw()?;
                let record = cursor.rest();
                let fits = (GOOD_OLD_INODE_SIZE..=self.inode_size.into()).contains(&record.len());
                fits.then_some(Tlv::Inode(inode, record))?
            }
            7 => Tlv::Pad,
            8 => Tlv::Tail(cursor.take_raw()?),
            9 => Tlv::Head(exact(value)?),
            _ => return None,
        })
    }
}

/// Returns the value, if it has exactly the right length.
fn exact<T>(value: &[u8]) -> Option<&T>
where
    T: obento_base::wire::FromBytes
        + obento_base::wire::KnownLayout
        + obento_base::wire::Immutable
        + obento_base::wire::Unaligned,
{
    T::ref_from_bytes(value).ok()
}

impl<'a> Iterator for Tlvs<'a> {
    type Item = Located<'a>;

    fn next(&mut self) -> Option<Located<'a>> {
        if self.damaged {
            return None;
        }
        let (offset, whole) = (self.cursor.position(), self.cursor.rest());
        let tl = self.cursor.take_raw::<RawFcTl>()?;
        let value = self.cursor.take(usize::from(tl.fc_len.get()));
        let Some(tlv) = value.and_then(|value| self.decode(tl.fc_tag.get(), value)) else {
            self.damaged = true;
            return None;
        };
        let covered = match tlv {
            Tlv::Tail(_) => size_of::<RawFcTl>().saturating_add(offset_of!(RawFcTail, fc_crc)),
            _ => self.cursor.position().saturating_sub(offset),
        };
        debug_assert!(to_u64(covered) <= to_u64(whole.len()));
        Some(Located { offset, covered: whole.get(..covered).unwrap_or_default(), tlv })
    }
}
