//! A driver outside of obento's tree, to begin with: a flat file system that is read and not written.
//!
//! On disk: a [`raw::RawSuperBlock`], as many [`raw::RawFile`] as it says, and the bytes of the files. There is one directory, the
//! root, whose inode is 1; file `n` of the table, counted from 0, has inode `n + 2`.
//!
//! Invariant: every file of an open volume has a name of its own and lies within the volume, because [`Volume::decode`] refuses
//! what does not; nothing after it looks at the disk but for the bytes of files.

#![forbid(unsafe_code)]

pub mod raw;
mod volume;

use std::sync::Arc;

use obento::driver::{Access, Driver, FileSystem, OpenOptions, Probe};
use obento::{BlockDevice, Error, Result};
use zerocopy::FromBytes as _;

use raw::RawSuperBlock;
pub use volume::Volume;

/// The name of the type: `-t skeletonfs`.
pub const TYPE: &str = "skeletonfs";

/// The format.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlatDriver;

impl Driver for FlatDriver {
    fn names(&self) -> &'static [&'static str] {
        &[TYPE]
    }

    fn probe(&self, device: &dyn BlockDevice) -> Result<Option<Probe>> {
        let mut bytes = [0; size_of::<RawSuperBlock>()];
        if device.len() < bytes.len() as u64 {
            return Ok(None);
        }
        device.read_at(0, &mut bytes)?;
        let known = RawSuperBlock::read_from_bytes(&bytes).ok().filter(|raw| raw.magic == raw::MAGIC);
        Ok(known.map(|raw| Probe { fs_type: TYPE, len: raw.len.get(), ..Probe::default() }))
    }

    fn open(&self, device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Arc<dyn FileSystem>> {
        let volume = Volume::decode(device)?;
        match options.access {
            Access::ReadOnly => Ok(Arc::new(volume)),
            Access::ReadWrite => Err(Error::ReadOnly),
        }
    }
}

/// A volume with these files: names and bytes. For tests, and to have something to look at.
pub fn pack(files: &[(&str, &[u8])]) -> Vec<u8> {
    let table = size_of::<RawSuperBlock>() + files.len() * size_of::<raw::RawFile>();
    let mut records = Vec::new();
    let mut data = Vec::new();
    for (name, bytes) in files {
        records.push(raw::RawFile::new(name, (table + data.len()) as u64, bytes.len() as u64));
        data.extend_from_slice(bytes);
    }
    let super_block = RawSuperBlock::new(files.len() as u32, (table + data.len()) as u64);
    raw::bytes(&super_block, &records).into_iter().chain(data).collect()
}
