//! The super block of the journal.
//!
//! Invariant: `first < log_end <= len`, and `start` is 0 or less than `log_end`. Positions in the log therefore need
//! no further checks. As in jbd2, `start` may be less than `first`; the log is then read forward from `start`.
//! Source: Linux `fs/jbd2/journal.c` (`journal_check_superblock`), `include/linux/jbd2.h`.

use core::ops::Range;

use bitflags::bitflags;
use obento_base::wire::FromBytes;
use obento_base::{Corrupt, Error, Feature, Result, Structure};

use crate::raw::{self, RawSuperBlock};
use crate::tag::TagLayout;
use crate::{Tid, checksum};

bitflags! {
    /// Features that a reader may ignore.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Compat: u32 {
        /// `JBD2_FEATURE_COMPAT_CHECKSUM`: v1 checksums in commit blocks.
        const CHECKSUM = 0x1;
        const _ = !0;
    }

    /// Features that a reader must support.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Incompat: u32 {
        /// `JBD2_FEATURE_INCOMPAT_REVOKE`
        const REVOKE = 0x1;
        /// `JBD2_FEATURE_INCOMPAT_64BIT`: block numbers have 64 bits.
        const BITS_64 = 0x2;
        /// `JBD2_FEATURE_INCOMPAT_ASYNC_COMMIT`: a commit block may be written before the blocks that it commits are
        /// on the device.
        const ASYNC_COMMIT = 0x4;
        /// `JBD2_FEATURE_INCOMPAT_CSUM_V2`
        const CSUM_V2 = 0x8;
        /// `JBD2_FEATURE_INCOMPAT_CSUM_V3`
        const CSUM_V3 = 0x10;
        /// `JBD2_FEATURE_INCOMPAT_FAST_COMMIT`: the last blocks contain fast commits and are not part of
        /// the log.
        const FAST_COMMIT = 0x20;
    }
}

/// The version of the super block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// Without feature fields.
    V1,
    /// With feature fields.
    V2,
}

/// The kind of checksums of a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checksums {
    /// No checksums.
    None,
    /// One checksum per transaction, in its commit block.
    V1,
    /// One checksum per block, of 16 bits for data blocks.
    V2,
    /// One checksum per block, of 32 bits.
    V3,
}

impl Checksums {
    /// Returns whether control blocks have checksums of their own.
    pub const fn in_blocks(self) -> bool {
        matches!(self, Self::V2 | Self::V3)
    }
}

/// A validated super block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SuperBlock {
    /// Version.
    pub version: Version,
    /// Block size in bytes.
    pub block_size: u32,
    /// Length of the journal in blocks, including the super block.
    pub len: u32,
    /// First block of the log.
    pub first: u32,
    /// The block after the log. It is the start of the area for fast commits, or the length of the journal if the
    /// journal has no such area.
    pub log_end: u32,
    /// First expected transaction.
    pub sequence: Tid,
    /// Start of the log; 0 if there is nothing to replay.
    pub start: u32,
    /// The error that aborted the journal; 0 if the journal was not aborted. The value is the negative error number of
    /// Linux as an unsigned number, for example 2^32 - 5 for `EIO`.
    pub errno: u32,
    /// Features that a reader may ignore.
    pub compat: Compat,
    /// Features that a reader must support.
    pub incompat: Incompat,
    /// UUID of the journal.
    pub uuid: [u8; 16],
    /// Number of file systems that share the journal.
    pub users: u32,
    /// Head of the log, valid while `start` is 0.
    pub head: u32,
}

impl SuperBlock {
    /// Length of the super block in bytes. It equals the minimum block size.
    pub const LEN: usize = size_of::<RawSuperBlock>();

