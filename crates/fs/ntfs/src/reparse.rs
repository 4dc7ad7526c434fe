//! Reparse points: symbolic links, junctions, and the special files of WSL.
//!
//! A link of Windows leads to a path with a drive letter. The volume is taken for that drive, so that the link stays on
//! it: its target is relative to the directory of the link.
//! Source: MS-FSCC 2.1.2, "Reparse Point Data Structures"; Microsoft, "File access across file systems" (WSL tags).

use alloc::vec::Vec;

use obento_base::FileKind;
use obento_base::wire::to_usize;

use crate::attribute::name::to_utf8;
use crate::layout::bytes::{slice, u16_at, u32_at};

/// Largest reparse point.
pub const LEN_MAX: u64 = 16 << 10;

/// Tags.
pub mod tag {
    /// A junction, or a mounted volume.
    pub const MOUNT_POINT: u32 = 0xa000_0003;
    /// A symbolic link.
    pub const SYMLINK: u32 = 0xa000_000c;
    /// Data in deduplicated chunks.
    pub const DEDUP: u32 = 0x8000_0013;
    /// Data that the overlay filter compressed.
    pub const WOF: u32 = 0x8000_0017;
    /// A socket of WSL.
    pub const AF_UNIX: u32 = 0x8000_0023;
    /// A FIFO of WSL.
    pub const LX_FIFO: u32 = 0x8000_0024;
    /// A character device of WSL.
    pub const LX_CHR: u32 = 0x8000_0025;
    /// A block device of WSL.
    pub const LX_BLK: u32 = 0x8000_0026;
    /// A symbolic link of WSL.
    pub const LX_SYMLINK: u32 = 0xa000_001d;
}

/// A reparse point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reparse {
    /// Tag: which program follows it.
    pub tag: u32,
    /// Data for that program.
    pub data: Vec<u8>,
}

/// The target of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// As it is: a relative path, or one that leads to another machine or volume.
    Exact(Vec<u8>),
    /// Relative to the root of the volume.
    FromRoot(Vec<u8>),
}

impl Reparse {
    /// Decodes the value of a `$REPARSE_POINT` attribute.
    pub fn decode(value: &[u8]) -> Option<Self> {
        let tag = u32_at(value, 0)?;
        let len = usize::from(u16_at(value, 4)?);
        Some(Self { tag, data: slice(value, 8, len)?.to_vec() })
    }

    /// Returns the kind of the file, if the tag determines it.
    pub fn kind(&self) -> Option<FileKind> {
        Some(match self.tag {
            tag::SYMLINK | tag::MOUNT_POINT | tag::LX_SYMLINK => FileKind::Symlink,
            tag::AF_UNIX => FileKind::Socket,
            tag::LX_FIFO => FileKind::Fifo,
            tag::LX_CHR => FileKind::CharDevice,
            tag::LX_BLK => FileKind::BlockDevice,
            _ => return None,
        })
    }

    /// Returns the target of a link.
    pub fn target(&self) -> Option<Target> {
        let (names, is_relative) = match self.tag {
            // Bytes 0 to 3: the version, 2.
            tag::LX_SYMLINK => return Some(Target::Exact(self.data.get(4..)?.to_vec())),
            tag::SYMLINK => (12, u32_at(&self.data, 8)? & 1 != 0),
            tag::MOUNT_POINT => (8, false),
            _ => return None,
        };
        let name = |at: usize| {
            let start = usize::from(u16_at(&self.data, at)?).checked_add(names)?;
            slice(&self.data, start, u16_at(&self.data, at.checked_add(2)?)?.into())
        };
        // The print name is for people, and may be empty.
        let path = name(0).filter(|path| !path.is_empty()).or_else(|| name(4))?;
        Some(translate(&to_utf8(path), is_relative))
    }
}

/// Converts a path of Windows.
fn translate(path: &[u8], is_relative: bool) -> Target {
    let slashes = |path: &[u8]| -> Vec<u8> {
        path.iter().map(|&byte| if byte == b'\\' { b'/' } else { byte }).collect()
    };
    let plain = path.strip_prefix(br"\??\").or_else(|| path.strip_prefix(br"\\?\")).unwrap_or(path);
    match plain {
        [letter, b':', rest @ ..] if letter.is_ascii_alphabetic() => {
            let start =
                to_usize(rest.iter().take_while(|byte| matches!(byte, b'\\' | b'/')).map(|_| 1_u64).sum());
            Target::FromRoot(slashes(rest.get(start..).unwrap_or_default()))
        }
        [b'U', b'N', b'C', b'\\', rest @ ..] if plain.len() < path.len() => {
            let mut target = Vec::from(*b"//");
            target.extend(slashes(rest));
            Target::Exact(target)
        }
        // From the root of the drive of the link.
        [b'\\', rest @ ..] if is_relative && !rest.starts_with(b"\\") => Target::FromRoot(slashes(rest)),
        _ => Target::Exact(slashes(path)),
    }
}

impl Target {
    /// Returns the target as a path from a directory that is `depth` directories below the root.
    pub fn seen_from(self, depth: usize) -> Vec<u8> {
        match self {
            Self::Exact(path) if path.is_empty() => Vec::from(*b"."),
            Self::Exact(path) => path,
            Self::FromRoot(path) => {
                let mut target = Vec::new();
                for _ in 0..depth {
                    target.extend_from_slice(b"../");
                }
                target.extend(path);
                while target.len() > 1 && target.last() == Some(&b'/') {
                    target.pop();
                }
                if target.is_empty() { Vec::from(*b".") } else { target }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(tag: u32, path: &str, flags: &[u8]) -> Reparse {
        let units: Vec<u8> = path.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let len = (units.len() as u16).to_le_bytes();
        let mut data = [&[0, 0][..], &len, &len, &[0, 0], flags].concat();
        data.extend(units);
        Reparse { tag, data }
    }

    #[test]
    fn links_with_a_drive_letter_stay_on_the_volume() {
        let target = |path, depth| link(tag::MOUNT_POINT, path, &[]).target().unwrap().seen_from(depth);
        assert_eq!(target(r"\??\C:\Users\All Users", 2), b"../../Users/All Users");
        assert_eq!(target(r"\??\D:\", 1), b"..");
        assert_eq!(target(r"\??\D:\", 0), b".");
        assert_eq!(target(r"\??\Volume{1234}\", 1), b"/??/Volume{1234}/");
        assert_eq!(target(r"\??\UNC\server\share", 3), b"//server/share");
    }

    #[test]
    fn relative_links_keep_their_path() {
        let target = |path, flags: &[u8]| link(tag::SYMLINK, path, flags).target().unwrap();
        assert_eq!(target(r"..\a\b", &[1, 0, 0, 0]).seen_from(5), b"../a/b");
        assert_eq!(target(r"\a\b", &[1, 0, 0, 0]).seen_from(1), b"../a/b");
        assert_eq!(target(r"\??\C:\a", &[0; 4]).seen_from(0), b"a");
    }

    #[test]
    fn a_buffer_that_is_too_short_is_not_a_link() {
        assert_eq!(Reparse { tag: tag::SYMLINK, data: Vec::new() }.target(), None);
        assert_eq!(Reparse::decode(&[3, 0, 0, 0xa0, 9, 0, 0, 0, 1]), None);
    }
}
