//! Names, the life of inodes, and renames.

mod common;

use common::{Short, name, new_node, user, volume};
use obento_base::{Error, FileFlags, FileKind, Mode};
use obento_driver::{FileSystem, RenameFlags, SetAttr};
use obento_vfs::{Caller, Node, Vfs};

const OWNER: Caller = Caller::Owner;

fn rename(vfs: &Vfs, from: (&Node, &str), to: (&Node, &str), flags: RenameFlags) -> Result<(), Error> {
    vfs.rename(&OWNER, (from.0, name(from.1)), (to.0, name(to.1)), flags)
}

#[test]
fn the_name_cache_follows_every_change() {
    let (_, vfs) = volume();
    let root = vfs.root();
    let d = root.dir("d");
    for round in 0..3 {
        assert_eq!(root.get("a"), Err(Error::NotFound), "round {round}");
        let a = root.file("a");
        assert_eq!(root.get("a").unwrap(), a);
        rename(&vfs, (&root, "a"), (&d, "b"), RenameFlags::empty()).unwrap();
        assert_eq!((root.get("a"), d.get("b")), (Err(Error::NotFound), Ok(a.clone())));
        vfs.link(&OWNER, &a, &root, name("a")).unwrap();
        assert_eq!(root.get("a").unwrap(), a);
        let other = root.file("other");
        rename(&vfs, (&root, "other"), (&root, "a"), RenameFlags::EXCHANGE).unwrap();
        assert_eq!((root.get("a").unwrap(), root.get("other").unwrap()), (other, a));
        for (dir, gone) in [(&root, "a"), (&root, "other"), (&d, "b")] {
            vfs.unlink(&OWNER, dir, name(gone)).unwrap();
        }
    }
}

#[test]
fn more_names_than_the_cache_holds_are_found_all_the_same() {
    let (fs, vfs) = volume();
    let root = vfs.root();
    for n in 0..40_000 {
        root.file(&n.to_string());
    }
    assert!(vfs.nodes_in_use() <= 32_768 + 1);
    for n in 0..40_000 {
        assert!(root.get(&n.to_string()).is_ok());
        assert_eq!(root.get(&format!("{n}-")), Err(Error::NotFound));
    }
    drop((root, vfs));
    assert_eq!(fs.inodes_in_use(), 40_001);
}

#[test]
fn an_unlinked_file_reads_and_writes_until_its_last_node_goes() {
    let (fs, vfs) = volume();
    let root = vfs.root();
    let file = root.file("f");
    let again = file.clone();
    vfs.unlink(&OWNER, &root, name("f")).unwrap();
    drop(file);
    again.write_at(0, b"still here").unwrap();
    assert_eq!((again.bytes(), again.attr().unwrap().nlink), (b"still here".to_vec(), 0));
    assert_eq!(vfs.link(&OWNER, &again, &root, name("back")), Err(Error::NotFound));
    let ino = again.ino();
    drop(again);
    assert_eq!(fs.inodes_in_use(), 1);
    assert_eq!(vfs.node(ino), Err(Error::Stale));
}

#[test]
fn replaced_and_removed_files_that_are_not_open_are_freed_at_once() {
    let (fs, vfs) = volume();
    let root = vfs.root();
    root.file("a").write_at(0, &[1; 9000]).unwrap();
    root.file("b");
    root.dir("d");
    rename(&vfs, (&root, "b"), (&root, "a"), RenameFlags::empty()).unwrap();
    vfs.rmdir(&OWNER, &root, name("d")).unwrap();
    assert_eq!(fs.inodes_in_use(), 2);
    vfs.unlink(&OWNER, &root, name("a")).unwrap();
    let stat = fs.statfs().unwrap();
    assert_eq!((fs.inodes_in_use(), stat.free), (1, stat.blocks));
}

#[test]
fn a_number_that_is_used_again_is_another_generation() {
    let (_, vfs) = volume();
    let root = vfs.root();
    let first = root.file("f").attr().unwrap();
    vfs.unlink(&OWNER, &root, name("f")).unwrap();
    let second = root.dir("g").attr().unwrap();
    assert_eq!(first.ino, second.ino);
    assert_ne!(first.generation, second.generation);
    assert_eq!(root.get("g").unwrap().get("x"), Err(Error::NotFound));
}

#[test]
fn no_directory_is_moved_below_itself() {
    let (_, vfs) = volume();
    let root = vfs.root();
    let a = root.dir("a");
    let b = a.dir("b");
    let c = b.dir("c");
    assert_eq!(rename(&vfs, (&root, "a"), (&c, "x"), RenameFlags::empty()), Err(Error::Invalid));
    assert_eq!(rename(&vfs, (&root, "a"), (&a, "x"), RenameFlags::empty()), Err(Error::Invalid));
    assert_eq!(rename(&vfs, (&b, "c"), (&root, "a"), RenameFlags::EXCHANGE), Err(Error::Invalid));
    assert_eq!(rename(&vfs, (&b, "c"), (&root, "a"), RenameFlags::empty()), Err(Error::NotEmpty));
    rename(&vfs, (&a, "b"), (&root, "b"), RenameFlags::empty()).unwrap();
    rename(&vfs, (&root, "a"), (&c, "a"), RenameFlags::empty()).unwrap();
    assert_eq!(a.walk("../../..").unwrap(), root);
    assert_eq!(root.walk("b/c/a").unwrap(), a);
}

