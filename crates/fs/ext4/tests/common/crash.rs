//! ext4 volumes for the crash explorer.

use std::sync::Arc;

use obento_block::BlockDevice;
use obento_driver::{DataMode, Journalling};
use obento_env::Clock;
use obento_testkit::crash::campaign::Volume;
use obento_testkit::crash::volume::{Open, Subject};
use obento_testkit::plan::{Bounds, catalogue};

use crate::common::volumes::{self, Shape};
use crate::consistency;

pub const MODES: [DataMode; 3] = [DataMode::Ordered, DataMode::Journal, DataMode::Writeback];

/// A data mode, and the function that opens volumes in it.
pub type Opener = (DataMode, Box<Open<'static>>);

pub fn openers(modes: &[DataMode], journalling: Journalling) -> Vec<Opener> {
    let opener = |mode: DataMode| -> Box<Open<'static>> {
        let journalling = Journalling { mode, ..journalling };
        Box::new(move |device: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>| {
            volumes::open_with(device, clock, journalling)
        })
    };
    modes.iter().map(|&mode| (mode, opener(mode))).collect()
}

/// Cases that need more inodes than a small volume has.
const FEW_INODES: &[(&str, &str)] =
    &[("2324 files are created in a directory, listed, and removed", "there are fewer inodes")];

/// `s_inodes_count`.
fn inodes(volume: &[u8]) -> u32 {
    u32::from_le_bytes(*volume[1024..].first_chunk().expect("a super block"))
}

/// Returns each of `shapes` in each mode.
pub fn volumes<'a>(shapes: &[Shape], openers: &'a [Opener]) -> Vec<Volume<'a>> {
    let bases: Vec<(&Shape, Arc<[u8]>)> = shapes.iter().map(|shape| (shape, shape.bytes())).collect();
    let all = bases.iter().flat_map(|(shape, base)| openers.iter().map(move |opener| (*shape, base, opener)));
    all.map(|(shape, base, (mode, open))| Volume {
        name: format!("{}/{mode:?}", shape.name),
        base: base.clone(),
        subject: Subject {
            open: &**open,
            check: &consistency::check_closed,
            second: &volumes::e2fsck,
            second_every: 100,
            recovery_every: 100,
            data: *mode,
        },
        // The checksum of the super block is in its second sector, and the super block is found before any journal.
        // Neither the kernel nor e2fsck can distinguish a torn super block from a damaged one.
        whole: 1024..2048,
        named: catalogue::every_operation(shape.space).into_iter().chain(catalogue::nameless()).collect(),
        bounds: Bounds { len: 2, space: shape.space, links: true, xattrs: true },
        limits: shape.limits(),
        left_out: if inodes(base) < 2400 { FEW_INODES } else { &[] },
    })
    .collect()
}
