//! Inodes that are to be freed or cut short: the list that begins in the super block.
//!
//! Invariant: the walk ends, since no inode is taken twice.
//! Source: e2fsprogs `e2fsck/super.c` `release_orphan_inodes`; Linux `Documentation/filesystems/ext4/orphan.rst`.

use alloc::collections::BTreeSet;

use obento_base::wire::FromBytes;

use super::view::View;
use super::{Issue, Told};
use crate::raw::RawInode;

/// Walks the list; answers who is on it.
pub(super) fn check(view: &View, told: &mut Told<'_>) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut next = view.sb.raw.s_last_orphan.get();
    while next != 0 {
        let ino = next;
        let broken = |why| Issue::OrphanList { ino, why };
        if ino < view.sb.first_ino || ino > view.sb.inodes_count {
            told.found(broken("it names an inode that cannot be on it"));
            break;
        }
        if !found.insert(ino) {
            told.found(broken("it runs in a circle"));
            break;
        }
        let record = view.record(ino);
        let raw = record.as_ref().and_then(|(record, _)| RawInode::ref_from_prefix(record).ok());
        let Some((raw, _)) = raw else {
            told.found(broken("an inode on it cannot be read"));
            break;
        };
        told.found(Issue::Orphan { ino });
        next = raw.i_dtime.get();
    }
    found
}
