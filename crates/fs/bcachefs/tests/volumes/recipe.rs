//! A writer of small volumes with the features that the images of bcachefs-tools lack. These are both byte orders, all
//! checksums, packed keys, trees of two levels, old inodes, snapshots, shared extents, damaged copies, and a dirty
//! journal.
//!
//! Source: the same files of Linux as for the driver; the writer shares no code with the reader but checksums and hashes.

use std::collections::BTreeMap;

use obento_bcachefs::checksum::Method;
use obento_bcachefs::hash;

/// Sectors of the device, of a node, and of a bucket.
const SECTORS: usize = 4096;
const NODE: usize = 16;
const BUCKET: usize = 32;
/// First bucket of the journal, of which there are two, and first sector of nodes and data.
const JOURNAL: usize = 4;
const FREE: usize = 256;
/// Sector of the copy of the super block.
const COPY: usize = 1024;
/// Identifier that is combined with magic numbers.
const ID: [u8; 16] = *b"identifier-of-it";
const SEED: u64 = 0x0123_4567_89ab_cdef;
/// Snapshots: the common ancestor, the first subvolume, and the second one.
const OLD: u32 = u32::MAX - 1;
const NOW: u32 = u32::MAX - 2;
const SNAP: u32 = u32::MAX - 3;

/// How a volume is written.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    /// The byte order of keys.
    pub is_big_endian: bool,
    /// The number of the method of checksums.
    pub sums: u8,
    /// Whether keys are packed.
    pub is_packed: bool,
    /// Whether the roots are in the journal, with further changes.
    pub is_dirty: bool,
}

impl Default for Recipe {
    fn default() -> Self {
        Self { is_big_endian: false, sums: 1, is_packed: true, is_dirty: false }
    }
}

type Position = (u64, u64, u32);

#[derive(Clone, Debug)]
struct Key {
    pos: Position,
    size: u32,
    kind: u8,
    value: Vec<u8>,
}

