//! The nodes of a tree: directories in the order of the tree, each with its entries, then the files.
//!
//! Inode numbers are those of the tree plus one. The node of a directory is newer than its entries, so that its times
//! count.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::iter;
use core::ops::Range;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{DeviceNumber, FileKind};
use obento_driver::tree::{Body, DataId, Node};
use obento_driver::{BuildError, FileBytes, FormatError, FormatNotice, NodeId, Tree, Unfit};

use super::flash::{Flash, NodeBody};
use super::settings::Shape;
use crate::codec::{self, number};
use crate::raw::{self, field, kind};
use crate::volume::TARGET_MAX;
use crate::xattrs;

/// Owner of a file whose own does not fit (`overflowuid` of Linux).
const OVERFLOW: u16 = 65_534;
/// Fewest bytes of data in a node that is shorter than a page (`JFFS2_MIN_DATA_LEN`).
const PART_MIN: u64 = 128;

/// The part of a file that a node contains.
#[derive(Clone, Copy)]
struct Fragment<'a> {
    offset: u32,
    /// Number of bytes of the file.
    len: u32,
    codec: u8,
    stored: &'a [u8],
}

impl Fragment<'_> {
    /// No data.
    const NONE: Fragment<'static> = Fragment { offset: 0, len: 0, codec: number::NONE, stored: &[] };
}

/// Writes a tree.
pub struct TreeWriter<'a> {
    shape: Shape,
    tree: &'a Tree,
    data: &'a dyn FileBytes,
    /// The image.
    pub flash: Flash,
    unfit: BTreeMap<NodeId, Unfit>,
    lost_owners: u64,
    /// Numbers of extended attributes by namespace, name and stored value.
    known: BTreeMap<(u8, Vec<u8>, Vec<u8>), u32>,
    sequence: u32,
}

/// Returns the inode number of a node.
fn ino_of(id: NodeId) -> u32 {
    id.0.saturating_add(1)
}

impl<'a> TreeWriter<'a> {
    /// Creates a writer.
    pub fn new(shape: Shape, tree: &'a Tree, data: &'a dyn FileBytes) -> Self {
        Self {
            shape,
            tree,
            data,
            flash: Flash::new(shape),
            unfit: BTreeMap::new(),
            lost_owners: 0,
            known: BTreeMap::new(),
            sequence: 0,
        }
    }

    /// Writes all nodes.
    ///
    /// # Errors
    ///
    /// 1. `Unfit`: the format cannot store some files.
    /// 2. `TooLarge`: the image exceeds 4 GiB.
    /// 3. Those of the sources.
    pub fn run(&mut self) -> Result<(), BuildError> {
        self.examine();
        if !self.unfit.is_empty() {
            return Err(BuildError::Unfit(core::mem::take(&mut self.unfit).into_iter().collect()));
        }
        let tree = self.tree;
        for (id, node) in tree.nodes() {
            match node.body {
                Body::Directory => self.directory(id, node)?,
                Body::File { size, data } => self.file(id, node, size, data)?,
                Body::Symlink => self.special(id, node, tree.target(node))?,
                Body::CharDevice(number) | Body::BlockDevice(number) => {
                    let value = self.device(number).unwrap_or_default();
                    self.special(id, node, &value)?;
                }
                Body::Fifo | Body::Socket => self.inode(id, node, 1, 0, Fragment::NONE)?,
            }
            self.xattrs(id, node)?;
        }
        Ok(())
    }

    /// Returns the losses.
    pub fn notices(&self) -> Vec<FormatNotice> {
        let lost = Some(self.lost_owners).filter(|&files| files > 0);
        lost.map(|files| FormatNotice::Lost { what: "owners", files }).into_iter().collect()
    }

