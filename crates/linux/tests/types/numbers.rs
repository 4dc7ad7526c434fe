//! Finding inodes by number, without a known name.

use std::sync::Arc;

use obento_base::{Error, FileKind, Ino, Name};
use obento_block::MemDevice;
use obento_driver::{Access, FileSystem, LayoutLock, NewFile};

use super::image::{Image, node, open};

fn name(text: &str) -> &Name {
    Name::new(text.as_bytes()).unwrap()
}

/// Creates `text` in `dir`; the file contains its name.
fn make(fs: &dyn FileSystem, dir: Ino, text: &str, kind: FileKind) -> Ino {
    let writable = fs.writable().unwrap();
    let ino = writable.create(dir, name(text), &node(kind)).unwrap().ino;
    if kind == FileKind::Regular {
        let lock = LayoutLock::new();
        assert_eq!(writable.write(&lock.shared(), ino, 0, text.as_bytes()).unwrap(), text.len());
    }
    ino
}

fn new(name: &Name) -> NewFile<'_> {
    NewFile { name, node: node(FileKind::Regular), bytes: b"new", atime: None, mtime: None }
}

/// Creates more files than one answer lists.
fn crowd(fs: &dyn FileSystem, dir: Ino) {
    let names: Vec<String> = (0..5000).map(|at| format!("one of many {at}")).collect();
    let files: Vec<_> = names.iter().map(|text| new(name(text))).collect();
    let made = fs.bulk().unwrap().create_files(dir, &files);
    assert_eq!(made.iter().find(|made| made.is_err()), None);
}

/// Creates nested directories with one file in each; returns the numbers of the directories and files, from the root down.
fn nest(fs: &dyn FileSystem) -> Vec<(Ino, Ino)> {
    let mut made = Vec::new();
    let mut dir = fs.root();
    for depth in 0..4 {
        let file = make(fs, dir, &format!("file{depth}"), FileKind::Regular);
        made.push((dir, file));
        if depth == 1 {
            crowd(fs, dir);
        }
        dir = make(fs, dir, "folder", FileKind::Directory);
    }
    made
}

#[test]
fn an_inode_is_found_by_its_number_wherever_it_is() {
    for kind in ["xfs", "minix", "hfsplus", "hpfs"] {
        let Some(image) = Image::new(kind) else { continue };
        let fs = image.open(Access::ReadWrite);
        let made = nest(&*fs);
        fs.writable().unwrap().close().unwrap();
        drop(fs);
        // Each inode separately, in a volume whose table of inodes is empty.
        for (depth, (dir, file)) in made.iter().enumerate().skip(1) {
            let fs = image.open(Access::ReadOnly);
            assert_eq!(fs.getattr(*file).map(|attr| (attr.ino, attr.kind)), Ok((*file, FileKind::Regular)));
            let (lock, mut found) = (LayoutLock::new(), [0; 16]);
            let len = fs.read(&lock.shared(), *file, 0, &mut found).unwrap();
            assert_eq!(&found[..len], format!("file{depth}").as_bytes(), "{kind}");
            assert_eq!(fs.getattr(*dir).map(|attr| attr.kind), Ok(FileKind::Directory), "{kind}");
            assert_eq!(fs.parent(*dir), Ok(made[depth - 1].0), "{kind}");
            assert_eq!(fs.lookup(*dir, name(&format!("file{depth}"))), Ok(*file), "{kind}");
        }
        let fs = image.open(Access::ReadOnly);
        assert_eq!(fs.getattr(Ino(1 << 40)), Err(Error::Stale), "{kind}");
        assert_eq!(fs.read_link(Ino(1 << 40)), Err(Error::Stale), "{kind}");
    }
}

#[test]
fn a_freed_number_is_stale_until_a_file_reuses_it() {
    let Some(image) = Image::new("minix") else { return };
    let fs = image.open(Access::ReadWrite);
    let writable = fs.writable().unwrap();
    let dir = make(&*fs, fs.root(), "folder", FileKind::Directory);
    let freed = make(&*fs, dir, "file", FileKind::Regular);
    writable.unlink(dir, name("file")).unwrap();
    fs.forget(freed);
    assert_eq!(fs.getattr(freed), Err(Error::Stale));
    // Minix reuses the lowest free number. The caller that creates many files does not get their numbers.
    assert_eq!(fs.bulk().unwrap().create_files(dir, &[new(name("new"))]), [Ok(())]);
    assert_eq!(fs.getattr(freed).map(|attr| (attr.ino, attr.size)), Ok((freed, 3)));
    assert_eq!(fs.lookup(dir, name("new")), Ok(freed));
}

#[test]
fn a_search_ends_on_a_volume_with_a_directory_cycle() {
    let Some(image) = Image::new("minix") else { return };
    let fs = image.open(Access::ReadWrite);
    let outer = make(&*fs, fs.root(), "outer", FileKind::Directory);
    let inner = make(&*fs, outer, "inner", FileKind::Directory);
    let file = make(&*fs, inner, "to outer", FileKind::Regular);
    let last = make(&*fs, inner, "last", FileKind::Regular);
    fs.writable().unwrap().close().unwrap();
    drop(fs);
    let mut bytes = image.bytes();
    // include/uapi/linux/minix_fs.h `struct minix3_dir_entry`: the number, and the name.
    let entry: Vec<u8> = [&u32::try_from(file.0).unwrap().to_le_bytes()[..], b"to outer"].concat();
    let mut places = bytes.windows(entry.len()).enumerate().filter(|(_, window)| *window == entry);
    let (Some((at, _)), None) = (places.next(), places.next()) else { panic!("one entry has this name") };
    bytes[at..at + 4].copy_from_slice(&u32::try_from(outer.0).unwrap().to_le_bytes());
    let fs = open("minix", Arc::new(MemDevice::read_only(bytes)), Access::ReadOnly);
    assert_eq!(fs.getattr(last).map(|attr| attr.ino), Ok(last));
    assert!(fs.getattr(Ino(1 << 40)).is_err());
    assert_eq!(fs.parent(inner), Ok(outer));
}
