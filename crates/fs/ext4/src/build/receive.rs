//! Receiving files before the volume is planned.

use alloc::boxed::Box;
use core::ops::Range;

use obento_driver::tree::DataId;
use obento_driver::{BuildError, BuildOptions, BuildPlan, Receive, Tree};

use super::received::Received;
use super::{map, needs, sizing};

impl Receive for Received {
    fn place(
        &mut self,
        data: DataId,
        size: u64,
        ranges: &[Range<u64>],
        sink: &mut dyn FnMut(Range<u64>, u64),
    ) -> Result<(), BuildError> {
        let ranges = needs::blocks_of(&self.draft.sb, size, ranges);
        let first = self.place_blocks(data, ranges)?;
        let pieces = self.pieces.get(first..).unwrap_or_default();
        for (range, offset) in map::runs(pieces, self.draft.sb.block_size) {
            sink(range.start..range.end.min(size), offset);
        }
        Ok(())
    }

    fn plan<'t>(
        mut self: Box<Self>,
        tree: &'t Tree,
        options: &BuildOptions,
        gone: &mut dyn FnMut(Range<u64>),
    ) -> Result<Box<dyn BuildPlan + 't>, BuildError> {
        self.keep(tree, gone)?;
        Ok(Box::new(sizing::plan(tree, options, Some(&self))?))
    }
}
