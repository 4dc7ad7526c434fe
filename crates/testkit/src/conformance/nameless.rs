//! Files without a name, if the format supports them.

use obento_base::{Error, FileKind};
use obento_driver::{FileSystem, Nameless};

use super::{attr, dir, file, lookup, name, names_in, new_node, read, writable, write};
use crate::outcome::{Lacks, Outcome};

/// Creates a file without a name in the root. Fails if the format has none.
fn nameless(fs: &dyn FileSystem) -> Result<(&dyn Nameless, obento_base::Ino), Lacks> {
    let nameless = fs.nameless().ok_or(Lacks("no files without a name"))?;
    let made = nameless.create_nameless(fs.root(), &new_node(fs, FileKind::Regular)).expect("there is room");
    assert_eq!((made.kind, made.nlink), (FileKind::Regular, 0));
    assert_eq!(attr(fs, made.ino), made);
    Ok((nameless, made.ino))
}

/// Creates a regular file with link count 0, which `forget` frees.
pub fn a_file_without_a_name_stays_usable_until_forget(fs: &dyn FileSystem) -> Outcome {
    let (names, before) = (names_in(fs, fs.root()), fs.statfs().expect("counts"));
    let (_, ino) = nameless(fs)?;
    write(fs, ino, 0, &[7; 9000]).expect("there is room");
    assert!(read(fs, ino, 0, 9000, 4096) == Ok(vec![7; 9000]));
    assert_eq!(names_in(fs, fs.root()), names);
    fs.forget(ino);
    assert_eq!(fs.getattr(ino), Err(Error::Stale));
    writable(fs).sync().expect("the device is sound");
    let after = fs.statfs().expect("counts");
    assert_eq!((after.free, after.free_inodes), (before.free, before.free_inodes));
    Ok(())
}

/// `name` gives a name to an inode with link count 0.
pub fn a_nameless_file_that_gets_a_name_is_kept(fs: &dyn FileSystem) -> Outcome {
    let (nameless, ino) = nameless(fs)?;
    write(fs, ino, 0, b"whole").expect("there is room");
    let named = nameless.name(ino, fs.root(), name("whole")).expect("the name is free");
    assert_eq!((named.ino, named.nlink, lookup(fs, fs.root(), "whole")), (ino, 1, Ok(ino)));
    fs.forget(ino);
    writable(fs).sync().expect("the device is sound");
    assert_eq!(read(fs, ino, 0, 5, 5), Ok(b"whole".to_vec()));
    assert_eq!(writable(fs).link(ino, fs.root(), name("again")).map(|attr| attr.nlink), Ok(2));
    for text in ["whole", "again"] {
        writable(fs).unlink(fs.root(), name(text)).expect("it exists");
    }
    fs.forget(ino);
    assert_eq!(fs.getattr(ino), Err(Error::Stale));
    Ok(())
}

/// The errors of `create_nameless` and `name`, in order.
pub fn nameless_calls_test_their_errors_in_order(fs: &dyn FileSystem) -> Outcome {
    let (nameless, ino) = nameless(fs)?;
    let (there, gone) = (file(fs, fs.root(), "there"), dir(fs, fs.root(), "gone"));
    writable(fs).rmdir(fs.root(), name("gone")).expect("it is empty");
    let node = new_node(fs, FileKind::Regular);
    assert_eq!(nameless.create_nameless(there, &node).map(|attr| attr.ino), Err(Error::NotDirectory));
    assert_eq!(nameless.create_nameless(gone, &node).map(|attr| attr.ino), Err(Error::NotFound));
    let give = |ino, dir, text| nameless.name(ino, dir, name(text)).map(|attr| attr.nlink);
    assert_eq!(give(there, there, "there"), Err(Error::NotDirectory));
    assert_eq!(give(there, gone, "there"), Err(Error::Invalid));
    assert_eq!(give(ino, gone, "there"), Err(Error::NotFound));
    assert_eq!(give(ino, fs.root(), "there"), Err(Error::Exists));
    assert_eq!(give(ino, fs.root(), "new"), Ok(1));
    [ino, gone].into_iter().for_each(|ino| fs.forget(ino));
    Ok(())
}
