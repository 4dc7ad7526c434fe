//! Showing the on-disk structures field by field, for users and for tests that damage a field.
//!
//! Invariant: the stored fields are shown, with the log replayed but without fast commits, which are records of the
//! journal. Damage is reported after its record, and ends only that structure.

mod block;
mod directory;
mod fast_commit;
mod group;
mod inode;
mod journal;
mod locate;
mod super_block;
mod xattr;

use obento_base::Result;
use obento_driver::{ByteUse, Inspect, Record, Target};

use crate::contract::Ext4;

/// The receiver of records.
type Sink<'a> = &'a mut dyn FnMut(Result<Record>);

impl Inspect for Ext4 {
    fn inspect(&self, target: Target, sink: &mut dyn FnMut(Result<Record>)) -> Result<()> {
        let volume = self.volume();
        match target {
            Target::SuperBlock(copy) => super_block::inspect(volume, copy, sink),
            Target::Group(group) => group::inspect(volume, group, sink),
            Target::Inode(ino) => inode::inspect(volume, ino, sink),
            Target::Directory(ino) => directory::inspect(volume, ino, sink),
            Target::Block(number) => block::inspect(volume, number, sink),
            Target::Journal => journal::inspect(volume, sink),
        }
    }

    fn locate(&self, offset: u64) -> Result<ByteUse> {
        locate::locate(self.volume(), offset)
    }
}
