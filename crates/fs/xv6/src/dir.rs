//! Directories: names in buckets by their hash.
//!
//! Layout: the blocks of a directory are buckets in levels. Level `n` has 2^n of them, the first at block 2^n - 1, and a
//! name lies in bucket `hash mod 2^n` of some level. A name goes to the first level whose bucket has room, and where none
//! has, a level is added: a full bucket is no end. Buckets that were never used are holes. A bucket is 64 slots of 64
//! bytes; an entry takes as many in a row as it needs.
//! Invariant: an entry never moves, so that its place is a cookie that holds whatever comes and goes around it.
//!
//! Source: the multi-level hash table of F2FS (Linux `Documentation/filesystems/f2fs.rst`, "Directory Structure"), where
//! Bento has one level; entries are those of xv6, with longer names.

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::{FromBytes as _, IntoBytes as _, to_u64, to_usize};
use obento_base::{Corrupt, Error, FileKind, Ino, Name, NameBuf, Result};
use obento_driver::Cookie;

use crate::inode::Inode;
use crate::op::Op;
use crate::raw::{BLOCK, RawDirEntry, SLOT};

/// The longest name in bytes, as Linux has it.
pub(crate) const NAME_MAX: usize = 255;
/// Levels whose buckets a file can hold.
const LEVELS: u32 = 20;
const _: () = assert!((1 << 20) - 1 <= crate::map::FILE_BLOCKS);
/// Slots a bucket.
const SLOTS: usize = BLOCK / SLOT;

/// An entry that was found.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) ino: Ino,
    pub(crate) kind: FileKind,
    pub(crate) name: NameBuf,
    /// Its bucket in the directory, and on the volume.
    pub(crate) at: u64,
    block: u32,
    /// Its slots.
    slots: Range<usize>,
}

impl Entry {
    /// Its first slot.
    pub(crate) fn start(&self) -> usize {
        self.slots.start
    }

    /// Where a listing goes on after it.
    pub(crate) fn next(&self) -> Cookie {
        let before = self.at.saturating_mul(to_u64(SLOTS));
        Cookie(before.saturating_add(to_u64(self.slots.end)))
    }
}

/// Slots that an entry of a name takes.
fn slots_of(name_len: usize) -> usize {
    name_len.saturating_add(size_of::<RawDirEntry>()).div_ceil(SLOT)
}

fn bytes_of(slots: &Range<usize>) -> Range<usize> {
    slots.start.saturating_mul(SLOT)..slots.end.saturating_mul(SLOT)
}

/// Levels that a directory has.
fn levels(dir: &Inode) -> u32 {
    let blocks = dir.raw.size.get() / 4096;
    blocks.saturating_add(1).ilog2().min(LEVELS)
}

/// The block of the bucket of level `level` for names of this hash.
pub(crate) fn bucket(level: u32, hash: u32) -> u64 {
    let buckets = 1_u64.checked_shl(level).unwrap_or(u64::MAX);
    let mask = buckets.saturating_sub(1);
    mask.saturating_add(u64::from(hash) & mask)
}

