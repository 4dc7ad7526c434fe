//! What a volume stands whatever its type: crowds of requests and of inodes, and the end of its kernel.

use obento_base::{FileKind, Name};
use obento_driver::{Access, LayoutLock};

use super::image::{Image, node};

#[test]
fn requests_without_a_pause_are_all_answered() {
    let Some(image) = Image::new("f2fs") else { return };
    let fs = image.open(Access::ReadOnly);
    // Many times what a line holds whose bells nobody took.
    for _ in 0..20_000 {
        fs.statfs().unwrap();
    }
}

#[test]
fn what_was_synced_is_there_after_the_kernel_was_killed() {
    for name in ["xfs", "btrfs", "f2fs"] {
        let Some(image) = Image::new(name) else { return };
        let (file, lock) = (Name::new(b"file").unwrap(), LayoutLock::new());
        let fs = image.open(Access::ReadWrite);
        let writable = fs.writable().unwrap();
        let ino = writable.create(fs.root(), file, &node(FileKind::Regular)).unwrap().ino;
        assert_eq!(writable.write(&lock.shared(), ino, 0, b"kept").unwrap(), 4);
        writable.sync_file(ino).unwrap();
        // Without a close, the kernel is killed.
        drop(fs);
        let fs = image.open(Access::ReadOnly);
        let ino = fs.lookup(fs.root(), file).unwrap();
        let mut found = [0; 8];
        assert_eq!(fs.read(&lock.shared(), ino, 0, &mut found).unwrap(), 4, "{name}");
        assert_eq!(&found[..4], b"kept", "{name}");
    }
}

#[test]
fn reading_a_dirty_volume_replays_its_log_and_writes_nothing() {
    let Some(image) = Image::new("xfs") else { return };
    let name = Name::new(b"new").unwrap();
    let fs = image.open(Access::ReadWrite);
    let writable = fs.writable().unwrap();
    writable.create(fs.root(), name, &node(FileKind::Directory)).unwrap();
    writable.sync().unwrap();
    drop(fs);
    let before = image.bytes();
    let fs = image.open(Access::ReadOnly);
    assert!(fs.lookup(fs.root(), name).is_ok());
    drop(fs);
    assert!(before == image.bytes(), "the log was replayed onto the image");
}

#[test]
fn more_inodes_are_in_use_than_a_process_has_descriptors() {
    let Some(image) = Image::new("xfs") else { return };
    let fs = image.open(Access::ReadWrite);
    let (writable, lock) = (fs.writable().unwrap(), LayoutLock::new());
    let names: Vec<String> = (0..6000).map(|number| format!("file{number}")).collect();
    let made: Vec<_> = names
        .iter()
        .map(|name| {
            let name = Name::new(name.as_bytes()).unwrap();
            let ino = writable.create(fs.root(), name, &node(FileKind::Regular)).unwrap().ino;
            assert_eq!(
                writable.write(&lock.shared(), ino, 0, name.as_bytes()).unwrap(),
                name.as_bytes().len()
            );
            ino
        })
        .collect();
    // The first have lost their names since, and keep their bytes as long as they are in use.
    for name in &names[..50] {
        writable.unlink(fs.root(), Name::new(name.as_bytes()).unwrap()).unwrap();
    }
    for (ino, name) in made.iter().zip(&names) {
        let mut found = [0; 16];
        let len = fs.read(&lock.shared(), *ino, 0, &mut found).unwrap();
        assert_eq!(&found[..len], name.as_bytes());
    }
    made.into_iter().for_each(|ino| fs.forget(ino));
    writable.sync().unwrap();
}
