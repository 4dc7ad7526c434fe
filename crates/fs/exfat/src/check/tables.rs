//! The chain of the root directory, the entry of the bitmap, and the up-case table.

use alloc::vec::Vec;

use obento_base::wire::{FromBytes as _, IntoBytes as _, le, to_u64, to_usize};
use obento_base::{FileKind, Ino, Result};
use obento_clusters::unit::{ENTRY, Slot};
use obento_clusters::{Cluster, ROOT, Run};
use obento_env::sync::Mutex;

use super::chain::{self, Owner, Walk, claim};
use super::edit::{self, Edit};
use super::issue::Issue;
use super::{Pass, View};
use crate::dir::{Directory, MAX_SLOTS, Scan};
use crate::raw::{RawBitmap, RawEntry, RawUpCase, kind};
use crate::table::LAST;
use crate::tables::label_of;
use crate::up_case::{self, UpCase};

/// A removed entry of the bitmap.
const REMOVED_BITMAP: u8 = kind::BITMAP & !kind::IN_USE;

/// Creates a directory with these clusters.
pub fn directory(view: &View, ino: Ino, parent: Ino, runs: Vec<Run>) -> Directory {
    let per_cluster = view.sb.cluster_size / ENTRY;
    let clusters = runs.last().map_or(0, |run| run.at.saturating_add(run.len));
    let slots = clusters.saturating_mul(per_cluster).min(MAX_SLOTS);
    let data_start = view.sb.data_start;
    Directory { ino, parent, runs, per_cluster, data_start, slots, damage: None, index: Mutex::default() }
}

/// Checks the structures of the volume other than files. Returns `None` if the root directory is missing.
pub fn check(view: &mut View, look: &mut Pass<'_>) -> Result<Option<Directory>> {
    let kind = FileKind::Directory;
    let owner = Owner { ino: ROOT.0, first: view.sb.root, length: None, is_contiguous: false, kind };
    let walk = claim(view, owner, look)?;
    if let Some(issue) = walk.issue.clone() {
        let edits = walk.last().map(|last| Edit::Link(last, LAST));
        look.found(issue, edits.into_iter().collect());
    }
    if walk.count == 0 {
        return Ok(None);
    }
    let root = directory(view, ROOT, ROOT, walk.runs);
    let (mut bitmaps, mut table, mut end, mut removed) = (Vec::new(), None, None, None);
    let mut scan = Scan::new(&root, &view.sb, &view.cache, 0);
    while let Some(found) = scan.next_entry() {
        // A table in an unreadable part is not missing, so no new table is written.
        let (index, raw) = found?;
        let Some(slot) = root.slot(index) else { break };
        match raw.EntryType {
            kind::BITMAP => bitmaps.push((index, slot, raw)),
            kind::UP_CASE if table.is_none() => table = Some((slot, raw)),
            kind::UP_CASE => second(index, slot, &raw, look),
            REMOVED_BITMAP => removed = RawBitmap::read_from_bytes(raw.as_bytes()).ok(),
            kind::LABEL => look.report.label = label_of(&raw),
            _ => {}
        }
        if raw.EntryType & kind::IN_USE == 0 && end.is_none() {
            end = Some(slot);
        }
        if raw.EntryType == kind::END {
            break;
        }
    }
    let bitmap = choose_bitmap(bitmaps, look)?;
    if bitmap.is_none() {
        look.no_bitmap = Some(("is missing", end, removed.map(|raw| Cluster(raw.FirstCluster.get()))));
    }
    if let Some((slot, raw)) = bitmap {
        let count = view.sb.clusters_for(view.sb.bitmap_len());
        // A wrong entry may refer to clusters of a file. Files take precedence unless a bitmap is recognised there.
        if is_bitmap(view, look, Cluster(raw.FirstCluster.get()), count)? {
            check_bitmap(view, slot, raw, look)?;
        } else {
            look.doubtful_bitmap = Some((slot, raw));
        }
    }
    check_up_case(view, table, end, look)?;
    Ok(Some(root))
}

