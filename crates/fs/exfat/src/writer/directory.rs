//! Adding and removing entry sets.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes as _, IntoBytes as _, le};
use obento_base::{Error, Name, Result};
use obento_block::BlockDevice as _;
use obento_clusters::sectors::zero;
use obento_clusters::unit::ENTRY;
use obento_clusters::{
    At, Cluster, Commit as _, DirWrite, Entries, InodeWrite, Locked, Piece, ROOT, Slot, Volume as _,
};

use super::Writer;
use crate::dir::{Directory, Location, MAX_SLOTS};
use crate::name::{Folded, LastDots, check, to_units};
use crate::raw::{RawEntry, kind};
use crate::set::EntrySet;
use crate::volume::Volume;

/// A free entry before the end of a directory.
const FREE: [u8; 1] = [kind::FILE & !kind::IN_USE];

impl Entries<Volume> for Writer {
    fn add(&mut self, dir: &DirWrite<'_, Volume>, name: &Name, mut set: EntrySet) -> Result<Location> {
        let volume = dir.volume();
        let units = to_units(name.as_bytes())?;
        let dots = if volume.options().keep_last_dots { LastDots::Keep } else { LastDots::Refuse };
        check(&units, dots)?;
        let hash = Folded::new(&units, volume.up_case()).hash();
        set.rename(&units, hash);
        let entries = set.entries();
        let set = EntrySet::decode(&entries, volume.super_block()).map_err(|_| Error::Invalid)?;
        let known = dir.current()?;
        let start = self.room(volume, &known, set.count())?;
        let end = start.saturating_add(set.count());
        let known = match known.slots < end {
            true => self.grow(dir, end)?,
            false => known,
        };
        self.place(volume, &known, start, &entries)?;
        volume.with_index(&known, |index| {
            index.insert(hash, start);
            index.no_room_before(set.count(), end);
        });
        let slot = known.slot(start).ok_or(Error::NoSpace)?;
        Ok(Location { index: start, slot, set })
    }

    fn remove(&mut self, (dir, at): At<'_, Volume>) -> Result<()> {
        let (volume, dir) = (dir.volume(), dir.current()?);
        let slots = slots_of(&dir, at);
        let first = slots.first().copied().ok_or(Error::Stale)?;
        for &slot in &slots {
            let raw = volume.entry(slot)?;
            // Entries in other sectors than the first one are erased after it.
            if !in_one_sector(volume, &[first, slot]) {
                self.waiting.late.show(slot, bytes_of(&raw));
            }
            self.put(volume, slot, &[raw.EntryType & !kind::IN_USE])?;
        }
        let units: Vec<u16> = at.set.units().collect();
        let hash = Folded::new(&units, volume.up_case()).hash();
        volume.with_index(&dir, |index| index.remove(hash, at.index, at.index));
        Ok(())
    }

    fn put_over(&mut self, (dir, at): At<'_, Volume>, set: &EntrySet) -> Result<()> {
        self.put_head(dir.volume(), &*dir.current()?, at.index, &with_name(set, &at.set).entries())
    }

    fn put_inode(&mut self, inode: &InodeWrite<'_, Volume>) -> Result<()> {
        let volume = inode.volume();
        if inode.ino == ROOT || volume.numbers_mut().set_orphan(inode.ino, inode.entry.clone()) {
            return Ok(());
        }
        let (_, dir, index) = volume.slot_of(inode.ino).ok_or(Error::Stale)?;
        let dir = volume.directory(dir)?;
        self.put_head(volume, &dir, index, &inode.entry.entries())
    }

    fn is_one_write(one: At<'_, Volume>, other: At<'_, Volume>) -> Result<bool> {
        let mut slots = slots_of(&*one.0.current()?, one.1);
        slots.append(&mut slots_of(&*other.0.current()?, other.1));
        Ok(in_one_sector(one.0.volume(), &slots))
    }

    /// Returns whether the files can be exchanged. Vendor entries after a name belong to its file.
    fn can_swap(one: &Location, other: &Location) -> bool {
        one.set.others().is_empty() && other.set.others().is_empty()
    }

    fn arrive(&mut self, (dir, at): At<'_, Volume>) -> Result<()> {
        self.show_late(dir.volume(), &slots_of(&*dir.current()?, at))
    }

