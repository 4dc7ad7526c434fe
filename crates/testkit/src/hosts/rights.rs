//! Permissions: the bits that changes of a file clear, and changes of access control lists.
//!
//! Source: Linux fs/attr.c `may_setattr` and `setattr_should_drop_sgid`, fs/open.c `chown_common`, fs/posix_acl.c
//! `posix_acl_update_mode`.

use obento_base::{Errno, FileFlags, FileKind};
use obento_vfs::AccessRequest;
use obento_vfs::acl::{self, Acl, Tag};

use super::{CaseDirectory, NO_DATA, NOT_PERMITTED, Need};
use crate::outcome::{FLAGS, LISTS, MODES, OWNERS, SPECIAL};
use crate::plan::Op;

type Row = (&'static str, &'static [Need], fn(&mut CaseDirectory<'_>));

/// A user who is not the owner of the volume.
const USER: u32 = 1007;
const ACCESS: &str = "system.posix_acl_access";

pub(super) const CASES: &[Row] = &[
    (
        "changing the owner clears set-user-ID and set-group-ID, except on directories",
        &[MODES, OWNERS, SPECIAL],
        chown_clears_privileges,
    ),
    (
        "a write or a truncation by another user clears set-user-ID at once",
        &[MODES, OWNERS],
        write_clears_privileges,
    ),
    ("an access control list that a mode represents becomes the mode", &[LISTS], minimal_list),
    ("removing a missing access control list succeeds", &[LISTS], removed_list),
    (
        "a list that is set by an owner outside of the group clears set-group-ID",
        &[LISTS, OWNERS],
        list_clears_set_group_id,
    ),
    ("an append-only file accepts the current time, and no other", &[LISTS, FLAGS], append_only_is_touched),
];

fn chown_clears_privileges(room: &mut CaseDirectory<'_>) {
    use FileKind::{BlockDevice, CharDevice, Directory, Fifo, Regular, Socket};
    for kind in [Regular, Directory, Fifo, Socket, CharDevice, BlockDevice] {
        let name = format!("{kind:?}");
        room.make(&name, kind);
        room.does(Op::Chmod(room.at(&name), 0o6755));
        room.does(Op::Chown(room.at(&name), USER, 1));
        let expected = if kind == FileKind::Directory { 0o6755 } else { 0o755 };
        assert_eq!(room.seen(&name).mode, expected, "{kind:?}");
        // The owner of a file gives it to a group of their own.
        room.does(Op::Chmod(room.at(&name), 0o6755));
        let given = Op::Chown(room.at(&name), USER, USER);
        assert_eq!(room.act_as(USER, &given), Ok(()), "{kind:?}");
        assert_eq!((room.seen(&name).gid, room.seen(&name).mode), (USER, expected), "{kind:?}, by its owner");
    }
}

fn write_clears_privileges(room: &mut CaseDirectory<'_>) {
    room.file("f");
    room.write("f", 0, 5000);
    let path = room.at("f");
    let changes =
        [Op::Write(path.clone(), 10, 20), Op::Truncate(path.clone(), 3000), Op::Append(path.clone(), 10)];
    for change in changes {
        room.does(Op::Chmod(path.clone(), 0o4777));
        assert_eq!(room.seen("f").mode, 0o4777);
        assert_eq!(room.act_as(USER, &change), Ok(()), "{change:?}");
        assert_eq!(room.seen("f").mode, 0o777, "{change:?}");
    }
}

fn entry(tag: Tag, perm: u8) -> acl::Entry {
    acl::Entry { tag, perm: AccessRequest::from_bits_truncate(perm) }
}

fn list(user: Option<u32>) -> Vec<u8> {
    let mut entries = vec![entry(Tag::Owner, 6), entry(Tag::OwningGroup, 4), entry(Tag::Other, 1)];
    if let Some(user) = user {
        entries.extend([entry(Tag::User(user), 5), entry(Tag::Mask, 7)]);
    }
    Acl::new(entries).expect("a list").encode()
}

fn minimal_list(room: &mut CaseDirectory<'_>) {
    room.file("f");
    let path = room.at("f");
    for first in [list(Some(5)), list(None)] {
        assert_eq!(room.host.set_xattr_as(None, &path, ACCESS, &first), Ok(()));
        assert_eq!(room.host.set_xattr_as(None, &path, ACCESS, &list(None)), Ok(()));
        assert_eq!(room.seen("f").mode, 0o641);
        assert_eq!(room.host.xattr(&path, ACCESS), Err(NO_DATA));
    }
}

fn removed_list(room: &mut CaseDirectory<'_>) {
    room.file("f");
    let path = room.at("f");
    room.does(Op::RemoveXattr(path.clone(), ACCESS.into()));
    assert_eq!(room.host.set_xattr_as(None, &path, ACCESS, &list(Some(5))), Ok(()));
    assert_eq!(room.host.xattr(&path, ACCESS), Ok(list(Some(5))));
    room.does(Op::RemoveXattr(path.clone(), ACCESS.into()));
    assert_eq!(room.host.xattr(&path, ACCESS), Err(NO_DATA));
}

fn list_clears_set_group_id(room: &mut CaseDirectory<'_>) {
    room.file("f");
    let path = room.at("f");
    for user in [None, Some(5)] {
        room.does(Op::Chown(path.clone(), USER, 1));
        room.does(Op::Chmod(path.clone(), 0o2755));
        assert_eq!(room.host.set_xattr_as(Some(USER), &path, ACCESS, &list(user)), Ok(()));
        assert_eq!(room.seen("f").mode & 0o2000, 0, "{user:?}");
        room.does(Op::Chmod(path.clone(), 0o2755));
        assert_eq!(room.host.set_xattr_as(None, &path, ACCESS, &list(user)), Ok(()));
        assert_eq!(room.seen("f").mode & 0o2000, 0o2000, "{user:?}, by the owner of the volume");
    }
}

fn append_only_is_touched(room: &mut CaseDirectory<'_>) {
    room.file("f");
    room.dir("d");
    for name in ["f", "d"] {
        let path = room.at(name);
        room.does(Op::Flags(path.clone(), FileFlags::APPEND.bits()));
        let touched = room.act(Op::Touch(path.clone()));
        let chmod: Result<(), Errno> = room.act(Op::Chmod(path.clone(), 0o700));
        let chown = room.act(Op::Chown(path.clone(), 1, 1));
        room.does(Op::Flags(path.clone(), FileFlags::IMMUTABLE.bits()));
        let touched_immutable = room.act(Op::Touch(path.clone()));
        // The flags are cleared before an assertion fails, because otherwise the file could not be removed.
        room.does(Op::Flags(path, 0));
        assert_eq!(touched, Ok(()), "{name}");
        assert_eq!(touched_immutable, Err(NOT_PERMITTED), "{name}");
        assert_eq!((chmod, chown), (Err(NOT_PERMITTED), Err(NOT_PERMITTED)), "{name}");
    }
}
