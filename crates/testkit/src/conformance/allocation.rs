//! Space that is allocated, zeroed, collapsed and inserted, as in `fallocate(2)`.

use std::ops::Range;

use obento_base::{Error, FileKind, Ino, Result};
use obento_driver::{FileSystem, LayoutLock, Size, Span};

use super::{attr, block, file, has, make, read, truncate, writable, write};
use crate::outcome::{Lacks, Outcome};

/// A format may allocate more than one block at a time.
const BLOCKS: u64 = 16;
/// Also an empty range.
const BACKWARDS: Range<u64> = Range { start: 7, end: 3 };

fn part(fs: &dyn FileSystem) -> u64 {
    BLOCKS * block(fs)
}

/// Returns the number of free blocks after all pending writes are allocated.
fn free(fs: &dyn FileSystem) -> u64 {
    writable(fs).sync().expect("a sound device");
    fs.statfs().expect("use").free
}

fn allocate(fs: &dyn FileSystem, ino: Ino, range: Range<u64>, size: Size) -> Result<()> {
    writable(fs).allocate(&LayoutLock::new().shared(), ino, range, size)
}

fn zero(fs: &dyn FileSystem, ino: Ino, range: Range<u64>, size: Size) -> Result<()> {
    writable(fs).zero_range(&LayoutLock::new().exclusive(), ino, range, size)
}

fn collapse(fs: &dyn FileSystem, ino: Ino, range: Range<u64>) -> Result<()> {
    writable(fs).collapse(&LayoutLock::new().exclusive(), ino, range)
}

fn insert(fs: &dyn FileSystem, ino: Ino, range: Range<u64>) -> Result<()> {
    writable(fs).insert(&LayoutLock::new().exclusive(), ino, range)
}

/// Converts `NotSupported` to a refusal with `words`. Panics on any other error.
fn supported(answer: Result<()>, words: &'static str) -> Outcome {
    match answer {
        Err(Error::NotSupported) => Err(Lacks(words)),
        other => {
            other.expect("a file, a range and room");
            Ok(())
        }
    }
}

/// Creates a file of `parts`, each with a different byte from 1 on.
fn filled(fs: &dyn FileSystem, parts: u8) -> Ino {
    let (ino, part) = (file(fs, fs.root(), "f"), part(fs));
    for n in 0..parts {
        write(fs, ino, u64::from(n) * part, &vec![n + 1; part as usize]).expect("space");
    }
    ino
}

/// Checks that the file has these parts, each of one byte, and that the last one ends at its size.
fn holds(fs: &dyn FileSystem, ino: Ino, parts: &[u8]) {
    let (part, size) = (part(fs) as usize, attr(fs, ino).size as usize);
    let expected = parts.iter().flat_map(|&byte| vec![byte; part]).take(size);
    let found = read(fs, ino, 0, size, 10_000).expect("a sound file");
    assert!(found.into_iter().eq(expected), "other bytes than those of {parts:?}");
}

/// The errors are `IsDirectory`, and `Invalid` for other inodes that are not regular files, even if the call is not
/// supported.
fn refuses_everything_except_files(fs: &dyn FileSystem, call: impl Fn(Ino, Range<u64>) -> Result<()>) {
    let kinds = [
        ("d", FileKind::Directory, Error::IsDirectory),
        ("l", FileKind::Symlink, Error::Invalid),
        ("p", FileKind::Fifo, Error::Invalid),
    ];
    for (text, kind, expected) in kinds.into_iter().filter(|(_, kind, _)| has(fs, *kind)) {
        let ino = make(fs, fs.root(), text, kind);
        for range in [0..part(fs), 1..1] {
            assert_eq!(call(ino, range.clone()), Err(expected), "{kind:?}, {range:?}");
        }
    }
}

/// `Invalid` for an empty range, and for parts of blocks.
fn refuses_ranges(
    ranges: impl IntoIterator<Item = Range<u64>>,
    call: impl Fn(Range<u64>) -> Result<()>,
    lacks: Outcome,
) {
    for range in ranges {
        let refused = call(range.clone());
        let is_reported =
            refused == Err(Error::Invalid) || lacks.is_err() && refused == Err(Error::NotSupported);
        assert!(is_reported, "{range:?}: {refused:?}");
    }
}

