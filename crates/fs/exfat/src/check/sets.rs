//! One set: its entries, its name, its lengths and its clusters.

use alloc::vec::Vec;

use obento_base::wire::{FromBytes as _, IntoBytes as _, le};
use obento_base::{Ino, Result};
use obento_clusters::Cluster;

use super::chain::{Owner, Walk, claim};
use super::edit::{self, Edit};
use super::issue::Issue;
use super::tree::{Context, Pending};
use super::{Look, View};
use crate::dir::Scan;
use crate::inode::Attributes;
use crate::name::{Folded, is_valid, to_bytes};
use crate::raw::{RawEntry, RawSecondary, kind};
use crate::set::{ALLOCATION, EntrySet, Flaw, NO_FAT_CHAIN};
use crate::table::LAST;

const UNDERSCORE: u16 = 0x5f;

/// A set that is looked at, and whether something of it is mended already in this look.
struct Subject<'a, 'd> {
    view: &'a View,
    context: &'a mut Context<'d>,
    index: u32,
    ino: u64,
    set: EntrySet,
    is_told: bool,
}

impl Subject<'_, '_> {
    /// Tells an issue, which `change` mends; and what else is to be done.
    fn found(
        &mut self,
        issue: Issue,
        change: impl FnOnce(&mut EntrySet),
        more: Vec<Edit>,
        look: &mut Look<'_>,
    ) {
        let is_mended = look.mending != obento_driver::Mending::Nothing;
        if is_mended && self.is_told {
            look.is_damaged = true;
            return;
        }
        let mut set = self.set.clone();
        change(&mut set);
        let mut edits = edit::put(self.context.dir, self.index, &set.entries());
        edits.extend(more);
        self.is_told = true;
        look.found(issue, edits);
    }
}

/// Looks at the set that begins at `index` with `entries`; answers how many entries it takes, and the directory that it is.
pub fn check(
    view: &View,
    context: &mut Context<'_>,
    index: u32,
    entries: &[RawEntry],
    look: &mut Look<'_>,
) -> Result<(u32, Option<Pending>)> {
    let Some(slot) = context.dir.slot(index) else { return Ok((1, None)) };
    let (ino, dir) = (slot.ino().0, context.dir.ino.0);
    let (set, sum) = match EntrySet::parse(entries) {
        Ok(set) => (set, None),
        Err(Flaw::Checksum { found, expected }) => match EntrySet::parse(&summed(entries)) {
            Ok(set) => (set, Some((found, expected))),
            Err(flaw) => return Ok((drop_set(view, context, index, flaw, look), None)),
        },
        Err(flaw) => return Ok((drop_set(view, context, index, flaw, look), None)),
    };
    let count = set.count();
    let mut subject = Subject { view, context, index, ino, set, is_told: false };
    if let Some((found, expected)) = sum {
        let (found, expected) = (found.into(), expected.into());
        subject.found(Issue::SetChecksum { ino, dir, found, expected }, |_| {}, Vec::new(), look);
    }
    subject.name(look)?;
    let walk = subject.clusters(look)?;
    subject.others(look)?;
    look.report.inodes.0 = look.report.inodes.0.saturating_add(1);
    let is_dir = subject.set.attributes().contains(Attributes::DIRECTORY);
    let pending = walk.filter(|_| is_dir).map(|walk| Pending { ino: Ino(ino), runs: walk.runs });
    Ok((count, pending))
}

/// The entries with the checksum that they should have.
fn summed(entries: &[RawEntry]) -> Vec<RawEntry> {
    let sum = crate::set::checksum(entries.iter());
    let mut entries = entries.to_vec();
    if let Some([low, high]) = entries.first_mut().and_then(|first| first.rest.get_mut(1..3)) {
        [*low, *high] = sum.to_le_bytes();
    }
    entries
}

