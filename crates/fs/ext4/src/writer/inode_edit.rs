//! An inode that is being changed: a copy of its record, until `Writer::store_inode` stores it.
//!
//! Invariant: `bytes` has the super block's inode size. Fields after the first 128 bytes are written only if
//! `i_extra_isize` includes them.
//! Locking: the owner of an edit holds the inode's lock exclusively, so that there is no second copy of the record.
//! Source: Linux `fs/ext4/inode.c` `ext4_fill_raw_inode`, `ext4_inode_blocks_set`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, join, split};
use obento_base::{Error, FileKind, Ino, Result, Timestamp};
use obento_journal::Taken;

use crate::checksum::inode_seed;
use crate::inode::{Format, Inode, InodeFlags, InodePlace, encode_nearest_time, reaches, sectors_of};
use crate::quota::{Admission, Admissions, Charge};
use crate::raw::{RawInode, RawInodeExtra};
use crate::super_block::SuperBlock;
use crate::unit::VolBlock;

/// An `i_extra_isize` that includes every field that Linux supports.
pub(crate) const FULL_EXTRA_ISIZE: u16 = 32;
/// The default size of a record.
const USUAL_SIZE: usize = 256;
const USUAL_REST: usize = USUAL_SIZE - size_of::<RawInode>();
/// Number of bytes before the fields that `i_extra_isize` counts.
const GOOD_OLD_SIZE: u16 = 128;

/// One of an inode's timestamps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Time {
    /// Last access.
    Access,
    /// Last change of the data.
    Modify,
    /// Last change.
    Change,
    /// Creation; not stored if the inode has no space for it.
    Birth,
}

/// A changed copy of an inode's record.
#[derive(Clone)]
pub struct InodeEdit {
    format: Format,
    ino: Ino,
    place: InodePlace,
    bytes: Bytes,
    table: Taken,
    /// The seed of checksums.
    seed: u32,
    /// What the record added to the usage of its owners before the change.
    charged: Option<Charge>,
    /// Number of attributes whose values are in inodes and are charged to the owners of this inode.
    values: u32,
    /// The room for what the change adds.
    admissions: Admissions,
}

/// A record, without allocation for the default size.
#[derive(Clone)]
enum Bytes {
    Usual(Usual),
    /// The raw fields of a record of another size, and its rest.
    Other(RawInode, Vec<u8>),
}

/// A record of the default size.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct Usual {
    raw: RawInode,
    rest: [u8; USUAL_REST],
}

impl Bytes {
    /// Copies `record`. Fails with `NoMemory`, or with `Invalid` for a record that is too short.
    fn new(record: &[u8]) -> Result<Self> {
        if let Ok(usual) = Usual::read_from_bytes(record) {
            return Ok(Self::Usual(usual));
        }
        let (raw, old_rest) = RawInode::read_from_prefix(record).map_err(|_| Error::Invalid)?;
        let mut rest = Vec::new();
        rest.try_reserve_exact(old_rest.len())?;
        rest.extend_from_slice(old_rest);
        Ok(Self::Other(raw, rest))
    }

    fn raw(&self) -> &RawInode {
        match self {
            Self::Usual(usual) => &usual.raw,
            Self::Other(raw, _) => raw,
        }
    }

    fn raw_mut(&mut self) -> &mut RawInode {
        match self {
            Self::Usual(usual) => &mut usual.raw,
            Self::Other(raw, _) => raw,
        }
    }

    /// Returns the bytes after the first 128.
    fn rest(&self) -> &[u8] {
        match self {
            Self::Usual(usual) => &usual.rest,
            Self::Other(_, rest) => rest,
        }
    }

    fn rest_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Usual(usual) => &mut usual.rest,
            Self::Other(_, rest) => rest,
        }
    }
}

