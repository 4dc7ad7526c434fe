//! A planned volume.

use alloc::sync::Arc;
use core::ops::Range;

use obento_block::BlockDevice;
use obento_driver::{BuildPlan, Contents, FormatError, Formatted, NodeId, Tree};

use super::emit::Emit;
use super::layout::Layout;
use super::needs::Needs;
use crate::format::Draft;

/// A volume with a tree, before it is written.
pub(super) struct VolumePlan<'t> {
    pub tree: &'t Tree,
    pub needs: Needs,
    pub draft: Draft,
    pub layout: Layout,
    pub formatted: Formatted,
    /// The device of an external journal.
    pub journal: Option<Arc<dyn BlockDevice>>,
}

impl BuildPlan for VolumePlan<'_> {
    fn formatted(&self) -> &Formatted {
        &self.formatted
    }

    fn device_len(&self) -> u64 {
        self.draft.sb.volume_len()
    }

    fn places(&self, node: NodeId, sink: &mut dyn FnMut(Range<u64>, u64)) {
        self.layout.places(self.tree, self.draft.sb.block_size, node, sink);
    }

    fn write(&mut self, device: &dyn BlockDevice) -> Result<(), FormatError> {
        let (tree, needs, layout) = (self.tree, &self.needs, &self.layout);
        let records = Emit { tree, needs, layout, draft: &self.draft }.shared_records()?;
        self.draft.inodes.extend(records);
        let journal = self.journal.clone();
        self.draft.write(device, Contents::Zeros, journal.as_deref(), true, &mut |draft, output| {
            Emit { tree, needs, layout, draft }.write(output)
        })
    }
}
