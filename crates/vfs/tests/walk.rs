//! Paths.

mod common;

use std::ops::ControlFlow;
use std::sync::Arc;

use common::{Short, clock, name, new_node, user, volume};
use obento_base::{Error, FileKind, Ino};
use obento_driver::{Cookie, FileSystem as _, WritableFileSystem as _};
use obento_testkit::forgetful::Forgetful;
use obento_tmpfs::{Options, Tmpfs};
use obento_vfs::{Caller, Symlinks, Vfs};

#[test]
fn slashes_dots_and_parents_lead_where_posix_says() {
    let (_, vfs) = volume();
    let root = vfs.root();
    let a = root.dir("a");
    let b = a.dir("b");
    let f = b.file("f");
    assert_eq!(root.walk("/").unwrap(), root);
    assert_eq!(root.walk("//a///b/").unwrap(), b);
    assert_eq!(a.walk("b/./f").unwrap(), f);
    assert_eq!(a.walk("b/..").unwrap(), a);
    assert_eq!(a.walk("../../..").unwrap(), root);
    assert_eq!(a.walk(".").unwrap(), a);
    assert_eq!(b.walk("/a").unwrap(), a);
}

#[test]
fn a_file_in_place_of_a_directory_ends_a_walk_before_the_missing_name_after_it() {
    let (_, vfs) = volume();
    let root = vfs.root();
    root.file("f");
    assert_eq!(root.walk(""), Err(Error::NotFound));
    assert_eq!(root.walk("f/missing"), Err(Error::NotDirectory));
    assert_eq!(root.walk("f/"), Err(Error::NotDirectory));
    assert_eq!(root.walk("f/."), Err(Error::NotDirectory));
    assert_eq!(root.walk("f/.."), Err(Error::NotDirectory));
    assert_eq!(root.walk("missing/x"), Err(Error::NotFound));
    assert_eq!(root.walk("missing/"), Err(Error::NotFound));
}

#[test]
fn a_name_may_have_as_many_bytes_as_the_format_holds() {
    let (_, vfs) = volume();
    let root = vfs.root();
    let file = root.file("f");
    assert_eq!(root.walk(&"x".repeat(255)), Err(Error::NotFound));
    assert_eq!(root.walk(&"x".repeat(256)), Err(Error::NameTooLong));
    assert_eq!(root.walk(&"x".repeat(2000)), Err(Error::NameTooLong));
    assert_eq!(file.walk(&"x".repeat(256)), Err(Error::NotDirectory));
    assert_eq!(root.walk(&"/".repeat(70_000)), Err(Error::NameTooLong));
}

#[test]
fn a_symbolic_link_is_followed_but_at_the_end_only_if_asked_or_before_a_slash() {
    let (_, vfs) = volume();
    let root = vfs.root();
    let a = root.dir("a");
    let f = a.file("f");
    let link = root.symlink("l", "a");
    a.symlink("up", "../l/f");
    a.symlink("abs", "/a/");
    root.symlink("file", "a/f");
    root.symlink("file-slash", "a/f/");
    let keep = |path: &str| vfs.resolve(&root, path.as_bytes(), Symlinks::Keep, &Caller::Owner);
    assert_eq!(keep("l").unwrap(), link);
    assert_eq!(keep("l/").unwrap(), a);
    assert_eq!(keep("l/f").unwrap(), f);
    assert_eq!(root.walk("l/up").unwrap(), f);
    assert_eq!(root.walk("a/abs").unwrap(), a);
    assert_eq!(root.walk("a/abs/f").unwrap(), f);
    assert_eq!(root.walk("file/"), Err(Error::NotDirectory));
    assert_eq!(root.walk("file-slash"), Err(Error::NotDirectory));
}

#[test]
fn forty_symbolic_links_are_followed_and_no_more() {
    let (_, vfs) = volume();
    let root = vfs.root();
    let end = root.file("0");
    for n in 1..=41 {
        root.symlink(&n.to_string(), &(n - 1).to_string());
    }
    root.symlink("self", "self/x");
    assert_eq!(root.walk("40").unwrap(), end);
    assert_eq!(root.walk("41"), Err(Error::Loop));
    assert_eq!(root.walk("self"), Err(Error::Loop));
}

