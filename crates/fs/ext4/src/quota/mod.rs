//! Quota files: usage and limits of users, groups and projects.
//!
//! On disk: blocks of 1 KiB, whatever the block size of the volume. Block 0 is the header. Block 1 is the root of a
//! tree of four levels, one for each byte of an ID from the highest on. Its nodes are 256 block numbers, and the last
//! level leads to blocks of entries.
//! Invariant: each block of entries is filled before the next one, so that at most one has space.
//! Source: e2fsprogs `lib/support/mkquota.c`, `quotaio_v2.c`, `quotaio_tree.c`; Linux `fs/quota/quota_tree.h`,
//! `quotaio_v2.h`.

mod changes;
mod limits;
mod tree;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use obento_base::Result;
use obento_base::wire::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, le, to_usize};

pub(crate) use changes::{Charge, UsageChanges};
pub(crate) use limits::{Accounts, Admission, Admissions, Enforcement, OwnerIds, OwnerRoom};
pub(crate) use tree::{EntryPlace, QuotaBlock, copy_of, find, header, insert};

use crate::raw::{RawInode, RawInodeExtra};

/// `QT_BLKSIZE`.
pub(crate) const BLOCK: usize = 1024;
/// Maximum size of a file that e2fsprogs opens (`lib/support/quotaio_v2.c` `v2_init_io`).
pub(crate) const MAX_SIZE: u64 = 1 << 31;
/// `QT_TREEOFF`: the root of the tree.
const ROOT: u32 = 1;
/// `MAX_DQ_TIME`, `MAX_IQ_TIME`: a week.
const GRACE: u32 = 7 * 24 * 60 * 60;
/// Number of bytes per unit of a limit of space: `QIF_DQBLKSIZE`.
const LIMIT_UNIT: u64 = 1024;
/// Version of the format with 64-bit counts.
const VERSION: u32 = 1;
/// `V2_DQTREEDEPTH`.
const DEPTH: u32 = 4;
/// Number of entries per block.
const PER_BLOCK: usize = (BLOCK - size_of::<RawEntriesHeader>()) / size_of::<RawEntry>();

/// The kind of owner that a quota file counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum QuotaKind {
    User,
    Group,
    Project,
}

impl QuotaKind {
    /// `INITQMAGICS`.
    pub(crate) fn magic(self) -> u32 {
        match self {
            Self::User => 0xd9c0_1f11,
            Self::Group => 0xd9c0_1927,
            Self::Project => 0xd9c0_3f14,
        }
    }

    /// The kinds in the order of the super block's fields.
    pub(crate) const ALL: [Self; 3] = [Self::User, Self::Group, Self::Project];

    /// Returns the owner of an inode. An inode without a project belongs to project 0.
    pub(crate) fn id(self, raw: &RawInode, extra: Option<&RawInodeExtra>) -> u32 {
        let (low, high) = match self {
            Self::User => (raw.i_uid.get(), raw.l_i_uid_high.get()),
            Self::Group => (raw.i_gid.get(), raw.l_i_gid_high.get()),
            Self::Project => return extra.map_or(0, |extra| extra.i_projid.get()),
        };
        u32::from(high) << 16 | u32::from(low)
    }
}

/// `struct v2_disk_dqheader` and `struct v2_disk_dqinfo`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawHeader {
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
    /// 0x14: number of blocks of the file.
    dqi_blocks: le::U32,
    /// 0x18: first free block, or 0.
    dqi_free_blk: le::U32,
    /// 0x1c: first block with a free entry.
    dqi_free_entry: le::U32,
}
const _: () = assert!(size_of::<RawHeader>() == 32);

/// `struct qt_disk_dqdbheader`, the start of a block of entries.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone, Copy)]
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
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub(crate) struct RawEntry {
    /// 0x0
    pub(crate) dqb_id: le::U32,
    /// 0x4
    dqb_pad: le::U32,
    /// 0x8
    dqb_ihardlimit: le::U64,
    /// 0x10
    dqb_isoftlimit: le::U64,
    /// 0x18
    pub(crate) dqb_curinodes: le::U64,
    /// 0x20
    dqb_bhardlimit: le::U64,
    /// 0x28
    dqb_bsoftlimit: le::U64,
    /// 0x30: bytes.
    pub(crate) dqb_curspace: le::U64,
    /// 0x38
    dqb_btime: le::U64,
    /// 0x40
    dqb_itime: le::U64,
}
const _: () = assert!(size_of::<RawEntry>() == 72);

/// Usage and limits by owner.
pub(crate) type Entries = BTreeMap<u32, RawEntry>;

/// Returns the entry of `id` with this usage and no limits.
pub(crate) fn entry(id: u32, inodes: u64, bytes: u64) -> RawEntry {
    let mut raw = RawEntry::new_zeroed();
    raw.dqb_id.set(id);
    raw.dqb_curinodes.set(inodes);
    raw.dqb_curspace.set(bytes);
    raw
}