/// `allocate`: all blocks of the range are allocated, holes read as zeros, and existing data stays.
pub fn allocated_space_reads_as_zeros_and_existing_data_stays(fs: &dyn FileSystem) -> Outcome {
    let (ino, part) = (file(fs, fs.root(), "f"), part(fs));
    supported(allocate(fs, ino, 0..part, Size::Grow), NO_ALLOCATION)?;
    let before = free(fs);
    write(fs, ino, 0, &vec![7; part as usize]).expect("it exists");
    assert!(free(fs) >= before, "it had its space");
    assert_eq!(allocate(fs, ino, 1..3 * part, Size::Grow), Ok(()));
    holds(fs, ino, &[7, 0, 0]);
    let found = attr(fs, ino);
    assert_eq!(found.size, 3 * part);
    assert!(found.blocks >= 3 * part / 512 && free(fs) <= before - 2 * BLOCKS);
    assert_eq!(allocate(fs, ino, 0..part, Size::Grow), Ok(()), "nothing is left to do");
    assert_eq!(attr(fs, ino).size, 3 * part, "the size never decreases");
    Ok(())
}

/// `allocate`: a later write to the range needs no space.
pub fn allocated_space_is_writable_on_a_full_volume(fs: &dyn FileSystem) -> Outcome {
    let (ino, part) = (file(fs, fs.root(), "f"), part(fs));
    supported(allocate(fs, ino, 0..3 * part, Size::Grow), NO_ALLOCATION)?;
    let (others, mut at) = (file(fs, fs.root(), "others"), 0);
    for piece in [64 * part, part, block(fs)] {
        let bytes = vec![4; piece as usize];
        while write(fs, others, at, &bytes) != Err(Error::NoSpace) {
            at = attr(fs, others).size;
        }
        at = attr(fs, others).size;
    }
    write(fs, ino, part, &vec![2; part as usize]).expect("it has its space");
    holds(fs, ino, &[0, 2, 0]);
    for (n, byte) in [(0, 1), (2, 3)] {
        write(fs, ino, n * part, &vec![byte; part as usize]).expect("it has its space");
    }
    holds(fs, ino, &[1, 2, 3]);
    Ok(())
}

/// `Size::Keep`: the size stays.
pub fn space_past_the_end_keeps_the_size_if_requested(fs: &dyn FileSystem) -> Outcome {
    let (ino, part) = (filled(fs, 1), part(fs));
    let before = free(fs);
    supported(allocate(fs, ino, 0..3 * part, Size::Keep), "no space past the end of a file")?;
    assert_eq!(attr(fs, ino).size, part);
    assert!(free(fs) <= before - 2 * BLOCKS, "the space is allocated");
    truncate(fs, ino, 3 * part).expect("a size");
    holds(fs, ino, &[1, 0, 0]);
    truncate(fs, ino, 0).expect("a size");
    assert!(free(fs) >= before + BLOCKS, "the space is freed with the bytes");
    Ok(())
}

const NO_ALLOCATION: &str = "no allocation of space";

/// `allocate`: the errors, in order, are `IsDirectory`; `Invalid`; `NotSupported`; `FileTooBig`; `NoSpace`. The size
/// changes last.
pub fn allocate_tests_its_errors_in_order(fs: &dyn FileSystem) -> Outcome {
    refuses_everything_except_files(fs, |ino, range| allocate(fs, ino, range, Size::Grow));
    let (ino, part) = (file(fs, fs.root(), "f"), part(fs));
    let lacks = supported(allocate(fs, ino, 0..part, Size::Grow), NO_ALLOCATION);
    refuses_ranges([0..0, part..part, BACKWARDS], |range| allocate(fs, ino, range, Size::Grow), lacks);
    lacks?;
    truncate(fs, ino, 0).expect("a size");
    let (max, before) = (fs.limits().file_size_max, free(fs));
    if let Some(past) = max.checked_add(1) {
        assert_eq!(allocate(fs, ino, 0..past, Size::Grow), Err(Error::FileTooBig));
        let lacks_keep = allocate(fs, ino, 0..part, Size::Keep) == Err(Error::NotSupported);
        let expected = if lacks_keep { Error::NotSupported } else { Error::FileTooBig };
        assert_eq!(allocate(fs, ino, 0..past, Size::Keep), Err(expected));
        truncate(fs, ino, 0).expect("a size");
    }
    let all = (fs.statfs().expect("use").blocks + 1) * block(fs);
    assert_eq!(allocate(fs, ino, 0..all, Size::Grow), Err(Error::NoSpace));
    assert_eq!(attr(fs, ino).size, 0);
    truncate(fs, ino, 0).expect("a size");
    assert_eq!(free(fs), before, "the allocated space is freed");
    Ok(())
}

