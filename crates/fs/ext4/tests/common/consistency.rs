//! A fast consistency check of a closed volume, independent of the driver. It reads the bytes by the offsets of the
//! format. Every used block and inode must have one owner, and bitmaps, counts and checksums must agree.
//!
//! The driver's own check then also checks names and link counts; `e2fsck` is the second opinion on a sample. Source:
//! Documentation/filesystems/ext4. `meta_bg` is not supported.
#![allow(dead_code, reason = "each test file uses a part")]

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use obento_base::crc::{crc16, crc32c};
use obento_block::{BlockDevice, MemDevice};

type Checked<T = ()> = Result<T, String>;

/// `EXT4_VALID_FS` of `s_state`, without `EXT4_ERROR_FS`.
const VALID: u8 = 1;
const RESIZE_INO: u32 = 7;
const HAS_JOURNAL: u32 = 0x4;
const RECOVER: u32 = 0x4;
const BITS_64: u32 = 0x80;
const SPARSE_SUPER: u32 = 0x1;
const GDT_CSUM: u32 = 0x10;
const BIGALLOC: u32 = 0x200;
const METADATA_CSUM: u32 = 0x400;
const CSUM_SEED: u32 = 0x2000;
const SPARSE_SUPER2: u32 = 0x200;

/// Owner of the blocks of the volume itself; no inode has this number.
const VOLUME: u32 = u32::MAX;

/// Fails with the first inconsistency of a closed volume.
pub fn check(device: &dyn BlockDevice) -> Checked {
    let bytes = read(device)?;
    check_closed(&copied(&bytes), Some(&bytes))
}

/// [`check`] for a device, with its bytes if they are known.
pub fn check_closed(device: &Arc<dyn BlockDevice>, bytes: Option<&[u8]>) -> Checked {
    let bytes = known(device, bytes)?;
    expect(|| "s_state".into(), VALID, bytes.get(1024 + 0x3a).copied().unwrap_or(0))?;
    is_consistent(device, &bytes)
}

/// [`check`] for a volume that may have the error flag, which stays set until a check.
pub fn check_marked(device: &dyn BlockDevice) -> Checked {
    let bytes = read(device)?;
    is_consistent(&copied(&bytes), &bytes)
}

/// [`check_marked`] for a device, with its bytes if they are known.
pub fn check_marked_closed(device: &Arc<dyn BlockDevice>, bytes: Option<&[u8]>) -> Checked {
    is_consistent(device, &known(device, bytes)?)
}

fn known<'a>(device: &Arc<dyn BlockDevice>, bytes: Option<&'a [u8]>) -> Checked<Cow<'a, [u8]>> {
    bytes.map_or_else(|| read(&**device).map(Cow::Owned), |bytes| Ok(Cow::Borrowed(bytes)))
}

fn is_consistent(device: &Arc<dyn BlockDevice>, bytes: &[u8]) -> Checked {
    let image = Image::new(bytes)?;
    let mut use_of = Use::new(&image);
    use_of.metadata()?;
    use_of.inodes()?;
    use_of.shared_attributes()?;
    use_of.compare()?;
    check_names(device)
}

fn read(device: &dyn BlockDevice) -> Checked<Vec<u8>> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).map_err(|e| e.to_string())?;
    Ok(bytes)
}

fn copied(bytes: &[u8]) -> Arc<dyn BlockDevice> {
    Arc::new(MemDevice::read_only(bytes.to_vec()))
}

/// Runs the driver's own check, which also covers names, link counts, trees and indexes.
fn check_names(device: &Arc<dyn BlockDevice>) -> Checked {
    let found = obento_ext4::issues(device.clone()).map_err(|error| error.to_string())?;
    match found.first() {
        None => Ok(()),
        Some(issue) => Err(format!("{issue} ({} issues)", found.len())),
    }
}

fn le16(bytes: &[u8], at: usize) -> u32 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]]).into()
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    le16(bytes, at) | le16(bytes, at + 2) << 16
}

