//! Checking one set: its entries, its name, its lengths and its clusters.

use alloc::vec::Vec;

use obento_base::wire::{FromBytes as _, IntoBytes as _, le, to_usize};
use obento_base::{FileKind, Ino, Result};
use obento_clusters::{Cluster, Entry, FileEntry as _, Links as _};

use super::chain::{Owner, Walk, claim, is_free_run, is_whole};
use super::edit::{self, Edit};
use super::issue::Issue;
use super::names::Among;
use super::tree::{Context, Pending};
use super::{Claims, Pass, View};
use crate::dir::Scan;
use crate::inode::Attributes;
use crate::name::{Folded, is_valid, to_bytes};
use crate::raw::{RawEntry, RawSecondary, kind};
use crate::set::{ALLOCATION, EntrySet, Flaw, NO_FAT_CHAIN, SET_MAX};
use crate::table::LAST;

const UNDERSCORE: u16 = 0x5f;

/// The set that is checked, and whether an issue of it is already repaired in this pass.
struct Subject<'a, 'd> {
    view: &'a View,
    context: &'a mut Context<'d>,
    index: u32,
    ino: u64,
    set: EntrySet,
    /// Number of its entries on the volume.
    room: u32,
    is_reported: bool,
}

impl Subject<'_, '_> {
    /// Reports an issue, which `change` repairs together with further edits.
    fn found(
        &mut self,
        issue: Issue,
        change: impl FnOnce(&mut EntrySet),
        more: Vec<Edit>,
        look: &mut Pass<'_>,
    ) {
        let is_repaired = look.repair_mode != obento_driver::RepairMode::Nothing;
        if is_repaired && self.is_reported {
            look.is_damaged = true;
            return;
        }
        let mut set = self.set.clone();
        change(&mut set);
        let dir = self.context.dir;
        let mut edits = edit::put(dir, self.index, &set.entries());
        // A set that became shorter leaves entries to free.
        for index in set.count()..self.room {
            let unused = RawEntry { EntryType: kind::NAME, rest: [0; 31] };
            let slot = dir.slot(self.index.saturating_add(index));
            edits.extend(slot.map(|slot| edit::free(slot, &unused)));
        }
        edits.extend(more);
        self.is_reported = true;
        look.found(issue, edits);
    }
}

/// Checks the set that begins at `index` with `entries`. Returns the number of its entries, and the directory, if it
/// is one.
pub fn check(
    view: &View,
    context: &mut Context<'_>,
    index: u32,
    entries: &[RawEntry],
    look: &mut Pass<'_>,
) -> Result<(u32, Option<Pending>)> {
    let Some(slot) = context.dir.slot(index) else { return Ok((1, None)) };
    let (ino, dir) = (slot.ino().0, context.dir.ino.0);
    let (set, flaw) = match EntrySet::parse(entries) {
        Ok(set) => (Some(set), None),
        Err(flaw @ Flaw::Checksum { .. }) => match EntrySet::parse(&summed(entries)) {
            Ok(set) => (Some(set), Some(flaw)),
            Err(flaw) => (None, Some(flaw)),
        },
        Err(flaw) => (None, Some(flaw)),
    };
    let (set, room) = match set {
        Some(set) => (Some(set.clone()), set.count()),
        None => rescued(view, context, index)?,
    };
    let Some(set) = set else {
        let flaw = flaw.unwrap_or(Flaw::Cut);
        return Ok((drop_set(view, context, index, flaw, look), None));
    };
    let mut subject = Subject { view, context, index, ino, set, room, is_reported: false };
    match flaw {
        Some(Flaw::Checksum { found, expected }) => {
            let (found, expected) = (found.into(), expected.into());
            subject.found(Issue::SetChecksum { ino, dir, found, expected }, |_| {}, Vec::new(), look);
        }
        Some(flaw) => {
            let (field, ..) = flaw.field();
            subject.found(Issue::EntrySet { ino, dir, field }, |_| {}, Vec::new(), look);
        }
        None => {}
    }
    subject.name(look)?;
    let walk = subject.clusters(look)?;
    subject.others(look)?;
    look.report.inodes.0 = look.report.inodes.0.saturating_add(1);
    let is_dir = subject.set.attributes().contains(Attributes::DIRECTORY);
    let pending = walk.filter(|_| is_dir).map(|walk| Pending { ino: Ino(ino), runs: walk.runs });
    Ok((room, pending))
}

