//! Adds the paths of files to the findings of a check, which contain inode numbers.
//!
//! Invariant: a check searches at most [`MAX_SEARCHES`] numbers, and a search visits at most [`MAX_ENTRIES`]
//! entries. The findings of a badly damaged volume therefore take bounded time and memory.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;

use obento_base::{FileKind, Ino, NameBuf};
use obento_driver::{CheckObserver, CheckProgress, Cookie, FieldValue, Finding};
use obento_vfs::Node;

use crate::Volume;

/// Maximum number of searches.
const MAX_SEARCHES: usize = 16;
/// Maximum number of entries that a search visits.
const MAX_ENTRIES: usize = 1 << 17;

/// Whether a check changes the volume.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stability {
    /// The volume is opened once.
    Unchanged,
    /// The volume is opened again for each search, since the check may have changed it.
    Repaired,
}

/// An observer that adds the field `path` to each finding about a file whose path is found.
pub(crate) struct FindingPaths<'a> {
    observer: &'a mut dyn CheckObserver,
    /// Opens the volume for reading.
    open: &'a dyn Fn() -> Option<Volume>,
    stability: Stability,
    /// `None` until the first search opens the volume; `Some(None)` if the volume cannot be opened.
    volume: Option<Option<Volume>>,
    known: BTreeMap<u64, Option<Vec<u8>>>,
}

impl<'a> FindingPaths<'a> {
    pub(crate) fn new(
        observer: &'a mut dyn CheckObserver,
        stability: Stability,
        open: &'a dyn Fn() -> Option<Volume>,
    ) -> Self {
        Self { observer, open, stability, volume: None, known: BTreeMap::new() }
    }

    /// Returns the path of the inode with this number, if the number was found before or may be searched.
    fn path(&mut self, number: u64) -> Option<Vec<u8>> {
        if let Some(known) = self.known.get(&number) {
            return known.clone();
        }
        if self.known.len() >= MAX_SEARCHES {
            return None;
        }
        if self.stability == Stability::Repaired {
            self.volume = None;
        }
        let volume = self.volume.get_or_insert_with(self.open);
        let path = volume.as_ref().and_then(|volume| path_of(&volume.root(), Ino(number)));
        self.known.insert(number, path.clone());
        path
    }
}

impl CheckObserver for FindingPaths<'_> {
    fn found(&mut self, mut finding: Finding) {
        let path = ["ino", "dir"].into_iter().find_map(|field| self.path(finding.number(field)?));
        finding.fields.extend(path.map(|path| ("path", FieldValue::Bytes(path))));
        self.observer.found(finding);
    }

    fn progress(&mut self, progress: CheckProgress) {
        self.observer.progress(progress);
    }
}

/// A directory that was found.
struct Found {
    /// The index of its parent in the list of directories; the root is its own.
    parent: usize,
    name: NameBuf,
    node: Node,
}

