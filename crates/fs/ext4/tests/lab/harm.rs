//! Kinds of damage: to blocks, to the contents of a group, to one kind of structure, to the end of an image. A seed
//! determines the kind and the places; the same seed gives the same mutant everywhere.

use obento_base::wire::to_usize;
use obento_ext4::raw::{RawDirEntry, RawExtentHeader, RawInode};
use obento_testkit::mutants::{Random, mutate};

use super::disk::{Bits, Disk, EXTENTS_FL, I_BLOCK, INLINE_DATA_FL};

/// Number of bytes of the super block before the reserved ones.
const SUPER_BLOCK_FIELDS: usize = 0x288;
const DIRECTORY: u16 = 4;
const FILE: u16 = 8;
pub const INDEX_FL: u32 = 0x1000;

macro_rules! kinds {
    ($($(#[doc = $about:literal])+ $kind:ident $name:literal;)*) => {
        /// A kind of damage.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Harm { $($(#[doc = $about])+ $kind),* }

        impl Harm {
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name),* }
            }
        }
    };
}

kinds! {
    /// Bits, bytes, words and sectors anywhere in use.
    Bytes "bytes";
    /// One to four runs of one to eight blocks are zeros.
    Zeroed "zeroed";
    /// Exchanged blocks in use, including those at the same place of two groups.
    Exchanged "exchanged";
    /// Two exchanged metadata blocks.
    Metadata "metadata";
    /// An inode was copied over another.
    Copied "copied";
    /// Bits in directory blocks, some with a corrected checksum.
    Directories "directories";
    /// Bits in blocks of extent trees and indirect blocks, and in the maps in inodes.
    Trees "trees";
    /// Bits in the inode table.
    Inodes "inodes";
    /// A missing end of the image.
    Truncated "truncated";
    /// Bits in the descriptors of groups.
    Descriptors "descriptors";
    /// Bits in the bitmaps.
    Bitmaps "bitmaps";
    /// Bits in the super block.
    SuperBlock "super-block";
}

impl Harm {
    /// Returns the kind with this name, or the kind that a seed chooses.
    pub fn of(name: Option<&str>, seed: u64) -> Self {
        let drawn = Self::ALL[to_usize(seed % Self::ALL.len() as u64)];
        name.map_or(drawn, |name| {
            *Self::ALL.iter().find(|kind| kind.name() == name).expect("a kind of damage")
        })
    }

    /// Returns the bytes of an intact image with this damage and with every checksum corrected. The kind must not
    /// remove bytes.
    pub fn sealed_mutant(self, sound: &Disk, seed: u64) -> Vec<u8> {
        let mut disk = Disk { bytes: self.mutant(sound, seed), ..sound.clone() };
        disk.seal_all(sound);
        disk.bytes
    }

    /// Returns the bytes of a sound image with this damage.
    pub fn mutant(self, sound: &Disk, seed: u64) -> Vec<u8> {
        let (mut disk, mut random) = (sound.clone(), Random::new(seed));
        let (places, random) = (Places::of(sound), &mut random);
        match self {
            Self::Bytes => mutate(&mut disk.bytes, random),
            Self::Zeroed => {
                (0..=random.below(4)).for_each(|_| zero(&mut disk, places.any(random), 1 + random.below(8)))
            }
            Self::Exchanged => (0..=random.below(3)).for_each(|_| exchange_used(&mut disk, &places, random)),
            Self::Metadata => {
                let [one, other] = [(); 2].map(|()| *pick(&places.metadata, random));
                exchange(&mut disk, one, other);
            }
            Self::Copied => copy_inode(&mut disk, &places, random),
            Self::Directories => (0..=random.below(4)).for_each(|_| in_directory(&mut disk, &places, random)),
            Self::Trees => (0..=random.below(4)).for_each(|_| in_tree(&mut disk, &places, random)),
            Self::Inodes => (0..=random.below(4)).for_each(|_| in_inode(&mut disk, &places, random)),
            Self::Truncated => {
                let sectors = disk.bytes.len() as u64 / 512;
                disk.bytes.truncate(to_usize(sectors / 4 + random.below(sectors * 3 / 4)) * 512);
            }
            Self::Descriptors => {
                let (at, len) = (disk.group_at(0), disk.groups() as usize * disk.desc);
                flip(&mut disk, at, len, random);
            }
            Self::Bitmaps => (0..=random.below(4)).for_each(|_| in_bitmap(&mut disk, sound, random)),
            Self::SuperBlock => flip(&mut disk, 1024, SUPER_BLOCK_FIELDS, random),
        }
        disk.bytes
    }
}

