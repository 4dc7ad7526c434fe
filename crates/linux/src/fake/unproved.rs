//! What a guest that was broken into may say of where long files are and of what proves them: what does not agree with its sum is not taken
//! from the disk.

use std::sync::atomic::{AtomicU32, Ordering};

use obento_base::{Ino, Name};
use obento_driver::{FileSystem as _, LayoutLock};
use obento_linux_wire::Run;

use super::*;
use crate::volume::nonsense;

/// The file, and what is read of it.
const SIZE: u64 = 2 << 20;
const LEN: usize = 128 << 10;
/// How many sums that takes, and that of a sector of zeros, of which the disk is: a MiB.
const COUNT: usize = LEN / 4096;
const OF_ZEROS: u32 = 0x98f9_4189;

/// How much of the file is read, and how much of that is what the guest says, when it answers `proved`.
fn read(proved: Answer) -> Result<(usize, usize)> {
    let start = Start { kind: kind("btrfs"), ..Start::default() };
    let volume = open_after(start, move |request| match request {
        Request::Look { .. } => {
            Reply::Is(Answer::Node { stat: Stat { size: SIZE, blocks: SIZE >> 9, ..stat(FILE, REGULAR) } })
        }
        Request::Prove { .. } => Reply::Is(proved.clone()),
        _ => Reply::Usual,
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
fn what_the_sums_prove_is_read_from_the_disk() {
    let end = LEN as u64;
    assert_eq!(proved(vec![run(end, Some(4096))], vec![OF_ZEROS; COUNT]), Ok((LEN, 0)));
    assert_eq!(proved(vec![Run { is_data: false, ..run(u64::MAX, None) }], Vec::new()), Ok((LEN, 0)));
}

#[test]
fn what_no_sum_proves_and_what_is_not_on_the_disk_is_asked_of_the_guest() {
    let end = LEN as u64;
    for place in [4096, (1 << 20) - 100, 1 << 20, 1 << 63, u64::MAX] {
        assert_eq!(proved(vec![run(end, Some(place))], vec![1; COUNT]), Ok((LEN, LEN)), "{place}");
    }
    for place in [(1 << 20) - 100, 1 << 20, 1 << 63, u64::MAX] {
        assert_eq!(proved(vec![run(end, Some(place))], vec![OF_ZEROS; COUNT]), Ok((LEN, LEN)), "{place}");
    }
    assert_eq!(proved(vec![run(u64::MAX, None)], Vec::new()), Ok((LEN, LEN)));
    // From the second sector of a part that is no sector on.
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
fn an_answer_that_ends_before_what_is_read_is_not_asked_for_again() {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let start = Start { kind: kind("btrfs"), ..Start::default() };
    let volume = open_after(start, |request| match request {
        Request::Look { .. } => {
            Reply::Is(Answer::Node { stat: Stat { size: SIZE, blocks: SIZE >> 9, ..stat(FILE, REGULAR) } })
        }
        Request::Prove { .. } => {
            ASKED.fetch_add(1, Ordering::Relaxed);
            Reply::Is(Answer::Proved { runs: vec![run(4096, None)], sums: Vec::new() })
        }
        _ => Reply::Usual,
    })
    .unwrap();
    let ino = volume.lookup(Ino(ROOT), Name::new(b"file").unwrap()).unwrap();
    let lock = LayoutLock::new();
    for at in [LEN as u64, 2 * LEN as u64, 3 * LEN as u64] {
        assert_eq!(volume.read(&lock.shared(), ino, at, &mut vec![0; LEN]), Ok(LEN));
    }
    assert_eq!(ASKED.load(Ordering::Relaxed), 1);
}
