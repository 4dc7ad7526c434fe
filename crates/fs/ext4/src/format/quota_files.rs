//! Quota files: what users, groups and projects take, for Linux to go on counting from.
//!
//! On disk: blocks of 1 KiB whatever the volume's are. Block 0 holds the header, block 1 the root of a tree of four levels, one for each
//! byte of an id from the highest on, whose nodes are 256 block numbers; the last level leads to a block of entries.
//! Invariant: there are at most two entries, of the owners of the root directory and of lost+found, so that one block of them is
//! enough.
//! Source: e2fsprogs `lib/support/mkquota.c`, `quotaio_v2.c`, `quotaio_tree.c`; Linux `fs/quota/quota_tree.h`, `quotaio_v2.h`.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, le, to_u64, to_usize};
use obento_driver::FormatError;

use super::draft::{Draft, zeroed};
use super::geometry::FIRST_INO;
use super::inodes::{NewInode, PRIVATE_FILE, ROOT_INO};
use super::options::Wishes;
use crate::feature::RoCompat;
use crate::inode::InodeFlags;
use crate::raw::RawInode;

/// `QT_BLKSIZE`.
const BLOCK: usize = 1024;
/// `QT_TREEOFF`: the root of the tree.
const ROOT: u32 = 1;
/// `MAX_DQ_TIME`, `MAX_IQ_TIME`: a week.
const GRACE: u32 = 7 * 24 * 60 * 60;
/// Version of the format with 64-bit counts.
const VERSION: u32 = 1;
/// Behind lost+found.
const PROJECT_INO: u32 = FIRST_INO.saturating_add(1);

/// What a quota file counts by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum QuotaKind {
    User,
    Group,
    Project,
}

impl QuotaKind {
    /// `INITQMAGICS`.
    fn magic(self) -> u32 {
        match self {
            Self::User => 0xd9c0_1f11,
            Self::Group => 0xd9c0_1927,
            Self::Project => 0xd9c0_3f14,
        }
    }

    /// `EXT4_USR_QUOTA_INO`, `EXT4_GRP_QUOTA_INO`; that of projects is no reserved one.
    fn ino(self) -> u32 {
        match self {
            Self::User => 3,
            Self::Group => 4,
            Self::Project => PROJECT_INO,
        }
    }

    /// Of whom `inode` is. A new one belongs to project 0.
    fn id(self, inode: &RawInode) -> u32 {
        let (low, high) = match self {
            Self::User => (inode.i_uid.get(), inode.l_i_uid_high.get()),
            Self::Group => (inode.i_gid.get(), inode.l_i_gid_high.get()),
            Self::Project => (0, 0),
        };
        u32::from(high) << 16 | u32::from(low)
    }
}

/// `struct v2_disk_dqheader` and `struct v2_disk_dqinfo`.
#[derive(FromZeros, IntoBytes, KnownLayout, Immutable, Clone, Copy)]
#[repr(C)]
struct RawHeader {
    /// 0x0
    dqh_magic: le::U32,
    /// 0x4
    dqh_version: le::U32,
    /// 0x8: seconds.
    dqi_bgrace: le::U32,
    /// 0xc: seconds.
    dqi_igrace: le::U32,
    /// 0x10
    dqi_flags: le::U32,
    /// 0x14: blocks of the file.
    dqi_blocks: le::U32,
    /// 0x18: first free block, or 0.
    dqi_free_blk: le::U32,
    /// 0x1c: first block with a free entry.
    dqi_free_entry: le::U32,
}
const _: () = assert!(size_of::<RawHeader>() == 32);

/// `struct qt_disk_dqdbheader`, which begins a block of entries.
#[derive(FromZeros, IntoBytes, KnownLayout, Immutable, Clone, Copy)]
#[repr(C)]
struct RawEntriesHeader {
    /// 0x0
    dqdh_next_free: le::U32,
    /// 0x4
    dqdh_prev_free: le::U32,
    /// 0x8
    dqdh_entries: le::U16,
    /// 0xa
    dqdh_pad1: le::U16,
    /// 0xc
    dqdh_pad2: le::U32,
}
const _: () = assert!(size_of::<RawEntriesHeader>() == 16);