fn key(pos: Position, kind: u8, value: impl Into<Vec<u8>>) -> Key {
    let mut value = value.into();
    value.resize(value.len().next_multiple_of(8), 0);
    Key { pos, size: 0, kind, value }
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn method(number: u8) -> Method {
    Method::decode(number.into()).unwrap()
}

/// A number whose low bits say how many bytes follow.
fn varint(value: u64) -> Vec<u8> {
    let bytes = (64 - (value | 1).leading_zeros()).div_ceil(7) as usize;
    if bytes >= 9 {
        return [&[255][..], &value.to_le_bytes()].concat();
    }
    (value << bytes | ((1 << (bytes - 1)) - 1)).to_le_bytes()[..bytes].to_vec()
}

/// An inode of a version; 0 is version 1 with the oldest encoding.
#[derive(Clone, Debug, Default)]
struct Node {
    mode: u16,
    size: u64,
    dir: u64,
    links: u64,
    device: u64,
    subvolume: u64,
    parent_subvolume: u64,
}

const TIME: u64 = 1_700_000_000_123_456_789;

impl Node {
    fn value(&self, version: u8) -> Vec<u8> {
        let times = [TIME; 4];
        let rest = [1000, 1001, self.links, 7, self.device, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, self.dir, 0];
        let rest = [&rest[..], &[self.subvolume, self.parent_subvolume]].concat();
        let old = [&times[..], &[self.size, 8], &rest].concat();
        let wide = |fields: &[u64]| -> Vec<u8> {
            let field =
                |(at, &field): (usize, &u64)| [varint(field), if at < 4 { vec![0] } else { vec![] }].concat();
            fields.iter().enumerate().flat_map(field).collect()
        };
        let flags = |count: usize| 3_u64 << 20 | (count as u64) << 24;
        match version {
            3 => {
                let fields = [&times[..], &rest].concat();
                let flags = flags(fields.len()) | 6 << 31 | u64::from(self.mode) << 36;
                [words(&[0, SEED, flags, 8, self.size, 0]), wide(&fields)].concat()
            }
            2 => [words(&[0, SEED, flags(old.len())]), self.mode.to_le_bytes().to_vec(), wide(&old)].concat(),
            _ => {
                let is_new = version == 1;
                let flags = flags(old.len()) as u32 | u32::from(is_new) << 31;
                let head =
                    [words(&[SEED]), flags.to_le_bytes().to_vec(), self.mode.to_le_bytes().to_vec()].concat();
                // Ten bytes for every field: the mark, then the number.
                let oldest = |field: &u64| [&[0x02, 0][..], &field.to_be_bytes()].concat();
                let fields = if is_new { wide(&old) } else { old.iter().flat_map(oldest).collect() };
                [head, fields].concat()
            }
        }
    }
}

/// The trees in the making, and the device.
struct Maker {
    recipe: Recipe,
    device: Vec<u8>,
    next: usize,
    trees: BTreeMap<u8, Vec<Key>>,
}

impl Maker {
    fn add(&mut self, tree: u8, key: Key) {
        self.trees.entry(tree).or_default().push(key);
    }

    fn inode(&mut self, number: u64, snapshot: u32, version: u8, node: &Node) {
        let kind = [8, 8, 23, 29][usize::from(version)];
        self.add(1, key((0, number, snapshot), kind, node.value(version)));
    }

    fn name_at(&mut self, dir: u64, offset: u64, snapshot: u32, name: &str, target: u64, kind: u8) {
        let value = [&target.to_le_bytes()[..], &[kind], name.as_bytes()].concat();
        self.add(2, key((dir, offset, snapshot), 10, value));
    }

    fn name(&mut self, dir: u64, name: &str, target: u64, kind: u8) {
        self.name_at(dir, of(name), OLD, name, target, kind);
    }

    /// Writes data, and returns its first sector.
    fn data(&mut self, bytes: &[u8]) -> u64 {
        let at = self.next;
        self.device[at * 512..][..bytes.len()].copy_from_slice(bytes);
        self.next += bytes.len().div_ceil(512);
        at as u64
    }

    /// Adds an extent of `len` sectors that ends at `end`.
    fn extent(&mut self, number: u64, end: u64, len: u32, kind: u8, value: Vec<u8>) {
        self.add(0, Key { size: len, ..key((number, end, OLD), kind, value) });
    }

    /// Writes stored data, and returns the entries of an extent: its checksum, and a pointer.
    fn coded(&mut self, stored: &[u8], len: u32, offset: u64, compression: u64, wide: u32) -> Vec<u64> {
        let mut stored = stored.to_vec();
        stored.resize(stored.len().next_multiple_of(512), 0);
        let sectors = (stored.len() / 512) as u64;
        let sum = method(self.recipe.sums).of(&stored);
        let pointer = 1 | self.data(&stored) << 4;
        let (sums, lengths) = (u64::from(self.recipe.sums), [sectors - 1, u64::from(len) - 1]);
        match wide {
            32 => vec![
                2 | lengths[0] << 2
                    | lengths[1] << 9
                    | offset << 16
                    | sums << 24
                    | compression << 28
                    | sum << 32,
                pointer,
            ],
            64 => vec![
                4 | lengths[0] << 3 | lengths[1] << 12 | offset << 21 | sums << 40 | compression << 44,
                sum,
                pointer,
            ],
            _ => vec![
                8 | lengths[0] << 4 | lengths[1] << 17 | offset << 30 | sums << 56 | compression << 60,
                sum,
                0,
                pointer,
            ],
        }
    }

    fn encode(&self, found: &Key, is_packed: bool) -> Vec<u8> {
        let (inode, offset, snapshot) = found.pos;
        let fits = is_packed && inode < 1 << 16 && found.size < 1 << 16;
        let mut bytes = if fits {
            // 16 bits of the number, 64 of the offset, 32 of the snapshot, 16 of the size, from the top of three words.
            let top = u128::from(inode) << 112
                | u128::from(offset) << 48
                | u128::from(snapshot) << 16
                | u128::from(found.size);
            [&[0; 8][..], &top.to_le_bytes()].concat()
        } else {
            let head = [&[0; 16][..], &found.size.to_le_bytes(), &snapshot.to_le_bytes()].concat();
            [&head[..], &offset.to_le_bytes(), &inode.to_le_bytes()].concat()
        };
        let mut value = found.value.clone();
        if self.recipe.is_big_endian {
            bytes[3..].reverse();
            to_big_endian(found.kind, &mut value);
        }
        bytes[0] = u8::try_from((bytes.len() + value.len()) / 8).unwrap();
        (bytes[1], bytes[2]) = (u8::from(!fits), found.kind);
        [bytes, value].concat()
    }

    fn position(&self, (inode, offset, snapshot): Position) -> Vec<u8> {
        let mut bytes = [&snapshot.to_le_bytes()[..], &offset.to_le_bytes(), &inode.to_le_bytes()].concat();
        if self.recipe.is_big_endian {
            bytes.reverse();
        }
        bytes
    }

    /// Writes a node of sets, and returns the key that refers to it.
    fn node(&mut self, tree: u8, level: u8, bounds: (Position, Position), sets: &[(u64, Vec<Key>)]) -> Key {
        let at = self.next;
        self.next += NODE;
        let seq = 0x5e90_0000 + at as u64;
        let mut bytes = Vec::new();
        for (index, (journal_seq, keys)) in sets.iter().enumerate() {
            let mut keys = keys.clone();
            keys.sort_by_key(|key| key.pos);
            let keys: Vec<u8> = keys.iter().flat_map(|key| self.encode(key, self.recipe.is_packed)).collect();
            let mut part = vec![0; 16];
            if index == 0 {
                part.extend(words(
                    &[0x9013_5c78_b99e_07f5 ^ u64::from_le_bytes(ID[..8].try_into().unwrap())],
                ));
                part.extend(words(&[u64::from(tree & 15)
                    | u64::from(level) << 4
                    | u64::from(tree >> 4) << 9
                    | 1 << 8]));
                part.extend([self.position(bounds.0), self.position(bounds.1), vec![0; 8]].concat());
                part.extend([3, 6, 16, 64, 32, 16, 0, 0]);
                part.extend([0; 48]);
            }
            let flags = u32::from(self.recipe.sums) | u32::from(self.recipe.is_big_endian) << 4;
            part.extend(words(&[seq, *journal_seq]));
            part.extend(flags.to_le_bytes());
            part.extend((1_u16 << 10 | 25).to_le_bytes());
            part.extend(((keys.len() / 8) as u16).to_le_bytes());
            part.extend(keys);
            let sum = method(self.recipe.sums).of(&part[16..]);
            part[..8].copy_from_slice(&sum.to_le_bytes());
            part.resize(part.len().next_multiple_of(512), 0);
            bytes.extend(part);
        }
        assert!(bytes.len() <= NODE * 512, "{}", bytes.len());
        let written = (bytes.len() / 512) as u16;
        self.device[at * 512..][..bytes.len()].copy_from_slice(&bytes);
        let (inode, offset, snapshot) = bounds.0;
        let min = [&snapshot.to_le_bytes()[..], &offset.to_le_bytes(), &inode.to_le_bytes()].concat();
        let value = [words(&[0, seq]), written.to_le_bytes().to_vec(), vec![0; 2], min].concat();
        key(bounds.1, 18, [value, words(&[1 | (at as u64) << 4])].concat())
    }

    /// Writes a tree, of two levels if it has many keys, and returns its root and level.
    fn tree(&mut self, tree: u8, mut keys: Vec<Key>) -> (u8, Key) {
        const ENDS: (Position, Position) = ((0, 0, 0), (u64::MAX, u64::MAX, u32::MAX));
        keys.sort_by_key(|key| key.pos);
        if keys.len() < 30 {
            // The second set overrides the first, and the third one was never in the journal.
            let mut wrong = keys[..1].to_vec();
            wrong[0].kind = 0;
            wrong[0].value.clear();
            let again = keys[keys.len() - 1].clone();
            let sets = [
                (1, [wrong.clone(), keys[1..].to_vec()].concat()),
                (2, vec![keys[0].clone(), again]),
                (900, wrong),
            ];
            let sets =
                if keys.len() == 1 { [(1, sets[0].1.clone()), (2, keys), sets[2].clone()] } else { sets };
            return (0, self.node(tree, 0, ENDS, &sets));
        }
        let (left, right) = keys.split_at(keys.len() / 2);
        let middle = left[left.len() - 1].pos;
        let after = (middle.0, middle.1 + u64::from(middle.2 == u32::MAX), middle.2.wrapping_add(1));
        let children = vec![
            self.node(tree, 0, (ENDS.0, middle), &[(1, left.to_vec())]),
            self.node(tree, 0, (after, ENDS.1), &[(1, right.to_vec())]),
        ];
        (1, self.node(tree, 1, ENDS, &[(1, children)]))
    }

    fn record(&self, kind: u8, tree: u8, level: u8, keys: &[Key]) -> Vec<u8> {
        let keys: Vec<u8> = keys.iter().flat_map(|key| self.encode(key, false)).collect();
        [&((keys.len() / 8) as u16).to_le_bytes()[..], &[tree, level, kind, 0, 0, 0], &keys].concat()
    }

    /// Writes an entry of the journal.
    fn entry(&mut self, at: &mut usize, seq: u64, last: u64, is_flush: bool, records: &[Vec<u8>]) {
        let records = records.concat();
        let magic = 0x2452_35c1_a362_5032 ^ u64::from_le_bytes(ID[..8].try_into().unwrap());
        let flags = u32::from(self.recipe.sums)
            | u32::from(self.recipe.is_big_endian) << 4
            | u32::from(!is_flush) << 5;
        let mut bytes = [vec![0; 16], words(&[magic, seq])].concat();
        bytes.extend((1_u32 << 10 | 25).to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(((records.len() / 8) as u32).to_le_bytes());
        bytes.extend([[0; 4].to_vec(), words(&[last]), records].concat());
        let sum = method(self.recipe.sums).of(&bytes[16..]);
        bytes[..8].copy_from_slice(&sum.to_le_bytes());
        self.device[*at..][..bytes.len()].copy_from_slice(&bytes);
        *at += bytes.len().next_multiple_of(512);
    }

    fn super_block(&mut self, sector: usize, clean: Option<&[u8]>) {
        let field = |kind: u32, mut bytes: Vec<u8>| {
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            [&(bytes.len() as u32 / 8 + 1).to_le_bytes()[..], &kind.to_le_bytes(), &bytes].concat()
        };
        let mut member = vec![0; 56];
        member[16..24].copy_from_slice(&((SECTORS / BUCKET) as u64).to_le_bytes());
        member[26..28].copy_from_slice(&(BUCKET as u16).to_le_bytes());
        let mut fields = field(1, member);
        fields.extend(field(9, words(&[JOURNAL as u64, 2])));
        // The number of a set that recovery skipped.
        fields.extend(field(8, words(&[900, 901])));
        if let Some(roots) = clean {
            fields.extend(field(6, [&[0; 8][..], &words(&[3]), roots].concat()));
        }
        let version = (1_u16 << 10 | 25).to_le_bytes();
        let mut bytes = [vec![0; 16], version.to_vec(), version.to_vec(), vec![0; 4]].concat();
        bytes.extend(b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef");
        bytes.extend([ID, *b"shown identifier"].concat());
        bytes.extend([&b"recipe"[..], &[0; 26]].concat());
        bytes.extend(words(&[sector as u64, 5]));
        bytes.extend([1, 0, 0, 1]);
        bytes.extend((fields.len() as u32 / 8).to_le_bytes());
        bytes.extend([words(&[0]), vec![0; 4], 1_u32.to_le_bytes().to_vec()].concat());
        let flags =
            1 | u64::from(clean.is_some()) << 1 | u64::from(self.recipe.sums) << 2 | (NODE as u64) << 12;
        bytes.extend(words(&[
            flags | u64::from(self.recipe.is_big_endian) << 62,
            0,
            0,
            0,
            0,
            (1 << 10 | 25) << 32,
            0,
            0,
        ]));
        // gzip, zstd, lz4, reflink, siphash, inline data and what every volume has, and names without case.
        bytes.extend(words(&[0x1f_fb87 | 1 << 6, 0, 0, 0]));
        let layout =
            [&bytes[24..40], &[0, 11, 2, 0, 0, 0, 0, 0], &words(&[8, COPY as u64]), &[0; 472]].concat();
        bytes.extend(&layout);
        bytes.extend(fields);
        let sum = method(self.recipe.sums).of(&bytes[16..]);
        bytes[..8].copy_from_slice(&sum.to_le_bytes());
        self.device[sector * 512..][..bytes.len()].copy_from_slice(&bytes);
        self.device[7 * 512..][..512].copy_from_slice(&layout);
    }
}

fn to_big_endian(kind: u8, value: &mut [u8]) {
    let start = match kind {
        6 => 0,
        16 => 8,
        18 => {
            value[20..40].reverse();
            40
        }
        _ => return,
    };
    let mut at = start;
    while at < value.len() {
        let entry = &mut value[at..];
        let len = match entry[0].trailing_zeros() {
            1 => {
                entry[4..8].reverse();
                8
            }
            2 => {
                entry[8..16].reverse();
                16
            }
            3 => {
                entry[8..16].reverse();
                entry[16..24].reverse();
                24
            }
            _ => 8,
        };
        at += len;
    }
    value[start..].chunks_exact_mut(8).for_each(<[u8]>::reverse);
}

/// The hash of a name in every directory of the volume.
pub fn of(name: &str) -> u64 {
    hash::of_name(3, SEED, name.as_bytes()).unwrap()
}

/// The contents of `file`, which has an extent of each kind.
pub fn pattern(start: usize, len: usize) -> Vec<u8> {
    (start..start + len).map(|at| (at / 3 % 251) as u8).collect()
}

/// A literal run of LZ4 for `bytes`.
fn lz4(bytes: &[u8]) -> Vec<u8> {
    let mut rest = bytes.len() - 15;
    let mut packed = vec![0xf0];
    while rest >= 255 {
        packed.push(255);
        rest -= 255;
    }
    [packed, vec![rest as u8], bytes.to_vec()].concat()
}

const DIR: u16 = 0o40755;
const FILE: u16 = 0o100_644;

impl Recipe {
    /// Writes the volume.
    pub fn write(self) -> Vec<u8> {
        let mut maker =
            Maker { recipe: self, device: vec![0; SECTORS * 512], next: FREE, trees: BTreeMap::new() };
        names(&mut maker);
        files(&mut maker);
        subvolumes(&mut maker);
        let trees = std::mem::take(&mut maker.trees);
        let roots: Vec<_> = trees.into_iter().map(|(tree, keys)| (tree, maker.tree(tree, keys))).collect();
        assert!(maker.next < SECTORS && (maker.next < COPY || FREE > COPY), "{}", maker.next);
        let roots: Vec<_> = roots
            .iter()
            .map(|(tree, (level, root))| maker.record(1, *tree, *level, std::slice::from_ref(root)))
            .collect();
        if self.is_dirty {
            journal(&mut maker, &roots);
            maker.super_block(8, None);
            maker.super_block(COPY, None);
        } else {
            maker.super_block(8, Some(&roots.concat()));
            maker.super_block(COPY, Some(&roots.concat()));
        }
        maker.device
    }
}

fn names(maker: &mut Maker) {
    for (number, name, kind) in [
        (10_001, "file", 8),
        (10_002, "inline", 8),
        (10_003, "oldest", 8),
        (10_004, "shared", 8),
        (10_005, "dir", 4),
        (10_006, "link", 10),
        (10_007, "device", 2),
        (10_008, "old", 8),
        (10_009, "fold", 4),
        (10_001, "again", 8),
    ] {
        maker.name(4096, name, number, kind);
    }
    for at in 0..40 {
        let name = format!("name {at}");
        maker.name(10_005, &name, 11_000 + at, 8);
        maker.inode(11_000 + at, OLD, 3, &Node { mode: FILE, dir: 10_005, ..Node::default() });
    }
    // A name after a removed one of the same hash.
    maker.add(2, key((10_005, of("late"), OLD), 4, []));
    maker.name_at(10_005, of("late") + 1, OLD, "late", 10_001, 8);
    // A name without case: its hash is that of the folded name.
    let (name, folded) = ("ReadMe", "readme");
    let lens = [[name.len() as u8, 0], [folded.len() as u8, 0]].concat();
    let value =
        [&10_002_u64.to_le_bytes()[..], &[8 | 0x80, 0], &lens, name.as_bytes(), folded.as_bytes()].concat();
    maker.add(2, key((10_009, of(folded), OLD), 10, value));
}

fn files(maker: &mut Maker) {
    maker.inode(
        10_001,
        OLD,
        3,
        &Node { mode: FILE, size: 56 * 512 - 100, dir: 4096, links: 2, ..Node::default() },
    );
    maker.inode(10_002, OLD, 2, &Node { mode: FILE, size: 11, dir: 4096, ..Node::default() });
    maker.inode(10_003, OLD, 0, &Node { mode: 0o104_755, size: 5, dir: 4096, ..Node::default() });
    maker.inode(10_004, OLD, 3, &Node { mode: FILE, size: 6 * 512, dir: 4096, ..Node::default() });
    maker.inode(10_005, OLD, 3, &Node { mode: DIR, dir: 4096, ..Node::default() });
    maker.inode(10_006, OLD, 3, &Node { mode: 0o120_777, size: 10, dir: 4096, ..Node::default() });
    maker.inode(
        10_007,
        OLD,
        3,
        &Node { mode: 0o20_600, device: 5 << 20 | 300, dir: 4096, ..Node::default() },
    );
    maker.inode(10_008, OLD, 1, &Node { mode: FILE, size: 512, dir: 4096, ..Node::default() });
    maker.inode(10_009, OLD, 3, &Node { mode: DIR, dir: 4096, ..Node::default() });
    // Checked; a damaged copy first.
    let mut value = maker.coded(&pattern(0, 4096), 8, 0, 0, 32);
    let bad = [1 | maker.data(&[1; 4096]) << 4];
    value = [&value[..1], &bad, &value[1..]].concat();
    // Without a checksum nothing shows the damage.
    if maker.recipe.sums == 0 {
        value.remove(1);
    }
    maker.extent(10_001, 8, 8, 6, words(&value));
    maker.extent(10_001, 24, 8, 7, vec![0; 8]);
    let coded = maker.coded(&lz4(&pattern(24 * 512, 4096)), 8, 0, 3, 64);
    maker.extent(10_001, 32, 8, 6, words(&coded));
    let packed = miniz(&pattern(32 * 512, 4096));
    let coded = maker.coded(&packed, 8, 0, 2, 128);
    maker.extent(10_001, 40, 8, 6, words(&coded));
    // Its first two sectors were overwritten since.
    let frame = zstd(&pattern(38 * 512, 10 * 512));
    let coded = maker.coded(&[&(frame.len() as u32).to_le_bytes()[..], &frame].concat(), 10, 2, 4, 64);
    maker.extent(10_001, 48, 8, 6, words(&coded));
    let plain = [1 | maker.data(&pattern(48 * 512, 4096)) << 4];
    maker.extent(10_001, 56, 8, 6, words(&plain));
    maker.extent(10_002, 1, 1, 17, b"inline data".to_vec());
    maker.extent(10_003, 1, 1, 17, b"1.0.0".to_vec());
    maker.extent(10_006, 1, 1, 17, b"dir/name 1".to_vec());
    maker.extent(10_008, 1, 1, 17, b"old".to_vec());
    // Two sectors of a shared extent of four, then data that is shared within its key.
    maker.extent(10_004, 3, 2, 15, words(&[1001, 0]));
    maker.extent(10_004, 5, 2, 15, words(&[1004, 0]));
    let coded = maker.coded(&pattern(0, 2048), 4, 0, 0, 32);
    maker.add(7, Key { size: 4, ..key((0, 1004, 0), 16, words(&[&[1][..], &coded].concat())) });
    maker.add(7, Key { size: 2, ..key((0, 1006, 0), 19, [words(&[1]), vec![b's'; 600]].concat()) });
    let xattr = |space: u8, name: &str, value: &[u8]| {
        [&[space, name.len() as u8][..], &(value.len() as u16).to_le_bytes(), name.as_bytes(), value].concat()
    };
    maker.add(3, key((10_001, 77, OLD), 11, xattr(0, "note", b"text")));
    maker.add(
        3,
        key((10_001, 88, OLD), 11, xattr(1, "", &[1, 0, 0, 0, 1, 0, 6, 0, 4, 0, 4, 0, 0x20, 0, 4, 0])),
    );
    maker.add(3, key((10_002, 5, OLD), 11, xattr(4, "capability", b"cap")));
    let alloc = |kind: u8| [words(&[0]), vec![0, 0, 0, 0, 0, 0, kind, 0], words(&[0; 4])].concat();
    maker.add(4, key((0, 8, 0), 27, alloc(3)));
    maker.add(4, key((0, 9, 0), 27, alloc(4)));
    maker.add(4, key((0, 10, 0), 27, alloc(9)));
}

fn subvolumes(maker: &mut Maker) {
    let root = Node { mode: DIR, dir: 4096, subvolume: 1, links: 3, ..Node::default() };
    maker.inode(4096, NOW, 3, &root);
    maker.inode(4096, SNAP, 3, &Node { subvolume: 2, parent_subvolume: 1, ..root });
    let value = |snapshot: u32| [&[0; 4][..], &snapshot.to_le_bytes(), &4096_u64.to_le_bytes()].concat();
    maker.add(8, key((0, 1, 0), 21, value(NOW)));
    maker.add(8, key((0, 2, 0), 21, value(SNAP)));
    let value = |parent: u32| [&[0; 4][..], &parent.to_le_bytes(), &[0; 16]].concat();
    maker.add(9, key((0, OLD.into(), 0), 22, value(0)));
    maker.add(9, key((0, NOW.into(), 0), 22, value(OLD)));
    maker.add(9, key((0, SNAP.into(), 0), 22, value(OLD)));
    // Seen from the first subvolume: a directory. From the snapshot: nothing.
    let child = 2 | 1_u64 << 32;
    maker.name_at(4096, of("snap"), NOW, "snap", child, 16);
    // Removed and created since the snapshot was taken.
    maker.name(4096, "gone", 10_002, 8);
    maker.add(2, key((4096, of("gone"), NOW), 1, []));
    maker.name_at(4096, of("new"), NOW, "new", 10_002, 8);
    // Changed since: the snapshot sees the old contents.
    maker.add(0, Key { size: 1, ..key((10_003, 1, NOW), 17, b"2.0.0".to_vec()) });
}

/// Three entries: the second one adds and removes names, the third one was not flushed.
fn journal(maker: &mut Maker, roots: &[Vec<u8>]) {
    let mut at = JOURNAL * BUCKET * 512;
    let entry = |offset: u64, name: &str| {
        let value = [&10_002_u64.to_le_bytes()[..], &[8], name.as_bytes()].concat();
        key((4096, offset, NOW), 10, value)
    };
    let added = maker.record(0, 2, 0, &[entry(of("added"), "added")]);
    let gone = maker.record(0, 2, 0, &[key((4096, of("new"), NOW), 0, [])]);
    let lost = maker.record(0, 2, 0, &[entry(of("lost"), "lost")]);
    maker.entry(&mut at, 3, 3, true, &[roots.concat(), added.clone()]);
    maker.entry(&mut at, 4, 3, false, &[gone]);
    maker.entry(&mut at, 5, 3, true, &[]);
    maker.entry(&mut at, 6, 3, false, &[lost]);
}

fn miniz(bytes: &[u8]) -> Vec<u8> {
    // Blocks that are stored: deflate needs no more than that here.
    let parts: Vec<_> = bytes.chunks(1000).collect();
    let block = |(index, part): (usize, &&[u8])| {
        let len = part.len() as u16;
        let last = u8::from(index + 1 == parts.len());
        [&[last][..], &len.to_le_bytes(), &(!len).to_le_bytes(), part].concat()
    };
    parts.iter().enumerate().flat_map(block).collect()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    // A frame of one segment and of raw blocks (RFC 8878, 3.1.1): size of 4 bytes, then the blocks.
    let mut frame =
        [&0xfd2f_b528_u32.to_le_bytes()[..], &[0xa0], &(bytes.len() as u32).to_le_bytes()].concat();
    let parts: Vec<_> = bytes.chunks(3000).collect();
    for (index, part) in parts.iter().enumerate() {
        let header = u32::from(index + 1 == parts.len()) | (part.len() as u32) << 3;
        frame.extend(&header.to_le_bytes()[..3]);
        frame.extend(*part);
    }
    frame
}
