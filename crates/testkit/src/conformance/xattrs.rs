//! Extended attributes, if the format has them.

use obento_base::{Error, FileKind, Ino};
use obento_driver::{FileSystem, XattrMode};

use super::{dir, file, make, name, needs, writable, xattrs};
use crate::outcome::{DIRECTORIES, HARD_LINKS, Lacks, Outcome, SPECIAL};

fn names(fs: &dyn FileSystem, ino: Ino) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let xattrs = fs.xattrs().expect("the case asked before");
    xattrs.list_xattrs(ino, &mut |name| names.push(name.to_vec())).expect("attributes list");
    names.sort();
    names
}

/// A list that grants the same rights as mode 640.
fn acl() -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0];
    for (tag, perm) in [(1, 6), (4, 4), (0x20, 0)] {
        bytes.extend([tag, 0, perm, 0, 255, 255, 255, 255]);
    }
    bytes
}

/// Values are the bytes of Linux's `getxattr(2)`, including ACLs.
pub fn an_attribute_is_preserved_byte_for_byte_in_each_name_space(fs: &dyn FileSystem) -> Outcome {
    let xattrs = xattrs(fs)?;
    needs(fs, DIRECTORIES)?;
    let sub = dir(fs, fs.root(), "d");
    let acl = acl();
    let all: [(&[u8], &[u8]); 6] = [
        (b"security.selinux", b"system_u\0"),
        (b"system.posix_acl_access", &acl),
        (b"system.posix_acl_default", &acl),
        (b"trusted.t", b""),
        (b"user.note", &[b'x'; 300]),
        (b"user.\xff bytes", &[0, 255, 10]),
    ];
    let (mut kept, mut refused) = (Vec::new(), Vec::new());
    for (name, value) in all {
        match xattrs.set_xattr(sub, name, value, XattrMode::Set) {
            Err(Error::NotSupported) => {
                assert_eq!(xattrs.get_xattr(sub, name), Err(Error::NoData));
                refused.push(name);
            }
            set => {
                set.expect("space");
                kept.push((name, value));
            }
        }
    }
    if kept.is_empty() {
        return Err(Lacks("no supported name space"));
    }
    let space = |name: &[u8]| name.split(|byte| *byte == b'.').next().map(<[u8]>::to_vec);
    let is_kept = |name: &&[u8]| kept.iter().any(|(kept, _)| space(kept) == space(name));
    assert!(!refused.iter().any(is_kept), "a name space is stored or refused as a whole");
    assert_eq!(names(fs, sub), kept.iter().map(|(name, _)| name.to_vec()).collect::<Vec<_>>());
    for (name, value) in kept {
        assert_eq!(xattrs.get_xattr(sub, name).expect("it was set"), value);
    }
    Ok(())
}

/// `XattrMode`: `Exists` if the attribute exists; `NoData` if it does not.
pub fn set_xattr_obeys_its_mode(fs: &dyn FileSystem) -> Outcome {
    let xattrs = xattrs(fs)?;
    let ino = file(fs, fs.root(), "f");
    let set = |value: &[u8], mode| xattrs.set_xattr(ino, b"user.a", value, mode);
    assert_eq!(set(b"1", XattrMode::Replace), Err(Error::NoData));
    assert_eq!(set(b"2", XattrMode::Create), Ok(()));
    assert_eq!(set(b"3", XattrMode::Create), Err(Error::Exists));
    assert_eq!(xattrs.get_xattr(ino, b"user.a"), Ok(b"2".to_vec()));
    assert_eq!(set(b"4", XattrMode::Replace), Ok(()));
    assert_eq!(set(b"longer", XattrMode::Set), Ok(()));
    assert_eq!(xattrs.get_xattr(ino, b"user.a"), Ok(b"longer".to_vec()));
    Ok(())
}

/// `set_xattr`: `NotSupported` for a name space that the format lacks; `Exists` or `NoData` according to `mode`;
/// `OutOfRange` for a name or value that is too long.
pub fn set_xattr_tests_its_errors_in_order(fs: &dyn FileSystem) -> Outcome {
    let xattrs = xattrs(fs)?;
    let ino = file(fs, fs.root(), "f");
    let huge = vec![0; 1 << 20];
    let mut long = b"user.".to_vec();
    long.resize(300, b'x');
    let set = |name: &[u8], mode| xattrs.set_xattr(ino, name, &huge, mode);
    assert_eq!(set(b"nowhere.a", XattrMode::Replace), Err(Error::NotSupported));
    assert_eq!(set(&long, XattrMode::Replace), Err(Error::NoData));
    assert_eq!(set(b"user.a", XattrMode::Set), Err(Error::OutOfRange));
    assert_eq!(xattrs.set_xattr(ino, &long, b"", XattrMode::Set), Err(Error::OutOfRange));
    assert_eq!(names(fs, ino), Vec::<Vec<u8>>::new());
    Ok(())
}

/// `remove_xattr` removes an attribute, or fails with `NoData`.
pub fn a_removed_attribute_returns_no_data(fs: &dyn FileSystem) -> Outcome {
    let xattrs = xattrs(fs)?;
    needs(fs, SPECIAL)?;
    let ino = make(fs, fs.root(), "p", FileKind::Fifo);
    assert_eq!(xattrs.remove_xattr(ino, b"trusted.a"), Err(Error::NoData));
    xattrs.set_xattr(ino, b"trusted.a", b"1", XattrMode::Set).expect("space");
    assert_eq!(xattrs.remove_xattr(ino, b"trusted.a"), Ok(()));
    assert_eq!(xattrs.get_xattr(ino, b"trusted.a"), Err(Error::NoData));
    Ok(())
}

/// An attribute stays when one of several names is removed.
pub fn an_attribute_belongs_to_the_inode_and_not_to_the_name(fs: &dyn FileSystem) -> Outcome {
    let xattrs = xattrs(fs)?;
    needs(fs, HARD_LINKS)?;
    let ino = file(fs, fs.root(), "f");
    xattrs.set_xattr(ino, b"user.a", b"1", XattrMode::Set).expect("space");
    writable(fs).link(ino, fs.root(), name("g")).expect("another name");
    writable(fs).unlink(fs.root(), name("f")).expect("a name");
    assert_eq!(xattrs.get_xattr(ino, b"user.a"), Ok(b"1".to_vec()));
    let other = file(fs, fs.root(), "f");
    assert_eq!(xattrs.get_xattr(other, b"user.a"), Err(Error::NoData));
    Ok(())
}
