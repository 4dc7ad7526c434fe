//! Several threads change two names at the same time. Their results must equal the results of some sequential order.
//!
//! The state is small: each of two names is a directory, a file or absent. A search over all orders of the operations,
//! in which the operations of each thread keep their order, is therefore fast.

use std::collections::HashSet;

use obento_base::FileKind::{self, Directory, Regular};
use obento_driver::RenameFlags;

use super::{Answer, CaseDirectory, EXISTS, IS_DIRECTORY, NOT_DIRECTORY, NOT_FOUND, NOT_PERMITTED};
use crate::plan::Op;

const ROUNDS: usize = 60;
const NAMES: [&str; 2] = ["a/x", "b/x"];

/// The files at the two names.
type Places = [Option<FileKind>; 2];

/// An operation on the name with this index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    Make(usize, FileKind),
    /// Rename to the other name.
    Move(usize),
    Remove(usize, FileKind),
}

use Turn::{Make, Move, Remove};

/// The lists of operations, one per thread.
const LISTS: [&[Turn]; 4] = [
    &[Make(0, Directory), Move(0), Make(0, Directory), Move(0), Make(0, Directory)],
    &[Make(1, Regular), Move(1), Make(1, Regular), Move(1), Make(1, Regular)],
    &[Remove(0, Directory), Remove(1, Directory), Remove(0, Directory), Remove(1, Directory)],
    &[Remove(1, Regular), Remove(0, Regular), Remove(1, Regular), Remove(0, Regular)],
];

impl Turn {
    fn op(self, room: &CaseDirectory<'_>) -> Op {
        let at = |place: usize| room.at(NAMES[place]);
        match self {
            Make(place, kind) => Op::Create(at(place), kind, 0o755),
            Move(from) => Op::Rename(at(from), at(1 - from), RenameFlags::empty()),
            Remove(place, Directory) => Op::Rmdir(at(place)),
            Remove(place, _) => Op::Unlink(at(place)),
        }
    }

    /// Returns the state after the operation, if it may have this result in this state.
    fn after(self, places: Places, answer: &Answer<()>) -> Option<Places> {
        let mut after = places;
        let expected = match self {
            Make(place, _) if places[place].is_some() => Err(EXISTS),
            Make(place, kind) => {
                after[place] = Some(kind);
                Ok(())
            }
            Move(from) => match (places[from], places[1 - from]) {
                (None, _) => Err(NOT_FOUND),
                (Some(Directory), Some(Regular)) => Err(NOT_DIRECTORY),
                (Some(Regular), Some(Directory)) => Err(IS_DIRECTORY),
                (moved, _) => {
                    (after[from], after[1 - from]) = (None, moved);
                    Ok(())
                }
            },
            Remove(place, kind) => match (places[place], kind) {
                (None, _) => Err(NOT_FOUND),
                (Some(Regular), Directory) => Err(NOT_DIRECTORY),
                (Some(Directory), Regular) => Err(IS_DIRECTORY),
                _ => {
                    after[place] = None;
                    Ok(())
                }
            },
        };
        let is_it = expected == *answer
            // POSIX requires EPERM for a directory; Linux returns EISDIR.
            || matches!(self, Remove(..)) && (expected, *answer) == (Err(IS_DIRECTORY), Err(NOT_PERMITTED))
            // Permissions are set in a separate step, which may be too late.
            || matches!(self, Make(..)) && (expected, *answer) == (Ok(()), Err(NOT_FOUND));
        is_it.then_some(after)
    }
}

/// Returns whether these results and states are possible for some sequential order.
fn may_be(lists: &[&[Turn]], answers: &[Vec<Answer<()>>], start: Places, end: Places) -> bool {
    let mut todo = vec![(vec![0; lists.len()], start)];
    let mut seen = HashSet::new();
    while let Some((done, places)) = todo.pop() {
        if !seen.insert((done.clone(), places)) {
            continue;
        }
        if places == end && done.iter().zip(lists).all(|(&done, list)| done == list.len()) {
            return true;
        }
        for (who, list) in lists.iter().enumerate() {
            let Some((turn, answer)) = list.get(done[who]).zip(answers[who].get(done[who])) else { continue };
            if let Some(after) = turn.after(places, answer) {
                let mut done = done.clone();
                done[who] += 1;
                todo.push((done, after));
            }
        }
    }
    false
}

fn found(room: &CaseDirectory<'_>) -> Places {
    NAMES.map(|name| match room.look(name) {
        Err(NOT_FOUND) => None,
        seen => Some(seen.expect("a name").kind),
    })
}

pub(super) fn in_turn(room: &mut CaseDirectory<'_>) {
    room.dir("a");
    room.dir("b");
    let lists: Vec<Vec<Op>> =
        LISTS.iter().map(|list| list.iter().map(|turn| turn.op(room)).collect()).collect();
    let mut done = 0;
    for _ in 0..ROUNDS {
        let start = found(room);
        let answers = room.host.together(&lists);
        let end = found(room);
        assert!(may_be(&LISTS, &answers, start, end), "{start:?} became {end:?} by {answers:?}");
        done += answers.iter().flatten().filter(|answer| answer.is_ok()).count();
        // Otherwise a directory at one name and a file at the other could block each other forever.
        for (name, kind) in NAMES.into_iter().zip(end) {
            let removed = match kind {
                Some(Directory) => room.rmdir(name),
                Some(_) => room.unlink(name),
                None => Ok(()),
            };
            assert_eq!(removed, Ok(()), "each listed name exists: {name}");
        }
    }
    assert!(done >= ROUNDS, "{done} succeeded");
    // Remaining entries must not prevent the removal of the directory.
    for dir in ["a", "b"] {
        assert!(room.names(dir).is_empty());
        assert_eq!(room.rmdir(dir), Ok(()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: Places = [None, None];

    #[test]
    fn results_that_no_order_produces_are_detected() {
        let make = [Make(0, Directory)];
        let remove = [Remove(0, Directory)];
        let lists: [&[Turn]; 2] = [&make, &remove];
        let both = [vec![Ok(())], vec![Ok(())]];
        assert!(may_be(&lists, &both, EMPTY, EMPTY));
        // The directory still exists, although it was removed.
        assert!(!may_be(&lists, &both, EMPTY, [Some(Directory), None]));
        let too_early = [vec![Ok(())], vec![Err(NOT_FOUND)]];
        assert!(may_be(&lists, &too_early, EMPTY, [Some(Directory), None]));
        assert!(!may_be(&lists, &too_early, EMPTY, EMPTY));
        // No operation created a file.
        assert!(!may_be(&lists, &[vec![Ok(())], vec![Err(NOT_DIRECTORY)]], EMPTY, [Some(Directory), None]));
    }

    #[test]
    fn each_thread_keeps_the_order_of_its_operations() {
        let list: [&[Turn]; 1] = [&[Remove(0, Directory), Make(0, Directory)]];
        assert!(!may_be(&list, &[vec![Ok(()), Ok(())]], EMPTY, EMPTY));
        assert!(may_be(&list, &[vec![Err(NOT_FOUND), Ok(())]], EMPTY, [Some(Directory), None]));
    }
}
