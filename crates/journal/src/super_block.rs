//! The journal's super block.
//!
//! Invariant: `first < log_end <= len`, `start` is 0 or below `log_end`, so that positions in the log need no further
//! checks; `start` below `first` is legal to jbd2 and only ever walked forward.
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

    /// Features that a reader must know.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Incompat: u32 {
        /// `JBD2_FEATURE_INCOMPAT_REVOKE`
        const REVOKE = 0x1;
        /// `JBD2_FEATURE_INCOMPAT_64BIT`: block numbers have 64 bits.
        const BITS_64 = 0x2;
        /// `JBD2_FEATURE_INCOMPAT_ASYNC_COMMIT`: commit blocks are written without waiting for what they commit.
        const ASYNC_COMMIT = 0x4;
        /// `JBD2_FEATURE_INCOMPAT_CSUM_V2`
        const CSUM_V2 = 0x8;
        /// `JBD2_FEATURE_INCOMPAT_CSUM_V3`
        const CSUM_V3 = 0x10;
        /// `JBD2_FEATURE_INCOMPAT_FAST_COMMIT`: the last blocks are not log but fast commits.
        const FAST_COMMIT = 0x20;
    }
}

/// The version of a journal's super block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// Without features.
    V1,
    /// With features.
    V2,
}

/// Which checksums a journal carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checksums {
    /// None.
    None,
    /// One a transaction, in its commit block.
    V1,
    /// One a block, 16 bits of it for data.
    V2,
    /// One a block.
    V3,
}

impl Checksums {
    /// Whether control blocks carry their own.
    pub const fn in_blocks(self) -> bool {
        matches!(self, Self::V2 | Self::V3)
    }
}

/// A checked super block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SuperBlock {
    /// Its version.
    pub version: Version,
    /// Bytes a block.
    pub block_size: u32,
    /// Blocks of the journal, the super block included.
    pub len: u32,
    /// First block of the log.
    pub first: u32,
    /// Block after the log: there the fast commits start, if there are any, or the journal ends.
    pub log_end: u32,
    /// The first transaction to expect.
    pub sequence: Tid,
    /// Where it starts; 0 if there is nothing to replay.
    pub start: u32,
    /// The error that aborted the journal, a Linux error number; 0 if none did.
    pub errno: u32,
    /// Features that a reader may ignore.
    pub compat: Compat,
    /// Features that a reader must know.
    pub incompat: Incompat,
    /// UUID of the journal.
    pub uuid: [u8; 16],
    /// How many file systems share it.
    pub users: u32,
    /// Head of the log, true while `start` is 0.
    pub head: u32,
}

impl SuperBlock {
    /// Length of the super block in bytes; the smallest block holds it.
    pub const LEN: usize = size_of::<RawSuperBlock>();

    /// Decodes the first [`SuperBlock::LEN`] bytes of `bytes`, which stand in block `block` of the device, for a
    /// journal of at most `available` blocks of `block_size` bytes. Errors, the first that holds: Corrupt for a wrong
    /// magic number, type, block size, length or start; Unsupported for an unknown feature; Corrupt for features that
    /// exclude each other, a wrong checksum, or positions outside the log.
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

    /// Whether there may be transactions to replay.
    pub fn needs_replay(&self) -> bool {
        self.start != 0
    }

    /// Whether block numbers have 64 bits.
    pub fn is_wide(&self) -> bool {
        self.incompat.contains(Incompat::BITS_64)
    }

    /// Which checksums the journal carries.
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

    /// The seed of the checksums of v2 and v3.
    pub fn seed(&self) -> u32 {
        checksum::seed(&self.uuid)
    }

    /// How tags lie in descriptor blocks.
    pub fn tag_layout(&self) -> TagLayout {
        TagLayout::new(self.checksums(), self.is_wide())
    }

    /// The log.
    pub fn log(&self) -> Range<u32> {
        self.first..self.log_end
    }

    /// The blocks of fast commits. The one right behind the log is not used (`journal_load_superblock`: `j_fc_first`
    /// is `j_last + 1`).
    pub fn fast_commits(&self) -> Range<u32> {
        self.log_end.saturating_add(1).min(self.len)..self.len
    }
}

/// The features of a super block of version 2.
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
