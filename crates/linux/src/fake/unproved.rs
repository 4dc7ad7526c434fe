//! Wrong answers of a compromised guest about the locations and checksums of long files. Bytes that do not match their
//! checksum are not read from the disk.

use std::sync::atomic::{AtomicU32, Ordering};

use obento_base::{Ino, Name};
use obento_driver::{FileSystem as _, LayoutLock};
use obento_linux_wire::Run;

use super::*;
use crate::volume::nonsense;

/// The file, and the part of it that is read.
const SIZE: u64 = 2 << 20;
const LEN: usize = 128 << 10;
/// The number of checksums for that part, and the checksum of a sector of zeros, which fill the disk of one MiB.
const COUNT: usize = LEN / 4096;
const OF_ZEROS: u32 = 0x98f9_4189;

/// Returns how many bytes of the file are read, and how many of them the guest returned, if it answers `proved`.
fn read(proved: Answer) -> Result<(usize, usize)> {
    let start = GuestStart { kind: kind("btrfs"), ..GuestStart::default() };
    let volume = open_after(start, move |request| match request {
        Request::Look { .. } => GuestReply::Is(Answer::Node {
            stat: Stat { size: SIZE, blocks: SIZE >> 9, ..stat(FILE, REGULAR) },
        }),
        Request::Prove { .. } => GuestReply::Is(proved.clone()),
        _ => GuestReply::Usual,
    })?;
    let ino = volume.lookup(Ino(ROOT), Name::new(b"file").unwrap())?;
    let (lock, mut bytes) = (LayoutLock::new(), vec![0xff; LEN]);
    let len = volume.read(&lock.shared(), ino, 0, &mut bytes)?;
    Ok((len, bytes[..len].iter().filter(|byte| **byte == GUESTS).count()))
}

fn run(end: u64, place: Option<u64>) -> Run {
    Run { end, is_data: true, place }
}

fn proved(runs: Vec<Run>, sums: Vec<u32>) -> Result<(usize, usize)> {
    read(Answer::Proved { runs, sums })
}

#[test]
fn bytes_with_valid_checksums_are_read_from_the_disk() {
    let end = LEN as u64;
    assert_eq!(proved(vec![run(end, Some(4096))], vec![OF_ZEROS; COUNT]), Ok((LEN, 0)));
    assert_eq!(proved(vec![Run { is_data: false, ..run(u64::MAX, None) }], Vec::new()), Ok((LEN, 0)));
}

#[test]
fn bytes_without_a_valid_checksum_or_location_are_read_by_the_guest() {
    let end = LEN as u64;
    for place in [4096, (1 << 20) - 100, 1 << 20, 1 << 63, u64::MAX] {
        assert_eq!(proved(vec![run(end, Some(place))], vec![1; COUNT]), Ok((LEN, LEN)), "{place}");
    }
    for place in [(1 << 20) - 100, 1 << 20, 1 << 63, u64::MAX] {
        assert_eq!(proved(vec![run(end, Some(place))], vec![OF_ZEROS; COUNT]), Ok((LEN, LEN)), "{place}");
    }
    assert_eq!(proved(vec![run(u64::MAX, None)], Vec::new()), Ok((LEN, LEN)));
    // From the second sector on, in a part that does not begin at a sector.
    let odd = vec![run(4097, None), run(end, Some(0))];
    assert_eq!(proved(odd, vec![OF_ZEROS; COUNT - 1]), Ok((LEN, LEN)));
    // EOPNOTSUPP, EIO.
    for errno in [95, 5] {
        assert_eq!(read(Answer::Failed { errno }), Ok((LEN, LEN)), "{errno}");
    }
}

#[test]
fn sums_of_nothing_and_parts_without_them_are_nonsense() {
    let end = LEN as u64;
    for (runs, sums) in [
        (Vec::new(), 0),
        (vec![run(0, None)], 0),
        (vec![run(8192, None), run(4096, None)], 0),
        (vec![run(end, Some(0))], COUNT - 1),
        (vec![run(end, Some(0))], COUNT + 1),
        (vec![run(u64::MAX, Some(0))], COUNT),
        (vec![run(end, None)], 1),
    ] {
        assert_eq!(proved(runs.clone(), vec![OF_ZEROS; sums]), Err(nonsense()), "{runs:?}");
    }
    assert_eq!(read(Answer::Done {}), Err(nonsense()));
}

#[test]
fn an_answer_that_ends_before_the_read_range_is_not_requested_again() {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let start = GuestStart { kind: kind("btrfs"), ..GuestStart::default() };
    let volume = open_after(start, |request| match request {
        Request::Look { .. } => GuestReply::Is(Answer::Node {
            stat: Stat { size: SIZE, blocks: SIZE >> 9, ..stat(FILE, REGULAR) },
        }),
        Request::Prove { .. } => {
            ASKED.fetch_add(1, Ordering::Relaxed);
            GuestReply::Is(Answer::Proved { runs: vec![run(4096, None)], sums: Vec::new() })
        }
        _ => GuestReply::Usual,
    })
    .unwrap();
    let ino = volume.lookup(Ino(ROOT), Name::new(b"file").unwrap()).unwrap();
    let lock = LayoutLock::new();
    for at in [LEN as u64, 2 * LEN as u64, 3 * LEN as u64] {
        assert_eq!(volume.read(&lock.shared(), ino, at, &mut vec![0; LEN]), Ok(LEN));
    }
    assert_eq!(ASKED.load(Ordering::Relaxed), 1);
}
