//! The super block, which contains the newest checkpoint (`dlfs`, `dlfs64`).

use alloc::vec::Vec;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Corrupt, Error, Feature, Result, Structure};
use obento_block::BlockDevice;
use obento_driver::{Decoded, Probe};

use crate::raw::{Encoding, Order};

/// Position of the first super block (`LFS_LABELPAD`).
pub const FIRST: u64 = 8192;
/// Space of a super block at the start of a segment (`LFS_SBPAD`).
pub const PAD: u64 = 8192;
/// Length of a super block.
pub const LEN: usize = 512;
/// `LFS_MAGIC` and `LFS64_MAGIC`.
pub const MAGIC: u32 = 0x0007_0162;
pub const MAGIC_64: u32 = 0x1962_0701 ^ 0xffff_ffff;
/// Largest block (`MAXBSIZE`).
const BLOCK_MAX: u32 = 65536;

/// A super block whose values are checked.
#[derive(Clone, Debug)]
pub struct SuperBlock {
    /// How the volume stores numbers.
    pub encoding: Encoding,
    /// Length of the volume in bytes.
    pub len: u64,
    /// Length of a block.
    pub block: u32,
    /// Length of a fragment.
    pub fragment: u32,
    /// Length of the unit of addresses.
    pub unit: u32,
    /// Length of a segment in bytes.
    pub segment: u64,
    /// Number of segments.
    pub segments: u32,
    /// Address of the first segment.
    pub start: u64,
    /// Address of the inode of the index file.
    pub index_address: i64,
    /// Inode number of the index file.
    pub index: u64,
    /// Address of the next partial segment.
    pub next: i64,
    /// Number of the newest partial segment, or the time of the checkpoint in version 1.
    pub serial: u64,
    /// Identifier of the volume, which its summaries repeat.
    pub ident: u32,
    /// Inodes in a block of inodes.
    pub inodes: u32,
    /// Entries in a block of the index file.
    pub entries: u32,
    /// Entries in a block of the segment table.
    pub usages: u32,
    /// Blocks of the index file before the segment table.
    pub cleaner_blocks: u32,
    /// Blocks of the segment table.
    pub table_blocks: u32,
    /// Links with shorter targets are in their inodes.
    pub inline_max: u64,
    /// Length of a summary.
    pub summary: u32,
    /// Length of a block of inodes.
    pub inode_block: u32,
    /// Addresses of the super blocks.
    pub copies: Vec<u64>,
    /// Whether the volume was unmounted.
    pub is_clean: bool,
    /// Free units.
    pub free: u64,
    /// Inodes in use.
    pub files: u64,
    /// Whether directory entries have no type.
    pub has_old_entries: bool,
}

/// Positions of fields that differ between the widths.
struct Fields {
    size: usize,
    segment: usize,
    files: usize,
    free: usize,
    index_address: usize,
    next: usize,
    /// `dlfs_inopb` to `dlfs_segtabsz`.
    counts: usize,
    copies: usize,
    inline_max: usize,
    flags: usize,
    summary: usize,
    inode_block: usize,
    format: usize,
    serial: usize,
    start: usize,
    ident: usize,
}

const NARROW: Fields = Fields {
    size: 8,
    segment: 12,
    files: 40,
    free: 36,
    index_address: 52,
    next: 72,
    counts: 100,
    copies: 188,
    inline_max: 184,
    flags: 322,
    summary: 332,
    inode_block: 344,
    format: 360,
    serial: 336,
    start: 348,
    ident: 368,
};

const WIDE: Fields = Fields {
    size: 8,
    segment: 24,
    files: 48,
    free: 56,
    index_address: 72,
    next: 112,
    counts: 148,
    copies: 224,
    inline_max: 304,
    flags: 402,
    summary: 412,
    inode_block: 416,
    format: 420,
    serial: 424,
    start: 432,
    ident: 452,
};

/// Returns the encoding that a magic number implies. The version is not known yet.
pub fn encoding_of(bytes: &[u8]) -> Option<Encoding> {
    for order in [Order::Little, Order::Big] {
        for (magic, is_64) in [(MAGIC, false), (MAGIC_64, true)] {
            let encoding = Encoding { order, is_64, version: 2 };
            if encoding.u32(bytes, 0) == magic {
                return Some(encoding);
            }
        }
    }
    None
}

/// Reads the bytes of a super block.
pub fn read(device: &dyn BlockDevice, at: u64) -> Result<[u8; LEN]> {
    let mut bytes = [0; LEN];
    device.read_at(at, &mut bytes)?;
    Ok(bytes)
}

