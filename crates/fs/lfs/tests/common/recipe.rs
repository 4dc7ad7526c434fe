//! A writer of small volumes, from the structures in NetBSD `sys/ufs/lfs/lfs.h`: version 1, version 2 and LFS64, in both
//! byte orders. It shares no code with the driver.
//!
//! A volume has a tree at its first checkpoint. Then files change, and a second checkpoint or a crash follows.

use std::collections::BTreeMap;

/// Length of a block and of a fragment.
pub const BLOCK: usize = 1024;
pub const FRAGMENT: usize = 512;
/// Length of a segment, and number of segments.
const SEGMENT: usize = 64 << 10;
const SEGMENTS: usize = 20;
/// Inodes.
pub const FILE: u64 = 3;
pub const BIG: u64 = 10;
pub const NEW: u64 = 12;
/// The number after the greatest inode number.
const INODES: u64 = 100;

/// The kind of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    One,
    Two,
    Wide,
}

/// How a volume ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// A second checkpoint, in the first super block.
    Clean,
    /// A second checkpoint, in the second super block.
    CleanInSecond,
    /// No second checkpoint.
    Crash,
    /// No second checkpoint, and an operation that did not end.
    CrashInOperation,
}

/// What to write.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    pub width: Width,
    pub is_big_endian: bool,
    pub end: End,
}

/// Blocks of a file: their numbers in the file, and their bytes.
type FileBlocks<'a> = &'a [(i64, Vec<u8>)];

impl Default for Recipe {
    fn default() -> Self {
        Self { width: Width::Two, is_big_endian: false, end: End::Clean }
    }
}

/// Returns bytes that differ from those of other seeds.
pub fn bytes_of(seed: u32, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 24) as u8
    };
    (0..len).map(next).collect()
}

/// Returns the checksum.
pub fn sum(bytes: &[u8], is_big_endian: bool) -> u32 {
    let read = if is_big_endian { u16::from_be_bytes } else { u16::from_le_bytes };
    bytes.chunks_exact(2).fold(0, |sum, pair| sum ^ u32::from(read([pair[0], pair[1]])))
}

/// An inode.
#[derive(Clone)]
pub struct Node {
    ino: u64,
    mode: u16,
    links: u16,
    size: u64,
    generation: u32,
    /// Blocks by number.
    blocks: BTreeMap<u64, Vec<u8>>,
    /// A short target or a device number, in place of addresses.
    area: Vec<u8>,
}

/// A volume being written.
struct Writer {
    recipe: Recipe,
    bytes: Vec<u8>,
    /// Next partial segment, in units.
    at: usize,
    serial: u64,
    /// Addresses of inodes.
    inodes: BTreeMap<u64, (u32, i64)>,
}

/// The fields of a checkpoint.
#[derive(Clone, Copy)]
struct Checkpoint {
    index: i64,
    next: i64,
    serial: u64,
}

impl Writer {
    fn new(recipe: Recipe) -> Self {
        let start = if recipe.width == Width::One { 0 } else { 8192 };
        let bytes = vec![0; start + SEGMENT * SEGMENTS];
        Self { recipe, bytes, at: start / FRAGMENT, serial: 40, inodes: BTreeMap::new() }
    }

    fn is_wide(&self) -> bool {
        self.recipe.width == Width::Wide
    }

    fn word(&self) -> usize {
        if self.is_wide() { 8 } else { 4 }
    }

    fn put(&self, to: &mut [u8], at: usize, len: usize, value: u64) {
        let (be, le) = (value.to_be_bytes(), value.to_le_bytes());
        to[at..at + len].copy_from_slice(if self.recipe.is_big_endian { &be[8 - len..] } else { &le[..len] });
    }

    fn put_address(&self, to: &mut [u8], at: usize, value: i64) {
        self.put(to, at, self.word(), value as u64);
    }

    fn start(&self) -> usize {
        if self.recipe.width == Width::One { 0 } else { 8192 / FRAGMENT }
    }

    fn copies(&self) -> [usize; 2] {
        [8192 / FRAGMENT, self.start() + 7 * SEGMENT / FRAGMENT]
    }