/// A quota file that is being created.
pub(crate) struct QuotaFile {
    pub(crate) blocks: Vec<Vec<u8>>,
    /// The blocks in the order in which they are first written, and therefore allocated.
    pub(crate) order: Vec<u32>,
}

impl RawHeader {
    /// Returns the grace periods of inodes and of space in seconds.
    pub(crate) fn grace(&self) -> (u32, u32) {
        (self.dqi_igrace.get(), self.dqi_bgrace.get())
    }

    /// Returns the length of the file in bytes.
    pub(crate) fn len(&self) -> usize {
        to_usize(self.dqi_blocks.get().into()).saturating_mul(BLOCK)
    }
}

impl RawEntry {
    /// Adds an inode that uses this number of bytes.
    pub(crate) fn count(&mut self, bytes: u64) {
        self.add(1, bytes);
    }

    /// Adds this number of inodes and bytes.
    pub(crate) fn add(&mut self, inodes: u64, bytes: u64) {
        self.dqb_curinodes.set(self.dqb_curinodes.get().saturating_add(inodes));
        self.dqb_curspace.set(self.dqb_curspace.get().saturating_add(bytes));
    }

    /// Adds the differences of the numbers of inodes and bytes. A grace period ends if the usage no longer exceeds its
    /// soft limit: Linux `fs/quota/dquot.c` `dquot_decr_inodes`, `dquot_decr_space`.
    pub(crate) fn change(&mut self, inodes: i64, bytes: i64) {
        // `v2_mem2diskdqb`: no entry in use contains only zeros, and 1 in this field of an empty entry means 0.
        if self.is_idle() && self.dqb_itime.get() == 1 {
            self.dqb_itime.set(0);
        }
        self.dqb_curinodes.set(self.dqb_curinodes.get().saturating_add_signed(inodes));
        self.dqb_curspace.set(self.dqb_curspace.get().saturating_add_signed(bytes));
        if self.dqb_curinodes <= self.dqb_isoftlimit {
            self.dqb_itime.set(0);
        }
        if self.dqb_curspace.get() <= self.dqb_bsoftlimit.get().saturating_mul(LIMIT_UNIT) {
            self.dqb_btime.set(0);
        }
        self.mark_used();
    }

    /// Sets the ends of the grace periods of inodes and of space.
    pub(crate) fn set_deadlines(&mut self, inodes: u64, bytes: u64) {
        self.dqb_itime.set(inodes);
        self.dqb_btime.set(bytes);
        self.mark_used();
    }

    /// Makes an entry of zeros different from an unused one.
    pub(crate) fn mark_used(&mut self) {
        if self.as_bytes().iter().all(|&byte| byte == 0) {
            self.dqb_itime.set(1);
        }
    }

    /// Returns whether it has neither usage nor limits.
    fn is_idle(&self) -> bool {
        !self.has_limits() && self.dqb_curinodes.get() == 0 && self.dqb_curspace.get() == 0
    }

    /// Returns whether it contains more than usage.
    pub(crate) fn has_limits(&self) -> bool {
        let limits = [self.dqb_ihardlimit, self.dqb_isoftlimit, self.dqb_bhardlimit, self.dqb_bsoftlimit];
        limits.iter().any(|limit| limit.get() != 0)
    }
}

impl QuotaFile {
    /// Creates the file of `kind` with these entries. Fails with `NoMemory`.
    pub(crate) fn new(kind: QuotaKind, all: &Entries) -> Result<Self> {
        let mut this = Self { blocks: Vec::from([zeroed()?, zeroed()?]), order: Vec::from([0]) };
        let mut entries = 0;
        for (at, (&id, raw)) in (0_usize..).zip(all) {
            let inside = at.checked_rem(PER_BLOCK).unwrap_or(0);
            entries = this.insert(id, Some(entries).filter(|_| inside > 0))?;
            if at == 0 {
                this.order.push(ROOT);
            }
            let start = inside.saturating_mul(size_of::<RawEntry>());
            this.put(entries, start.saturating_add(size_of::<RawEntriesHeader>()), raw.as_bytes());
            let mut raw = RawEntriesHeader::new_zeroed();
            raw.dqdh_entries.set(u16::try_from(inside.saturating_add(1)).unwrap_or(u16::MAX));
            this.put(entries, 0, raw.as_bytes());
        }
        let is_full = all.len().is_multiple_of(PER_BLOCK);
        let mut raw = RawHeader::new_zeroed();
        raw.dqh_magic.set(kind.magic());
        raw.dqh_version.set(VERSION);
        raw.dqi_bgrace.set(GRACE);
        raw.dqi_igrace.set(GRACE);
        raw.dqi_blocks.set(this.next());
        raw.dqi_free_entry.set(if is_full { 0 } else { entries });
        this.put(0, 0, raw.as_bytes());
        Ok(this)
    }

    /// Returns the number of the next new block.
    fn next(&self) -> u32 {
        u32::try_from(self.blocks.len()).unwrap_or(u32::MAX)
    }