const NO_ZEROING: &str = "no zeroing of ranges";

/// `zero_range`: the range reads as zeros and stays allocated.
pub fn a_zeroed_range_keeps_its_space(fs: &dyn FileSystem) -> Outcome {
    let (ino, part) = (filled(fs, 6), part(fs));
    let (before, blocks) = (free(fs), attr(fs, ino).blocks);
    supported(zero(fs, ino, 2 * part..4 * part, Size::Keep), NO_ZEROING)?;
    holds(fs, ino, &[1, 2, 0, 0, 5, 6]);
    assert_eq!(attr(fs, ino).size, 6 * part);
    assert!(attr(fs, ino).blocks >= blocks && free(fs) <= before);
    let lock = LayoutLock::new();
    let extent = fs.map(&lock.shared(), ino, 2 * part..4 * part).expect("a sound file");
    assert_ne!(extent.span, Span::Hole, "it has blocks");
    truncate(fs, ino, 6 * part - 7).expect("a size");
    assert_eq!(zero(fs, ino, 5 * part..6 * part - 7, Size::Keep), Ok(()), "it reaches the end");
    holds(fs, ino, &[1, 2, 0, 0, 5, 0]);
    assert_eq!(attr(fs, ino).size, 6 * part - 7);
    Ok(())
}

/// `zero_range` with and without growth of the file.
pub fn zeros_past_the_end_extend_the_size_if_requested(fs: &dyn FileSystem) -> Outcome {
    let (ino, part) = (filled(fs, 2), part(fs));
    let before = free(fs);
    supported(zero(fs, ino, part..4 * part, Size::Keep), NO_ZEROING)?;
    assert_eq!(attr(fs, ino).size, 2 * part);
    assert!(free(fs) <= before - 2 * BLOCKS, "it has blocks");
    assert_eq!(zero(fs, ino, part..4 * part, Size::Grow), Ok(()));
    assert_eq!(attr(fs, ino).size, 4 * part);
    holds(fs, ino, &[1, 0, 0, 0]);
    Ok(())
}

/// `zero_range`: the errors, in order, are `IsDirectory`; `Invalid`; `NotSupported`; `FileTooBig`; `NoSpace`.
pub fn zero_range_tests_its_errors_in_order(fs: &dyn FileSystem) -> Outcome {
    refuses_everything_except_files(fs, |ino, range| zero(fs, ino, range, Size::Grow));
    let (ino, part) = (filled(fs, 2), part(fs));
    let lacks = supported(zero(fs, ino, 0..part, Size::Keep), NO_ZEROING);
    let parts = [0..0, BACKWARDS, 1..part, 0..part - 1];
    refuses_ranges(parts, |range| zero(fs, ino, range, Size::Keep), lacks);
    lacks?;
    if let Some(past) = fs.limits().file_size_max.checked_add(1) {
        assert_eq!(zero(fs, ino, 0..past, Size::Grow), Err(Error::FileTooBig));
    }
    holds(fs, ino, &[0, 2]);
    let all = (fs.statfs().expect("use").blocks + 1) * block(fs);
    assert_eq!(zero(fs, ino, 0..all, Size::Grow), Err(Error::NoSpace));
    assert_eq!(attr(fs, ino).size, 2 * part, "the size moves last");
    Ok(())
}

const NO_COLLAPSE: &str = "no removal of ranges";