    fn segment(&self, at: usize) -> usize {
        (at - self.start()) * FRAGMENT / SEGMENT
    }

    fn segment_start(&self, segment: usize) -> usize {
        self.start() + segment * SEGMENT / FRAGMENT
    }

    /// Moves past the label and the super block at the start of a segment.
    fn skip(&mut self) {
        if self.at == 0 {
            self.at = 8192 / FRAGMENT;
        }
        if self.copies().contains(&self.at) {
            self.at += 8192 / FRAGMENT;
        }
    }

    /// Returns how many blocks fit into a partial segment here.
    fn room(&mut self) -> usize {
        self.skip();
        let end = self.segment_start(self.segment(self.at) + 1);
        let in_segment = (end - self.at) * FRAGMENT / BLOCK;
        let head = if self.is_wide() { 56 + 24 } else { 48 + 16 };
        let in_summary = (FRAGMENT - head) / self.word() - 2;
        in_segment.saturating_sub(1).min(in_summary).max(1)
    }

    /// Writes a partial segment of blocks of one file and of inodes. Returns the addresses of the blocks and inodes.
    fn partial(
        &mut self,
        file: Option<(u64, u32, FileBlocks<'_>)>,
        nodes: &[Vec<u8>],
        continues: bool,
    ) -> (Vec<i64>, i64) {
        self.skip();
        self.serial += 1;
        let word = self.word();
        let mut summary = vec![0; FRAGMENT];
        let (mut at, mut first, mut addresses) = (self.at + 1, Vec::new(), Vec::new());
        let head = match self.recipe.width {
            Width::One => 28,
            Width::Two => 48,
            Width::Wide => 56,
        };
        if let Some((ino, version, blocks)) = file {
            let last = blocks.last().unwrap().1.len();
            self.put(&mut summary, head, 4, blocks.len() as u64);
            self.put(&mut summary, head + 4, 4, version.into());
            self.put(&mut summary, head + 8, word, ino);
            self.put(&mut summary, head + 8 + word, 4, last as u64);
            let list = head + if self.is_wide() { 24 } else { 16 };
            for (index, (number, bytes)) in blocks.iter().enumerate() {
                self.put_address(&mut summary, list + index * word, *number);
                addresses.push(at as i64);
                first.extend_from_slice(&bytes[..4]);
                self.bytes[at * FRAGMENT..][..bytes.len()].copy_from_slice(bytes);
                at += bytes.len().div_ceil(FRAGMENT);
            }
        }
        let inodes_at = at as i64;
        if !nodes.is_empty() {
            let block = nodes.concat();
            let len = if self.recipe.width == Width::One { BLOCK } else { FRAGMENT };
            assert!(block.len() <= len);
            self.put_address(&mut summary, FRAGMENT - word, inodes_at);
            first.extend_from_slice(&block[..4]);
            self.bytes[at * FRAGMENT..][..block.len()].copy_from_slice(&block);
            at += len / FRAGMENT;
        }
        let next = self.segment_start(self.segment(self.at) + 1);
        assert!(at <= next, "a partial segment is in one segment");
        let big = self.recipe.is_big_endian;
        self.put(&mut summary, 4, 4, sum(&first, big).into());
        self.put(&mut summary, 8, 4, 0x0006_1561);
        let (files, flags) = (u64::from(file.is_some()), if continues { 3 } else { 0 });
        let counts = if self.is_wide() { 24 } else { 20 };
        self.put(&mut summary, counts, 2, files);
        self.put(&mut summary, counts + 2, 2, nodes.len() as u64);
        self.put(&mut summary, counts + 4, 2, flags);
        match self.recipe.width {
            Width::One => {
                self.put(&mut summary, 12, 4, next as u64);
                self.put(&mut summary, 16, 4, self.serial);
            }
            Width::Two => {
                self.put(&mut summary, 12, 4, next as u64);
                self.put(&mut summary, 16, 4, 0x1234_5678);
                self.put(&mut summary, 32, 8, self.serial);
            }
            Width::Wide => {
                self.put(&mut summary, 12, 4, 0x1234_5678);
                self.put(&mut summary, 16, 8, next as u64);
                self.put(&mut summary, 40, 8, self.serial);
            }
        }
        let checked = sum(&summary[4..], big);
        self.put(&mut summary, 0, 4, checked.into());
        self.bytes[self.at * FRAGMENT..][..FRAGMENT].copy_from_slice(&summary);
        self.at = at;
        if self.segment(at + BLOCK / FRAGMENT) != self.segment(at - 1) {
            self.at = next;
        }
        (addresses, inodes_at)
    }

    /// Writes blocks of a file.
    fn blocks(&mut self, ino: u64, version: u32, blocks: &[(i64, Vec<u8>)], continues: bool) -> Vec<i64> {
        let (mut rest, mut addresses) = (blocks, Vec::new());
        while !rest.is_empty() {
            let (now, later) = rest.split_at(self.room().min(rest.len()));
            addresses.extend(self.partial(Some((ino, version, now)), &[], continues).0);
            rest = later;
        }
        addresses
    }

    /// Writes a file with its indirect blocks. Returns its inode.
    fn contents(&mut self, node: &Node, continues: bool) -> Vec<u8> {
        let data: Vec<_> =
            node.blocks.iter().map(|(&number, bytes)| (number as i64, bytes.clone())).collect();
        let addresses = self.blocks(node.ino, node.generation, &data, continues);
        let mut units: usize = data.iter().map(|(_, bytes)| bytes.len().div_ceil(FRAGMENT)).sum();
        let at: BTreeMap<u64, i64> = node.blocks.keys().copied().zip(addresses).collect();
        let fan = (BLOCK / self.word()) as u64;
        let mut roots = [0; 15];
        for (&number, &address) in at.range(..12) {
            roots[number as usize] = address;
        }
        let (mut base, mut span) = (12, fan);
        for level in 1..=3_u32 {
            let inside: BTreeMap<u64, i64> =
                at.range(base..base + span).map(|(&number, &address)| (number - base, address)).collect();
            let mut below = inside;
            for step in 0..level {
                let mut above: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
                for (&index, &address) in &below {
                    let mut block = above.remove(&(index / fan)).unwrap_or_else(|| vec![0; BLOCK]);
                    self.put_address(&mut block, (index % fan) as usize * self.word(), address);
                    above.insert(index / fan, block);
                }
                let list: Vec<_> = above
                    .iter()
                    .map(|(&index, bytes)| (-((base + index) as i64) - i64::from(step), bytes.clone()))
                    .collect();
                units += list.len() * BLOCK / FRAGMENT;
                let written = self.blocks(node.ino, node.generation, &list, continues);
                below = above.keys().copied().zip(written).collect();
            }
            roots[11 + level as usize] = below.get(&0).copied().unwrap_or(0);
            base += span;
            span *= fan;
        }
        self.inode(node, &roots, units)
    }

    fn inode(&self, node: &Node, roots: &[i64; 15], units: usize) -> Vec<u8> {
        let time = 1_600_000_000 + node.ino;
        let wide = self.is_wide();
        let mut bytes = vec![0; if wide { 256 } else { 128 }];
        let fields: &[(usize, usize, usize, u64)] = &[
            (0, 0, 2, node.mode.into()),
            (2, 2, 2, node.links.into()),
            (4, 240, if wide { 8 } else { 4 }, node.ino),
            (8, 16, 8, node.size),
            (104, 24, if wide { 8 } else { 4 }, units as u64),
            (108, 80, 4, node.generation.into()),
            (112, 4, 4, 1000 + node.ino),
            (116, 8, 4, 2000 + node.ino),
            (16, 32, if wide { 8 } else { 4 }, time),
            (20, 68, 4, 1),
            (24, 40, if wide { 8 } else { 4 }, time + 1),
            (28, 64, 4, 2),
            (32, 48, if wide { 8 } else { 4 }, time + 2),
            (36, 72, 4, 3),
        ];
        for &(narrow, at, len, value) in fields {
            self.put(&mut bytes, if wide { at } else { narrow }, len, value);
        }
        let base = if wide { 112 } else { 40 };
        for (index, &address) in roots.iter().enumerate() {
            self.put_address(&mut bytes, base + index * self.word(), address);
        }
        bytes[base..base + node.area.len()].copy_from_slice(&node.area);
        bytes
    }

    /// Writes inodes, as many to a block as fit.
    fn inodes(&mut self, nodes: &[(u64, u32, Vec<u8>)], continues: bool) {
        let fit = if self.recipe.width == Width::One { BLOCK } else { FRAGMENT } / nodes[0].2.len();
        for group in nodes.chunks(fit) {
            let bytes: Vec<_> = group.iter().map(|(_, _, bytes)| bytes.clone()).collect();
            self.room();
            let at = self.partial(None, &bytes, continues).1;
            for &(ino, generation, _) in group {
                self.inodes.insert(ino, (generation, at));
            }
        }
    }

    fn write(&mut self, nodes: &[Node], continues: bool) {
        let list: Vec<_> =
            nodes.iter().map(|node| (node.ino, node.generation, self.contents(node, continues))).collect();
        self.inodes(&list, continues);
    }

    /// Returns the contents of a directory.
    fn directory(&self, ino: u64, parent: u64, names: &[(&str, u64, u8)]) -> Vec<u8> {
        let head = if self.is_wide() { 12 } else { 8 };
        let mut chunks: Vec<Vec<(Vec<u8>, u64, u8)>> = vec![Vec::new()];
        let mut used = 0;
        let all = [(".", ino, 4), ("..", parent, 4)].into_iter().chain(names.iter().copied());
        for (name, ino, kind) in all {
            let len = head + (name.len() + 4) / 4 * 4;
            if used + len > 512 {
                chunks.push(Vec::new());
                used = 0;
            }
            used += len;
            chunks.last_mut().unwrap().push((name.as_bytes().to_vec(), ino, kind));
        }
        let mut bytes = vec![0; chunks.len() * 512];
        for (chunk, entries) in chunks.iter().enumerate() {
            let mut at = 0;
            for (index, (name, ino, kind)) in entries.iter().enumerate() {
                let mut len = head + (name.len() + 4) / 4 * 4;
                if index + 1 == entries.len() {
                    len = 512 - at;
                }
                let to = &mut bytes[chunk * 512 + at..];
                self.put(to, 0, self.word(), *ino);
                self.put(to, self.word(), 2, len as u64);
                to[head - 2] = *kind;
                to[head - 1] = name.len() as u8;
                to[head..head + name.len()].copy_from_slice(name);
                at += len;
            }
        }
        bytes
    }

    /// Writes the index file, and returns the checkpoint.
    fn checkpoint(&mut self) -> Checkpoint {
        let (entry, usage) = match self.recipe.width {
            Width::One => (12, 16),
            Width::Two => (20, 24),
            Width::Wide => (32, 24),
        };
        let entries = BLOCK / entry;
        let blocks = (INODES as usize).div_ceil(entries);
        let mut bytes = vec![0; (2 + blocks) * BLOCK];
        for segment in 0..SEGMENTS {
            self.put(&mut bytes, BLOCK + segment * usage + 12, 4, 2);
        }
        for (&ino, &(version, address)) in &self.inodes {
            let at = (2 + ino as usize / entries) * BLOCK + ino as usize % entries * entry;
            self.put(&mut bytes, at, 4, version.into());
            self.put_address(&mut bytes, at + if self.is_wide() { 16 } else { 4 }, address);
        }
        let node = Node { mode: 0o100_600, ..file(1, 1, &bytes) };
        let inode = self.contents(&node, false);
        self.inodes(&[(1, 1, inode)], false);
        let index = self.inodes.remove(&1).unwrap().1;
        self.skip_at_end();
        Checkpoint { index, next: self.at as i64, serial: self.serial }
    }

    /// A checkpoint names the start of the next segment if this one is full.
    fn skip_at_end(&mut self) {
        let segment = self.segment(self.at);
        if self.segment(self.at + 1 + BLOCK / FRAGMENT) != segment {
            self.at = self.segment_start(segment + 1);
        }
    }

    fn super_block(&self, checkpoint: Checkpoint, is_clean: bool) -> Vec<u8> {
        let wide = self.is_wide();
        let first = self.recipe.width == Width::One;
        let mut bytes = vec![0; 512];
        let len = self.bytes.len();
        let entry = [12, 20, 32][self.recipe.width as usize];
        let (magic, word) = if wide { (!0x1962_0701_u32, 8) } else { (0x0007_0162, 4) };
        let files = self.inodes.len() as u64;
        let unit = if first { BLOCK } else { FRAGMENT };
        let segment = if first { SEGMENT / BLOCK } else { SEGMENT };
        let inode_block = if first { BLOCK } else { FRAGMENT };
        let fields: &[(usize, usize, usize, u64)] = &[
            (0, 0, 4, magic.into()),
            (4, 4, 4, if first { 1 } else { 2 }),
            (8, 8, word, (len / unit) as u64),
            (12, 24, 4, segment as u64),
            (20, 28, 4, BLOCK as u64),
            (24, 32, 4, FRAGMENT as u64),
            (28, 36, 4, 2),
            (36, 56, word, 100),
            (40, 48, word, files),
            (52, 72, word, checkpoint.index as u64),
            (72, 112, word, checkpoint.next as u64),
            (100, 148, 4, (inode_block / if wide { 256 } else { 128 }) as u64),
            (104, 152, 4, (BLOCK / entry) as u64),
            (108, 156, 4, (BLOCK / if first { 16 } else { 24 }) as u64),
            (112, 160, 4, (BLOCK / word) as u64),
            (116, 164, 4, SEGMENTS as u64),
            (124, 172, 4, 1),
            (128, 176, 4, 1),
            (184, 304, 4, 15 * word as u64),
            (188, 224, word, self.copies()[0] as u64),
            (188 + word, 224 + word, word, self.copies()[1] as u64),
        ];
        for &(narrow, at, len, value) in fields {
            self.put(&mut bytes, if wide { at } else { narrow }, len, value);
        }
        if !wide {
            self.put(&mut bytes, 56, 4, 1);
        }
        if first {
            self.put(&mut bytes, 80, 4, checkpoint.serial);
        } else {
            for (narrow, at, len, value) in [
                (322, 402, 2, u64::from(is_clean)),
                (332, 412, 4, FRAGMENT as u64),
                (336, 424, 8, checkpoint.serial),
                (344, 416, 4, inode_block as u64),
                (348, 432, word, self.start() as u64),
                (368, 452, 4, 0x1234_5678),
            ] {
                self.put(&mut bytes, if wide { at } else { narrow }, len, value);
            }
        }
        let checked = sum(&bytes[..508], self.recipe.is_big_endian);
        self.put(&mut bytes, 508, 4, checked.into());
        bytes
    }
}

/// Returns a regular file. Blocks of zeros are holes.
fn file(ino: u64, links: u16, bytes: &[u8]) -> Node {
    let count = bytes.len().div_ceil(BLOCK);
    let block = |(number, bytes): (usize, &[u8])| {
        let mut bytes = bytes.to_vec();
        let unit = if number + 1 == count && number < 12 && count <= 12 { FRAGMENT } else { BLOCK };
        bytes.resize(bytes.len().next_multiple_of(unit), 0);
        (number as u64, bytes)
    };
    let is_hole = |bytes: &[u8]| ino > 2 && bytes.iter().all(|&byte| byte == 0);
    let blocks = bytes.chunks(BLOCK).enumerate().filter(|(_, bytes)| !is_hole(bytes)).map(block).collect();
    Node { ino, mode: 0o100_644, links, size: bytes.len() as u64, generation: 7, blocks, area: Vec::new() }
}

/// The contents of files.
pub fn file_before() -> Vec<u8> {
    bytes_of(1, 1300)
}

/// Returns what the file contains at the end.
pub fn file_after() -> Vec<u8> {
    bytes_of(2, 5000)
}

/// Returns a file with a hole, and blocks behind one, two and three levels of indirect blocks.
pub fn big(width: Width) -> BTreeMap<u64, Vec<u8>> {
    let fan = if width == Width::Wide { 128 } else { 256 };
    let numbers = (0..20).chain([12 + fan - 1, 12 + fan, 12 + fan + fan * fan + 5]);
    numbers
        .filter(|&number| number != 4)
        .map(|number| (number, bytes_of(100 + number as u32, BLOCK)))
        .collect()
}

/// Returns the target of the long link.
pub fn long_target() -> String {
    "long/".repeat(60)
}

impl Recipe {
    /// Returns the volume.
    pub fn write(self) -> Vec<u8> {
        let mut writer = Writer::new(self);
        let names: Vec<String> = (0..60).map(|number| format!("name number {number}")).collect();
        let many: Vec<_> = names.iter().zip(20..).map(|(name, ino)| (name.as_str(), ino, 8)).collect();
        let mut root = vec![
            ("file", FILE, 8),
            ("dir", 4, 4),
            ("short", 5, 10),
            ("long", 6, 10),
            ("pipe", 7, 1),
            ("device", 8, 2),
            ("hard", FILE, 8),
            ("empty", 9, 8),
            ("big", BIG, 8),
            ("gone", 11, 8),
        ];
        let dir = |ino, links, bytes: Vec<u8>| Node { mode: 0o040_755, ..file(ino, links, &bytes) };
        let area =
            |ino, mode, size, area: &[u8]| Node { mode, size, area: area.to_vec(), ..file(ino, 1, &[]) };
        let mut number = [0; 4];
        writer.put(&mut number, 0, 4, (1 << 8) | 3);
        let mut device = number.to_vec();
        if self.width == Width::Wide {
            device = vec![0; 8];
            writer.put(&mut device, 0, 8, (1 << 8) | 3);
        }
        let blocks = big(self.width);
        let size = (blocks.keys().last().unwrap() + 1) * BLOCK as u64;
        let mut nodes = vec![
            dir(2, 3, writer.directory(2, 2, &root)),
            file(FILE, 2, &file_before()),
            dir(4, 2, writer.directory(4, 2, &many)),
            area(5, 0o120_777, 4, b"file"),
            Node { mode: 0o120_777, ..file(6, 1, long_target().as_bytes()) },
            area(7, 0o010_600, 0, &[]),
            area(8, 0o020_600, 0, &device),
            file(9, 1, &[]),
            Node { blocks, size, ..file(BIG, 1, &[]) },
            file(11, 1, b"removed later"),
        ];
        nodes.extend((20..80).map(|ino| file(ino, 1, format!("contents of {ino}").as_bytes())));
        writer.write(&nodes, false);
        let first = writer.checkpoint();

        // Changes: a file grows, another one is created, one is removed.
        root.retain(|entry| entry.0 != "gone");
        root.push(("new", NEW, 8));
        let changed = [
            file(FILE, 2, &file_after()),
            file(NEW, 1, &bytes_of(3, 700)),
            dir(2, 3, writer.directory(2, 2, &root)),
        ];
        writer.write(&changed, false);
        writer.inodes.remove(&11);
        if self.end == End::CrashInOperation {
            root.push(("half", 13, 8));
            let half = [file(13, 1, b"half"), dir(2, 3, writer.directory(2, 2, &root))];
            writer.write(&half, true);
        }
        let is_clean = matches!(self.end, End::Clean | End::CleanInSecond);
        let second = if is_clean { writer.checkpoint() } else { first };
        let [mut one, mut two] = [writer.super_block(second, is_clean), writer.super_block(first, false)];
        if self.end == End::CleanInSecond {
            std::mem::swap(&mut one, &mut two);
        }
        for (at, bytes) in writer.copies().into_iter().zip([one, two]) {
            writer.bytes[at * FRAGMENT..][..512].copy_from_slice(&bytes);
        }
        writer.bytes
    }
}
