//! Names: what paths lead to, and what becomes of them.

use obento_base::FileKind;

use super::{
    Answer, BUSY, EXISTS, INVALID, IS_DIRECTORY, NAME_TOO_LONG, NOT_DIRECTORY, NOT_EMPTY, NOT_FOUND,
    NOT_PERMITTED, Need, Room, races,
};
use crate::outcome::{HARD_LINKS, LASTING, MODES, OWNERS, SPECIAL, SYMLINKS, THREADS};
use crate::plan::{Op, target};

type Row = (&'static str, &'static [Need], fn(&mut Room<'_>));

pub(super) const CASES: &[Row] = &[
    ("dots and double slashes in a path lead where they should", &[], paths),
    ("a file in the middle of a path is no directory", &[], file_in_a_path),
    ("a directory that is not empty is not removed", &[], not_empty),
    ("dots are no names to remove or to rename", &[], dots),
    ("a name is removed as what it is", &[], removed_as_what_it_is),
    ("a rename takes a file to another directory", &[], moved),
    ("a file takes the place of a file, which is gone", &[], file_over_file),
    ("a directory takes the place of an empty directory, and of no other", &[], directory_over_directory),
    ("a directory and a file do not take each other's place", &[], kinds),
    (
        "each kind takes the place of what is no directory, and directories that of each other",
        &[SYMLINKS, SPECIAL],
        pairs,
    ),
    ("a directory does not go below itself", &[], below_itself),
    ("what is not there is not renamed", &[], nothing_to_rename),
    ("what is there is not created again", &[], created_again),
    ("a name is as long as the limit, and no longer", &[], long_names),
    ("2324 files are created in a directory, listed, and removed", &[], many),
    (
        "a listing that goes on later has once what was there throughout, whatever came and went",
        &[],
        listed_later,
    ),
    (
        "who creates, renames and removes one name at once is answered as if each came in turn",
        &[THREADS],
        races::in_turn,
    ),
    ("a file has two names, and lives until both are gone", &[HARD_LINKS], links),
    ("a directory has no second name", &[HARD_LINKS], linked_directory),
    ("a symbolic link is what it was made of, up to the longest, and no longer", &[SYMLINKS], symlinks),
    ("a symbolic link to nothing is not made", &[SYMLINKS], empty_symlink),
    ("a symbolic link is renamed and removed itself, wherever it leads", &[SYMLINKS], not_followed),
    ("permissions are what they were set to, after it was opened again too", &[MODES, LASTING], modes),
    ("the owner is who it was given to, after it was opened again too", &[OWNERS, LASTING], owners),
];

fn paths(room: &mut Room<'_>) {
    room.dir("d");
    room.dir("d/e");
    room.file("d/e/f");
    let ino = room.seen("d/e/f").ino;
    for path in ["d/./e/f", "d//e///f", "d/e/../e/f", "./d/../d/e/./f", "d/e/../../d/e/f"] {
        assert_eq!(room.seen(path).ino, ino, "{path}");
    }
    assert_eq!(room.seen("d/e/..").ino, room.seen("d").ino);
    room.is_gone("d/e/g");
    room.is_gone("g/../d");
}

fn file_in_a_path(room: &mut Room<'_>) {
    room.file("f");
    assert_eq!(room.look("f/x").err(), Some(NOT_DIRECTORY));
    assert_eq!(room.look("f/..").err(), Some(NOT_DIRECTORY));
    let below = room.at("f/x");
    assert_eq!(room.act(Op::Create(below, FileKind::Regular, 0o644)), Err(NOT_DIRECTORY));
}

fn not_empty(room: &mut Room<'_>) {
    room.dir("d");
    room.file("d/f");
    assert_eq!(room.rmdir("d"), Err(NOT_EMPTY));
    assert_eq!(room.unlink("d/f"), Ok(()));
    assert_eq!(room.rmdir("d"), Ok(()));
    room.is_gone("d");
    assert_eq!(room.rmdir("d"), Err(NOT_FOUND));
}

/// POSIX leaves a choice of errors; that nothing is done it does not.
#[track_caller]
fn refused(answer: Answer<()>) {
    assert!(matches!(answer, Err(INVALID | NOT_EMPTY | BUSY | EXISTS | IS_DIRECTORY)), "{answer:?}");
}

fn dots(room: &mut Room<'_>) {
    room.dir("d");
    room.dir("d/e");
    for path in ["d/.", "d/e/.", "d/e/..", "d/.."] {
        refused(room.rmdir(path));
        refused(room.rename(path, "x"));
        refused(room.rename("d/e", path));
    }
    assert_eq!(room.names("."), ["d"]);
    assert_eq!(room.names("d"), ["e"]);
}

fn removed_as_what_it_is(room: &mut Room<'_>) {
    room.dir("d");
    room.file("f");
    // POSIX says EPERM, Linux EISDIR.
    assert!(matches!(room.unlink("d"), Err(IS_DIRECTORY | NOT_PERMITTED)));
    assert_eq!(room.rmdir("f"), Err(NOT_DIRECTORY));
    assert_eq!(room.names("."), ["d", "f"]);
}

fn moved(room: &mut Room<'_>) {
    room.dir("a");
    room.dir("b");
    room.file("a/f");
    let bytes = room.write("a/f", 0, 5000);
    let ino = room.seen("a/f").ino;
    assert_eq!(room.rename("a/f", "b/g"), Ok(()));
    room.is_gone("a/f");
    assert_eq!(room.seen("b/g").ino, ino);
    room.holds("b/g", 0, &bytes);
    assert_eq!(room.rename("b", "a/b"), Ok(()));
    assert_eq!(room.seen("a/b/..").ino, room.seen("a").ino);
    room.holds("a/b/g", 0, &bytes);
}

fn file_over_file(room: &mut Room<'_>) {
    room.file("old");
    room.file("new");
    let bytes = room.write("new", 0, 3000);
    assert_eq!(room.rename("new", "old"), Ok(()));
    assert_eq!(room.names("."), ["old"]);
    room.holds("old", 0, &bytes);
    assert_eq!(room.rename("old", "old"), Ok(()));
    room.holds("old", 0, &bytes);
}

fn directory_over_directory(room: &mut Room<'_>) {
    room.dir("a");
    room.file("a/f");
    room.dir("b");
    room.file("b/g");
    assert!(matches!(room.rename("a", "b"), Err(NOT_EMPTY | EXISTS)));
    assert_eq!(room.unlink("b/g"), Ok(()));
    assert_eq!(room.rename("a", "b"), Ok(()));
    room.is_gone("a");
    assert_eq!(room.names("b"), ["f"]);
}

fn kinds(room: &mut Room<'_>) {
    room.dir("d");
    room.file("f");
    assert_eq!(room.rename("d", "f"), Err(NOT_DIRECTORY));
    assert_eq!(room.rename("f", "d"), Err(IS_DIRECTORY));
    assert_eq!((room.seen("d").kind, room.seen("f").kind), (FileKind::Directory, FileKind::Regular));
}

fn pairs(room: &mut Room<'_>) {
    use FileKind::{Directory, Fifo, Regular, Symlink};
    for (at, from) in [Regular, Directory, Symlink, Fifo].into_iter().enumerate() {
        for to in [Regular, Directory, Symlink, Fifo] {
            let dir = format!("{at}-{to:?}");
            room.dir(&dir);
            let (source, target) = (format!("{dir}/from"), format!("{dir}/to"));
            for (path, kind) in [(&source, from), (&target, to)] {
                match kind {
                    Symlink => room.does(Op::Symlink(room.at(path), 7)),
                    _ => room.make(path, kind),
                }
            }
            let expected = match (from, to) {
                (Directory, Directory) => Ok(()),
                (Directory, _) => Err(NOT_DIRECTORY),
                (_, Directory) => Err(IS_DIRECTORY),
                _ => Ok(()),
            };
            assert_eq!(room.rename(&source, &target), expected, "{from:?} to {to:?}");
            let (left, there) = if expected.is_ok() { (1, from) } else { (2, to) };
            assert_eq!(
                (room.names(&dir).len(), room.seen(&target).kind),
                (left, there),
                "{from:?} to {to:?}"
            );
        }
    }
}

fn below_itself(room: &mut Room<'_>) {
    room.dir("a");
    room.dir("a/b");
    room.dir("a/b/c");
    for to in ["a/x", "a/b/x", "a/b/c/x", "a/b/c"] {
        assert_eq!(room.rename("a", to), Err(INVALID), "{to}");
    }
    assert_eq!(room.rename("a/b/c", "a"), Err(NOT_EMPTY));
    assert_eq!(room.names("a/b"), ["c"]);
}

fn nothing_to_rename(room: &mut Room<'_>) {
    room.file("f");
    assert_eq!(room.rename("g", "f"), Err(NOT_FOUND));
    assert_eq!(room.rename("f", "d/f"), Err(NOT_FOUND));
    assert_eq!(room.names("."), ["f"]);
}

fn created_again(room: &mut Room<'_>) {
    room.file("f");
    room.dir("d");
    for path in ["f", "d"].map(|path| room.at(path)) {
        for kind in [FileKind::Regular, FileKind::Directory] {
            assert_eq!(room.act(Op::Create(path.clone(), kind, 0o700)), Err(EXISTS), "{path}");
        }
    }
    assert_eq!(room.seen("f").kind, FileKind::Regular);
}

fn long_names(room: &mut Room<'_>) {
    let max = room.limits.name_max as usize;
    // What the kernel passes on at most.
    let (longest, longer) = ("n".repeat(max.min(255)), "n".repeat(max.min(255) + 1));
    room.file(&longest);
    assert_eq!(room.names("."), [longest.as_str()]);
    let too_long = room.at(&longer);
    assert_eq!(room.act(Op::Create(too_long, FileKind::Regular, 0o644)), Err(NAME_TOO_LONG));
    assert_eq!(room.rename(&longest, &longer), Err(NAME_TOO_LONG));
    // A format that counts other than bytes may look for what it could not make.
    assert_eq!(room.look(&"n".repeat(max + 1)).err(), Some(NAME_TOO_LONG));
    assert_eq!(room.names("."), [longest.as_str()]);
    assert_eq!(room.unlink(&longest), Ok(()));
}

fn many(room: &mut Room<'_>) {
    room.dir("d");
    let mut names: Vec<String> = (0..2324).map(|n| format!("file-{n:04}")).collect();
    names.iter().for_each(|name| room.file(&format!("d/{name}")));
    assert_eq!(room.names("d"), names);
    for name in names.split_off(100) {
        assert_eq!(room.unlink(&format!("d/{name}")), Ok(()));
    }
    assert_eq!(room.names("d"), names);
    for name in names {
        assert_eq!(room.unlink(&format!("d/{name}")), Ok(()));
    }
    assert_eq!(room.rmdir("d"), Ok(()));
}

fn listed_later(room: &mut Room<'_>) {
    room.dir("d");
    let name = |n: usize| format!("file-{n:03}");
    (0..300).for_each(|n| room.file(&format!("d/{}", name(n))));
    let dir = room.at("d");
    let first = room.host.list_from(&dir, None, 120).expect("a directory lists");
    let (_, place) = *first.last().expect("there are entries");
    // Every third goes, listed or not, that at the place among them, and others come.
    let (last, _) = first.last().expect("there are entries");
    let gone = |n: &usize| n.is_multiple_of(3) || name(*n).as_bytes() == last;
    for n in (0..300).filter(gone) {
        assert_eq!(room.unlink(&format!("d/{}", name(n))), Ok(()));
    }
    (300..350).for_each(|n| room.file(&format!("d/{}", name(n))));
    let (mut all, mut place) = (first.clone(), Some(place));
    while let Some(from) = place {
        let part = room.host.list_from(&dir, Some(from), 50).expect("a directory lists");
        place = part.last().map(|(_, place)| *place);
        all.extend(part);
    }
    let count = |n: usize| all.iter().filter(|(found, _)| found == name(n).as_bytes()).count();
    for n in (0..300).filter(|n| !gone(n)) {
        assert_eq!(count(n), 1, "{}", name(n));
    }
    assert!((300..350).all(|n| count(n) <= 1), "what came is there once at most");
}

fn links(room: &mut Room<'_>) {
    room.file("f");
    let bytes = room.write("f", 0, 2000);
    room.dir("d");
    room.does(Op::Link(room.at("f"), room.at("d/g")));
    assert_eq!((room.seen("f").ino, room.seen("f").nlink), (room.seen("d/g").ino, 2));
    assert_eq!(room.unlink("f"), Ok(()));
    assert_eq!(room.seen("d/g").nlink, 1);
    room.holds("d/g", 0, &bytes);
    room.file("f");
    let (from, to) = (room.at("d/g"), room.at("f"));
    assert_eq!(room.act(Op::Link(from, to)), Err(EXISTS));
}

fn linked_directory(room: &mut Room<'_>) {
    room.dir("d");
    let (from, to) = (room.at("d"), room.at("e"));
    assert_eq!(room.act(Op::Link(from, to)), Err(NOT_PERMITTED));
    room.is_gone("e");
}

fn symlinks(room: &mut Room<'_>) {
    // What the kernel passes on at most, without the NUL.
    let longest = room.limits.symlink_max.min(4095) as usize;
    // Short ones lie in an inode, and long ones take a block.
    let lens: Vec<usize> = [1, 5, 59, 60, 61, 100, 1000, longest - 1, longest].into();
    for len in lens.into_iter().filter(|&len| len <= longest) {
        let name = format!("link-{len}");
        room.does(Op::Symlink(room.at(&name), len));
        assert_eq!(room.host.read_link(&room.at(&name)), Ok(target(len)), "{len} bytes");
        assert_eq!((room.seen(&name).kind, room.seen(&name).size), (FileKind::Symlink, len as u64));
    }
    let too_long = room.at("too long");
    assert_eq!(room.act(Op::Symlink(too_long, longest + 1)), Err(NAME_TOO_LONG));
    room.is_gone("too long");
    room.file("f");
    assert_eq!(room.host.read_link(&room.at("f")).err(), Some(INVALID));
}

fn empty_symlink(room: &mut Room<'_>) {
    let path = room.at("link");
    assert!(matches!(room.act(Op::Symlink(path, 0)), Err(NOT_FOUND | INVALID)));
    room.is_gone("link");
}

fn not_followed(room: &mut Room<'_>) {
    room.does(Op::Symlink(room.at("link"), 7));
    // It leads nowhere; removing and renaming it do not ask where.
    assert_eq!(room.rename("link", "moved"), Ok(()));
    assert_eq!(room.rmdir("moved"), Err(NOT_DIRECTORY));
    assert_eq!(room.look("moved/x").err(), Some(NOT_FOUND));
    assert_eq!(room.unlink("moved"), Ok(()));
    assert!(room.names(".").is_empty());
}

fn modes(room: &mut Room<'_>) {
    room.file("f");
    room.dir("d");
    room.does(Op::Chmod(room.at("f"), 0o4711));
    room.does(Op::Chmod(room.at("d"), 0o1777));
    let is_kept = |room: &Room<'_>| assert_eq!((room.seen("f").mode, room.seen("d").mode), (0o4711, 0o1777));
    is_kept(room);
    room.host.again(obento_driver::Access::ReadWrite);
    is_kept(room);
}

fn owners(room: &mut Room<'_>) {
    room.file("f");
    room.does(Op::Chown(room.at("f"), 1000, 40_000));
    let is_kept = |room: &Room<'_>| assert_eq!((room.seen("f").uid, room.seen("f").gid), (1000, 40_000));
    is_kept(room);
    room.host.again(obento_driver::Access::ReadWrite);
    is_kept(room);
}
