use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::Ordering;

use obento_base::{Error, FileKind, Ino};
use obento_open::Volume;
use obento_vfs::Symlinks;

use super::*;
use crate::toy::{Laden, Piece, Toy, VALUE, dir, text, toy};

fn tree() -> Volume {
    toy([
        (2, dir(&[("etc", 3), ("link", 4), ("big", 5), ("one", 6), ("two", 6), ("pipe", 7), ("empty", 8)])),
        (3, dir(&[("passwd", 9), ("deep", 10)])),
        (4, Toy::Link("etc/passwd")),
        (
            5,
            Toy::File(vec![
                Piece::Mapped(7, 5000),
                Piece::Hole(1 << 20),
                Piece::Mapped(8, 70),
                Piece::Hole(100),
            ]),
        ),
        (6, text("twice")),
        (7, Toy::Node(FileKind::Fifo)),
        (8, text("")),
        (9, text("root:x:0:0")),
        (10, dir(&[])),
    ])
}

fn source(volume: &Volume, path: &str) -> CopySource {
    let place = obento_open::address::FileSelector::Path(path.as_bytes().to_vec());
    CopySource {
        node: volume.resolve(&place, Symlinks::Keep).unwrap(),
        path: path.as_bytes().to_vec(),
        prefix: Vec::new(),
    }
}

fn copy(volume: &Volume, paths: &[&str], target: &Path, options: &CopyOptions) -> (CopyReport, Vec<Problem>) {
    let sources: Vec<_> = paths.iter().map(|path| source(volume, path)).collect();
    let mut problems = Quiet::default();
    let report = copy_out(&sources, target, options, &mut problems).unwrap();
    assert_eq!(report.problems, problems.0.len() as u64);
    (report, problems.0)
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn an_archive_copy_of_the_root_puts_its_contents_into_the_directory_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let (report, problems) = copy(&tree(), &["/"], folder.path(), &CopyOptions::archive());
    assert_eq!(problems, []);
    let at = |name: &str| folder.path().join(name);
    assert_eq!(names(folder.path()), ["big", "empty", "etc", "link", "one", "pipe", "two"]);
    assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("etc/passwd"));
    assert_eq!(fs::read(at("etc/passwd")).unwrap(), b"root:x:0:0");
    assert!(fs::symlink_metadata(at("pipe")).unwrap().file_type().is_fifo());
    let (one, two) = (fs::metadata(at("one")).unwrap(), fs::metadata(at("two")).unwrap());
    assert_eq!((one.ino(), one.nlink(), one.mode() & 0o7777), (two.ino(), 2, 0o640));
    for (name, ino) in [("etc/passwd", 9), ("etc/deep", 10), ("etc", 3), ("link", 4), ("pipe", 7), (".", 2)] {
        let meta = fs::symlink_metadata(at(name)).unwrap();
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (1_000_000 + ino, 123_456_789), "{name}");
    }
    let big = fs::read(at("big")).unwrap();
    assert_eq!(big.len(), 5000 + (1 << 20) + 170);
    assert!(
        big[..5000].iter().all(|&byte| byte == 7)
            && big[5000..(1 << 20) + 5000].iter().all(|&byte| byte == 0)
    );
    assert!(big[(1 << 20) + 5000..][..70].iter().all(|&byte| byte == 8));
    assert!(fs::metadata(at("big")).unwrap().blocks() < 200, "the hole was filled");
    assert_eq!((report.written.files, report.written.directories), (4, 2));
}

#[test]
fn a_file_goes_into_a_directory_or_under_a_name_and_a_directory_makes_the_target() {
    let (folder, volume) = (tempfile::tempdir().unwrap(), tree());
    let at = |name: &str| folder.path().join(name);
    copy(&volume, &["/etc/passwd"], folder.path(), &CopyOptions::plain());
    copy(&volume, &["/etc/passwd"], &at("renamed"), &CopyOptions::plain());
    copy(&volume, &["/etc/passwd"], &at("renamed"), &CopyOptions::plain());
    copy(&volume, &["/etc"], &at("new"), &CopyOptions::archive());
    copy(&volume, &["/etc"], &at("new"), &CopyOptions::archive());
    copy(&volume, &["/etc/."], &at("new/etc/deep"), &CopyOptions::archive());
    assert_eq!(names(folder.path()), ["new", "passwd", "renamed"]);
    assert_eq!(names(&at("new")), ["deep", "etc", "passwd"]);
    assert_eq!(names(&at("new/etc/deep")), ["deep", "passwd"]);
    let several = [source(&volume, "/one"), source(&volume, "/two")];
    let refused = copy_out(&several, &at("nothing"), &CopyOptions::plain(), &mut Quiet::default());
    assert!(matches!(refused, Err(CopyError::NotDirectory { .. })));
    copy(&volume, &["/one", "/two"], &at("new"), &CopyOptions::plain());
    assert_eq!(fs::metadata(at("new/one")).unwrap().nlink(), 1);
}

#[test]
fn files_of_two_volumes_are_never_linked_though_their_numbers_are_equal() {
    let folder = tempfile::tempdir().unwrap();
    let volume = |content: &'static str, below: &'static str| {
        toy([(2, dir(&[(content, 3), (below, 4)])), (3, text(content)), (4, dir(&[(content, 3)]))])
    };
    let (first, second) = (volume("first", "d"), volume("second", "e"));
    let sources =
        [source(&first, "/first"), source(&second, "/second"), source(&first, "/d"), source(&second, "/e")];
    copy_out(&sources, folder.path(), &CopyOptions::archive(), &mut Quiet::default()).unwrap();
    for (content, below) in [("first", "d"), ("second", "e")] {
        let (top, below) = (folder.path().join(content), folder.path().join(below).join(content));
        assert_eq!(fs::read(&below).unwrap(), content.as_bytes());
        assert_eq!(fs::metadata(top).unwrap().ino(), fs::metadata(below).unwrap().ino(), "{content}");
    }
}

