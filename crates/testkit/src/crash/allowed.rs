//! Whether a tree that was found after a power failure is allowed by the history.
//!
//! The tree must be one that existed between the last sync and the last started operation. During an operation that
//! changes data in steps, the size of that file may be between the old and the new one. Each sector of a file must have
//! contents that it had in some tree since the file was last synced. Synced bytes are therefore present, and other
//! bytes are old or new. If the files were not read during the plan, unsynced appends may also be missing.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use obento_driver::DataMode;

use crate::model::{History, Point};
use crate::snapshot::{Id, Meta, Object, Snapshot, Times, show};

/// The unit in which bytes are old or new.
const SECTOR: usize = 512;
/// Bytes after the end of a file that shrinks are zeroed up to the end of its last block, whose size is at most this.
const LARGEST_BLOCK: usize = 4096;

/// The rules for a volume in this data mode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub data: DataMode,
    /// Whether appends wait in memory. The last appends since a file was synced may then be missing even if later
    /// changes of other files are present.
    pub gathers: bool,
    /// Whether a write across the old end of a file may be present in part. The part after the old end reads as zeros
    /// until the new length is stored, although the part before it is overwritten.
    pub cuts_at_old_end: bool,
    /// Whether inodes are identified only by their numbers, because the other implementation has no generations.
    pub by_another: bool,
}

/// Fails with the reason if `found` is not allowed at `point`.
pub(super) fn check(history: &History, point: &Point, rules: Rules, found: &Snapshot) -> Result<(), String> {
    let last = point.begun.min(history.trees.len() - 1);
    let mut nearest: Option<String> = None;
    for at in (point.durable..=last).rev() {
        let expected = Expected { history, point, rules, at, last };
        let found = &*expected.known(found);
        let tree = &expected.tree(found);
        match tree.difference(found, Times::Compared, None) {
            None => match expected.contents(found) {
                Ok(()) => return Ok(()),
                // Names and attributes match, so this reason is more useful than a mismatch with another tree.
                Err(reason) => nearest = Some(format!("as after {at} operations, but {reason}")),
            },
            Some(difference) => {
                if expected.is_midway(found) {
                    match expected.contents(found) {
                        Ok(()) => return Ok(()),
                        Err(reason) => nearest = Some(format!("during operation {at}, but {reason}")),
                    }
                }
                nearest.get_or_insert_with(|| {
                    format!("no tree that is allowed; the last differs: {difference}")
                });
            }
        }
    }
    let range = format!("allowed are the trees after {} to {last} operations", point.durable);
    Err(format!("{}; {range}", nearest.unwrap_or_else(|| "nothing is allowed".into())))
}

struct Expected<'a> {
    history: &'a History,
    point: &'a Point,
    rules: Rules,
    /// The index of the tree that was found.
    at: usize,
    /// The index of the last tree whose bytes may be present.
    last: usize,
}

