//! The search for nodes: one pass over the whole image.
//!
//! A node is found by its magic number and the checksum of its header, at a multiple of four bytes. The size of the erase
//! blocks is not needed, and no file says it. Summaries are not used in place of the nodes that they list: reading all
//! nodes finds the same, and finds damage as well.
//! Source: Linux `fs/jffs2/scan.c` `jffs2_scan_eraseblock`.
//!
//! Invariant: the position grows by at least four bytes for each step, so that the time is proportional to the image.

use alloc::vec::Vec;

use obento_base::Result;
use obento_base::crc::crc32_le;
use obento_base::wire::{to_u64, to_usize};
use obento_block::BlockDevice;

use crate::nodes::{Dirent, Inode, Node, Xattr, Xref};
use crate::order::Order;
use crate::raw::{self, HEADER, Header, NoHeader, crc, field, kind};

/// Bytes that are read at once.
const WINDOW: usize = 256 << 10;
/// Offsets have 32 bits.
pub const IMAGE_MAX: u64 = 1 << 32;

/// What is at a position of the image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A valid node.
    Node(Node),
    /// A node that is obsolete.
    Obsolete(Header),
    /// A structure of the format that refers to no file: clean marker, padding, a valid summary.
    Other(Header),
    /// A node of a type that a reader may ignore.
    Unknown(Header),
    /// A node of a type that a reader must support.
    Incompatible(Header),
    /// Bytes that start like a node, but are not a valid one.
    NoNode {
        /// Stored checksum.
        found: u32,
        /// Computed checksum.
        expected: u32,
    },
    /// A node that is damaged, with a valid header.
    Damaged(Header, Fault),
    /// Bytes that are neither a node nor erased nor zeros.
    Garbage(u32),
}

/// The damage of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A checksum is wrong.
    Checksum {
        /// What the checksum covers.
        what: &'static str,
        /// Stored checksum.
        found: u32,
        /// Computed checksum.
        expected: u32,
    },
    /// A field has a value that the format forbids.
    Field {
        /// Name of the field.
        field: &'static str,
        /// Stored value.
        found: u64,
    },
    /// The node runs past the end of the image.
    Truncated,
}

/// A part of the image in memory.
struct Window<'d> {
    device: &'d dyn BlockDevice,
    len: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl Window<'_> {
    /// Returns the bytes from `at` on: at least `min`, except at the end of the image. `min` is at most the window.
    fn get(&mut self, at: u64, min: usize) -> Result<&[u8]> {
        let end = self.start.saturating_add(to_u64(self.bytes.len()));
        let is_inside = at.saturating_add(to_u64(min)) <= end || end == self.len;
        if at < self.start || !is_inside {
            let len = self.len.saturating_sub(at).min(to_u64(WINDOW));
            self.bytes.resize(to_usize(len), 0);
            self.device.read_at(at, &mut self.bytes)?;
            self.start = at;
        }
        Ok(self.bytes.get(to_usize(at.saturating_sub(self.start))..).unwrap_or_default())
    }

    /// Returns the checksum of a range.
    fn crc(&mut self, mut at: u64, mut len: u64) -> Result<u32> {
        let mut sum = 0;
        while len > 0 {
            let part = to_usize(len).min(WINDOW / 4);
            let bytes = self.get(at, part)?;
            let bytes = bytes.get(..part.min(bytes.len())).unwrap_or_default();
            if bytes.is_empty() {
                break;
            }
            sum = crc32_le(sum, bytes);
            at = at.saturating_add(to_u64(bytes.len()));
            len = len.saturating_sub(to_u64(bytes.len()));
        }
        Ok(sum)
    }
}

/// Returns the byte order of the first node at `at`.
pub fn order_at(device: &dyn BlockDevice, at: u64) -> Result<Option<Order>> {
    let mut bytes = [0; HEADER];
    if at.saturating_add(to_u64(HEADER)) > device.len() {
        return Ok(None);
    }
    device.read_at(at, &mut bytes)?;
    let is_it = |order: &Order| Header::decode(*order, &bytes).is_ok();
    Ok([Order::Little, Order::Big].into_iter().find(is_it))
}

/// Passes everything on `device` to `sink`, in the order of the positions. Erased bytes and zeros are not passed. Returns the
/// number of bytes that are erased.
///
/// # Errors
///
/// Those of the device and of `sink`.
pub fn scan(
    device: &dyn BlockDevice,
    order: Order,
    sink: &mut dyn FnMut(u32, Event) -> Result<()>,
) -> Result<u64> {
    let len = device.len().min(IMAGE_MAX);
    let mut window = Window { device, len, start: 0, bytes: Vec::new() };
    let (mut at, mut erased) = (0_u64, 0_u64);
    let mut garbage: Option<(u64, u64)> = None;
    while let Ok(place) = u32::try_from(at)
        && at.saturating_add(to_u64(HEADER)) <= len
    {
        let bytes = window.get(at, HEADER)?;
        let blank = blank(bytes);
        let header = if blank == 0 { Header::decode(order, bytes) } else { Err(NoHeader::Magic) };
        let is_garbage = blank == 0 && header == Err(NoHeader::Magic);
        match (&mut garbage, is_garbage) {
            (Some((_, end)), true) if *end == at => *end = at.saturating_add(4),
            (garbage, _) => {
                if let Some((start, end)) = garbage.take() {
                    report(start, end, sink)?;
                }
                *garbage = is_garbage.then_some((at, at.saturating_add(4)));
            }
        }
        let step = match header {
            Ok(header) => {
                let event = window.node(order, at, header)?;
                let is_whole = event != Event::Damaged(header, Fault::Truncated);
                sink(place, event)?;
                if is_whole { u64::from(header.len).next_multiple_of(4) } else { 4 }
            }
            Err(NoHeader::Checksum { found, expected }) => {
                sink(place, Event::NoNode { found, expected })?;
                4
            }
            Err(NoHeader::Magic) => {
                let is_erased = bytes.first() == Some(&0xff);
                erased = erased.saturating_add(if is_erased { blank } else { 0 });
                blank
            }
        };
        at = at.saturating_add(step.max(4));
    }
    if let Some((start, end)) = garbage {
        report(start, end, sink)?;
    }
    Ok(erased)
}

