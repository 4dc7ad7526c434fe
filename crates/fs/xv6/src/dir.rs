//! Directories: names in buckets, selected by hash.
//!
//! Layout: the blocks of a directory are buckets in levels. Level `n` has 2^n buckets, the first at block
//! 2^n - 1, and a name is in bucket `hash mod 2^n` of some level. A name goes to the first level whose
//! bucket has room; if none has, a level is added. Unused buckets are holes. A bucket has 64 slots of 64
//! bytes; an entry occupies as many consecutive slots as it needs.
//! Invariant: an entry never moves, so its position is a cookie that stays valid when other entries are
//! created or removed.
//!
//! Source: the multi-level hash table of F2FS (Linux `Documentation/filesystems/f2fs.rst`, "Directory
//! Structure"), where Bento has one level; entries are those of xv6, with longer names.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::{FromBytes as _, IntoBytes as _, to_u64};
use obento_base::{Corrupt, Error, FileKind, Ino, Name, NameBuf, Result};
use obento_driver::Cookie;
use obento_inodes::{Batch, Directories, Map as _};

use crate::inode::{Inode, LockedInode};
use crate::map::Op;
use crate::raw::{BLOCK, RawDirEntry, SLOT};
use crate::super_block::SuperBlock;

/// Maximum length of a name in bytes, as in Linux.
pub(crate) const NAME_MAX: usize = 255;
/// Maximum number of levels in a file.
const LEVELS: u32 = 20;
const _: () = assert!((1 << 20) - 1 <= crate::map::FILE_BLOCKS);
/// Slots per bucket.
const SLOTS: usize = BLOCK / SLOT;
/// Cookies per bucket.
const COOKIES: u64 = to_u64(SLOTS);

/// A found entry.
type Entry = obento_inodes::Entry<Place>;

/// The position of an entry.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its bucket: block in the directory, block on the volume.
    at: u64,
    block: u32,
    /// Its slots.
    slots: Range<usize>,
}

/// Returns the number of slots for a name of this length.
fn slots_of(name_len: usize) -> usize {
    name_len.saturating_add(size_of::<RawDirEntry>()).div_ceil(SLOT)
}

fn bytes_of(slots: &Range<usize>) -> Range<usize> {
    slots.start.saturating_mul(SLOT)..slots.end.saturating_mul(SLOT)
}

/// Returns the number of levels of a directory.
fn levels(dir: &Inode) -> u32 {
    let blocks = dir.attr.size / 4096;
    blocks.saturating_add(1).ilog2().min(LEVELS)
}

/// Returns the block of the bucket of level `level` for this hash.
fn bucket(level: u32, hash: u32) -> u64 {
    let buckets = 1_u64.checked_shl(level).unwrap_or(u64::MAX);
    let mask = buckets.saturating_sub(1);
    mask.saturating_add(u64::from(hash) & mask)
}

impl Directories for SuperBlock {
    type Place = Place;

    fn find(&self, op: &Op<'_>, dir: &Inode, name: &Name) -> Result<Option<Entry>> {
        let (hash, mut damage) = (self.hash(name), None);
        for level in 0..levels(dir) {
            for entry in self.entries(op, dir, bucket(level, hash))? {
                match entry {
                    Ok(entry) if *entry.name == *name => return Ok(Some(entry)),
                    Ok(_) => {}
                    Err(error) => damage = Some(error),
                }
            }
        }
        // The name may have been in the damaged part.
        damage.map_or(Ok(None), Err)
    }

    /// Lists a bucket; the cookie identifies it and the first slot that was not listed.
    fn list(&self, op: &Op<'_>, dir: &Inode, from: Cookie) -> Result<Option<Batch<Place>>> {
        let (mut at, end) = (from.0 / COOKIES, bucket(levels(dir), 0));
        while at < end {
            match self.walk(op, dir, at)? {
                (Some(_), _) => {
                    let mut entries = self.entries(op, dir, at)?;
                    entries.retain(|entry| entry.as_ref().map_or(true, |entry| entry.next > from));
                    return Ok(Some((entries, cookie(at, SLOTS))));
                }
                (None, reach) => at = at.saturating_add(reach),
            }
        }
        Ok(None)
    }

    fn insert(&self, op: &mut Op<'_>, dir: &mut LockedInode<'_>, name: &Name, target: &Inode) -> Result<()> {
        let (hash, len) = (self.hash(name), slots_of(name.as_bytes().len()));
        for level in 0..LEVELS {
            let at = bucket(level, hash);
            let Some(start) = self.find_room(op, dir, at, len)? else { continue };
            let (block, _) = self.fill(op, dir, at)?;
            let blocks = bucket(level.saturating_add(1), 0);
            dir.grow_to(blocks.saturating_mul(to_u64(BLOCK)));
            let slots = start..start.saturating_add(len);
            let bytes = op.edit(block)?.get_mut(bytes_of(&slots)).unwrap_or_default();
            let raw = RawDirEntry {
                inum: number(target).into(),
                name_len: u8::try_from(name.as_bytes().len()).unwrap_or(u8::MAX),
                kind: kind_byte(target.attr.kind),
                reserved: 0.into(),
            };
            let entry = raw.as_bytes().iter().chain(name.as_bytes());
            bytes.iter_mut().zip(entry).for_each(|(to, from)| *to = *from);
            return Ok(());
        }
        Err(Error::NoSpace)
    }