/// `struct v2r1_disk_dqblk`.
#[derive(FromZeros, IntoBytes, KnownLayout, Immutable, Clone, Copy)]
#[repr(C)]
struct RawEntry {
    /// 0x0
    dqb_id: le::U32,
    /// 0x4
    dqb_pad: le::U32,
    /// 0x8
    dqb_ihardlimit: le::U64,
    /// 0x10
    dqb_isoftlimit: le::U64,
    /// 0x18
    dqb_curinodes: le::U64,
    /// 0x20
    dqb_bhardlimit: le::U64,
    /// 0x28
    dqb_bsoftlimit: le::U64,
    /// 0x30: bytes.
    dqb_curspace: le::U64,
    /// 0x38
    dqb_btime: le::U64,
    /// 0x40
    dqb_itime: le::U64,
}
const _: () = assert!(size_of::<RawEntry>() == 72);

/// What somebody takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Usage {
    inodes: u64,
    bytes: u64,
}

/// A quota file that is being made.
struct QuotaFile {
    blocks: Vec<Vec<u8>>,
    /// The blocks in the order in which they are written first, and so taken.
    order: Vec<u32>,
}

impl QuotaFile {
    /// The file of `kind` with these entries. Errors: Device if memory is short.
    fn new(kind: QuotaKind, usages: &BTreeMap<u32, Usage>) -> Result<Self, FormatError> {
        let mut this = Self { blocks: Vec::from([zeroed(BLOCK)?, zeroed(BLOCK)?]), order: Vec::from([0]) };
        let mut entries = 0;
        for (at, (&id, usage)) in (0_usize..).zip(usages) {
            if at == 0 {
                entries = this.insert(id, None)?;
                this.order.push(ROOT);
            } else {
                this.insert(id, Some(entries))?;
            }
            let mut raw = RawEntry::new_zeroed();
            raw.dqb_id.set(id);
            raw.dqb_curinodes.set(usage.inodes);
            raw.dqb_curspace.set(usage.bytes);
            let start = at.saturating_mul(size_of::<RawEntry>());
            this.put(entries, start.saturating_add(size_of::<RawEntriesHeader>()), raw.as_bytes());
        }
        let mut raw = RawEntriesHeader::new_zeroed();
        raw.dqdh_entries.set(u16::try_from(usages.len()).unwrap_or(u16::MAX));
        this.put(entries, 0, raw.as_bytes());
        let mut raw = RawHeader::new_zeroed();
        raw.dqh_magic.set(kind.magic());
        raw.dqh_version.set(VERSION);
        raw.dqi_bgrace.set(GRACE);
        raw.dqi_igrace.set(GRACE);
        raw.dqi_blocks.set(this.next());
        raw.dqi_free_entry.set(entries);
        this.put(0, 0, raw.as_bytes());
        Ok(this)
    }

    /// The number of the block that is added next.
    fn next(&self) -> u32 {
        u32::try_from(self.blocks.len()).unwrap_or(u32::MAX)
    }

    fn add(&mut self) -> Result<u32, FormatError> {
        let number = self.next();
        self.blocks.push(zeroed(BLOCK)?);
        self.order.push(number);
        Ok(number)
    }

    /// Makes the way through the tree to the entry of `id`, which is in the block `entries`, or in a new one. Answers which.
    fn insert(&mut self, id: u32, entries: Option<u32>) -> Result<u32, FormatError> {
        let (mut node, digits) = (ROOT, id.to_be_bytes());
        for (depth, digit) in (1..).zip(digits) {
            let slot = usize::from(digit).saturating_mul(4);
            node = match (self.number_at(node, slot), entries) {
                (0, Some(entries)) if depth == digits.len() => {
                    self.put(node, slot, &entries.to_le_bytes());
                    entries
                }
                (0, _) => {
                    let below = self.add()?;
                    self.put(node, slot, &below.to_le_bytes());
                    below
                }
                (below, _) => below,
            };
        }
        Ok(node)
    }