fn report(start: u64, end: u64, sink: &mut dyn FnMut(u32, Event) -> Result<()>) -> Result<()> {
    let len = u32::try_from(end.saturating_sub(start)).unwrap_or(u32::MAX);
    sink(u32::try_from(start).unwrap_or(u32::MAX), Event::Garbage(len))
}

/// Returns the number of bytes at the start that are erased or zeros, in words of four bytes of the same kind.
fn blank(bytes: &[u8]) -> u64 {
    let fill = match bytes.first_chunk::<4>() {
        Some(&word) if word == [0xff; 4] || word == [0; 4] => word,
        _ => return 0,
    };
    to_u64(bytes.chunks_exact(4).take_while(|word| *word == fill).count()).saturating_mul(4)
}

impl Window<'_> {
    /// Returns the node at `at`, whose header is valid.
    fn node(&mut self, order: Order, at: u64, header: Header) -> Result<Event> {
        let end = at.saturating_add(header.len.into());
        if end > self.len || to_usize(header.len.into()) < HEADER {
            return Ok(Event::Damaged(header, Fault::Truncated));
        }
        if header.is_obsolete {
            return Ok(Event::Obsolete(header));
        }
        let fixed = match header.kind {
            kind::INODE => raw::INODE,
            kind::DIRENT => raw::DIRENT,
            kind::XATTR => raw::XATTR,
            kind::XREF => raw::XREF,
            kind::SUMMARY => raw::SUMMARY,
            kind::CLEAN_MARKER | kind::PADDING => return Ok(Event::Other(header)),
            other if other & kind::COMPATIBILITY == kind::INCOMPATIBLE => {
                return Ok(Event::Incompatible(header));
            }
            _ => return Ok(Event::Unknown(header)),
        };
        if to_usize(header.len.into()) < fixed {
            let found = header.len.into();
            return Ok(Event::Damaged(header, Fault::Field { field: "totlen", found }));
        }
        // A name has at most 255 bytes.
        let most = to_usize(header.len.into()).min(raw::DIRENT.saturating_add(255));
        let bytes: Vec<u8> = self.get(at, most)?.get(..most).unwrap_or_default().to_vec();
        let place = u32::try_from(at).unwrap_or(u32::MAX);
        let decoded = match header.kind {
            kind::INODE => self.inode(order, place, &bytes, header.len)?,
            kind::DIRENT => Dirent::decode(order, place, &bytes).map(Node::Dirent),
            kind::XATTR => self.xattr(order, place, &bytes, header.len)?,
            kind::XREF => Xref::decode(order, &bytes).map(Node::Xref),
            _ => match self.summary(order, place, &bytes, header.len)? {
                None => return Ok(Event::Other(header)),
                Some(fault) => Err(fault),
            },
        };
        Ok(match decoded {
            Ok(node) => Event::Node(node),
            Err(fault) => Event::Damaged(header, fault),
        })
    }

    fn inode(&mut self, order: Order, at: u32, bytes: &[u8], len: u32) -> Result<Result<Node, Fault>> {
        let inode = match Inode::decode(order, at, bytes, len) {
            Ok(inode) => inode,
            Err(fault) => return Ok(Err(fault)),
        };
        let found = order.u32(bytes, field::inode::DATA_CRC).unwrap_or(0);
        let expected = self.crc(inode.data_at(), inode.stored.into())?;
        if found != expected && inode.stored > 0 {
            return Ok(Err(Fault::Checksum { what: "data", found, expected }));
        }
        Ok(Ok(Node::Inode(inode)))
    }

    fn xattr(&mut self, order: Order, at: u32, bytes: &[u8], len: u32) -> Result<Result<Node, Fault>> {
        let xattr = match Xattr::decode(order, at, bytes, len) {
            Ok(xattr) => xattr,
            Err(fault) => return Ok(Err(fault)),
        };
        let found = order.u32(bytes, field::xattr::DATA_CRC).unwrap_or(0);
        let expected = self.crc(xattr.data_at(), to_u64(xattr.data_len()))?;
        if found != expected {
            return Ok(Err(Fault::Checksum { what: "value", found, expected }));
        }
        Ok(Ok(Node::Xattr(xattr)))
    }

    /// Verifies the checksums of a summary.
    fn summary(&mut self, order: Order, at: u32, bytes: &[u8], len: u32) -> Result<Option<Fault>> {
        let word = |at| order.u32(bytes, at).unwrap_or(0);
        let found = word(field::summary::NODE_CRC);
        let expected = crc(bytes.get(..field::summary::ENTRIES_CRC).unwrap_or_default());
        if found != expected {
            return Ok(Some(Fault::Checksum { what: "node", found, expected }));
        }
        let start = u64::from(at).saturating_add(to_u64(raw::SUMMARY));
        let rest = u64::from(len).saturating_sub(to_u64(raw::SUMMARY));
        let (found, expected) = (word(field::summary::ENTRIES_CRC), self.crc(start, rest)?);
        Ok((found != expected).then_some(Fault::Checksum { what: "entries", found, expected }))
    }
}
