//! Files made many at a time.

mod common;

use common::{Short, name, new_node, user, volume};
use obento_base::{Error, FileKind, Mode, Timestamp};
use obento_driver::NewFile;
use obento_vfs::Caller;

fn file<'a>(called: &'a str, bytes: &'a [u8]) -> NewFile<'a> {
    let node = new_node(FileKind::Regular, 0o640);
    NewFile { name: name(called), node, bytes, atime: None, mtime: None }
}

#[test]
fn files_are_made_with_all_that_is_in_them_and_a_failure_costs_one() {
    let (_, vfs) = volume();
    let root = vfs.root();
    root.file("taken");
    assert_eq!(root.get("new"), Err(Error::NotFound));
    let (long, mtime) = (vec![7; 300_000], Timestamp::new(5, 0));
    let files = [
        file("taken", b"lost"),
        NewFile { mtime: Some(mtime), ..file("new", b"bytes") },
        file("long", &long),
        file("empty", b""),
    ];
    let made = vfs.create_files(&Caller::Owner, &root, &files);
    assert_eq!(made, [Err(Error::Exists), Ok(()), Ok(()), Ok(())]);
    let new = root.get("new").unwrap();
    let attr = new.attr().unwrap();
    assert_eq!((new.bytes(), attr.mode.bits(), attr.mtime), (b"bytes".to_vec(), 0o640, mtime));
    assert_eq!(root.get("taken").unwrap().bytes(), b"");
    assert!(root.get("long").unwrap().bytes() == long);
    assert_eq!(root.get("empty").unwrap().bytes(), b"");
}

#[test]
fn a_caller_without_permission_creates_none_of_many_files() {
    let (_, vfs) = volume();
    let root = vfs.root();
    let made = vfs.create_files(&user(5, 5), &root, &[file("a", b"1"), file("b", b"2")]);
    assert_eq!(made, [Err(Error::AccessDenied); 2]);
    assert_eq!(root.names(), Vec::<String>::new());
}

#[test]
fn a_file_without_a_name_gets_its_first_name_later() {
    let (_, vfs) = volume();
    let root = vfs.root();
    let (new, umask) = (new_node(FileKind::Regular, 0o666), Mode::new(0o022));
    let node = vfs.create_nameless(&Caller::Owner, &root, &new, umask).unwrap();
    node.write_at(0, b"bytes").unwrap();
    assert_eq!((node.attr().unwrap().mode.bits(), node.attr().unwrap().nlink), (0o644, 0));
    assert_eq!(root.names(), Vec::<String>::new());
    vfs.name(&Caller::Owner, &node, &root, name("named")).unwrap();
    assert_eq!(root.get("named").unwrap().bytes(), b"bytes");
    assert_eq!(vfs.name(&Caller::Owner, &node, &root, name("other")), Err(Error::Invalid));
    let refused = vfs.create_nameless(&user(5, 5), &root, &new, umask);
    assert_eq!(refused.map(drop), Err(Error::AccessDenied));
    let gone =
        vfs.create(&Caller::Owner, &root, name("gone"), &new_node(FileKind::Directory, 0o777)).unwrap();
    vfs.rmdir(&Caller::Owner, &root, name("gone")).unwrap();
    let refused = vfs.create_nameless(&Caller::Owner, &gone, &new, umask);
    assert_eq!(refused.map(drop), Err(Error::NotPermitted));
}
