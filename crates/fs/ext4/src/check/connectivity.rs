//! Pass 3: every directory is below the root, and its `..` refers to the directory that contains it.
//!
//! Source: e2fsprogs `e2fsck/pass3.c` `check_root`, `check_directory`.

use alloc::vec::Vec;

use obento_base::wire::to_usize;

use super::events::EventSink;
use super::issue::Issue;
use super::state::{CheckState, Dir};
use super::view::View;

const ROOT: u32 = 2;

/// Whether a directory is known to be below the root.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Connection {
    Unknown,
    Walking,
    Leads,
    Lost,
}

/// Checks all directories.
pub(super) fn check(view: &View, state: &CheckState, reported: &mut EventSink<'_>) {
    if state.dir(ROOT).is_none() {
        reported.found(Issue::NoRoot {});
    }
    let mut ways = Vec::new();
    ways.resize(state.dirs.len(), Connection::Unknown);
    for (at, dir) in state.dirs.iter().enumerate() {
        check_dot_dot(dir, reported);
        walk(view, state, at, &mut ways, reported);
    }
}

fn check_dot_dot(dir: &Dir, reported: &mut EventSink<'_>) {
    let expected = if dir.ino == ROOT { ROOT } else { dir.parent() };
    let found = dir.dot_dot();
    // A missing `..`, or a missing parent, is already reported.
    if found != 0 && expected != 0 && found != expected {
        reported.found(Issue::DotDot { dir: dir.ino, found, expected });
    }
}

/// Follows the parents of a directory up to one whose state is known.
fn walk(view: &View, state: &CheckState, from: usize, ways: &mut [Connection], reported: &mut EventSink<'_>) {
    let mut path = Vec::new();
    let mut at = from;
    let found = loop {
        let (Some(dir), Some(way)) = (state.dirs.get(at), ways.get_mut(at)) else { break Connection::Lost };
        match *way {
            Connection::Unknown => *way = Connection::Walking,
            Connection::Walking => {
                // It is its own ancestor.
                reported.found(Issue::Unconnected { dir: dir.ino, parent: dir.parent() });
                break Connection::Lost;
            }
            known => break known,
        }
        path.push(at);
        if dir.ino == ROOT {
            break Connection::Leads;
        }
        let parent = dir.parent();
        let next = state.dirs.binary_search_by_key(&parent, |dir| dir.ino);
        match next {
            Ok(next) if parent != 0 => at = next,
            _ if view.is_own(dir.ino) => break Connection::Leads,
            _ => {
                reported.found(Issue::Unconnected { dir: dir.ino, parent: dir.dot_dot() });
                break Connection::Lost;
            }
        }
    };
    for at in path {
        if let Some(way) = ways.get_mut(to_usize(obento_base::wire::to_u64(at))) {
            *way = found;
        }
    }
}
