//! An open volume.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{Corrupt, Error, FileKind, Ino, Result, Structure};
use obento_block::{BlockDevice, Slots};
use obento_driver::Notice;

use crate::catalogue::{Catalogue, Collector, File};
use crate::codec::{self, CodecError, number};
use crate::content::Content;
use crate::nodes::{Inode, Node};
use crate::order::Order;
use crate::raw::kind;
use crate::scan::{Event, Fault, IMAGE_MAX, scan};
use crate::xattrs::Found;

/// Longest target of a symbolic link (`PATH_MAX` of Linux, without the NUL).
pub const TARGET_MAX: u32 = 4095;
/// Damaged nodes that get a notice.
const NOTICES: usize = 8;
/// The unit in which positions are shown.
const BLOCK: u32 = 4096;

/// Counts of what a scan found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Valid nodes of files.
    pub nodes: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Obsolete nodes.
    pub obsolete: u64,
    /// Damaged nodes.
    pub damaged: u64,
    /// Erased bytes.
    pub erased: u64,
    /// Summaries.
    pub summaries: u64,
    /// Codecs in use, a bit for each number.
    pub codecs: u16,
}

/// What says where erase blocks are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Blocks {
    /// Bits that are set in the position of a clean marker.
    markers: u32,
    /// Bits in which the first and the last byte of a node differ.
    nodes: u32,
}

impl Blocks {
    /// Returns the size of erase blocks, if it is a power of two and clean markers show it.
    fn size(self) -> Option<u32> {
        let size = 1_u32.checked_shl(self.markers.trailing_zeros())?;
        (size > self.nodes).then_some(size)
    }
}

/// The result of a scan.
pub struct Scanned {
    /// Nodes.
    pub collector: Collector,
    /// Counts.
    pub counts: Counts,
    /// Size of erase blocks, if it is known.
    pub erase_block: Option<u32>,
    notices: Vec<Notice>,
}

/// Returns the error for a damaged node at `at`.
pub fn error_of(at: u32, fault: Fault) -> Error {
    // A node belongs to an inode, and the number may be what is damaged.
    let (structure, block) = (Structure::Node, (at / BLOCK).into());
    let offset = at % BLOCK;
    match fault {
        Fault::Checksum { found, expected, .. } => Corrupt::Checksum { structure, block, found, expected },
        Fault::Field { field, found } => Corrupt::Field { structure, field, block, offset, found },
        Fault::Truncated => Corrupt::Truncated { structure, block, offset, len: 0 },
    }
    .into()
}

/// Reads the whole image.
///
/// # Errors
///
/// - `Unsupported`: a node is of a type that must be supported.
/// - Those of the device.
pub fn collect(device: &dyn BlockDevice, order: Order) -> Result<Scanned> {
    let (mut collector, mut counts, mut blocks) =
        (Collector::default(), Counts::default(), Blocks::default());
    let mut notices = Vec::new();
    counts.erased = scan(device, order, &mut |at, event| {
        match event {
            Event::Node(node) => {
                counts.nodes = counts.nodes.saturating_add(1);
                if let Node::Inode(inode) = &node {
                    let bit = 1_u16.checked_shl(inode.codec.into()).unwrap_or(0);
                    counts.codecs |= if inode.len > 0 { bit } else { 0 };
                    let end = inode.data_at().saturating_add(inode.stored.into()).saturating_sub(1);
                    blocks.nodes |= at ^ u32::try_from(end).unwrap_or(at);
                    counts.bytes = counts.bytes.saturating_add(end.saturating_sub(at.into()));
                }
                collector.add(node);
            }
            Event::Obsolete(_) => counts.obsolete = counts.obsolete.saturating_add(1),
            Event::Damaged(_, fault) => {
                counts.damaged = counts.damaged.saturating_add(1);
                if notices.len() < NOTICES {
                    notices.push(Notice::Damaged(error_of(at, fault)));
                }
            }
            Event::Incompatible(header) => {
                let bits = header.kind.into();
                return Err(Error::Unsupported(obento_base::Feature::Bits { set: "node type", bits }));
            }
            Event::Other(header) => {
                blocks.markers |= if header.kind == kind::CLEAN_MARKER { at } else { 0 };
                counts.summaries = counts.summaries.saturating_add(u64::from(header.kind == kind::SUMMARY));
            }
            Event::Unknown(_) | Event::NoNode { .. } | Event::Garbage(_) => {}
        }
        Ok(())
    })?;
    Ok(Scanned { collector, counts, erase_block: blocks.size(), notices })
}

/// An open volume.
pub struct Volume {
    device: Arc<dyn BlockDevice>,
    order: Order,
    /// Inodes and names.
    pub catalogue: Catalogue,
    /// Counts of the scan.
    pub counts: Counts,
    /// Size of erase blocks, if it is known.
    pub erase_block: Option<u32>,
    /// Remarks.
    pub notices: Vec<Notice>,
    contents: Slots<u64, Arc<Content>>,
    pieces: Slots<u64, Arc<[u8]>>,
    /// The attributes of the inode whose attributes were read last.
    pub xattrs: Slots<u64, Arc<Found>>,
}

impl Volume {
    /// Opens a volume.
    ///
    /// # Errors
    ///
    /// Those of [`collect`].
    pub fn open(device: Arc<dyn BlockDevice>, order: Order, cache: usize) -> Result<Self> {
        let Scanned { collector, counts, erase_block, notices } = collect(&*device, order)?;
        let catalogue = collector.finish(&mut |_| {});
        Ok(Self { erase_block, notices, ..Self::with(device, order, catalogue, counts, cache) })
    }

