//! Inodes.
//!
//! Source: Linux `fs/bcachefs/inode_format.h`, `inode.c` (`bch2_inode_unpack_v1`, `_v2`, `_v3`, `inode_decode_field`),
//! `varint.c` (`bch2_varint_decode`), `inode.h` (`bch2_inode_nlink_get`).

use obento_base::{DeviceNumber, FileFlags, FileKind, Generation, Mode, Timestamp};

use crate::btree::key::{Key, kind};
use crate::layout::bytes::{bits, bits32, u16_at, u32_at, u64_at};
use crate::layout::super_block::SuperBlock;

/// `BCH_INODE_UNLINKED`
const UNLINKED: u32 = 7;
/// Most fields after the fixed part.
const FIELDS: usize = 32;

/// An inode.
#[derive(Clone, Copy, Debug)]
pub struct Inode {
    /// `bi_hash_seed`
    pub seed: u64,
    /// Method of hashes of names.
    pub hash: u8,
    /// Kind of the file.
    pub kind: FileKind,
    /// Permissions.
    pub mode: Mode,
    /// Size in bytes.
    pub size: u64,
    /// Allocated sectors.
    pub sectors: u64,
    flags: u64,
    times: [u64; 4],
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    links: u32,
    /// Generation of the number.
    pub generation: Generation,
    /// `bi_dev`
    pub device: DeviceNumber,
    /// Project ID.
    pub project: u32,
    /// Directory that contains the name.
    pub parent: u64,
    /// The subvolume whose root this is; 0 for other inodes.
    pub subvolume: u32,
    /// The subvolume that contains the name of such a root.
    pub parent_subvolume: u32,
}

/// Returns the number at the start of `bytes` and its length. The low bits of the first byte say how many bytes follow.
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let count = bytes.first()?.trailing_ones();
    if count >= 8 {
        return Some((u64_at(bytes, 1)?, 9));
    }
    let len = usize::try_from(count).ok()?.checked_add(1)?;
    let mut word = [0; 8];
    word.get_mut(..len)?.copy_from_slice(bytes.get(..len)?);
    Some((u64::from_le_bytes(word).checked_shr(count.checked_add(1)?)?, len))
}

/// Returns a field of the first encoding: big-endian, the highest bit of the first byte says how many bytes follow.
fn old_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    const LENGTHS: [usize; 8] = [1, 2, 3, 4, 6, 8, 10, 13];
    let first = *bytes.first()?;
    let len = *LENGTHS.get(usize::try_from(first.leading_zeros()).ok()?)?;
    let mut number = 0_u128;
    for (index, &byte) in bytes.get(..len)?.iter().enumerate() {
        let mark = if index == 0 { 0x80_u8.checked_shr(first.leading_zeros()).unwrap_or(0) } else { 0 };
        number = number << 8 | u128::from(byte ^ mark);
    }
    Some((u64::try_from(number).ok()?, len))
}

/// How the fields are encoded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Encoding {
    /// One number each.
    Old,
    /// One number each, and two for a field of 96 bits.
    New,
}

/// Reads the fields. The first four are times and have 96 bits, of which the high ones must be 0.
fn fields(mut bytes: &[u8], count: u64, encoding: Encoding) -> Option<[u64; FIELDS]> {
    let mut found = [0; FIELDS];
    for (index, field) in found.iter_mut().enumerate() {
        if obento_base::wire::to_u64(index) >= count {
            break;
        }
        let (value, len) = if encoding == Encoding::Old { old_varint(bytes)? } else { varint(bytes)? };
        bytes = bytes.get(len..)?;
        *field = value;
        if index < 4 && encoding == Encoding::New {
            let (high, len) = varint(bytes)?;
            bytes = bytes.get(len..)?;
            if high != 0 {
                return None;
            }
        }
    }
    Some(found)
}

impl Inode {
    /// Decodes the value of a key of the tree of inodes. Returns `None` for damage.
    pub fn decode(key: Key<'_>) -> Option<Self> {
        let value = key.value;
        match key.kind {
            kind::INODE_V3 => {
                let flags = u64_at(value, 16)?;
                let start = usize::try_from(bits(flags, 31, 36)).ok()?.checked_mul(8)?;
                let found = fields(value.get(start.max(48)..)?, bits(flags, 24, 31), Encoding::New)?;
                let mode = u16::try_from(bits(flags, 36, 52)).ok()?;
                Self::of(u64_at(value, 8)?, flags, mode, u64_at(value, 32)?, u64_at(value, 24)?, &found)
            }
            kind::INODE_V2 => {
                let flags = u64_at(value, 16)?;
                let found = fields(value.get(26..)?, bits(flags, 24, 31), Encoding::New)?;
                Self::of_old(u64_at(value, 8)?, flags, u16_at(value, 24)?, &found)
            }
            kind::INODE => {
                let flags = u64::from(u32_at(value, 8)?);
                let encoding = if bits(flags, 31, 32) == 1 { Encoding::New } else { Encoding::Old };
                let found = fields(value.get(14..)?, bits(flags, 24, 31), encoding)?;
                Self::of_old(u64_at(value, 0)?, flags, u16_at(value, 12)?, &found)
            }
            _ => None,
        }
    }

