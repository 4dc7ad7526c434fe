//! The places of structures in an image.

use std::ops::Range;

use obento_base::crc::crc32c;
use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout};
use obento_ext4::raw::{RawDirEntry, RawSuperBlock};
use obento_ext4::raw::{
    RawExtent, RawExtentHeader, RawExtentIndex, RawGroup32, RawInode, RawInodeExtra, RawXattrEntry,
};

/// The inode of the root directory.
pub const ROOT: u32 = 2;
pub const EXTENTS_FL: u32 = 0x8_0000;
pub const INLINE_DATA_FL: u32 = 0x1000_0000;
const METADATA_CSUM: u32 = 0x400;
const CSUM_SEED: u32 = 0x2000;
const BITS_64: u32 = 0x80;
/// `i_block` within an inode.
pub const I_BLOCK: usize = 0x28;
const HEADER: usize = size_of::<RawExtentHeader>();

/// An image in memory, with the contents of its super block when it was intact.
#[derive(Clone)]
pub struct Disk {
    pub bytes: Vec<u8>,
    pub block: usize,
    pub per_group: u32,
    pub inodes_per_group: u32,
    pub clusters_per_group: u32,
    pub first: u32,
    pub checked: bool,
    pub seed: u32,
    pub desc: usize,
    pub inode_size: usize,
}

impl Disk {
    /// Creates it from an image whose primary super block is intact.
    pub fn new(bytes: Vec<u8>) -> Self {
        let sb = RawSuperBlock::read_from_bytes(&bytes[1024..2048]).unwrap();
        let incompat = sb.s_feature_incompat.get();
        let seeded = incompat & CSUM_SEED != 0;
        Self {
            block: 1024 << sb.s_log_block_size.get(),
            per_group: sb.s_blocks_per_group.get(),
            inodes_per_group: sb.s_inodes_per_group.get(),
            clusters_per_group: sb.s_clusters_per_group.get(),
            first: sb.s_first_data_block.get(),
            checked: sb.s_feature_ro_compat.get() & METADATA_CSUM != 0,
            seed: if seeded { sb.s_checksum_seed.get() } else { crc32c(!0, &sb.s_uuid) },
            desc: if incompat & BITS_64 != 0 { sb.s_desc_size.get().into() } else { 32 },
            inode_size: if sb.s_rev_level.get() == 0 { 128 } else { sb.s_inode_size.get().into() },
            bytes,
        }
    }

    pub fn read<T: FromBytes + KnownLayout + Immutable>(&self, at: usize) -> T {
        T::read_from_bytes(&self.bytes[at..at + size_of::<T>()]).unwrap()
    }

    pub fn write<T: IntoBytes + Immutable>(&mut self, at: usize, value: &T) {
        self.bytes[at..at + size_of::<T>()].copy_from_slice(value.as_bytes());
    }

    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub fn super_block(&self) -> RawSuperBlock {
        self.read(1024)
    }

    pub fn groups(&self) -> u32 {
        self.super_block().s_blocks_count_lo.get().saturating_sub(self.first).div_ceil(self.per_group)
    }

    /// Returns the byte range of a block.
    pub fn range(&self, block: u32) -> Range<usize> {
        let at = block as usize * self.block;
        at..at + self.block
    }

    /// Returns the byte offset of a group's descriptor.
    pub fn group_at(&self, group: u32) -> usize {
        // In the block after the super block, which with clusters need not be in the first data block.
        (1024 / self.block + 1) * self.block + group as usize * self.desc
    }

    pub fn group_of(&self, group: u32) -> RawGroup32 {
        self.read(self.group_at(group))
    }

    /// Returns the byte offset of an inode's record.
    pub fn inode_at(&self, ino: u32) -> usize {
        let (group, index) = ((ino - 1) / self.inodes_per_group, (ino - 1) % self.inodes_per_group);
        let table = self.group_of(group).bg_inode_table_lo.get();
        table as usize * self.block + index as usize * self.inode_size
    }

    pub fn inode_of(&self, ino: u32) -> RawInode {
        self.read(self.inode_at(ino))
    }

    /// Returns the byte offset of the attributes in an inode: that of their magic number.
    pub fn inline_xattrs_at(&self, ino: u32) -> usize {
        let extra: RawInodeExtra = self.read(self.inode_at(ino) + 128);
        self.inode_at(ino) + 128 + usize::from(extra.i_extra_isize.get())
    }

    /// Returns the byte offset of the node of an extent tree that `path` leads to, which contains the index of each
    /// step.
    pub fn node_at(&self, ino: u32, path: &[usize]) -> usize {
        path.iter().fold(self.inode_at(ino) + I_BLOCK, |node, &step| {
            let index: RawExtentIndex = self.read(node + HEADER + step * size_of::<RawExtentIndex>());
            self.range(index.ei_leaf_lo.get()).start
        })
    }

    /// Returns the volume block of a file block; 0 for a hole.
    pub fn file_block(&self, ino: u32, block: u32) -> u32 {
        let inode = self.inode_of(ino);
        if inode.i_flags.get() & EXTENTS_FL == 0 {
            self.pointed(ino, block)
        } else {
            self.extended(ino, block)
        }
    }