fn expect<T: PartialEq + std::fmt::Debug>(what: impl FnOnce() -> String, expected: T, found: T) -> Checked {
    if expected == found {
        Ok(())
    } else {
        Err(format!("{}: expected {expected:?}, stored {found:?}", what()))
    }
}

struct Image<'a> {
    bytes: &'a [u8],
    sb: &'a [u8],
    block_size: usize,
    blocks: u64,
    first: u64,
    per_group: u64,
    inodes_per_group: u32,
    inode_size: usize,
    groups: u32,
    desc_size: usize,
    cluster: u64,
    compat: u32,
    incompat: u32,
    ro_compat: u32,
    seed: u32,
}

impl<'a> Image<'a> {
    fn new(bytes: &'a [u8]) -> Checked<Self> {
        let sb = bytes.get(1024..2048).ok_or("no super block")?;
        let (compat, incompat, ro_compat) = (le32(sb, 0x5c), le32(sb, 0x60), le32(sb, 0x64));
        expect(|| "s_magic".into(), 0xef53, le16(sb, 0x38))?;
        expect(|| "EXT4_VALID_FS".into(), 1, le16(sb, 0x3a) & 1)?;
        expect(|| "needs_recovery".into(), 0, incompat & RECOVER)?;
        expect(|| "s_last_orphan".into(), 0, le32(sb, 0xe8))?;
        let wide = incompat & BITS_64 != 0;
        let block_size = 1024 << le32(sb, 0x18);
        let blocks = u64::from(le32(sb, 4)) | if wide { u64::from(le32(sb, 0x150)) << 32 } else { 0 };
        let (first, per_group) = (u64::from(le32(sb, 0x14)), u64::from(le32(sb, 0x20)));
        let cluster = if ro_compat & BIGALLOC != 0 { 1 << (le32(sb, 0x1c) - le32(sb, 0x18)) } else { 1 };
        let seed = if incompat & CSUM_SEED != 0 { le32(sb, 0x270) } else { crc32c(!0, &sb[0x68..0x78]) };
        if ro_compat & METADATA_CSUM != 0 {
            expect(|| "super block checksum".into(), crc32c(!0, &sb[..0x3fc]), le32(sb, 0x3fc))?;
        }
        Ok(Self {
            bytes,
            sb,
            block_size,
            blocks,
            first,
            per_group,
            inodes_per_group: le32(sb, 0x28),
            inode_size: if le32(sb, 0x4c) == 0 { 128 } else { le16(sb, 0x58) as usize },
            groups: (blocks - first).div_ceil(per_group) as u32,
            desc_size: if wide { le16(sb, 0xfe) as usize } else { 32 },
            cluster,
            compat,
            incompat,
            ro_compat,
            seed,
        })
    }

    fn block(&self, number: u64) -> Checked<&'a [u8]> {
        let start = number as usize * self.block_size;
        self.bytes
            .get(start..start + self.block_size)
            .ok_or_else(|| format!("block {number} is not on the volume"))
    }

    fn has_csum(&self) -> bool {
        self.ro_compat & METADATA_CSUM != 0
    }

    fn group(&self, group: u32) -> Group<'a> {
        let table = (1024 / self.block_size + 1) * self.block_size;
        let start = table + group as usize * self.desc_size;
        Group { bytes: &self.bytes[start..start + self.desc_size] }
    }

    fn group_start(&self, group: u32) -> u64 {
        self.first + u64::from(group) * self.per_group
    }

    fn group_len(&self, group: u32) -> u64 {
        self.per_group.min(self.blocks - self.group_start(group))
    }

    /// Returns whether the group starts with a copy of super block and descriptors.
    fn has_copy(&self, group: u32) -> bool {
        let power = |base: u32| {
            let mut n = group;
            while n > 1 && n.is_multiple_of(base) {
                n /= base;
            }
            n == 1
        };
        if self.compat & SPARSE_SUPER2 != 0 {
            return group == 0 || [0x24c, 0x250].iter().any(|&at| le32(self.sb, at) == group);
        }
        self.ro_compat & SPARSE_SUPER == 0 || group <= 1 || [3, 5, 7].into_iter().any(power)
    }

    /// Returns the record of inode `ino` in the table of its group.
    fn inode(&self, ino: u32) -> &'a [u8] {
        let (group, index) = ((ino - 1) / self.inodes_per_group, (ino - 1) % self.inodes_per_group);
        let start =
            self.group(group).inode_table() as usize * self.block_size + index as usize * self.inode_size;
        &self.bytes[start..start + self.inode_size]
    }
}

