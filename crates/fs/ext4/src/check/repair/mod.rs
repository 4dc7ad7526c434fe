//! Mending what a check finds.
//!
//! Plan: a round looks ([`super::look`]) and gathers the issues; each issue is mended by what its kind asks for, as
//! edits of blocks in transactions of the driver's journal; and rounds go on until one finds nothing, or nothing more can
//! be mended. So a mend needs to know its own issue only, what it brings about is found by the next round, and a cut
//! leaves what a second run mends. In this order, each a round of its own, since what comes after stands on it: journal
//! replay (`writer::open`); super block and descriptors from copies; inodes (cleared, cut, counted), blocks claimed twice
//! (cloned); directory blocks and indexes; lost+found and link counts; bitmaps and counts, which are written from what
//! the last round found in use.
//! Invariant: no mend makes a readable file unreadable.

use alloc::sync::Arc;

use obento_base::{Error, Feature, Result};
use obento_block::BlockDevice;
use obento_driver::{CheckOptions, CheckReport};

use super::Event;

/// Checks and mends. Errors: Unsupported until a kind of mend is there.
pub(super) fn mend(
    _device: &Arc<dyn BlockDevice>,
    _options: &CheckOptions,
    _tell: &mut dyn FnMut(Event),
) -> Result<CheckReport> {
    Err(Error::Unsupported(Feature::Named("mending")))
}