    fn replace(&mut self, (dir, at): At<'_, Volume>, _: &InodeWrite<'_, Volume>) -> Result<()> {
        let (volume, slots) = (dir.volume(), slots_of(&*dir.current()?, at));
        let mut on_disk = Vec::new();
        for slot in &slots {
            let mut bytes = [0; 32];
            volume.cache().device().read_at(slot.offset(), &mut bytes)?;
            on_disk.push(RawEntry::read_from_bytes(&bytes).map_err(|_| Error::Stale)?);
        }
        let is_this = EntrySet::decode(&on_disk, volume.super_block()).is_ok_and(|set| {
            let is_fresh = set.first().is_some_and(|first| self.waiting.allocator.is_fresh(first));
            set.rest == at.set.rest && set.first() == at.set.first() && !is_fresh
        });
        if !is_this {
            return self.show_late(volume, &slots);
        }
        for (&slot, raw) in slots.iter().zip(&on_disk) {
            self.waiting.late.show(slot, bytes_of(raw));
        }
        Ok(())
    }

    fn make_directory(&mut self, parent: &DirWrite<'_, Volume>, set: &mut EntrySet) -> Result<Cluster> {
        let volume = parent.volume();
        let taken = self.take(volume, None, 1)?;
        let Some(&(cluster, _)) = taken.first() else { return Err(Error::NoSpace) };
        let made = self.clear(volume, &taken).and_then(|()| self.append(volume, set, &[], &taken));
        if let Err(error) = made {
            self.give_back(volume, &taken);
            return Err(error);
        }
        let len = u64::from(volume.super_block().cluster_size);
        set.stream.DataLength = le::U64::new(len);
        set.stream.ValidDataLength = le::U64::new(len);
        Ok(cluster)
    }

    fn free_one(&mut self, volume: &Locked<'_, Volume>, cluster: Cluster) -> Result<()> {
        self.free(volume, &[(cluster, 1)])
    }

    fn set_parent(&mut self, inode: &InodeWrite<'_, Volume>, parent: &DirWrite<'_, Volume>) -> Result<()> {
        let moved = inode.volume().load(inode.ino, parent.ino(), &inode.entry)?;
        Volume::relearn(&inode.dir(), Some(moved))
    }
}

/// Returns the places of a set.
fn slots_of(dir: &Directory, at: &Location) -> Vec<Slot> {
    let end = at.index.saturating_add(at.set.count());
    (at.index..end).filter_map(|index| dir.slot(index)).collect()
}

/// Returns `set` with the name of `named`.
fn with_name(set: &EntrySet, named: &EntrySet) -> EntrySet {
    let mut file = set.file;
    file.SecondaryCount = named.file.SecondaryCount;
    let mut stream = set.stream;
    (stream.NameLength, stream.NameHash) = (named.stream.NameLength, named.stream.NameHash);
    EntrySet { file, stream, rest: named.rest.clone() }
}

impl Writer {
    /// Finds free entries for a set of `count` entries, in as few sectors as possible. Otherwise finds them past the
    /// end of the directory, which then moves. Fails with `NoSpace`, or with the errors of a directory that cannot be
    /// read.
    fn room(&mut self, volume: &Locked<'_, Volume>, dir: &Directory, count: u32) -> Result<u32> {
        if let Some(error) = dir.damage {
            return Err(error);
        }
        let per_sector = volume.super_block().sector_size / ENTRY;
        let from = volume.with_index(dir, |index| index.room_from(count));
        // Start at the sector boundary, since the free entries may begin before `from`.
        let from = from.saturating_sub(from.checked_rem(per_sector).unwrap_or(0));
        let (mut start, mut end) = (from, dir.slots);
        for index in from..dir.slots {
            let raw = volume.entry(dir.slot(index).ok_or(Error::NoSpace)?)?;
            if raw.EntryType == kind::END {
                end = index;
                break;
            }
            let is_boundary = index.is_multiple_of(per_sector) && count <= per_sector;
            if is_boundary {
                start = start.max(index);
            }
            if raw.EntryType & kind::IN_USE != 0 {
                start = index.saturating_add(1);
            } else if index.saturating_add(1).saturating_sub(start) >= count {
                return Ok(start);
            }
        }
        // Free entries directly before the end may be part of the place.
        let start = start.min(end);
        let left = per_sector.saturating_sub(start.checked_rem(per_sector).unwrap_or(0));
        let start = if count > left { start.saturating_add(left) } else { start };
        if start.saturating_add(count) > MAX_SLOTS {
            return Err(Error::NoSpace);
        }
        for index in end..start.min(dir.slots) {
            self.put(volume, dir.slot(index).ok_or(Error::NoSpace)?, &FREE)?;
        }
        // Entries after the end marker are not valid: the marker moves along.
        let behind = start.saturating_add(count);
        if behind < dir.slots && end < dir.slots {
            let slot = dir.slot(behind).ok_or(Error::NoSpace)?;
            if volume.entry(slot)?.EntryType != kind::END {
                self.put(volume, slot, &[0; 32])?;
            }
        }
        Ok(start)
    }