impl Op<'_> {
    /// FNV-1a, begun with the volume's seed, its high bits mixed in.
    pub(crate) fn hash(&self, name: &Name) -> u32 {
        let start = self.sb().raw.hash_seed.get() ^ 0x811c_9dc5;
        let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        let hash = name.as_bytes().iter().fold(start, step);
        hash ^ hash >> 15
    }

    /// The entries of the bucket at block `at`; damage is an error among them and ends the bucket. Errors: Corrupt;
    /// those of the device.
    pub(crate) fn entries(&self, dir: &Inode, at: u64) -> Result<Vec<Result<Entry>>> {
        let mut found = Vec::new();
        let (Some(block), _) = self.walk(dir, at)? else { return Ok(found) };
        let bytes = self.get(block)?;
        let mut slot = 0;
        while slot < SLOTS {
            match decode(&bytes, slot) {
                Ok(None) => slot = slot.saturating_add(1),
                Ok(Some((ino, kind, name))) => {
                    let end = slot.saturating_add(slots_of(name.as_bytes().len()));
                    found.push(Ok(Entry { ino, kind, name, at, block, slots: slot..end }));
                    slot = end;
                }
                Err(NotAnEntry) => {
                    let (dir, block, offset) = (dir.ino, block.into(), offset_of(slot));
                    found.push(Err(Corrupt::EntryName { dir, block, offset }.into()));
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Looks a name up. Errors: NotDirectory; Corrupt; those of the device.
    pub(crate) fn find(&self, dir: &Inode, name: &Name) -> Result<Option<Entry>> {
        dir.expect_dir()?;
        let (hash, mut damage) = (self.hash(name), None);
        for level in 0..levels(dir) {
            for entry in self.entries(dir, bucket(level, hash))? {
                match entry {
                    Ok(entry) if *entry.name == *name => return Ok(Some(entry)),
                    Ok(_) => {}
                    Err(error) => damage = Some(error),
                }
            }
        }
        // It may have stood where the damage is.
        damage.map_or(Ok(None), Err)
    }

    /// Names an inode; nothing has this name. Errors: NoSpace; Corrupt; those of the device.
    pub(crate) fn insert(&mut self, dir: &mut Inode, name: &Name, target: &Inode) -> Result<()> {
        let (hash, len) = (self.hash(name), slots_of(name.as_bytes().len()));
        for level in 0..LEVELS {
            let at = bucket(level, hash);
            let Some(start) = self.find_room(dir, at, len)? else { continue };
            let (block, _) = self.fill(dir, at)?;
            let blocks = bucket(level.saturating_add(1), 0);
            dir.raw.size.set(dir.raw.size.get().max(blocks.saturating_mul(to_u64(BLOCK))));
            let slots = start..start.saturating_add(len);
            let bytes = self.edit(block)?.get_mut(bytes_of(&slots)).unwrap_or_default();
            let raw = RawDirEntry {
                inum: u32::try_from(target.ino.0).unwrap_or(0).into(),
                name_len: u8::try_from(name.as_bytes().len()).unwrap_or(u8::MAX),
                kind: kind_byte(target.kind),
                reserved: 0.into(),
            };
            let entry = raw.as_bytes().iter().chain(name.as_bytes());
            bytes.iter_mut().zip(entry).for_each(|(to, from)| *to = *from);
            return Ok(());
        }
        Err(Error::NoSpace)
    }

    /// The first of `len` free slots in a row in a bucket, which may be a hole. One that is damaged has none.
    fn find_room(&self, dir: &Inode, at: u64, len: usize) -> Result<Option<usize>> {
        let mut free = 0;
        for entry in self.entries(dir, at)? {
            let Ok(entry) = entry else { return Ok(None) };
            if entry.slots.start.saturating_sub(free) >= len {
                return Ok(Some(free));
            }
            free = entry.slots.end;
        }
        Ok((SLOTS.saturating_sub(free) >= len).then_some(free))
    }

    /// Takes an entry out; a bucket that is empty then becomes a hole. Errors: those of the device.
    pub(crate) fn remove_entry(&mut self, dir: &mut Inode, entry: &Entry) -> Result<()> {
        let bytes = self.edit(entry.block)?;
        bytes.get_mut(bytes_of(&entry.slots)).unwrap_or_default().fill(0);
        if bytes.iter().all(|&byte| byte == 0) {
            self.cut(dir, entry.at..entry.at.saturating_add(1))?;
        }
        Ok(())
    }

    /// Lets a name lead to another inode. Errors: those of the device.
    pub(crate) fn retarget(&mut self, entry: &Entry, target: &Inode) -> Result<()> {
        let number = u32::try_from(target.ino.0).unwrap_or(0).to_le_bytes();
        let bytes = self.edit(entry.block)?.get_mut(bytes_of(&entry.slots)).unwrap_or_default();
        // `inum`, the length of the name, `kind`.
        bytes.iter_mut().zip(number).for_each(|(to, from)| *to = from);
        bytes.iter_mut().skip(5).take(1).for_each(|kind| *kind = kind_byte(target.kind));
        Ok(())
    }

    /// The buckets from block `from` on that are there. Errors: Corrupt; those of the device.
    pub(crate) fn next_bucket(&self, dir: &Inode, from: u64) -> Result<Option<u64>> {
        let (mut at, end) = (from, bucket(levels(dir), 0));
        while at < end {
            match self.walk(dir, at)? {
                (Some(_), _) => return Ok(Some(at)),
                (None, reach) => at = at.saturating_add(reach),
            }
        }
        Ok(None)
    }

    /// Errors: NotEmpty; Corrupt; those of the device.
    pub(crate) fn expect_empty(&self, dir: &Inode) -> Result<()> {
        let mut from = 0;
        while let Some(at) = self.next_bucket(dir, from)? {
            if self.entries(dir, at)?.into_iter().next().transpose()?.is_some() {
                return Err(Error::NotEmpty);
            }
            from = at.saturating_add(1);
        }
        Ok(())
    }
}

/// Where a cookie leads: a bucket, and the first slot in it that was not listed.
pub(crate) fn place(cookie: Cookie) -> (u64, usize) {
    (cookie.0 >> 6, to_usize(cookie.0 & 63))
}
const _: () = assert!(SLOTS == 64);

fn offset_of(slot: usize) -> u32 {
    u32::try_from(slot.saturating_mul(SLOT)).unwrap_or(u32::MAX)
}

fn kind_byte(kind: FileKind) -> u8 {
    u8::try_from(kind.mode_bits() >> 12).unwrap_or(0)
}

/// What stands where an entry should.
struct NotAnEntry;

/// The entry at `slot`, if one starts there.
fn decode(bytes: &[u8], slot: usize) -> Result<Option<(Ino, FileKind, NameBuf)>, NotAnEntry> {
    let rest = bytes.get(slot.saturating_mul(SLOT)..).unwrap_or_default();
    let (raw, names) = RawDirEntry::read_from_prefix(rest).map_err(|_| NotAnEntry)?;
    if raw.inum.get() == 0 {
        return Ok(None);
    }
    let name = names.get(..raw.name_len.into()).and_then(|name| NameBuf::new(name.to_vec()).ok());
    let kind = FileKind::from_mode(u16::from(raw.kind) << 12);
    match (name, kind) {
        (Some(name), Some(kind)) => Ok(Some((Ino(raw.inum.get().into()), kind, name))),
        _ => Err(NotAnEntry),
    }
}
