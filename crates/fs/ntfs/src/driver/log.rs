//! The state of `$LogFile`, which only Windows replays.
//!
//! Source: linux-ntfs documentation, "$LogFile"; libfsntfs documentation, "The log file".

use crate::layout::bytes::{u16_at, u32_at, u64_at};
use crate::layout::fixup;

/// Length of a restart page.
pub const PAGE: usize = 4096;
/// No client uses the log.
const NO_CLIENT: u16 = 0xffff;
/// Bit of the flags of a restart area: the volume was unmounted.
const CLEAN: u16 = 2;

/// The state of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Log {
    /// It was emptied, as mkntfs and ntfs-3g leave it.
    Empty,
    /// The volume was unmounted.
    Clean,
    /// It contains changes that are not on the volume.
    Pending,
    /// Its restart pages are damaged.
    Damaged,
}

impl Log {
    /// Returns the state from the first two pages of the log.
    pub fn decode(pages: &[u8]) -> Self {
        if pages.iter().all(|&byte| byte == 0xff) {
            return Self::Empty;
        }
        let areas = pages.chunks_exact(PAGE).filter_map(area);
        match areas.max_by_key(|(lsn, _)| *lsn) {
            Some((_, true)) => Self::Clean,
            Some((_, false)) => Self::Pending,
            None => Self::Damaged,
        }
    }

    /// Returns whether the log says more than that the volume was unmounted.
    pub fn is_remarkable(self) -> bool {
        matches!(self, Self::Pending | Self::Damaged)
    }

    /// Returns the state in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Clean => "clean",
            Self::Pending => "contains changes that only Windows applies",
            Self::Damaged => "damaged",
        }
    }
}

/// Returns the sequence number of a restart page, and whether the volume was unmounted.
fn area(page: &[u8]) -> Option<(u64, bool)> {
    let mut page = page.to_vec();
    if !page.starts_with(b"RSTR") || u32_at(&page, 16)? < 512 {
        return None;
    }
    fixup::apply(&mut page).ok()?;
    let at = usize::from(u16_at(&page, 24)?);
    let area = page.get(at..)?;
    let (in_use, flags) = (u16_at(area, 12)?, u16_at(area, 14)?);
    Some((u64_at(area, 0)?, in_use == NO_CLIENT || flags & CLEAN != 0))
}
