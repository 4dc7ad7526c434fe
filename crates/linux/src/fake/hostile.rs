//! What a guest that was broken into may answer: each is an error or an answer that can be true, and each ends.

use std::ops::ControlFlow;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU32, Ordering};

use obento_base::{DeviceError, Error, Ino, Name, NameBuf};
use obento_driver::{Cookie, FileSystem as _, LayoutLock, Span, Xattrs as _};
use obento_linux_wire::{Moment, Run};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::error::HUNG;
use crate::volume::nonsense;

/// Why `open` fails.
fn failure(result: Result<Volume>) -> Error {
    result.map(drop).unwrap_err()
}

/// A guest of which `answer` says what it answers to what it knows.
fn guest(mut answer: impl FnMut(&Request) -> Option<Answer> + Send + 'static) -> Volume {
    open(move |request| answer(request).map_or(Reply::Usual, Reply::Is)).unwrap()
}

/// A guest that lists `entries` as its root, and answers the rest as usual.
fn listing(entries: Vec<Entry>) -> Volume {
    guest(move |request| match request {
        Request::List { dir: ROOT, from: 0 } => {
            Some(Answer::Entries { entries: entries.clone(), is_end: true })
        }
        _ => None,
    })
}

/// A guest whose file has these attributes.
fn with(file: Stat) -> Volume {
    guest(move |request| match request {
        Request::Look { .. } => Some(Answer::Node { stat: file.clone() }),
        Request::List { dir: ROOT, from: 0 } => {
            Some(Answer::Entries { entries: vec![entry(b"file", 5, file.clone())], is_end: true })
        }
        _ => None,
    })
}

fn name(bytes: &[u8]) -> &Name {
    Name::new(bytes).unwrap()
}

