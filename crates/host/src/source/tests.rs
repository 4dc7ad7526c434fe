use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;

use obento_base::{FileKind, Name};
use obento_block::BlockDevice;

use super::*;
use crate::HostError;

fn paths(walk: Walk, root: &Path) -> Vec<Vec<u8>> {
    walk.map(|entry| entry.unwrap().path().strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec())
        .collect()
}

#[test]
fn a_tree_is_walked_in_the_order_of_bytes_without_following_links() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    fs::create_dir_all(root.join("b/c")).unwrap();
    for file in ["b/c/z", "b/x", "B", "b-", "\u{fc}"] {
        fs::write(root.join(file), file).unwrap();
    }
    fs::write(root.join(std::ffi::OsStr::from_bytes(b"\xff")), "").unwrap();
    symlink("b", root.join("link")).unwrap();
    symlink("..", root.join("b/up")).unwrap();
    let expected: [&[u8]; 11] =
        [b"", b"B", b"b", b"b/c", b"b/c/z", b"b/up", b"b/x", b"b-", b"link", "\u{fc}".as_bytes(), b"\xff"];
    assert_eq!(paths(Walk::new(root).unwrap(), root), expected);
    let mut walk = Walk::new(root).unwrap();
    let mut seen = 0;
    while let Some(entry) = walk.next() {
        if entry.unwrap().name().is_some_and(|name| name.as_bytes() == b"b") {
            walk.prune();
        }
        seen += 1;
    }
    assert_eq!(seen, 7);
}

#[test]
fn entries_contain_attributes_targets_and_extended_attributes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "12345").unwrap();
    fs::hard_link(&path, dir.path().join("other")).unwrap();
    symlink("over/there", dir.path().join("link")).unwrap();
    let large = vec![7; 3000];
    let flags = rustix::fs::XattrFlags::empty();
    let with_xattrs = rustix::fs::setxattr(&path, "user.b", &large, flags).is_ok()
        && rustix::fs::setxattr(&path, "user.a", b"1", flags).is_ok();
    let source = SourceDir::open(dir.path()).unwrap();
    let entry = |name: &str| source.entry(Name::new(name.as_bytes()).unwrap()).unwrap();
    let (file, meta) = (entry("file"), fs::metadata(&path).unwrap());
    let attr = file.attr();
    assert_eq!((attr.kind, attr.size, attr.nlink), (FileKind::Regular, 5, 2));
    assert_eq!((attr.mtime.secs(), i64::from(attr.mtime.nanos())), (meta.mtime(), meta.mtime_nsec()));
    assert_eq!((attr.ino.0, u32::from(attr.st_mode())), (meta.ino(), meta.mode()));
    assert_eq!((file.id(), file.id().dev), (entry("other").id(), meta.dev()));
    assert_eq!(entry("link").read_link().unwrap(), b"over/there");
    assert!(entry("link").open_file().is_err() && file.read_link().is_err());
    if with_xattrs {
        let found: Vec<_> =
            file.xattrs().unwrap().into_iter().map(|xattr| (xattr.name, xattr.value)).collect();
        assert_eq!(found, [(b"user.a".to_vec(), b"1".to_vec()), (b"user.b".to_vec(), large)]);
    }
    assert!(source.entry(Name::new(b"none").unwrap()).is_err());
}

#[test]
fn holes_of_a_file_are_reported_and_its_bytes_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = File::create(dir.path().join("f")).unwrap();
    file.write_all_at(&[1; 4096], 1 << 20).unwrap();
    file.write_all_at(&[2; 10], 3 << 20).unwrap();
    file.set_len(1 << 40).unwrap();
    let source = SourceDir::open(dir.path()).unwrap();
    let open = source.entry(Name::new(b"f").unwrap()).unwrap().open_file().unwrap();
    let runs: Vec<Run> = open.runs().map(Result::unwrap).collect();
    let covered = runs.iter().fold(0, |at, run| {
        let (Run::Data(range) | Run::Hole(range)) = run;
        assert_eq!(range.start, at);
        range.end
    });
    assert_eq!(covered, 1 << 40);
    assert_eq!(runs[..2], [Run::Hole(0..1 << 20), Run::Data(1 << 20..(1 << 20) + 4096)]);
    let mut bytes = [0; 3];
    open.device().read_at((3 << 20) + 8, &mut bytes).unwrap();
    assert_eq!(bytes, [2, 2, 0]);
}

#[test]
fn a_file_swapped_after_it_was_looked_at_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), "a").unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    let source = SourceDir::open(dir.path()).unwrap();
    let (file, folder) =
        (source.entry(Name::new(b"f").unwrap()).unwrap(), source.entry(Name::new(b"d").unwrap()).unwrap());
    fs::write(dir.path().join("new"), "b").unwrap();
    fs::rename(dir.path().join("new"), dir.path().join("f")).unwrap();
    assert!(matches!(file.open_file(), Err(HostError::Changed { .. })));
    fs::remove_dir(dir.path().join("d")).unwrap();
    symlink("/etc", dir.path().join("d")).unwrap();
    assert!(folder.open_dir().is_err());
}

#[test]
fn a_deep_tree_needs_few_open_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut path = dir.path().to_owned();
    for _ in 0..400 {
        path.push("d");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("z"), "").unwrap();
    }
    // Other tests of this process open files in other places.
    let open_files = || {
        let links =
            fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
        links.filter(|file| file.starts_with(dir.path().canonicalize().unwrap())).count()
    };
    let mut walk = Walk::new(dir.path()).unwrap();
    let (mut seen, mut most) = (0, 0);
    while let Some(entry) = walk.next() {
        entry.unwrap();
        seen += 1;
        most = most.max(walk.depth());
    }
    assert_eq!((seen, most), (801, 401));
    let mut half_way = Walk::new(dir.path()).unwrap();
    half_way.nth(300);
    assert!((1..100).contains(&open_files()));
}

