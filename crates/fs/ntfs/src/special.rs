//! Attributes of Linux files: the extended attributes of WSL, and the special files of Interix, which ntfs-3g writes.
//!
//! Source: Microsoft, "File permissions for WSL"; ntfs-3g manual, `special_files`; linux-ntfs documentation, "$EA".

use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{DeviceNumber, FileKind};

use crate::attribute::name::to_utf8;
use crate::layout::bytes::{slice, u16_at, u32_at, u64_at};

/// Largest value of a `$EA` attribute.
pub const EA_MAX: u64 = 64 << 10;
/// Longest contents of a special file of Interix: a link.
pub const SPECIAL_MAX: usize = 8 + 2 * 4096;

/// The attributes that WSL stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wsl {
    /// `$LXUID`
    pub uid: Option<u32>,
    /// `$LXGID`
    pub gid: Option<u32>,
    /// `$LXMOD`: type and permissions.
    pub mode: Option<u32>,
    /// `$LXDEV`
    pub device: Option<DeviceNumber>,
}

impl Wsl {
    /// Decodes the value of a `$EA` attribute.
    pub fn decode(value: &[u8]) -> Self {
        let mut found = Self::default();
        for (name, value) in entries(value) {
            let number = u32_at(value, 0);
            match name {
                b"$LXUID" => found.uid = number,
                b"$LXGID" => found.gid = number,
                b"$LXMOD" => found.mode = number,
                b"$LXDEV" => {
                    found.device =
                        number.zip(u32_at(value, 4)).map(|(major, minor)| DeviceNumber { major, minor });
                }
                _ => {}
            }
        }
        found
    }
}

/// Returns the names and values of extended attributes.
pub fn entries(value: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut at = Some(0_usize);
    core::iter::from_fn(move || {
        let start = at?;
        let entry = value.get(start..)?;
        let next = to_usize(u32_at(entry, 0)?.into());
        let (name_len, len) = (usize::from(*entry.get(5)?), usize::from(u16_at(entry, 6)?));
        let name = slice(entry, 8, name_len)?;
        // A NUL is between name and value.
        let found = slice(entry, name_len.checked_add(9)?, len)?;
        at = start.checked_add(next).filter(|_| next >= 8);
        Some((name, found))
    })
}

/// A special file of Interix: a file with the attribute `system` and such contents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Special {
    /// A link and its target.
    Link(Vec<u8>),
    /// A device.
    Device(FileKind, DeviceNumber),
    /// A FIFO or a socket.
    Other(FileKind),
}

impl Special {
    /// Decodes the contents of a file of `size` bytes.
    pub fn decode(contents: &[u8], size: u64) -> Option<Self> {
        let device = |kind| {
            let number = |at| u64_at(contents, at).and_then(|number| u32::try_from(number).ok());
            Some(Self::Device(kind, DeviceNumber { major: number(8)?, minor: number(16)? }))
        };
        match (size, contents.first_chunk::<8>()) {
            (0, _) => Some(Self::Other(FileKind::Fifo)),
            (1, _) => Some(Self::Other(FileKind::Socket)),
            (24, Some(b"IntxCHR\0")) => device(FileKind::CharDevice),
            (24, Some(b"IntxBLK\0")) => device(FileKind::BlockDevice),
            (_, Some(b"IntxLNK\x01")) => {
                let target = to_utf8(contents.get(8..)?);
                let len = target.iter().position(|&byte| byte == 0).unwrap_or(target.len());
                target
                    .get(..len)
                    .filter(|target| !target.is_empty())
                    .map(|target| Self::Link(target.to_vec()))
            }
            _ => None,
        }
    }

    /// Returns the kind of the file.
    pub fn kind(&self) -> FileKind {
        match self {
            Self::Link(_) => FileKind::Symlink,
            Self::Device(kind, _) | Self::Other(kind) => *kind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extended_attributes_follow_each_other() {
        let mut value = Vec::from(*b"\x1c\0\0\0\0\x06\x08\0$LXDEV\0\x04\0\0\0\x40\0\0\0");
        value.resize(28, 0);
        for (name, number, next) in [(b"$LXUID", 1000_u32, 20_u32), (b"$LXMOD", 0o100_640, 0)] {
            value.extend(next.to_le_bytes());
            value.extend([0, 6, 4, 0]);
            value.extend(name);
            value.push(0);
            value.extend(number.to_le_bytes());
            value.push(0);
        }
        let found = Wsl::decode(&value);
        assert_eq!((found.uid, found.gid, found.mode), (Some(1000), None, Some(0o100_640)));
        assert_eq!(found.device, Some(DeviceNumber { major: 4, minor: 64 }));
        assert_eq!(Wsl::decode(&[1, 0, 0, 0, 0, 200, 0, 0]), Wsl::default());
    }

    #[test]
    fn special_files_of_interix_are_recognised() {
        assert_eq!(Special::decode(b"IntxLNK\x01a\0/\0b\0", 14), Some(Special::Link(b"a/b".to_vec())));
        assert_eq!(Special::decode(b"", 0), Some(Special::Other(FileKind::Fifo)));
        let device = [&b"IntxCHR\0"[..], &5_u64.to_le_bytes(), &1_u64.to_le_bytes()].concat();
        let number = DeviceNumber { major: 5, minor: 1 };
        assert_eq!(Special::decode(&device, 24), Some(Special::Device(FileKind::CharDevice, number)));
        assert_eq!(Special::decode(b"contents", 8), None);
    }
}
