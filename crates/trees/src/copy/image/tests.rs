use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::Arc;

use obento_env::SystemClock;
use obento_open::Volume;
use obento_open::address::FileSelector;
use obento_tmpfs as tmpfs;
use obento_vfs::Symlinks;

use super::*;
use crate::copy::{CopyFrom, CopyOptions, CopyReport, CopySource, Quiet, copy_in, copy_out};
use crate::diff::{DiffOptions, DiffSide, diff};
use crate::toy::{Piece, Toy, dir, text, toy};
use crate::unfinished::unfinished_name;

fn empty() -> Volume {
    Volume::new(Arc::new(tmpfs::Tmpfs::new(tmpfs::Options::new(Arc::new(SystemClock)))))
}

fn target(volume: &Volume, path: &str) -> ImageTarget {
    let place = FileSelector::Path(path.as_bytes().to_vec());
    ImageTarget { volume: volume.clone(), place, prefix: b"disk.img:".to_vec() }
}

fn host(path: &Path) -> CopyFrom {
    CopyFrom::Host(path.as_os_str().as_encoded_bytes().to_vec())
}

fn image(volume: &Volume, path: &str) -> CopyFrom {
    let node = node(volume, path);
    CopyFrom::Image(CopySource { node, path: path.as_bytes().to_vec(), prefix: b"from.img:".to_vec() })
}

fn node(volume: &Volume, path: &str) -> Node {
    volume.resolve(&FileSelector::Path(path.as_bytes().to_vec()), Symlinks::Keep).unwrap()
}

fn copy(from: &[CopyFrom], target: &ImageTarget, options: &CopyOptions) -> (CopyReport, Vec<String>) {
    let mut problems = Quiet::default();
    let report = copy_in(from, target, options, &mut problems).unwrap();
    (report, problems.0.iter().map(ToString::to_string).collect())
}

/// Returns the differences as text.
fn differences(left: &DiffSide, right: &DiffSide) -> Vec<String> {
    let mut found = Vec::new();
    diff(left, right, &DiffOptions::ALL, &mut |difference| {
        found.push(format!("{difference:?}"));
        std::ops::ControlFlow::Continue(())
    });
    found
}

fn side(volume: &Volume, path: &str) -> DiffSide {
    DiffSide::Image { node: node(volume, path), path: path.as_bytes().to_vec() }
}

/// Creates a folder with every kind of entry that needs no root privileges.
fn tree(folder: &Path) {
    fs::create_dir_all(folder.join("dir/deep")).unwrap();
    fs::write(folder.join("dir/file"), vec![7; 100_000]).unwrap();
    fs::hard_link(folder.join("dir/file"), folder.join("link")).unwrap();
    symlink("dir/file", folder.join("symlink")).unwrap();
    let sparse = fs::File::create(folder.join("sparse")).unwrap();
    sparse.set_len(10 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"island", 5 << 20).unwrap();
    fs::write(folder.join("empty"), "").unwrap();
}

#[test]
fn a_tree_goes_through_two_volumes_and_comes_back_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let (source, back) = (folder.path().join("source"), folder.path().join("back"));
    tree(&source);
    let (first, second, all) = (empty(), empty(), CopyOptions::archive());
    let (report, problems) = copy(&[host(&source)], &target(&first, "/"), &all);
    assert_eq!((problems, report.written.directories), (Vec::new(), 3));
    let (_, problems) = copy(&[image(&first, "/source")], &target(&second, "/again"), &all);
    assert_eq!(problems, Vec::<String>::new());
    let host_side = DiffSide::Host(source.clone());
    assert_eq!(differences(&host_side, &side(&second, "/again")), Vec::<String>::new());
    let linked = node(&second, "/again/link").attr().unwrap();
    assert_eq!((linked.nlink, linked.ino), (2, node(&second, "/again/dir/file").ino()));
    let out = CopySource { node: node(&second, "/again"), path: b"/again".to_vec(), prefix: Vec::new() };
    copy_out(&[out], &back, &all, &mut Quiet::default()).unwrap();
    assert_eq!(differences(&host_side, &DiffSide::Host(back.clone())), Vec::<String>::new());
    assert!(fs::metadata(back.join("sparse")).unwrap().blocks() < 100, "the holes were filled");
}

#[test]
fn the_valid_part_of_a_hostile_volume_is_copied() {
    let volume = toy([
        (2, dir(&[("x", 3), ("x", 4), ("loop", 4), ("bad", 6), ("fifo", 7)])),
        (3, Toy::Link("..")),
        (4, dir(&[("file", 5), ("again", 4), ("up", 2)])),
        (5, text("good")),
        (6, Toy::File(vec![Piece::Mapped(1, 5000), Piece::Lost(10_000), Piece::Mapped(2, 3000)])),
        (7, Toy::Node(FileKind::Fifo)),
    ]);
    let to = empty();
    let (_, problems) = copy(&[image(&volume, "/")], &target(&to, "/"), &CopyOptions::archive());
    let reported = |wanted: &str| problems.iter().any(|problem| problem.contains(wanted));
    for wanted in ["/x: ", "/loop/again: ", "/loop/up: ", "/bad: bytes 5000 to "] {
        assert!(reported(wanted), "{wanted} is missing from {problems:?}");
    }
    assert_eq!(node(&to, "/x").read_link().unwrap(), b"..");
    assert_eq!(node(&to, "/loop/file").attr().unwrap().size, 4);
    assert_eq!(node(&to, "/bad").attr().unwrap().size, 18_000);
    assert_eq!(node(&to, "/fifo").kind(), Ok(FileKind::Fifo));
}

