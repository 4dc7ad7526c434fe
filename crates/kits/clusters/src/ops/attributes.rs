//! Timestamps and attributes.

use obento_base::{Error, FileKind, Result, Timestamp};
use obento_driver::{SetAttr, TimeChange};

use crate::guard::{DirWrite, InodeWrite};
use crate::inode::{FileEntry as _, ROOT};
use crate::volume::{Commit, Entries as _, Volume};

fn moment<V: Volume>(writer: &V::Writer, change: TimeChange) -> Timestamp {
    match change {
        TimeChange::Now => writer.now(),
        TimeChange::At(moment) => moment,
    }
}

/// Records in `inode` that its data changed.
pub fn stamp_data<V: Volume>(writer: &V::Writer, inode: &mut InodeWrite<'_, V>, when: TimeChange) {
    let zone = inode.volume().owner().zone;
    inode.entry.set_mtime(moment::<V>(writer, when), zone);
    inode.entry.set_archive();
}

/// Records that the names in a directory changed. The root has no attributes that could record the change.
pub(super) fn stamp_dir<V: Volume>(writer: &mut V::Writer, dir: &DirWrite<'_, V>) -> Result<()> {
    if dir.ino() == ROOT {
        return Ok(());
    }
    // The directory may have grown, which changed its entry.
    let (mut inode, zone) = (dir.volume().inode(dir.ino())?, dir.volume().owner().zone);
    let before = inode.entry.times(zone);
    inode.entry.set_mtime(writer.now(), zone);
    // The stored time has not changed.
    if inode.entry.times(zone) == before { Ok(()) } else { writer.put_inode(&inode) }
}

/// Changes attributes. Fails with `NotPermitted` for an owner other than that of the mount, and with `NotSupported` for
/// a project ID other than 0. For a file, only the write permission of a mode is stored. All other bits, and modes of
/// directories, are ignored, as in Linux. The root stores nothing.
pub fn set_attr<V: Volume>(
    writer: &mut V::Writer,
    mut inode: InodeWrite<'_, V>,
    change: &SetAttr,
) -> Result<()> {
    let owner = inode.volume().owner();
    let is_other = |asked: Option<u32>, kept: u32| asked.is_some_and(|asked| asked != kept);
    if is_other(change.uid, owner.uid) || is_other(change.gid, owner.gid) {
        return Err(Error::NotPermitted);
    }
    change.expect_no_project()?;
    if let Some(mode) = change.mode.filter(|_| inode.entry.file_kind() == FileKind::Regular) {
        inode.entry.set_read_only(mode.bits() & 0o222 == 0);
    }
    if let Some(atime) = change.atime {
        inode.entry.set_atime(moment::<V>(writer, atime), owner.zone);
    }
    if let Some(mtime) = change.mtime {
        inode.entry.set_mtime(moment::<V>(writer, mtime), owner.zone);
    }
    if let Some(btime) = change.btime {
        inode.entry.set_btime(moment::<V>(writer, btime), owner.zone);
    }
    writer.put_inode(&inode)
}