struct Group<'a> {
    bytes: &'a [u8],
}

impl Group<'_> {
    fn number(&self, lo: usize, hi: usize) -> u64 {
        let high = if self.bytes.len() >= 64 { le32(self.bytes, hi) } else { 0 };
        u64::from(le32(self.bytes, lo)) | u64::from(high) << 32
    }

    fn count(&self, lo: usize, hi: usize) -> u32 {
        let high = if self.bytes.len() >= 64 { le16(self.bytes, hi) } else { 0 };
        le16(self.bytes, lo) | high << 16
    }

    fn block_bitmap(&self) -> u64 {
        self.number(0, 0x20)
    }

    fn inode_bitmap(&self) -> u64 {
        self.number(4, 0x24)
    }

    fn inode_table(&self) -> u64 {
        self.number(8, 0x28)
    }

    fn inodes_are_uninit(&self) -> bool {
        le16(self.bytes, 0x12) & 1 != 0
    }

    fn blocks_are_uninit(&self) -> bool {
        le16(self.bytes, 0x12) & 2 != 0
    }
}

/// The owners of blocks.
struct Use<'a> {
    image: &'a Image<'a>,
    /// The owner of each cluster; 0 if it has no owner.
    owners: Vec<u32>,
    used_inodes: BTreeSet<u32>,
    directories: BTreeSet<u32>,
    /// Blocks of attributes, and the number of inodes that refer to each.
    attributes: BTreeMap<u64, u32>,
    /// Number of clusters that were counted for the current inode.
    counted: u64,
}

impl<'a> Use<'a> {
    fn new(image: &'a Image<'a>) -> Self {
        let clusters = (image.blocks - image.first).div_ceil(image.cluster) as usize;
        Self {
            image,
            owners: vec![0; clusters],
            used_inodes: BTreeSet::new(),
            directories: BTreeSet::new(),
            attributes: BTreeMap::new(),
            counted: 0,
        }
    }

    fn claim(&mut self, block: u64, owner: u32) -> Checked {
        let image = self.image;
        if block < image.first || block >= image.blocks {
            return Err(format!("inode {owner} uses block {block}, which is not on the volume"));
        }
        let place = &mut self.owners[((block - image.first) / image.cluster) as usize];
        match *place {
            0 => {
                *place = owner;
                self.counted += 1;
                Ok(())
            }
            same if same == owner && image.cluster > 1 => Ok(()),
            VOLUME => Err(format!("inode {owner} uses block {block}, which is the volume's own")),
            other => Err(format!("block {block} is used by inode {other} and by inode {owner}")),
        }
    }

    fn claim_all(&mut self, blocks: std::ops::Range<u64>) -> Checked {
        blocks.into_iter().try_for_each(|block| {
            // Several structures of the volume may share a cluster.
            self.owners[((block - self.image.first) / self.image.cluster) as usize] = VOLUME;
            Ok(())
        })
    }

