//! The data of files, through the calls of the driver.

use obento_base::{Error, FileKind, Timestamp};
use obento_driver::{FileSystem, LayoutLock, SetAttr, Span, TimeChange};

use super::{attr, block, file, has, make, needs, read, truncate, writable, write};
use crate::outcome::{CTIME, HOLES, Lacks, Outcome};

const NO_PUNCH: Lacks = Lacks("no punching of holes");
const NOTHING_MAPPED: Lacks = Lacks("no mapped data");

/// A write becomes visible with `end_write`, and extends the file to `written.end`.
pub fn written_bytes_are_read_back_and_extend_the_size(fs: &dyn FileSystem) -> Outcome {
    let (ino, block) = (file(fs, fs.root(), "f"), block(fs) as usize);
    let bytes: Vec<u8> = (0..5 * block).map(|n| (n / 7) as u8).collect();
    write(fs, ino, 0, &bytes).expect("space");
    assert_eq!(attr(fs, ino).size, bytes.len() as u64);
    assert!(read(fs, ino, 0, bytes.len(), 1001).expect("it was written") == bytes);
    write(fs, ino, block as u64, &[9; 10]).expect("it exists");
    assert_eq!(attr(fs, ino).size, bytes.len() as u64, "the size never decreases");
    assert_eq!(read(fs, ino, block as u64 - 1, 12, 99).expect("it was written")[1..11], [9; 10]);
    assert!(attr(fs, ino).blocks >= (bytes.len() / 512) as u64);
    Ok(())
}