/// Returns the paths that several threads find below `root`, and the paths of excluded directories.
fn together(root: &Path, threads: usize, leave_out: &str) -> (Vec<Vec<u8>>, usize) {
    let (mut found, mut left_out) = (Vec::new(), 0);
    // The directory of each way, and the directories from it down.
    let mut ways = std::collections::HashMap::from([(WalkerPath::FIRST, Vec::new())]);
    let is_left_out = |path: &[u8]| path.ends_with(leave_out.as_bytes());
    let taken = walk_together(Walk::new(root).unwrap(), threads, &is_left_out, |piece| {
        let mut levels = ways.remove(&piece.way).expect("a way begins with a reported directory");
        for step in piece.steps {
            match step {
                Step::LeftOut => left_out += 1,
                Step::Failed(error) => panic!("{error}"),
                Step::Entry { entry, depth, below } => {
                    levels.truncate(depth);
                    let path = entry.path();
                    if entry.name().is_some() {
                        assert_eq!(levels.last().map(Path::new), path.parent());
                    }
                    found.push(path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec());
                    match below {
                        Some(way) => drop(ways.insert(way, vec![path])),
                        None if entry.attr().kind == FileKind::Directory => levels.push(path),
                        None => {}
                    }
                }
            }
        }
        if !piece.is_end {
            ways.insert(piece.way, levels);
        }
        Ok::<_, ()>(())
    });
    taken.unwrap();
    assert!(ways.is_empty());
    found.sort();
    (found, left_out)
}

#[test]
fn several_threads_find_the_entries_of_one_walk_and_each_directory_before_its_contents() {
    let dir = tempfile::tempdir().unwrap();
    for at in 0..300 {
        let folder = dir.path().join(format!("{}/{}/{at}", at % 3, at % 17));
        fs::create_dir_all(&folder).unwrap();
        for file in 0..at % 9 {
            fs::write(folder.join(file.to_string()), "").unwrap();
        }
    }
    let deep = dir.path().join(["d"; 200].join("/"));
    fs::create_dir_all(&deep).unwrap();
    let mut expected = paths(Walk::new(dir.path()).unwrap(), dir.path());
    expected.sort();
    for threads in [1, 2, 7] {
        assert_eq!(together(dir.path(), threads, "none"), (expected.clone(), 0));
    }
    let (found, left_out) = together(dir.path(), 3, "/1");
    expected.retain(|path| !path.split(|&byte| byte == b'/').any(|name| name == b"1"));
    assert_eq!(found, expected);
    assert!(left_out > 1);
}

#[test]
fn a_sink_that_stops_gets_no_further_entry() {
    let dir = tempfile::tempdir().unwrap();
    for at in 0..2000 {
        fs::create_dir_all(dir.path().join(format!("{}/{at}", at % 50))).unwrap();
    }
    for threads in [1, 4] {
        let mut pieces = 0;
        let walk = Walk::new(dir.path()).unwrap();
        let taken = walk_together(walk, threads, &|_| false, |_| {
            pieces += 1;
            if pieces == 3 { Err("enough") } else { Ok(()) }
        });
        assert_eq!((taken, pieces), (Err("enough"), 3));
    }
}

#[test]
fn a_directory_beneath_another_is_not_left_through_links() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("top/inner/deep")).unwrap();
    fs::create_dir(at("secret")).unwrap();
    fs::write(at("top/inner/f"), "harmless").unwrap();
    symlink("inner", at("top/within")).unwrap();
    symlink("../secret", at("top/out")).unwrap();
    symlink(at("secret"), at("top/absolute")).unwrap();
    let top = SourceDir::open(&at("top")).unwrap();
    let file =
        |path: &str| top.open_beneath(Path::new(path)).unwrap().entry(Name::new(b"f").unwrap()).unwrap();
    for inside in [".", "inner", "inner/deep/..", "within"] {
        assert!(top.open_beneath(Path::new(inside)).is_ok(), "{inside}");
    }
    assert_eq!(file("within").id(), file("inner").id());
    assert!(file("within").open_file().is_ok());
    // The directory is the one that was opened, also after its name leads elsewhere.
    let opened = top.open_beneath(Path::new("inner")).unwrap();
    let known = file("inner").id();
    fs::rename(at("top/inner"), at("top/moved")).unwrap();
    symlink("../secret", at("top/inner")).unwrap();
    assert_eq!(opened.entry(Name::new(b"f").unwrap()).unwrap().id(), known);
    assert!(top.open_beneath(Path::new("inner")).is_err());
    fs::remove_file(at("top/inner")).unwrap();
    fs::rename(at("top/moved"), at("top/inner")).unwrap();
    for outside in ["..", "out", "absolute", "inner/../../secret", "/", "within/../../secret"] {
        assert!(top.open_beneath(Path::new(outside)).is_err(), "{outside}");
    }
}

#[test]
fn a_directory_that_may_only_be_searched_finds_files_by_their_names() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("inner")).unwrap();
    fs::write(dir.path().join("inner/f"), "bytes").unwrap();
    let top = SourceDir::open_to_search(dir.path()).unwrap();
    let inner = top.open_beneath(Path::new("inner")).unwrap();
    let entry = inner.entry(Name::new(b"f").unwrap()).unwrap();
    assert!(entry.is_readable() && entry.xattrs().is_ok());
    assert_eq!(entry.open_file().unwrap().device().len(), 5);
    // Without the right to list the directory, an open for reading would have failed.
    assert!(top.names().is_err() && inner.names().is_err());
}