/// Returns the entries with a correct checksum.
pub fn summed(entries: &[RawEntry]) -> Vec<RawEntry> {
    let sum = crate::set::checksum(entries.iter());
    let mut entries = entries.to_vec();
    if let Some([low, high]) = entries.first_mut().and_then(|first| first.rest.get_mut(1..3)) {
        [*low, *high] = sum.to_le_bytes();
    }
    entries
}

/// Returns the present entries of the set that begins at `index`, and the number of its entries. Fails if the device
/// fails.
fn rescued(view: &View, context: &Context<'_>, index: u32) -> Result<(Option<EntrySet>, u32)> {
    let mut scan = Scan::new(context.dir, &view.sb, &view.cache, index);
    let mut entries = Vec::new();
    while let Some(found) = scan.next_entry().filter(|_| entries.len() < to_usize(SET_MAX.into())) {
        entries.push(found?.1);
    }
    let is_secondary = |raw: &&RawEntry| raw.EntryType & (kind::IN_USE | kind::SECONDARY) == 0xc0;
    let run = entries.iter().skip(1).take_while(is_secondary).count().saturating_add(1);
    let room = |set: &EntrySet| set.parts().saturating_add(2).max(run);
    // Wrong types are accepted within the entries that the name needs: the hash of the name confirms it, or a single
    // bit is wrong.
    if let Some(set) = EntrySet::by_place(entries.get(..run).unwrap_or_default())
        .or_else(|| EntrySet::by_place(&entries).filter(|set| set.parts().saturating_add(2) > run))
    {
        let hash = Folded::new(&set.units().collect::<Vec<_>>(), &view.up_case).hash();
        let room = u32::try_from(room(&set)).unwrap_or(u32::MAX);
        let kinds = set.entries().into_iter().zip(&entries).take(set.parts().saturating_add(2));
        let wrong = kinds.map(|(right, found)| (right.EntryType ^ found.EntryType).count_ones()).sum::<u32>();
        if set.stream.NameHash.get() == hash || wrong == 1 {
            return Ok((Some(set), room));
        }
    }
    let run = entries.get(..run).unwrap_or_default();
    Ok((EntrySet::rescue(run), u32::try_from(run.len()).unwrap_or(0)))
}

/// Removes entries that do not form a set: the first one, and the following ones up to the next free or primary one.
/// Returns their number.
fn drop_set(view: &View, context: &Context<'_>, index: u32, flaw: Flaw, look: &mut Pass<'_>) -> u32 {
    let dir = context.dir;
    let mut scan = Scan::new(dir, &view.sb, &view.cache, index);
    let (mut edits, mut count) = (Vec::new(), 0_u32);
    while let Some(Ok((at, raw))) = scan.next_entry() {
        let is_secondary = raw.EntryType & (kind::IN_USE | kind::SECONDARY) == 0xc0;
        let Some(slot) = dir.slot(at).filter(|_| count == 0 || is_secondary) else { break };
        edits.push(edit::free(slot, &raw));
        count = count.saturating_add(1);
    }
    let ino = dir.slot(index).map_or(0, |slot| slot.ino().0);
    let (field, ..) = flaw.field();
    look.found(Issue::EntrySet { ino, dir: dir.ino.0, field }, edits);
    count
}

impl Subject<'_, '_> {
    fn hash(&self, units: &[u16]) -> u16 {
        Folded::new(units, &self.view.up_case).hash()
    }

    /// Reports an issue that is repaired by another name, similar to `units`.
    fn rename(&mut self, issue: Issue, units: &[u16], look: &mut Pass<'_>) -> Result<()> {
        let name = self.context.names.another(self.view, self.context.dir, self.index, units)?;
        let hash = self.hash(&name);
        self.found(issue, |set| set.rename(&name, hash), Vec::new(), look);
        Ok(())
    }

