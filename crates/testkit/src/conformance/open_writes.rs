//! Several writes that are open at the same time.

use obento_base::{Error, Ino};
use obento_driver::{FileSystem, LayoutLock, Size, Span, TimeChange, WriteTicket};

use super::{attr, block, file, read, writable, write};
use crate::outcome::{Lacks, Outcome};

/// Number of blocks of a part. A format may allocate more than one block at a time.
const PART: u64 = 16;
/// A ticket may have a shorter place than was asked for.
const SHORT: Lacks = Lacks("no mapped write of 16 blocks past the end of a file");
const ONE_AT_A_TIME: Lacks = Lacks("no two mapped writes past the end of a file");

/// Writes `byte` to the whole place of a ticket.
fn transfer(fs: &dyn FileSystem, ticket: &WriteTicket<'_>, byte: u8) -> Outcome {
    let Span::Mapped(at) = ticket.extent().span else { return Err(ONE_AT_A_TIME) };
    if ticket.extent().len < PART * block(fs) {
        return Err(SHORT);
    }
    let bytes = vec![byte; ticket.extent().len as usize];
    fs.device().expect("mapped data is on the device").write_at(at, &bytes).expect("a sound device");
    Ok(())
}

/// Creates a file that uses the blocks that are free and were freed last.
fn write_another_file(fs: &dyn FileSystem, text: &str) -> Ino {
    let other = file(fs, fs.root(), text);
    write(fs, other, 0, &vec![9; 32 * block(fs) as usize]).expect("space");
    other
}

fn assert_other_is_intact(fs: &dyn FileSystem, other: Ino) {
    let len = 32 * block(fs) as usize;
    assert!(read(fs, other, 0, len, 4096).expect("a sound file") == vec![9; len], "another file has changed");
}

/// Dropping a ticket releases no block of another ticket.
pub fn dropping_a_ticket_does_not_release_the_blocks_of_other_tickets(fs: &dyn FileSystem) -> Outcome {
    let (ino, part) = (file(fs, fs.root(), "f"), PART * block(fs));
    let lock = LayoutLock::new();
    let layout = lock.shared();
    let begin = |range| writable(fs).begin_write(&layout, ino, range).expect("space");
    let (first, second) = (begin(0..part), begin(part..2 * part));
    transfer(fs, &first, 5)?;
    transfer(fs, &second, 6)?;
    drop(first);
    let other = write_another_file(fs, "other");
    transfer(fs, &second, 7)?;
    writable(fs).end_write(second, TimeChange::Now).expect("the blocks are reserved");
    assert_eq!(attr(fs, ino).size, 2 * part);
    let expected = [vec![0; part as usize], vec![7; part as usize]].concat();
    assert!(read(fs, ino, 0, expected.len(), 4096).expect("a sound file") == expected);
    assert_other_is_intact(fs, other);
    Ok(())
}

/// The range of a ticket reads as zeros until `end_write`, even if a later range becomes part of the file before.
pub fn writes_past_the_end_of_a_file_end_in_any_order(fs: &dyn FileSystem) -> Outcome {
    let (ino, part) = (file(fs, fs.root(), "f"), PART * block(fs));
    let lock = LayoutLock::new();
    let layout = lock.shared();
    let begin = |range| writable(fs).begin_write(&layout, ino, range).expect("space");
    let [first, second, third] = [begin(0..part), begin(part..2 * part), begin(2 * part..3 * part)];
    transfer(fs, &third, 8)?;
    transfer(fs, &first, 5)?;
    transfer(fs, &second, 6)?;
    writable(fs).end_write(third, TimeChange::Now).expect("the blocks are reserved");
    let filled = |byte| vec![byte; part as usize];
    let contents = || read(fs, ino, 0, 3 * part as usize, 4096).expect("a sound file");
    assert!(contents() == [filled(0), filled(0), filled(8)].concat(), "the other writes have not ended");
    writable(fs).end_write(first, TimeChange::Now).expect("the blocks are reserved");
    assert!(contents() == [filled(5), filled(0), filled(8)].concat());
    drop(second);
    let other = write_another_file(fs, "other");
    assert!(contents() == [filled(5), filled(0), filled(8)].concat());
    assert_other_is_intact(fs, other);
    Ok(())
}

/// `write` and `allocate`, which need only the shared layout lock, leave the blocks of open writes.
pub fn a_file_that_grows_keeps_the_blocks_of_open_writes(fs: &dyn FileSystem) -> Outcome {
    let part = PART * block(fs);
    let lock = LayoutLock::new();
    let grow = |text: &str, ino: Ino| match text {
        "written" => write(fs, ino, 3 * part, &vec![4; part as usize]),
        _ => writable(fs).allocate(&lock.shared(), ino, 0..4 * part, Size::Grow),
    };
    for text in ["written", "allocated"] {
        let ino = file(fs, fs.root(), text);
        let begun = {
            let layout = lock.shared();
            let ticket = writable(fs).begin_write(&layout, ino, 0..part).expect("space");
            transfer(fs, &ticket, 5)?;
            ticket.detach()
        };
        match grow(text, ino) {
            Err(Error::NotSupported) => continue,
            grown => grown.expect("space"),
        }
        let other = write_another_file(fs, &format!("beside-{text}"));
        let Span::Mapped(at) = begun.extent.span else { return Err(ONE_AT_A_TIME) };
        let bytes = vec![6; begun.extent.len as usize];
        fs.device().expect("mapped data is on the device").write_at(at, &bytes).expect("a sound device");
        let layout = lock.shared();
        let ticket = writable(fs).resume_write(&layout, ino, 0..begun.extent.len);
        writable(fs).end_write(ticket, TimeChange::Now).expect("the blocks are reserved");
        let mut expected = bytes;
        expected.resize(3 * part as usize, 0);
        assert!(read(fs, ino, 0, expected.len(), 4096).expect("a sound file") == expected, "{text}");
        assert_other_is_intact(fs, other);
    }
    Ok(())
}
