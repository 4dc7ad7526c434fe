//! Alternate data streams as files: `FILE:STREAM`, as Windows names them.
//!
//! A stream is found by this name and is not listed. It has the attributes of its file, and the size and the data of the
//! stream. Its inode number is the number of the record with the top bit set. The 15 bits above the 48 of the record
//! count the named streams of the file, in their order on disk.

use alloc::vec::Vec;

use obento_base::utf16::to_units;
use obento_base::{Attr, Error, FileKind, Ino, Result};

use super::node::Facts;
use super::stream_number::number;
use super::volume::Volume;
use super::xattrs::is_chunks;
use crate::attribute::Attribute;
use crate::data::content::Content;
use crate::layout::raw::kind;
use crate::mft::{File, Value};

/// Returns whether files of a kind have streams that Linux can show as attributes of users.
pub fn has_streams(kind: FileKind) -> bool {
    matches!(kind, FileKind::Regular | FileKind::Directory)
}

/// Returns whether an attribute is the first part of a named stream.
fn is_stream(attribute: &Attribute<'_>) -> bool {
    attribute.is_first() && !attribute.name.is_empty()
}

impl Volume {
    /// Returns the number of the stream that `name`, `FILE:STREAM`, refers to in a directory.
    ///
    /// # Errors
    ///
    /// - `NotFound`: no file has this name, or the file has no such stream.
    pub fn find_stream(&self, dir: Ino, name: &[u8]) -> Result<Ino> {
        let colon = name.iter().rposition(|&byte| byte == b':').ok_or(Error::NotFound)?;
        let (name, stream) = name.split_at_checked(colon).ok_or(Error::NotFound)?;
        let stream =
            stream.get(1..).and_then(to_units).filter(|units| !units.is_empty()).ok_or(Error::NotFound)?;
        let stream: Vec<u8> = stream.into_iter().flat_map(u16::to_le_bytes).collect();
        if self.options.hide_streams || name.is_empty() {
            return Err(Error::NotFound);
        }
        let ino = self.find_file(dir, name)?;
        let file = self.mft().file(ino)?;
        let facts = Facts::of(self, &file)?;
        if !has_streams(facts.kind) || is_chunks(&facts, &stream) {
            return Err(Error::NotFound);
        }
        let all = file.all(kind::DATA)?;
        let index =
            all.iter().filter(|attribute| is_stream(attribute)).position(|found| found.name == stream);
        index.and_then(|index| number(ino, index)).ok_or(Error::NotFound)
    }

    /// Returns the file and the value of a stream.
    ///
    /// # Errors
    ///
    /// - `Stale`: the file is not in use, or has no such stream.
    fn stream(&self, file: Ino, index: usize) -> Result<(File, Value)> {
        let file = self.mft().file(file)?;
        let all = file.all(kind::DATA)?;
        let name = all.iter().filter(|attribute| is_stream(attribute)).nth(index).ok_or(Error::Stale)?.name;
        let value = file.value(self.mft(), kind::DATA, name)?.ok_or(Error::Stale)?;
        Ok((file, value))
    }

    /// Returns the data of a stream.
    pub fn stream_content(&self, file: Ino, index: usize) -> Result<Content> {
        self.stream(file, index).map(|(_, value)| value.into())
    }

    /// Returns the attributes of a stream.
    pub fn stream_attr(&self, ino: Ino, file: Ino, index: usize) -> Result<Attr> {
        let (file, value) = self.stream(file, index)?;
        let attr = Facts::of(self, &file)?.attr(self, &file)?;
        let size = value.size();
        Ok(Attr { ino, kind: FileKind::Regular, nlink: 1, size, blocks: size.div_ceil(512), ..attr })
    }
}
