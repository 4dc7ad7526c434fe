//! The bytes of files, through the driver's own calls.

use obento_base::{Error, FileKind, Timestamp};
use obento_driver::{FileSystem, LayoutLock, SetAttr, Span, TimeChange};

use super::{attr, block, file, has, make, needs, read, truncate, writable, write};
use crate::outcome::{CTIME, HOLES, Lacks, Outcome};

const NO_PUNCH: Lacks = Lacks("no punching of holes");
const NOTHING_MAPPED: Lacks = Lacks("no data that is mapped");

/// "Publishes what was written ... Moves the size up to `written.end`."
pub fn what_was_written_is_read_and_moves_the_size(fs: &dyn FileSystem) -> Outcome {
    let (ino, block) = (file(fs, fs.root(), "f"), block(fs) as usize);
    let bytes: Vec<u8> = (0..5 * block).map(|n| (n / 7) as u8).collect();
    write(fs, ino, 0, &bytes).expect("space");
    assert_eq!(attr(fs, ino).size, bytes.len() as u64);
    assert!(read(fs, ino, 0, bytes.len(), 1001).expect("it was written") == bytes);
    write(fs, ino, block as u64, &[9; 10]).expect("it is there");
    assert_eq!(attr(fs, ino).size, bytes.len() as u64, "the size never goes down");
    assert_eq!(read(fs, ino, block as u64 - 1, 12, 99).expect("it was written")[1..11], [9; 10]);
    assert!(attr(fs, ino).blocks >= (bytes.len() / 512) as u64);
    Ok(())
}

/// "Nowhere: reads as zeros."
pub fn what_was_never_written_is_zeros_and_takes_no_space(fs: &dyn FileSystem) -> Outcome {
    needs(fs, HOLES)?;
    let (ino, block) = (file(fs, fs.root(), "f"), block(fs));
    let far = 1000 * block;
    write(fs, ino, far, &vec![1; block as usize]).expect("space");
    assert_eq!(attr(fs, ino).size, far + block);
    assert!(attr(fs, ino).blocks < far / 512);
    let lock = LayoutLock::new();
    let hole = fs.map(&lock.shared(), ino, 5..far + 1).expect("a sound file");
    assert!(hole.span.is_zeros());
    assert_eq!(read(fs, ino, far - 100, 101, 4096).expect("a sound file")[99..], [0, 1]);
    Ok(())
}

/// `map_for_write`: "Only reserves: until `end_write`, a reader and a crash see the old contents."
pub fn nothing_is_read_of_what_was_reserved_until_end_write(fs: &dyn FileSystem) -> Outcome {
    needs(fs, HOLES)?;
    let (ino, block) = (file(fs, fs.root(), "f"), block(fs));
    truncate(fs, ino, 4 * block).expect("a size");
    let lock = LayoutLock::new();
    let layout = lock.shared();
    let extent = writable(fs).map_for_write(&layout, ino, block..2 * block).expect("space");
    assert_eq!(read(fs, ino, 0, 4 * block as usize, 4096), Ok(vec![0; 4 * block as usize]));
    if let Span::Mapped(at) = extent.span {
        let device = fs.device().expect("what is mapped is on the device");
        device.write_at(at, &vec![6; block as usize]).expect("a sound device");
        assert_eq!(read(fs, ino, block, 10, 10), Ok(vec![0; 10]));
        writable(fs).end_write(&layout, ino, block..2 * block, TimeChange::Now).expect("a sound device");
        assert_eq!(read(fs, ino, block - 1, 3, 3), Ok(vec![0, 6, 6]));
    }
    writable(fs).abandon(&layout, ino, 0..4 * block);
    Ok(())
}