impl<'a> Expected<'a> {
    /// Returns the found tree with the inodes of the history.
    fn known<'f>(&self, found: &'f Snapshot) -> Cow<'f, Snapshot> {
        match self.rules.by_another {
            true => Cow::Owned(found.with_ids_of(&self.history.trees[self.at])),
            false => Cow::Borrowed(found),
        }
    }

    /// Returns the tree, with the files of `found` where appends may be missing.
    fn tree(&self, found: &Snapshot) -> Cow<'a, Snapshot> {
        let tree = &self.history.trees[self.at];
        let is_missing = |object: &Object| {
            let other = found.by_id(object.id).filter(|other| other.meta != object.meta)?;
            self.before_appends(object.id).find(|earlier| earlier.meta == other.meta)
        };
        let mut shown = Cow::Borrowed(tree);
        for (path, object) in tree.objects.iter().filter(|_| self.rules.gathers) {
            if let Some(earlier) = is_missing(object) {
                shown.to_mut().objects.insert(path.clone(), Arc::clone(earlier));
            }
        }
        shown
    }

    /// Returns the earlier versions of a file: before the last append, before the last two, and so on, back to the last
    /// sync.
    fn before_appends(&self, id: Id) -> impl Iterator<Item = &'a Arc<Object>> {
        let trees = &self.history.trees;
        let synced = self.point.synced.get(&id).copied().unwrap_or(0);
        let pairs = (synced..self.at).rev().map(move |n| (trees[n].by_id(id), trees[n + 1].by_id(id)));
        pairs
            .map_while(|(before, after)| before.zip(after))
            .map_while(|(before, after)| (before == after || is_appended(before, after)).then_some(before))
    }

    /// Returns whether `found` is this tree during the next operation.
    fn is_midway(&self, found: &Snapshot) -> bool {
        let (before, Some(after)) = (&self.history.trees[self.at], self.history.trees.get(self.at + 1))
        else {
            return self.is_midway_of_the_last(found);
        };
        if self.at >= self.last {
            return false;
        }
        let path = self.history.ops.get(self.at).and_then(|op| op.changes_data_of());
        let Some(object) = path.and_then(|path| before.get(path.as_bytes())) else { return false };
        let (Some(new), Some(now)) = (after.by_id(object.id), found.by_id(object.id)) else { return false };
        is_between(object, Some(new), now)
            && before.difference(found, Times::Compared, Some(object.id)).is_none()
    }

    /// An operation that did not return has no tree after it.
    fn is_midway_of_the_last(&self, found: &Snapshot) -> bool {
        let before = &self.history.trees[self.at];
        let path = self.history.ops.get(self.at).and_then(|op| op.changes_data_of());
        let Some(object) = path.and_then(|path| before.get(path.as_bytes())) else { return false };
        let Some(now) = found.by_id(object.id) else { return false };
        self.point.begun > self.at
            && is_between(object, None, now)
            && before.difference(found, Times::Compared, Some(object.id)).is_none()
    }

    fn contents(&self, found: &Snapshot) -> Result<(), String> {
        found.objects.iter().try_for_each(|(path, object)| {
            let known = self.history.trees[self.at].by_id(object.id);
            if known.is_some_and(|known| known.content == object.content) {
                return Ok(());
            }
            let oldest = self.point.synced.get(&object.id).copied().unwrap_or(0);
            let file = Versions::of(self.history, object.id, oldest..=self.last);
            file.check(object, self.rules).map_err(|reason| format!("{}: {reason}", show(path)))
        })
    }
}

/// Returns whether `after` is `before` with more bytes at the end.
fn is_appended(before: &Object, after: &Object) -> bool {
    let plain = |object: &Object| Meta { size: 0, ..object.meta.without_times() };
    let grows = before.content.len() < after.content.len();
    grows && after.content.starts_with(&before.content) && plain(before) == plain(after)
}

/// Returns whether an object is between `before` and `after`: its size and times may be between, and the rest must be
/// either.
fn is_between(before: &Object, after: Option<&Arc<Object>>, now: &Object) -> bool {
    let plain = |object: &Object| {
        let mut meta = object.meta.without_times();
        meta.size = 0;
        meta
    };
    let (old, new) = (before.meta.size, after.map_or(u64::MAX, |after| after.meta.size));
    let size = now.meta.size;
    plain(now) == plain(before) && (old.min(new)..=old.max(new)).contains(&size)
}

/// The contents of one file, oldest first.
pub(super) struct Versions(Vec<Arc<[u8]>>);

impl Versions {
    pub(super) fn of(history: &History, id: Id, trees: RangeInclusive<usize>) -> Self {
        let mut versions: Vec<Arc<[u8]>> = Vec::new();
        for tree in &history.trees[trees] {
            let Some(object) = tree.by_id(id) else { continue };
            if versions.last().is_none_or(|last| !Arc::ptr_eq(last, &object.content)) {
                versions.push(Arc::clone(&object.content));
            }
        }
        Self(versions)
    }

    /// Fails if the file never had this length, and the length is not between two lengths that the file had.
    pub(super) fn check_len(&self, found: &Object) -> Result<(), String> {
        let lens = || self.0.iter().map(|content| content.len());
        let (least, most) = (lens().min().unwrap_or(0), lens().max().unwrap_or(0));
        match found.content.len() {
            len if (least..=most).contains(&len) => Ok(()),
            len => Err(format!("has {len} bytes, and had {least} to {most}")),
        }
    }

