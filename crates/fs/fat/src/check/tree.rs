//! Checking every directory from the root on: its entries, their names, and the chains that they refer to.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use hashbrown::HashSet;
use obento_base::wire::{FromBytes as _, FromZeros as _, IntoBytes as _, to_usize};
use obento_base::{Error, Result};
use obento_clusters::{Bits, Entry, ROOT, skip_zeros};

use super::chain::{self, ClusterOwners, Named};
use super::edit::Edit;
use super::issue::Issue;
use super::long::{Fault, Gathering};
use super::names::{NO_SHORT_NAME, Names};
use super::pass::Pass;
use super::view::View;
use crate::dir::MAX_SLOTS;
use crate::inode::{Attributes, Kind, LONG_NAME};
use crate::name::ShortName;
use crate::raw::{RawEntry, RawLongEntry};
use crate::super_block::Root;
use crate::unit::{Cluster, ENTRY, ENTRY_LEN};

/// The granularity in which directories are searched for holes.
const PAGE: u64 = 4 << 10;

/// Entries with their byte offsets.
pub type Slots = Vec<(u64, RawEntry)>;

/// A directory to check.
#[derive(Clone, Copy)]
pub struct Pending {
    ino: u64,
    /// Its first cluster; `None` for the root of FAT12 and FAT16.
    first: Option<Cluster>,
    clusters: u32,
    /// The first cluster to which its `..` must refer.
    parent: u32,
}

/// Checks all directories. Fails with `NoMemory`, or if the device fails.
pub fn check(view: &View, pass: &mut Pass<'_>) -> Result<ClusterOwners> {
    let mut state = ClusterOwners { owned: Bits::default(), tails: HashSet::new(), is_damaged: false };
    let root = root(view, &mut state, pass)?;
    let mut todo = vec![root];
    while let Some(dir) = todo.pop() {
        pass.report.directories = pass.report.directories.saturating_add(1);
        pass.report.inodes.0 = pass.report.inodes.0.saturating_add(1);
        let below = directory(view, &mut state, &dir, pass)?;
        todo.try_reserve(below.len()).map_err(|_| Error::NoMemory)?;
        todo.extend(below.into_iter().rev());
        pass.progress("directories", pass.report.blocks.0, view.sb.clusters.into());
    }
    Ok(state)
}

fn root(view: &View, state: &mut ClusterOwners, pass: &mut Pass<'_>) -> Result<Pending> {
    let (first, clusters) = match view.sb.root {
        Root::Region { .. } => (None, 0),
        Root::Chain(first) => (Some(first), chain::claim_root(view, state, first, pass)?),
    };
    pass.report.blocks.0 = clusters.into();
    Ok(Pending { ino: ROOT.0, first, clusters, parent: 0 })
}

/// Returns the entries of the root directory up to the end of the valid part of its chain.
pub fn root_slots(view: &View) -> Result<Slots> {
    let mut root = gathered(view, &whole_root(view))?;
    root.add_holes()?;
    Ok(root.slots)
}

/// Returns the first `count` entries of the root directory, or some more.
pub fn first_slots(view: &View, count: usize) -> Result<Slots> {
    let mut root = whole_root(view);
    root.clusters = u32::try_from(count.div_ceil(to_usize((view.sb.cluster_size / ENTRY).max(1).into())))
        .unwrap_or(u32::MAX);
    let mut slots = slots(view, &root)?;
    slots.truncate(count);
    Ok(slots)
}

fn whole_root(view: &View) -> Pending {
    let first = match view.sb.root {
        Root::Region { .. } => None,
        Root::Chain(first) => Some(first),
    };
    Pending { ino: ROOT.0, first, clusters: u32::MAX, parent: 0 }
}

/// Returns the entries of all types in a directory. If a hole of the image is at its end, only the first entry in the hole
/// is included.
fn slots(view: &View, dir: &Pending) -> Result<Slots> {
    gathered(view, dir).map(|gathered| gathered.slots)
}

fn gathered<'v>(view: &'v View, dir: &Pending) -> Result<Gathered<'v>> {
    let mut slots = Gathered { view, slots: Vec::new(), holes: Vec::new() };
    if let Root::Region { start, len } = view.sb.root
        && dir.first.is_none()
    {
        slots.add(start..start.saturating_add(len))?;
        return Ok(slots);
    }
    let mut table = view.table();
    let mut next = dir.first;
    let most = MAX_SLOTS.checked_div(view.sb.cluster_size / ENTRY).unwrap_or(1).max(1);
    for _ in 0..dir.clusters.min(most) {
        let Some((cluster, start)) = next.and_then(|next| Some((next, view.sb.offset_of(next)?))) else {
            break;
        };
        slots.add(start..start.saturating_add(view.sb.cluster_size.into()))?;
        next = match view.entry(&mut table, cluster)? {
            Entry::Next(next) => Some(next),
            _ => None,
        };
    }
    Ok(slots)
}

