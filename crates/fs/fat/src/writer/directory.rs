//! Adding and removing directory entries.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::{FromZeros as _, IntoBytes as _};
use obento_base::{Error, Name, Result};
use obento_block::BlockDevice as _;
use obento_clusters::sectors::zero;
use obento_clusters::{At, Commit as _, DirWrite, Entries, InodeWrite, Locked, ROOT, Volume as _};

use super::{GRAIN, Writer};
use crate::dir::{Directory, Location, MAX_SLOTS, Place, hash};
use crate::inode::Kind;
use crate::name::{Basis, ShortName, check, parts, to_units};
use crate::raw::RawEntry;
use crate::unit::{Cluster, ENTRY_LEN, Slot};
use crate::volume::Volume;

/// The first byte of a free entry.
const FREE: u8 = 0xe5;

/// Free entries in a directory.
struct FreeSpace {
    /// The first entry.
    start: u32,
    /// Short names in use; `None` if the directory has an index.
    taken: Option<BTreeSet<ShortName>>,
}

impl FreeSpace {
    fn is_taken(&self, volume: &Volume, dir: &Directory, short: ShortName) -> bool {
        match &self.taken {
            Some(taken) => taken.contains(&short),
            None => volume.with_index(dir, |index| index.has(short)).unwrap_or(true),
        }
    }
}

impl Entries<Volume> for Writer {
    fn add(&mut self, dir: &DirWrite<'_, Volume>, name: &Name, raw: RawEntry) -> Result<Location> {
        let volume = dir.volume();
        let units = to_units(name.as_bytes())?;
        check(&units)?;
        let basis = Basis::new(&units, volume.options().code_page);
        let long = if basis.case().is_some() { 0 } else { crate::name::parts_for(units.len()) };
        let count = u32::try_from(long).unwrap_or(u32::MAX).saturating_add(1);
        let known = dir.current()?;
        let room = self.room(volume, &known, count)?;
        let short = match basis.case() {
            Some(_) => basis.plain(),
            None => basis
                .tails(&units)
                .find(|&short| !room.is_taken(volume, &known, short))
                .ok_or(Error::NoSpace)?,
        };
        let last = room.start.saturating_add(count.saturating_sub(1));
        let dir = match known.slots <= last {
            true => self.grow(dir, last)?,
            false => known,
        };
        let mut bytes = if long == 0 { Vec::new() } else { parts(&units, short) };
        let raw = RawEntry { DIR_Name: short.0, DIR_NTRes: basis.case().unwrap_or(0), ..raw };
        let mut entry = [0; 32];
        entry.copy_from_slice(raw.as_bytes());
        bytes.push(entry);
        let places = (room.start..=last).map(|index| dir.slot(index).ok_or(Error::NoSpace));
        let places: Vec<Slot> = places.collect::<Result<_>>()?;
        if places.iter().any(|&slot| self.waiting.late.contains(slot)) {
            // The disk has other contents there until the end of a commit.
            self.commit(volume)?;
        }
        let per_sector = u64::from(volume.super_block().sector_size) / ENTRY_LEN;
        let sector = |slot: &Slot| slot.0.checked_div(per_sector);
        let mut bytes = bytes.as_slice();
        for part in places.chunk_by(|one, next| sector(one) == sector(next)) {
            let (now, then) = bytes.split_at_checked(part.len()).unwrap_or((bytes, &[]));
            part.first().map_or(Ok(()), |&slot| self.put(volume, slot, now.as_flattened()))?;
            bytes = then;
        }
        let slot = dir.slot(last).ok_or(Error::NoSpace)?;
        if places.iter().any(|&part| !is_written_with(part, slot)) {
            // The short entry is written after the long name, so that it never appears without it.
            self.show_late(volume, slot)?;
        }
        let shown = short.to_units(volume.options().code_page, raw.DIR_NTRes);
        let hashes = [(long > 0).then(|| hash(&units)), Some(hash(&shown))];
        let place = (room.start, last);
        // An index that was just created, because the directory grew, already contains the name.
        let noted = volume.with_index(&dir, |index| match index.has(short) {
            true => Ok(()),
            false => index.add(hashes, place, short),
        });
        if noted.is_some_and(|noted| noted.is_err()) {
            volume.drop_index(dir.ino);
        }
        Ok(Location { start: room.start, index: last, slot })
    }

    fn remove(&mut self, (dir, at): At<'_, Volume>) -> Result<()> {
        let (volume, dir) = (dir.volume(), dir.current()?);
        let (hashes, short) = (volume.hashes_at(&dir, at.index)?, volume.entry(at.slot)?.name());
        volume.with_index(&dir, |index| index.remove(hashes, (at.start, at.index), short));
        for index in at.start..=at.index {
            let slot = dir.slot(index).ok_or(Error::Stale)?;
            if !is_written_with(slot, at.slot) && !self.waiting.late.contains(slot) {
                // The long name stays until the short entry is removed.
                let shown = self.bytes_of(volume, slot)?;
                self.waiting.late.show(slot, shown);
            }
            self.put(volume, slot, &[FREE])?;
        }
        Ok(())
    }

