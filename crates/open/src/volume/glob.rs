//! Shell patterns for paths inside an image.
//!
//! Invariant: matching a name takes at most (length of the pattern) x (length of the name) steps, because
//! only the last `*` is tried again.
//! Invariant: expanding a pattern stores at most [`MAX_MATCHES`] paths.
//! Source: glob(7), fnmatch(3); `**` as in bash with globstar.

use std::collections::BTreeMap;

use obento_base::{Error, FileKind, Name, Result};
use obento_driver::Cookie;
use obento_vfs::{Caller, Node, Symlinks};
use std::ops::ControlFlow;

use super::Volume;
use crate::walk::{Order, Step, Walk};

/// The most paths that a pattern matches. They fit in 128 MiB; a caller that needs more walks the tree.
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
    let mut matched = Vec::new();
    dir.read_dir(Cookie::START, &mut |entry| {
        // A damaged block hides only its own names; the others still match. A name of a damaged inode matches
        // too: the damage is reported when the inode is used.
        let entry = entry.ok().filter(|entry| matches(component, entry.name.as_bytes()));
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

/// Returns whether `pattern` matches all of `name`.
///
/// ```
/// assert!(obento::volume::matches(b"*.c[fn]?", b"a.cnf"));
/// assert!(!obento::volume::matches(b"*", b".hidden"));
/// ```
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    if name.first() == Some(&b'.') && pattern.first() != Some(&b'.') && !pattern.starts_with(b"\\.") {
        return false;
    }
    let (mut pattern, mut name) = (pattern, name);
    // The position to resume at if the part after the last `*` does not match: the star takes one more
    // character.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        match pattern {
            [b'*', rest @ ..] => {
                retry = Some((rest, name));
                pattern = rest;
            }
            [] if name.is_empty() => return true,
            _ => match fit_one(pattern, name) {
                Some(rest) => (pattern, name) = rest,
                None => match retry {
                    Some((after_star, taken)) if !taken.is_empty() => {
                        let (_, longer) = split_char(taken);
                        retry = Some((after_star, longer));
                        (pattern, name) = (after_star, longer);
                    }
                    _ => return false,
                },
            },
        }
    }
}

/// Matches one character of the name. Returns the rest of the pattern and the rest of the name.
fn fit_one<'a>(pattern: &'a [u8], name: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    if name.is_empty() {
        return None;
    }
    let (c, rest_of_name) = split_char(name);
    match pattern {
        [] => None,
        [b'?', rest @ ..] => Some((rest, rest_of_name)),
        [b'[', set @ ..] => match fit_set(set, c) {
            Some((true, rest)) => Some((rest, rest_of_name)),
            Some((false, _)) => None,
            // A bracket that is never closed matches itself.
            None => (c == u32::from(b'[')).then_some((set, rest_of_name)),
        },
        [b'\\', rest @ ..] if !rest.is_empty() => literal(rest, c, rest_of_name),
        _ => literal(pattern, c, rest_of_name),
    }
}

fn literal<'a>(pattern: &'a [u8], c: u32, rest_of_name: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (expected, rest) = split_char(pattern);
    (expected == c).then_some((rest, rest_of_name))
}

/// Returns whether `c` is in the set that begins after a `[`, and the pattern after the set. Returns `None`
/// if the set has no end.
fn fit_set(set: &[u8], c: u32) -> Option<(bool, &[u8])> {
    let (negated, mut rest) = match set {
        [b'!' | b'^', rest @ ..] => (true, rest),
        _ => (false, set),
    };
    let (mut found, mut first) = (false, true);
    loop {
        match rest {
            [] => return None,
            [b']', after @ ..] if !first => return Some((found != negated, after)),
            _ => {}
        }
        let (low, after) = set_char(rest)?;
        rest = after;
        let high = match rest {
            [b'-', next, ..] if *next != b']' => {
                let (high, after) = set_char(&rest[1..])?;
                rest = after;
                high
            }
            _ => low,
        };
        found |= (low..=high).contains(&c);
        first = false;
    }
}

fn set_char(set: &[u8]) -> Option<(u32, &[u8])> {
    match set {
        [] => None,
        [b'\\', rest @ ..] if !rest.is_empty() => Some(split_char(rest)),
        _ => Some(split_char(set)),
    }
}

/// Splits off the first character of `bytes`, which are not empty. A byte that is not valid UTF-8 becomes a
/// number beyond Unicode.
fn split_char(bytes: &[u8]) -> (u32, &[u8]) {
    /// One more than the last code point.
    const BEYOND: u32 = 0x11_0000;
    let len = bytes.len().min(4);
    let c = bytes[..len].utf8_chunks().next().and_then(|chunk| chunk.valid().chars().next());
    match (c, bytes) {
        (Some(c), _) => (u32::from(c), &bytes[c.len_utf8()..]),
        (None, [byte, rest @ ..]) => (BEYOND + u32::from(*byte), rest),
        (None, []) => (BEYOND, bytes),
    }
}