    fn name(&mut self, look: &mut Pass<'_>) -> Result<()> {
        let units: Vec<u16> = self.set.units().collect();
        let (ino, dir) = (self.ino, self.context.dir.ino.0);
        let stored = self.set.stored_units();
        if stored.len() != units.len() && !stored.is_empty() {
            self.length(&units, &stored, look);
            return Ok(());
        }
        let name = to_bytes(units.iter().copied());
        let is_dots = units.iter().all(|&unit| unit == 0x2e) && units.len() <= 2;
        if !is_valid(&units) || is_dots {
            let is_bad = |unit: u16| is_dots || !is_valid(&[unit]);
            let better: Vec<u16> =
                units.iter().map(|&unit| if is_bad(unit) { UNDERSCORE } else { unit }).collect();
            return self.rename(Issue::EntryName { ino, dir, name }, &better, look);
        }
        let (found, expected) = (self.set.stream.NameHash.get(), self.hash(&units));
        if found != expected {
            let change = |set: &mut EntrySet| set.stream.NameHash = le::U16::new(expected);
            let (found, expected) = (found.into(), expected.into());
            self.found(Issue::NameHash { ino, found, expected }, change, Vec::new(), look);
        }
        if self.context.names.has(self.view, self.context.dir, &units, Among::Before(self.index))? {
            self.rename(Issue::DuplicateName { ino, dir, name }, &units, look)?;
        }
        Ok(())
    }

    /// Handles a name whose length differs from its entries. The hash decides which one is right; if it matches
    /// neither, the entries are right.
    fn length(&mut self, units: &[u16], stored: &[u16], look: &mut Pass<'_>) {
        let hash = self.set.stream.NameHash.get();
        let by_length = is_valid(units) && self.hash(units) == hash;
        let name = if by_length { units } else { stored };
        let len = |units: &[u16]| u8::try_from(units.len()).unwrap_or(u8::MAX);
        let issue = Issue::NameLength { ino: self.ino, found: len(units), expected: len(stored) };
        self.found(issue, |set| set.rename(name, hash), Vec::new(), look);
    }

    /// Checks the clusters, and the fields of the set about them.
    fn clusters(&mut self, look: &mut Pass<'_>) -> Result<Option<Walk>> {
        let (ino, stream) = (self.ino, self.set.stream);
        let (length, valid) = (stream.DataLength.get(), stream.ValidDataLength.get());
        let cluster = stream.FirstCluster.get();
        self.flags(look);
        let empty = |set: &mut EntrySet| cut(set, 0, 0);
        if length == 0 {
            if cluster != 0 {
                self.found(Issue::StartCluster { ino, cluster, length }, empty, Vec::new(), look);
            } else if self.set.is_contiguous() {
                self.found(Issue::EmptyContiguous { ino }, empty, Vec::new(), look);
            } else if valid > 0 {
                self.found(Issue::ValidLength { ino, found: valid, expected: 0 }, empty, Vec::new(), look);
            }
            return Ok(None);
        }
        let heap = self.view.sb.heap_len();
        if length > heap && (1..=heap).contains(&valid) && self.view.sb.has(Cluster(cluster)) {
            let change = |set: &mut EntrySet| set.stream.DataLength = le::U64::new(valid);
            self.found(Issue::Length { ino, found: length, expected: valid }, change, Vec::new(), look);
            let mut repaired = self.set.clone();
            repaired.stream.DataLength = le::U64::new(valid);
            self.set = repaired;
            return self.clusters(look);
        }
        if length > heap || !self.view.sb.has(Cluster(cluster)) {
            self.found(Issue::StartCluster { ino, cluster, length }, empty, Vec::new(), look);
            return Ok(None);
        }
        let is_contiguous = self.arrange(look)?;
        let kind = self.set.file_kind();
        let owner = Owner { ino, first: Cluster(cluster), length: Some(length), is_contiguous, kind };
        let walk = claim(self.view, owner, look)?;
        let size = u64::from(self.view.sb.cluster_size);
        let there = u64::from(walk.count).saturating_mul(size);
        if let Some(issue) = walk.issue.clone() {
            let last = walk.last().filter(|_| !is_contiguous);
            let edits = last.map(|last| Edit::Link(last, LAST)).into_iter().collect();
            self.found(issue, |set| cut(set, length.min(there), there), edits, look);
        }
        if valid > length {
            let change = |set: &mut EntrySet| set.stream.ValidDataLength = le::U64::new(length);
            self.found(Issue::ValidLength { ino, found: valid, expected: length }, change, Vec::new(), look);
        }
        let is_dir = self.set.attributes().contains(Attributes::DIRECTORY);
        if is_dir && length != there && walk.issue.is_none() {
            let change = |set: &mut EntrySet| {
                set.stream.DataLength = le::U64::new(there);
                set.stream.ValidDataLength = le::U64::new(there);
            };
            let issue = Issue::DirectoryLength { ino, found: length, expected: there };
            self.found(issue, change, Vec::new(), look);
        }
        Ok(Some(walk))
    }

