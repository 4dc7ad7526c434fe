//! Passing an open volume to another process.
//!
//! The format stores no inode numbers. The state therefore contains the inode numbers that are not places, the files
//! without a name, and the directories that have been read: without its directory, an inode number is not accepted.
//!
//! Layout, in little-endian 64-bit numbers: the version; whether the volume was marked as in use before it was opened;
//! the number of assigned inode numbers. Then four lists, each after its length: inode numbers with their places; inode
//! numbers with their generations; files without a name, each with its former directory, the length of its entry and
//! the entry; directories, each after its parent.
//! Invariant: a state that is cut, is too long or has another version is refused, so that the process that has the
//! volume open continues to use it.

use alloc::vec::Vec;

use hashbrown::HashMap;
use obento_base::wire::{le, to_u64, to_usize};
use obento_base::{Cursor, Error, Ino, Result};

use crate::inode::FileEntry;
use crate::mount_state::FirstMark;
use crate::numbers::NumberLists;
use crate::unit::Slot;
use crate::volume::Volume;

/// The version of the layout.
const VERSION: u64 = 1;

/// Returns the state of `volume`, whose changes are all on the device.
pub(crate) fn export<V: Volume>(volume: &V, mark: FirstMark) -> Result<Vec<u8>> {
    let lists = volume.numbers().export();
    let mut out = Encoder(Vec::new());
    out.numbers([VERSION, u64::from(mark == FirstMark::InUse), lists.given])?;
    out.pairs(lists.places.iter().map(|(ino, slot)| [ino.0, slot.0]))?;
    out.pairs(lists.lives.iter().map(|&(ino, lives)| [ino.0, lives.into()]))?;
    out.numbers([to_u64(lists.orphans.len())])?;
    for (ino, entry, dir) in &lists.orphans {
        let bytes = entry.to_bytes();
        out.numbers([ino.0, dir.0, to_u64(bytes.len())])?;
        out.bytes(&bytes)?;
    }
    let directories = parents_first(&volume.directories());
    out.numbers([to_u64(directories.len())])?;
    directories.iter().try_for_each(|ino| out.numbers([ino.0]))?;
    Ok(out.0)
}