/// The places in an intact image.
pub struct Places {
    used: Vec<u32>,
    metadata: Vec<u32>,
    pub inodes: Vec<u32>,
    /// Directory blocks: inode, file block, volume block.
    pub directories: Vec<(u32, u32, u32)>,
    /// Blocks of trees, and their inodes.
    pub trees: Vec<(u32, u32)>,
}

impl Places {
    pub fn of(sound: &Disk) -> Self {
        let blocks = sound.bytes.chunks(sound.block).zip(0_u32..);
        let used = blocks.filter(|(bytes, _)| bytes.iter().any(|&byte| byte != 0)).map(|(_, block)| block);
        let all = 1..=sound.super_block().s_inodes_count.get();
        let inodes: Vec<u32> = all.filter(|&ino| sound.inode_of(ino).i_mode.get() != 0).collect();
        let (mut directories, mut trees) = (Vec::new(), Vec::new());
        for &ino in &inodes {
            let inode = sound.inode_of(ino);
            let kind = inode.i_mode.get() >> 12;
            if inode.i_flags.get() & INLINE_DATA_FL != 0 || !matches!(kind, DIRECTORY | FILE) {
                continue;
            }
            if kind == DIRECTORY {
                let count = inode.i_size_lo.get() / sound.block as u32;
                directories.extend((0..count).map(|at| (ino, at, sound.file_block(ino, at))));
            }
            trees.extend(tables(sound, &inode).into_iter().map(|block| (ino, block)));
        }
        let mut metadata: Vec<u32> = own_blocks(sound);
        metadata.extend(directories.iter().map(|(_, _, block)| block));
        metadata.extend(trees.iter().map(|(_, block)| block));
        metadata.extend(inodes.iter().map(|&ino| sound.inode_of(ino).i_file_acl_lo.get()));
        metadata.retain(|&block| block != 0);
        Self { used: used.collect(), metadata, inodes, directories, trees }
    }

    fn any(&self, random: &mut Random) -> u32 {
        *pick(&self.used, random)
    }
}

fn pick<'a, T>(list: &'a [T], random: &mut Random) -> &'a T {
    &list[to_usize(random.below(list.len() as u64))]
}

/// Returns the blocks of the super block, descriptors, bitmaps and inode tables.
fn own_blocks(sound: &Disk) -> Vec<u32> {
    let table = (sound.inodes_per_group as usize * sound.inode_size).div_ceil(sound.block) as u32;
    let first = (1024 / sound.block) as u32;
    let places = (0..sound.groups()).flat_map(|group| {
        let group = sound.group_of(group);
        let start = group.bg_inode_table_lo.get();
        [group.bg_block_bitmap_lo.get(), group.bg_inode_bitmap_lo.get()]
            .into_iter()
            .chain(start..start + table)
    });
    places.chain([first, first + 1]).collect()
}

/// Returns the blocks of a map that are not data.
fn tables(sound: &Disk, inode: &RawInode) -> Vec<u32> {
    let words = |bytes: &[u8]| -> Vec<u32> {
        bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
    };
    let mut found = Vec::new();
    if inode.i_flags.get() & EXTENTS_FL != 0 {
        let mut waiting = vec![inode.i_block.to_vec()];
        while let Some(node) = waiting.pop() {
            let (count, depth) = (words(&node)[0] >> 16, words(&node)[1] >> 16);
            // The block of an inner node's entry is in its second word.
            let below = (1..=count as usize).map(|n| words(&node)[n * 3 + 1]);
            for block in below.filter(|_| depth > 0) {
                found.push(block);
                waiting.push(sound.bytes[sound.range(block)].to_vec());
            }
        }
        return found;
    }
    let mut waiting: Vec<(u32, u32)> = words(&inode.i_block)[12..].iter().copied().zip(1..).collect();
    while let Some((block, level)) = waiting.pop().filter(|(block, _)| *block != 0) {
        found.push(block);
        if level > 1 {
            waiting
                .extend(words(&sound.bytes[sound.range(block)]).into_iter().map(|block| (block, level - 1)));
            waiting.retain(|(block, _)| *block != 0);
        }
    }
    found
}

