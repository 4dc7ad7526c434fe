//! The answers of a compromised guest: each results in an error or in a possible answer, and each request ends.

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

/// Returns the reason why `open` fails.
fn failure(result: Result<Volume>) -> Error {
    result.map(drop).unwrap_err()
}

/// A guest that answers known requests with `answer`.
fn guest(mut answer: impl FnMut(&Request) -> Option<Answer> + Send + 'static) -> Volume {
    open(move |request| answer(request).map_or(GuestReply::Usual, GuestReply::Is)).unwrap()
}

/// A guest that lists `entries` in its root, and answers other requests as usual.
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

/// Returns the entries of a listing of the root, at most `max`, and its result.
fn shown(volume: &Volume, max: usize) -> (Vec<Result<NameBuf>>, Result<()>) {
    let mut shown = Vec::new();
    let ends = volume.read_dir(Ino(ROOT), Cookie::START, &mut |entry| {
        shown.push(entry.map(|entry| entry.name.to_buf()));
        if shown.len() < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    (shown, ends)
}

#[test]
fn a_correct_guest_is_a_volume() {
    let volume = open(|_| GuestReply::Usual).unwrap();
    assert_eq!(shown(&volume, 9), (vec![Ok(name(b"file").to_buf())], Ok(())));
    assert_eq!(volume.lookup(Ino(ROOT), name(b"file")), Ok(Ino(FILE)));
    let (lock, mut bytes) = (LayoutLock::new(), [1; 9]);
    assert_eq!(volume.read(&lock.shared(), Ino(FILE), 0, &mut bytes), Ok(5));
}

#[test]
fn an_invalid_name_ends_a_listing() {
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
fn a_listing_with_a_cycle_or_a_dangling_position_ends() {
    let back = guest(|request| match request {
        Request::List { .. } => {
            Some(Answer::Entries { entries: vec![entry(b"file", 5, stat(FILE, REGULAR))], is_end: false })
        }
        _ => None,
    });
    let (names, ends) = shown(&back, 99);
    assert_eq!((names.len(), ends), (2, Err(nonsense())));
    assert_eq!(back.getattr(Ino(999)), Err(nonsense()), "the search for an inode ends, too");
    for next in [0, 1 << 63, u64::MAX] {
        let volume = listing(vec![entry(b"file", next, stat(FILE, REGULAR))]);
        assert_eq!(shown(&volume, 9), (Vec::new(), Err(nonsense())), "{next}");
    }
    // No entries, and not the end.
    let empty = guest(|request| match request {
        Request::List { .. } => Some(Answer::Entries { entries: Vec::new(), is_end: false }),
        _ => None,
    });
    assert_eq!(shown(&empty, 9), (Vec::new(), Err(nonsense())));
}

#[test]
fn a_size_above_the_maximum_is_rejected_and_the_maximum_is_accepted() {
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
    // Read ahead, and read alone.
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
fn invalid_times_become_valid_times() {
    for seconds in [i64::MIN, i64::MAX] {
        let time = Moment { seconds, nanos: u32::MAX };
        let (atime, mtime, ctime) = (time.clone(), time.clone(), time.clone());
        let volume = with(Stat { atime, mtime, ctime, btime: Some(time), ..stat(FILE, REGULAR) });
        let attr = volume.lookup(Ino(ROOT), name(b"file")).and_then(|ino| volume.getattr(ino)).unwrap();
        assert_eq!((attr.mtime.secs(), attr.mtime.nanos()), (seconds, 999_999_999));
    }
}

#[test]
fn a_root_that_is_not_a_directory_and_unknown_kinds_are_rejected() {
    for root in [
        stat(ROOT, REGULAR),
        stat(ROOT, SYMLINK),
        stat(ROOT, 0),
        Stat { size: u64::MAX, ..stat(ROOT, DIRECTORY) },
    ] {
        let answer = Answer::Mounted { root, usage: usage(), file_size_max: 0 };
        assert_eq!(failure(open(move |_| GuestReply::Is(answer.clone()))), nonsense());
    }
    for mode in [0, 0o170_000, 0o030_000] {
        assert_eq!(with(stat(FILE, mode)).lookup(Ino(ROOT), name(b"file")), Err(nonsense()), "{mode:o}");
    }
}

#[test]
fn an_answer_to_another_question_is_nonsense() {
    assert_eq!(failure(open(|_| GuestReply::Is(Answer::Done {}))), nonsense());
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
fn an_impossible_usage_is_reported_without_an_overflow() {
    let (max, name_max) = (u64::MAX, u32::MAX);
    for (block_size, reported) in [(1 << 31, 1 << 31), (0, 512), (u32::MAX, 512)] {
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
                GuestReply::Is(Answer::Mounted { root, usage: usage.clone(), file_size_max: max })
            }
            Request::StatFs {} => GuestReply::Is(Answer::Usage { usage: usage.clone() }),
            _ => GuestReply::Usual,
        });
        let volume = volume.unwrap();
        assert_eq!(volume.statfs().map(|usage| (usage.block_size, usage.blocks)), Ok((reported, max)));
        assert_eq!(volume.limits().file_size_max, i64::MAX.unsigned_abs());
    }
}

#[test]
fn a_symbolic_link_that_linux_could_not_follow_is_rejected() {
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
fn ranges_outside_of_the_disk_are_not_read_and_invalid_runs_are_rejected() {
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
fn an_invalid_message_ends_the_guest_and_no_further_request_is_sent() {
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
            Request::Mount { .. } => GuestReply::Usual,
            _ => {
                ASKED.fetch_add(1, Ordering::Relaxed);
                GuestReply::Bytes(bytes.clone(), len)
            }
        });
        let volume = volume.unwrap();
        for _ in 0..3 {
            let Err(Error::Device(DeviceError::Engine(why))) = volume.statfs() else {
                panic!("it is no answer")
            };
            assert_eq!(why, "sent an invalid reply and was stopped");
        }
        assert_eq!(ASKED.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn a_guest_that_ends_during_a_request_fails_this_and_all_later_requests() {
    let volume = open(|request| match request {
        Request::Mount { .. } => GuestReply::Usual,
        _ => GuestReply::Ends,
    });
    let volume = volume.unwrap();
    for _ in 0..2 {
        assert_eq!(volume.statfs(), Err(DeviceError::Engine("ended unexpectedly").into()));
    }
}

#[test]
fn a_guest_that_floods_its_console_is_reported_by_the_end_of_its_output() {
    let start = GuestStart { asks: false, ..GuestStart::default() };
    // Only the last line of these is in memory.
    let last = 400 << 20;
    start.console.set_len(last).unwrap();
    start.console.write_all_at(b"\nKernel panic - not syncing: evil\n", last).unwrap();
    let Error::Device(DeviceError::Engine(why)) = failure(open_after(start, |_| GuestReply::Usual)) else {
        panic!("it did not start")
    };
    assert_eq!(why, "did not start: Kernel panic - not syncing: evil");
}

/// Returns the error of a request that is never answered.
fn unanswered(reply: fn() -> GuestReply) {
    let volume = open(move |request| match request {
        Request::Mount { .. } => GuestReply::Usual,
        _ => reply(),
    });
    let volume = volume.unwrap();
    for _ in 0..2 {
        assert_eq!(volume.statfs(), Err(DeviceError::Engine(HUNG).into()));
    }
}

#[test]
fn a_silent_guest_is_ended_by_the_watchdog() {
    unanswered(|| GuestReply::Never);
}

#[test]
fn a_guest_that_only_rings_is_ended_by_the_watchdog() {
    unanswered(|| GuestReply::Rings);
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

/// Sends every request, and ignores the results.
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
    fn every_request_ends_whatever_a_guest_answers(
        answers in vec(any_answer(), 1..30),
        name in prop_oneof![Just("xfs"), Just("btrfs")],
    ) {
        let mut rest = answers.into_iter().cycle();
        let start = GuestStart { kind: kind(name), ..GuestStart::default() };
        let volume = open_after(start, move |request| match request {
            Request::Mount { .. } => GuestReply::Usual,
            _ => GuestReply::Is(rest.next().unwrap()),
        });
        ask_all(&volume.unwrap());
    }
}
