//! Alternate data streams as extended attributes `user.NAME`, and raw values under the names of ntfs-3g.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::utf16::to_units;
use obento_base::{Error, Feature, Ino, Result};
use obento_driver::{XattrMode, Xattrs};

use super::node::Facts;
use super::stream_number;
use super::stream_table::StreamTable;
use super::streams::has_streams;
use super::volume::Volume;
use crate::attribute::name::to_utf8;
use crate::data::wof;
use crate::layout::raw::kind;
use crate::reparse::{self, tag};

/// Largest value that Linux passes (`XATTR_SIZE_MAX`). A longer stream is listed, and reading it fails.
const VALUE_MAX: u64 = 64 << 10;
const LONG_STREAM: Feature = Feature::Named("a stream of more than 64 KiB as an attribute");
/// Longest name that Linux passes (`XATTR_NAME_MAX`).
const NAME_MAX: usize = 255;
const USER: &[u8] = b"user.";

impl Volume {
    /// Returns the facts and the streams of a file.
    ///
    /// # Errors
    ///
    /// - `Stale`: the file is not in use.
    /// - `Corrupt`: a record of the file is damaged.
    fn streams_of(&self, ino: Ino) -> Result<Arc<(Facts, StreamTable)>> {
        if let Some(found) = self.streams.get(&ino.0) {
            return Ok(found);
        }
        let file = self.mft().file(ino)?;
        let facts = Facts::of(self, &file)?;
        Ok(self.streams.put(ino.0, Arc::new((facts, StreamTable::of(file)?))))
    }
}

impl Xattrs for Volume {
    fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        if stream_number::split(ino).is_some() {
            return Err(Error::NoData);
        }
        let found = self.streams_of(ino)?;
        let (facts, table) = &*found;
        let file = &table.file;
        if let Some(stream) = name.strip_prefix(USER) {
            let units = to_units(stream).filter(|units| !units.is_empty()).ok_or(Error::NoData)?;
            let units: Vec<u8> = units.into_iter().flat_map(u16::to_le_bytes).collect();
            let is_hidden = self.options.hide_streams || !has_streams(facts.kind) || is_chunks(facts, &units);
            let value = if is_hidden { None } else { table.value(self.mft(), &units)? };
            let value = value.ok_or(Error::NoData)?;
            if value.size() > VALUE_MAX {
                return Err(Error::Unsupported(LONG_STREAM));
            }
            return self.read_value(ino, value, VALUE_MAX);
        }
        match name {
            b"system.ntfs_acl" => self.descriptor(file)?.ok_or(Error::NoData),
            b"system.ntfs_attrib" => Ok(facts.file_attributes().to_le_bytes().to_vec()),
            b"system.ntfs_attrib_be" => Ok(facts.file_attributes().to_be_bytes().to_vec()),
            b"system.ntfs_reparse_data" => {
                let value = file.value(self.mft(), kind::REPARSE_POINT, &[])?.ok_or(Error::NoData)?;
                self.read_value(ino, value, reparse::LEN_MAX)
            }
            _ => Err(Error::NoData),
        }
    }

    fn list_xattrs(&self, ino: Ino, sink: &mut dyn FnMut(&[u8])) -> Result<()> {
        if stream_number::split(ino).is_some() {
            return Ok(());
        }
        let found = self.streams_of(ino)?;
        let (facts, table) = &*found;
        if self.options.hide_streams || !has_streams(facts.kind) {
            return Ok(());
        }
        for stream in table.names().filter(|stream| !is_chunks(facts, stream)) {
            let name = [USER, &to_utf8(stream)].concat();
            if name.len() <= NAME_MAX && !name.contains(&0) {
                sink(&name);
            }
        }
        Ok(())
    }

    fn set_xattr(&self, _ino: Ino, _name: &[u8], _value: &[u8], _mode: XattrMode) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn remove_xattr(&self, _ino: Ino, _name: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }
}

/// Returns whether a stream contains the compressed chunks of its own file.
pub fn is_chunks(facts: &Facts, name: &[u8]) -> bool {
    name == wof::STREAM && facts.reparse.as_ref().is_some_and(|reparse| reparse.tag == tag::WOF)
}
