//! The super block, its copies, and what is refused.
//!
//! Source: Linux `fs/bcachefs/bcachefs_format.h` (`struct bch_sb`, `struct bch_sb_layout`) and `super-io.c`
//! (`bch2_read_super`, `bch2_sb_validate`).

use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Corrupt, Error, Feature, Result, Structure};
use obento_block::BlockDevice;

use super::bytes::{bits, bits32, slice, u8_at, u16_at, u32_at, u64_at};
use super::fields::{self, Clean, Member};
use crate::checksum::Method;

/// Bytes of a sector, the unit of all positions on disk.
pub const SECTOR: u64 = 512;
/// Byte offset of the first super block (`BCH_SB_SECTOR`).
pub const OFFSET: u64 = 8 * SECTOR;
/// Byte offset of the table of super blocks (`BCH_SB_LAYOUT_SECTOR`).
const LAYOUT_OFFSET: u64 = 7 * SECTOR;
/// `BCHFS_MAGIC`.
pub const MAGIC: [u8; 16] =
    [0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef];
/// Bytes before the fields.
const FIXED: usize = 752;
/// Largest super block: `sb_max_size_bits` of 16, as `bch2_sb_realloc` bounds it.
const LEN_MAX: usize = 65536 * 512;
/// Newest version that is supported: `inode_has_case_insensitive` of Linux 6.16 and 6.17.
pub const VERSION_MAX: u16 = 1 << 10 | 28;
/// Oldest version that is supported: the first one that promises compatibility.
pub const VERSION_MIN: u16 = 1 << 10;

/// `BCH_SB_FEATURES`, by bit.
const FEATURES: [&str; 23] = [
    "lz4",
    "gzip",
    "zstd",
    "atomic_nlink",
    "ec",
    "journal_seq_blacklist_v3",
    "reflink",
    "new_siphash",
    "inline_data",
    "new_extent_overwrite",
    "incompressible",
    "btree_ptr_v2",
    "extents_above_btree_updates",
    "btree_updates_journalled",
    "reflink_inline_data",
    "new_varint",
    "journal_no_flush",
    "alloc_v2",
    "extents_across_btree_nodes",
    "incompat_version_field",
    "casefolding",
    "no_alloc_info",
    "small_image",
];
const EC: u32 = 4;
const NEW_EXTENT_OVERWRITE: u32 = 9;
/// `BCH_FEATURE_casefolding`
const CASEFOLDING: u32 = 20;

/// The parts of a super block that reading needs.
#[derive(Clone, Debug)]
pub struct SuperBlock {
    /// Sector at which this copy lies.
    pub sector: u64,
    /// `version`
    pub version: u16,
    /// `version_min`: the oldest version of any structure of the volume.
    pub version_min: u16,
    /// `uuid`: identifies structures of the volume.
    pub internal_id: [u8; 16],
    /// `user_uuid`
    pub uuid: [u8; 16],
    /// `label`, without its padding.
    pub label: Vec<u8>,
    /// `seq`
    pub seq: u64,
    /// Sectors of a block.
    pub block_sectors: u16,
    /// `dev_idx`: number of the device in pointers.
    pub device: u8,
    /// `nr_devices`
    pub devices: u8,
    /// `time_base_lo`
    pub time_base: u64,
    /// `time_precision`: nanoseconds of a unit of time.
    pub time_precision: u32,
    /// `flags`
    pub flags: [u64; 8],
    /// `features[0]`
    pub features: u64,
    /// The device.
    pub member: Member,
    /// Buckets of the journal: first bucket and number of buckets.
    pub journal: Vec<(u64, u64)>,
    /// Sequence numbers that recovery skipped.
    pub blacklist: Vec<(u64, u64)>,
    /// Roots and counters of a clean volume.
    pub clean: Option<Clean>,
}

fn field(name: &'static str, offset: u32, found: u64) -> Error {
    Corrupt::Field { structure: Structure::SuperBlock, field: name, block: 0, offset, found }.into()
}