    /// Collects the files that cannot be stored.
    fn examine(&mut self) {
        let mut names = BTreeSet::new();
        for (id, node) in self.tree.nodes() {
            let too_long = |(name, _): &(&[u8], NodeId)| name.len() > raw::NAME_MAX.into();
            names.extend(self.tree.children(id).filter(too_long).map(|(_, child)| child));
            let owner_fits = u16::try_from(node.attr.uid).is_ok() && u16::try_from(node.attr.gid).is_ok();
            self.lost_owners = self.lost_owners.saturating_add(u64::from(!owner_fits));
            if let Some(why) = self.unfit(node) {
                self.unfit.insert(id, why);
            }
        }
        self.unfit.extend(names.into_iter().map(|id| (id, Unfit::Name(raw::NAME_MAX.into()))));
    }

    fn unfit(&self, node: &Node) -> Option<Unfit> {
        if u32::try_from(node.attr.mtime.secs()).is_err() {
            return Some(Unfit::Time);
        }
        let target = to_u64(self.tree.target(node).len());
        match node.body {
            Body::File { size, .. } if size > u32::MAX.into() => Some(Unfit::Size(u32::MAX.into())),
            Body::Symlink if target == 0 || target > self.target_max() => {
                Some(Unfit::Target(u32::try_from(self.target_max()).unwrap_or(TARGET_MAX)))
            }
            Body::CharDevice(number) | Body::BlockDevice(number) if self.device(number).is_none() => {
                Some(Unfit::Device)
            }
            _ => self.unfit_xattrs(node),
        }
    }

    fn unfit_xattrs(&self, node: &Node) -> Option<Unfit> {
        for (name, value) in self.pairs(node) {
            let Some((prefix, rest)) = xattrs::split(name).filter(|(_, rest)| rest.len() <= 255) else {
                return Some(Unfit::XattrName);
            };
            let Some(stored) = xattrs::stored(self.shape.order, prefix, value) else {
                return Some(Unfit::XattrName);
            };
            if to_u64(stored.len()) > self.shape.value_max(rest.len()) {
                return Some(Unfit::Xattrs);
            }
        }
        None
    }

    fn target_max(&self) -> u64 {
        self.shape.node_max().saturating_sub(to_u64(raw::INODE)).min(TARGET_MAX.into())
    }

