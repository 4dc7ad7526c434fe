//! Directory entries.
//!
//! Source: Linux `fs/bcachefs/dirent_format.h`, `dirent.c` (`bch2_dirent_get_name`, `bch2_dirent_read_target`).

use obento_base::FileKind;

use crate::btree::key::Key;
use crate::layout::bytes::{slice, u8_at, u16_at, u32_at, u64_at};

/// `DT_SUBVOL`
const SUBVOLUME: u8 = 16;
/// Bit of `d_type` for a name that is compared without regard to case.
const CASEFOLD: u8 = 0x80;

/// What an entry refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// An inode of the same subvolume.
    Inode(u64),
    /// The root of a subvolume, seen from one subvolume alone.
    Subvolume {
        /// The subvolume that contains the name.
        parent: u32,
        /// The subvolume.
        child: u32,
    },
}

/// A directory entry.
#[derive(Clone, Copy, Debug)]
pub struct Dirent<'a> {
    /// What it refers to.
    pub target: Target,
    /// The name.
    pub name: &'a [u8],
    /// The name without differences of case, if the directory ignores them.
    pub folded: Option<&'a [u8]>,
    kind: u8,
}

impl<'a> Dirent<'a> {
    /// Decodes the value of a key.
    pub fn decode(key: Key<'a>) -> Option<Self> {
        let value = key.value;
        let flags = u8_at(value, 8)?;
        let kind = flags & 0x1f;
        let target = if kind == SUBVOLUME {
            Target::Subvolume { child: u32_at(value, 0)?, parent: u32_at(value, 4)? }
        } else {
            Target::Inode(u64_at(value, 0)?)
        };
        if flags & CASEFOLD != 0 {
            let (len, folded) = (usize::from(u16_at(value, 10)?), usize::from(u16_at(value, 12)?));
            let name = slice(value, 14, len)?;
            let folded = Some(slice(value, len.checked_add(14)?, folded)?);
            return Some(Self { target, name, folded, kind });
        }
        let name = value.get(9..)?;
        // NULs fill the last word.
        let len = name.iter().rposition(|&byte| byte != 0).map_or(0, |last| last.saturating_add(1));
        Some(Self { target, name: name.get(..len)?, folded: None, kind })
    }

    /// Returns the kind of the file.
    pub fn kind(&self) -> Option<FileKind> {
        match self.kind {
            SUBVOLUME => Some(FileKind::Directory),
            kind @ 0..16 => FileKind::from_mode(u16::from(kind) << 12),
            _ => None,
        }
    }

    /// Returns whether a subvolume sees the entry.
    pub fn is_seen_by(&self, subvolume: u32) -> bool {
        match self.target {
            Target::Inode(_) => true,
            Target::Subvolume { parent, .. } => parent == subvolume,
        }
    }
}
