//! Names: path lookup, and changes of names.

use obento_base::FileKind;

use super::{
    Answer, BUSY, CaseDirectory, EXISTS, INVALID, IS_DIRECTORY, NAME_TOO_LONG, NOT_DIRECTORY, NOT_EMPTY,
    NOT_FOUND, NOT_PERMITTED, Need, races,
};
use crate::outcome::{HARD_LINKS, LASTING, MODES, NAME_LIMIT, OWNERS, SPECIAL, SYMLINKS, THREADS, WHITEOUTS};
use crate::plan::{Op, target};

type Row = (&'static str, &'static [Need], fn(&mut CaseDirectory<'_>));

pub(super) const CASES: &[Row] = &[
    ("dots and double slashes in a path are resolved", &[], paths),
    ("a file in the middle of a path is not a directory", &[], file_in_a_path),
    ("a directory that is not empty is not removed", &[], not_empty),
    ("dots cannot be removed or renamed", &[], dots),
    ("unlink refuses directories, and rmdir refuses files", &[], removed_by_its_kind),
    ("a rename moves a file to another directory", &[], moved),
    ("a file replaces a file, which is freed", &[], file_over_file),
    ("a directory replaces only an empty directory", &[], directory_over_directory),
    ("a directory and a file do not replace each other", &[], kinds),
    (
        "files of all types replace each other, and directories replace directories",
        &[SYMLINKS, SPECIAL],
        pairs,
    ),
    ("a directory cannot be moved below itself", &[], below_itself),
    ("a missing name cannot be renamed", &[], nothing_to_rename),
    ("a rename can leave a whiteout at the old name", &[WHITEOUTS], whiteouts),
    ("an existing name cannot be created", &[], created_again),
    ("a name can have the maximum length, and no more", &[NAME_LIMIT], long_names),
    ("2324 files are created in a directory, listed, and removed", &[], many),
    ("an interrupted listing returns each entry that exists throughout exactly once", &[], listed_later),
    (
        "concurrent operations on one name have the results of some sequential order",
        &[THREADS],
        races::in_turn,
    ),
    ("a file with two names exists until both are removed", &[HARD_LINKS], links),
    ("a directory cannot have a second name", &[HARD_LINKS], linked_directory),
    ("a symbolic link stores its target, up to the maximum length", &[SYMLINKS], symlinks),
    ("a symbolic link with an empty target is refused", &[SYMLINKS], empty_symlink),
    ("rename and unlink do not follow a symbolic link", &[SYMLINKS], not_followed),
    ("permissions are stored, and present after the volume is reopened", &[MODES, LASTING], modes),
    ("the owner is stored, and present after the volume is reopened", &[OWNERS, LASTING], owners),
];

fn paths(room: &mut CaseDirectory<'_>) {
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

fn file_in_a_path(room: &mut CaseDirectory<'_>) {
    room.file("f");
    assert_eq!(room.look("f/x").err(), Some(NOT_DIRECTORY));
    assert_eq!(room.look("f/..").err(), Some(NOT_DIRECTORY));
    let below = room.at("f/x");
    assert_eq!(room.act(Op::Create(below, FileKind::Regular, 0o644)), Err(NOT_DIRECTORY));
}

fn not_empty(room: &mut CaseDirectory<'_>) {
    room.dir("d");
    room.file("d/f");
    assert_eq!(room.rmdir("d"), Err(NOT_EMPTY));
    assert_eq!(room.unlink("d/f"), Ok(()));
    assert_eq!(room.rmdir("d"), Ok(()));
    room.is_gone("d");
    assert_eq!(room.rmdir("d"), Err(NOT_FOUND));
}

/// POSIX allows several errors here, but the operation must have no effect.
#[track_caller]
fn refused(answer: Answer<()>) {
    assert!(matches!(answer, Err(INVALID | NOT_EMPTY | BUSY | EXISTS | IS_DIRECTORY)), "{answer:?}");
}

fn dots(room: &mut CaseDirectory<'_>) {
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

fn removed_by_its_kind(room: &mut CaseDirectory<'_>) {
    room.dir("d");
    room.file("f");
    // POSIX requires EPERM; Linux returns EISDIR.
    assert!(matches!(room.unlink("d"), Err(IS_DIRECTORY | NOT_PERMITTED)));
    assert_eq!(room.rmdir("f"), Err(NOT_DIRECTORY));
    assert_eq!(room.names("."), ["d", "f"]);
}

fn moved(room: &mut CaseDirectory<'_>) {
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

fn file_over_file(room: &mut CaseDirectory<'_>) {
    room.file("old");
    room.file("new");
    let bytes = room.write("new", 0, 3000);
    assert_eq!(room.rename("new", "old"), Ok(()));
    assert_eq!(room.names("."), ["old"]);
    room.holds("old", 0, &bytes);
    assert_eq!(room.rename("old", "old"), Ok(()));
    room.holds("old", 0, &bytes);
}

fn directory_over_directory(room: &mut CaseDirectory<'_>) {
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

fn kinds(room: &mut CaseDirectory<'_>) {
    room.dir("d");
    room.file("f");
    assert_eq!(room.rename("d", "f"), Err(NOT_DIRECTORY));
    assert_eq!(room.rename("f", "d"), Err(IS_DIRECTORY));
    assert_eq!((room.seen("d").kind, room.seen("f").kind), (FileKind::Directory, FileKind::Regular));
}

fn pairs(room: &mut CaseDirectory<'_>) {
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

fn below_itself(room: &mut CaseDirectory<'_>) {
    room.dir("a");
    room.dir("a/b");
    room.dir("a/b/c");
    for to in ["a/x", "a/b/x", "a/b/c/x", "a/b/c"] {
        assert_eq!(room.rename("a", to), Err(INVALID), "{to}");
    }
    assert_eq!(room.rename("a/b/c", "a"), Err(NOT_EMPTY));
    assert_eq!(room.names("a/b"), ["c"]);
}

fn whiteouts(room: &mut CaseDirectory<'_>) {
    room.dir("a");
    room.dir("b");
    room.dir("a/sub");
    room.file("b/replaced");
    let is_whiteout = |room: &CaseDirectory<'_>, path| {
        let seen = room.seen(path);
        assert_eq!((seen.kind, seen.mode, seen.nlink), (FileKind::CharDevice, 0, 1), "{path}");
    };
    for (from, to) in [("a/f", "a/g"), ("a/h", "b/replaced"), ("a/sub", "b/sub")] {
        if from != "a/sub" {
            room.file(from);
        }
        let ino = room.seen(from).ino;
        let (before, after) = (room.at(from), room.at(to));
        assert_eq!(room.host.rename_leaving_whiteout(&before, &after), Ok(()), "{from}");
        assert_eq!(room.seen(to).ino, ino, "{to}");
        is_whiteout(room, from);
    }
    assert_eq!(room.names("a"), ["f", "g", "h", "sub"]);
    let (missing, other) = (room.at("a/missing"), room.at("a/other"));
    assert_eq!(room.host.rename_leaving_whiteout(&missing, &other), Err(NOT_FOUND));
    room.is_gone("a/missing");
    // A whiteout is a file that a later rename replaces.
    assert_eq!(room.rename("a/g", "a/f"), Ok(()));
    for name in ["a/h", "a/sub"] {
        assert_eq!(room.unlink(name), Ok(()), "{name}");
    }
    assert_eq!(room.names("a"), ["f"]);
    assert_eq!(room.seen("b/sub/..").ino, room.seen("b").ino);
}

fn nothing_to_rename(room: &mut CaseDirectory<'_>) {
    room.file("f");
    assert_eq!(room.rename("g", "f"), Err(NOT_FOUND));
    assert_eq!(room.rename("f", "d/f"), Err(NOT_FOUND));
    assert_eq!(room.names("."), ["f"]);
}

fn created_again(room: &mut CaseDirectory<'_>) {
    room.file("f");
    room.dir("d");
    for path in ["f", "d"].map(|path| room.at(path)) {
        for kind in [FileKind::Regular, FileKind::Directory] {
            assert_eq!(room.act(Op::Create(path.clone(), kind, 0o700)), Err(EXISTS), "{path}");
        }
    }
    assert_eq!(room.seen("f").kind, FileKind::Regular);
}

fn long_names(room: &mut CaseDirectory<'_>) {
    let max = room.limits.name_max as usize;
    // The kernel passes at most this length to the file system.
    let (longest, longer) = ("n".repeat(max.min(255)), "n".repeat(max.min(255) + 1));
    room.file(&longest);
    assert_eq!(room.names("."), [longest.as_str()]);
    let too_long = room.at(&longer);
    assert_eq!(room.act(Op::Create(too_long, FileKind::Regular, 0o644)), Err(NAME_TOO_LONG));
    assert_eq!(room.rename(&longest, &longer), Err(NAME_TOO_LONG));
    // A format that does not count bytes may look up a name that it could not create.
    assert_eq!(room.look(&"n".repeat(max + 1)).err(), Some(NAME_TOO_LONG));
    assert_eq!(room.names("."), [longest.as_str()]);
    assert_eq!(room.unlink(&longest), Ok(()));
}

fn many(room: &mut CaseDirectory<'_>) {
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

fn listed_later(room: &mut CaseDirectory<'_>) {
    room.dir("d");
    let name = |n: usize| format!("file-{n:03}");
    (0..300).for_each(|n| room.file(&format!("d/{}", name(n))));
    let dir = room.at("d");
    let first = room.host.list_from(&dir, None, 120).expect("a directory lists");
    let (_, place) = *first.last().expect("there are entries");
    // Every third entry is removed, listed or not, including the one at the position, and others are created.
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
    assert!((300..350).all(|n| count(n) <= 1), "each entry is listed at most once");
}

fn links(room: &mut CaseDirectory<'_>) {
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

fn linked_directory(room: &mut CaseDirectory<'_>) {
    room.dir("d");
    let (from, to) = (room.at("d"), room.at("e"));
    assert_eq!(room.act(Op::Link(from, to)), Err(NOT_PERMITTED));
    room.is_gone("e");
}

fn symlinks(room: &mut CaseDirectory<'_>) {
    // The kernel passes at most this length to the file system, without the NUL.
    let longest = room.limits.symlink_max.min(4095) as usize;
    // Short targets are in the inode, and long ones in a block.
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

fn empty_symlink(room: &mut CaseDirectory<'_>) {
    let path = room.at("link");
    assert!(matches!(room.act(Op::Symlink(path, 0)), Err(NOT_FOUND | INVALID)));
    room.is_gone("link");
}

fn not_followed(room: &mut CaseDirectory<'_>) {
    room.does(Op::Symlink(room.at("link"), 7));
    // The link dangles; removing and renaming it do not follow it.
    assert_eq!(room.rename("link", "moved"), Ok(()));
    assert_eq!(room.rmdir("moved"), Err(NOT_DIRECTORY));
    assert_eq!(room.look("moved/x").err(), Some(NOT_FOUND));
    assert_eq!(room.unlink("moved"), Ok(()));
    assert!(room.names(".").is_empty());
}

fn modes(room: &mut CaseDirectory<'_>) {
    room.file("f");
    room.dir("d");
    room.does(Op::Chmod(room.at("f"), 0o4711));
    room.does(Op::Chmod(room.at("d"), 0o1777));
    let is_kept =
        |room: &CaseDirectory<'_>| assert_eq!((room.seen("f").mode, room.seen("d").mode), (0o4711, 0o1777));
    is_kept(room);
    room.host.again(obento_driver::Access::ReadWrite);
    is_kept(room);
}

fn owners(room: &mut CaseDirectory<'_>) {
    room.file("f");
    room.does(Op::Chown(room.at("f"), 1000, 40_000));
    let is_kept =
        |room: &CaseDirectory<'_>| assert_eq!((room.seen("f").uid, room.seen("f").gid), (1000, 40_000));
    is_kept(room);
    room.host.again(obento_driver::Access::ReadWrite);
    is_kept(room);
}