    /// Assigns super blocks, descriptors, bitmaps and tables to the volume, and verifies the checksums of the
    /// descriptors.
    fn metadata(&mut self) -> Checked {
        let image = self.image;
        let desc_blocks = (image.groups as usize * image.desc_size).div_ceil(image.block_size) as u64;
        let reserved = u64::from(le16(image.sb, 0xce));
        let table = (image.inodes_per_group as usize * image.inode_size / image.block_size) as u64;
        for number in 0..image.groups {
            let (start, group) = (image.group_start(number), image.group(number));
            if image.has_copy(number) {
                self.claim_all(start..start + 1 + desc_blocks + reserved)?;
            }
            let (blocks, inodes) = (group.block_bitmap(), group.inode_bitmap());
            self.claim_all(blocks..blocks + 1)?;
            self.claim_all(inodes..inodes + 1)?;
            self.claim_all(group.inode_table()..group.inode_table() + table)?;
            if let Some(sum) = descriptor_sum(image, number, group.bytes) {
                expect(|| format!("checksum of group {number}"), sum, le16(group.bytes, 0x1e))?;
            }
        }
        Ok(())
    }

    fn inodes(&mut self) -> Checked {
        let image = self.image;
        let first = if le32(image.sb, 0x4c) == 0 { 11 } else { le32(image.sb, 0x54) };
        for number in 0..image.groups {
            let group = image.group(number);
            let unused =
                if image.ro_compat & (GDT_CSUM | METADATA_CSUM) != 0 { group.count(0x1c, 0x32) } else { 0 };
            let end = if group.inodes_are_uninit() { 0 } else { image.inodes_per_group - unused };
            for ino in (1..=end).map(|n| number * image.inodes_per_group + n) {
                let raw = image.inode(ino);
                let (mode, links) = (le16(raw, 0), le16(raw, 0x1a));
                if ino < first {
                    self.used_inodes.insert(ino);
                }
                if links == 0 && (ino >= first || mode == 0 && le32(raw, 0x1c) == 0) {
                    continue;
                }
                self.used_inodes.insert(ino);
                if mode & 0xf000 == 0x4000 {
                    self.directories.insert(ino);
                }
                self.inode(ino, raw)?;
            }
        }
        let last = le32(image.sb, 0x54).max(11) - 1;
        self.used_inodes.extend(1..=last.min(10));
        Ok(())
    }

    fn inode(&mut self, ino: u32, raw: &[u8]) -> Checked {
        const EXTENTS: u32 = 0x8_0000;
        const INLINE: u32 = 0x1000_0000;
        const HUGE_FILE: u32 = 0x4_0000;
        let image = self.image;
        let (mode, flags) = (le16(raw, 0) & 0xf000, le32(raw, 0x20));
        let sectors = u64::from(le32(raw, 0x1c)) | u64::from(le16(raw, 0x74)) << 32;
        let acl = u64::from(le32(raw, 0x68)) | u64::from(le16(raw, 0x76)) << 32;
        let per_cluster = image.block_size as u64 / 512 * image.cluster;
        let attributes = u64::from(acl != 0);
        self.counted = 0;
        let fast = mode == 0xa000 && sectors == attributes * per_cluster && flags & EXTENTS == 0;
        let mapped = matches!(mode, 0x4000 | 0x8000) || mode == 0xa000 && !fast || ino < 11;
        if ino == RESIZE_INO {
            // Only its doubly indirect block; the blocks that it refers to are the reserved descriptor blocks.
            let block = le32(raw, 0x28 + 13 * 4).into();
            return if block == 0 { Ok(()) } else { self.claim(block, ino) };
        } else if mapped && flags & INLINE == 0 {
            if flags & EXTENTS != 0 {
                self.extents(ino, &raw[0x28..0x28 + 60], 5, &mut 0)?;
            } else {
                self.indirect(ino, &raw[0x28..0x28 + 60])?;
            }
        }
        if acl != 0 {
            *self.attributes.entry(acl).or_default() += 1;
        }
        let unit =
            if flags & HUGE_FILE != 0 { per_cluster / (image.block_size as u64 / 512) } else { per_cluster };
        expect(|| format!("i_blocks of inode {ino}"), (self.counted + attributes) * unit, sectors)
    }

