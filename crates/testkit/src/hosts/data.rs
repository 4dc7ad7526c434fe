//! Data and times, full volumes, and read-only volumes.

use obento_base::{FileFlags, FileKind};
use obento_driver::{Access, RenameFlags, Size, XattrMode};

use super::{ACCESS_DENIED, CaseDirectory, FILE_TOO_BIG, NO_SPACE, NOT_PERMITTED, Need, READ_ONLY};
use crate::oracle::until;
use crate::outcome::{CTIME, HOLES, LARGE_FILES, LARGE_ROOM, LASTING, LITTLE_ROOM, MODES, OWNERS, REMOVED};
use crate::plan::{Op, Space, bytes};

type Row = (&'static str, &'static [Need], fn(&mut CaseDirectory<'_>));

pub(super) const CASES: &[Row] = &[
    ("an open file can be read and written after its name is removed", &[REMOVED], unlinked),
    ("data overwritten in pieces of 512 bytes reads back as last written", &[], |room| overwrite(room, 512)),
    ("data overwritten in pieces of 64 KiB reads back as last written", &[], |room| overwrite(room, 65_536)),
    ("a file contains all appended data", &[], appended),
    ("a file that shrinks and grows again contains zeros", &[], shrunk),
    ("a write far past the end leaves zeros before it", &[HOLES], sparse),
    ("a file can be larger than 4 GiB", &[LARGE_FILES, LARGE_ROOM], large),
    ("the last byte of the largest file can be written, and none after it", &[HOLES], largest),
    ("writing and truncating set the modification time", &[], times),
    ("each change sets the change time", &[CTIME], changed),
    ("opening with truncation sets the modification time, even of an empty file", &[], emptied),
    (
        "the owner can set any time, and a user with write permission only the current time",
        &[OWNERS, MODES],
        owned_times,
    ),
    ("written data is present after the volume is reopened", &[LASTING], kept),
    ("a full volume reports no space, and reuses freed space", &[LITTLE_ROOM], full),
    ("a read-only volume refuses every change", &[LASTING], read_only),
];

fn unlinked(room: &mut CaseDirectory<'_>) {
    room.file("f");
    let before = room.write("f", 0, 10_000);
    room.host.hold(&room.at("f")).expect("it opens");
    assert_eq!(room.unlink("f"), Ok(()));
    room.is_gone("f");
    assert_eq!(room.host.read_held(0, 10_000), Ok(before.clone()));
    let after = bytes(77, 5000, 20_000);
    assert_eq!(room.host.write_held(5000, &after), Ok(()));
    assert_eq!(room.host.read_held(5000, 20_000), Ok(after));
    assert_eq!(room.host.read_held(0, 5000), Ok(before[..5000].to_vec()));
    // Another file with the name is a different file.
    room.file("f");
    assert_eq!(room.seen("f").size, 0);
}

fn overwrite(room: &mut CaseDirectory<'_>, piece: usize) {
    room.file("f");
    let len = piece * 8;
    let mut expected = room.write("f", 0, len);
    for at in [3, 0, 7, 5, 3] {
        let new = room.write("f", (at * piece) as u64, piece);
        expected[at * piece..][..piece].copy_from_slice(&new);
    }
    let across = room.write("f", (piece / 2) as u64, piece);
    expected[piece / 2..][..piece].copy_from_slice(&across);
    room.holds("f", 0, &expected);
    assert_eq!(room.seen("f").size, len as u64);
}

fn appended(room: &mut CaseDirectory<'_>) {
    room.file("f");
    let mut expected = Vec::new();
    for len in [1, 511, 512, 4096, 10, 70_000, 1] {
        room.does(Op::Append(room.at("f"), len));
        expected.extend(bytes(room.done, 0, len));
        assert_eq!(room.seen("f").size, expected.len() as u64);
    }
    room.holds("f", 0, &expected);
}

fn shrunk(room: &mut CaseDirectory<'_>) {
    room.file("f");
    let mut expected = room.write("f", 0, 20_000);
    for size in [9000, 4096, 4095, 1, 0] {
        room.truncate("f", size as u64);
        room.truncate("f", 20_000);
        expected[size..].fill(0);
        room.holds("f", 0, &expected);
    }
    room.truncate("f", 100);
    assert_eq!(room.seen("f").size, 100);
    let past = room.host.read(&room.at("f"), 100, 50);
    assert_eq!(past, Ok(Vec::new()));
}

fn sparse(room: &mut CaseDirectory<'_>) {
    room.file("f");
    let far = room.write("f", 300 << 20, 3);
    assert_eq!(room.seen("f").size, (300 << 20) + 3);
    for at in [0, 12 << 20, (300 << 20) - 5000] {
        room.holds("f", at, &[0; 4096]);
    }
    room.holds("f", 300 << 20, &far);
}

fn large(room: &mut CaseDirectory<'_>) {
    room.file("f");
    let edge = (1 << 32) - 100;
    let across = room.write("f", edge, 200);
    room.holds("f", edge, &across);
    room.holds("f", 0, &[0; 100]);
    room.holds("f", 100, &[0; 100]);
    assert_eq!(room.seen("f").size, (1 << 32) + 100);
    room.truncate("f", (1 << 32) + 1);
    room.holds("f", edge, &across[..101]);
}

fn largest(room: &mut CaseDirectory<'_>) {
    let max = room.limits.file_size_max;
    room.file("f");
    let last = room.write("f", max - 1, 1);
    assert_eq!(room.seen("f").size, max);
    room.holds("f", max - 1, &last);
    room.holds("f", max - 10, &[0; 9]);
    let path = room.at("f");
    assert_eq!(room.act(Op::Truncate(path.clone(), max + 1)), Err(FILE_TOO_BIG));
    assert_eq!(room.seen("f").size, max);
    // A host that caches the file and does not know the limit reports the error when the data must reach stable
    // storage.
    room.host.hold(&path).expect("it opens");
    let written = room.host.write_held(max, b"x");
    assert_eq!(written.and_then(|()| room.host.sync_held()), Err(FILE_TOO_BIG));
    room.host.release();
    if room.host.lasts() {
        room.host.again(Access::ReadWrite);
    }
    assert_eq!(room.seen("f").size, max);
    room.holds("f", max - 1, &last);
    room.truncate("f", 0);
    room.truncate("f", max);
    room.holds("f", max - 10, &[0; 10]);
    room.truncate("f", 0);
}

/// A time long ago.
const THEN: i64 = 1_000_000_000;

fn times(room: &mut CaseDirectory<'_>) {
    let past = |room: &mut CaseDirectory<'_>| room.does(Op::Utime(room.at("f"), THEN));
    room.file("f");
    room.write("f", 0, 10);
    past(room);
    assert_eq!(room.seen("f").mtime, THEN);
    room.holds("f", 0, &bytes(room.done - 1, 0, 10));
    assert_eq!(room.seen("f").mtime, THEN, "reading is no change");
    room.write("f", 0, 1);
    assert!(room.seen("f").mtime > THEN, "writing");
    past(room);
    room.truncate("f", 0);
    assert!(room.seen("f").mtime > THEN, "truncating");
}

fn changed(room: &mut CaseDirectory<'_>) {
    room.dir("d");
    room.file("f");
    let begin = room.seen("f").ctime;
    room.does(Op::Utime(room.at("f"), THEN));
    assert!(room.seen("f").ctime >= begin, "who sets a time cannot set that of the change");
    let changes: [fn(&mut CaseDirectory<'_>); 4] = [
        |room| drop(room.write("f", 0, 10)),
        |room| room.truncate("f", 3),
        |room| room.does(Op::Chmod(room.at("f"), 0o600)),
        |room| assert_eq!(room.rename("f", "d/f"), Ok(())),
    ];
    let mut last = room.seen("f").ctime;
    for change in changes {
        change(room);
        let name = if room.look("f").is_ok() { "f" } else { "d/f" };
        let found = room.seen(name).ctime;
        assert!(found >= last && found >= begin, "{found} after {last}");
        last = found;
    }
    let before = room.seen("d/f");
    room.holds("d/f", 0, &room.host.read(&room.at("d/f"), 0, 3).expect("it reads"));
    assert_eq!(room.seen("d/f").ctime, before.ctime, "reading is no change");
}

fn emptied(room: &mut CaseDirectory<'_>) {
    room.file("f");
    room.write("f", 0, 10);
    let path = room.at("f");
    for _ in 0..2 {
        room.does(Op::Utime(path.clone(), THEN));
        assert_eq!(room.host.open_emptied(&path), Ok(()));
        assert_eq!(room.seen("f").size, 0);
        assert!(room.seen("f").mtime > THEN);
    }
}

fn owned_times(room: &mut CaseDirectory<'_>) {
    const OWNER: u32 = 1000;
    const STRANGER: u32 = 1001;
    room.file("f");
    let path = room.at("f");
    let (past, now) = (Op::Utime(path.clone(), THEN), Op::Touch(path.clone()));
    room.does(Op::Chown(path.clone(), OWNER, OWNER));
    room.does(Op::Chmod(path.clone(), 0o644));
    assert_eq!(room.act_as(STRANGER, &past), Err(NOT_PERMITTED));
    assert_eq!(room.act_as(STRANGER, &now), Err(ACCESS_DENIED));
    // The owner of a file may write to it without permission.
    room.does(Op::Chmod(path.clone(), 0o444));
    assert_eq!(room.act_as(OWNER, &now), Ok(()));
    assert_eq!(room.act_as(OWNER, &past), Ok(()));
    assert_eq!(room.seen("f").mtime, THEN);
    room.does(Op::Chmod(path.clone(), 0o666));
    assert_eq!(room.act_as(STRANGER, &past), Err(NOT_PERMITTED));
    assert_eq!(room.seen("f").mtime, THEN);
    assert_eq!(room.act_as(STRANGER, &now), Ok(()));
    assert!(room.seen("f").mtime > THEN);
}

fn kept(room: &mut CaseDirectory<'_>) {
    room.dir("d");
    room.file("d/f");
    let bytes = room.write("d/f", 0, 100_000);
    room.host.again(Access::ReadWrite);
    assert_eq!(room.names("d"), ["f"]);
    room.holds("d/f", 0, &bytes);
    assert_eq!(room.seen("d/f").size, 100_000);
}

fn full(room: &mut CaseDirectory<'_>) {
    // Several pieces fit on the smallest volume.
    let piece = if room.host.free().expect("statfs succeeds") < 64 << 20 { 1 << 16 } else { 1 << 20 };
    room.file("f");
    let path = room.at("f");
    let fill = |room: &mut CaseDirectory<'_>| {
        room.host.hold(&path).expect("it opens");
        for pieces in 0..4096 {
            // The host reports the loss of cached data at the latest when it is written.
            let at = (pieces * piece) as u64;
            let written = room.host.write_held(at, &bytes(pieces, at, piece));
            match written.and_then(|()| room.host.sync_held()) {
                Ok(()) => {}
                Err(NO_SPACE) => {
                    room.host.release();
                    // Linux reports it again to the next process that syncs the whole volume.
                    assert!(matches!(room.act(Op::Sync), Ok(()) | Err(NO_SPACE)));
                    return pieces;
                }
                Err(errno) => panic!("after {pieces} pieces: {errno:?}"),
            }
        }
        panic!("the volume is never full")
    };
    let first = fill(room);
    assert!(first > 1, "{first} pieces of {piece} bytes fit");
    room.truncate("f", 0);
    room.does(Op::Sync);
    let second = fill(room);
    assert!(second + 1 >= first, "{second} pieces fit after {first}");
    assert_eq!(room.unlink("f"), Ok(()));
    room.does(Op::Sync);
    // A program that another thread starts has the file open until it runs.
    let needed = (piece as u64).saturating_mul(first as u64) / 2;
    let is_free = until(|| room.host.free().is_ok_and(|free| free >= needed));
    assert!(is_free, "the space of a removed file stays in use");
    room.file("g");
    let bytes = room.write("g", 0, piece);
    room.holds("g", 0, &bytes);
}

fn read_only(room: &mut CaseDirectory<'_>) {
    room.dir("d");
    room.file("f");
    room.file("g");
    let bytes = room.write("f", 0, 100);
    room.host.again(Access::ReadOnly);
    // The times are read only now, because a format rounds them when it stores them.
    let before = room.seen("f");
    let mut answers = Vec::new();
    for op in changes(room) {
        answers.push((format!("{op:?}"), room.act(op)));
    }
    let (f, d) = (room.at("f"), room.at("d"));
    answers.push(("emptied by opening".into(), room.host.open_emptied(&f)));
    answers.push(("a file without a name".into(), room.host.make_nameless(&d)));
    room.holds("f", 0, &bytes);
    assert_eq!(room.seen("f"), before);
    room.host.again(Access::ReadWrite);
    for (op, answer) in answers {
        assert_eq!(answer, Err(READ_ONLY), "{op}");
    }
    assert_eq!(room.names("."), ["d", "f", "g"]);
    room.holds("f", 0, &bytes);
}

/// Returns an operation of each kind.
fn changes(room: &CaseDirectory<'_>) -> Vec<Op> {
    let (f, g, d, x) = (room.at("f"), room.at("g"), room.at("d"), room.at("x"));
    let space = |space| Op::Space(f.clone(), space, 0..65_536);
    let renames = [RenameFlags::empty(), RenameFlags::NO_REPLACE].map(|flags| (x.clone(), flags));
    let renames = renames.into_iter().chain([(g, RenameFlags::EXCHANGE)]);
    let mut ops: Vec<Op> = renames.map(|(to, flags)| Op::Rename(f.clone(), to, flags)).collect();
    ops.extend([
        Op::Create(x.clone(), FileKind::Regular, 0o644),
        Op::Create(x.clone(), FileKind::Directory, 0o755),
        Op::Create(x.clone(), FileKind::Fifo, 0o644),
        Op::Symlink(x.clone(), 7),
        Op::Link(f.clone(), x),
        Op::Unlink(f.clone()),
        Op::Rmdir(d),
        Op::Write(f.clone(), 0, 10),
        Op::Append(f.clone(), 10),
        Op::Truncate(f.clone(), 0),
        space(Space::Allocate(Size::Grow)),
        space(Space::Zero(Size::Grow)),
        space(Space::Punch),
        space(Space::Collapse),
        space(Space::Insert),
        Op::SetXattr(f.clone(), "user.a".into(), 3, XattrMode::Set),
        Op::RemoveXattr(f.clone(), "user.a".into()),
        Op::Chmod(f.clone(), 0o600),
        Op::Chown(f.clone(), 1, 1),
        Op::Utime(f.clone(), 5),
        Op::Touch(f.clone()),
        Op::Flags(f, FileFlags::NO_DUMP.bits()),
    ]);
    ops
}