/// `collapse`: removes the range; later data moves down, and the size shrinks by the length of the range.
pub fn the_data_after_a_removed_range_moves_down(fs: &dyn FileSystem) -> Outcome {
    let (ino, part) = (filled(fs, 6), part(fs));
    truncate(fs, ino, 6 * part - 7).expect("a size");
    let before = free(fs);
    supported(collapse(fs, ino, part..3 * part), NO_COLLAPSE)?;
    assert_eq!(attr(fs, ino).size, 4 * part - 7);
    holds(fs, ino, &[1, 4, 5, 6]);
    assert_eq!(collapse(fs, ino, 0..part), Ok(()));
    assert_eq!(attr(fs, ino).size, 3 * part - 7);
    holds(fs, ino, &[4, 5, 6]);
    assert!(free(fs) >= before + 3 * BLOCKS, "the space is freed");
    Ok(())
}

/// `collapse`: `Invalid` for an inode that is not a regular file, an empty range, parts of blocks, and a range that
/// reaches the end of the file.
pub fn collapse_tests_its_errors_in_order(fs: &dyn FileSystem) -> Outcome {
    refuses_everything_except_files(fs, |ino, range| collapse(fs, ino, range));
    let (ino, part) = (filled(fs, 4), part(fs));
    let lacks = supported(collapse(fs, ino, 0..part), NO_COLLAPSE);
    let ranges = [0..0, BACKWARDS, 1..part, 0..part - 1, 2 * part..4 * part, 0..9 * part];
    refuses_ranges(ranges, |range| collapse(fs, ino, range), lacks);
    let left: &[u8] = if lacks.is_ok() { &[2, 3, 4] } else { &[1, 2, 3, 4] };
    assert_eq!(attr(fs, ino).size, left.len() as u64 * part);
    holds(fs, ino, left);
    lacks
}

const NO_INSERT: &str = "no insertion of holes";

/// `insert`: inserts a hole at the start of the range; later data moves up, and the size grows.
pub fn the_data_after_an_inserted_hole_moves_up(fs: &dyn FileSystem) -> Outcome {
    let (ino, part) = (filled(fs, 3), part(fs));
    truncate(fs, ino, 3 * part - 7).expect("a size");
    let blocks = attr(fs, ino).blocks;
    supported(insert(fs, ino, part..3 * part), NO_INSERT)?;
    assert_eq!(attr(fs, ino).size, 5 * part - 7);
    holds(fs, ino, &[1, 0, 0, 2, 3]);
    let lock = LayoutLock::new();
    let hole = fs.map(&lock.shared(), ino, part..4 * part).expect("a sound file");
    assert_eq!((hole.span, hole.len), (Span::Hole, 2 * part));
    assert_eq!(attr(fs, ino).blocks, blocks, "a hole takes no space");
    assert_eq!(insert(fs, ino, 0..part), Ok(()));
    holds(fs, ino, &[0, 1, 0, 0, 2, 3]);
    Ok(())
}

/// `insert`: `Invalid` for an inode that is not a regular file, an empty range, parts of blocks, and a range that
/// starts at or after the end of the file; `NotSupported`; `FileTooBig`.
pub fn insert_tests_its_errors_in_order(fs: &dyn FileSystem) -> Outcome {
    refuses_everything_except_files(fs, |ino, range| insert(fs, ino, range));
    let (ino, part) = (filled(fs, 2), part(fs));
    let lacks = supported(insert(fs, ino, 0..part), NO_INSERT);
    let end = attr(fs, ino).size;
    let ranges = [0..0, BACKWARDS, 1..part, 0..part - 1, end..end + part, end + part..end + 2 * part];
    refuses_ranges(ranges, |range| insert(fs, ino, range), lacks);
    let (left, long): (&[u8], _) = match lacks {
        Ok(()) => (&[0, 1, 2], fs.limits().file_size_max / part * part),
        Err(_) => (&[1, 2], part),
    };
    let refused = insert(fs, ino, 0..long);
    assert_eq!(refused, Err(if lacks.is_ok() { Error::FileTooBig } else { Error::NotSupported }));
    assert_eq!(attr(fs, ino).size, left.len() as u64 * part);
    holds(fs, ino, left);
    lacks
}