    fn extended(&self, ino: u32, block: u32) -> u32 {
        let mut node = self.inode_at(ino) + I_BLOCK;
        loop {
            let header: RawExtentHeader = self.read(node);
            let entry = |n: u16| node + HEADER + usize::from(n) * size_of::<RawExtent>();
            let from = |n: &u16| self.read::<RawExtent>(entry(*n)).ee_block.get() <= block;
            let Some(last) = (0..header.eh_entries.get()).take_while(from).last() else { return 0 };
            if header.eh_depth.get() == 0 {
                let extent: RawExtent = self.read(entry(last));
                let skipped = block - extent.ee_block.get();
                let held = skipped < u32::from(extent.ee_len.get() & 0x7fff);
                return if held { extent.ee_start_lo.get() + skipped } else { 0 };
            }
            node = self.range(self.read::<RawExtentIndex>(entry(last)).ei_leaf_lo.get()).start;
        }
    }

    fn pointed(&self, ino: u32, block: u32) -> u32 {
        let (words, place) = ((self.block / 4) as u32, self.inode_at(ino) + I_BLOCK);
        let path: &[u32] = match block {
            0..12 => &[block],
            _ if block - 12 < words => &[12, block - 12],
            _ => &[13, (block - 12 - words) / words, (block - 12 - words) % words],
        };
        let mut at = place + path[0] as usize * 4;
        for step in &path[1..] {
            match self.word(at) {
                0 => return 0,
                table => at = self.range(table).start + *step as usize * 4,
            }
        }
        self.word(at)
    }

    pub fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().unwrap())
    }

    /// Returns the blocks of a file in order, without holes.
    pub fn file_blocks(&self, ino: u32) -> Vec<u32> {
        let count = self.inode_of(ino).i_size_lo.get().div_ceil(self.block as u32);
        (0..count).map(|n| self.file_block(ino, n)).filter(|&block| block != 0).collect()
    }

    /// Returns the runs of directory entries: the bytes of each block, or of the inline data.
    fn entry_runs(&self, dir: u32) -> Vec<Range<usize>> {
        if self.inode_of(dir).i_flags.get() & INLINE_DATA_FL != 0 {
            // The first word is the parent.
            let at = self.inode_at(dir) + I_BLOCK;
            return std::iter::once(at + 4..at + 60).chain(self.inline_rest(dir)).collect();
        }
        self.file_blocks(dir).into_iter().map(|block| self.range(block)).collect()
    }

    /// Returns the rest of inline data: the value of `system.data`.
    fn inline_rest(&self, ino: u32) -> Option<Range<usize>> {
        let first = self.inline_xattrs_at(ino) + 4;
        let entry: RawXattrEntry = self.read(first);
        let start = first + usize::from(entry.e_value_offs.get());
        (entry.e_name_index == 7).then(|| start..start + entry.e_value_size.get() as usize)
    }

    /// Returns the byte offset of the record of `name`. The nodes of an index look like unused records and are
    /// skipped.
    pub fn try_entry_at(&self, dir: u32, name: &str) -> Option<usize> {
        self.entry_runs(dir)
            .into_iter()
            .find_map(|run| self.entries(run).find(|&at| self.name(at) == name.as_bytes()))
    }

    pub fn entry_at(&self, dir: u32, name: &str) -> usize {
        self.try_entry_at(dir, name).unwrap_or_else(|| panic!("no {name} in directory {dir}"))
    }

    /// Returns the offsets of the records in a run.
    pub fn entries(&self, run: Range<usize>) -> impl Iterator<Item = usize> + '_ {
        let mut at = run.start;
        std::iter::from_fn(move || {
            let here = at;
            let record: RawDirEntry = (here + 8 <= run.end).then(|| self.read(here))?;
            let len = usize::from(record.rec_len.get());
            at += if len < 8 { run.end - here } else { len };
            Some(here)
        })
    }

    pub fn name(&self, at: usize) -> &[u8] {
        let record: RawDirEntry = self.read(at);
        let len = if record.inode.get() == 0 { 0 } else { usize::from(record.name_len) };
        &self.bytes[at + 8..at + 8 + len]
    }

    /// Returns the inode at a path below the root; `<12>` is the inode with this number.
    pub fn ino(&self, path: &str) -> u32 {
        if let Some(number) = path.strip_prefix('<').and_then(|path| path.strip_suffix('>')) {
            return number.parse().unwrap();
        }
        let names = path.split('/').filter(|name| !name.is_empty());
        names.fold(ROOT, |dir, name| self.read::<RawDirEntry>(self.entry_at(dir, name)).inode.get())
    }

    /// Returns a block that is free in the bitmap.
    pub fn free_block(&self) -> u32 {
        let end = self.super_block().s_blocks_count_lo.get();
        (self.first..end).rev().find(|&block| !self.bit(Bits::Blocks, block)).expect("a free block")
    }

    /// Returns group, byte offset and mask of the bit of a block or an inode.
    pub fn bit_at(&self, bits: Bits, number: u32) -> (u32, usize, u8) {
        let (per, first) = match bits {
            Bits::Blocks => (self.per_group, self.first),
            Bits::Inodes => (self.inodes_per_group, 1),
        };
        let (group, index) = ((number - first) / per, (number - first) % per);
        let index = if bits == Bits::Blocks { index / (per / self.clusters_per_group) } else { index };
        (group, self.bitmap_at(bits, group) + (index / 8) as usize, 1 << (index % 8))
    }

    pub fn bit(&self, bits: Bits, number: u32) -> bool {
        let (_, at, mask) = self.bit_at(bits, number);
        self.bytes[at] & mask != 0
    }

    pub fn bitmap_at(&self, bits: Bits, group: u32) -> usize {
        let group = self.group_of(group);
        let block = match bits {
            Bits::Blocks => group.bg_block_bitmap_lo,
            Bits::Inodes => group.bg_inode_bitmap_lo,
        };
        self.range(block.get()).start
    }
}

/// One of the two kinds of bitmaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bits {
    Blocks,
    Inodes,
}
