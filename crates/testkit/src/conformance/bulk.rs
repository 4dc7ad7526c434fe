//! Creation of many files in one call, if the driver supports it.

use obento_base::{Error, FileKind, Mode, Timestamp};
use obento_driver::{FileSystem, NEW_FILE_MAX, NewFile, StoredProperties};

use super::{attr, dir, file, keeps, lookup, name, names_in, needs, new_node, read, writable};
use crate::outcome::{DIRECTORIES, Lacks, Outcome};

fn new_file<'a>(fs: &dyn FileSystem, called: &'a str, bytes: &'a [u8]) -> NewFile<'a> {
    let node = new_node(fs, FileKind::Regular);
    NewFile { name: name(called), node, bytes, atime: None, mtime: None }
}

/// The files are the same as after `create`, `write` and `set_attr`.
pub fn files_created_together_have_the_requested_properties(fs: &dyn FileSystem) -> Outcome {
    needs(fs, DIRECTORIES)?;
    let bulk = fs.bulk().ok_or(Lacks("no bulk operations"))?;
    let dir = dir(fs, fs.root(), "dir");
    let bytes: Vec<u8> = (0..300_000_u32).map(|at| at.to_le_bytes()[0]).collect();
    let names: Vec<_> = (0..600).map(|number| format!("file-{number:03}")).collect();
    let (atime, mtime) = (Timestamp::new(1_000_000_000, 0), Timestamp::new(1_100_000_000, 0));
    let files: Vec<_> = (1..)
        .zip(&names)
        .map(|(number, called)| {
            let node = obento_driver::NewNode {
                mode: Mode::new(if number % 2 == 0 { 0o4711 } else { 0o640 }),
                uid: number % 3,
                gid: number % 5,
                ..new_node(fs, FileKind::Regular)
            };
            // Lengths from zero to several blocks, and a long one.
            let len = if number == 300 { 300_000 } else { (number as usize - 1) * 31 };
            NewFile { node, atime: Some(atime), mtime: Some(mtime), ..new_file(fs, called, &bytes[..len]) }
        })
        .collect();
    let made = bulk.create_files(dir, &files);
    assert_eq!(made, vec![Ok(()); files.len()]);
    let mut listed = names_in(fs, dir);
    listed.sort();
    assert!(listed.iter().eq(names.iter().map(|name| name.as_bytes())), "{listed:?}");
    for (file, called) in files.iter().zip(&names) {
        let found = attr(fs, lookup(fs, dir, called).expect("it was made"));
        let size = file.bytes.len() as u64;
        assert_eq!((found.kind, found.nlink, found.size), (FileKind::Regular, 1, size), "{called}");
        assert!(found.mode == file.node.mode || !keeps(fs, StoredProperties::MODES), "{called}");
        let owner = (file.node.uid, file.node.gid);
        assert!((found.uid, found.gid) == owner || !keeps(fs, StoredProperties::OWNERS), "{called}");
        assert_eq!(found.mtime, mtime, "{called}");
        assert!(found.atime == atime || !keeps(fs, StoredProperties::ATIME), "{called}");
        let bytes = read(fs, found.ino, 0, file.bytes.len(), 1 << 20)
            .unwrap_or_else(|error| panic!("{called}: {error}"));
        let differs = bytes.iter().zip(file.bytes).position(|(found, wanted)| found != wanted);
        assert_eq!(
            (bytes.len(), differs),
            (file.bytes.len(), None),
            "{called}: its length, and where a byte differs"
        );
        fs.forget(found.ino);
    }
    Ok(())
}

/// A file that cannot be created completely does not exist, and the other files do.
pub fn a_file_that_cannot_be_created_does_not_prevent_others(fs: &dyn FileSystem) -> Outcome {
    needs(fs, DIRECTORIES)?;
    let bulk = fs.bulk().ok_or(Lacks("no bulk operations"))?;
    let (there, gone) = (file(fs, fs.root(), "there"), dir(fs, fs.root(), "gone"));
    let long = vec![1; NEW_FILE_MAX + 1];
    let files = [
        new_file(fs, "first", b"1"),
        new_file(fs, "there", b"2"),
        new_file(fs, "long", &long),
        new_file(fs, "first", b"3"),
        new_file(fs, "last", b"4"),
    ];
    let made = bulk.create_files(fs.root(), &files);
    assert_eq!(made, [Ok(()), Err(Error::Exists), Err(Error::Invalid), Err(Error::Exists), Ok(())]);
    for (called, bytes) in [("first", b"1"), ("last", b"4")] {
        let ino = lookup(fs, fs.root(), called).expect("it was made");
        assert_eq!((attr(fs, ino).size, read(fs, ino, 0, 1, 1)), (1, Ok(bytes.to_vec())));
    }
    assert_eq!(attr(fs, there).size, 0);
    assert_eq!(lookup(fs, fs.root(), "long"), Err(Error::NotFound));
    assert_eq!(bulk.create_files(there, &files[..1]), [Err(Error::NotDirectory)]);
    writable(fs).rmdir(fs.root(), name("gone")).expect("it is empty");
    assert_eq!(bulk.create_files(gone, &files[..1]), [Err(Error::NotFound)]);
    assert_eq!(bulk.create_files(fs.root(), &[]), []);
    Ok(())
}

/// On a full volume, each file exists completely if it was reported as created, and not at all otherwise.
pub fn files_without_space_are_absent(fs: &dyn FileSystem) -> Outcome {
    needs(fs, DIRECTORIES)?;
    let bulk = fs.bulk().ok_or(Lacks("no bulk operations"))?;
    let bytes = vec![7; NEW_FILE_MAX];
    let names: Vec<_> = (0..16).map(|number| format!("{number}")).collect();
    let files: Vec<_> = names.iter().map(|called| new_file(fs, called, &bytes)).collect();
    for number in 0..1000 {
        let dir = dir(fs, fs.root(), &format!("dir-{number}"));
        let made = bulk.create_files(dir, &files);
        for (called, made) in names.iter().zip(&made) {
            match (made, lookup(fs, dir, called)) {
                (Ok(()), Ok(ino)) => assert_eq!(attr(fs, ino).size, NEW_FILE_MAX as u64),
                (Err(Error::NoSpace), Err(Error::NotFound)) => {}
                other => panic!("{called}: {other:?}"),
            }
        }
        if made.contains(&Err(Error::NoSpace)) {
            return Ok(());
        }
        assert!(number < 999, "a volume for cases is small");
    }
    Ok(())
}