/// Chooses the entry of the bitmap of the only FAT: Linux accepts none with flags. The others are removed.
fn choose_bitmap(
    found: Vec<(u32, Slot, RawEntry)>,
    look: &mut Pass<'_>,
) -> Result<Option<(Slot, RawBitmap)>> {
    let flags = |raw: &RawEntry| raw.rest.first().copied().unwrap_or(0);
    let chosen = found.iter().position(|(.., raw)| flags(raw) == 0).unwrap_or(0);
    let mut bitmap = None;
    for (at, (index, slot, raw)) in found.into_iter().enumerate() {
        if at != chosen {
            second(index, slot, &raw, look);
            continue;
        }
        let found = flags(&raw);
        let mut raw = RawBitmap::read_from_bytes(raw.as_bytes()).map_err(|_| obento_base::Error::Invalid)?;
        if found != 0 {
            raw.BitmapFlags = 0;
            let edit = Edit::Write(slot.offset(), raw.as_bytes().to_vec());
            look.found(Issue::BitmapFlags { found }, Vec::from([edit]));
        }
        bitmap = Some((slot, raw));
    }
    Ok(bitmap)
}

/// Reports a second entry of a kind that may occur once, and removes it.
fn second(index: u32, slot: Slot, raw: &RawEntry, look: &mut Pass<'_>) {
    look.found(Issue::SecondTable { index, kind: raw.EntryType }, Vec::from([edit::free(slot, raw)]));
}

/// Checks the bitmap whose place was doubtful, after all files have their clusters.
pub fn check_doubtful_bitmap(view: &mut View, look: &mut Pass<'_>) -> Result<()> {
    match look.doubtful_bitmap.take() {
        Some((slot, raw)) => check_bitmap(view, slot, raw, look),
        None => Ok(()),
    }
}

fn check_bitmap(view: &mut View, slot: Slot, raw: RawBitmap, look: &mut Pass<'_>) -> Result<()> {
    let expected = view.sb.bitmap_len();
    let (first, count) = (Cluster(raw.FirstCluster.get()), view.sb.clusters_for(expected));
    if !chain::is_whole(view, look, first, count)? && is_bitmap(view, look, first, count)? {
        look.found(Issue::TableChain { table: "allocation bitmap", cluster: first.0 }, link(first, count));
        let runs = chain::claim_run(look, first, count)?;
        view.set_bitmap(runs)?;
        report_length(slot, raw, expected, look);
        return Ok(());
    }
    let walk = walk_table(view, first.0, expected, look)?;
    if walk.count < count {
        look.no_bitmap = Some((why_no_clusters(&walk), Some(slot), None));
        look.is_damaged = true;
        return Ok(());
    }
    report_length(slot, raw, expected, look);
    view.set_bitmap(walk.runs)
}

fn report_length(slot: Slot, mut raw: RawBitmap, expected: u64, look: &mut Pass<'_>) {
    let found = raw.DataLength.get();
    if found != expected {
        raw.DataLength = le::U64::new(expected);
        let edit = Edit::Write(slot.offset(), raw.as_bytes().to_vec());
        look.found(Issue::BitmapLength { found, expected }, Vec::from([edit]));
    }
}

/// Reports that the entry of the bitmap is missing or wrong, and writes an entry if its place can be determined. The
/// place is that of a removed entry, or else the place on a new volume. The bytes there must mark all clusters with an
/// owner, and the bitmap's own clusters.
pub fn repair_bitmap(view: &mut View, look: &mut Pass<'_>) -> Result<()> {
    let Some((why, room, removed)) = look.no_bitmap.take() else { return Ok(()) };
    let len = view.sb.bitmap_len();
    let count = view.sb.clusters_for(len);
    let mut found = None;
    for start in removed.into_iter().chain([Cluster(2)]) {
        if found.is_none() && is_bitmap(view, look, start, count)? {
            found = Some(start);
        }
    }
    let Some(slot) = room else {
        look.found(Issue::BitmapEntry { why }, Vec::new());
        return Ok(());
    };
    let mut raw = RawBitmap::read_from_bytes(&[0; 32]).map_err(|_| obento_base::Error::Invalid)?;
    raw.EntryType = kind::BITMAP;
    raw.DataLength = le::U64::new(len);
    let mut entry = |start: Cluster| {
        raw.FirstCluster = le::U32::new(start.0);
        let mut edits = link(start, count);
        edits.push(Edit::Write(slot.offset(), raw.as_bytes().to_vec()));
        edits
    };
    if let Some(start) = found {
        look.found(Issue::BitmapEntry { why }, entry(start));
    } else if look.is_complete()
        && let Some(start) = unowned_run(view, look, count)
    {
        // All clusters of files are known, so that no other cluster is in use.
        let mut edits = entry(start);
        edits.extend(new_bitmap(view, look, start, count));
        look.found(Issue::NoBitmap { cluster: start.0 }, edits);
    } else {
        look.found(Issue::BitmapEntry { why }, Vec::new());
    }
    Ok(())
}

