//! Builds volumes with a driver that can format and write volumes, but does not implement [`Build`].
//!
//! The volume is created on a device in memory that stores no zeros. The tree is then written through the interface
//! of the driver, in the order of the tree. The bytes of files are not written to this device: only their space is
//! allocated. The resulting plan has the same form as a plan of [`Build`].
//!
//! Properties that the format cannot store are counted. A file that the format cannot store at all is an error.

mod fill;
mod sparse_device;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use obento_block::BlockDevice;
use obento_driver::tree::Body;
use obento_driver::{
    Access, Build, BuildError, BuildOptions, BuildPlan, Contents, Driver, FileSystem, Format, FormatError,
    FormatOptions, Formatted, FreeSpace, Journalling, LayoutLock, NodeId, OpenOptions, Span,
    StoredProperties, Tree,
};

pub(super) use fill::data_ranges;
use fill::{LayoutError, Places, TreeFill, Written};
use sparse_device::SparseDevice;

/// Maximum number of sizes that are tried for a tree.
const TRIES: u32 = 200;
/// Sizes are multiples of this.
const STEP: u64 = 64 << 10;
/// The divisor of the least growth of a size that was too small.
const GROWTH: u64 = 32;
/// The divisor of the part by which an estimate is reduced. An estimate that is slightly too small costs one more try.
/// An estimate that is too large wastes space, or costs several tries.
const CAUTION: u64 = 16;
/// A rough estimate of the bytes that a node takes in addition to its data.
const NODE: u64 = 128;

/// A builder for volumes of one driver.
pub struct Generic<'d> {
    driver: &'d dyn Driver,
    format: &'d dyn Format,
}

impl<'d> Generic<'d> {
    /// Creates a builder for `driver`, which formats volumes with `format`.
    pub fn new(driver: &'d dyn Driver, format: &'d dyn Format) -> Self {
        Self { driver, format }
    }

    /// Lays out `tree` in `len` bytes. Fails with the errors of [`LayoutError`].
    fn lay_out<'t>(&self, tree: &'t Tree, options: &BuildOptions, len: u64) -> Result<Plan<'t>, LayoutError> {
        let sparse = Arc::new(SparseDevice::new(len));
        let format =
            FormatOptions { len: None, contents: Contents::Zeros, journal: None, ..options.format.clone() };
        let mut formatted = self.format.format(&*sparse, &format).map_err(LayoutError::Format)?;
        // The journal commits at no time of its own, so that the same tree gives the same volume.
        let journalling = Journalling { commit_interval: Duration::ZERO, ..Journalling::default() };
        let open = OpenOptions::new(options.format.clock.clone());
        let open = OpenOptions { access: Access::ReadWrite, journalling, ..open };
        let device: Arc<dyn BlockDevice> = sparse.clone();
        let file_system = self.driver.open(device, &open).map_err(LayoutError::Error)?;
        let holes = HoleCost::of(file_system.limits().keeps);
        if len < estimate(tree, holes) {
            // Writing the tree would only find out later, and slowly.
            return Err(LayoutError::Short(holes));
        }
        let mut fill = TreeFill::new(&*file_system, tree)?;
        let (places, lost) = fill.run().map_err(|error| match error {
            LayoutError::Full { .. } => LayoutError::Full { about: about(tree, holes, len, fill.written()) },
            error => error,
        })?;
        formatted.notices.extend(lost);
        let usage = file_system.statfs().map_err(LayoutError::Error)?;
        if let FreeSpace::Free(percent) = options.room
            && options.format.len.is_none()
            && usage.free.saturating_mul(100) < usage.blocks.saturating_mul(percent.into())
        {
            return Err(LayoutError::Full { about: 0 });
        }
        Ok(Plan { tree, formatted, sparse, file_system, places })
    }

    /// Returns the layout in the smallest of the tried sizes that is sufficient. The largest of the tried sizes that
    /// are not sufficient is smaller by at most one part in [`GROWTH`] and one [`STEP`].
    fn search<'t>(&self, tree: &'t Tree, options: &BuildOptions) -> Result<Plan<'t>, BuildError> {
        let with_room = |len: u64| match options.room {
            FreeSpace::Free(percent) => {
                len.saturating_mul(100) / 100_u64.saturating_sub(percent.into()).max(1)
            }
            FreeSpace::Least => len,
        };
        // No volume is shorter than the first estimate.
        let mut len = with_room(estimate(tree, HoleCost::Free)).next_multiple_of(STEP);
        let (mut too_short, mut best) = (len.saturating_sub(STEP), None);
        let mut next = next_after(too_short);
        let mut last = BuildError::TooSmall { len, needed: len };
        for _ in 0..TRIES {
            let mut wanted = next;
            match self.lay_out(tree, options, len) {
                Ok(plan) => best = Some((len, plan)),
                Err(trouble) if trouble.is_size() => {
                    (too_short, next) = (len, next_after(len));
                    wanted = match trouble {
                        LayoutError::Short(holes) => with_room(estimate(tree, holes)),
                        LayoutError::Full { about } => with_room(about - about / CAUTION),
                        _ => 0,
                    };
                    last = trouble.into_error(len);
                }
                // The format may have no volumes of an estimated size.
                Err(LayoutError::Format(_)) if best.is_none() && len > next => {}
                Err(trouble) => return Err(trouble.into_error(len)),
            }
            len = match best.take() {
                None => wanted.max(next).next_multiple_of(STEP),
                Some((enough, plan)) if enough <= next => return Ok(plan),
                Some((enough, plan)) => {
                    best = Some((enough, plan));
                    too_short.midpoint(enough).next_multiple_of(STEP)
                }
            };
        }
        best.map(|(_, plan)| plan).ok_or(last)
    }
}