impl InodeEdit {
    /// Copies `record`, which is at `place` in the block `table`. `seed` is the seed of its checksums, which includes
    /// the generation if the inode has one. `values` is the number of its attributes with values in inodes
    /// ([`charged_values`](crate::volume::Volume::charged_values)). Fails with `NoMemory`, or with `Invalid` for a record
    /// that is too short.
    pub(crate) fn new(
        format: Format,
        ino: Ino,
        place: InodePlace,
        (record, values): (&[u8], u32),
        table: Taken,
        seed: u32,
    ) -> Result<Self> {
        let record = record.get(..format.inode_size.into()).ok_or(Error::Invalid)?;
        let bytes = Bytes::new(record)?;
        let charged = Charge::new(format, record, values);
        let admissions = Admissions::default();
        let mut this = Self { format, ino, place, bytes, table, seed, charged, values, admissions };
        this.use_extra_room();
        Ok(this)
    }

    /// Like [`Self::new`], for a record with its generation that replaces the one charged as `charged`. The caller sets
    /// the number of values ([`Self::set_values`]).
    pub(crate) fn of_record(
        sb: &SuperBlock,
        ino: Ino,
        place: InodePlace,
        record: &[u8],
        table: Taken,
        charged: Option<Charge>,
    ) -> Result<Self> {
        let mut this = Self { charged, ..Self::new(sb.into(), ino, place, (record, 0), table, 0)? };
        this.set_generation(this.generation());
        Ok(this)
    }

    /// Returns what the changed record adds to the usage of its owners.
    pub(crate) fn charge(&self) -> Option<Charge> {
        Charge::new(self.format, &self.record(), self.values)
    }

    /// Returns the number of attributes whose values are in inodes and are charged to the owners of this inode.
    pub(crate) fn values(&self) -> u32 {
        self.values
    }

    /// Sets the number of attributes whose values are in inodes.
    pub(crate) fn set_values(&mut self, values: u32) {
        self.values = values;
    }

    /// Keeps room for what the change adds, until this copy is dropped. Fails with `NoMemory`.
    pub(super) fn keep(&mut self, admission: Option<Admission>) -> Result<()> {
        self.admissions.add(admission)
    }

    /// Returns what the record added to the usage of its owners before the change.
    pub(crate) fn charged(&self) -> Option<Charge> {
        self.charged
    }

    /// Enables the extra fields of an inode that has space for them and an `i_extra_isize` of 0, as `__ext4_iget`
    /// does.
    fn use_extra_room(&mut self) {
        if let Some(extra) = self.extra_mut()
            && extra.i_extra_isize.get() == 0
        {
            extra.i_extra_isize.set(FULL_EXTRA_ISIZE);
        }
    }

    /// Returns the block of the inode table.
    pub(crate) fn table(&self) -> &Taken {
        &self.table
    }

    /// Returns the place of its record.
    pub(crate) fn place(&self) -> InodePlace {
        self.place
    }

    /// Returns the inode number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Returns the current state of this copy for code that reads inodes. Fails with `Corrupt`.
    pub fn inode(&self) -> Result<Inode> {
        Inode::from_edit(self.format, self.ino, self.record(), self.place, self.seed)
    }

    /// Returns the raw fields.
    pub fn raw(&self) -> &RawInode {
        self.bytes.raw()
    }

    fn extra(&self) -> Option<&RawInodeExtra> {
        RawInodeExtra::ref_from_prefix(self.bytes.rest()).ok().map(|(extra, _)| extra)
    }

    fn extra_mut(&mut self) -> Option<&mut RawInodeExtra> {
        RawInodeExtra::mut_from_prefix(self.bytes.rest_mut()).ok().map(|(extra, _)| extra)
    }

    /// Returns the fields past the first 128 bytes, if `i_extra_isize` includes the one that ends at byte `end` of
    /// the record.
    fn extra_to(&mut self, end: usize) -> Option<&mut RawInodeExtra> {
        self.extra_mut().filter(|extra| reaches(extra.i_extra_isize.get(), end))
    }

    /// Returns the whole record without its checksum. Fills `spare`, if it has this length and no other owner.
    #[inline(never)] // Each copy of this function would add calls that panic without memory.
    pub(crate) fn record_in(&self, spare: Option<Arc<[u8]>>) -> Arc<[u8]> {
        let usual = match &self.bytes {
            Bytes::Usual(usual) => usual.as_bytes(),
            Bytes::Other(raw, rest) => return raw.as_bytes().iter().chain(rest).copied().collect(),
        };
        if let Some(mut spare) = spare
            && let Some(target) = Arc::get_mut(&mut spare).filter(|target| target.len() == usual.len())
        {
            target.copy_from_slice(usual);
            return spare;
        }
        usual.into()
    }