/// Returns the first of `count` contiguous clusters without an owner.
fn unowned_run(view: &View, look: &Pass<'_>, count: u32) -> Option<Cluster> {
    let mut unowned = look.owned.gaps(view.sb.numbers());
    unowned.find(|&(_, len)| len >= count).map(|(start, _)| start)
}

/// Returns the edits that write a bitmap to `count` clusters from `start` on. It marks all clusters with an owner, and its
/// own.
fn new_bitmap(view: &View, look: &Pass<'_>, start: Cluster, count: u32) -> Vec<Edit> {
    let own = (start, count);
    let numbers = view.sb.numbers();
    let mark = move |(first, len), in_use| Edit::MarkNew { bitmap: own, first, len, in_use };
    let used = look.owned.runs(numbers.clone()).chain([own]).map(move |run| mark(run, true));
    let (before, after) = (numbers.start..start.0, start.0.saturating_add(count)..numbers.end);
    let free = look.owned.gaps(before).chain(look.owned.gaps(after)).map(move |run| mark(run, false));
    // The bits after the last cluster are clear.
    let spare = u64::from(numbers.end).saturating_sub(2).wrapping_neg() & 7;
    let spare = mark((Cluster(numbers.end), u32::try_from(spare).unwrap_or(0)), false);
    used.chain(free).chain([spare]).collect()
}

/// Returns whether the bitmap may be in `count` clusters from `start` on.
fn is_bitmap(view: &View, look: &Pass<'_>, start: Cluster, count: u32) -> Result<bool> {
    if !view.sb.has_run(start, count) || look.owned.has_any(start, count) {
        return Ok(false);
    }
    let used = super::bitmap::read(view, &[Run { at: 0, start, len: count }])?;
    let mut missing = look.owned.runs_without(&used, view.sb.numbers());
    Ok(used.has_all(start, count) && missing.next().is_none())
}

/// Returns the edits that chain `count` clusters from `start` on.
fn link(start: Cluster, count: u32) -> Vec<Edit> {
    let last = start.0.saturating_add(count.saturating_sub(1));
    let inner = (start.0..last).map(|cluster| Edit::Link(Cluster(cluster), cluster.saturating_add(1)));
    inner.chain([Edit::Link(Cluster(last), LAST)]).collect()
}

fn walk_table(view: &View, first: u32, length: u64, look: &mut Pass<'_>) -> Result<Walk> {
    let (first, kind) = (Cluster(first), FileKind::Regular);
    let owner = Owner { ino: 0, first, length: Some(length), is_contiguous: false, kind };
    claim(view, owner, look)
}

/// Returns why a table does not have all its clusters, for the text after its name.
fn why_no_clusters(walk: &Walk) -> &'static str {
    match walk.issue {
        Some(Issue::CrossLink { .. }) => "has a cluster that another structure uses",
        _ => "has a damaged cluster chain",
    }
}

