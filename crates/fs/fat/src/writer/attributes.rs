//! Stamps and attributes.

use obento_base::wire::le;
use obento_base::{Attr, Error, FileKind, Ino, Result, Timestamp};
use obento_driver::{SetAttr, TimeChange};

use super::Writer;
use crate::inode::{Attributes, Inode, ROOT};
use crate::raw::RawEntry;
use crate::time;
use crate::unit::Cluster;
use crate::volume::Volume;

impl RawEntry {
    /// Sets the first cluster.
    pub fn set_first(&mut self, first: Option<Cluster>) {
        let number = first.map_or(0, |first| first.0);
        self.DIR_FstClusLO = le::U16::new(u16::try_from(number & 0xffff).unwrap_or(0));
        self.DIR_FstClusHI = le::U16::new(u16::try_from(number >> 16).unwrap_or(0));
    }

    fn set_written(&mut self, moment: Timestamp, zone: time::Zone) {
        let (date, time, _) = time::encode(moment, zone);
        (self.DIR_WrtDate, self.DIR_WrtTime) = (le::U16::new(date), le::U16::new(time));
    }

    fn set_accessed(&mut self, moment: Timestamp, zone: time::Zone) {
        self.DIR_LstAccDate = le::U16::new(time::encode(moment, zone).0);
    }

    fn set_created(&mut self, moment: Timestamp, zone: time::Zone) {
        let (date, time, hundredths) = time::encode(moment, zone);
        (self.DIR_CrtDate, self.DIR_CrtTime) = (le::U16::new(date), le::U16::new(time));
        self.DIR_CrtTimeTenth = hundredths;
    }

    /// All three times.
    pub fn stamp(&mut self, moment: Timestamp, zone: time::Zone) {
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
        inode.raw.set_written(self.moment(when), volume.options().zone);
        inode.raw.DIR_Attr |= Attributes::ARCHIVE.bits();
    }

    /// Notes that the names in a directory changed. The root has no entry to note it in.
    pub(crate) fn stamp_dir(&mut self, volume: &Volume, dir: Ino) -> Result<()> {
        if dir == ROOT {
            return Ok(());
        }
        let mut inode = volume.inode(dir)?;
        inode.raw.set_written(self.now(), volume.options().zone);
        self.put_entry(volume, &inode)
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
        if let Some(mode) = change.mode.filter(|_| inode.raw.file_kind() == FileKind::Regular) {
            let attributes = inode.raw.attributes();
            let read_only = mode.bits() & 0o222 == 0;
            let attributes = if read_only {
                attributes | Attributes::READ_ONLY
            } else {
                attributes.difference(Attributes::READ_ONLY)
            };
            inode.raw.DIR_Attr = attributes.bits();
        }
        if let Some(atime) = change.atime {
            inode.raw.set_accessed(self.moment(atime), options.zone);
        }
        if let Some(mtime) = change.mtime {
            inode.raw.set_written(self.moment(mtime), options.zone);
        }
        if let Some(btime) = change.btime {
            inode.raw.set_created(self.moment(btime), options.zone);
        }
        if ino == ROOT { Ok(()) } else { self.put_entry(volume, &inode) }
    }

    /// The attributes of `ino`, as they are now.
    pub fn attr(volume: &Volume, ino: Ino) -> Result<Attr> {
        let inode = volume.inode(ino)?;
        let size = if inode.is_dir() { volume.directory_len(ino) } else { inode.size() };
        Ok(inode.attr(volume.super_block(), volume.options(), size))
    }
}
