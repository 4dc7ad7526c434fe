//! Whether a tree that was found after a power failure and a repair is allowed by
//! [`Crash::Repairable`](obento_driver::Crash).
//!
//! A file that existed at one path since the last sync is present. An unchanged file has its bytes and attributes. A
//! file that was written to has a length that it had since the sync. Every other file has a name and a length that some
//! file had since the sync. Each of its sectors has contents that this file had since the sync. Otherwise, the repair
//! saved it in the root.

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

/// Fails with the reason if `found` is not allowed at `point`.
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

/// Checks that files which existed at one path since the last sync are present, and unchanged if nothing changed them.
fn kept(history: &History, window: &RangeInclusive<usize>, found: &Snapshot) -> Result<(), String> {
    let trees = &history.trees[window.clone()];
    for (path, object) in &history.trees[*window.start()].objects {
        let stayed: Option<Vec<&Arc<Object>>> =
            trees.iter().map(|tree| tree.get(path).filter(|other| other.id == object.id)).collect();
        let Some(stayed) = stayed else { continue };
        let there = found.get(path).ok_or_else(|| format!("{} is missing", show(path)))?;
        let has_bytes = stayed.iter().all(|other| other.content == object.content);
        let has_meta = stayed.iter().all(|other| other.meta == object.meta);
        if there.meta.kind != object.meta.kind || has_bytes && there.content != object.content {
            return Err(format!("{} differs from the synced file", show(path)));
        }
        if has_meta && there.meta != object.meta {
            let (was, is) = (&object.meta, &there.meta);
            return Err(format!("{} has other attributes:\n  synced {was:?}\n  found  {is:?}", show(path)));
        }
    }
    Ok(())
}

/// Checks that a file with this name existed and had these bytes.
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
        let versions = Versions::of(history, known.id, window.clone());
        reason = versions.check_len(object).and_then(|()| versions.check(object, RULES));
        if reason.is_ok() {
            break;
        }
    }
    reason
}

/// Returns the objects that had the last name of `path` in its current directory, by whatever path that directory was
/// reached. Without a journal, a directory may have moved before the changes in it are present.
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

/// Splits a path into its directory and last name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

/// Returns whether a repair saved lost clusters at this path.
pub(super) fn is_saved(path: &[u8]) -> bool {
    path.starts_with(b"FSCK") && path.ends_with(b".REC")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use obento_base::Timestamp;

    use super::*;
    use crate::snapshot::Meta;

    fn object(ino: u64, content: &[u8]) -> Arc<Object> {
        let meta = Meta {
            kind: FileKind::Regular,
            mode: 0o755,
            uid: 0,
            gid: 0,
            nlink: 1,
            size: content.len() as u64,
            rdev: (0, 0),
            target: vec![],
            xattrs: BTreeMap::new(),
            flags: 0,
            mtime: Timestamp::EPOCH,
            ctime: Timestamp::EPOCH,
        };
        Arc::new(Object { meta, content: content.into(), id: Id { ino, generation: 0 } })
    }

    /// A tree of files in the root, with their inodes.
    fn tree(files: &[(&str, u64, &[u8])]) -> Snapshot {
        let mut tree = Snapshot::default();
        let root = Object {
            meta: Meta { kind: FileKind::Directory, ..object(0, &[]).meta.clone() },
            ..Object::clone(&object(0, &[]))
        };
        tree.objects.insert(Vec::new(), Arc::new(root));
        for &(name, ino, content) in files {
            tree.objects.insert(name.as_bytes().to_vec(), object(ino, content));
        }
        tree
    }

    /// Tree 0 was overwritten before the sync, which promises tree 1; the others follow.
    fn judged(trees: &[&[(&str, u64, &[u8])]], found: &[(&str, u64, &[u8])]) -> Result<(), String> {
        let history =
            History { trees: trees.iter().map(|files| tree(files)).collect(), ..History::default() };
        let point = Point { begun: trees.len() - 1, durable: 1, ..Point::default() };
        check(&history, &point, &tree(found))
    }

    const OLDER: &[u8] = &[1; 1024];
    const SYNCED: &[u8] = &[2; 1024];
    const LATER: &[u8] = &[3; 1500];

    const WRITTEN_TO: &[&[(&str, u64, &[u8])]] =
        &[&[("f", 1, OLDER)], &[("f", 1, SYNCED)], &[("f", 1, LATER)]];

    #[test]
    fn a_file_written_after_a_sync_has_old_or_new_sectors() {
        let both = [&SYNCED[..512], &LATER[512..1400]].concat();
        for allowed in [SYNCED, LATER, &both] {
            assert_eq!(judged(WRITTEN_TO, &[("f", 7, allowed)]), Ok(()));
        }
    }

    #[test]
    fn a_file_written_after_a_sync_still_exists() {
        assert!(judged(WRITTEN_TO, &[]).is_err());
    }

    #[test]
    fn a_file_written_after_a_sync_has_a_length_that_it_had_since_the_sync() {
        let longer = [LATER, &[0]].concat();
        for wrong in [&[], &SYNCED[..512], &longer] {
            assert!(judged(WRITTEN_TO, &[("f", 7, wrong)]).is_err(), "{}", wrong.len());
        }
    }

    #[test]
    fn a_file_written_after_a_sync_is_not_older_than_the_sync() {
        assert!(judged(WRITTEN_TO, &[("f", 7, OLDER)]).is_err());
        let half = [&OLDER[..512], &SYNCED[512..]].concat();
        assert!(judged(WRITTEN_TO, &[("f", 7, &half)]).is_err());
    }

    const RENAMED: &[&[(&str, u64, &[u8])]] = &[&[("f", 1, OLDER)], &[("f", 1, SYNCED)], &[("g", 1, SYNCED)]];

    #[test]
    fn a_renamed_file_has_its_contents_under_any_name_that_exists() {
        for allowed in [&[("f", 7, SYNCED)][..], &[("g", 7, SYNCED)], &[]] {
            assert_eq!(judged(RENAMED, allowed), Ok(()));
        }
        for wrong in [&[("g", 7, OLDER)][..], &[("g", 7, &[])], &[("h", 7, SYNCED)]] {
            assert!(judged(RENAMED, wrong).is_err());
        }
    }

    #[test]
    fn synced_and_unchanged_files_have_their_attributes() {
        let mut other = tree(&[("f", 1, SYNCED)]);
        let changed = Object {
            meta: Meta { mode: 0o555, ..object(1, SYNCED).meta.clone() },
            ..Object::clone(&object(1, SYNCED))
        };
        other.objects.insert(b"f".to_vec(), Arc::new(changed));
        let same = || tree(&[("f", 1, SYNCED)]);
        let history = |last| History { trees: vec![same(), same(), last], ..History::default() };
        let point = Point { begun: 2, durable: 1, ..Point::default() };
        assert!(check(&history(same()), &point, &other).is_err());
        assert_eq!(check(&history(other.clone()), &point, &other), Ok(()));
        assert_eq!(check(&history(other), &point, &same()), Ok(()));
    }
}
