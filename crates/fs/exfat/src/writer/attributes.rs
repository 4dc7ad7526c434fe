//! Stamps and attributes.

use obento_base::wire::le;
use obento_base::{Attr, Error, FileKind, Ino, Result, Timestamp};
use obento_clusters::Zone;
use obento_driver::{SetAttr, TimeChange};

use super::Writer;
use crate::inode::{Attributes, Inode, ROOT};
use crate::raw::RawFile;
use crate::time;
use crate::volume::Volume;

impl RawFile {
    fn set_written(&mut self, moment: Timestamp, zone: Zone) {
        let (stamp, hundredths, offset) = time::encode(moment, zone);
        self.LastModifiedTimestamp = le::U32::new(stamp);
        (self.LastModified10msIncrement, self.LastModifiedUtcOffset) = (hundredths, offset);
    }

    fn set_accessed(&mut self, moment: Timestamp, zone: Zone) {
        let (stamp, _, offset) = time::encode(moment, zone);
        (self.LastAccessedTimestamp, self.LastAccessedUtcOffset) = (le::U32::new(stamp), offset);
    }

    fn set_created(&mut self, moment: Timestamp, zone: Zone) {
        let (stamp, hundredths, offset) = time::encode(moment, zone);
        self.CreateTimestamp = le::U32::new(stamp);
        (self.Create10msIncrement, self.CreateUtcOffset) = (hundredths, offset);
    }

    /// All three times.
    pub fn stamp(&mut self, moment: Timestamp, zone: Zone) {
        self.set_written(moment, zone);
        self.set_accessed(moment, zone);
        self.set_created(moment, zone);
    }
}

impl Writer {
    fn moment(&self, change: TimeChange) -> Timestamp {
        match change {
            TimeChange::Now => self.now(),
            TimeChange::At(moment) => moment,
        }
    }

    /// Notes that the data of a file changed.
    pub(super) fn stamp_data(&self, inode: &mut Inode, volume: &Volume, when: TimeChange) {
        inode.set.file.set_written(self.moment(when), volume.options().zone);
        let attributes = inode.set.attributes() | Attributes::ARCHIVE;
        inode.set.file.FileAttributes = le::U16::new(attributes.bits());
    }

    /// Notes that the names in a directory changed. The root has no set to note it in.
    pub(crate) fn stamp_dir(&mut self, volume: &Volume, dir: Ino) -> Result<()> {
        if dir == ROOT {
            return Ok(());
        }
        let mut inode = volume.inode(dir)?;
        inode.set.file.set_written(self.now(), volume.options().zone);
        self.put_inode(volume, &inode)
    }

    /// Changes attributes. Owners are the mount's: NotPermitted for another. Of the mode only whether anybody may write
    /// is kept, and of a directory not even that; other bits are left as they are, as in Linux. The root keeps nothing.
    pub fn set_attr(&mut self, volume: &Volume, ino: Ino, change: &SetAttr) -> Result<()> {
        let mut inode = volume.inode(ino)?;
        let options = volume.options();
        let other = |asked: Option<u32>, kept: u32| asked.is_some_and(|asked| asked != kept);
        if other(change.uid, options.uid) || other(change.gid, options.gid) {
            return Err(Error::NotPermitted);
        }
        if let Some(mode) = change.mode.filter(|_| inode.set.file_kind() == FileKind::Regular) {
            let mut attributes = inode.set.attributes();
            attributes.set(Attributes::READ_ONLY, mode.bits() & 0o222 == 0);
            inode.set.file.FileAttributes = le::U16::new(attributes.bits());
        }
        if let Some(atime) = change.atime {
            inode.set.file.set_accessed(self.moment(atime), options.zone);
        }
        if let Some(mtime) = change.mtime {
            inode.set.file.set_written(self.moment(mtime), options.zone);
        }
        if let Some(btime) = change.btime {
            inode.set.file.set_created(self.moment(btime), options.zone);
        }
        self.put_inode(volume, &inode)
    }

    /// The attributes of `ino`, as they are now.
    pub fn attr(volume: &Volume, ino: Ino) -> Result<Attr> {
        Ok(volume.inode(ino)?.attr(volume.super_block(), volume.options()))
    }
}