fn check_up_case(
    view: &mut View,
    found: Option<(Slot, RawEntry)>,
    room: Option<Slot>,
    look: &mut Pass<'_>,
) -> Result<()> {
    let raw =
        found.and_then(|(slot, raw)| RawUpCase::read_from_bytes(raw.as_bytes()).ok().map(|raw| (slot, raw)));
    let (why, runs) = match &raw {
        None => ("is missing", Vec::new()),
        Some((_, raw)) if !up_case::is_len(raw.DataLength.get()) => ("has an invalid length", Vec::new()),
        Some((_, raw)) => {
            let length = raw.DataLength.get();
            let (first, count) = (Cluster(raw.FirstCluster.get()), view.sb.clusters_for(length));
            if !chain::is_whole(view, look, first, count)? && chain::is_free_run(view, look, first, count) {
                let bytes = read(view, &[Run { at: 0, start: first, len: count }], length)?;
                if let Some(table) = UpCase::decode(&bytes)?
                    && up_case::checksum(&bytes) == raw.TableChecksum.get()
                {
                    let issue = Issue::TableChain { table: "up-case table", cluster: first.0 };
                    look.found(issue, link(first, count));
                    chain::claim_run(look, first, count)?;
                    view.up_case = table;
                    return Ok(());
                }
            }
            let walk = walk_table(view, raw.FirstCluster.get(), length, look)?;
            if walk.count < view.sb.clusters_for(length) {
                chain::release(look, &walk.runs)?;
                (why_no_clusters(&walk), Vec::new())
            } else {
                let bytes = read(view, &walk.runs, length)?;
                match UpCase::decode(&bytes)? {
                    Some(table) if up_case::checksum(&bytes) == raw.TableChecksum.get() => {
                        view.up_case = table;
                        return Ok(());
                    }
                    _ => {
                        chain::release(look, &walk.runs)?;
                        ("has a wrong checksum", walk.runs)
                    }
                }
            }
        }
    };
    let slot = raw.map(|(slot, _)| slot).or(room);
    // Its new place is known once all clusters have their owners.
    (look.bad_up_case, look.is_damaged) = (Some((why, slot, runs)), true);
    Ok(())
}

/// Claims the clusters of a damaged up-case table for the new table, unless a file or a directory owns one of them. The
/// entry may be damaged and refer to another owner's clusters.
pub fn keep_place_of_up_case(look: &mut Pass<'_>) -> Result<()> {
    let Some((why, slot, runs)) = look.bad_up_case.take() else { return Ok(()) };
    let is_kept = !runs.iter().any(|run| look.owned.has_any(run.start, run.len));
    let runs = if is_kept { runs } else { Vec::new() };
    for run in &runs {
        chain::claim_run(look, run.start, run.len)?;
    }
    look.bad_up_case = Some((why, slot, runs));
    Ok(())
}

/// Reports the error of the up-case table, and writes another one.
pub fn repair_up_case(view: &View, look: &mut Pass<'_>) -> Result<()> {
    let Some((why, slot, runs)) = look.bad_up_case.take() else { return Ok(()) };
    let edits = slot.map_or(Ok(Vec::new()), |slot| write_standard(view, slot, &runs, look))?;
    look.found(Issue::UpCaseTable { why }, edits);
    Ok(())
}

fn read(view: &View, runs: &[Run], length: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for run in runs {
        let Some(offset) = view.sb.offset_of(run.start) else { break };
        let left = length.saturating_sub(to_u64(bytes.len()));
        let len = u64::from(run.len).saturating_mul(view.sb.cluster_size.into()).min(left);
        let start = bytes.len();
        bytes.try_reserve(to_usize(len))?;
        bytes.resize(start.saturating_add(to_usize(len)), 0);
        view.device().read_at(offset, bytes.get_mut(start..).unwrap_or_default())?;
    }
    Ok(bytes)
}

/// Returns edits that write the recommended table to the place of the old one, or else to unused clusters.
fn write_standard(view: &View, slot: Slot, runs: &[Run], look: &Pass<'_>) -> Result<Vec<Edit>> {
    let table = UpCase::standard()?.encode();
    let count = view.sb.clusters_for(to_u64(table.len()));
    let there = runs.first().filter(|run| run.len >= count).map(|run| run.start);
    let Some(start) = there.or_else(|| super::bitmap::free_run(view, look, count)) else {
        return Ok(Vec::new());
    };
    let mut raw = RawUpCase::read_from_bytes(&[0; 32]).map_err(|_| obento_base::Error::Invalid)?;
    raw.EntryType = kind::UP_CASE;
    raw.TableChecksum = le::U32::new(up_case::checksum(&table));
    (raw.FirstCluster, raw.DataLength) = (le::U32::new(start.0), le::U64::new(to_u64(table.len())));
    let offset = view.sb.offset_of(start).ok_or(obento_base::Error::Invalid)?;
    let mut edits = link(start, count);
    edits.extend([Edit::Write(offset, table), Edit::Write(slot.offset(), raw.as_bytes().to_vec())]);
    edits.push(Edit::Mark(start, count, true));
    Ok(edits)
}
