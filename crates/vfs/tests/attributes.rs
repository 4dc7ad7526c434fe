//! Attributes, access control lists, and who may change them.

mod common;

use common::{Short, name, new_node, user, volume};
use obento_base::{Error, FileFlags, FileKind, Mode};
use obento_driver::{SetAttr, TimeChange, XattrMode};
use obento_vfs::{AccessRequest, Caller};

const OWNER: Caller = Caller::Owner;
const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

/// The value of an access control list: tag, permissions, id.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(perm.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// Owner rw, user 7 rw, group r, mask rw, others nothing.
fn list() -> Vec<u8> {
    let none = u32::MAX;
    acl(&[(1, 6, none), (2, 6, 7), (4, 4, none), (0x10, 6, none), (0x20, 0, none)])
}

#[test]
fn an_access_control_list_decides_and_sets_the_mode() {
    let (_, vfs) = volume();
    let file = vfs.root().file("f");
    vfs.set_xattr(&OWNER, &file, ACCESS, &list(), XattrMode::Set).unwrap();
    assert_eq!(file.attr().unwrap().mode, Mode::new(0o660));
    assert_eq!(file.access(&user(7, 7), AccessRequest::WRITE), Ok(()));
    assert_eq!(file.access(&user(8, 8), AccessRequest::READ), Err(Error::AccessDenied));
    assert_eq!(file.access(&user(8, 0), AccessRequest::READ), Ok(()));
    assert_eq!(vfs.set_xattr(&OWNER, &file, ACCESS, b"junk", XattrMode::Set), Err(Error::Invalid));
}

/// Source: Linux fs/posix_acl.c `posix_acl_valid`.
#[test]
fn a_list_whose_entries_are_out_of_order_is_not_set() {
    let (_, vfs) = volume();
    let dir = vfs.root().dir("d");
    let none = u32::MAX;
    let entries = [(1, 6, none), (2, 6, 7), (2, 4, 3), (4, 4, none), (0x10, 6, none), (0x20, 0, none)];
    for name in [ACCESS, DEFAULT] {
        for first in 0..entries.len() - 1 {
            let mut swapped = entries;
            swapped.swap(first, first + 1);
            // Users may be in any order.
            let expected = if first == 1 { Ok(()) } else { Err(Error::Invalid) };
            let set = vfs.set_xattr(&OWNER, &dir, name, &acl(&swapped), XattrMode::Set);
            assert_eq!(set, expected, "{first}");
        }
    }
}

#[test]
fn changing_the_mode_changes_the_mask_of_the_list() {
    let (_, vfs) = volume();
    let file = vfs.root().file("f");
    vfs.set_xattr(&OWNER, &file, ACCESS, &list(), XattrMode::Set).unwrap();
    let change = SetAttr { mode: Some(Mode::new(0o640)), ..SetAttr::default() };
    vfs.set_attr(&OWNER, &file, &change).unwrap();
    assert_eq!(file.access(&user(7, 7), AccessRequest::WRITE), Err(Error::AccessDenied));
    assert_eq!(file.access(&user(7, 7), AccessRequest::READ), Ok(()));
}

#[test]
fn new_files_start_with_the_default_list_of_their_directory() {
    let (_, vfs) = volume();
    let root = vfs.root();
    let dir = root.dir("d");
    vfs.set_xattr(&OWNER, &dir, DEFAULT, &list(), XattrMode::Set).unwrap();
    let file = dir.file("f");
    assert_eq!(file.attr().unwrap().mode, Mode::new(0o640));
    assert_eq!(file.list_xattrs().unwrap(), [ACCESS]);
    let sub = dir.dir("s");
    assert_eq!(sub.get_xattr(DEFAULT).unwrap(), list());
    assert_eq!(vfs.set_xattr(&OWNER, &file, DEFAULT, &list(), XattrMode::Set), Err(Error::Invalid));
}