    /// Decodes the first [`SuperBlock::LEN`] bytes of `bytes`, from block `block` of the device, for a
    /// journal of at most `available` blocks of `block_size` bytes.
    ///
    /// # Errors
    ///
    /// 1. `Corrupt`: `bytes` is too short, or the magic number, the type, the block size or the length is
    ///    wrong.
    /// 2. `Unsupported`: a feature is unknown.
    /// 3. `Corrupt`: features exclude each other, a position is outside of the log, or the checksum is wrong.
    pub fn decode(bytes: &[u8], block: u64, block_size: u32, available: u32) -> Result<Self> {
        let field = |field, offset, found: u32| {
            Error::from(Corrupt::Field {
                structure: Structure::Journal,
                field,
                block,
                offset,
                found: found.into(),
            })
        };
        let bytes = bytes.get(..Self::LEN).ok_or_else(|| truncated(block))?;
        let raw = RawSuperBlock::ref_from_bytes(bytes).map_err(|_| truncated(block))?;
        let magic = raw.s_header.h_magic.get();
        if magic != raw::MAGIC {
            let (found, expected) = (magic.into(), raw::MAGIC.into());
            return Err(Corrupt::Magic { structure: Structure::Journal, block, found, expected }.into());
        }
        let version = match raw.s_header.h_blocktype.get() {
            raw::SUPER_BLOCK_V1 => Version::V1,
            raw::SUPER_BLOCK_V2 => Version::V2,
            other => return Err(field("h_blocktype", 0x4, other)),
        };
        let (len, first) = (raw.s_maxlen.get(), raw.s_first.get());
        if raw.s_blocksize.get() != block_size {
            return Err(field("s_blocksize", 0xc, raw.s_blocksize.get()));
        }
        if len > available {
            return Err(field("s_maxlen", 0x10, len));
        }
        let (compat, incompat) = match version {
            Version::V1 => (Compat::empty(), Incompat::empty()),
            Version::V2 => features(raw, block)?,
        };
        let fast_commits = match (incompat.contains(Incompat::FAST_COMMIT), raw.s_num_fc_blks.get()) {
            (false, _) => 0,
            (true, 0) => raw::DEFAULT_FAST_COMMIT_BLOCKS,
            (true, blocks) => blocks,
        };
        let log_end =
            len.checked_sub(fast_commits).ok_or_else(|| field("s_num_fc_blks", 0x54, fast_commits))?;
        if first == 0 || first >= log_end {
            return Err(field("s_first", 0x14, first));
        }
        let start = raw.s_start.get();
        if start >= log_end {
            return Err(field("s_start", 0x1c, start));
        }
        let super_block = Self {
            version,
            block_size,
            len,
            first,
            log_end,
            sequence: Tid(raw.s_sequence.get()),
            start,
            errno: raw.s_errno.get(),
            compat,
            incompat,
            uuid: raw.s_uuid,
            users: raw.s_nr_users.get(),
            head: raw.s_head.get(),
        };
        super_block.verify(raw, bytes, block)?;
        Ok(super_block)
    }

    fn verify(&self, raw: &RawSuperBlock, bytes: &[u8], block: u64) -> Result<()> {
        if !self.checksums().in_blocks() {
            return Ok(());
        }
        let structure = Structure::Journal;
        if raw.s_checksum_type != raw::CRC32C_CHKSUM {
            let found = raw.s_checksum_type.into();
            return Err(
                Corrupt::Field { structure, field: "s_checksum_type", block, offset: 0x50, found }.into()
            );
        }
        let (found, expected) = (raw.s_checksum.get(), checksum::super_block(bytes));
        if found == expected {
            Ok(())
        } else {
            Err(Corrupt::Checksum { structure, block, found, expected }.into())
        }
    }

    /// Returns whether transactions may have to be replayed.
    pub fn needs_replay(&self) -> bool {
        self.start != 0
    }

    /// Returns whether block numbers have 64 bits.
    pub fn is_wide(&self) -> bool {
        self.incompat.contains(Incompat::BITS_64)
    }

    /// Returns the kind of checksums.
    pub fn checksums(&self) -> Checksums {
        if self.incompat.contains(Incompat::CSUM_V3) {
            Checksums::V3
        } else if self.incompat.contains(Incompat::CSUM_V2) {
            Checksums::V2
        } else if self.compat.contains(Compat::CHECKSUM) {
            Checksums::V1
        } else {
            Checksums::None
        }
    }

    /// Returns the seed of v2 and v3 checksums.
    pub fn seed(&self) -> u32 {
        checksum::seed(&self.uuid)
    }

    /// Returns the layout of tags in descriptor blocks.
    pub fn tag_layout(&self) -> TagLayout {
        TagLayout::new(self.checksums(), self.is_wide())
    }

    /// Returns the blocks of the log.
    pub fn log(&self) -> Range<u32> {
        self.first..self.log_end
    }

    /// Returns the blocks of fast commits. The first block of their area is unused
    /// (`journal_load_superblock`: `j_fc_first` is `j_last + 1`).
    pub fn fast_commits(&self) -> Range<u32> {
        self.log_end.saturating_add(1).min(self.len)..self.len
    }
}

/// Returns the features of a super block of version 2.
fn features(raw: &RawSuperBlock, block: u64) -> Result<(Compat, Incompat)> {
    let ro_compat = raw.s_feature_ro_compat.get();
    if ro_compat != 0 {
        let bits = ro_compat.into();
        return Err(Error::Unsupported(Feature::Bits { set: "read-only compatible journal", bits }));
    }
    let bits = raw.s_feature_incompat.get();
    let Some(incompat) = Incompat::from_bits(bits) else {
        let bits = (bits & !Incompat::all().bits()).into();
        return Err(Error::Unsupported(Feature::Bits { set: "incompatible journal", bits }));
    };
    let compat = Compat::from_bits_retain(raw.s_feature_compat.get());
    let both = incompat.contains(Incompat::CSUM_V2 | Incompat::CSUM_V3);
    let either = incompat.intersects(Incompat::CSUM_V2 | Incompat::CSUM_V3);
    if both || either && compat.contains(Compat::CHECKSUM) {
        let (structure, field, found) = (Structure::Journal, "s_feature_incompat", bits.into());
        return Err(Corrupt::Field { structure, field, block, offset: 0x28, found }.into());
    }
    Ok((compat, incompat))
}

fn truncated(block: u64) -> Error {
    let len = obento_base::wire::to_u64(SuperBlock::LEN);
    Corrupt::Truncated { structure: Structure::Journal, block, offset: 0, len }.into()
}