/// What a listing of the root shows, no more than so many, and how it ends.
fn shown(volume: &Volume, max: usize) -> (Vec<Result<NameBuf>>, Result<()>) {
    let mut shown = Vec::new();
    let ends = volume.read_dir(Ino(ROOT), Cookie::START, &mut |entry| {
        shown.push(entry.map(|entry| entry.name.to_buf()));
        if shown.len() < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    (shown, ends)
}

#[test]
fn a_guest_that_does_as_it_should_is_a_volume() {
    let volume = open(|_| Reply::Usual).unwrap();
    assert_eq!(shown(&volume, 9), (vec![Ok(name(b"file").to_buf())], Ok(())));
    assert_eq!(volume.lookup(Ino(ROOT), name(b"file")), Ok(Ino(FILE)));
    let (lock, mut bytes) = (LayoutLock::new(), [1; 9]);
    assert_eq!(volume.read(&lock.shared(), Ino(FILE), 0, &mut bytes), Ok(5));
}

#[test]
fn a_name_that_is_none_ends_a_listing() {
    for bad in [&b""[..], b".", b"..", b"a/b", b"../../etc/x", b"/", b"a\0b", &[b'x'; 1025]] {
        let file = stat(FILE, REGULAR);
        let volume =
            listing(vec![entry(b"ok", 1, file.clone()), entry(bad, 2, file.clone()), entry(b"z", 3, file)]);
        assert_eq!(shown(&volume, 9), (vec![Ok(name(b"ok").to_buf())], Err(nonsense())), "{bad:?}");
    }
}

#[test]
fn a_directory_within_itself_is_searched_once() {
    static LISTED: AtomicU32 = AtomicU32::new(0);
    let volume = guest(|request| match request {
        Request::List { .. } => {
            LISTED.fetch_add(1, Ordering::Relaxed);
            let entries = vec![entry(b"me", 1, stat(ROOT, DIRECTORY)), entry(b"f", 2, stat(FILE, REGULAR))];
            Some(Answer::Entries { entries, is_end: true })
        }
        _ => None,
    });
    assert_eq!(volume.getattr(Ino(999)), Err(Error::Stale));
    assert_eq!(LISTED.load(Ordering::Relaxed), 1);
    assert_eq!(volume.parent(Ino(ROOT)), Ok(Ino(ROOT)));
    assert_eq!(volume.getattr(Ino(FILE)).map(|attr| attr.size), Ok(5));
}

#[test]
fn a_listing_that_leads_back_into_itself_or_nowhere_ends() {
    let back = guest(|request| match request {
        Request::List { .. } => {
            Some(Answer::Entries { entries: vec![entry(b"file", 5, stat(FILE, REGULAR))], is_end: false })
        }
        _ => None,
    });
    let (names, ends) = shown(&back, 99);
    assert_eq!((names.len(), ends), (2, Err(nonsense())));
    assert_eq!(back.getattr(Ino(999)), Err(nonsense()), "nor does the search for an inode go on");
    for next in [0, 1 << 63, u64::MAX] {
        let volume = listing(vec![entry(b"file", next, stat(FILE, REGULAR))]);
        assert_eq!(shown(&volume, 9), (Vec::new(), Err(nonsense())), "{next}");
    }
    // None at all, and it is not the end.
    let empty = guest(|request| match request {
        Request::List { .. } => Some(Answer::Entries { entries: Vec::new(), is_end: false }),
        _ => None,
    });
    assert_eq!(shown(&empty, 9), (Vec::new(), Err(nonsense())));
}

#[test]
fn a_size_that_no_file_can_have_is_nonsense_and_the_largest_is_a_size() {
    for size in [1 << 63, u64::MAX] {
        let volume = with(Stat { size, blocks: (size >> 9) + 1, ..stat(FILE, REGULAR) });
        assert_eq!(volume.lookup(Ino(ROOT), name(b"file")), Err(nonsense()));
        assert_eq!(shown(&volume, 9), (vec![Err(nonsense())], Ok(())));
    }
    let size = i64::MAX.unsigned_abs();
    for blocks in [0, u64::MAX] {
        let volume = with(Stat { size, blocks, ..stat(FILE, REGULAR) });
        let (ino, lock, mut bytes) = (Ino(FILE), LayoutLock::new(), [0; 16]);
        assert_eq!(volume.lookup(Ino(ROOT), name(b"file")), Ok(ino));
        assert_eq!(volume.getattr(ino).map(|attr| attr.size), Ok(size));
        assert_eq!(volume.read(&lock.shared(), ino, size - 3, &mut bytes), Ok(3));
        assert_eq!(volume.read(&lock.shared(), ino, size, &mut bytes), Ok(0));
        let extent = volume.map(&lock.shared(), ino, size - 3..size + 9).unwrap();
        assert!((1..=12).contains(&extent.len), "{extent:?}");
    }
}

#[test]
fn more_bytes_than_were_asked_for_are_not_there() {
    let filled = |len| Some(Answer::Filled { fills: vec![Fill { len, errno: 0 }] });
    let long = |size| Stat { size, ..stat(FILE, REGULAR) };
    // Read ahead, and read by itself.
    for size in [5, 1 << 20] {
        let volume = guest(move |request| match request {
            Request::Look { .. } => Some(Answer::Node { stat: long(size) }),
            Request::Read { .. } => filled(u32::MAX),
            _ => None,
        });
        let (lock, mut bytes) = (LayoutLock::new(), [0; 16]);
        let ino = volume.lookup(Ino(ROOT), name(b"file")).unwrap();
        let wanted = usize::try_from(size.min(16)).unwrap();
        assert_eq!(volume.read(&lock.shared(), ino, 0, &mut bytes), Ok(wanted));
    }
    let none = guest(|request| match request {
        Request::Read { .. } => Some(Answer::Filled { fills: Vec::new() }),
        _ => None,
    });
    let ino = none.lookup(Ino(ROOT), name(b"file")).unwrap();
    let lock = LayoutLock::new();
    assert_eq!(none.read(&lock.shared(), ino, 0, &mut [0; 16]), Err(nonsense()));
}

#[test]
fn times_that_there_are_not_become_times() {
    for seconds in [i64::MIN, i64::MAX] {
        let time = Moment { seconds, nanos: u32::MAX };
        let (atime, mtime, ctime) = (time.clone(), time.clone(), time.clone());
        let volume = with(Stat { atime, mtime, ctime, btime: Some(time), ..stat(FILE, REGULAR) });
        let attr = volume.lookup(Ino(ROOT), name(b"file")).and_then(|ino| volume.getattr(ino)).unwrap();
        assert_eq!((attr.mtime.secs(), attr.mtime.nanos()), (seconds, 999_999_999));
    }
}

#[test]
fn a_root_that_is_no_directory_and_kinds_that_there_are_not_are_nonsense() {
    for root in [
        stat(ROOT, REGULAR),
        stat(ROOT, SYMLINK),
        stat(ROOT, 0),
        Stat { size: u64::MAX, ..stat(ROOT, DIRECTORY) },
    ] {
        let answer = Answer::Mounted { root, usage: usage(), file_size_max: 0 };
        assert_eq!(failure(open(move |_| Reply::Is(answer.clone()))), nonsense());
    }
    for mode in [0, 0o170_000, 0o030_000] {
        assert_eq!(with(stat(FILE, mode)).lookup(Ino(ROOT), name(b"file")), Err(nonsense()), "{mode:o}");
    }
}

#[test]
fn an_answer_to_another_question_is_nonsense() {
    assert_eq!(failure(open(|_| Reply::Is(Answer::Done {}))), nonsense());
    let volume = guest(|request| match request {
        Request::Mount { .. } => None,
        _ => Some(Answer::Done {}),
    });
    assert_eq!(volume.lookup(Ino(ROOT), name(b"file")), Err(nonsense()));
    assert_eq!(shown(&volume, 9), (Vec::new(), Err(nonsense())));
    assert_eq!(volume.statfs(), Err(nonsense()));
    assert_eq!(volume.get_xattr(Ino(ROOT), b"user.a"), Err(nonsense()));
}

#[test]
fn a_volume_fuller_than_any_is_told_without_an_overflow() {
    let (max, name_max) = (u64::MAX, u32::MAX);
    for (block_size, told) in [(1 << 31, 1 << 31), (0, 512), (u32::MAX, 512)] {
        let usage = Usage {
            block_size,
            blocks: max,
            free: max,
            available: max,
            inodes: max,
            free_inodes: max,
            name_max,
        };
        let volume = open(move |request| match request {
            Request::Mount { .. } => {
                let root = stat(ROOT, DIRECTORY);
                Reply::Is(Answer::Mounted { root, usage: usage.clone(), file_size_max: max })
            }
            Request::StatFs {} => Reply::Is(Answer::Usage { usage: usage.clone() }),
            _ => Reply::Usual,
        });
        let volume = volume.unwrap();
        assert_eq!(volume.statfs().map(|usage| (usage.block_size, usage.blocks)), Ok((told, max)));
        assert_eq!(volume.limits().file_size_max, i64::MAX.unsigned_abs());
    }
}

#[test]
fn a_link_that_linux_could_not_follow_is_nonsense() {
    for bytes in [b"a\0b".to_vec(), vec![b'x'; 4096], vec![b'x'; 900_000]] {
        let volume = guest(move |request| match request {
            Request::Look { .. } => Some(Answer::Node { stat: stat(FILE, SYMLINK) }),
            Request::ReadLink { .. } => Some(Answer::Bytes { bytes: bytes.clone() }),
            _ => None,
        });
        let ino = volume.lookup(Ino(ROOT), name(b"file")).unwrap();
        assert_eq!(volume.read_link(ino), Err(nonsense()));
    }
}

#[test]
fn places_outside_the_disk_are_not_read_and_runs_that_lead_nowhere_are_nonsense() {
    const SIZE: u64 = 1 << 20;
    let run = |end, place| Run { end, is_data: true, place };
    let mapping = |runs: Vec<Run>| {
        let volume = guest(move |request| match request {
            Request::Look { .. } => Some(Answer::Node { stat: Stat { size: SIZE, ..stat(FILE, REGULAR) } }),
            Request::Map { .. } => Some(Answer::Runs { runs: runs.clone() }),
            _ => None,
        });
        let ino = volume.lookup(Ino(ROOT), name(b"file")).unwrap();
        let lock = LayoutLock::new();
        volume.map(&lock.shared(), ino, 4096..SIZE)
    };
    // The disk has a MiB.
    for place in [4097, 1 << 20, 1 << 63, u64::MAX] {
        let extent = mapping(vec![run(SIZE, Some(place))]).unwrap();
        assert_eq!((extent.len, extent.span), (SIZE - 4096, Span::Driver), "{place}");
    }
    let extent = mapping(vec![run(SIZE, Some(4096))]).unwrap();
    assert_eq!((extent.len, extent.span), (SIZE - 4096, Span::Mapped(4096)));
    for runs in [Vec::new(), vec![run(0, None)], vec![run(4096, None)], vec![run(100, None), run(50, None)]] {
        assert_eq!(mapping(runs), Err(nonsense()));
    }
    assert_eq!(mapping(vec![run(u64::MAX, None)]).map(|extent| extent.len), Ok(SIZE - 4096));
}

#[test]
fn attributes_of_any_name_and_length_are_handed_on() {
    let long = [&b"user."[..], &[b'n'; 70_000]].concat();
    let names = [&b"user.a=b\nc\0\0nodot\0"[..], &long].concat();
    let volume = guest(move |request| match request {
        Request::ListXattrs { .. } => Some(Answer::Bytes { bytes: names.clone() }),
        Request::GetXattr { .. } => Some(Answer::Bytes { bytes: vec![b'v'; 500_000] }),
        _ => None,
    });
    let mut listed = Vec::new();
    volume.list_xattrs(Ino(ROOT), &mut |name| listed.push(name.to_vec())).unwrap();
    assert_eq!(listed, [b"user.a=b\nc".to_vec(), b"nodot".to_vec(), long]);
    assert_eq!(volume.get_xattr(Ino(ROOT), b"user.a").map(|value| value.len()), Ok(500_000));
}

#[test]
fn bytes_that_are_no_message_end_the_guest_and_nothing_is_asked_of_it_again() {
    let too_long = encode(&Answer::Bytes { bytes: vec![0; 2 * REPLY_MAX] });
    for (bytes, len) in [
        (Vec::new(), 0),
        (vec![0xff; 100], 100),
        (encode(&Answer::Done {}), 2),
        (vec![0; 10], u32::MAX),
        (too_long, u32::MAX),
    ] {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        ASKED.store(0, Ordering::Relaxed);
        let volume = open(move |request| match request {
            Request::Mount { .. } => Reply::Usual,
            _ => {
                ASKED.fetch_add(1, Ordering::Relaxed);
                Reply::Bytes(bytes.clone(), len)
            }
        });
        let volume = volume.unwrap();
        for _ in 0..3 {
            let Err(Error::Device(DeviceError::Engine(why))) = volume.statfs() else {
                panic!("it is no answer")
            };
            assert_eq!(why, "gave an answer that makes no sense and was ended");
        }
        assert_eq!(ASKED.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn a_guest_that_ends_in_mid_request_is_an_error_at_once_and_from_then_on() {
    let volume = open(|request| match request {
        Request::Mount { .. } => Reply::Usual,
        _ => Reply::Ends,
    });
    let volume = volume.unwrap();
    for _ in 0..2 {
        assert_eq!(volume.statfs(), Err(DeviceError::Engine("ended unexpectedly").into()));
    }
}

#[test]
fn a_guest_that_floods_its_console_is_told_by_its_end() {
    let start = Start { asks: false, ..Start::default() };
    // Of which memory holds the last line alone.
    let last = 400 << 20;
    start.console.set_len(last).unwrap();
    start.console.write_all_at(b"\nKernel panic - not syncing: evil\n", last).unwrap();
    let Error::Device(DeviceError::Engine(why)) = failure(open_after(start, |_| Reply::Usual)) else {
        panic!("it did not start")
    };
    assert_eq!(why, "did not start: Kernel panic - not syncing: evil");
}

/// What a request ends with that nobody answers.
fn unanswered(reply: fn() -> Reply) {
    let volume = open(move |request| match request {
        Request::Mount { .. } => Reply::Usual,
        _ => reply(),
    });
    let volume = volume.unwrap();
    for _ in 0..2 {
        assert_eq!(volume.statfs(), Err(DeviceError::Engine(HUNG).into()));
    }
}

#[test]
fn a_guest_that_says_nothing_is_ended_by_the_watchdog() {
    unanswered(|| Reply::Never);
}

#[test]
fn a_guest_that_only_rings_is_ended_by_the_watchdog() {
    unanswered(|| Reply::Rings);
}

fn inodes() -> impl Strategy<Value = u64> {
    prop_oneof![3 => Just(ROOT), 3 => Just(FILE), 1 => any::<u64>()]
}

prop_compose! {
    fn any_stat()(ino in inodes(), mode in prop_oneof![Just(DIRECTORY), Just(REGULAR), Just(SYMLINK), any::<u16>()],
        size in prop_oneof![0..10_u64, any::<u64>()], blocks: u64, block_size: u32, nlink: u32, seconds: i64, nanos: u32) -> Stat {
        let ctime = Moment { seconds, nanos };
        Stat { ino, mode, size, blocks, block_size, nlink, ctime, ..Stat::default() }
    }
}

prop_compose! {
    fn any_entry()(name in vec(any::<u8>(), 0..5), next in prop_oneof![1..9_u64, any::<u64>()],
        stat in prop::option::of(any_stat()), errno: u32) -> Entry {
        Entry { name, next, stat, errno }
    }
}

fn any_answer() -> impl Strategy<Value = Answer> {
    let run = (prop_oneof![0..10_u64, any::<u64>()], any::<bool>(), any::<Option<u64>>());
    let runs = vec(run.prop_map(|(end, is_data, place)| Run { end, is_data, place }), 0..4);
    let fill = (any::<u32>(), prop_oneof![Just(0_u32), any::<u32>()]);
    prop_oneof![
        any::<u32>().prop_map(|errno| Answer::Failed { errno }),
        Just(Answer::Done {}),
        any_stat().prop_map(|stat| Answer::Node { stat }),
        (vec(any_entry(), 0..4), any::<bool>())
            .prop_map(|(entries, is_end)| Answer::Entries { entries, is_end }),
        vec(any::<u8>(), 0..20).prop_map(|bytes| Answer::Bytes { bytes }),
        vec(fill.prop_map(|(len, errno)| Fill { len, errno }), 0..4)
            .prop_map(|fills| Answer::Filled { fills }),
        runs.clone().prop_map(|runs| Answer::Runs { runs }),
        (runs, vec(any::<u32>(), 0..4)).prop_map(|(runs, sums)| Answer::Proved { runs, sums }),
        any::<u64>().prop_map(|count| Answer::Count { count }),
    ]
}

/// Asks all that can be asked, whatever comes of it.
fn ask_all(volume: &Volume) {
    let lock = LayoutLock::new();
    let _ = shown(volume, 100);
    let found = volume.lookup(Ino(ROOT), name(b"file")).unwrap_or(Ino(FILE));
    for ino in [Ino(ROOT), found, Ino(FILE), Ino(999)] {
        let _ = (volume.getattr(ino), volume.parent(ino), volume.read_link(ino));
        let _ = volume.get_xattr(ino, b"user.a");
        let _ = volume.list_xattrs(ino, &mut |_| ());
        for offset in [0, 7, i64::MAX.unsigned_abs(), u64::MAX] {
            for room in [10, 128 << 10] {
                let mut bytes = vec![0; room];
                let read = volume.read(&lock.shared(), ino, offset, &mut bytes);
                assert!(read.is_ok_and(|len| len <= bytes.len()) || read.is_err());
            }
            let asked = offset..offset.saturating_add(9);
            let extent = volume.map(&lock.shared(), ino, asked.clone());
            assert!(extent.is_ok_and(|extent| (1..=9).contains(&extent.len)) || extent.is_err());
        }
        volume.forget(ino);
    }
    let _ = volume.statfs();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_a_guest_answers_all_that_is_asked_of_it_ends(
        answers in vec(any_answer(), 1..30),
        name in prop_oneof![Just("xfs"), Just("btrfs")],
    ) {
        let mut rest = answers.into_iter().cycle();
        let start = Start { kind: kind(name), ..Start::default() };
        let volume = open_after(start, move |request| match request {
            Request::Mount { .. } => Reply::Usual,
            _ => Reply::Is(rest.next().unwrap()),
        });
        ask_all(&volume.unwrap());
    }
}
