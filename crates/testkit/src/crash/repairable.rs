//! Whether a tree that was found after a cut, and mended, is one that [`Crash::Repairable`](obento_driver::Crash) allows.
//!
//! What lay at a path since the last promise is there, with its bytes. What else is there has a name that something had since,
//! and each of its sectors holds what that file held in some tree; or it is what the mend saved in the root.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use obento_base::FileKind;
use obento_driver::DataMode;

use super::allowed::{Rules, Versions};
use crate::model::{History, Point};
use crate::snapshot::{Id, Object, Snapshot, show};

const RULES: Rules =
    Rules { data: DataMode::Ordered, gathers: true, cuts_at_old_end: true, by_another: false };

/// Says why `found` is not allowed at `point`.
pub(super) fn check(history: &History, point: &Point, found: &Snapshot) -> Result<(), String> {
    let last = point.begun.min(history.trees.len() - 1);
    let window = point.durable..=last;
    kept(history, &window, found)?;
    found.objects.iter().filter(|(path, _)| !path.is_empty() && !is_saved(path)).try_for_each(
        |(path, object)| {
            known(history, &window, path, object).map_err(|reason| format!("{}: {reason}", show(path)))
        },
    )
}

/// What nobody touched since the last promise is as it was.
fn kept(history: &History, window: &RangeInclusive<usize>, found: &Snapshot) -> Result<(), String> {
    for (path, object) in &history.trees[*window.start()].objects {
        let is_same = |other: &Arc<Object>| other.id == object.id && other.content == object.content;
        let stays = history.trees[window.clone()].iter().all(|tree| tree.get(path).is_some_and(is_same));
        if !stays {
            continue;
        }
        let there = found.get(path).ok_or_else(|| format!("{} is not there", show(path)))?;
        if there.meta.kind != object.meta.kind || there.content != object.content {
            return Err(format!("{} is not what was synced", show(path)));
        }
    }
    Ok(())
}

/// Something of this name was there, and its bytes were.
fn known(
    history: &History,
    window: &RangeInclusive<usize>,
    path: &[u8],
    object: &Object,
) -> Result<(), String> {
    let known = namesakes(history, window, path);
    let mut named = known.into_iter().filter(|known| known.meta.kind == object.meta.kind).peekable();
    if named.peek().is_none() {
        return Err("nothing of this kind had this name".into());
    }
    if object.meta.kind != FileKind::Regular {
        return Ok(());
    }
    let mut reason = Err("nothing had these bytes".into());
    for known in named {
        reason = Versions::of(history, known.id, 0..=*window.end()).check(object, RULES);
        if reason.is_ok() {
            break;
        }
    }
    reason
}

/// What had the last name of `path` in the directory that has it now, by whatever path that directory was reached: without a
/// journal a directory may have moved before what was done in it is there.
fn namesakes<'h>(history: &'h History, window: &RangeInclusive<usize>, path: &[u8]) -> Vec<&'h Arc<Object>> {
    let (parent, name) = split(path);
    let trees = || history.trees[window.clone()].iter();
    let parents: HashSet<Id> = trees().filter_map(|tree| Some(tree.get(parent)?.id)).collect();
    let is_one = |tree: &Snapshot, other: &[u8]| {
        let (above, last) = split(other);
        last == name && tree.get(above).is_some_and(|above| parents.contains(&above.id))
    };
    trees()
        .flat_map(|tree| tree.objects.iter().filter(|(other, _)| is_one(tree, other)))
        .map(|(_, known)| known)
        .collect()
}

/// A path's directory and last name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

/// What a mend makes of clusters that had lost their name.
fn is_saved(path: &[u8]) -> bool {
    path.starts_with(b"FSCK") && path.ends_with(b".REC")
}
