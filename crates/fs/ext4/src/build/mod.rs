//! Building volumes that contain a tree.
//!
//! A volume is drafted as [`format`](crate::format) drafts an empty one, and the tree is laid out in its free space.
//! The blocks of directories, long link targets and attributes come first, then the files, all in the order of the
//! tree. A file is therefore divided only by the metadata of a group. Files from a pipe get their places before the
//! rest is known ([`received`]), and the rest is laid out around them. No transactions are used; the journal is empty.
//!
//! Steps: the space that the tree needs ([`needs`]), a volume in which it fits ([`sizing`]), the layout ([`layout`]),
//! and the bytes ([`emit`], [`record`]).
//! Invariant: memory is 8 bytes per file in addition to the tree; only files in several pieces need more.

mod emit;
mod layout;
mod map;
mod needs;
mod received;
mod record;
mod sizing;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Range;

use obento_block::BlockDevice;
use obento_driver::{
    Build, BuildError, BuildOptions, BuildPlan, Contents, FormatError, Formatted, NodeId, Receive, Tree,
};

use crate::Ext4Driver;
use crate::format::Draft;
use layout::Layout;
use needs::Needs;

impl Build for Ext4Driver {
    fn plan<'t>(
        &self,
        tree: &'t Tree,
        options: &BuildOptions,
    ) -> Result<Box<dyn BuildPlan + 't>, BuildError> {
        Ok(Box::new(sizing::plan(tree, options, None)?))
    }

    fn receive(&self, options: &BuildOptions) -> Result<Option<Box<dyn Receive>>, BuildError> {
        let received = sizing::receive(options)?;
        Ok(received.map(|received| -> Box<dyn Receive> { Box::new(received) }))
    }
}

/// A volume with a tree, before it is written.
struct VolumePlan<'t> {
    tree: &'t Tree,
    needs: Needs,
    draft: Draft,
    layout: Layout,
    formatted: Formatted,
    /// The device of an external journal.
    journal: Option<Arc<dyn BlockDevice>>,
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
        let records = emit::Emit { tree, needs, layout, draft: &self.draft }.shared_records()?;
        self.draft.inodes.extend(records);
        let journal = self.journal.clone();
        self.draft.write(device, Contents::Zeros, journal.as_deref(), true, &mut |draft, output| {
            emit::Emit { tree, needs, layout, draft }.write(output)
        })
    }
}