/// An unwritten part reads as zeros and takes no space.
pub fn unwritten_ranges_are_zeros_and_take_no_space(fs: &dyn FileSystem) -> Outcome {
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

/// `begin_write` only reserves space: until `end_write`, readers and a crash see the old contents.
pub fn reserved_blocks_are_not_read_until_end_write(fs: &dyn FileSystem) -> Outcome {
    needs(fs, HOLES)?;
    let (ino, block) = (file(fs, fs.root(), "f"), block(fs));
    truncate(fs, ino, 4 * block).expect("a size");
    let lock = LayoutLock::new();
    let layout = lock.shared();
    let ticket = writable(fs).begin_write(&layout, ino, block..2 * block).expect("space");
    assert!(ticket.was().is_zeros() || ticket.was() == Span::Driver);
    assert_eq!(read(fs, ino, 0, 4 * block as usize, 4096), Ok(vec![0; 4 * block as usize]));
    if let Span::Mapped(at) = ticket.extent().span {
        let device = fs.device().expect("mapped data is on the device");
        device.write_at(at, &vec![6; block as usize]).expect("a sound device");
        assert_eq!(read(fs, ino, block, 10, 10), Ok(vec![0; 10]));
        writable(fs).end_write(ticket, TimeChange::Now).expect("a sound device");
        assert_eq!(read(fs, ino, block - 1, 3, 3), Ok(vec![0, 6, 6]));
    }
    Ok(())
}

/// A ticket has the size and the modification time of the file, and the previous contents of the first block.
pub fn a_ticket_describes_the_file_before_the_write(fs: &dyn FileSystem) -> Outcome {
    let (ino, block) = (file(fs, fs.root(), "f"), block(fs));
    write(fs, ino, 0, &vec![3; 2 * block as usize]).expect("space");
    let lock = LayoutLock::new();
    let layout = lock.shared();
    let begin = |range| writable(fs).begin_write(&layout, ino, range).expect("space");
    let over = begin(5..9);
    assert_eq!((over.ino(), over.range()), (ino, 5..9));
    assert_eq!((over.size(), over.mtime()), (2 * block, attr(fs, ino).mtime));
    let stored = fs.map(&layout, ino, 5..9).expect("a sound file").span;
    assert_eq!(over.was(), stored);
    if stored != Span::Driver {
        assert_eq!(over.extent().span, stored, "data is overwritten in its place");
    }
    drop(over);
    let past = begin(2 * block + 1..3 * block);
    assert_eq!(past.size(), 2 * block);
    assert_eq!(past.frame(block).start, 2 * block, "the block is new");
    drop(past);
    assert_eq!(read(fs, ino, 0, 2 * block as usize, 4096), Ok(vec![3; 2 * block as usize]));
    Ok(())
}

/// A detached ticket keeps its blocks until `resume_write` publishes or releases them.
pub fn a_detached_write_is_resumed_with_its_blocks(fs: &dyn FileSystem) -> Outcome {
    let (ino, block) = (file(fs, fs.root(), "f"), block(fs));
    write(fs, ino, 0, &vec![3; block as usize]).expect("space");
    let lock = LayoutLock::new();
    let layout = lock.shared();
    let free = fs.statfs().expect("use").free;
    let begin = || writable(fs).begin_write(&layout, ino, block..3 * block).expect("space").detach();
    let begun = begin();
    let Span::Mapped(at) = begun.extent.span else { return Err(NOTHING_MAPPED) };
    assert_eq!(begin().extent, begun.extent, "the blocks stay reserved");
    fs.device().expect("mapped data is on the device").write_at(at, &vec![6; block as usize]).unwrap();
    let first = writable(fs).resume_write(&layout, ino, block..2 * block);
    writable(fs).end_write(first, TimeChange::Now).expect("a sound device");
    drop(writable(fs).resume_write(&layout, ino, 2 * block..3 * block));
    assert_eq!(attr(fs, ino).size, 2 * block);
    assert_eq!(read(fs, ino, block - 1, 3, 3), Ok(vec![3, 6, 6]));
    truncate(fs, ino, block).expect("a size");
    assert_eq!(fs.statfs().expect("use").free, free, "no block is lost");
    Ok(())
}

/// `end_write` sets `mtime` to `when`, and `ctime` unless it is later.
pub fn end_write_sets_the_given_time_and_never_moves_a_later_ctime_back(fs: &dyn FileSystem) -> Outcome {
    needs(fs, CTIME)?;
    let (ino, block) = (file(fs, fs.root(), "f"), block(fs));
    let lock = LayoutLock::new();
    let layout = lock.shared();
    let stamp = |secs| TimeChange::At(Timestamp::new(secs, 0));
    let mut end = 0;
    for (ctime, when, expected) in [(1000, 2000, [2000, 2000]), (3000, 2500, [2500, 3000])] {
        let (start, change) = (end, SetAttr { ctime: Some(stamp(ctime)), ..SetAttr::default() });
        end += block;
        // The range is longer than the data that the format stores in an inode.
        let ticket = writable(fs).begin_write(&layout, ino, start..end).expect("space");
        let Span::Mapped(at) = ticket.extent().span else { return Err(NOTHING_MAPPED) };
        fs.device().expect("mapped data is on the device").write_at(at, &vec![6; block as usize]).unwrap();
        writable(fs).set_attr(ino, &change).expect("a time");
        writable(fs).end_write(ticket, stamp(when)).expect("a sound device");
        let found = attr(fs, ino);
        assert_eq!([found.mtime, found.ctime].map(|time| time.secs()), expected);
    }
    let before = writable(fs).now();
    write(fs, ino, 0, &vec![1; block as usize]).expect("it exists");
    let grain = i64::from(fs.limits().time_granularity >= 1_000_000_000);
    let found = attr(fs, ino).mtime.secs();
    assert!((before.secs() - grain..=writable(fs).now().secs()).contains(&found), "{found}");
    Ok(())
}

/// Dropping a ticket frees the space that `begin_write` reserved.
pub fn a_dropped_ticket_releases_its_blocks(fs: &dyn FileSystem) -> Outcome {
    let (ino, block) = (file(fs, fs.root(), "f"), block(fs));
    write(fs, ino, 0, &vec![3; block as usize]).expect("space");
    let free = fs.statfs().expect("use").free;
    let lock = LayoutLock::new();
    let layout = lock.shared();
    drop(writable(fs).begin_write(&layout, ino, block..20 * block).expect("space"));
    assert_eq!(fs.statfs().expect("use").free, free);
    assert_eq!(attr(fs, ino).size, block);
    assert_eq!(read(fs, ino, 0, block as usize, 4096), Ok(vec![3; block as usize]), "written data stays");
    Ok(())
}

/// `truncate` removes the data past the new size.
pub fn truncate_drops_bytes_past_the_size(fs: &dyn FileSystem) -> Outcome {
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

/// `truncate` allocates no blocks.
pub fn truncate_allocates_nothing(fs: &dyn FileSystem) -> Outcome {
    needs(fs, HOLES)?;
    let ino = file(fs, fs.root(), "f");
    let before = fs.statfs().expect("use").free;
    truncate(fs, ino, fs.limits().file_size_max).expect("a size");
    assert_eq!((fs.statfs().expect("use").free, attr(fs, ino).size), (before, fs.limits().file_size_max));
    Ok(())
}

/// `punch` turns the range into a hole and keeps the size.
pub fn punch_makes_a_hole_within_the_same_size(fs: &dyn FileSystem) -> Outcome {
    let ino = file(fs, fs.root(), "f");
    // A format may allocate more than one block at a time.
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

/// `punch`: `Invalid` for parts of blocks, except at the end of the file.
pub fn punch_refuses_partial_blocks_except_at_the_end_of_the_file(fs: &dyn FileSystem) -> Outcome {
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

/// `truncate`, `begin_write`, `write` and `punch`: `IsDirectory`, and `Invalid` for other inodes that are not regular
/// files.
pub fn data_calls_refuse_files_that_are_not_regular(fs: &dyn FileSystem) -> Outcome {
    let lock = LayoutLock::new();
    let kinds = [
        ("d", FileKind::Directory, Error::IsDirectory),
        ("l", FileKind::Symlink, Error::Invalid),
        ("p", FileKind::Fifo, Error::Invalid),
    ];
    for (text, kind, expected) in kinds.into_iter().filter(|(_, kind, _)| has(fs, *kind)) {
        let ino = make(fs, fs.root(), text, kind);
        assert_eq!(truncate(fs, ino, 0), Err(expected));
        assert_eq!(writable(fs).begin_write(&lock.shared(), ino, 0..1).map(drop), Err(expected));
        assert_eq!(writable(fs).write(&lock.shared(), ino, 0, b"x"), Err(expected));
        let punched = writable(fs).punch(&lock.exclusive(), ino, 0..block(fs));
        assert!(matches!(punched, Err(error) if error == expected || error == Error::NotSupported));
        drop(writable(fs).resume_write(&lock.shared(), ino, 0..1));
    }
    let plain = file(fs, fs.root(), "f");
    assert_eq!(writable(fs).begin_write(&lock.shared(), plain, 3..3).map(drop), Err(Error::Invalid));
    Ok(())
}

/// `truncate` and `begin_write`: `FileTooBig`.
pub fn a_size_past_the_largest_is_file_too_big(fs: &dyn FileSystem) -> Outcome {
    let (ino, max) = (file(fs, fs.root(), "f"), fs.limits().file_size_max);
    if let Some(past) = max.checked_next_multiple_of(block(fs)).and_then(|end| end.checked_add(1)) {
        let lock = LayoutLock::new();
        assert_eq!(truncate(fs, ino, past), Err(Error::FileTooBig));
        assert_eq!(
            writable(fs).begin_write(&lock.shared(), ino, max..past).map(drop),
            Err(Error::FileTooBig)
        );
    }
    assert_eq!(attr(fs, ino).size, 0);
    Ok(())
}