    fn put_over(&mut self, (dir, at): At<'_, Volume>, raw: &RawEntry) -> Result<()> {
        let volume = dir.volume();
        let named = volume.entry(at.slot)?;
        let raw = RawEntry { DIR_Name: named.DIR_Name, DIR_NTRes: named.DIR_NTRes, ..*raw };
        self.put(volume, at.slot, raw.as_bytes())
    }

    fn put_inode(&mut self, inode: &InodeWrite<'_, Volume>) -> Result<()> {
        let volume = inode.volume();
        if inode.ino == ROOT || volume.numbers_mut().set_orphan(inode.ino, inode.entry) {
            return Ok(());
        }
        let (slot, _) = volume.slot_of(inode.ino).ok_or(Error::Stale)?;
        self.put(volume, slot, inode.entry.as_bytes())
    }

    fn is_one_write(one: At<'_, Volume>, other: At<'_, Volume>) -> Result<bool> {
        Ok(is_written_with(one.1.slot, other.1.slot))
    }

    fn can_swap(_: &Location, _: &Location) -> bool {
        true
    }

    fn arrive(&mut self, (dir, at): At<'_, Volume>) -> Result<()> {
        self.show_late(dir.volume(), at.slot)
    }

    fn replace(&mut self, (_, at): At<'_, Volume>, inode: &InodeWrite<'_, Volume>) -> Result<()> {
        let (volume, mut shown) = (inode.volume(), [0; 32]);
        volume.cache().device().read_at(at.slot.offset(), &mut shown)?;
        let mut old = RawEntry::new_zeroed();
        old.as_mut_bytes().copy_from_slice(&shown);
        let width = volume.super_block().width;
        let is_this = old.kind() == Kind::File && old.first(width) == inode.entry.first(width);
        if !is_this || old.first(width).is_some_and(|first| self.waiting.allocator.is_fresh(first)) {
            shown[0] = FREE;
        }
        self.waiting.late.show(at.slot, shown);
        Ok(())
    }

    fn make_directory(&mut self, parent: &DirWrite<'_, Volume>, raw: &mut RawEntry) -> Result<Cluster> {
        let volume = parent.volume();
        let taken = self.take(volume, None, 1)?;
        let Some(&(cluster, _)) = taken.first() else { return Err(Error::NoSpace) };
        let made = self.clear(volume, cluster, 1).and_then(|()| {
            let offset = volume.super_block().offset_of(cluster).ok_or(Error::NoSpace)?;
            let mut bytes = [0; 64];
            let dots = [(ShortName::DOT, Some(cluster)), (ShortName::DOT_DOT, first_of(parent)?)];
            for (target, (name, first)) in bytes.chunks_exact_mut(32).zip(dots) {
                let mut dot = RawEntry { DIR_Name: name.0, ..*raw };
                dot.set_first(first);
                target.copy_from_slice(dot.as_bytes());
            }
            // The cluster is written before it is linked, so that a reachable directory has `.` and `..`.
            volume.cache().device().write_at(offset, &bytes)?;
            self.link(volume, None, &taken)
        });
        match made {
            Ok(()) => {
                raw.set_first(Some(cluster));
                Ok(cluster)
            }
            Err(error) => {
                self.waiting.allocator.give_back_all(&taken);
                Err(error)
            }
        }
    }

    fn free_one(&mut self, volume: &Locked<'_, Volume>, cluster: Cluster) -> Result<()> {
        self.free(volume, &[(cluster, 1)])
    }

    fn set_parent(&mut self, inode: &InodeWrite<'_, Volume>, parent: &DirWrite<'_, Volume>) -> Result<()> {
        let (volume, dir) = (inode.volume(), inode.dir());
        let known = dir.current()?;
        if let Some(slot) = known.slot(1) {
            let mut raw = volume.entry(slot)?;
            if raw.name() == ShortName::DOT_DOT {
                raw.set_first(first_of(parent)?);
                self.put(volume, slot, raw.as_bytes())?;
            }
        }
        Volume::relearn(&dir, Some(Directory { parent: parent.ino(), ..(*known).clone() }))
    }
}

impl Writer {
    /// Finds free entries with the index of a large directory. Returns `None` if it has no index.
    fn room_by_index(
        &mut self,
        volume: &Locked<'_, Volume>,
        dir: &Directory,
        count: u32,
    ) -> Result<Option<FreeSpace>> {
        let known = volume.with_index(dir, |index| (index.used(), index.may_have(count)));
        let Some((used, may_have)) = known else { return Ok(None) };
        let mut found = None;
        if may_have {
            let mut start = 0_u32;
            for index in 0..used {
                if volume.entry(dir.slot(index).ok_or(Error::NoSpace)?)?.kind() != Kind::Free {
                    start = index.saturating_add(1);
                } else if index.saturating_add(1).saturating_sub(start) >= count {
                    found = Some(start);
                    break;
                }
            }
            if found.is_none() {
                volume.with_index(dir, |index| index.has_not(count));
            }
        }
        let start = found.unwrap_or(used);
        let behind = start.saturating_add(count);
        if behind > used && behind < dir.slots {
            self.end_at(volume, dir, behind)?;
        }
        Ok(Some(FreeSpace { start, taken: None }))
    }