    /// Creates a volume from its parts.
    pub fn with(
        device: Arc<dyn BlockDevice>,
        order: Order,
        catalogue: Catalogue,
        counts: Counts,
        cache: usize,
    ) -> Self {
        Self {
            device,
            order,
            catalogue,
            counts,
            erase_block: None,
            notices: Vec::new(),
            contents: Slots::new(32),
            // Most pieces have 4 KiB.
            pieces: Slots::new((cache / (64 << 10)).clamp(4, 256)),
            xattrs: Slots::new(1),
        }
    }

    /// Returns the byte order.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Returns the length of the image that is used.
    pub fn len(&self) -> u64 {
        self.device.len().min(IMAGE_MAX)
    }

    /// Returns the device.
    pub fn device_ref(&self) -> &dyn BlockDevice {
        &*self.device
    }

    /// Returns an inode.
    ///
    /// # Errors
    ///
    /// - `Stale`: the inode is not in use.
    pub fn file(&self, ino: Ino) -> Result<&File> {
        let number = u32::try_from(ino.0).map_err(|_| Error::Stale)?;
        self.catalogue.file(number).ok_or(Error::Stale)
    }

    /// Returns the type of an inode.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: the type is unknown.
    pub fn kind(&self, file: &File) -> Result<FileKind> {
        self.catalogue.kind(file).map_err(|mode| self.field(file, "mode", mode.into()))
    }

    /// Returns a directory.
    ///
    /// # Errors
    ///
    /// 1. `Stale`: the inode is not in use.
    /// 2. `NotDirectory`: the inode is not a directory.
    pub fn directory(&self, ino: Ino) -> Result<&File> {
        let file = self.file(ino)?;
        match self.catalogue.kind(file) {
            Ok(FileKind::Directory) => Ok(file),
            _ => Err(Error::NotDirectory),
        }
    }

    /// Returns the error for a field of the newest node of an inode.
    pub fn field(&self, file: &File, field: &'static str, found: u64) -> Error {
        let at = self.catalogue.latest(file).map_or(0, |node| node.at);
        field_of(file.ino, at, field, found)
    }

    /// Returns the bytes of a regular file.
    ///
    /// # Errors
    ///
    /// 1. `IsDirectory`: `ino` is a directory.
    /// 2. `Invalid`: `ino` is not a regular file.
    pub fn content(&self, ino: Ino) -> Result<Arc<Content>> {
        if let Some(content) = self.contents.get(&ino.0) {
            return Ok(content);
        }
        let file = self.file(ino)?;
        match self.kind(file)? {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Error::IsDirectory),
            _ => return Err(Error::Invalid),
        }
        let content = Content::new(self.catalogue.nodes(file));
        Ok(self.contents.put(ino.0, Arc::new(content)))
    }

    /// Returns the bytes of a node that is not the start of a regular file: a target or a device number.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: the inode has no data, or more than `max` bytes.
    pub fn value(&self, file: &File, max: u32) -> Result<Arc<[u8]>> {
        let latest = self.catalogue.latest(file).filter(|node| node.len > 0);
        let node = latest.ok_or_else(|| self.field(file, "dsize", 0))?;
        if node.len > max {
            return Err(self.field(file, "dsize", node.len.into()));
        }
        self.unpacked(node)
    }

    /// Returns the decompressed bytes of a node.
    ///
    /// # Errors
    ///
    /// 1. `Unsupported`: the codec is not supported.
    /// 2. `Corrupt`: the data is damaged.
    pub fn unpacked(&self, node: &Inode) -> Result<Arc<[u8]>> {
        if let Some(piece) = self.pieces.get(&node.at.into()) {
            return Ok(piece);
        }
        let wrong = |field, found| field_of(node.ino, node.at, field, found);
        if node.len > codec::OUTPUT_MAX {
            return Err(wrong("dsize", node.len.into()));
        }
        let stored = self.stored(node)?;
        let mut output = vec![0; to_usize(node.len.into())];
        codec::decompress(node.codec, &stored, &mut output).map_err(|error| match error {
            CodecError::Unsupported(feature) => Error::Unsupported(feature),
            CodecError::Unknown => wrong("compr", node.codec.into()),
            CodecError::Damaged => wrong("data", node.codec.into()),
        })?;
        Ok(self.pieces.put(node.at.into(), output.into()))
    }

    /// Returns the compressed bytes of a node: at most [`COMPRESSED_MAX`].
    pub fn stored(&self, node: &Inode) -> Result<Vec<u8>> {
        let mut bytes = vec![0; to_usize(node.stored.into()).min(COMPRESSED_MAX)];
        self.device.read_at(node.data_at(), &mut bytes)?;
        Ok(bytes)
    }

    /// Reads bytes of a node from byte `skip` of its range on.
    ///
    /// # Errors
    ///
    /// Those of [`Volume::unpacked`].
    pub fn read_node(&self, node: &Inode, skip: u64, buf: &mut [u8]) -> Result<()> {
        match node.codec {
            number::ZERO => buf.fill(0),
            number::NONE if node.stored >= node.len => {
                self.device.read_at(node.data_at().saturating_add(skip), buf)?;
            }
            _ => {
                let bytes = self.unpacked(node)?;
                let from = bytes.get(to_usize(skip)..).unwrap_or_default();
                let from = from.get(..buf.len());
                buf.copy_from_slice(
                    from.ok_or_else(|| field_of(node.ino, node.at, "dsize", node.len.into()))?,
                );
            }
        }
        Ok(())
    }
}

/// Most bytes of a compressed node. Compression that makes data larger is not used, so that this is generous.
const COMPRESSED_MAX: usize = 2 << 20;

fn field_of(ino: u32, at: u32, field: &'static str, found: u64) -> Error {
    let structure = Structure::Inode(Ino(ino.into()));
    Corrupt::Field { structure, field, block: (at / BLOCK).into(), offset: at % BLOCK, found }.into()
}
