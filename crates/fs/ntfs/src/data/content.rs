//! The data of a regular file: where it is stored.

use alloc::sync::Arc;

use obento_base::wire::to_u64;
use obento_base::{Error, Feature, Result};

use super::stream::Stream;
use super::wof::{self, Method};
use crate::attribute::ENCRYPTED;
use crate::layout::raw::kind;
use crate::mft::{File, Mft, Value};
use crate::reparse::{Reparse, tag};

/// The data of a file.
#[derive(Clone, Debug)]
pub enum Content {
    /// In the record.
    Resident(Arc<[u8]>),
    /// In clusters.
    Plain(Arc<Stream>),
    /// In clusters, compressed in units.
    Packed(Arc<Stream>),
    /// In another stream, compressed in chunks.
    Wof {
        /// Compression.
        method: Method,
        /// Size in bytes.
        size: u64,
        /// Stream with the chunks.
        chunks: Value,
    },
    /// The driver cannot read it.
    Refused(Feature),
}

impl From<Value> for Content {
    fn from(value: Value) -> Self {
        if value.flags() & ENCRYPTED != 0 {
            return Self::Refused(Feature::Named("an encrypted file (EFS)"));
        }
        match value {
            Value::Resident(bytes, _) => Self::Resident(bytes),
            Value::Stream(stream) if stream.is_compressed() => Self::Packed(stream),
            Value::Stream(stream) => Self::Plain(stream),
        }
    }
}

impl Content {
    /// Returns the data of a file.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: the records of the file are damaged.
    pub fn of(mft: &Mft, file: &File, reparse: Option<&Reparse>) -> Result<Self> {
        let data = file.value(mft, kind::DATA, &[])?;
        let size = data.as_ref().map_or(0, Value::size);
        let empty = || Self::Resident(Arc::from(&[][..]));
        match reparse {
            Some(Reparse { tag: tag::WOF, data: point }) => {
                let method = match Method::decode(point) {
                    Ok(method) => method,
                    Err(Error::Unsupported(feature)) => return Ok(Self::Refused(feature)),
                    Err(error) => return Err(error),
                };
                match file.value(mft, kind::DATA, &wof::STREAM)? {
                    Some(chunks) => Ok(Self::Wof { method, size, chunks }),
                    None => Err(file.base.field("WofCompressedData", 0, 0)),
                }
            }
            Some(Reparse { tag: tag::DEDUP, .. }) => {
                Ok(Self::Refused(Feature::Named("a file whose data is deduplicated (Windows Server)")))
            }
            _ => Ok(data.map_or_else(empty, Self::from)),
        }
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        match self {
            Self::Resident(bytes) => to_u64(bytes.len()),
            Self::Plain(stream) | Self::Packed(stream) => stream.size(),
            Self::Wof { size, .. } => *size,
            Self::Refused(_) => 0,
        }
    }
}