    pub(super) fn check(&self, found: &Object, rules: Rules) -> Result<(), String> {
        let wrong: BTreeSet<usize> = found
            .content
            .chunks(SECTOR)
            .enumerate()
            .filter(|(n, bytes)| !self.allows(n * SECTOR, bytes, rules))
            .map(|(n, _)| n)
            .collect();
        let Some(first) = wrong.first() else { return Ok(()) };
        let start = first * SECTOR;
        let bytes = &found.content[start..found.content.len().min(start + 16)];
        Err(format!(
            "{} sectors have contents that they never had, the first at {start}: {bytes:02x?}",
            wrong.len()
        ))
    }

    fn allows(&self, start: usize, bytes: &[u8], rules: Rules) -> bool {
        let end_of = |n: usize| {
            let len = self.0[n].len();
            if self.shrank_at(n) { len.next_multiple_of(LARGEST_BLOCK) } else { len }
        };
        let is_old_or_new = (0..self.0.len()).any(|n| start < end_of(n) && holds(&self.0[n], start, bytes));
        is_old_or_new
            || rules.data == DataMode::Writeback && self.changed(start, bytes.len())
            || rules.cuts_at_old_end && self.is_cut_at_old_end(start, bytes)
    }

    /// Returns whether `bytes` begin like a version and continue with zeros where an older version had zeros.
    fn is_cut_at_old_end(&self, start: usize, bytes: &[u8]) -> bool {
        let end = start + bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        let is_zero = |version: &[u8]| {
            let rest = version.get(end..).unwrap_or_default();
            rest.iter().take(start + bytes.len() - end).all(|&byte| byte == 0)
        };
        (1..self.0.len()).any(|n| {
            self.0[..n].iter().any(|older| is_zero(older)) && holds(&self.0[n], start, &bytes[..end - start])
        })
    }

    fn shrank_at(&self, n: usize) -> bool {
        n > 0 && self.0[n - 1].len() > self.0[n].len()
    }

    /// Returns whether the sector was written since the file was synced. With `data=writeback` it may then contain
    /// anything.
    fn changed(&self, start: usize, len: usize) -> bool {
        let Some((first, later)) = self.0.split_first() else { return true };
        let part = |version: &[u8]| version.get(start..(start + len).min(version.len())).map(<[u8]>::to_vec);
        part(first).is_none_or(|old| old.len() < len)
            || later.iter().any(|version| part(version) != part(first))
    }
}