    /// Versions 1 and 2 have size and sectors among the fields.
    fn of_old(seed: u64, flags: u64, mode: u16, fields: &[u64; FIELDS]) -> Option<Self> {
        let [a, b, c, d, size, sectors, ..] = *fields;
        let mut rest = [0; FIELDS];
        let (times, tail) = rest.split_at_mut(4);
        times.copy_from_slice(&[a, b, c, d]);
        tail.iter_mut().zip(fields.iter().skip(6)).for_each(|(to, from)| *to = *from);
        Self::of(seed, flags, mode, size, sectors, &rest)
    }

    /// The fields in the order of version 3 (`BCH_INODE_FIELDS_v3`).
    fn of(seed: u64, flags: u64, mode: u16, size: u64, sectors: u64, fields: &[u64; FIELDS]) -> Option<Self> {
        let [atime, ctime, mtime, otime, uid, gid, links, generation, device, ..] = *fields;
        let [.., project, _, _, _, _, _, _, _, parent, _, subvolume, parent_subvolume] =
            *fields.first_chunk::<23>()?;
        let half = |value: u64| u32::try_from(value).ok();
        let device = half(device)?;
        Some(Self {
            seed,
            hash: u8::try_from(bits(flags, 20, 24)).ok()?,
            kind: FileKind::from_mode(mode)?,
            mode: Mode::new(mode),
            size,
            sectors,
            flags,
            times: [atime, ctime, mtime, otime],
            uid: half(uid)?,
            gid: half(gid)?,
            links: half(links)?,
            generation: Generation(half(generation)?),
            // `dev_t` of the kernel.
            device: DeviceNumber { major: device >> 20, minor: device & 0xf_ffff },
            // Options are stored with 1 added.
            project: half(project)?.saturating_sub(1),
            parent,
            subvolume: half(subvolume)?,
            parent_subvolume: half(parent_subvolume)?,
        })
    }

    /// Returns the link count, which is stored without the links that every file has.
    pub fn links(&self) -> u32 {
        if bits(self.flags, UNLINKED, UNLINKED.saturating_add(1)) == 1 {
            return 0;
        }
        self.links.saturating_add(if self.kind == FileKind::Directory { 2 } else { 1 })
    }

    /// Returns the flags that Linux shows.
    pub fn file_flags(&self) -> FileFlags {
        let known = [
            (0, FileFlags::SYNC),
            (1, FileFlags::IMMUTABLE),
            (2, FileFlags::APPEND),
            (3, FileFlags::NO_DUMP),
            (4, FileFlags::NO_ATIME),
        ];
        let is_set = |bit: u32| bits32(self.flags, bit, bit.saturating_add(1)) == 1;
        known.into_iter().filter(|&(bit, _)| is_set(bit)).map(|(_, flag)| flag).collect()
    }

    /// Returns the times of access, change, modification and birth.
    pub fn times(&self, super_block: &SuperBlock) -> [Timestamp; 4] {
        self.times.map(|time| to_time(time, super_block))
    }
}

/// Converts a signed number of units since the time base (`bch2_time_to_timespec`).
fn to_time(units: u64, super_block: &SuperBlock) -> Timestamp {
    let units = i128::from(units.wrapping_add(super_block.time_base).cast_signed());
    let nanos = units.saturating_mul(super_block.time_precision.into());
    let (secs, nanos) = (nanos.div_euclid(1_000_000_000), nanos.rem_euclid(1_000_000_000));
    Timestamp::new(i64::try_from(secs).unwrap_or(i64::MAX), u32::try_from(nanos).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_as_many_bytes_as_their_first_byte_says() {
        assert_eq!(varint(&[0]), Some((0, 1)));
        assert_eq!(varint(&[5 << 1]), Some((5, 1)));
        assert_eq!(varint(&[(0x1234_u16 << 2 | 1) as u8, (0x1234_u16 << 2 >> 8) as u8]), Some((0x1234, 2)));
        assert_eq!(varint(&[255, 1, 2, 3, 4, 5, 6, 7, 8]), Some((0x0807_0605_0403_0201, 9)));
        assert_eq!(varint(&[1]), None);
        assert_eq!(varint(&[]), None);
        assert_eq!(old_varint(&[0x85]), Some((5, 1)));
        assert_eq!(old_varint(&[0x41, 0x02]), Some((0x102, 2)));
        assert_eq!(old_varint(&[0]), None);
    }
}