/// Returns the size that is tried after one that was too small, if nothing suggests a larger one.
fn next_after(too_short: u64) -> u64 {
    too_short.saturating_add((too_short / GROWTH).max(STEP)).next_multiple_of(STEP)
}

/// The space that the holes of files take in a format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HoleCost {
    /// Nothing.
    Free,
    /// As much as data: the format has no holes.
    Filled,
}

impl HoleCost {
    /// Returns the cost of holes in a format that stores these properties.
    pub(super) fn of(keeps: StoredProperties) -> Self {
        if keeps.contains(StoredProperties::HOLES) { Self::Free } else { Self::Filled }
    }
}

/// Estimates the size of a volume with `tree`. `written` is the part of the tree that was written to a volume of `len`
/// bytes until the volume was full. The estimate assumes that all nodes need the same space in addition to their data.
fn about(tree: &Tree, holes: HoleCost, len: u64, written: Written) -> u64 {
    let nodes = u64::from(tree.len());
    let data = estimate(tree, holes).saturating_sub(nodes.saturating_mul(NODE));
    let other = u128::from(len.saturating_sub(written.data)) * u128::from(nodes);
    let other = u64::try_from(other / u128::from(written.nodes.max(1))).unwrap_or(u64::MAX);
    data.saturating_add(other)
}

/// Returns a lower bound of the size of a volume with `tree`.
pub(super) fn estimate(tree: &Tree, holes: HoleCost) -> u64 {
    let of = |(id, node): (NodeId, &obento_driver::tree::Node)| {
        let data = match (node.body, holes) {
            (Body::File { size, .. }, HoleCost::Filled) => size,
            (Body::File { size, data: Some(_) }, HoleCost::Free) => match tree.data_ranges(id) {
                Some(ranges) => ranges.iter().map(|range| range.end.saturating_sub(range.start)).sum(),
                None => size,
            },
            _ => 0,
        };
        data.saturating_add(NODE)
    };
    tree.nodes().map(of).fold(0, u64::saturating_add)
}

impl Build for Generic<'_> {
    fn plan<'t>(
        &self,
        tree: &'t Tree,
        options: &BuildOptions,
    ) -> Result<Box<dyn BuildPlan + 't>, BuildError> {
        let Some(len) = options.format.len else {
            return Ok(Box::new(self.search(tree, options)?));
        };
        match self.lay_out(tree, options, len) {
            Ok(plan) => Ok(Box::new(plan)),
            Err(LayoutError::Full { .. } | LayoutError::Short(_)) => {
                let format = FormatOptions { len: None, ..options.format.clone() };
                let needed =
                    self.search(tree, &BuildOptions { format, room: FreeSpace::Least })?.device_len();
                // If the volume lacks something other than bytes, no sufficient size is known.
                Err(BuildError::TooSmall { len, needed: needed.max(len) })
            }
            Err(trouble) => Err(trouble.into_error(len)),
        }
    }
}

/// A planned volume on a device in memory.
struct Plan<'t> {
    tree: &'t Tree,
    formatted: Formatted,
    sparse: Arc<SparseDevice>,
    /// The closed volume, which still maps files to their positions.
    file_system: Arc<dyn FileSystem>,
    places: Places,
}

impl BuildPlan for Plan<'_> {
    fn formatted(&self) -> &Formatted {
        &self.formatted
    }

    fn device_len(&self) -> u64 {
        self.sparse.len()
    }

    fn places(&self, node: NodeId, sink: &mut dyn FnMut(Range<u64>, u64)) {
        let Some(body) = self.tree.node(node).map(|node| node.body) else { return };
        let lock = LayoutLock::new();
        let layout = lock.shared();
        let ranges = fill::data_ranges(self.tree, node, body);
        for (ino, range) in self.places.of(node).flat_map(|ino| ranges.iter().map(move |range| (ino, range)))
        {
            let mut at = range.start;
            while at < range.end {
                // The range was mapped when the plan was made. An unmapped range has no position.
                let Ok(extent) = self.file_system.map(&layout, ino, at..range.end) else { return };
                let len = extent.len.clamp(1, range.end - at);
                if let Span::Mapped(offset) = extent.span {
                    sink(at..at + len, offset);
                }
                at += len;
            }
        }
    }

    fn write(&mut self, device: &dyn BlockDevice) -> Result<(), FormatError> {
        Ok(self.sparse.copy_to(device)?)
    }
}