    fn add(&mut self) -> Result<u32> {
        let number = self.next();
        self.blocks.push(zeroed()?);
        self.order.push(number);
        Ok(number)
    }

    /// Creates the path through the tree to the entry of `id`, which is in the block `entries`, or in a new block.
    /// Returns that block.
    fn insert(&mut self, id: u32, entries: Option<u32>) -> Result<u32> {
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

fn zeroed() -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(BLOCK)?;
    bytes.resize(BLOCK, 0);
    Ok(bytes)
}

obento_driver::finding_words! {
    /// A defect of a quota file.
    QuotaDefect {
        Number = "its inode number is invalid",
        NotRegular = "it is not a regular file",
        Unreadable = "it cannot be read",
        Size = "its size is invalid",
        TooShort = "it is too short",
        Magic = "its magic number is wrong",
        Version = "its version is unknown",
        Truncated = "it is truncated",
        Outside = "its tree refers to a block outside the file",
        Circle = "its tree is circular",
    }
}

/// Returns the entries of a file, or its first defect.
pub(crate) fn decode(kind: QuotaKind, bytes: &[u8]) -> core::result::Result<Entries, QuotaDefect> {
    let (header, _) = RawHeader::ref_from_prefix(bytes).map_err(|_| QuotaDefect::TooShort)?;
    if header.dqh_magic.get() != kind.magic() {
        return Err(QuotaDefect::Magic);
    }
    if header.dqh_version.get() != VERSION {
        return Err(QuotaDefect::Version);
    }
    let blocks = header.dqi_blocks.get();
    if to_usize(blocks.into()).saturating_mul(BLOCK) > bytes.len() {
        return Err(QuotaDefect::Truncated);
    }
    let block = |number: u32| {
        let start = to_usize(number.into()).checked_mul(BLOCK)?;
        bytes.get(start..start.checked_add(BLOCK)?).filter(|_| number < blocks)
    };
    let (mut all, mut waiting, mut seen) = (Entries::new(), Vec::from([(ROOT, 0_u32)]), 0_u32);
    while let Some((number, depth)) = waiting.pop() {
        let node = block(number).ok_or(QuotaDefect::Outside)?;
        if depth == DEPTH {
            for raw in entries_of(node) {
                // Several IDs lead to the same block of entries.
                all.insert(raw.dqb_id.get(), raw);
            }
            continue;
        }
        seen = seen.saturating_add(1);
        if seen > blocks {
            return Err(QuotaDefect::Circle);
        }
        let numbers = node.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
        let mut below: Vec<u32> = numbers.filter(|&number| number != 0).collect();
        if below.iter().any(|&number| number <= ROOT || number >= blocks) {
            return Err(QuotaDefect::Outside);
        }
        below.dedup();
        waiting.extend(below.into_iter().map(|number| (number, depth.saturating_add(1))));
    }
    Ok(all)
}

/// Returns the number of blocks of [`BLOCK`] bytes according to the header.
pub(crate) fn blocks_of(bytes: &[u8]) -> Option<usize> {
    RawHeader::ref_from_prefix(bytes).ok().map(|(header, _)| to_usize(header.dqi_blocks.get().into()))
}

/// Returns the used entries of a block.
fn entries_of(block: &[u8]) -> impl Iterator<Item = RawEntry> + '_ {
    let rest = block.get(size_of::<RawEntriesHeader>()..).unwrap_or_default();
    let all = rest.chunks_exact(size_of::<RawEntry>()).filter_map(|raw| RawEntry::read_from_bytes(raw).ok());
    all.filter(|raw| raw.as_bytes().iter().any(|&byte| byte != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_any_number_of_owners_is_read_as_it_was_made() {
        for count in [0, 1, 2, 14, 15, 300, 5000] {
            let all: Entries = (0..count)
                .map(|n| (n * 7919, entry(n * 7919, u64::from(n) + 1, u64::from(n) << 12)))
                .collect();
            let file = QuotaFile::new(QuotaKind::User, &all).unwrap();
            let bytes = file.blocks.concat();
            assert_eq!(decode(QuotaKind::User, &bytes), Ok(all));
            assert_eq!(decode(QuotaKind::Group, &bytes), Err(QuotaDefect::Magic));
        }
    }

    #[test]
    fn a_tree_that_runs_in_a_circle_ends() {
        let all = Entries::from([(5, entry(5, 1, 2))]);
        let mut bytes = QuotaFile::new(QuotaKind::Group, &all).unwrap().blocks.concat();
        bytes[3 * BLOCK..3 * BLOCK + 4].copy_from_slice(&3_u32.to_le_bytes());
        assert!(
            decode(QuotaKind::Group, &bytes).is_ok_and(|found| found != all)
                || decode(QuotaKind::Group, &bytes).is_err()
        );
        bytes[BLOCK..BLOCK + 4].copy_from_slice(&900_u32.to_le_bytes());
        assert_eq!(decode(QuotaKind::Group, &bytes), Err(QuotaDefect::Outside));
    }
}