    /// Returns the whole record without its checksum.
    pub fn record(&self) -> Arc<[u8]> {
        self.record_in(None)
    }

    /// Returns the type of the file; a regular file for an inode that was never in use.
    pub fn kind(&self) -> FileKind {
        FileKind::from_mode(self.mode()).unwrap_or(FileKind::Regular)
    }

    /// Returns `st_mode`.
    pub fn mode(&self) -> u16 {
        self.bytes.raw().i_mode.get()
    }

    /// Sets `st_mode`, including the type.
    pub fn set_mode(&mut self, mode: u16) {
        self.bytes.raw_mut().i_mode.set(mode);
    }

    /// Returns the link count as stored.
    pub fn links(&self) -> u16 {
        self.bytes.raw().i_links_count.get()
    }

    /// Sets the link count.
    pub fn set_links(&mut self, links: u16) {
        self.bytes.raw_mut().i_links_count.set(links);
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        join(self.bytes.raw().i_size_lo.get(), self.bytes.raw().i_size_high.get())
    }

    /// Sets the size. Above 2 GiB the volume needs a feature: `Writer::need_large_file`.
    pub fn set_size(&mut self, size: u64) {
        let (low, high) = split(size);
        self.bytes.raw_mut().i_size_lo.set(low);
        self.bytes.raw_mut().i_size_high.set(high);
    }