    /// Checks the flags of a stream: whether it may have clusters, and whether the FAT chains them. Linux compares
    /// all bits, so no others may be set.
    fn flags(&mut self, look: &mut Pass<'_>) {
        let found = self.set.stream.GeneralSecondaryFlags;
        let expected = found & NO_FAT_CHAIN | ALLOCATION;
        if found != expected {
            let issue = Issue::StreamFlags { ino: self.ino, found, expected };
            self.found(issue, |set| set.stream.GeneralSecondaryFlags = expected, Vec::new(), look);
        }
    }

    /// Returns whether the clusters are contiguous. The flag is not believed if only the opposite fits the FAT and
    /// the bitmap.
    fn arrange(&mut self, look: &mut Pass<'_>) -> Result<bool> {
        let (view, ino, says) = (self.view, self.ino, self.set.is_contiguous());
        let first = Cluster(self.set.stream.FirstCluster.get());
        let count = view.sb.clusters_for(self.set.stream.DataLength.get());
        let entry = view.table().entry(first)?;
        let is_next = entry == Entry::Next(Cluster(first.0.saturating_add(1)));
        let may_be_wrong = match says {
            true => matches!(entry, Entry::Next(_)) && !is_next,
            // If clusters have two owners, a run may consist of clusters of other files.
            false => entry == Entry::Free && count > 1 && look.claims == Claims::AsMet,
        };
        if !may_be_wrong || view.bitmap.is_empty() {
            return Ok(says);
        }
        let run = is_free_run(view, look, first, count) && view.used.has_all(first, count);
        let (why, flag) = match says {
            true if !run && is_whole(view, look, first, count)? => {
                ("it is marked as contiguous, but its chain in the FAT is not", 0)
            }
            false if run => ("it is not marked as contiguous, but the FAT has no chain for it", NO_FAT_CHAIN),
            _ => return Ok(says),
        };
        let change = |set: &mut EntrySet| {
            set.stream.GeneralSecondaryFlags = ALLOCATION | flag;
        };
        self.found(Issue::Arrangement { ino, why }, change, Vec::new(), look);
        Ok(!says)
    }

    /// Checks the clusters of vendor entries.
    fn others(&mut self, look: &mut Pass<'_>) -> Result<()> {
        let parts = self.set.parts();
        let allocations: Vec<_> = self.set.other_allocations().collect();
        for (first, is_contiguous, length) in allocations {
            let kind = FileKind::Regular;
            let owner = Owner { ino: self.ino, first, length: Some(length), is_contiguous, kind };
            let walk = claim(self.view, owner, look)?;
            let Some(issue) = walk.issue.clone() else { continue };
            let change = |set: &mut EntrySet| {
                for entry in set.rest.iter_mut().skip(parts) {
                    let Some(mut raw) = RawSecondary::read_from_bytes(entry.as_bytes())
                        .ok()
                        .filter(|raw| raw.FirstCluster.get() == first.0)
                    else {
                        continue;
                    };
                    raw.FirstCluster = le::U32::new(0);
                    raw.DataLength = le::U64::new(0);
                    raw.GeneralSecondaryFlags &= !NO_FAT_CHAIN;
                    entry.as_mut_bytes().iter_mut().zip(raw.as_bytes()).for_each(|(to, from)| *to = *from);
                }
            };
            self.found(issue, change, Vec::new(), look);
        }
        Ok(())
    }
}

/// Sets the length of a file to `length`. `there` bytes of it have clusters.
fn cut(set: &mut EntrySet, length: u64, there: u64) {
    let is_dir = set.attributes().contains(Attributes::DIRECTORY);
    let length = if is_dir { there } else { length };
    let stream = &mut set.stream;
    stream.DataLength = le::U64::new(length);
    let valid = if is_dir { length } else { stream.ValidDataLength.get().min(length) };
    stream.ValidDataLength = le::U64::new(valid);
    if length == 0 {
        stream.FirstCluster = le::U32::new(0);
        stream.GeneralSecondaryFlags = ALLOCATION;
    }
}