fn zero(disk: &mut Disk, first: u32, count: u64) {
    let start = disk.range(first).start;
    let end = (start + to_usize(count) * disk.block).min(disk.bytes.len());
    disk.bytes[start..end].fill(0);
}

fn exchange(disk: &mut Disk, one: u32, other: u32) {
    let (from, to) = (disk.range(one), disk.range(other));
    let bytes = disk.bytes[from.clone()].to_vec();
    disk.bytes.copy_within(to.clone(), from.start);
    disk.put(to.start, &bytes);
}

/// Exchanges two used blocks, half of the time with the block at the same place of another group.
fn exchange_used(disk: &mut Disk, places: &Places, random: &mut Random) {
    let one = places.any(random);
    let (inside, groups) = ((one - disk.first) % disk.per_group, u64::from(disk.groups()));
    // A previous exchange has removed the super block.
    if groups == 0 {
        return;
    }
    let beside = disk.first + random.below(groups) as u32 * disk.per_group + inside;
    let is_there = disk.range(beside).end <= disk.bytes.len();
    let other = if random.below(2) == 0 && is_there { beside } else { places.any(random) };
    exchange(disk, one, other);
}

fn copy_inode(disk: &mut Disk, places: &Places, random: &mut Random) {
    let [from, to] = [(); 2].map(|()| *pick(&places.inodes, random));
    let at = disk.inode_at(from);
    let record = disk.bytes[at..at + disk.inode_size].to_vec();
    disk.put(disk.inode_at(to), &record);
    if random.below(2) == 0 {
        disk.seal_inode(to);
    }
}

/// Flips one to three bits of the `len` bytes from `at` on.
fn flip(disk: &mut Disk, at: usize, len: usize, random: &mut Random) {
    for _ in 0..=random.below(3) {
        disk.bytes[at + to_usize(random.below(len as u64))] ^= 1 << random.below(8);
    }
}

fn in_directory(disk: &mut Disk, places: &Places, random: &mut Random) {
    let &(ino, number, block) = pick(&places.directories, random);
    let at = disk.range(block).start;
    // The front of a block is in use more often.
    let len = disk.block >> (random.below(3) * 2);
    let head: RawDirEntry = disk.read(at);
    let is_node = head.inode.get() == 0 && usize::from(head.rec_len.get()) == disk.block;
    let is_indexed = disk.inode_of(ino).i_flags.get() & INDEX_FL != 0;
    flip(disk, at, len, random);
    match random.below(2) {
        0 => {}
        _ if is_indexed && number == 0 => disk.seal_index(ino, at + 32),
        _ if is_indexed && is_node => disk.seal_index(ino, at + 8),
        _ => disk.seal_entries(ino, at),
    }
}

fn in_bitmap(disk: &mut Disk, sound: &Disk, random: &mut Random) {
    let group = random.below(sound.groups().into()) as u32;
    let (bits, len) = match random.below(2) {
        0 => (Bits::Blocks, sound.clusters_per_group),
        _ => (Bits::Inodes, sound.inodes_per_group),
    };
    flip(disk, sound.bitmap_at(bits, group), len as usize / 8, random);
}

fn in_tree(disk: &mut Disk, places: &Places, random: &mut Random) {
    if places.trees.is_empty() || random.below(2) == 0 {
        let ino = *pick(&places.inodes, random);
        flip(disk, disk.inode_at(ino) + I_BLOCK, 60, random);
        return disk.seal_inode(ino);
    }
    let &(ino, block) = pick(&places.trees, random);
    let at = disk.range(block).start;
    flip(disk, at, disk.block >> (random.below(3) * 3), random);
    let most = disk.read::<RawExtentHeader>(at).eh_max.get();
    if random.below(2) == 0 && usize::from(most) < disk.block / size_of::<RawExtentHeader>() {
        disk.seal_extent_node(ino, at);
    }
}

fn in_inode(disk: &mut Disk, places: &Places, random: &mut Random) {
    let ino = *pick(&places.inodes, random);
    let len = if random.below(4) == 0 { disk.inode_size } else { 128 };
    flip(disk, disk.inode_at(ino), len, random);
    if random.below(4) > 0 {
        disk.seal_inode(ino);
    }
}
