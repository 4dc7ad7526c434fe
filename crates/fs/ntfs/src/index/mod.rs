//! Indexes: the B-trees of directories and of `$Secure`.
//!
//! Layout: the root node is an attribute of the file. The other nodes are blocks of a value in clusters; a bitmap says
//! which are in use. An entry refers to the node with the keys before its own. Each node ends with an entry without a
//! key.
//! Invariant: a listing reads each block in use once, in the order of their places, so that it ends whatever the tree
//! says.
//! Source: linux-ntfs documentation, "Index"; libfsntfs documentation, "The index".

mod list;
mod lookup;
mod node;

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Corrupt, Error, Ino, Result, Structure};

use crate::data::stream::Stream;
use crate::driver::volume::Volume;
use crate::layout::bytes::{u32_at, u64_at};
use crate::layout::fixup;
use crate::layout::raw::kind;
use crate::mft::{File, Value};
pub use node::{Entry, NAMES, Node};

/// Offset of the header of entries in the root.
const ROOT_HEADER: usize = 16;
/// Offset of the header of entries in a block.
const BLOCK_HEADER: usize = 24;
/// Unit of the numbers of blocks that are smaller than a cluster.
const SMALL_UNIT: u64 = 512;
/// Largest bitmap of an index, for 2^27 blocks.
const BITMAP_MAX: u64 = 16 << 20;

/// An index of a file.
#[derive(Debug)]
pub struct Index {
    /// The file.
    pub ino: Ino,
    /// Root node.
    pub root: Node,
    /// Bytes of a block.
    pub block_size: u32,
    /// Location of the blocks.
    blocks: Option<Arc<Stream>>,
    /// Bits of the blocks in use.
    bitmap: Vec<u8>,
}

impl Index {
    /// Opens the index `name` of a file.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: the file has no such index, or its root is damaged.
    pub fn open(volume: &Volume, file: &File, name: &[u8]) -> Result<Self> {
        let value = |kind| file.value(volume.mft(), kind, name);
        let Some(Value::Resident(root, _)) = value(kind::INDEX_ROOT)? else {
            return Err(file.base.field("IndexRoot", 0, 0));
        };
        let block_size = u32_at(&root, 8).unwrap_or(0);
        if !block_size.is_power_of_two() || !(512..=1 << 16).contains(&block_size) {
            return Err(file.base.field("BytesPerIndexBuffer", 8, block_size.into()));
        }
        let root =
            Node::decode(root, ROOT_HEADER, 0).map_err(|(field, found)| file.base.field(field, 0, found))?;
        let blocks = match value(kind::INDEX_ALLOCATION)? {
            Some(Value::Stream(stream)) if !stream.is_compressed() => Some(stream),
            _ => None,
        };
        let bitmap = match value(kind::BITMAP)? {
            Some(value) if blocks.is_some() => volume.read_value(file.ino(), value, BITMAP_MAX)?,
            _ => Vec::new(),
        };
        Ok(Self { ino: file.ino(), root, block_size, blocks, bitmap })
    }

    /// Returns the number of blocks.
    pub fn blocks(&self) -> u64 {
        let size = self.blocks.as_ref().map_or(0, |blocks| blocks.size());
        size.checked_div(self.block_size.into()).unwrap_or(0)
    }

    /// Returns whether a block is in use.
    pub fn is_used(&self, block: u64) -> bool {
        let byte = self.bitmap.get(to_usize(block >> 3)).copied().unwrap_or(0);
        byte.checked_shr(u32::try_from(block & 7).unwrap_or(0)).unwrap_or(0) & 1 == 1
    }

    /// Returns whether the bitmap has a bit for a block.
    pub fn has_bit(&self, block: u64) -> bool {
        to_usize(block >> 3) < self.bitmap.len()
    }

    /// Returns the block that a node number means.
    pub fn block_of(&self, volume: &Volume, vcn: u64) -> Option<u64> {
        let bytes = vcn.checked_mul(self.unit(volume))?;
        let block = bytes.checked_div(self.block_size.into())?;
        (bytes.checked_rem(self.block_size.into())? == 0 && block < self.blocks()).then_some(block)
    }

    /// Returns the unit of node numbers.
    fn unit(&self, volume: &Volume) -> u64 {
        let cluster = volume.geometry().cluster_size;
        if self.block_size < cluster { SMALL_UNIT } else { cluster.into() }
    }

    fn structure(&self) -> Structure {
        Structure::DirectoryIndex(self.ino)
    }

    /// Returns the error for a field of a node.
    pub fn field(
        &self,
        volume: &Volume,
        node_offset: u64,
        field: &'static str,
        at: usize,
        found: u64,
    ) -> Error {
        let cluster = u64::from(volume.geometry().cluster_size);
        let block = node_offset.checked_div(cluster).unwrap_or(0);
        let inside = node_offset.checked_rem(cluster).unwrap_or(0).saturating_add(to_u64(at));
        let offset = u32::try_from(inside).unwrap_or(u32::MAX);
        Corrupt::Field { structure: self.structure(), field, block, offset, found }.into()
    }

    /// Reads a block.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: the block is not a node.
    pub fn node(&self, volume: &Volume, block: u64) -> Result<Node> {
        let key = (self.ino.0, block);
        // Only directories are read often.
        match volume.nodes().get(&key) {
            Some(node) => Ok(node),
            None => Ok(volume.nodes().put(key, self.read_node(volume, block)?)),
        }
    }

    fn read_node(&self, volume: &Volume, block: u64) -> Result<Node> {
        let blocks = self.blocks.as_ref().ok_or(Error::NotFound)?;
        let at = block.saturating_mul(self.block_size.into());
        let mut bytes = vec![0; to_usize(self.block_size.into())];
        blocks.read(volume.device_ref(), volume.geometry(), at, &mut bytes)?;
        let place = blocks.offset_of(at, volume.geometry()).unwrap_or(0);
        let magic = bytes.first_chunk().map_or(0, |&magic| u32::from_le_bytes(magic));
        let expected = u32::from_le_bytes(*b"INDX");
        if magic != expected {
            let block = place.checked_div(volume.geometry().cluster_size.into()).unwrap_or(0);
            let (found, expected) = (magic.into(), expected.into());
            return Err(Corrupt::Magic { structure: self.structure(), block, found, expected }.into());
        }
        let field = |field, at, found| self.field(volume, place, field, at, found);
        fixup::apply(&mut bytes).map_err(|error| match error {
            fixup::FixupError::Array(found) => field("UpdateSequenceArray", 4, found.into()),
            fixup::FixupError::Torn(sector, found) => {
                let at = usize::from(sector).saturating_mul(fixup::STRIDE).saturating_add(510);
                field("UpdateSequenceNumber", at, found.into())
            }
        })?;
        let stored = u64_at(&bytes, 16).unwrap_or(0);
        if self.block_of(volume, stored) != Some(block) {
            return Err(field("ThisBlock", 16, stored));
        }
        Node::decode(bytes.into(), BLOCK_HEADER, place)
            .map_err(|(name, found)| field(name, BLOCK_HEADER, found))
    }
}