    /// Removes an entry. An empty bucket becomes a hole.
    fn remove(&self, op: &mut Op<'_>, dir: &mut LockedInode<'_>, entry: &Entry) -> Result<()> {
        let Place { at, block, slots } = &entry.place;
        let bytes = op.edit(*block)?;
        bytes.get_mut(bytes_of(slots)).unwrap_or_default().fill(0);
        if bytes.iter().all(|&byte| byte == 0) {
            self.cut(op, dir, *at..at.saturating_add(1))?;
        }
        Ok(())
    }

    fn retarget(&self, op: &mut Op<'_>, entry: &Entry, target: &Inode) -> Result<()> {
        let bytes = op.edit(entry.place.block)?.get_mut(bytes_of(&entry.place.slots)).unwrap_or_default();
        if let Ok((raw, _)) = RawDirEntry::mut_from_prefix(bytes) {
            raw.inum.set(number(target));
            raw.kind = kind_byte(target.attr.kind);
        }
        Ok(())
    }

    fn misplaced(&self, _: &Inode, entry: &Entry) -> Option<(&'static str, String)> {
        let level = entry.place.at.saturating_add(1).ilog2();
        let is_right = bucket(level, self.hash(&entry.name)) == entry.place.at;
        (!is_right).then(|| ("bucket", "in the wrong hash bucket".to_string()))
    }
}

impl SuperBlock {
    /// Returns the FNV-1a hash, started with the seed of the volume, with its high bits mixed in.
    fn hash(&self, name: &Name) -> u32 {
        let start = self.raw.hash_seed.get() ^ 0x811c_9dc5;
        let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        let hash = name.as_bytes().iter().fold(start, step);
        hash ^ hash >> 15
    }

    /// Returns the entries of the bucket at block `at`. Damage appears as an error among them and ends the
    /// bucket. Fails with `Corrupt`, and with the errors of the device.
    fn entries(&self, op: &Op<'_>, dir: &Inode, at: u64) -> Result<Vec<Result<Entry>>> {
        let mut found = Vec::new();
        let (Some(block), _) = self.walk(op, dir, at)? else { return Ok(found) };
        let bytes = op.get(block)?;
        let mut slot = 0;
        while slot < SLOTS {
            match decode(&bytes, slot) {
                Ok(None) => slot = slot.saturating_add(1),
                Ok(Some((ino, kind, name))) => {
                    let slots = slot..slot.saturating_add(slots_of(name.as_bytes().len()));
                    slot = slots.end;
                    let (next, place) = (cookie(at, slots.end), Place { at, block, slots });
                    found.push(Ok(Entry { ino, kind: Some(kind), name, next, place }));
                }
                Err(NotAnEntry) => {
                    let offset = u32::try_from(slot.saturating_mul(SLOT)).unwrap_or(u32::MAX);
                    found
                        .push(Err(Corrupt::EntryName { dir: dir.ino(), block: block.into(), offset }.into()));
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Returns the first of `len` consecutive free slots in a bucket, which may be a hole. A damaged bucket
    /// has none.
    fn find_room(&self, op: &Op<'_>, dir: &Inode, at: u64, len: usize) -> Result<Option<usize>> {
        let mut free = 0;
        for entry in self.entries(op, dir, at)? {
            let Ok(Entry { place, .. }) = entry else { return Ok(None) };
            if place.slots.start.saturating_sub(free) >= len {
                return Ok(Some(free));
            }
            free = place.slots.end;
        }
        Ok((SLOTS.saturating_sub(free) >= len).then_some(free))
    }
}

/// Returns the cookie for slot `slot` of the bucket at block `at`.
fn cookie(at: u64, slot: usize) -> Cookie {
    Cookie(at.saturating_mul(COOKIES).saturating_add(to_u64(slot)))
}

/// Returns the number of an inode in the form of an entry.
fn number(inode: &Inode) -> u32 {
    u32::try_from(inode.ino().0).unwrap_or(0)
}

fn kind_byte(kind: FileKind) -> u8 {
    u8::try_from(kind.mode_bits() >> 12).unwrap_or(0)
}

/// The bytes are not a valid entry.
struct NotAnEntry;

/// Decodes the entry at `slot`, if one starts there.
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