/// The entries of a directory while they are read.
struct Gathered<'v> {
    view: &'v View,
    slots: Slots,
    /// Holes after the entries. They matter only if other entries follow.
    holes: Vec<Range<u64>>,
}

impl Gathered<'_> {
    /// Adds the entries in the holes.
    fn add_holes(&mut self) -> Result<()> {
        for hole in core::mem::take(&mut self.holes) {
            let places = hole.step_by(to_usize(ENTRY_LEN));
            self.slots.try_reserve(places.size_hint().0).map_err(|_| Error::NoMemory)?;
            self.slots.extend(places.map(|at| (at, RawEntry::new_zeroed())));
        }
        Ok(())
    }

    /// Adds the entries in `range`.
    fn add(&mut self, range: Range<u64>) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let entry: [u8; 32] = self.view.bytes(at)?;
            let is_checked = (at == range.start || at.is_multiple_of(PAGE)) && !self.slots.is_empty();
            if is_checked && entry == [0; 32] {
                let end = skip_zeros(&**self.view.device(), at..range.end, ENTRY_LEN);
                if end > at {
                    if self.holes.is_empty() {
                        self.slots.push((at, RawEntry::new_zeroed()));
                        at = at.saturating_add(ENTRY_LEN);
                    }
                    self.holes.push(at..end);
                    at = end;
                    continue;
                }
            }
            self.add_holes()?;
            let raw = RawEntry::read_from_bytes(&entry).map_err(|_| Error::Invalid)?;
            self.slots.try_reserve(1).map_err(|_| Error::NoMemory)?;
            self.slots.push((at, raw));
            at = at.saturating_add(ENTRY_LEN);
        }
        Ok(())
    }
}

/// Checks one directory. Returns the directories in it.
fn directory(
    view: &View,
    state: &mut ClusterOwners,
    dir: &Pending,
    pass: &mut Pass<'_>,
) -> Result<Vec<Pending>> {
    let mut slots = slots(view, dir)?;
    hidden(&slots, dir, pass);
    let is_root = dir.ino == ROOT.0;
    if !is_root {
        dots(&mut slots, dir, pass, view);
    }
    let skipped = if is_root { 0 } else { 2 };
    let mut names = Names::new(&slots)?;
    let (mut gathering, mut below) = (Gathering::default(), Vec::new());
    for (index, (offset, raw)) in (0_u32..).zip(&slots).skip(skipped) {
        match raw.kind() {
            Kind::Free | Kind::End => {
                let fault = gathering.drop_name();
                reported(dir.ino, fault, pass);
            }
            Kind::LongName => long_part(dir.ino, raw, (index, *offset), &mut gathering, pass),
            kind => {
                let (parts, long, fault) = match gathering.end(raw.name()) {
                    Ok((parts, long)) => (parts.into_iter().map(|(_, offset)| offset).collect(), long, None),
                    Err(fault) => (Vec::new(), None, Some(fault)),
                };
                reported(dir.ino, fault, pass);
                let named = Named { raw, offset: *offset, parts };
                // Except at the start of a directory, such an entry refers to another directory and does not own its
                // clusters.
                if kind == Kind::Dots && raw.attributes().contains(Attributes::DIRECTORY) {
                    let (ino, name) = (named.ino(), raw.DIR_Name.to_vec());
                    pass.found(Issue::EntryName { ino, dir: dir.ino, name }, named.remove());
                    continue;
                }
                if kind != Kind::Label {
                    names.check(dir.ino, &named, long.as_deref(), pass)?;
                    pass.report.inodes.0 = pass.report.inodes.0.saturating_add(1);
                }
                below.extend(entry(view, state, dir, &named, pass)?);
            }
        }
    }
    reported(dir.ino, gathering.drop_name(), pass);
    // Directories are counted when they are checked.
    let count = u64::try_from(below.len()).unwrap_or(0);
    pass.report.inodes.0 = pass.report.inodes.0.saturating_sub(count);
    Ok(below)
}

/// Reports entries after the end marker, which most systems ignore, and which were in use once.
fn hidden(slots: &Slots, dir: &Pending, pass: &mut Pass<'_>) {
    let is_end = |raw: &RawEntry| raw.kind() == Kind::End;
    let last = slots.iter().rposition(|(_, raw)| !matches!(raw.kind(), Kind::End | Kind::Free));
    let first = slots.iter().position(|(_, raw)| is_end(raw));
    if let (Some(last), Some(first)) = (last, first)
        && first < last
    {
        let between = slots.iter().take(last).filter(|(_, raw)| is_end(raw));
        let edits = between.map(|(offset, _)| Edit::write(*offset, &[0xe5])).collect();
        let index = u32::try_from(first).unwrap_or(u32::MAX);
        pass.found(Issue::HiddenEntries { dir: dir.ino, index }, edits);
    }
}