impl SuperBlock {
    /// Decodes a super block at byte `at` of the device.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: the magic number, the checksum or a field is wrong.
    /// - `Unsupported`: the version is unknown.
    pub fn decode(bytes: &[u8; LEN], at: u64) -> Result<Self> {
        let structure = Structure::SuperBlock;
        let place = at / 512;
        let Some(mut encoding) = encoding_of(bytes) else {
            let found = u32::from_le_bytes(bytes.first_chunk().copied().unwrap_or_default()).into();
            return Err(Corrupt::Magic { structure, block: place, found, expected: MAGIC.into() }.into());
        };
        encoding.version = encoding.u32(bytes, 4);
        let fields = if encoding.is_64 { &WIDE } else { &NARROW };
        let first = encoding.version == 1 && !encoding.is_64;
        if !first && encoding.version != 2 {
            return Err(Error::Unsupported(Feature::Named("this version of LFS")));
        }
        let (found, expected) =
            (encoding.u32(bytes, 508), encoding.sum(bytes.get(..508).unwrap_or_default()));
        // Volumes of version 1 that 4.4BSD created have other checksums; NetBSD does not verify them on mount.
        if found != expected && !first {
            return Err(Corrupt::Checksum { structure, block: place, found, expected }.into());
        }
        if encoding.u32(bytes, fields.format) != 0 && !first {
            return Err(Error::Unsupported(Feature::Named("this inode format of LFS")));
        }
        let wrong = |field, at: usize, found| -> Error {
            let offset = u32::try_from(at).unwrap_or(0);
            Corrupt::Field { structure, field, block: place, offset, found }.into()
        };
        let after = fields.segment.saturating_add(if encoding.is_64 { 4 } else { 8 });
        let block = encoding.u32(bytes, after);
        let fragment = encoding.u32(bytes, after.saturating_add(4));
        if !block.is_power_of_two() || !(512..=BLOCK_MAX).contains(&block) {
            return Err(wrong("dlfs_bsize", after, block.into()));
        }
        if !fragment.is_power_of_two() || !(512..=block).contains(&fragment) {
            return Err(wrong("dlfs_fsize", after.saturating_add(4), fragment.into()));
        }
        let unit = if first { 512 } else { fragment };
        let scale = if first { block } else { 1 };
        let segment = u64::from(encoding.u32(bytes, fields.segment)).saturating_mul(scale.into());
        if segment < block.into() || !segment.is_multiple_of(unit.into()) {
            return Err(wrong("dlfs_ssize", fields.segment, segment));
        }
        let size = encoding.word(bytes, fields.size);
        let len = size
            .checked_mul(if first { block } else { unit }.into())
            .filter(|&len| len >= segment && len <= i64::MAX.unsigned_abs())
            .ok_or_else(|| wrong("dlfs_size", fields.size, size))?;
        // dlfs_inopb, dlfs_ifpb, dlfs_sepb, dlfs_nindir, dlfs_nseg, dlfs_nspf, dlfs_cleansz, dlfs_segtabsz.
        let count = |index: usize| {
            let at = fields.counts.saturating_add(index.saturating_mul(4));
            (at, encoding.u32(bytes, at))
        };
        let fits = |(at, number): (usize, u32), len: usize, room: u32, field| {
            let taken = to_u64(len).saturating_mul(number.into());
            if number == 0 || taken > room.into() { Err(wrong(field, at, number.into())) } else { Ok(number) }
        };
        let summary = if first { 512 } else { encoding.u32(bytes, fields.summary) };
        if to_usize(summary.into()) < encoding.summary_len() || summary > block || !summary.is_multiple_of(4)
        {
            return Err(wrong("dlfs_sumsize", fields.summary, summary.into()));
        }
        let inode_block = if first { block } else { encoding.u32(bytes, fields.inode_block) };
        if to_usize(inode_block.into()) < encoding.inode_len() || inode_block > block {
            return Err(wrong("dlfs_ibsize", fields.inode_block, inode_block.into()));
        }
        // The number may be that of a whole block although blocks of inodes are fragments.
        let room = inode_block.checked_div(u32::try_from(encoding.inode_len()).unwrap_or(1)).unwrap_or(1);
        let inodes = count(0).1.clamp(1, room.max(1));
        let entries = fits(count(1), encoding.entry_len(), block, "dlfs_ifpb")?;
        let usages = fits(count(2), encoding.usage_len(), block, "dlfs_sepb")?;
        let segments = count(4).1;
        if segments == 0 || u64::from(segments).saturating_sub(1).saturating_mul(segment) > len {
            return Err(wrong("dlfs_nseg", count(4).0, segments.into()));
        }
        let start = if first { 0 } else { encoding.address(bytes, fields.start) };
        let start = u64::try_from(start)
            .ok()
            .filter(|&start| start.saturating_mul(unit.into()) < len)
            .ok_or_else(|| wrong("dlfs_s0addr", fields.start, start.unsigned_abs()))?;
        let copies = (0_usize..10)
            .filter_map(|index| {
                let at = fields.copies.saturating_add(index.saturating_mul(encoding.word_len()));
                u64::try_from(encoding.address(bytes, at)).ok().filter(|&address| address > 0)
            })
            .collect();
        let inline_max = encoding.i32(bytes, fields.inline_max);
        Ok(Self {
            encoding,
            len,
            block,
            fragment,
            unit,
            segment,
            segments,
            start,
            index_address: encoding.address(bytes, fields.index_address),
            index: if encoding.is_64 { 1 } else { encoding.u32(bytes, 56).into() },
            next: encoding.address(bytes, fields.next),
            serial: if first { encoding.u32(bytes, 80).into() } else { encoding.u64(bytes, fields.serial) },
            ident: if first { 0 } else { encoding.u32(bytes, fields.ident) },
            inodes,
            entries,
            usages,
            cleaner_blocks: count(6).1,
            table_blocks: count(7).1,
            inline_max: u64::try_from(inline_max).unwrap_or(0),
            summary,
            inode_block,
            copies,
            is_clean: !first && encoding.u16(bytes, fields.flags) & 1 == 1,
            free: u64::try_from(encoding.address(bytes, fields.free)).unwrap_or(0),
            files: encoding.word(bytes, fields.files),
            has_old_entries: inline_max <= 0,
        })
    }

