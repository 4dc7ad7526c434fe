//! Usage types and their defaults: the contents of `/etc/mke2fs.conf` of e2fsprogs 1.47.0 on Debian.
//!
//! obento reads no such file, so that the same command creates the same volume everywhere.

use alloc::string::ToString;
use alloc::vec::Vec;

use obento_driver::{Allowed, FormatError};

use crate::size::BlockSize;

/// The settings of one usage type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Usage {
    name: &'static str,
    block_size: Option<BlockSize>,
    inode_ratio: Option<u64>,
}

/// `[fs_types]` except ext3 and ext4. A block size of -1 there means a page, and here the size of most pages.
const USAGES: [Usage; 7] = [
    usage("small", Some(BlockSize::MIN), 4096),
    usage("floppy", Some(BlockSize::MIN), 8192),
    usage("big", None, 32_768),
    usage("huge", None, 65_536),
    usage("news", None, 4096),
    usage("largefile", Some(BlockSize::USUAL), 1 << 20),
    usage("largefile4", Some(BlockSize::USUAL), 4 << 20),
];
const NAMES: &[&str] = &["default", "small", "floppy", "big", "huge", "news", "largefile", "largefile4"];

const fn usage(name: &'static str, block_size: Option<BlockSize>, inode_ratio: u64) -> Usage {
    Usage { name, block_size, inode_ratio: Some(inode_ratio) }
}

/// The defaults for a use of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Defaults {
    pub block_size: BlockSize,
    /// Number of bytes of the volume per inode.
    pub inode_ratio: u64,
}

impl Defaults {
    /// Returns the defaults of the usage types in `names`, separated by commas, or of a volume of `len` bytes. Fails
    /// with `BadValue`.
    pub fn new(names: Option<&str>, len: u64) -> Result<Self, FormatError> {
        let names: Vec<&str> = match names {
            Some(names) => names.split(',').filter(|name| !name.is_empty()).collect(),
            None => Vec::from([by_size(len)]),
        };
        let mut defaults = Self { block_size: BlockSize::USUAL, inode_ratio: 16_384 };
        for name in names {
            if name == "default" {
                continue;
            }
            let bad = || FormatError::BadValue {
                name: "usage",
                value: name.to_string(),
                allowed: Allowed::Words(NAMES),
            };
            let usage = USAGES.iter().find(|usage| usage.name == name).ok_or_else(bad)?;
            defaults.block_size = usage.block_size.unwrap_or(defaults.block_size);
            defaults.inode_ratio = usage.inode_ratio.unwrap_or(defaults.inode_ratio);
        }
        Ok(defaults)
    }
}

/// Returns the usage type for the size of a volume: `parse_fs_type`.
fn by_size(len: u64) -> &'static str {
    const MIB: u64 = 1 << 20;
    const TIB: u64 = 1 << 40;
    match len {
        _ if len < 3 * MIB => "floppy",
        _ if len < 512 * MIB => "small",
        _ if len < 4 * TIB => "default",
        _ if len < 16 * TIB => "big",
        _ => "huge",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_decides_unless_a_usage_is_named() {
        let of = |names, len| Defaults::new(names, len).map(|d| (d.block_size.bytes(), d.inode_ratio));
        assert_eq!(of(None, 1 << 20), Ok((1024, 8192)));
        assert_eq!(of(None, 1 << 28), Ok((1024, 4096)));
        assert_eq!(of(None, 1 << 29), Ok((4096, 16_384)));
        assert_eq!(of(None, 5 << 40), Ok((4096, 32_768)));
        assert_eq!(of(None, 17 << 40), Ok((4096, 65_536)));
        assert_eq!(of(Some("small,largefile4"), 17 << 40), Ok((4096, 4 << 20)));
        assert!(of(Some("hurd"), 1).is_err());
    }
}