#[test]
fn two_names_of_one_file_are_left_as_they_are_by_a_rename() {
    let (_, vfs) = volume();
    let root = vfs.root();
    let a = root.file("a");
    vfs.link(&OWNER, &a, &root, name("b")).unwrap();
    rename(&vfs, (&root, "a"), (&root, "b"), RenameFlags::empty()).unwrap();
    assert_eq!((root.get("a").unwrap(), root.get("b").unwrap()), (a.clone(), a));
    assert_eq!(rename(&vfs, (&root, "a"), (&root, "b"), RenameFlags::NO_REPLACE), Err(Error::Exists));
}

#[test]
fn a_sticky_directory_keeps_names_for_their_owners() {
    let (_, vfs) = volume();
    let root = vfs.root();
    let tmp = vfs.create(&OWNER, &root, name("tmp"), &new_node(FileKind::Directory, 0o1777)).unwrap();
    let new = new_node(FileKind::Regular, 0o666);
    vfs.create(&user(1, 1), &tmp, name("mine"), &new).unwrap();
    assert_eq!(vfs.unlink(&user(2, 2), &tmp, name("mine")), Err(Error::NotPermitted));
    let moved = vfs.rename(&user(2, 2), (&tmp, name("mine")), (&tmp, name("x")), RenameFlags::empty());
    assert_eq!(moved, Err(Error::NotPermitted));
    vfs.unlink(&user(1, 1), &tmp, name("mine")).unwrap();
}

#[test]
fn a_set_group_id_directory_gives_its_group_and_to_directories_its_bit() {
    let (_, vfs) = volume();
    let root = vfs.root();
    let new = obento_driver::NewNode { gid: 70, ..new_node(FileKind::Directory, 0o2777) };
    let shared = vfs.create(&OWNER, &root, name("s"), &new).unwrap();
    let make = |file: &str, kind, mode| {
        let made =
            vfs.create(&user(1, 2), &shared, name(file), &new_node(kind, mode)).unwrap().attr().unwrap();
        (made.uid, made.gid, made.mode)
    };
    assert_eq!(make("f", FileKind::Regular, 0o644), (1, 70, Mode::new(0o644)));
    assert_eq!(make("d", FileKind::Directory, 0o755), (1, 70, Mode::new(0o2755)));
    assert_eq!(make("x", FileKind::Regular, 0o2755), (1, 70, Mode::new(0o755)), "not a member of the group");
}

#[test]
fn immutable_files_keep_their_names_and_bytes() {
    let (_, vfs) = volume();
    let root = vfs.root();
    let file = root.file("f");
    let set = |flags| SetAttr { flags: Some(flags), ..SetAttr::default() };
    vfs.set_attr(&OWNER, &file, &set(FileFlags::IMMUTABLE)).unwrap();
    assert_eq!(vfs.unlink(&OWNER, &root, name("f")), Err(Error::NotPermitted));
    assert_eq!(vfs.link(&OWNER, &file, &root, name("g")), Err(Error::NotPermitted));
    assert_eq!(vfs.truncate(&OWNER, &file, 0), Err(Error::NotPermitted));
    vfs.set_attr(&OWNER, &file, &set(FileFlags::empty())).unwrap();
    vfs.unlink(&OWNER, &root, name("f")).unwrap();
}

#[test]
fn names_without_case_are_never_answered_from_memory_of_another_spelling() {
    let (_, vfs) = volume();
    let root = vfs.root();
    let d = root.dir("d");
    assert_eq!(d.get("A"), Err(Error::NotFound));
    let change = SetAttr { flags: Some(FileFlags::CASEFOLD), ..SetAttr::default() };
    vfs.set_attr(&OWNER, &d, &change).unwrap();
    let before = vfs.nodes_in_use();
    let kept = d.file("a");
    drop(kept);
    assert_eq!(vfs.nodes_in_use(), before, "the cache holds nothing of this directory");
}