#[test]
fn only_the_owner_changes_mode_and_times_and_no_user_gives_a_file_away() {
    let (_, vfs) = volume();
    let root = vfs.root();
    let dir = vfs.create(&OWNER, &root, name("d"), &new_node(FileKind::Directory, 0o777)).unwrap();
    let file = vfs.create(&user(1, 1), &dir, name("f"), &new_node(FileKind::Regular, 0o666)).unwrap();
    let none = SetAttr::default();
    let mode = SetAttr { mode: Some(Mode::new(0o600)), ..none };
    let now = SetAttr { mtime: Some(TimeChange::Now), ..none };
    let at = SetAttr { mtime: Some(TimeChange::At(Default::default())), ..none };
    let uid = SetAttr { uid: Some(2), ..none };
    let set = |caller: &Caller, change: &SetAttr| vfs.set_attr(caller, &file, change).map(drop);
    assert_eq!(set(&user(2, 2), &mode), Err(Error::NotPermitted));
    assert_eq!(set(&user(2, 2), &at), Err(Error::NotPermitted));
    assert_eq!(set(&user(2, 2), &now), Ok(()), "who may write may touch");
    assert_eq!(set(&user(1, 1), &uid), Err(Error::NotPermitted));
    assert_eq!(set(&user(1, 1), &mode), Ok(()));
    assert_eq!(set(&user(2, 2), &now), Err(Error::AccessDenied));
    assert_eq!(set(&OWNER, &uid), Ok(()));
}

#[test]
fn name_spaces_of_attributes_have_their_keepers() {
    let (_, vfs) = volume();
    let root = vfs.root();
    let file = vfs.create(&OWNER, &root, name("f"), &new_node(FileKind::Regular, 0o666)).unwrap();
    let fifo = vfs.create(&OWNER, &root, name("p"), &new_node(FileKind::Fifo, 0o666)).unwrap();
    let set = |caller: &Caller, node, name: &[u8]| vfs.set_xattr(caller, node, name, b"v", XattrMode::Set);
    assert_eq!(set(&user(1, 1), &file, b"user.a"), Ok(()));
    assert_eq!(set(&user(1, 1), &file, b"trusted.a"), Err(Error::NotPermitted));
    assert_eq!(set(&user(1, 1), &file, b"security.a"), Err(Error::NotPermitted));
    assert_eq!(set(&user(1, 1), &file, ACCESS), Err(Error::NotPermitted));
    assert_eq!(set(&OWNER, &fifo, b"user.a"), Err(Error::NotPermitted));
    assert_eq!(set(&OWNER, &fifo, b"trusted.a"), Ok(()));
    assert_eq!(vfs.get_xattr(&user(1, 1), &fifo, b"trusted.a"), Err(Error::NoData));
    assert_eq!(vfs.get_xattr(&OWNER, &fifo, b"trusted.a"), Ok(b"v".to_vec()));
}

#[test]
fn a_name_space_alone_is_no_name_of_an_attribute() {
    let (_, vfs) = volume();
    let file = vfs.create(&OWNER, &vfs.root(), name("f"), &new_node(FileKind::Regular, 0o666)).unwrap();
    for space in [&b"user."[..], b"trusted.", b"security."] {
        assert_eq!(vfs.set_xattr(&OWNER, &file, space, b"v", XattrMode::Set), Err(Error::Invalid));
        assert_eq!(file.get_xattr(space), Err(Error::Invalid));
        assert_eq!(vfs.remove_xattr(&OWNER, &file, space), Err(Error::Invalid));
    }
}

#[test]
fn an_append_only_file_accepts_both_times_or_none() {
    let (_, vfs) = volume();
    let file = vfs.create(&OWNER, &vfs.root(), name("f"), &new_node(FileKind::Regular, 0o666)).unwrap();
    let flags = Some(FileFlags::APPEND);
    vfs.set_attr(&OWNER, &file, &SetAttr { flags, ..SetAttr::default() }).unwrap();
    let set = |atime, mtime| {
        let change = SetAttr { atime, mtime, ..SetAttr::default() };
        vfs.set_attr(&OWNER, &file, &change).map(drop)
    };
    let now = Some(TimeChange::Now);
    assert_eq!([set(now, now), set(None, None)], [Ok(()); 2]);
    assert_eq!([set(now, None), set(None, now)], [Err(Error::NotPermitted); 2]);
}