#[test]
fn names_that_are_taken_are_treated_as_asked() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let (one, two) = (file("one", "one"), file("two", "two"));
    let (volume, plain) = (empty(), CopyOptions::plain());
    let read = |volume: &Volume| {
        let mut content = [0; 9];
        let len = node(volume, "/file").read_at(0, &mut content).unwrap();
        String::from_utf8(content[..len].to_vec()).unwrap()
    };
    let to = target(&volume, "/file");
    copy(&[host(&one)], &to, &plain);
    for (existing, expected) in [(Existing::Keep, "one"), (Existing::Replace, "two")] {
        let options = CopyOptions { tree: TreeOptions { existing, ..plain.tree.clone() }, ..plain.clone() };
        copy(&[host(&two)], &to, &options);
        assert_eq!(read(&volume), expected);
    }
    let fail =
        CopyOptions { tree: TreeOptions { existing: Existing::Fail, ..plain.tree.clone() }, ..plain.clone() };
    assert_eq!(copy(&[host(&one)], &to, &fail).1.len(), 1);
    let (_, problems) = copy(&[host(&one), host(&one)], &target(&volume, "/"), &plain);
    assert!(
        problems.len() == 1 && problems[0].contains("an earlier source has the same name"),
        "{problems:?}"
    );
    let dir = folder.path().join("dir");
    fs::create_dir_all(dir.join("file")).unwrap();
    let recursive = CopyOptions { recursive: true, ..plain.clone() };
    let (_, problems) = copy(&[host(&dir.join("file"))], &target(&volume, "/"), &recursive);
    assert!(problems.len() == 1 && problems[0].contains("not a directory"), "{problems:?}");
    assert_eq!(unfinished(&volume), Vec::<String>::new());
}

/// Returns the names of unfinished files.
fn unfinished(volume: &Volume) -> Vec<String> {
    let mut found = Vec::new();
    let listed = volume.root().read_dir(obento_driver::Cookie::START, &mut |entry| {
        found.push(String::from_utf8_lossy(entry.unwrap().name.as_bytes()).into_owned());
        std::ops::ControlFlow::Continue(())
    });
    listed.unwrap();
    found.retain(|name| name.starts_with(crate::unfinished::PREFIX));
    found
}

#[test]
fn the_next_copy_removes_the_leftovers_of_a_killed_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "new").unwrap();
    let (volume, plain) = (empty(), CopyOptions::plain());
    let into = target(&volume, "/");
    copy(&[host(&path)], &into, &plain);
    let (root, name) = (volume.root(), Name::new(b"file").unwrap());
    let left = unfinished_name(&root, name).unwrap();
    let own = ".obento-unfinished-copy";
    for left in [std::str::from_utf8(left.as_bytes()).unwrap(), own] {
        copy(&[host(&path)], &target(&volume, &format!("/{left}")), &plain);
    }
    copy(&[host(&path)], &into, &plain);
    assert_eq!(unfinished(&volume), [own], "a file of the user stays");
}

#[test]
fn the_limit_on_bytes_ends_the_copy_and_leaves_no_part_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, vec![1; 5000]).unwrap();
    let volume = empty();
    let tree = TreeOptions { max_bytes: 4000, ..TreeOptions::default() };
    let options = CopyOptions { tree, ..CopyOptions::archive() };
    let ended = copy_in(&[host(&path)], &target(&volume, "/"), &options, &mut Quiet::default());
    assert!(matches!(ended, Err(CopyError::Host(HostError::Limit { limit: 4000, .. }))), "{ended:?}");
    assert!(volume.root().lookup(Name::new(b"file").unwrap()).is_err());
}

#[test]
fn sparse_files_with_more_than_64_bits_of_bytes_together_are_copied() {
    let names = ["a", "b", "c", "d", "e"];
    let entries: Vec<_> = (3..).zip(names).map(|(ino, name)| (name, ino)).collect();
    let files = (3..8).map(|ino| (ino, Toy::File(vec![Piece::Hole(1 << 62)])));
    let volume = toy(files.chain([(2, dir(&entries))]));
    let to = empty();
    let from = names.map(|name| image(&volume, name));
    let (report, problems) = copy(&from, &target(&to, "/"), &CopyOptions::archive());
    assert_eq!((problems, report.written.files), (vec![], 5));
    assert!(names.iter().all(|name| node(&to, name).attr().unwrap().size == 1 << 62));
}
