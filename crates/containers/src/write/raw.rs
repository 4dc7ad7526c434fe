//! The bytes of a disk as they are: raw images and fixed VHDs.

use alloc::vec::Vec;

use obento_base::wire::{IntoBytes, be};

use super::{Content, Identity, Patch, TooLarge, Writer, at_most};
use crate::vhd::{COOKIE, FIXED, FOOTER_CHECKSUM, RawFooter, checksum};

/// The granularity of holes in a raw image.
const UNIT: u64 = 4096;

pub(super) struct Raw {
    len: u64,
    next: u64,
}

impl Raw {
    pub fn new(len: u64) -> Self {
        Self { len, next: 0 }
    }
}

impl Writer for Raw {
    fn unit(&self) -> u64 {
        UNIT
    }

    fn place(&mut self, _content: Content, count: u64, _patches: &mut Vec<Patch>) -> Result<u64, TooLarge> {
        let at = self.next;
        self.next = at.saturating_add(count.saturating_mul(UNIT));
        Ok(at)
    }

    fn finish(&mut self, _patches: &mut Vec<Patch>) -> Result<u64, TooLarge> {
        Ok(self.len)
    }
}

/// A raw image with a footer.
pub(super) struct FixedVhd {
    raw: Raw,
    identity: Identity,
}

/// Azure accepts sizes of whole MiB only.
const MIB: u64 = 1 << 20;
/// The largest disk of Hyper-V: 2,040 GiB.
const MAX: u64 = 2040 << 30;
/// 2000-01-01 in seconds since 1970.
const EPOCH: u64 = 946_684_800;
const VERSION: u32 = 0x0001_0000;
/// `features`: this bit is always set.
const RESERVED: u32 = 2;
const WINDOWS: [u8; 4] = *b"Wi2k";

impl FixedVhd {
    pub fn new(len: u64, identity: Identity) -> Result<Self, TooLarge> {
        // A footer alone would be taken for the copy at the start of a dynamic VHD.
        let len = at_most(len, MAX)?.max(1).next_multiple_of(MIB);
        Ok(Self { raw: Raw::new(len), identity })
    }

    fn footer(&self) -> Vec<u8> {
        let mut footer = RawFooter {
            cookie: *COOKIE,
            features: be::U32::new(RESERVED),
            version: be::U32::new(VERSION),
            data_offset: be::U64::new(u64::MAX),
            timestamp: be::U32::new(
                u32::try_from(self.identity.time.saturating_sub(EPOCH)).unwrap_or(u32::MAX),
            ),
            // qemu and Azure use the size of the footer, and not the geometry, for files of this creator.
            creator: *b"win ",
            creator_version: be::U32::new(VERSION),
            creator_host: be::U32::from_bytes(WINDOWS),
            original_size: be::U64::new(self.raw.len),
            current_size: be::U64::new(self.raw.len),
            geometry: be::U32::new(geometry(self.raw.len)),
            disk_type: be::U32::new(FIXED),
            checksum: be::U32::new(0),
            unique_id: self.identity.id,
            saved_state: 0,
            reserved: [0; 427],
        };
        footer.checksum = checksum(footer.as_bytes(), FOOTER_CHECKSUM).into();
        footer.as_bytes().to_vec()
    }
}

/// Returns cylinders, heads and sectors of a disk. Source: the VHD specification, "CHS Calculation".
fn geometry(len: u64) -> u32 {
    const SECTORS_MAX: u64 = 65_535 * 16 * 255;
    let sectors = (len >> 9).min(SECTORS_MAX);
    let divided = |by: u64| sectors.checked_div(by).unwrap_or(0);
    let (per_track, heads) = if sectors >= 65_535 * 16 * 63 {
        (255, 16)
    } else {
        let heads = divided(17).div_ceil(1024).max(4);
        if divided(17) < heads.saturating_mul(1024) && heads <= 16 {
            (17, heads)
        } else if divided(31) < 16 * 1024 {
            (31, 16)
        } else {
            (63, 16)
        }
    };
    let cylinders = divided(per_track).checked_div(heads).unwrap_or(0);
    u32::try_from(cylinders << 16 | heads << 8 | per_track).unwrap_or(0)
}

impl Writer for FixedVhd {
    fn unit(&self) -> u64 {
        UNIT
    }

    fn place(&mut self, content: Content, count: u64, patches: &mut Vec<Patch>) -> Result<u64, TooLarge> {
        self.raw.place(content, count, patches)
    }

    fn finish(&mut self, patches: &mut Vec<Patch>) -> Result<u64, TooLarge> {
        let bytes = self.footer();
        patches.push(Patch { at: self.raw.len, bytes });
        Ok(self.raw.len.saturating_add(512))
    }
}
