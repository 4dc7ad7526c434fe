//! Robustness of a volume of any type: many requests and inodes, and the end of its kernel.

use std::sync::Arc;

use obento_base::{DeviceError, Error, FileFlags, FileKind, Name, Timestamp};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{
    Access, Driver as _, LayoutLock, NewNode, OpenOptions, RemovalKind, RenameFlags, SetAttr, TimeChange,
    Usage, XattrMode,
};
use obento_env::SystemClock;
use obento_testkit::record::{Event, RecordDevice};
use obento_testkit::tree::pattern;

use super::image::{Image, driver, node, open};

#[test]
fn requests_without_a_pause_are_all_answered() {
    let Some(image) = Image::new("f2fs") else { return };
    let fs = image.open(Access::ReadOnly);
    // Many more requests than the line holds notifications that were not read.
    for _ in 0..20_000 {
        fs.statfs().unwrap();
    }
}

#[test]
fn a_volume_with_a_stored_length_is_not_changed_if_its_image_is_shorter() {
    for name in ["hfsplus", "sysv"] {
        let Some(image) = Image::new(name) else { continue };
        let mut bytes = image.bytes();
        let whole = driver(name).probe(&MemDevice::new(bytes.clone())).unwrap().unwrap();
        assert_eq!(whole.len, bytes.len() as u64, "{name}");
        bytes.truncate(bytes.len() - 4096);
        let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(Arc::new(SystemClock)) };
        let opened = driver(name).open(Arc::new(MemDevice::new(bytes)), &options);
        let refused = matches!(opened.err(), Some(Error::Device(DeviceError::OutOfBounds { .. })));
        assert!(refused, "{name}");
    }
}

