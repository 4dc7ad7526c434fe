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
mod receive;
mod received;
mod record;
mod sizing;
mod volume_plan;

use alloc::boxed::Box;

use obento_driver::{Build, BuildError, BuildOptions, BuildPlan, Receive, Tree};

use crate::Ext4Driver;

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