    fn number_at(&self, block: u32, at: usize) -> u32 {
        let bytes = self.blocks.get(to_usize(block.into())).and_then(|bytes| bytes.get(at..)?.first_chunk());
        bytes.map_or(0, |number| u32::from_le_bytes(*number))
    }

    fn put(&mut self, block: u32, at: usize, bytes: &[u8]) {
        let block = self.blocks.get_mut(to_usize(block.into()));
        let target = block.and_then(|block| block.get_mut(at..at.saturating_add(bytes.len())));
        if let Some(target) = target {
            target.copy_from_slice(bytes);
        }
    }
}

impl Draft {
    /// Makes the quota files, if the volume is to have them. Errors: TooSmall.
    pub fn make_quota_files(&mut self, wishes: &Wishes) -> Result<(), FormatError> {
        if !self.sb.ro_compat.contains(RoCompat::QUOTA) {
            return Ok(());
        }
        let mut kinds = wishes.quotas.clone();
        if self.sb.ro_compat.contains(RoCompat::PROJECT) {
            kinds.insert(QuotaKind::Project);
        }
        // They do not count themselves.
        let files = kinds.into_iter().map(|kind| Ok((kind, QuotaFile::new(kind, &self.usages(kind))?)));
        let files: Vec<_> = files.collect::<Result<_, FormatError>>()?;
        files.iter().try_for_each(|(kind, file)| self.make_quota_file(*kind, file))
    }

    /// What the directories take.
    fn usages(&self, kind: QuotaKind) -> BTreeMap<u32, Usage> {
        let mut usages: BTreeMap<u32, Usage> = BTreeMap::new();
        for ino in [ROOT_INO, FIRST_INO] {
            let record = self.inodes.get(&ino);
            let Some((inode, _)) = record.and_then(|record| RawInode::read_from_prefix(record).ok()) else {
                continue;
            };
            let usage = usages.entry(kind.id(&inode)).or_default();
            usage.inodes = usage.inodes.saturating_add(1);
            let sectors = u64::from(inode.i_blocks_lo.get());
            usage.bytes = usage.bytes.saturating_add(sectors.saturating_mul(512));
        }
        usages
    }

    fn make_quota_file(&mut self, kind: QuotaKind, file: &QuotaFile) -> Result<(), FormatError> {
        let ino = kind.ino();
        let raw = &mut self.sb.raw;
        match kind {
            QuotaKind::User => raw.s_usr_quota_inum.set(ino),
            QuotaKind::Group => raw.s_grp_quota_inum.set(ino),
            QuotaKind::Project => raw.s_prj_quota_inum.set(ino),
        }
        if kind == QuotaKind::Project {
            self.note_inode_search(ino);
            self.take_inode(ino, false);
        }
        let per_block = u32::try_from(self.block_len().checked_div(BLOCK).unwrap_or(1)).unwrap_or(1).max(1);
        let order = file.order.iter().map(|block| block.checked_div(per_block).unwrap_or(0));
        let scattered = self.map_in_order(ino, order)?;
        for (&at, &number) in &scattered.places {
            let mut bytes = self.zeroed()?;
            let first = to_usize(at.saturating_mul(per_block).into());
            let content = file.blocks.iter().skip(first).take(to_usize(per_block.into())).flatten();
            bytes.iter_mut().zip(content).for_each(|(to, from)| *to = *from);
            self.blocks.insert(number, bytes);
        }
        self.add_inode(&NewInode {
            ino,
            mode: PRIVATE_FILE,
            owner: (0, 0),
            links: 1,
            size: to_u64(file.blocks.len().saturating_mul(BLOCK)),
            blocks: scattered.owned,
            flags: self.map_flags().union(InodeFlags::IMMUTABLE),
            i_block: scattered.i_block,
        })
    }

    /// The first inode that no file of the format has so far.
    pub fn next_ino(&self) -> u32 {
        if self.sb.raw.s_prj_quota_inum.get() == 0 { PROJECT_INO } else { PROJECT_INO.saturating_add(1) }
    }
}