impl SuperBlock {
    /// Decodes a super block and verifies its checksum.
    fn decode(bytes: &[u8], sector: u64) -> Result<Self> {
        let short = || field("u64s", 124, 0);
        let word = |at| u64_at(bytes, at).ok_or_else(short);
        let half = |at| u16_at(bytes, at).ok_or_else(short);
        let identifier = |at| -> Result<[u8; 16]> {
            slice(bytes, at, 16).and_then(|id| id.try_into().ok()).ok_or_else(short)
        };
        if identifier(24)? != MAGIC {
            return Err(field("magic", 24, word(24)?));
        }
        let mut flags = [0; 8];
        for (flag, at) in flags.iter_mut().zip((144..).step_by(8)) {
            *flag = word(at)?;
        }
        verify(bytes, bits(flags[0], 2, 8))?;
        if word(104)? != sector {
            return Err(field("offset", 104, word(104)?));
        }
        let label = slice(bytes, 72, 32).unwrap_or_default();
        let label = label.split(|&byte| byte == 0).next().unwrap_or_default().to_vec();
        let is_big = bits(flags[0], 62, 63) == 1;
        let all = fields::Fields::new(bytes.get(FIXED..).unwrap_or_default());
        let device = u8_at(bytes, 122).unwrap_or(0);
        let found = Self {
            sector,
            version: half(16)?,
            version_min: half(18)?,
            internal_id: identifier(40)?,
            uuid: identifier(56)?,
            label,
            seq: word(112)?,
            block_sectors: half(120)?,
            device,
            devices: u8_at(bytes, 123).unwrap_or(0),
            time_base: word(128)?,
            time_precision: u32_at(bytes, 140).unwrap_or(0),
            flags,
            features: word(208)?,
            member: all.member(device).ok_or_else(|| field("members", 752, 0))?,
            journal: all.journal(),
            blacklist: all.blacklist(),
            clean: all.clean(is_big),
        };
        found.expect_geometry()?;
        Ok(found)
    }

    fn expect_geometry(&self) -> Result<()> {
        if !self.block_sectors.is_power_of_two() || self.block_sectors > 128 {
            return Err(field("block_size", 120, self.block_sectors.into()));
        }
        let node = self.node_sectors();
        if !node.is_power_of_two() || node < self.block_sectors.into() || node > 8192 {
            return Err(field("btree_node_size", 144, node.into()));
        }
        if self.member.bucket_sectors == 0 {
            return Err(field("bucket_size", 752, 0));
        }
        if self.time_precision == 0 || self.time_precision > 1_000_000_000 {
            return Err(field("time_precision", 140, self.time_precision.into()));
        }
        Ok(())
    }

    /// Checks that the driver can read such a volume.
    ///
    /// # Errors
    ///
    /// - `Unsupported`: it cannot; the feature is named.
    pub fn expect_supported(&self) -> Result<()> {
        let named = |name| Err(Error::Unsupported(Feature::Named(name)));
        // BCH_SB_VERSION_INCOMPAT: structures that older programs cannot read are at most this new.
        let incompatible = bits32(self.flags[5], 32, 48);
        let newest = if self.has(19) { incompatible } else { u32::from(self.version) };
        if self.version_min < VERSION_MIN {
            return named("bcachefs metadata older than version 1.0");
        }
        if self.version >> 10 != VERSION_MAX >> 10
            || self.version_min > VERSION_MAX
            || newest > VERSION_MAX.into()
        {
            return named("bcachefs metadata newer than version 1.28");
        }
        if bits(self.flags[1], 10, 14) != 0 {
            return named("encryption");
        }
        if self.devices > 1 {
            return named("a bcachefs volume of several devices");
        }
        if self.has(EC) {
            return named("erasure coding");
        }
        let unknown = bits(self.features, 23, 64).wrapping_shl(23);
        if unknown != 0 {
            return Err(Error::Unsupported(Feature::Bits { set: "bcachefs", bits: unknown }));
        }
        if !self.has(NEW_EXTENT_OVERWRITE) {
            return named("overlapping extents of bcachefs before version 1.0");
        }
        Ok(())
    }

    /// Returns whether a feature is set.
    pub fn has(&self, bit: u32) -> bool {
        bits(self.features, bit, bit.saturating_add(1)) == 1
    }

    /// Returns whether names of some directories are compared without regard to case.
    pub fn has_casefolding(&self) -> bool {
        self.has(CASEFOLDING)
    }

