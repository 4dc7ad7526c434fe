//! Shell patterns for paths inside an image.
//!
//! Invariant: expanding a pattern stores at most [`MAX_MATCHES`] paths.
//! Source: glob(7), fnmatch(3); `**` as in bash with globstar.

use std::collections::BTreeMap;

use obento_base::{Error, FileKind, Name, Result};
use obento_driver::Cookie;
use obento_vfs::{Caller, Node, Symlinks};
use std::ops::ControlFlow;

use super::Volume;
use crate::pattern::Pattern;
use crate::walk::{Order, Step, Walk};

/// Maximum number of paths that a pattern matches. They fit in 128 MiB; a caller that needs more walks the tree.
const MAX_MATCHES: usize = 1 << 17;

/// The error of expanding a pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GlobError {
    /// Reading a directory failed.
    #[error(transparent)]
    Volume(#[from] Error),
    /// The pattern matches more paths than the maximum number in memory.
    #[error("the pattern matches more than {MAX_MATCHES} paths; use 'obento find' instead")]
    TooMany,
}

/// Paths and their files, sorted and without duplicates.
type Matches = BTreeMap<Vec<u8>, Node>;

/// Returns whether `text` contains a special character of patterns.
pub fn is_pattern(text: &[u8]) -> bool {
    text.iter().any(|byte| b"*?[\\".contains(byte))
}

pub(super) fn expand(volume: &Volume, pattern: &[u8]) -> Result<Vec<(Vec<u8>, Node)>, GlobError> {
    let mut found = Matches::from([(Vec::new(), volume.root())]);
    let components = pattern.split(|&byte| byte == b'/').filter(|component| !component.is_empty());
    for component in components {
        let mut next = Matches::new();
        for (path, node) in found {
            step(volume, &path, &node, component, &mut next)?;
            if next.len() > MAX_MATCHES {
                return Err(GlobError::TooMany);
            }
        }
        found = next;
    }
    let directories_only = pattern.last() == Some(&b'/');
    let fits = |node: &Node| !directories_only || node.kind() == Ok(FileKind::Directory);
    let found = found.into_iter().filter(|(_, node)| fits(node));
    Ok(found.map(|(path, node)| if path.is_empty() { (b"/".to_vec(), node) } else { (path, node) }).collect())
}

/// Adds the files below `path` that one component of the pattern matches.
fn step(
    volume: &Volume,
    path: &[u8],
    at: &Node,
    component: &[u8],
    found: &mut Matches,
) -> Result<(), GlobError> {
    if component == b"**" {
        return descend(path, at, found);
    }
    // Links on the way are followed, as in a shell. The caller decides about a link at the end.
    let dir = match at.kind()? {
        FileKind::Directory => at.clone(),
        FileKind::Symlink => match follow(volume, path) {
            Ok(dir) if dir.kind() == Ok(FileKind::Directory) => dir,
            _ => return Ok(()),
        },
        _ => return Ok(()),
    };
    if !is_pattern(component) {
        let literal = |name| dir.lookup(name);
        return match Name::new(component).map(literal) {
            Ok(Ok(node)) => insert(found, path, component, node),
            Ok(Err(Error::NotFound | Error::NotDirectory | Error::NameTooLong)) | Err(_) => Ok(()),
            Ok(Err(error)) => Err(error.into()),
        };
    }
    let pattern = Pattern::of_shell(component);
    let mut matched = Vec::new();
    dir.read_dir(Cookie::START, &mut |entry| {
        // A damaged block hides only its own names; the others still match. A name of a damaged inode matches
        // too: the damage is reported when the inode is used.
        let entry = entry.ok().filter(|entry| pattern.matches_in_shell(entry.name.as_bytes()));
        matched.extend(entry.and_then(|entry| Some((entry.name.to_buf(), dir.child(&entry).ok()?))));
        if matched.len() > MAX_MATCHES { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    for (name, node) in matched {
        insert(found, path, name.as_bytes(), node)?;
    }
    Ok(())
}

fn follow(volume: &Volume, path: &[u8]) -> Result<Node> {
    volume.vfs().resolve(&volume.root(), path, Symlinks::Follow, &Caller::Owner)
}

fn insert(found: &mut Matches, path: &[u8], name: &[u8], node: Node) -> Result<(), GlobError> {
    if found.len() >= MAX_MATCHES {
        return Err(GlobError::TooMany);
    }
    found.insert([path, b"/", name].concat(), node);
    Ok(())
}

/// Adds `at` and every directory below it. Follows no links and does not enter hidden directories.
fn descend(path: &[u8], at: &Node, found: &mut Matches) -> Result<(), GlobError> {
    let mut walk = Walk::new(at.clone()).order(Order::Directory);
    while let Some(entry) = walk.next() {
        let Ok(entry) = entry else { continue };
        if entry.step != Step::Enter {
            continue;
        }
        if entry.name().starts_with(b".") {
            walk.prune();
            continue;
        }
        if found.len() >= MAX_MATCHES {
            return Err(GlobError::TooMany);
        }
        let below = if entry.path.is_empty() { path.to_vec() } else { [path, b"/", &entry.path].concat() };
        found.insert(below, entry.node);
    }
    Ok(())
}

/// Returns whether `pattern` matches all of `name`, as [`Pattern::matches_in_shell`].
///
/// ```
/// assert!(obento::volume::matches(b"*.c[fn]?", b"a.cnf"));
/// assert!(!obento::volume::matches(b"*", b".hidden"));
/// ```
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    Pattern::of_shell(pattern).matches_in_shell(name)
}