#[test]
fn synced_files_exist_after_the_kernel_was_killed() {
    for name in ["xfs", "btrfs", "f2fs", "gfs2"] {
        let Some(image) = Image::new(name) else { continue };
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
    // The first files have lost their names, and retain their contents while they are in use.
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

#[test]
fn files_written_one_after_another_find_the_space_that_earlier_files_reserved() {
    for kind in ["affs", "gfs2"] {
        let Some(image) = Image::new(kind) else { continue };
        let fs = image.open(Access::ReadWrite);
        let (writable, lock) = (fs.writable().unwrap(), LayoutLock::new());
        for number in 0..800 {
            let name = format!("file{number}");
            let made =
                writable.create(fs.root(), Name::new(name.as_bytes()).unwrap(), &node(FileKind::Regular));
            let ino = made.unwrap_or_else(|error| panic!("{kind}, {name}: {error}")).ino;
            assert_eq!(writable.write(&lock.shared(), ino, 0, &pattern(5000)), Ok(5000), "{kind}, {name}");
        }
        writable.close().unwrap();
    }
}

#[test]
fn a_trim_discards_free_space_and_nothing_else() {
    // F2FS discards in the background.
    for kind in ["jfs", "btrfs"] {
        let Some(image) = Image::new(kind) else { continue };
        // Discarded ranges contain other bytes from now on.
        let device = Arc::new(RecordDevice::new(MemDevice::new(image.bytes())));
        let fs = open(kind, device.clone(), Access::ReadWrite);
        let (writable, lock) = (fs.writable().unwrap(), LayoutLock::new());
        let [kept, gone] = [&b"kept"[..], b"gone"].map(|name| Name::new(name).unwrap());
        for (name, len) in [(kept, 1 << 20), (gone, 4 << 20)] {
            let ino = writable.create(fs.root(), name, &node(FileKind::Regular)).unwrap().ino;
            assert_eq!(writable.write(&lock.shared(), ino, 0, &pattern(len)), Ok(len), "{kind}");
            fs.forget(ino);
        }
        writable.sync().unwrap();
        writable.unlink(fs.root(), gone).unwrap();
        writable.sync().unwrap();
        device.take_events();
        assert!(fs.trim().unwrap().trim(0).unwrap() > 0, "{kind}");
        let reported = device.take_events();
        let reported: u64 =
            reported.iter().filter_map(Event::discarded).map(|range| range.end - range.start).sum();
        assert!((4 << 20..device.len()).contains(&reported), "{kind}: {reported} bytes are free");
        writable.close().unwrap();
        drop(fs);
        let fs = open(kind, device, Access::ReadOnly);
        let (ino, mut found) = (fs.lookup(fs.root(), kept).unwrap(), vec![0; 1 << 20]);
        let mut done = 0;
        while done < found.len() {
            done += fs.read(&lock.shared(), ino, done as u64, &mut found[done..]).unwrap();
        }
        assert!(found == pattern(1 << 20), "{kind}: used bytes were discarded");
    }
}

#[test]
fn the_immutable_flag_is_changed_together_with_the_times() {
    for kind in ["xfs", "btrfs", "f2fs"] {
        let Some(image) = Image::new(kind) else { continue };
        let fs = image.open(Access::ReadWrite);
        let writable = fs.writable().unwrap();
        let name = Name::new(b"file").unwrap();
        let ino = writable.create(fs.root(), name, &node(FileKind::Regular)).unwrap().ino;
        let locked = (FileFlags::IMMUTABLE, 1_500_000_000);
        for (flags, secs) in [locked, (FileFlags::empty(), 1_600_000_000)] {
            let (flags, time) = (Some(flags), Timestamp::new(secs, 0));
            let mtime = Some(TimeChange::At(time));
            let set = writable.set_attr(ino, &SetAttr { flags, mtime, ..SetAttr::default() });
            assert_eq!(set.map(|attr| attr.mtime), Ok(time), "{kind}");
        }
        writable.close().unwrap();
    }
}

#[test]
fn a_name_that_is_not_unicode_finds_no_other_file_on_a_udf_volume() {
    let Some(image) = Image::new("udf") else { return };
    let fs = image.open(Access::ReadWrite);
    let (writable, root) = (fs.writable().unwrap(), fs.root());
    // The name that Linux would change the other one to.
    let [kept, wrong, new] = [&b"q?"[..], b"q\xff", b"new"].map(|name| Name::new(name).unwrap());
    let ino = writable.create(root, kept, &node(FileKind::Regular)).unwrap().ino;
    assert_eq!(fs.lookup(root, wrong), Err(Error::NotFound));
    let removed = writable.remove(root, wrong, RemovalKind::File, &mut |_| Ok(Usage::Unused));
    assert_eq!(removed, Err(Error::NotFound));
    assert_eq!(writable.rename(root, wrong, root, new, RenameFlags::empty()), Err(Error::NotFound));
    assert_eq!(writable.rename(root, kept, root, wrong, RenameFlags::empty()), Err(Error::Invalid));
    assert_eq!(writable.link(ino, root, wrong).err(), Some(Error::Invalid));
    assert_eq!(writable.create(root, wrong, &node(FileKind::Regular)).err(), Some(Error::Invalid));
    assert_eq!(fs.lookup(root, kept), Ok(ino));
    writable.close().unwrap();
}

#[test]
fn attributes_of_an_hfs_plus_volume_are_those_that_were_set_and_their_names_are_unicode() {
    let Some(image) = Image::new("hfsplus") else { return };
    let fs = image.open(Access::ReadWrite);
    let xattrs = fs.xattrs().unwrap();
    let dir = fs.writable().unwrap().create(fs.root(), Name::new(b"d").unwrap(), &node(FileKind::Directory));
    let dir = dir.unwrap().ino;
    let names = || {
        let mut names = Vec::new();
        xattrs.list_xattrs(dir, &mut |name| names.push(name.to_vec())).map(|()| names)
    };
    assert_eq!(names(), Ok(Vec::new()));
    // The target that Linux would change the other one to.
    let [kept, wrong] = [&b"user.?"[..], b"user.\xff"];
    assert_eq!(xattrs.set_xattr(dir, kept, b"1", XattrMode::Set), Ok(()));
    assert_eq!(xattrs.get_xattr(dir, wrong), Err(Error::NoData));
    assert_eq!(xattrs.set_xattr(dir, wrong, b"2", XattrMode::Set), Err(Error::OutOfRange));
    assert_eq!(xattrs.set_xattr(dir, wrong, b"2", XattrMode::Replace), Err(Error::NoData));
    assert_eq!(xattrs.remove_xattr(dir, wrong), Err(Error::NoData));
    assert_eq!((names(), xattrs.get_xattr(dir, kept)), (Ok(vec![kept.to_vec()]), Ok(b"1".to_vec())));
    fs.writable().unwrap().close().unwrap();
}

#[test]
fn a_link_of_an_affs_volume_has_the_requested_target_or_is_not_created() {
    let Some(image) = Image::new("affs") else { return };
    let fs = image.open(Access::ReadWrite);
    let names = ["l0", "l1", "l2", "l3"].map(|name| Name::new(name.as_bytes()).unwrap());
    let make = |name, target| {
        let link = NewNode { target, ..node(FileKind::Symlink) };
        fs.writable().unwrap().create(fs.root(), name, &link).map(drop)
    };
    for (name, target) in names.into_iter().zip([&b"a/b"[..], b"..", b"a/..", b"./a"]) {
        assert_eq!(make(name, target), Ok(()));
    }
    let other = Name::new(b"other").unwrap();
    for target in [&b"/a"[..], b"../a", b"a/../b", b"volume:a"] {
        assert_eq!(make(other, target), Err(Error::Invalid));
    }
    assert_eq!(fs.lookup(fs.root(), other), Err(Error::NotFound));
    fs.writable().unwrap().close().unwrap();
    drop(fs);
    let fs = image.open(Access::ReadOnly);
    let target = |name| fs.read_link(fs.lookup(fs.root(), name).unwrap()).unwrap();
    assert_eq!(names.map(target), [&b"a/b"[..], b"..", b"a/..", b"a"]);
}

#[test]
fn a_name_of_an_hpfs_volume_ends_as_requested_or_does_not_exist() {
    let Some(image) = Image::new("hpfs") else { return };
    let fs = image.open(Access::ReadWrite);
    let (writable, root) = (fs.writable().unwrap(), fs.root());
    let ino = writable.create(root, Name::new(b"name").unwrap(), &node(FileKind::Regular)).unwrap().ino;
    // By these names, Linux would find the first file.
    for other in [&b"name."[..], b"name "] {
        let other = Name::new(other).unwrap();
        assert_eq!(fs.lookup(root, other), Err(Error::NotFound));
        assert_eq!(writable.create(root, other, &node(FileKind::Regular)).err(), Some(Error::Invalid));
        let removed = writable.remove(root, other, RemovalKind::File, &mut |_| Ok(Usage::Unused));
        assert_eq!(removed, Err(Error::NotFound));
    }
    assert_eq!(fs.lookup(root, Name::new(b"name").unwrap()), Ok(ino));
    writable.close().unwrap();
}
