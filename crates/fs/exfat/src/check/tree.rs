//! Checking every directory from the root on.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use obento_base::{FileKind, Ino, Result};
use obento_clusters::{Bits, Entry, FileEntry as _, Links as _, ROOT, Run};

use super::edit::{self, Edit};
use super::issue::Issue;
use super::names::Names;
use super::tables::directory;
use super::{Pass, View, sets};
use crate::dir::{Directory, Scan};
use crate::raw::{RawEntry, kind};
use crate::set::EntrySet;

/// A directory to check.
pub struct Pending {
    /// Its inode number.
    pub ino: Ino,
    /// Its clusters.
    pub runs: Vec<Run>,
}

/// The directory that is checked.
pub struct Context<'d> {
    /// The directory.
    pub dir: &'d Directory,
    /// Its current names, and the names that it will get.
    pub names: Names,
}

/// Returns the clusters of all directories, each of which belongs to the first directory that refers to it. Fails
/// with `NoMemory`, or if the device fails.
pub fn directories(view: &View, root: &[Run]) -> Result<Bits> {
    let mut found = Bits::default();
    let mut todo = VecDeque::from([root.to_vec()]);
    root.iter().try_for_each(|run| found.set_run(run.start, run.len))?;
    while let Some(runs) = todo.pop_front() {
        let dir = directory(view, ROOT, ROOT, runs);
        let mut scan = Scan::new(&dir, &view.sb, &view.cache, 0);
        while let Some(entry) = scan.next_entry() {
            let (index, raw) = entry?;
            let set = match raw.EntryType {
                kind::END => break,
                kind::FILE => EntrySet::parse(&sets::summed(&scan.gather(index, raw)?)),
                _ => continue,
            };
            if let Ok(set) = set
                && set.file_kind() == FileKind::Directory
            {
                let runs = runs_of(view, &set, &mut found)?;
                todo.extend(Some(runs).filter(|runs| !runs.is_empty()));
            }
        }
    }
    Ok(found)
}

/// Returns the clusters of a directory, up to the first that another directory has.
fn runs_of(view: &View, set: &EntrySet, found: &mut Bits) -> Result<Vec<Run>> {
    let (mut runs, mut table) = (Vec::new(), view.table());
    let length = set.stream.DataLength.get().min(view.sb.heap_len());
    let count = view.sb.clusters_for(length);
    let mut next = set.first().filter(|&first| view.sb.has(first));
    if let Some(start) = next.filter(|_| set.is_contiguous()) {
        let end = start.0.saturating_add(count).min(view.sb.numbers().end);
        let free = found.gaps(start.0..end).next().filter(|&(first, _)| first == start);
        if let Some((start, len)) = free {
            found.set_run(start, len)?;
            runs.push(Run { at: 0, start, len });
        }
        return Ok(runs);
    }
    for at in 0..count {
        let Some(cluster) = next.filter(|&cluster| view.sb.has(cluster)) else { break };
        if found.set(cluster)? {
            break;
        }
        runs.push(Run { at, start: cluster, len: 1 });
        next = match table.entry(cluster)? {
            Entry::Next(next) => Some(next),
            _ => None,
        };
    }
    Ok(runs)
}

/// Checks all directories, those nearer to the root first, as `fsck.exfat` does: of two owners of a cluster, both
/// checkers prefer the same one.
pub fn check(view: &View, root: Directory, look: &mut Pass<'_>) -> Result<()> {
    let mut todo = VecDeque::new();
    let mut next = Some(root);
    while let Some(dir) = next {
        look.report.directories = look.report.directories.saturating_add(1);
        let done = look.report.directories;
        todo.extend(entries(view, &dir, look)?);
        let total = done.saturating_add(obento_base::wire::to_u64(todo.len()));
        look.progress("directories", done, total);
        next = todo.pop_front().map(|pending: Pending| directory(view, pending.ino, dir.ino, pending.runs));
    }
    Ok(())
}

/// Returns whether an entry of the volume itself may be where it is.
fn is_of_volume(dir: &Directory, kind: u8) -> bool {
    dir.ino == ROOT && matches!(kind, kind::BITMAP | kind::UP_CASE | kind::LABEL | kind::GUID)
}

/// Checks the entries of one directory. Returns the directories in it.
fn entries(view: &View, dir: &Directory, look: &mut Pass<'_>) -> Result<Vec<Pending>> {
    let mut context = Context { dir, names: Names::of(view, dir)? };
    let mut below = Vec::new();
    let mut scan = Scan::new(dir, &view.sb, &view.cache, 0);
    while let Some(found) = scan.next_entry() {
        let (index, raw) = found?;
        match raw.EntryType {
            kind::END => {
                hidden(&mut scan, dir, index, look)?;
                break;
            }
            kind::FILE => {
                let entries = scan.gather(index, raw)?;
                let (count, pending) = sets::check(view, &mut context, index, &entries, look)?;
                scan.next = index.saturating_add(count.max(1));
                below.extend(pending);
            }
            other if other & kind::IN_USE == 0 || is_of_volume(dir, other) => {}
            other => {
                let (kind, slot) = (other.into(), dir.slot(index));
                let edits = slot.map(|slot| edit::free(slot, &raw)).into_iter().collect();
                look.found(Issue::StrayEntry { dir: dir.ino.0, index, kind }, edits);
            }
        }
    }
    Ok(below)
}

/// Reports the first entry after the end of a directory. It is repaired by writing an end marker.
fn hidden(scan: &mut Scan<'_>, dir: &Directory, end: u32, look: &mut Pass<'_>) -> Result<()> {
    let mut edits: Vec<Edit> = Vec::new();
    // The end itself may be in a hole.
    scan.next = end;
    scan.skip_hole();
    while let Some(found) = scan.next_entry() {
        let (index, raw): (u32, RawEntry) = found?;
        if raw.EntryType != kind::END
            && let Some(slot) = dir.slot(index)
        {
            edits.push(Edit::Write(slot.offset(), alloc::vec![kind::END]));
        }
        if edits.len() >= super::BATCH {
            break;
        }
        if scan.is_at_page() {
            scan.skip_hole();
        }
    }
    if !edits.is_empty() {
        look.found(Issue::HiddenEntries { dir: dir.ino.0, index: end }, edits);
    }
    Ok(())
}