#[test]
fn links_that_double_the_path_end_in_an_error_and_not_in_memory() {
    let (_, vfs) = volume();
    let root = vfs.root();
    root.dir("d");
    root.symlink("l", &"l/".repeat(2000));
    assert!(matches!(root.walk("l"), Err(Error::Loop | Error::NameTooLong)));
}

#[test]
fn the_parent_of_a_possibly_missing_file_is_found_with_its_name() {
    let (_, vfs) = volume();
    let root = vfs.root();
    let a = root.dir("a");
    root.symlink("l", "a");
    let last = vfs.resolve_parent(&root, b"l/new/", &Caller::Owner).unwrap();
    assert_eq!((last.dir, &*last.name, last.slash), (a, name("new"), true));
    let parent =
        |path: &str| vfs.resolve_parent(&root, path.as_bytes(), &Caller::Owner).map(|last| last.slash);
    assert_eq!(parent("l"), Ok(false));
    assert_eq!(parent("a/.."), Err(Error::Invalid));
    assert_eq!(parent("/"), Err(Error::Invalid));
    assert_eq!(parent("missing/x"), Err(Error::NotFound));
    assert_eq!(parent(&"x".repeat(256)), Err(Error::NameTooLong));
}

#[test]
fn a_user_walks_only_through_directories_that_let_him() {
    let (_, vfs) = volume();
    let root = vfs.root();
    let closed = vfs.create(&Caller::Owner, &root, name("c"), &new_node(FileKind::Directory, 0o700)).unwrap();
    closed.file("f");
    let walk = |path: &[u8], caller: &Caller| vfs.resolve(&root, path, Symlinks::Follow, caller).map(drop);
    assert_eq!(walk(b"c", &user(5, 5)), Ok(()));
    assert_eq!(walk(b"c/f", &user(5, 5)), Err(Error::AccessDenied));
    assert_eq!(walk(b"c/missing", &user(5, 5)), Err(Error::AccessDenied));
    assert_eq!(walk(b"c/f", &user(0, 5)), Ok(()));
    assert_eq!(walk(b"c/f", &Caller::Owner), Ok(()));
}

#[test]
fn a_removed_directory_has_no_parent_and_takes_no_names() {
    let (_, vfs) = volume();
    let root = vfs.root();
    let a = root.dir("a");
    vfs.rmdir(&Caller::Owner, &root, name("a")).unwrap();
    assert_eq!(a.walk(".."), Err(Error::NotFound));
    let new = new_node(FileKind::Regular, 0o644);
    assert_eq!(vfs.create(&Caller::Owner, &a, name("f"), &new), Err(Error::NotFound));
}

/// Returns a volume with a file, which the driver forgets after all but the last of these lookups.
fn forgetful(lookups: usize) -> (Arc<Forgetful>, Vfs, Ino) {
    let fs = Tmpfs::new(Options::new(clock()));
    let file = fs.create(fs.root(), name("f"), &new_node(FileKind::Regular, 0o644)).unwrap();
    let fs = Arc::new(Forgetful::new(fs, lookups));
    (fs.clone(), Vfs::new(fs), file.ino)
}

#[test]
fn a_listed_file_whose_number_the_driver_forgot_is_looked_up() {
    let (fs, vfs, file) = forgetful(1);
    let root = vfs.root();
    assert_eq!(vfs.node(file).err(), Some(Error::Stale));
    for was_known in [false, true] {
        assert_eq!(fs.acquire(file), was_known);
        root.read_dir(Cookie::START, &mut |entry| {
            assert_eq!(root.child(&entry.unwrap()).unwrap().ino(), file);
            ControlFlow::Continue(())
        })
        .unwrap();
    }
    assert!(vfs.node(file).is_ok());
}

#[test]
fn a_file_that_the_driver_forgets_right_after_its_lookup_is_looked_up_again() {
    let (fs, vfs, file) = forgetful(3);
    assert_eq!(vfs.root().lookup(name("f")).unwrap().ino(), file);
    assert_eq!(fs.lookups_left(), 0);
    // The number of attempts is limited.
    let (_, vfs, _) = forgetful(usize::MAX);
    assert_eq!(vfs.root().lookup(name("f")).err(), Some(Error::Busy));
}