/// Reports the error of a long name, which is repaired by removing its parts.
fn reported(dir: u64, fault: Option<Fault>, pass: &mut Pass<'_>) {
    let Some(fault) = fault else { return };
    let (Fault::Orphaned(parts) | Fault::Broken(parts, _)) = &fault;
    let index = parts.first().map_or(0, |&(index, _)| index);
    let edits = parts.iter().map(|&(_, offset)| Edit::write(offset, &[0xe5])).collect();
    let issue = match fault {
        Fault::Orphaned(_) => Issue::OrphanedLongName { dir, index },
        Fault::Broken(_, why) => Issue::LongName { dir, index, why },
    };
    pass.found(issue, edits);
}

fn long_part(dir: u64, raw: &RawEntry, place: (u32, u64), gathering: &mut Gathering, pass: &mut Pass<'_>) {
    let Ok(part) = RawLongEntry::read_from_bytes(raw.as_bytes()) else { return };
    let fault = gathering.push(&part, place);
    if fault.is_some() {
        return reported(dir, fault, pass);
    }
    let (index, offset) = place;
    let attr = u32::from(part.LDIR_Attr);
    if part.LDIR_Attr != LONG_NAME {
        let edits = vec![Edit::write(offset.saturating_add(0xb), &[LONG_NAME])];
        pass.found(
            Issue::LongNameField { dir, index, field: "LDIR_Attr", found: attr, expected: LONG_NAME.into() },
            edits,
        );
    }
    let fields = [
        ("LDIR_Type", u32::from(part.LDIR_Type), 0xc, &[0][..]),
        ("LDIR_FstClusLO", u32::from(part.LDIR_FstClusLO.get()), 0x1a, &[0, 0][..]),
    ];
    for (field, found, at, zeros) in fields {
        if found != 0 {
            let edits = vec![Edit::write(offset.saturating_add(at), zeros)];
            pass.found(Issue::LongNameField { dir, index, field, found, expected: 0 }, edits);
        }
    }
}

/// Checks the entry of a file or directory. Returns the directory, if it is one.
fn entry(
    view: &View,
    state: &mut ClusterOwners,
    dir: &Pending,
    named: &Named<'_>,
    pass: &mut Pass<'_>,
) -> Result<Option<Pending>> {
    let is_dir = named.raw.attributes().contains(Attributes::DIRECTORY);
    let found = named.raw.DIR_FileSize.get();
    if is_dir && found != 0 {
        let edits = vec![Edit::write(named.offset.saturating_add(0x1c), &[0; 4])];
        pass.found(Issue::DirectorySize { ino: named.ino(), found }, edits);
    }
    let clusters = chain::claim(view, state, named, pass)?;
    pass.report.blocks.0 = pass.report.blocks.0.saturating_add(clusters.into());
    let first = named.raw.first(view.sb.width).filter(|_| is_dir && clusters > 0);
    let parent = if dir.ino == ROOT.0 { 0 } else { dir.first.map_or(0, |first| first.0) };
    Ok(first.map(|first| Pending { ino: named.offset / ENTRY_LEN, first: Some(first), clusters, parent }))
}

/// Checks the first two entries of a directory.
fn dots(slots: &mut Slots, dir: &Pending, pass: &mut Pass<'_>, view: &View) {
    let itself = dir.first.map_or(0, |first| first.0);
    let expected = [(ShortName::DOT, ".", itself), (ShortName::DOT_DOT, "..", dir.parent)];
    for (index, (short, name, expected)) in expected.into_iter().enumerate() {
        let Some(&(offset, raw)) = slots.get(index) else { return };
        let first = raw.first(view.sb.width).map_or(0, |first| first.0);
        let is_dir = raw.attributes().contains(Attributes::DIRECTORY);
        let is_free = matches!(raw.kind(), Kind::Free | Kind::End);
        let is_marked = raw.name() == short && raw.DIR_NTRes & NO_SHORT_NAME != 0;
        if raw.name() == short && is_dir && first == expected && !is_marked {
            continue;
        }
        let mut dot = RawEntry::new_zeroed();
        if raw.name() == short {
            dot = raw;
        }
        (dot.DIR_Name, dot.DIR_Attr) = (short.0, Attributes::DIRECTORY.bits());
        dot.DIR_NTRes &= !NO_SHORT_NAME;
        dot.set_first((expected != 0).then_some(Cluster(expected)));
        let mut edits = vec![Edit::write(offset, dot.as_bytes())];
        if is_marked && is_dir && first == expected {
            pass.found(Issue::DotFlag { dir: dir.ino, name }, edits);
        } else if is_free || raw.name() == short {
            pass.found(Issue::DotEntry { dir: dir.ino, name, found: first, expected }, edits);
        } else {
            // The entry there moves to a free entry. If there is no free entry, its clusters become lost clusters.
            let free = slots.iter_mut().skip(2).find(|(_, raw)| matches!(raw.kind(), Kind::Free | Kind::End));
            if let Some((place, slot)) = free
                && raw.kind() == Kind::File
            {
                edits.push(Edit::write(*place, raw.as_bytes()));
                *slot = raw;
            }
            pass.found(Issue::DotPlace { dir: dir.ino, name }, edits);
        }
    }
}