    /// Returns the names of the features.
    pub fn feature_names(&self) -> Vec<&'static str> {
        (0_u32..).zip(FEATURES).filter(|&(bit, _)| self.has(bit)).map(|(_, name)| name).collect()
    }

    /// Returns whether the volume was unmounted cleanly (`BCH_SB_CLEAN`).
    pub fn is_clean(&self) -> bool {
        bits(self.flags[0], 1, 2) == 1
    }

    /// Returns whether recovery found errors (`BCH_SB_HAS_ERRORS`, `BCH_SB_HAS_TOPOLOGY_ERRORS`).
    pub fn has_errors(&self) -> bool {
        bits(self.flags[0], 60, 62) != 0
    }

    /// Returns the sectors of a node of a B-tree (`BCH_SB_BTREE_NODE_SIZE`).
    pub fn node_sectors(&self) -> u32 {
        bits32(self.flags[0], 12, 28)
    }

    /// Returns the bytes of a block.
    pub fn block_size(&self) -> u32 {
        u32::from(self.block_sectors).saturating_mul(512)
    }

    /// Returns the length of the volume in bytes.
    pub fn len(&self) -> u64 {
        self.member.buckets.saturating_mul(self.member.bucket_sectors.into()).saturating_mul(SECTOR)
    }

    /// Returns the magic number of a structure of the volume: a constant and the identifier, combined.
    pub fn magic_of(&self, constant: u64) -> u64 {
        constant ^ u64_at(&self.internal_id, 0).unwrap_or(0)
    }
}

fn verify(bytes: &[u8], method: u64) -> Result<()> {
    let method = Method::decode(method)?;
    let (found, expected) = (u64_at(bytes, 0).unwrap_or(0), method.of(bytes.get(16..).unwrap_or_default()));
    if found == expected {
        return Ok(());
    }
    let (found, _) = obento_base::wire::split(found);
    let (expected, _) = obento_base::wire::split(expected);
    Err(Corrupt::Checksum { structure: Structure::SuperBlock, block: 0, found, expected }.into())
}

/// Returns whether the magic number is at the place of the first super block.
pub fn has_magic(device: &dyn BlockDevice) -> Result<bool> {
    let mut magic = [0; 16];
    if device.len() < OFFSET.saturating_add(to_u64(FIXED)) {
        return Ok(false);
    }
    device.read_at(OFFSET.saturating_add(24), &mut magic)?;
    Ok(magic == MAGIC)
}

/// Reads the super block at a sector.
pub fn read(device: &dyn BlockDevice, sector: u64) -> Result<SuperBlock> {
    let offset = sector.checked_mul(SECTOR).ok_or_else(|| field("sb_offset", 24, sector))?;
    let mut fixed = [0; FIXED];
    device.read_at(offset, &mut fixed)?;
    if slice(&fixed, 24, 16) != Some(&MAGIC) {
        return Err(field("magic", 24, u64_at(&fixed, 24).unwrap_or(0)));
    }
    let words = u32_at(&fixed, 124).unwrap_or(0);
    let len = to_usize(u64::from(words).saturating_mul(8)).saturating_add(FIXED);
    if len > LEN_MAX {
        return Err(field("u64s", 124, words.into()));
    }
    let mut bytes = vec![0; len];
    device.read_at(offset, &mut bytes)?;
    SuperBlock::decode(&bytes, sector)
}

/// Reads the super block, or a copy if it is damaged. Returns the damage too.
///
/// # Errors
///
/// - `Corrupt`: neither can be used.
pub fn locate(device: &dyn BlockDevice) -> Result<(SuperBlock, Option<Error>)> {
    let error = match read(device, 8) {
        Ok(found) => return Ok((found, None)),
        Err(error) => error,
    };
    let mut table = [0; 512];
    if device.read_at(LAYOUT_OFFSET, &mut table).is_err() || slice(&table, 0, 16) != Some(&MAGIC) {
        return Err(error);
    }
    let count = usize::from(u8_at(&table, 18).unwrap_or(0)).min(61);
    let sectors = table.get(24..).unwrap_or_default().chunks_exact(8).filter_map(|word| u64_at(word, 0));
    let copies =
        sectors.take(count).filter(|&sector| sector != 8).filter_map(|sector| read(device, sector).ok());
    copies.max_by_key(|copy| copy.seq).map(|copy| (copy, Some(error))).ok_or(error)
}