    /// Returns the position of an address in bytes.
    pub fn bytes(&self, address: u64) -> u64 {
        address.saturating_mul(self.unit.into())
    }

    /// Returns the number of units that `len` bytes take.
    pub fn units(&self, len: u64) -> u64 {
        len.div_ceil(self.unit.max(1).into())
    }

    /// Returns the number of the segment that contains an address.
    pub fn segment_of(&self, address: u64) -> Option<u64> {
        let from = self.bytes(address.checked_sub(self.start)?);
        from.checked_div(self.segment).filter(|&number| number < self.segments.into())
    }
}

/// A super block, its position, and the damage of the first one.
#[derive(Clone, Debug)]
pub struct Located {
    pub super_block: SuperBlock,
    pub at: u64,
    pub damage: Option<Error>,
}

/// The first super block of a volume, and the second one that it names.
#[derive(Clone, Debug)]
pub struct SuperBlocks {
    /// The intact ones, newest checkpoint first; at least one.
    pub intact: Vec<Located>,
    /// The damage of the second one.
    pub second_damage: Option<Error>,
}

impl SuperBlocks {
    /// Returns those that `probe` contains, or those of `device`.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: there is no super block.
    /// - `Unsupported`: the version is unknown.
    pub fn of(device: &dyn BlockDevice, probe: Option<&Probe>) -> Result<Self> {
        Decoded::of(probe, || Self::find(device, &read(device, FIRST)?))
    }

    /// Finds the super blocks of a volume whose first one has these bytes. Fails like [`SuperBlocks::of`].
    pub fn find(device: &dyn BlockDevice, bytes: &[u8; LEN]) -> Result<Self> {
        let first = SuperBlock::decode(bytes, FIRST);
        let second = match &first {
            Ok(first) => first.copies.get(1).map(|&address| first.bytes(address)),
            Err(Error::Corrupt(_)) => second_of(bytes),
            Err(error) => return Err(*error),
        };
        let decode = |at| -> Result<_> { Ok((SuperBlock::decode(&read(device, at)?, at)?, at)) };
        let second = second.filter(|&at| at != FIRST).map(decode).transpose();
        let second_damage = second.as_ref().err().copied();
        let damage = first.as_ref().err().copied();
        let second = second.ok().flatten().map(|(super_block, at)| Located { super_block, at, damage });
        let first = first.map(|super_block| Located { super_block, at: FIRST, damage: None });
        let intact = match (first, second) {
            (Ok(first), Some(second)) if second.super_block.serial > first.super_block.serial => {
                [second, first].into()
            }
            (Err(error), None) => return Err(error),
            (first, second) => first.into_iter().chain(second).collect(),
        };
        Ok(Self { intact, second_damage })
    }
}

/// Returns the position of the second super block according to a first one that is damaged.
fn second_of(bytes: &[u8; LEN]) -> Option<u64> {
    let encoding = encoding_of(bytes)?;
    let fields = if encoding.is_64 { &WIDE } else { &NARROW };
    let fragment = fields.segment.saturating_add(if encoding.is_64 { 8 } else { 12 });
    let unit = if encoding.u32(bytes, 4) == 1 { 512 } else { encoding.u32(bytes, fragment) };
    let address = encoding.address(bytes, fields.copies.saturating_add(encoding.word_len()));
    u64::try_from(address)
        .ok()
        .filter(|&address| address > 0)
        .and_then(|address| address.checked_mul(unit.into()))
}