/// Returns a path of `ino`. Damaged parts of the tree are skipped.
fn path_of(root: &Node, ino: Ino) -> Option<Vec<u8>> {
    if root.ino() == ino {
        return Some(b"/".to_vec());
    }
    let (mut dirs, mut entered, mut left): (Vec<Found>, _, _) =
        (Vec::new(), HashSet::from([root.ino()]), MAX_ENTRIES);
    let mut next = 0_usize;
    loop {
        let dir = next.checked_sub(1).map_or(root, |at| &dirs[at].node).clone();
        let (mut below, mut found) = (Vec::new(), None);
        // An unreadable rest of the listing has no names.
        let _ = dir.read_dir(Cookie::START, &mut |entry| {
            left = left.saturating_sub(1);
            if let Ok(entry) = entry {
                if entry.ino == ino {
                    found = Some(entry.name.to_buf());
                } else if matches!(entry.kind, Some(FileKind::Directory) | None) {
                    below.push(entry.name.to_buf());
                }
            }
            if found.is_some() || left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if let Some(name) = found {
            return Some(path(&dirs, next, &name));
        }
        if left == 0 {
            return None;
        }
        for name in below {
            let Ok(node) = dir.lookup(&name) else { continue };
            if node.kind() == Ok(FileKind::Directory) && entered.insert(node.ino()) {
                dirs.push(Found { parent: next, name, node });
            }
        }
        next += 1;
        if next > dirs.len() {
            return None;
        }
    }
}

/// Returns the path of `name` in the directory `at`; 0 is the root, and `n` is `dirs[n - 1]`.
fn path(dirs: &[Found], mut at: usize, name: &NameBuf) -> Vec<u8> {
    let mut names = vec![name];
    while let Some(dir) = at.checked_sub(1).map(|index| &dirs[index]) {
        names.push(&dir.name);
        at = dir.parent;
    }
    names.iter().rev().flat_map(|name| [&b"/"[..], name.as_bytes()].concat()).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use obento_base::Error;
    use obento_driver::Severity;

    use super::*;
    use crate::toy::{Toy, ToyFs};

    fn volume() -> Volume {
        let fs = ToyFs::new([
            (
                2,
                Toy::Dir(vec![
                    Ok(("a", 3)),
                    Err(Error::Invalid),
                    Ok(("loop", 2)),
                    Ok(("file", 5)),
                    Ok(("lost", 9)),
                ]),
            ),
            (3, Toy::Dir(vec![Ok(("b", 4)), Ok(("up", 2))])),
            (4, Toy::Dir(vec![Ok(("deep", 6))])),
            (5, Toy::File(Vec::new())),
            (6, Toy::File(Vec::new())),
        ]);
        Volume::new(Arc::new(fs))
    }

    #[test]
    fn a_path_is_found_behind_damage_and_in_circles() {
        let root = volume().root();
        let path = |ino| path_of(&root, Ino(ino)).map(|path| String::from_utf8(path).unwrap());
        assert_eq!([2, 4, 5, 6].map(|ino| path(ino).unwrap()), ["/", "/a/b", "/file", "/a/b/deep"]);
        // The name exists, although its inode does not.
        assert_eq!(path(9).as_deref(), Some("/lost"));
        assert_eq!(path(7), None);
    }

    fn finding(fields: &[(&'static str, u64)]) -> Finding {
        let fields = fields.iter().map(|&(name, number)| (name, FieldValue::Number(number))).collect();
        Finding { code: "code", severity: Severity::Damage, fields, text: "text".into(), repaired: false }
    }

    /// Returns the paths of findings, and how often the volume was opened.
    fn paths(findings: Vec<Finding>, stability: Stability) -> (Vec<Option<Vec<u8>>>, usize) {
        let (opened, mut seen) = (Cell::new(0), Vec::<Finding>::new());
        let open = || {
            opened.set(opened.get() + 1);
            Some(volume())
        };
        let mut observer = FindingPaths::new(&mut seen, stability, &open);
        findings.into_iter().for_each(|finding| observer.found(finding));
        let path = |finding: &Finding| match finding.fields.last() {
            Some(("path", FieldValue::Bytes(path))) => Some(path.clone()),
            _ => None,
        };
        (seen.iter().map(path).collect(), opened.get())
    }

    #[test]
    fn a_finding_gets_the_path_of_its_inode_or_else_of_its_directory() {
        let findings =
            vec![finding(&[("ino", 5)]), finding(&[("dir", 3), ("ino", 7)]), finding(&[("block", 5)])];
        let (found, opened) = paths(findings, Stability::Unchanged);
        assert_eq!((found, opened), (vec![Some(b"/file".to_vec()), Some(b"/a".to_vec()), None], 1));
    }

    #[test]
    fn a_repaired_volume_is_opened_again_for_each_number() {
        let findings = vec![finding(&[("ino", 5)]), finding(&[("ino", 6)]), finding(&[("ino", 5)])];
        assert_eq!(paths(findings, Stability::Repaired).1, 2);
    }

    #[test]
    fn at_most_16_numbers_are_searched() {
        let lost = (100..).take(MAX_SEARCHES).map(|ino| finding(&[("ino", ino)]));
        let (found, _) = paths(lost.chain([finding(&[("ino", 5)])]).collect(), Stability::Unchanged);
        assert_eq!(found, vec![None; MAX_SEARCHES + 1]);
    }
}