/// Gives `volume`, which has just been opened, the state that another process exported. Returns the mark that the
/// volume had before that process opened it. Fails with `Invalid` if the state is invalid, or if a directory cannot be
/// read.
pub(crate) fn import<V: Volume>(volume: &V, state: &[u8]) -> Result<FirstMark> {
    let (mark, lists, directories) = decode::<V::Entry>(state).ok_or(Error::Invalid)?;
    volume.mount_state().numbers.write().import(lists)?;
    for ino in directories {
        match volume.directory(ino) {
            // The directory was removed.
            Ok(_) | Err(Error::Stale) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(mark)
}

type Decoded<E> = (FirstMark, NumberLists<E>, Vec<Ino>);

fn decode<E: FileEntry>(state: &[u8]) -> Option<Decoded<E>> {
    let mut cursor = Cursor::new(state);
    let input = &mut cursor;
    if number(input)? != VERSION {
        return None;
    }
    let mark = match number(input)? {
        0 => FirstMark::Unused,
        1 => FirstMark::InUse,
        _ => return None,
    };
    let given = number(input)?;
    let places = list(input, |input| Some((Ino(number(input)?), Slot(number(input)?))))?;
    let lives = list(input, |input| Some((Ino(number(input)?), u32::try_from(number(input)?).ok()?)))?;
    let orphans = list(input, |input| {
        let (ino, dir, len) = (Ino(number(input)?), Ino(number(input)?), number(input)?);
        Some((ino, E::from_bytes(input.take(to_usize(len))?)?, dir))
    })?;
    let directories = list(input, |input| number(input).map(Ino))?;
    input.is_empty().then_some((mark, NumberLists { places, lives, orphans, given }, directories))
}

fn number(input: &mut Cursor<'_>) -> Option<u64> {
    input.take_raw::<le::U64>().map(|number| number.get())
}

/// Decodes a list. Its memory follows the bytes that are present, not its length field.
fn list<'a, T>(input: &mut Cursor<'a>, mut item: impl FnMut(&mut Cursor<'a>) -> Option<T>) -> Option<Vec<T>> {
    let mut items = Vec::new();
    for _ in 0..number(input)? {
        let item = item(input)?;
        items.try_reserve(1).ok()?;
        items.push(item);
    }
    Some(items)
}

struct Encoder(Vec<u8>);

impl Encoder {
    fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.try_reserve(bytes.len())?;
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn numbers<const N: usize>(&mut self, numbers: [u64; N]) -> Result<()> {
        numbers.iter().try_for_each(|number| self.bytes(&number.to_le_bytes()))
    }

    fn pairs(&mut self, pairs: impl ExactSizeIterator<Item = [u64; 2]>) -> Result<()> {
        self.numbers([to_u64(pairs.len())])?;
        pairs.into_iter().try_for_each(|pair| self.numbers(pair))
    }
}

/// Returns directories in an order in which each follows its parent: the place of an entry is accepted only if the
/// directory that contains the entry is known. `directories` contains each directory with its parent.
fn parents_first(directories: &[(Ino, Ino)]) -> Vec<Ino> {
    let parents: HashMap<Ino, Ino> = directories.iter().copied().collect();
    let depth = |ino: Ino| {
        let above =
            core::iter::successors(Some(ino), |ino| parents.get(ino).copied().filter(|dir| dir != ino));
        // The parent of a removed directory may have been removed, and its number used again.
        above.take(directories.len()).count()
    };
    let mut ordered: Vec<_> = directories.iter().map(|&(ino, _)| (depth(ino), ino)).collect();
    ordered.sort_unstable();
    ordered.into_iter().map(|(_, ino)| ino).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::Numbers;
    use crate::time::Zone;
    use crate::{ROOT, Times};
    use obento_base::{FileKind, Generation, Timestamp};
    use std::vec;

    /// An entry of one byte.
    #[derive(Clone, PartialEq, Eq, Debug)]
    struct Tiny(u8);

    impl FileEntry for Tiny {
        fn new(_: FileKind) -> Self {
            Self(0)
        }
        fn file_kind(&self) -> FileKind {
            FileKind::Regular
        }
        fn is_read_only(&self) -> bool {
            false
        }
        fn set_read_only(&mut self, _: bool) {}
        fn set_archive(&mut self) {}
        fn times(&self, _: Zone) -> Times {
            Times { mtime: Timestamp::EPOCH, atime: Timestamp::EPOCH, btime: None }
        }
        fn set_mtime(&mut self, _: Timestamp, _: Zone) {}
        fn set_atime(&mut self, _: Timestamp, _: Zone) {}
        fn set_btime(&mut self, _: Timestamp, _: Zone) {}
        fn to_bytes(&self) -> Vec<u8> {
            vec![self.0]
        }
        fn from_bytes(bytes: &[u8]) -> Option<Self> {
            <[u8; 1]>::try_from(bytes).ok().map(|[byte]| Self(byte))
        }
    }

    /// Returns an encoded state with one item in each list.
    fn state() -> Vec<u8> {
        let mut out = Encoder(Vec::new());
        out.numbers([VERSION, 1, 4]).unwrap();
        out.pairs([[40, 50]].into_iter()).unwrap();
        out.pairs([[60, 3]].into_iter()).unwrap();
        out.numbers([1, 70, 1, 1]).unwrap();
        out.bytes(&[9]).unwrap();
        out.numbers([1, 1]).unwrap();
        out.0
    }

    #[test]
    fn numbers_generations_and_nameless_files_are_decoded_as_they_were_encoded() {
        let (mark, lists, directories) = decode::<Tiny>(&state()).unwrap();
        assert_eq!((mark, directories), (FirstMark::InUse, vec![ROOT]));
        let mut numbers = Numbers::default();
        numbers.import(lists).unwrap();
        assert_eq!(numbers.ino_at(Slot(50)), Ino(40));
        assert_eq!(numbers.slot_of(Ino(40)), Some(Slot(50)));
        assert_eq!(numbers.generation(Ino(60)), Generation(3));
        assert_eq!(numbers.orphan(Ino(70)), Some((Tiny(9), ROOT)));
        assert_eq!(numbers.export().given, 4, "no number is assigned twice");
    }

    #[test]
    fn a_cut_or_longer_state_and_another_version_are_refused() {
        let whole = state();
        for len in 0..whole.len() {
            assert!(decode::<Tiny>(&whole[..len]).is_none(), "{len}");
        }
        assert!(decode::<Tiny>(&[&whole[..], &[0]].concat()).is_none());
        // The version, the mark, and the length of a list.
        for at in [0, 8, 31] {
            let mut changed = whole.clone();
            changed[at] ^= 0x80;
            assert!(decode::<Tiny>(&changed).is_none(), "{at}");
        }
    }

    #[test]
    fn parents_precede_their_children_and_a_circle_ends() {
        let pair = |ino, parent| (Ino(ino), Ino(parent));
        let ordered = parents_first(&[pair(9, 5), pair(5, 7), pair(7, 1), pair(1, 1)]);
        assert_eq!(ordered, [Ino(1), Ino(7), Ino(5), Ino(9)]);
        assert_eq!(parents_first(&[pair(2, 3), pair(3, 2)]).len(), 2);
    }
}