#[test]
fn a_directory_without_recursion_is_omitted_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (_, problems) = copy(&tree(), &["/etc", "/one"], folder.path(), &CopyOptions::plain());
    assert_eq!(problems, [Problem { path: b"/etc".to_vec(), trouble: ProblemReason::DirectoryOmitted }]);
    assert_eq!(names(folder.path()), ["one"]);
}

#[test]
fn links_are_followed_when_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let options = CopyOptions { symlinks: Symlinks::Follow, ..CopyOptions::archive() };
    copy(&tree(), &["/"], folder.path(), &options);
    assert!(fs::symlink_metadata(folder.path().join("link")).unwrap().is_file());
    let dangling = toy([(2, dir(&[("gone", 3)])), (3, Toy::Link("nowhere"))]);
    let (_, problems) = copy(&dangling, &["/"], folder.path(), &options);
    assert_eq!(
        problems,
        [Problem { path: b"/gone".to_vec(), trouble: ProblemReason::Volume(Error::NotFound) }]
    );
}

#[test]
fn damage_costs_the_bytes_that_are_lost_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let pieces = vec![
        Piece::Mapped(1, 5000),
        Piece::Lost(10_000),
        Piece::Mapped(2, 3000),
        Piece::Unmapped(8192),
        Piece::Mapped(3, 100),
    ];
    let entries =
        vec![Ok(("bad", 3)), Err(Error::OutOfRange), Ok(("gone", 99)), Ok(("good", 4)), Ok(("good", 4))];
    let volume = toy([(2, Toy::Dir(entries)), (3, Toy::File(pieces)), (4, text("good"))]);
    let (_, problems) = copy(&volume, &["/"], folder.path(), &CopyOptions::archive());
    let bad = fs::read(folder.path().join("bad")).unwrap();
    assert_eq!(bad.len(), 26_292);
    assert!(bad[..5000].iter().all(|&byte| byte == 1));
    assert!(bad[16_384..18_000].iter().all(|&byte| byte == 2));
    assert!(bad[26_200..].iter().all(|&byte| byte == 3 || byte == 0));
    assert_eq!(fs::read(folder.path().join("good")).unwrap(), b"good");
    let reported = |wanted: &str| problems.iter().any(|problem| problem.to_string().contains(wanted));
    for wanted in ["/bad: bytes 5000 to ", "/gone: ", "/: ", "/good: "] {
        assert!(reported(wanted), "{wanted} is missing from {problems:?}");
    }
}

#[test]
fn a_hostile_tree_ends_and_stays_inside() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("target");
    fs::create_dir(&target).unwrap();
    let volume = toy([
        (2, dir(&[("x", 3), ("x", 4), ("loop", 4)])),
        (3, Toy::Link("..")),
        (4, dir(&[("escaped", 5), ("again", 4), ("up", 2)])),
        (5, text("out")),
    ]);
    let (_, problems) = copy(&volume, &["/"], &target, &CopyOptions::archive());
    assert!(!folder.path().join("escaped").exists());
    assert_eq!(names(folder.path()), ["target"]);
    assert_eq!(names(&target), ["loop", "x"]);
    assert_eq!(names(&target.join("loop")), ["escaped"]);
    assert_eq!(problems.len(), 3, "{problems:?}");
}

#[test]
fn the_limit_on_bytes_ends_the_copy() {
    let folder = tempfile::tempdir().unwrap();
    let tree_options = TreeOptions { max_bytes: 4000, ..TreeOptions::default() };
    let options = CopyOptions { tree: tree_options, ..CopyOptions::archive() };
    let volume = tree();
    let ended = copy_out(&[source(&volume, "/")], folder.path(), &options, &mut Quiet::default());
    assert!(matches!(ended, Err(CopyError::Host(HostError::Limit { limit: 4000, .. }))), "{ended:?}");
}

#[test]
fn the_bytes_of_a_file_go_to_any_writer() {
    let (volume, mut output) = (tree(), Vec::new());
    let node = volume.vfs().node(Ino(5)).unwrap();
    let bytes = copy_to_writer(&node, b"/big", &mut output, &mut Quiet::default()).unwrap();
    assert_eq!((bytes, output.len(), output[4999], output[5000]), (1_053_746, 1_053_746, 7, 0));
    let refused = copy_to_writer(&volume.root(), b"/", &mut output, &mut Quiet::default());
    assert!(matches!(refused, Err(CopyError::Volume(Error::IsDirectory))));
}

#[test]
fn attributes_beyond_the_limit_on_bytes_end_the_copy_and_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let fs = Laden::new(1000);
    let volume = Volume::new(fs.clone());
    let tree = TreeOptions { max_bytes: 100_000, ..TreeOptions::default() };
    let options = CopyOptions { tree, ..CopyOptions::archive() };
    let ended = copy_out(&[source(&volume, "/")], folder.path(), &options, &mut Quiet::default());
    assert!(matches!(ended, Err(CopyError::Host(HostError::Limit { limit: 100_000, .. }))), "{ended:?}");
    let read = fs.reads.load(Ordering::Relaxed) * VALUE;
    assert!(read < 2 << 20, "{read}");
}