    fn extents(&mut self, ino: u32, node: &[u8], most: u32, next: &mut u64) -> Checked {
        expect(|| format!("magic of an extent node of inode {ino}"), 0xf30a, le16(node, 0))?;
        let (entries, depth) = (le16(node, 2) as usize, le16(node, 6));
        if depth > most || 12 + entries * 12 > node.len() || entries > le16(node, 4) as usize {
            return Err(format!("extent node of inode {ino}: {entries} entries at depth {depth}"));
        }
        for entry in node[12..12 + entries * 12].chunks(12) {
            let logical = u64::from(le32(entry, 0));
            if logical < *next {
                return Err(format!("extents of inode {ino} overlap at {logical}"));
            }
            if depth == 0 {
                let len = le16(entry, 4);
                let len = u64::from(if len > 0x8000 { len - 0x8000 } else { len });
                let start = u64::from(le32(entry, 8)) | u64::from(le16(entry, 6)) << 32;
                *next = logical + len;
                (start..start + len).try_for_each(|block| self.claim(block, ino))?;
            } else {
                let child = u64::from(le32(entry, 4)) | u64::from(le16(entry, 8)) << 32;
                self.claim(child, ino)?;
                let block = self.image.block(child)?;
                if le16(block, 6) + 1 != depth {
                    return Err(format!("extent node {child} of inode {ino} has depth {}", le16(block, 6)));
                }
                self.extents(ino, block, depth - 1, next)?;
            }
        }
        Ok(())
    }

    fn indirect(&mut self, ino: u32, map: &[u8]) -> Checked {
        for (n, slot) in map.chunks(4).enumerate() {
            let block = u64::from(le32(slot, 0));
            if block != 0 {
                self.indirect_block(ino, block, n.saturating_sub(11))?;
            }
        }
        Ok(())
    }

    fn indirect_block(&mut self, ino: u32, block: u64, levels: usize) -> Checked {
        self.claim(block, ino)?;
        if levels == 0 {
            return Ok(());
        }
        for slot in self.image.block(block)?.chunks(4) {
            let below = u64::from(le32(slot, 0));
            if below != 0 {
                self.indirect_block(ino, below, levels - 1)?;
            }
        }
        Ok(())
    }

    fn shared_attributes(&mut self) -> Checked {
        for (block, names) in std::mem::take(&mut self.attributes) {
            let bytes = self.image.block(block)?;
            expect(|| format!("magic of attribute block {block}"), 0xea02_0000, le32(bytes, 0))?;
            expect(|| format!("references to attribute block {block}"), names, le32(bytes, 4))?;
            self.claim(block, VOLUME - 1)?;
        }
        Ok(())
    }

    fn compare(&self) -> Checked {
        let image = self.image;
        let (mut free_blocks, mut free_inodes) = (0_u64, 0_u64);
        for number in 0..image.groups {
            free_blocks += self.compare_blocks(number)?;
            free_inodes += self.compare_inodes(number)?;
        }
        let wide = image.incompat & BITS_64 != 0;
        let stored =
            u64::from(le32(image.sb, 0xc)) | if wide { u64::from(le32(image.sb, 0x158)) << 32 } else { 0 };
        // In blocks here, in clusters in the descriptors.
        expect(|| "free blocks".into(), free_blocks * image.cluster, stored)?;
        expect(|| "free inodes".into(), free_inodes, le32(image.sb, 0x10).into())?;
        expect(|| "journal".into(), image.compat & HAS_JOURNAL != 0, le32(image.sb, 0xe0) != 0)
    }