/// Returns whether `version`, followed by zeros, has `bytes` at `start`.
fn holds(version: &[u8], start: usize, bytes: &[u8]) -> bool {
    let known = version.get(start..).unwrap_or_default();
    let (there, beyond) = bytes.split_at(known.len().min(bytes.len()));
    known.starts_with(there) && beyond.iter().all(|&b| b == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento_base::{FileKind, Timestamp};
    use std::collections::{BTreeMap, HashMap};

    fn versions(list: &[&[u8]]) -> Versions {
        Versions(list.iter().map(|&bytes| bytes.into()).collect())
    }

    const ORDERED: Rules =
        Rules { data: DataMode::Ordered, gathers: false, cuts_at_old_end: false, by_another: false };

    #[test]
    fn a_sector_is_old_or_new_and_nothing_else() {
        let file = versions(&[&[1; 1024], &[2; 1024]]);
        assert!(file.allows(0, &[1; 512], ORDERED) && file.allows(512, &[2; 512], ORDERED));
        assert!(!file.allows(0, &[3; 512], ORDERED) && !file.allows(0, &[0; 512], ORDERED));
        let mut half = [1; 512];
        half[256..].fill(2);
        assert!(!file.allows(0, &half, ORDERED), "a sector is written wholly or not at all");
        let stale = Rules { data: DataMode::Writeback, ..ORDERED };
        assert!(file.allows(0, &[3; 512], stale) && !versions(&[&[1; 1024]]).allows(0, &[3; 512], stale));
    }

    #[test]
    fn a_write_over_the_old_end_may_be_present_up_to_the_old_end_if_allowed() {
        let (mut old, new) = ([1; 1024], [2; 1024]);
        old[200..].fill(0);
        let file = versions(&[&old, &new]);
        let cut = |at: usize| [vec![2; at], vec![0; 512 - at]].concat();
        let rules = Rules { cuts_at_old_end: true, ..ORDERED };
        assert!(!file.allows(0, &cut(200), ORDERED) && file.allows(0, &cut(200), rules));
        assert!(!file.allows(0, &cut(100), rules), "no version has zeros there");
        assert!(
            !versions(&[&new, &old]).allows(0, &cut(300), rules),
            "it is not a truncated older version, either"
        );
    }

    /// A file that grew only by appends from `lens[0]` on, while a directory was created next to it each time.
    fn appended(lens: &[usize]) -> History {
        let time = |n: usize| Timestamp::new(n as i64, 0);
        let object = |ino, n: usize, kind, len: usize| Object {
            meta: Meta {
                kind,
                mode: 0,
                uid: 0,
                gid: 0,
                nlink: 1,
                size: len as u64,
                rdev: (0, 0),
                target: vec![],
                xattrs: BTreeMap::new(),
                flags: 0,
                mtime: time(n),
                ctime: time(n),
            },
            content: vec![7; len].into(),
            id: Id { ino, generation: 0 },
        };
        let tree = |(n, &len): (usize, &usize)| {
            let mut tree = Snapshot::default();
            tree.objects.insert(b"f".to_vec(), Arc::new(object(1, n, FileKind::Regular, len)));
            tree.objects.insert(b"d".to_vec(), Arc::new(object(2, n, FileKind::Directory, 0)));
            tree
        };
        History { trees: lens.iter().enumerate().map(tree).collect(), ..History::default() }
    }

    #[test]
    fn unsynced_appends_may_be_missing_and_synced_appends_may_not() {
        let history = appended(&[100, 600, 1200]);
        let lagging = |n: usize| {
            let mut found = history.trees[2].clone();
            found.objects.insert(b"f".to_vec(), Arc::clone(&history.trees[n].objects[&b"f"[..]]));
            found
        };
        let point = |synced| Point { begun: 2, durable: 2, synced };
        let file = Id { ino: 1, generation: 0 };
        let gathers = Rules { gathers: true, ..ORDERED };
        for n in 0..=2 {
            let unsynced = point(HashMap::new());
            assert_eq!(check(&history, &unsynced, gathers, &lagging(n)), Ok(()), "{n}");
            assert_eq!(check(&history, &unsynced, ORDERED, &lagging(n)).is_ok(), n == 2);
            let synced = point(HashMap::from([(file, 1)]));
            assert_eq!(check(&history, &synced, gathers, &lagging(n)).is_ok(), n >= 1, "{n}");
        }
        let mut older = history.trees[2].clone();
        older.objects.insert(b"d".to_vec(), Arc::clone(&history.trees[1].objects[&b"d"[..]]));
        assert!(check(&history, &point(HashMap::new()), gathers, &older).is_err(), "no file, no append");
    }

    #[test]
    fn a_file_changed_elsewhere_than_at_its_end_is_not_missing() {
        let history = appended(&[100, 600, 500]);
        let mut found = history.trees[2].clone();
        found.objects.insert(b"f".to_vec(), Arc::clone(&history.trees[1].objects[&b"f"[..]]));
        let point = Point { begun: 2, durable: 2, synced: HashMap::new() };
        assert!(check(&history, &point, Rules { gathers: true, ..ORDERED }, &found).is_err());
    }

    #[test]
    fn bytes_of_different_trees_never_meet_within_a_sector() {
        let mut mixed = [1; 512];
        mixed[100..300].fill(2);
        let grown = [[1; 100].as_slice(), &[2; 200]].concat();
        let file = versions(&[&[1; 1024], &[1; 100], &grown]);
        assert!(!file.allows(0, &mixed, ORDERED));
        mixed[300..].fill(0);
        assert!(file.allows(0, &mixed, ORDERED), "equal to the file that grew, with zeros after its end");
    }

    #[test]
    fn zeros_are_allowed_past_the_end_of_a_shrunk_file_and_not_of_a_grown_one() {
        assert!(!versions(&[&[1; 100], &[2; 2048]]).allows(1024, &[0; 512], ORDERED));
        assert!(versions(&[&[1; 2048], &[1; 100]]).allows(1024, &[0; 512], ORDERED));
    }
}