    /// Returns the flags.
    pub fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.bytes.raw().i_flags.get())
    }

    /// Sets all flags.
    pub fn set_flags(&mut self, flags: InodeFlags) {
        self.bytes.raw_mut().i_flags.set(flags.bits());
    }

    /// Returns whether all of `flags` are set.
    pub fn has(&self, flags: InodeFlags) -> bool {
        self.flags().contains(flags)
    }

    /// Sets some flags.
    pub fn insert_flags(&mut self, flags: InodeFlags) {
        self.set_flags(self.flags() | flags);
    }

    /// Clears some flags.
    pub fn remove_flags(&mut self, flags: InodeFlags) {
        self.set_flags(self.flags().difference(flags));
    }

    /// Returns owner and group.
    pub fn owner(&self) -> (u32, u32) {
        let raw = self.bytes.raw();
        let wide = |low: u16, high: u16| u32::from(low) | u32::from(high) << 16;
        (wide(raw.i_uid.get(), raw.l_i_uid_high.get()), wide(raw.i_gid.get(), raw.l_i_gid_high.get()))
    }

    /// Sets owner and group.
    pub fn set_owner(&mut self, uid: u32, gid: u32) {
        let halves = |id: u32| {
            let [a, b, c, d] = id.to_le_bytes();
            (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]))
        };
        let ((uid, uid_high), (gid, gid_high)) = (halves(uid), halves(gid));
        self.bytes.raw_mut().i_uid.set(uid);
        self.bytes.raw_mut().l_i_uid_high.set(uid_high);
        self.bytes.raw_mut().i_gid.set(gid);
        self.bytes.raw_mut().l_i_gid_high.set(gid_high);
    }

    /// Returns the generation.
    pub fn generation(&self) -> u32 {
        self.bytes.raw().i_generation.get()
    }

    /// Sets the generation, which must precede the use of its checksum seed.
    pub fn set_generation(&mut self, generation: u32) {
        self.bytes.raw_mut().i_generation.set(generation);
        let ino = u32::try_from(self.ino.0).unwrap_or(0);
        self.seed = inode_seed(self.format.checksum_seed, ino, generation);
    }

    /// Returns the seed of the checksums of this file's blocks.
    pub fn checksum_seed(&self) -> u32 {
        self.seed
    }

    /// Sets `i_dtime`: the time of deletion, or the next orphan.
    pub fn set_dtime(&mut self, dtime: u32) {
        self.bytes.raw_mut().i_dtime.set(dtime);
    }

    /// Sets the block of extended attributes, 0 for none. Fails with `OutOfRange` past 48 bits.
    pub fn set_file_acl(&mut self, block: VolBlock) -> Result<()> {
        let (low, high) = split(block.0);
        let high = u16::try_from(high).map_err(|_| Error::OutOfRange)?;
        self.bytes.raw_mut().i_file_acl_lo.set(low);
        self.bytes.raw_mut().l_i_file_acl_high.set(high);
        Ok(())
    }

    /// Returns the allocated space in units of 512 bytes.
    pub fn sectors(&self) -> u64 {
        sectors_of(self.format, self.bytes.raw())
    }

    /// Sets the allocated space in units of 512 bytes. Fails with `FileTooBig` for more than the volume's features
    /// can count.
    pub fn set_sectors(&mut self, sectors: u64) -> Result<()> {
        let huge = self.format.has_huge_files;
        let per_block = u64::from(self.format.block_size.sectors());
        let (count, in_blocks) = match sectors >> 32 {
            0 => (sectors, false),
            _ if !huge => return Err(Error::FileTooBig),
            high if high <= 0xffff => (sectors, false),
            _ => (sectors.checked_div(per_block).unwrap_or(0), true),
        };
        let (low, high) = split(count);
        let high = u16::try_from(high).map_err(|_| Error::FileTooBig)?;
        self.bytes.raw_mut().i_blocks_lo.set(low);
        self.bytes.raw_mut().l_i_blocks_high.set(high);
        let flags = self.flags();
        self.set_flags(if in_blocks {
            flags | InodeFlags::HUGE_FILE
        } else {
            flags.difference(InodeFlags::HUGE_FILE)
        });
        Ok(())
    }

    /// Adds `blocks` blocks to the allocated space. Fails with `FileTooBig`.
    pub fn add_blocks(&mut self, blocks: u64) -> Result<()> {
        let per_block = u64::from(self.format.block_size.sectors());
        let more = blocks.checked_mul(per_block).ok_or(Error::FileTooBig)?;
        self.set_sectors(self.sectors().checked_add(more).ok_or(Error::FileTooBig)?)
    }

    /// Subtracts `blocks` blocks from the allocated space.
    pub fn remove_blocks(&mut self, blocks: u64) {
        let per_block = u64::from(self.format.block_size.sectors());
        let left = self.sectors().saturating_sub(blocks.saturating_mul(per_block));
        // A smaller number always fits.
        let _ = self.set_sectors(left);
    }

    /// Returns `i_block` for a change: block map, extent tree, link target or inline data.
    pub fn i_block_mut(&mut self) -> &mut [u8; 60] {
        &mut self.bytes.raw_mut().i_block
    }

    /// Returns the byte offset of [`Self::xattr_bytes`] in the record, or `None` if there is no space for attributes.
    pub fn xattr_offset(&self) -> Option<u16> {
        let start = GOOD_OLD_SIZE.saturating_add(self.extra()?.i_extra_isize.get());
        let room = self.format.inode_size.checked_sub(start)?;
        (room > 4).then_some(start)
    }

    /// Returns the space for attributes after the fields, including the magic number. It may be empty.
    pub fn xattr_bytes(&self) -> &[u8] {
        let start = self.xattr_offset().map(|start| usize::from(start.saturating_sub(GOOD_OLD_SIZE)));
        start.and_then(|start| self.bytes.rest().get(start..)).unwrap_or_default()
    }

    /// Returns [`Self::xattr_bytes`] for a change.
    pub fn xattr_bytes_mut(&mut self) -> &mut [u8] {
        let start = self.xattr_offset().map(|start| usize::from(start.saturating_sub(GOOD_OLD_SIZE)));
        start.and_then(|start| self.bytes.rest_mut().get_mut(start..)).unwrap_or_default()
    }

    /// Sets the project for quotas. Fails with `NotSupported` if the inode has no space for it.
    pub fn set_project(&mut self, project: u32) -> Result<()> {
        self.extra_to(0xa0).ok_or(Error::NotSupported)?.i_projid.set(project);
        Ok(())
    }

    /// Returns a timestamp.
    pub fn time(&self, time: Time) -> Timestamp {
        let raw = self.bytes.raw();
        let reach = self.extra().map_or(0, |extra| extra.i_extra_isize.get());
        let field = |end: usize, get: fn(&RawInodeExtra) -> u32| {
            self.extra().filter(|_| reaches(reach, end)).map(get)
        };
        let (secs, extra) = match time {
            Time::Access => (raw.i_atime.get(), field(0x90, |e| e.i_atime_extra.get())),
            Time::Modify => (raw.i_mtime.get(), field(0x8c, |e| e.i_mtime_extra.get())),
            Time::Change => (raw.i_ctime.get(), field(0x88, |e| e.i_ctime_extra.get())),
            Time::Birth => {
                (field(0x94, |e| e.i_crtime.get()).unwrap_or(0), field(0x98, |e| e.i_crtime_extra.get()))
            }
        };
        crate::inode::timestamp(secs, extra)
    }

    /// Sets a timestamp, truncated to the granularity. A time that the inode cannot store becomes the nearest
    /// possible one. Source: Linux `fs/ext4/ext4.h` `EXT4_EXTRA_TIMESTAMP_MAX`; `fs/inode.c` `timestamp_truncate`.
    pub fn stamp(&mut self, time: Time, to: Timestamp) {
        let end = match time {
            Time::Access => 0x90,
            Time::Modify => 0x8c,
            Time::Change => 0x88,
            Time::Birth => 0x98,
        };
        let wide = self.extra_to(end).is_some();
        let (secs, extra) = encode_nearest_time(to, wide);
        match time {
            Time::Access => self.bytes.raw_mut().i_atime.set(secs),
            Time::Modify => self.bytes.raw_mut().i_mtime.set(secs),
            Time::Change => self.bytes.raw_mut().i_ctime.set(secs),
            Time::Birth => {}
        }
        if let Some(fields) = self.extra_to(end) {
            match time {
                Time::Access => fields.i_atime_extra.set(extra),
                Time::Modify => fields.i_mtime_extra.set(extra),
                Time::Change => fields.i_ctime_extra.set(extra),
                Time::Birth => {
                    fields.i_crtime.set(secs);
                    fields.i_crtime_extra.set(extra);
                }
            }
        }
    }

    /// Records a change of the attributes: change time and counter.
    pub fn touch(&mut self, now: Timestamp) {
        let version = match self.version() {
            // The counter was never set: `Attr::change` was derived from the change time.
            0 if self.extra_to(0x9c).is_some() => crate::inode::nanoseconds(self.time(Time::Change)),
            version => version,
        };
        self.set_version(version.saturating_add(1));
        self.stamp(Time::Change, now);
    }

    /// Records a change of the data, or of a directory's names.
    pub fn touch_data(&mut self, now: Timestamp) {
        self.touch(now);
        self.stamp(Time::Modify, now);
    }

    /// Records a change of the data that was made at `moment`. The attributes may have changed since then.
    pub fn touch_data_delayed(&mut self, moment: Timestamp) {
        self.touch(moment.max(self.time(Time::Change)));
        self.stamp(Time::Modify, moment);
    }

    /// Sets the hash of the attribute value in this inode: all 32 bits of its access time, whatever time they
    /// represent.
    pub fn set_value_hash(&mut self, hash: u32) {
        self.stamp(Time::Access, Timestamp::new(hash.into(), 0));
        self.bytes.raw_mut().i_atime.set(hash);
    }

    /// Returns `i_version`: the change counter, or the low half of the reference count of an attribute value.
    pub fn version(&self) -> u64 {
        let high = self.extra().filter(|extra| reaches(extra.i_extra_isize.get(), 0x9c));
        join(self.bytes.raw().l_i_version.get(), high.map_or(0, |extra| extra.i_version_hi.get()))
    }

    /// Sets `i_version`, truncated to the space that the inode has for it.
    pub fn set_version(&mut self, version: u64) {
        let (low, high) = split(version);
        self.bytes.raw_mut().l_i_version.set(low);
        if let Some(extra) = self.extra_to(0x9c) {
            extra.i_version_hi.set(high);
        }
    }

    /// Sets the number of bytes after the first 128 that contain fields, in an inode that has space for them.
    pub(super) fn set_extra_isize(&mut self, extra_isize: u16) {
        if let Some(extra) = self.extra_mut() {
            extra.i_extra_isize.set(extra_isize);
        }
    }
}

impl core::fmt::Debug for InodeEdit {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "InodeEdit({}, {:?})", self.ino, self.bytes.raw())
    }
}
