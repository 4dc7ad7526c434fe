//! [`FileSystem`] for a volume.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::{Attr, Error, Ino, Name, Result};
use obento_block::BlockDevice;
use obento_driver::{
    Cookie, Crash, EntrySink, Extent, FileSystem, Handover, Layout, Limits, StatFs, StoredProperties,
    VolumeInfo,
};

use super::node::Facts;
use super::stream_number;
use super::volume::Volume;
use crate::attribute::name::UNITS_MAX;
use crate::layout::raw::record;
use crate::mft::File;

/// Most bytes of a name: three for each unit of UTF-16.
const NAME_MAX: u32 = 3 * 255;
const _: () = assert!(UNITS_MAX == 255);

impl Volume {
    /// Returns a file. The number of the table itself is no inode number.
    fn file_of(&self, ino: Ino) -> Result<File> {
        if stream_number::split(ino).is_some() {
            return Err(Error::NotDirectory);
        }
        if ino.0 == record::MFT { Err(Error::Stale) } else { self.mft().file(ino) }
    }
}

/// The volume is only read, and inode numbers are those on disk.
impl Handover for Volume {
    fn prepare(&self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }
}

impl FileSystem for Volume {
    fn root(&self) -> Ino {
        Ino(record::ROOT)
    }

    fn limits(&self) -> Limits {
        Limits {
            name_max: NAME_MAX,
            symlink_max: 4095,
            link_max: 1023,
            file_size_max: crate::data::stream::SIZE_MAX,
            time_granularity: 100,
            uid_max: u32::MAX,
            gid_max: u32::MAX,
            keeps: StoredProperties::SYMLINKS
                | StoredProperties::SPECIAL
                | StoredProperties::HOLES
                | StoredProperties::CTIME
                | StoredProperties::ATIME
                | StoredProperties::DIRECTORIES,
            crash: Crash::Repairable,
        }
    }

    fn info(&self) -> VolumeInfo {
        self.describe()
    }

    fn statfs(&self) -> Result<StatFs> {
        let (free, free_inodes) = self.free()?;
        let geometry = self.geometry();
        Ok(StatFs {
            block_size: geometry.cluster_size,
            blocks: geometry.clusters,
            free,
            available: free,
            inodes: self.mft().records(),
            free_inodes,
        })
    }

    fn device(&self) -> Option<&Arc<dyn BlockDevice>> {
        Some(self.shared_device())
    }

    fn lookup(&self, dir: Ino, name: &Name) -> Result<Ino> {
        self.find(dir, name.as_bytes())
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        let file = self.file_of(dir)?;
        if !Facts::of(self, &file)?.is_directory() {
            return Err(Error::NotDirectory);
        }
        self.parent_of(&file)
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        if let Some((file, index)) = stream_number::split(ino) {
            return self.stream_attr(ino, file, index);
        }
        let file = self.file_of(ino)?;
        Facts::of(self, &file)?.attr(self, &file)
    }

    fn read_dir(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        self.index(dir)?.list(self, from, sink)
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        if stream_number::split(ino).is_some() {
            return Err(Error::Invalid);
        }
        let file = self.file_of(ino)?;
        Facts::of(self, &file)?.target(self, &file)
    }

    fn map(&self, _layout: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent> {
        let content = self.content(ino)?;
        if range.is_empty() {
            return Err(Error::Invalid);
        }
        self.extent(&content, range)
    }

    fn read(&self, _layout: &Layout<'_>, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let content = self.content(ino)?;
        self.read_content(ino, &content, offset, buf)
    }

    fn forget(&self, _ino: Ino) {}

    obento_driver::capabilities!(handover: Handover, xattrs: Xattrs, inspect: Inspect);
}