    /// Writes a set to free entries.
    fn place(
        &mut self,
        volume: &Locked<'_, Volume>,
        dir: &Directory,
        start: u32,
        entries: &[RawEntry],
    ) -> Result<()> {
        let slots: Vec<Slot> = (start..).map_while(|index| dir.slot(index)).take(entries.len()).collect();
        if slots.len() != entries.len() {
            return Err(Error::NoSpace);
        }
        // The first sector of a set in several sectors is written last. So is a set over entries that have other
        // contents on disk until then.
        let is_late = slots.iter().any(|&slot| self.waiting.late.contains(slot));
        if is_late || !in_one_sector(volume, &slots) {
            self.show_late(volume, &slots)?;
        }
        slots.iter().zip(entries).try_for_each(|(&slot, entry)| self.put(volume, slot, entry.as_bytes()))
    }

    /// Extends a directory to `slots` entries. Fails with `NoSpace`.
    fn grow(&mut self, dir: &DirWrite<'_, Volume>, slots: u32) -> Result<Arc<Directory>> {
        let (volume, known) = (dir.volume(), dir.current()?);
        let missing = slots.saturating_sub(known.slots).div_ceil(known.per_cluster.max(1));
        let taken = self.take(volume, known.last(), missing)?;
        if let Err(error) = self.clear(volume, &taken) {
            self.give_back(volume, &taken);
            return Err(error);
        }
        let mut inode = volume.inode(known.ino)?;
        let old: Vec<Piece> = known.runs.iter().map(|run| (run.start, run.len)).collect();
        self.append(volume, &mut inode.entry, &old, &taken)?;
        let clusters = u64::from(known.clusters().saturating_add(missing));
        let len = clusters.saturating_mul(volume.super_block().cluster_size.into());
        inode.entry.stream.DataLength = le::U64::new(len);
        inode.entry.stream.ValidDataLength = le::U64::new(len);
        self.put_inode(&inode)?;
        Volume::relearn(dir, Some(volume.load(known.ino, known.parent, &inode.entry)?))?;
        dir.current()
    }

    /// Zeroes clusters of a directory, on the device and in memory.
    fn clear(&mut self, volume: &Locked<'_, Volume>, pieces: &[Piece]) -> Result<()> {
        let sb = volume.super_block();
        let size = u64::from(sb.sector_size);
        for &(start, len) in pieces {
            let offset = sb.offset_of(start).ok_or(Error::NoSpace)?;
            let end = offset.saturating_add(u64::from(len).saturating_mul(sb.cluster_size.into()));
            zero(volume.cache().device(), offset..end)?;
            for number in offset.checked_div(size).unwrap_or(0)..end.checked_div(size).unwrap_or(0) {
                volume.cache().forget(number);
            }
        }
        (self.waiting.directory_grew, self.waiting.data_written) = (true, true);
        Ok(())
    }

    /// Delays the entries in the first sector of these slots until all other entries are written.
    fn show_late(&mut self, volume: &Locked<'_, Volume>, slots: &[Slot]) -> Result<()> {
        let first = slots.first().copied().ok_or(Error::Stale)?;
        for &slot in slots {
            if in_one_sector(volume, &[first, slot]) || self.waiting.late.contains(slot) {
                let mut shown = bytes_of(&volume.entry(slot)?);
                shown[0] &= !kind::IN_USE;
                self.waiting.late.show(slot, shown);
            }
        }
        Ok(())
    }
}

fn bytes_of(raw: &RawEntry) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(raw.as_bytes());
    bytes
}

/// Returns whether all of these slots are in one sector.
fn in_one_sector(volume: &Volume, slots: &[Slot]) -> bool {
    let size = u64::from(volume.super_block().sector_size);
    let sector = |slot: &Slot| slot.offset().checked_div(size);
    slots.first().is_none_or(|first| slots.iter().all(|slot| sector(slot) == sector(first)))
}