    fn compare_blocks(&self, number: u32) -> Checked<u64> {
        let (image, group) = (self.image, self.image.group(number));
        let first = ((image.group_start(number) - image.first) / image.cluster) as usize;
        let clusters = image.group_len(number).div_ceil(image.cluster) as usize;
        let owners = &self.owners[first..first + clusters];
        let free = owners.iter().filter(|&&owner| owner == 0).count() as u64;
        expect(|| format!("free blocks of group {number}"), free, group.count(0xc, 0x2c).into())?;
        if group.blocks_are_uninit() {
            let owner = owners.iter().find(|&&owner| owner != 0 && owner != VOLUME);
            return owner.map_or(Ok(free), |ino| {
                Err(format!("inode {ino} has blocks in group {number}, never used"))
            });
        }
        let bitmap = image.block(group.block_bitmap())?;
        for (n, &owner) in owners.iter().enumerate() {
            let block = image.group_start(number) + n as u64 * image.cluster;
            expect(|| format!("use of block {block}, owner {owner}"), owner != 0, bit(bitmap, n))?;
        }
        if let Some(n) = (clusters..image.block_size * 8).find(|&n| !bit(bitmap, n)) {
            return Err(format!("block bitmap of group {number}: bit {n} past the end is 0"));
        }
        let len = (le32(image.sb, 0x24) / 8) as usize;
        self.compare_sum(number, "block", &bitmap[..len], (0x18, 0x38))?;
        Ok(free)
    }

    fn compare_inodes(&self, number: u32) -> Checked<u64> {
        let (image, group) = (self.image, self.image.group(number));
        let inodes = number * image.inodes_per_group + 1..(number + 1) * image.inodes_per_group + 1;
        let used = self.used_inodes.range(inodes.clone()).count() as u64;
        let free = u64::from(image.inodes_per_group) - used;
        let dirs = self.directories.range(inodes.clone()).count() as u32;
        expect(|| format!("free inodes of group {number}"), free, group.count(0xe, 0x2e).into())?;
        expect(|| format!("directories of group {number}"), dirs, group.count(0x10, 0x30))?;
        if group.inodes_are_uninit() {
            return Ok(free);
        }
        let bitmap = image.block(group.inode_bitmap())?;
        for (n, ino) in inodes.enumerate() {
            expect(|| format!("use of inode {ino}"), self.used_inodes.contains(&ino), bit(bitmap, n))?;
        }
        if let Some(n) = (image.inodes_per_group as usize..image.block_size * 8).find(|&n| !bit(bitmap, n)) {
            return Err(format!("inode bitmap of group {number}: bit {n} past the end is 0"));
        }
        self.compare_sum(number, "inode", &bitmap[..image.inodes_per_group as usize / 8], (0x1a, 0x3a))?;
        Ok(free)
    }

    fn compare_sum(&self, number: u32, what: &str, bitmap: &[u8], (lo, hi): (usize, usize)) -> Checked {
        if !self.image.has_csum() {
            return Ok(());
        }
        let group = self.image.group(number);
        let sum = crc32c(self.image.seed, bitmap);
        let sum = if group.bytes.len() >= 64 { sum } else { sum & 0xffff };
        expect(|| format!("checksum of the {what} bitmap of group {number}"), sum, group.count(lo, hi))
    }
}

fn bit(bitmap: &[u8], n: usize) -> bool {
    bitmap[n / 8] >> (n % 8) & 1 == 1
}

/// Returns the checksum of `ext4_group_desc_csum`: over UUID or seed, group number, and the descriptor without its
/// checksum.
fn descriptor_sum(image: &Image<'_>, group: u32, bytes: &[u8]) -> Option<u32> {
    if image.has_csum() {
        let sum = crc32c(image.seed, &group.to_le_bytes());
        let mut bytes = bytes.to_vec();
        bytes[0x1e..0x20].fill(0);
        return Some(crc32c(sum, &bytes) & 0xffff);
    }
    (image.ro_compat & GDT_CSUM != 0).then(|| {
        let sum = crc16(!0, &image.sb[0x68..0x78]);
        let sum = crc16(crc16(sum, &group.to_le_bytes()), &bytes[..0x1e]);
        crc16(sum, bytes.get(0x20..).unwrap_or_default()).into()
    })
}