    /// Ends the directory at entry `index`, and ignores later entries.
    fn end_at(&mut self, volume: &Locked<'_, Volume>, dir: &Directory, index: u32) -> Result<()> {
        let slot = dir.slot(index).ok_or(Error::NoSpace)?;
        if volume.entry(slot)?.kind() == Kind::End { Ok(()) } else { self.put(volume, slot, &[0; 32]) }
    }

    /// Finds `count` adjacent entries that are free or past the end, and the short names in use.
    fn room(&mut self, volume: &Locked<'_, Volume>, dir: &Directory, count: u32) -> Result<FreeSpace> {
        if let Some(room) = self.room_by_index(volume, dir, count)? {
            return Ok(room);
        }
        let (mut start, mut found, mut end) = (0, None, None);
        let mut taken = BTreeSet::new();
        for index in 0..dir.slots {
            let raw = volume.entry(dir.slot(index).ok_or(Error::NoSpace)?)?;
            let kind = raw.kind();
            match kind {
                Kind::End => {
                    // Entries after the end marker are not valid: the marker moves along.
                    end = Some(index);
                    break;
                }
                Kind::Free => {
                    let len = index.saturating_add(1).saturating_sub(start);
                    if found.is_none() && len >= count {
                        found = Some(start);
                    }
                }
                _ => {
                    start = index.saturating_add(1);
                    if kind == Kind::File {
                        taken.insert(raw.name());
                    }
                }
            }
        }
        if let Some(error) = dir.damage {
            return Err(error);
        }
        let start = found.unwrap_or(start);
        let behind = start.saturating_add(count);
        if end.is_some_and(|end| behind > end && behind < dir.slots) {
            self.end_at(volume, dir, behind)?;
        }
        Ok(FreeSpace { start, taken: Some(taken) })
    }

    /// Extends a directory so that it has space for entry `last`. Fails with `NoSpace`.
    fn grow(&mut self, dir: &DirWrite<'_, Volume>, last: u32) -> Result<Arc<Directory>> {
        let (volume, known) = (dir.volume(), dir.current()?);
        let Place::Runs { runs, per_cluster, .. } = &known.place else { return Err(Error::NoSpace) };
        if last >= MAX_SLOTS {
            return Err(Error::NoSpace);
        }
        let missing = last.saturating_add(1).saturating_sub(known.slots).div_ceil((*per_cluster).max(1));
        let after = runs.last().map(|run| run.last());
        let taken = self.take(volume, after, missing)?;
        for &(start, len) in &taken {
            if let Err(error) = self.clear(volume, start, len) {
                self.waiting.allocator.give_back_all(&taken);
                return Err(error);
            }
        }
        self.link(volume, after, &taken)?;
        let first = runs.first().map(|run| run.start).ok_or(Error::NoSpace)?;
        Volume::relearn(dir, Some(volume.load(known.ino, known.parent, first)?))?;
        dir.current()
    }

    /// Zeroes clusters of a directory, on the device and in memory.
    fn clear(&mut self, volume: &Locked<'_, Volume>, start: Cluster, len: u32) -> Result<()> {
        let sb = volume.super_block();
        let offset = sb.offset_of(start).ok_or(Error::NoSpace)?;
        let end = offset.saturating_add(u64::from(len).saturating_mul(sb.cluster_size.into()));
        zero(volume.cache().device(), offset..end)?;
        let size = u64::from(sb.sector_size);
        for number in offset.checked_div(size).unwrap_or(0)..end.checked_div(size).unwrap_or(0) {
            volume.cache().forget(number);
        }
        (self.waiting.directory_grew, self.waiting.data_written) = (true, true);
        Ok(())
    }

    /// Delays the entry at `slot`, which came from another place, until that place is written.
    fn show_late(&mut self, volume: &Locked<'_, Volume>, slot: Slot) -> Result<()> {
        let mut shown = self.bytes_of(volume, slot)?;
        shown[0] = FREE;
        self.waiting.late.show(slot, shown);
        Ok(())
    }

    fn bytes_of(&self, volume: &Volume, slot: Slot) -> Result<[u8; 32]> {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(volume.entry(slot)?.as_bytes());
        Ok(bytes)
    }
}

/// Returns whether both entries are always written together.
fn is_written_with(one: Slot, other: Slot) -> bool {
    one.offset() / GRAIN == other.offset() / GRAIN
}

/// Returns the cluster in the `..` entry of a directory in `parent`: none if the parent is the root.
fn first_of(parent: &DirWrite<'_, Volume>) -> Result<Option<Cluster>> {
    if parent.ino() == ROOT {
        return Ok(None);
    }
    let volume = parent.volume();
    Ok(volume.inode(parent.ino())?.entry.first(volume.super_block().width))
}