    fn pairs(&self, node: &Node) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let tree: &'a Tree = self.tree;
        let set = node.attr.xattrs.and_then(|set| tree.xattr_sets().get(set.index()));
        set.into_iter().flat_map(|set| set.iter()).map(|(name, value)| (&**name, &**value))
    }

    /// Returns the stored form of a device number, as `jffs2_encode_dev` of Linux writes it.
    fn device(&self, number: DeviceNumber) -> Option<Vec<u8>> {
        let DeviceNumber { major, minor } = number;
        match (u8::try_from(major), u8::try_from(minor)) {
            (Ok(major), Ok(minor)) => {
                Some(self.shape.order.bytes16(u16::from(major) << 8 | u16::from(minor)).to_vec())
            }
            _ if major < 1 << 12 && minor < 1 << 20 => {
                Some(self.shape.order.bytes32((minor & 0xff) | major << 8 | (minor & !0xff) << 12).to_vec())
            }
            _ => None,
        }
    }

    /// Writes an inode node.
    fn inode(
        &mut self,
        id: NodeId,
        node: &Node,
        version: u32,
        size: u32,
        part: Fragment<'_>,
    ) -> Result<(), BuildError> {
        let attr = &node.attr;
        let time = u32::try_from(attr.mtime.secs()).unwrap_or(0);
        let owner = |id: u32| u16::try_from(id).unwrap_or(OVERFLOW);
        let kind_bits = node.body.kind().mode_bits();
        let body = NodeBody::new(self.shape, kind::INODE, raw::INODE.saturating_add(part.stored.len()))
            .word(ino_of(id))
            .word(version)
            .word((kind_bits | attr.mode.bits()).into())
            .half(owner(attr.uid))
            .half(owner(attr.gid))
            .word(size)
            .word(time)
            .word(time)
            .word(time)
            .word(part.offset)
            .word(u32::try_from(part.stored.len()).unwrap_or(u32::MAX))
            .word(part.len)
            .bytes(&[part.codec, 0, 0, 0])
            .word(raw::crc(part.stored))
            .sum(field::inode::DATA_CRC)
            .bytes(part.stored);
        Ok(self.flash.put(&body)?)
    }

    fn directory(&mut self, id: NodeId, node: &Node) -> Result<(), BuildError> {
        let mut version = 0_u32;
        let tree = self.tree;
        let time = u32::try_from(node.attr.mtime.secs()).unwrap_or(0);
        for (name, child) in tree.children(id) {
            version = version.saturating_add(1);
            let kind = tree.node(child).map_or(FileKind::Regular, |child| child.body.kind());
            let kind = u8::try_from(kind.mode_bits() >> 12).unwrap_or(0);
            let len = u8::try_from(name.len()).unwrap_or(0);
            let entry = NodeBody::new(self.shape, kind::DIRENT, raw::DIRENT.saturating_add(name.len()))
                .word(ino_of(id))
                .word(version)
                .word(ino_of(child))
                .word(time)
                .bytes(&[len, kind, 0, 0])
                .sum(field::dirent::NODE_CRC)
                .word(raw::crc(name))
                .bytes(name);
            self.flash.put(&entry)?;
        }
        self.inode(id, node, version.saturating_add(1), 0, Fragment::NONE)
    }

    /// Writes a file with one node: the target of a link or a device number.
    fn special(&mut self, id: NodeId, node: &Node, value: &[u8]) -> Result<(), BuildError> {
        let len = u32::try_from(value.len()).unwrap_or(u32::MAX);
        let size = if node.body == Body::Symlink { len } else { 0 };
        self.inode(id, node, 1, size, Fragment { offset: 0, len, codec: number::NONE, stored: value })
    }

    fn file(&mut self, id: NodeId, node: &Node, size: u64, data: Option<DataId>) -> Result<(), BuildError> {
        let size32 = u32::try_from(size).unwrap_or(u32::MAX);
        if size == 0 {
            return self.inode(id, node, 1, 0, Fragment::NONE);
        }
        let (page, mut version, mut at) = (u64::from(self.shape.page), 0_u32, 0_u64);
        let mut bytes = vec![0; to_usize(page)];
        for range in self.pages(id, size, data) {
            if range.start > at {
                self.hole(id, node, &mut version, size32, at..range.start)?;
            }
            let mut start = range.start;
            while let Some(data) = data
                && start < range.end
            {
                let end = start.saturating_add(page).min(range.end);
                let part = bytes.get_mut(..to_usize(end.saturating_sub(start))).unwrap_or_default();
                self.data.read_at(data, start, part)?;
                self.page(id, node, &mut version, size32, (start, part))?;
                start = end;
            }
            at = range.end;
        }
        if at < size {
            self.hole(id, node, &mut version, size32, at..size)?;
        }
        Ok(())
    }

    /// Returns the ranges that contain data, in whole pages up to the end of the file.
    fn pages(&self, id: NodeId, size: u64, data: Option<DataId>) -> Vec<Range<u64>> {
        let page = u64::from(self.shape.page);
        let whole: Vec<Range<u64>> = match (data, self.tree.data_ranges(id)) {
            (None, _) => Vec::new(),
            (Some(_), None) => iter::once(0..size).collect(),
            (Some(_), Some(ranges)) => ranges.to_vec(),
        };
        let mut pages: Vec<Range<u64>> = Vec::new();
        for range in whole.into_iter().filter(|range| !range.is_empty()) {
            let start = range.start.saturating_sub(range.start.checked_rem(page).unwrap_or(0));
            let end = range.end.checked_next_multiple_of(page).unwrap_or(size).min(size);
            match pages.last_mut() {
                Some(last) if last.end >= start => last.end = last.end.max(end),
                _ => pages.push(start..end),
            }
        }
        pages
    }

    fn hole(
        &mut self,
        id: NodeId,
        node: &Node,
        version: &mut u32,
        size: u32,
        range: Range<u64>,
    ) -> Result<(), BuildError> {
        *version = version.saturating_add(1);
        let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let len = number(range.end.saturating_sub(range.start));
        let part = Fragment { offset: number(range.start), len, codec: number::ZERO, stored: &[] };
        self.inode(id, node, *version, size, part)
    }

    /// Writes the bytes of a page, in two nodes if they do not fit the rest of the erase block.
    fn page(
        &mut self,
        id: NodeId,
        node: &Node,
        version: &mut u32,
        size: u32,
        (mut start, mut bytes): (u64, &[u8]),
    ) -> Result<(), BuildError> {
        while !bytes.is_empty() {
            let (mut codec, mut packed) = self.compress(bytes);
            let mut len = bytes.len();
            let room = self.flash.room().saturating_sub(to_u64(raw::INODE));
            let most = self.shape.node_max().saturating_sub(to_u64(raw::INODE));
            let stored = to_u64(packed.as_ref().map_or(len, Vec::len));
            if stored > room && (room >= PART_MIN || stored > most) {
                len = len.min(to_usize(if room >= PART_MIN { room } else { most }));
                (codec, packed) = self.compress(bytes.get(..len).unwrap_or_default());
            }
            let (now, rest) = bytes.split_at_checked(len).unwrap_or((bytes, &[]));
            *version = version.saturating_add(1);
            let part = Fragment {
                offset: u32::try_from(start).unwrap_or(u32::MAX),
                len: u32::try_from(len).unwrap_or(u32::MAX),
                codec,
                stored: packed.as_deref().unwrap_or(now),
            };
            self.inode(id, node, *version, size, part)?;
            start = start.saturating_add(to_u64(len));
            bytes = rest;
        }
        Ok(())
    }

    /// Returns the shortest form, and its codec.
    fn compress(&self, bytes: &[u8]) -> (u8, Option<Vec<u8>>) {
        let packed =
            self.shape.codecs.iter().filter_map(|&codec| Some((codec, codec::compress(codec, bytes)?)));
        match packed.min_by_key(|(_, packed)| packed.len()) {
            Some((codec, packed)) => (codec, Some(packed)),
            None => (number::NONE, None),
        }
    }

    fn xattrs(&mut self, id: NodeId, node: &Node) -> Result<(), BuildError> {
        for (name, value) in self.pairs(node) {
            let Some((prefix, rest)) = xattrs::split(name) else { continue };
            let stored = xattrs::stored(self.shape.order, prefix, value).unwrap_or_default();
            let next = u32::try_from(self.known.len()).unwrap_or(u32::MAX).saturating_add(1);
            let key = (prefix, rest.to_vec(), stored);
            let number = self.known.get(&key).copied();
            if number.is_none() {
                self.xattr(next, prefix, rest, &key.2)?;
                self.known.insert(key, next);
            }
            // The lowest bit marks a reference that was removed.
            self.sequence = self.sequence.saturating_add(2);
            let xref = NodeBody::new(self.shape, kind::XREF, raw::XREF)
                .word(ino_of(id))
                .word(number.unwrap_or(next))
                .word(self.sequence)
                .sum(field::xref::NODE_CRC);
            self.flash.put(&xref)?;
        }
        Ok(())
    }

    fn xattr(&mut self, number: u32, prefix: u8, name: &[u8], value: &[u8]) -> Result<(), FormatError> {
        let data = [name, &[0], value].concat();
        // The length of this node includes the padding.
        let len = raw::XATTR.saturating_add(data.len()).next_multiple_of(4);
        let head = NodeBody::new(self.shape, kind::XATTR, len)
            .word(number)
            .word(1)
            .bytes(&[prefix, u8::try_from(name.len()).unwrap_or(0)])
            .half(u16::try_from(value.len()).unwrap_or(u16::MAX))
            .word(raw::crc(&data));
        self.flash.put(&head.sum(field::xattr::NODE_CRC).bytes(&data))
    }
}