/// `end_write`: "`mtime` becomes `when` ...; so does `ctime`, unless it is later." `now`: "The time by the clock that
/// changes are stamped by."
pub fn end_write_stamps_the_moment_that_it_is_told_and_takes_no_later_ctime_back(
    fs: &dyn FileSystem,
) -> Outcome {
    needs(fs, CTIME)?;
    let (ino, block) = (file(fs, fs.root(), "f"), block(fs));
    let lock = LayoutLock::new();
    let layout = lock.shared();
    let stamp = |secs| TimeChange::At(Timestamp::new(secs, 0));
    let mut end = 0;
    for (ctime, when, expected) in [(1000, 2000, [2000, 2000]), (3000, 2500, [2500, 3000])] {
        let (start, change) = (end, SetAttr { ctime: Some(stamp(ctime)), ..SetAttr::default() });
        end += block;
        // Past what the format keeps in the inode itself.
        let extent = writable(fs).map_for_write(&layout, ino, start..end).expect("space");
        let Span::Mapped(at) = extent.span else { return Err(NOTHING_MAPPED) };
        fs.device().expect("what is mapped is on the device").write_at(at, &vec![6; block as usize]).unwrap();
        writable(fs).set_attr(ino, &change).expect("a time");
        writable(fs).end_write(&layout, ino, start..end, stamp(when)).expect("a sound device");
        let found = attr(fs, ino);
        assert_eq!([found.mtime, found.ctime].map(|time| time.secs()), expected);
    }
    let before = writable(fs).now();
    write(fs, ino, 0, &vec![1; block as usize]).expect("it is there");
    let grain = i64::from(fs.limits().time_granularity >= 1_000_000_000);
    let found = attr(fs, ino).mtime.secs();
    assert!((before.secs() - grain..=writable(fs).now().secs()).contains(&found), "{found}");
    Ok(())
}

/// `abandon`: "Gives back what `map_for_write` reserved and nobody wrote."
pub fn abandon_gives_back_what_nobody_wrote(fs: &dyn FileSystem) -> Outcome {
    let (ino, block) = (file(fs, fs.root(), "f"), block(fs));
    write(fs, ino, 0, &vec![3; block as usize]).expect("space");
    let free = fs.statfs().expect("use").free;
    let lock = LayoutLock::new();
    let layout = lock.shared();
    writable(fs).map_for_write(&layout, ino, block..20 * block).expect("space");
    writable(fs).abandon(&layout, ino, 0..20 * block);
    assert_eq!(fs.statfs().expect("use").free, free);
    assert_eq!(attr(fs, ino).size, block);
    assert_eq!(read(fs, ino, 0, block as usize, 4096), Ok(vec![3; block as usize]), "what was written stays");
    Ok(())
}

/// `truncate`: "Sets the size. Bytes past it are gone".
pub fn truncate_drops_what_lies_past_the_size(fs: &dyn FileSystem) -> Outcome {
    let (ino, block) = (file(fs, fs.root(), "f"), block(fs));
    let before = fs.statfs().expect("use").free;
    write(fs, ino, 0, &vec![3; 10 * block as usize]).expect("space");
    truncate(fs, ino, 3 * block).expect("a size");
    assert_eq!(attr(fs, ino).size, 3 * block);
    assert_eq!(read(fs, ino, 3 * block - 2, 4, 4), Ok(vec![3, 3, 0, 0]));
    truncate(fs, ino, 10 * block).expect("a size");
    let kept = read(fs, ino, 0, 10 * block as usize, 4096).expect("a sound file");
    assert!(kept[..3 * block as usize].iter().all(|&byte| byte == 3));
    assert!(kept[3 * block as usize..].iter().all(|&byte| byte == 0));
    truncate(fs, ino, 0).expect("a size");
    assert_eq!(fs.statfs().expect("use").free, before);
    Ok(())
}

/// `truncate`: "nothing is allocated".
pub fn truncate_allocates_nothing(fs: &dyn FileSystem) -> Outcome {
    needs(fs, HOLES)?;
    let ino = file(fs, fs.root(), "f");
    let before = fs.statfs().expect("use").free;
    truncate(fs, ino, fs.limits().file_size_max).expect("a size");
    assert_eq!((fs.statfs().expect("use").free, attr(fs, ino).size), (before, fs.limits().file_size_max));
    Ok(())
}