#[test]
fn renames_and_lookups_on_many_threads_neither_deadlock_nor_lose_a_file() {
    let (fs, vfs) = volume();
    let root = vfs.root();
    let dirs: Vec<Node> = (0..4).map(|n| root.dir(&n.to_string())).collect();
    for n in 0..8 {
        dirs[n % 4].file(&format!("f{n}"));
    }
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let (dirs, vfs) = (&dirs, &vfs);
            scope.spawn(move || {
                for step in 0..2000_usize {
                    let (from, to) = (&dirs[(step * 7 + thread) % 4], &dirs[(step * 3 + thread * 2) % 4]);
                    let file = format!("f{}", (step * 5 + thread) % 8);
                    match rename(vfs, (from, &file), (to, &file), RenameFlags::empty()) {
                        Ok(()) | Err(Error::NotFound) => {}
                        Err(error) => panic!("{error}"),
                    }
                    if let Ok(node) = to.get(&file) {
                        node.attr().unwrap();
                    }
                    let _ = rename(vfs, (&vfs.root(), "3"), (&dirs[thread % 3], "3"), RenameFlags::empty());
                    let _ = rename(vfs, (&dirs[thread % 3], "3"), (&vfs.root(), "3"), RenameFlags::empty());
                }
            });
        }
    });
    assert_eq!(
        dirs.iter().map(|dir| dir.names().iter().filter(|n| n.starts_with('f')).count()).sum::<usize>(),
        8
    );
    assert_eq!(fs.inodes_in_use(), 13);
}

#[test]
fn an_inode_that_is_held_never_becomes_another_while_its_names_and_number_change_hands() {
    let (fs, vfs) =
        common::with(obento_tmpfs::Options { inodes: 8, ..obento_tmpfs::Options::new(common::clock()) });
    let root = vfs.root();
    let new = new_node(FileKind::Regular, 0o644);
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let (vfs, root) = (&vfs, &root);
            scope.spawn(move || {
                for step in 0..4000_usize {
                    let (a, b) = (["x", "y", "z"][(step + thread) % 3], ["x", "y", "z"][step * thread % 3]);
                    let found = match (step * 7 + thread) % 4 {
                        0 => vfs.create(&OWNER, root, name(a), &new),
                        1 => vfs.unlink(&OWNER, root, name(a)).and(root.get(b)),
                        2 => rename(vfs, (root, a), (root, b), RenameFlags::empty()).and(root.get(b)),
                        _ => root.get(a),
                    };
                    let node = match found {
                        Ok(node) => node,
                        Err(Error::NotFound | Error::Exists | Error::NoSpace) => continue,
                        Err(error) => panic!("{error}"),
                    };
                    let before = node.attr().unwrap();
                    let again = vfs.node(node.ino()).unwrap();
                    std::thread::yield_now();
                    assert_eq!(again.attr().unwrap().generation, before.generation);
                    assert_eq!(again, node);
                }
            });
        }
    });
    for left in root.names() {
        vfs.unlink(&OWNER, &root, name(&left)).unwrap();
    }
    assert_eq!(fs.inodes_in_use(), 1);
}

#[test]
fn a_user_changes_names_only_where_he_may_write() {
    let (_, vfs) = volume();
    let root = vfs.root();
    let open = vfs.create(&OWNER, &root, name("open"), &new_node(FileKind::Directory, 0o777)).unwrap();
    let other = vfs.create(&OWNER, &root, name("other"), &new_node(FileKind::Directory, 0o777)).unwrap();
    vfs.create(&OWNER, &open, name("closed"), &new_node(FileKind::Directory, 0o755)).unwrap();
    let file = open.file("f");
    let caller = user(7, 7);
    let new = new_node(FileKind::Regular, 0o644);
    assert_eq!(vfs.create(&caller, &root, name("x"), &new), Err(Error::AccessDenied));
    assert_eq!(vfs.link(&caller, &file, &root, name("x")), Err(Error::AccessDenied));
    assert_eq!(vfs.unlink(&caller, &root, name("missing")), Err(Error::AccessDenied));
    let device = new_node(FileKind::CharDevice, 0o644);
    assert_eq!(vfs.create(&caller, &open, name("x"), &device), Err(Error::NotPermitted));
    let moved =
        |old: &str| vfs.rename(&caller, (&open, name(old)), (&other, name(old)), RenameFlags::empty());
    assert_eq!(moved("closed"), Err(Error::AccessDenied), "its parent is part of what it holds");
    assert_eq!(moved("f"), Ok(()));
    let made = vfs.create(&caller, &open, name("x"), &new).unwrap().attr().unwrap();
    assert_eq!((made.uid, made.gid), (7, 7));
}

#[test]
fn the_owner_of_the_image_may_do_everything_except_execute_a_file_without_execute_bits() {
    use obento_vfs::AccessRequest;
    let (_, vfs) = volume();
    let root = vfs.root();
    let make =
        |text: &str, mode| vfs.create(&OWNER, &root, name(text), &new_node(FileKind::Regular, mode)).unwrap();
    assert_eq!(make("none", 0).access(&OWNER, AccessRequest::READ | AccessRequest::WRITE), Ok(()));
    assert_eq!(make("plain", 0o666).access(&OWNER, AccessRequest::EXEC), Err(Error::AccessDenied));
    assert_eq!(make("program", 0o001).access(&OWNER, AccessRequest::EXEC), Ok(()));
    assert_eq!(root.access(&OWNER, AccessRequest::all()), Ok(()));
}
