//! The block of the multiple mount protection.
//!
//! Source: e2fsprogs `lib/ext2fs/mmp.c` `ext2fs_mmp_read`; Linux `fs/ext4/ext4.h` `struct mmp_struct`.

use obento_base::{Corrupt, Structure};

use super::events::EventSink;
use super::issue::Issue;
use super::view::View;
use crate::checksum::Crc;
use crate::feature::Incompat;
use crate::unit::VolBlock;

/// `EXT4_MMP_MAGIC`.
const MAGIC: u32 = 0x004d_4d50;
/// `EXT4_MMP_SEQ_CLEAN`: the volume is not in use.
const CLEAN: u32 = 0xff4d_4d50;
/// Offset of the checksum, which covers the bytes before it.
const CHECKSUM: usize = 1020;

/// Checks the block.
pub(super) fn check(view: &View, reported: &mut EventSink<'_>) {
    let sb = &view.sb;
    if !sb.incompat.contains(Incompat::MMP) {
        return;
    }
    let block = sb.raw.s_mmp_block.get();
    let structure = Structure::Mmp;
    if !sb.holds_blocks(VolBlock(block), 1) {
        let why = Corrupt::BlockRange { structure, at: 0, start: block, len: 1 }.into();
        return reported.found(Issue::Mmp { block, why });
    }
    let bytes = match view.read(VolBlock(block), 1) {
        Ok(bytes) => bytes,
        Err(why) => return reported.found(Issue::Mmp { block, why }),
    };
    let word = |at: usize| {
        let bytes = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    };
    if word(0) != MAGIC {
        let (found, expected) = (word(0).into(), MAGIC.into());
        let why = Corrupt::Magic { structure, block, found, expected }.into();
        return reported.found(Issue::Mmp { block, why });
    }
    let covered = bytes.get(..CHECKSUM).unwrap_or_default();
    let (found, expected) = (word(CHECKSUM), Crc::new(sb.checksum_seed).add(covered).get());
    if sb.has_metadata_csum() && found != expected {
        let why = Corrupt::Checksum { structure, block, found, expected }.into();
        reported.found(Issue::Mmp { block, why });
    }
}

/// Marks the volume as not in use; stores the checksum with `seed`, if there are checksums.
pub(super) fn write_free(bytes: &mut [u8], seed: Option<u32>) {
    let mut put = |at: usize, word: u32| {
        let place = bytes.get_mut(at..).unwrap_or_default();
        place.iter_mut().zip(word.to_le_bytes()).for_each(|(to, from)| *to = from);
    };
    put(0, MAGIC);
    put(4, CLEAN);
    if let Some(seed) = seed {
        let sum = Crc::new(seed).add(bytes.get(..CHECKSUM).unwrap_or_default()).get().to_le_bytes();
        bytes.iter_mut().skip(CHECKSUM).zip(sum).for_each(|(to, from)| *to = from);
    }
}