/// `punch`: "Makes `range` ... a hole within the unchanged size."
pub fn punch_makes_a_hole_within_the_same_size(fs: &dyn FileSystem) -> Outcome {
    let ino = file(fs, fs.root(), "f");
    // A format may hand out space by more than one block.
    const BLOCKS: u64 = 16;
    let part = BLOCKS * block(fs);
    write(fs, ino, 0, &vec![5; 6 * part as usize]).expect("space");
    let free = fs.statfs().expect("use").free;
    let lock = LayoutLock::new();
    match writable(fs).punch(&lock.exclusive(), ino, 2 * part..4 * part) {
        Err(Error::NotSupported) => return Err(NO_PUNCH),
        punched => punched.expect("whole blocks"),
    }
    assert_eq!(attr(fs, ino).size, 6 * part);
    assert_eq!(fs.statfs().expect("use").free, free + 2 * BLOCKS);
    let hole = fs.map(&lock.shared(), ino, 2 * part..6 * part).expect("a sound file");
    assert_eq!((hole.span, hole.len), (Span::Hole, 2 * part));
    assert_eq!(read(fs, ino, 2 * part - 1, 2, 2), Ok(vec![5, 0]));
    assert_eq!(read(fs, ino, 4 * part - 1, 2, 2), Ok(vec![0, 5]));
    Ok(())
}

/// `punch`: "`range`, which is whole blocks or reaches the end of the file"; "Invalid ... for parts of blocks".
pub fn punch_refuses_parts_of_blocks_but_at_the_end_of_the_file(fs: &dyn FileSystem) -> Outcome {
    let (ino, block) = (file(fs, fs.root(), "f"), block(fs));
    write(fs, ino, 0, &vec![5; 3 * block as usize]).expect("space");
    truncate(fs, ino, 3 * block - 7).expect("a size");
    let lock = LayoutLock::new();
    let punch = |range| writable(fs).punch(&lock.exclusive(), ino, range);
    if punch(0..block) == Err(Error::NotSupported) {
        return Err(NO_PUNCH);
    }
    assert_eq!(punch(1..2 * block), Err(Error::Invalid));
    assert_eq!(punch(block..2 * block - 1), Err(Error::Invalid));
    assert_eq!(punch(2 * block..3 * block - 7), Ok(()));
    assert_eq!(attr(fs, ino).size, 3 * block - 7);
    assert_eq!(read(fs, ino, 2 * block - 1, 2, 2), Ok(vec![5, 0]));
    Ok(())
}

/// `truncate`, `map_for_write`, `write`, `punch`: "IsDirectory; Invalid for what is no regular file".
pub fn data_calls_refuse_what_is_no_regular_file(fs: &dyn FileSystem) -> Outcome {
    let lock = LayoutLock::new();
    let kinds = [
        ("d", FileKind::Directory, Error::IsDirectory),
        ("l", FileKind::Symlink, Error::Invalid),
        ("p", FileKind::Fifo, Error::Invalid),
    ];
    for (text, kind, expected) in kinds.into_iter().filter(|(_, kind, _)| has(fs, *kind)) {
        let ino = make(fs, fs.root(), text, kind);
        assert_eq!(truncate(fs, ino, 0), Err(expected));
        assert_eq!(writable(fs).map_for_write(&lock.shared(), ino, 0..1), Err(expected));
        assert_eq!(writable(fs).write(&lock.shared(), ino, 0, b"x"), Err(expected));
        let punched = writable(fs).punch(&lock.exclusive(), ino, 0..block(fs));
        assert!(matches!(punched, Err(error) if error == expected || error == Error::NotSupported));
        writable(fs).abandon(&lock.shared(), ino, 0..1);
    }
    let plain = file(fs, fs.root(), "f");
    assert_eq!(writable(fs).map_for_write(&lock.shared(), plain, 3..3), Err(Error::Invalid));
    Ok(())
}

/// `truncate`, `map_for_write`: "FileTooBig".
pub fn a_size_past_the_largest_is_file_too_big(fs: &dyn FileSystem) -> Outcome {
    let (ino, max) = (file(fs, fs.root(), "f"), fs.limits().file_size_max);
    if let Some(past) = max.checked_next_multiple_of(block(fs)).and_then(|end| end.checked_add(1)) {
        let lock = LayoutLock::new();
        assert_eq!(truncate(fs, ino, past), Err(Error::FileTooBig));
        assert_eq!(writable(fs).map_for_write(&lock.shared(), ino, max..past), Err(Error::FileTooBig));
    }
    assert_eq!(attr(fs, ino).size, 0);
    Ok(())
}