/// Entries that are no set go: the first, and what follows it up to the next that is free or no secondary one. Answers how
/// many they are.
fn drop_set(view: &View, context: &Context<'_>, index: u32, flaw: Flaw, look: &mut Look<'_>) -> u32 {
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

    fn rename(&mut self, issue: Issue, units: &[u16], look: &mut Look<'_>) {
        let hash = self.hash(units);
        self.found(issue, |set| set.rename(units, hash), Vec::new(), look);
    }

    fn name(&mut self, look: &mut Look<'_>) -> Result<()> {
        let units: Vec<u16> = self.set.units().collect();
        let (ino, dir) = (self.ino, self.context.dir.ino.0);
        let name = to_bytes(units.iter().copied());
        let is_dots = units.iter().all(|&unit| unit == 0x2e) && units.len() <= 2;
        if !is_valid(&units) || is_dots {
            let is_bad = |unit: u16| is_dots || !is_valid(&[unit]);
            let better: Vec<u16> =
                units.iter().map(|&unit| if is_bad(unit) { UNDERSCORE } else { unit }).collect();
            self.rename(Issue::EntryName { ino, dir, name }, &better, look);
            return Ok(());
        }
        let (found, expected) = (self.set.stream.NameHash.get(), self.hash(&units));
        if found != expected {
            let change = |set: &mut EntrySet| set.stream.NameHash = le::U16::new(expected);
            let (found, expected) = (found.into(), expected.into());
            self.found(Issue::NameHash { ino, found, expected }, change, Vec::new(), look);
        }
        if self.is_taken(&units)? {
            let another = self.another(&units)?;
            self.rename(Issue::DuplicateName { ino, dir, name }, &another, look);
            return Ok(());
        }
        self.context.names.insert((expected, self.index));
        Ok(())
    }

    /// Whether a set before this one has this name.
    fn is_taken(&self, units: &[u16]) -> Result<bool> {
        let table = &self.view.up_case;
        let folded = Folded::new(units, table);
        for &(_, index) in self.context.names.range((folded.hash(), 0)..=(folded.hash(), u32::MAX)) {
            let mut scan = Scan::new(self.context.dir, &self.view.sb, &self.view.cache, index);
            let Some(Ok((_, raw))) = scan.next_entry() else { continue };
            let entries = summed(&scan.gather(index, raw)?);
            let Ok(other) = EntrySet::parse(&entries) else { continue };
            let other: Vec<u16> = other.units().collect();
            if folded.is(&other, table) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A name as long as `units` that is not taken, by a number at its end.
    fn another(&self, units: &[u16]) -> Result<Vec<u16>> {
        for number in 0_u32..100_000 {
            let digits: Vec<u16> = alloc::format!("~{number}").encode_utf16().collect();
            let digits =
                if digits.len() > units.len() { digits.get(1..).unwrap_or_default() } else { &digits };
            let kept = units.len().saturating_sub(digits.len());
            let name: Vec<u16> = units.iter().take(kept).chain(digits).copied().collect();
            if name.len() == units.len() && !self.is_taken(&name)? {
                return Ok(name);
            }
        }
        Ok(units.to_vec())
    }

    /// The clusters, and what the set says of them.
    fn clusters(&mut self, look: &mut Look<'_>) -> Result<Option<Walk>> {
        let (ino, stream) = (self.ino, self.set.stream);
        let (length, valid) = (stream.DataLength.get(), stream.ValidDataLength.get());
        let cluster = stream.FirstCluster.get();
        let empty = |set: &mut EntrySet| cut(set, 0, 0);
        if length == 0 {
            if cluster != 0 {
                self.found(Issue::StartCluster { ino, cluster, length }, empty, Vec::new(), look);
            } else if self.set.is_contiguous() {
                self.found(Issue::EmptyContiguous { ino }, empty, Vec::new(), look);
            }
            return Ok(None);
        }
        if length > self.view.sb.heap_len() || !self.view.sb.has(Cluster(cluster)) {
            self.found(Issue::StartCluster { ino, cluster, length }, empty, Vec::new(), look);
            return Ok(None);
        }
        let is_contiguous = self.set.is_contiguous();
        let owner = Owner { ino, first: Cluster(cluster), length: Some(length), is_contiguous };
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

    /// What others put behind the name may have clusters, too.
    fn others(&mut self, look: &mut Look<'_>) -> Result<()> {
        let parts = self.set.parts();
        let allocations: Vec<_> = self.set.other_allocations().collect();
        for (first, is_contiguous, length) in allocations {
            let owner = Owner { ino: self.ino, first, length: Some(length), is_contiguous };
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

/// Makes a file `length` bytes long, of which `there` bytes have clusters.
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
