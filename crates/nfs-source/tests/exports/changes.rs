//! Changes of files of an export.

use super::*;

#[test]
fn a_name_that_a_change_looks_up_does_not_keep_its_file_known() {
    let fake = Fake::start(Mood::Changes);
    let fs = with_few_files(&fake, 16);
    let (root, writable) = (fs.root(), fs.writable().unwrap());
    for number in 0..100 {
        let text = number.to_string();
        let file = writable.create(root, name(&text), &new(FileKind::Regular, "")).unwrap().ino;
        fs.forget(file);
        assert_eq!(writable.rmdir(root, name(&text)), Err(Error::NotDirectory));
    }
}

#[test]
fn the_data_of_a_file_is_committed_before_the_file_is_forgotten() {
    for mood in [Mood::Changes, Mood::LosesData] {
        println!("{mood:?}");
        let fake = Fake::start(mood);
        let fs = with_few_files(&fake, 16);
        let (root, writable) = (fs.root(), fs.writable().unwrap());
        let make = |text: &str| writable.create(root, name(text), &new(FileKind::Regular, "")).unwrap().ino;
        let bytes = fake::contents()[..100_000].to_vec();
        let large = make("large");
        write(writable, large, 0, &bytes).unwrap();
        fs.forget(large);
        let commits = || fake.store.lock().unwrap().calls.iter().filter(|&&call| call == 21).count();
        // 14 of 16 files are known with the root, `large` and these.
        (0..12).for_each(|number| fs.forget(make(&format!("{number}"))));
        assert_eq!((commits(), fs.getattr(large).is_ok()), (0, true));
        fs.forget(make("last"));
        assert_eq!((commits(), fs.getattr(large).err()), (1, Some(Error::Stale)));
        let stored = fake.store.lock().unwrap();
        assert!(stored.files[&stored.names[&b"large"[..]]].bytes == bytes);
        drop(stored);
        let again = at(&*fs, "large").unwrap();
        assert!(read(&*fs, again).unwrap() == bytes);
        writable.close().unwrap();
    }
}

pub(super) fn new(kind: FileKind, target: &str) -> NewNode<'_> {
    let rdev = DeviceNumber { major: 1, minor: 2 };
    NewNode { kind, mode: Mode::new(0o640), uid: 10, gid: 20, rdev, target: target.as_bytes() }
}

/// Writes bytes as `vfs` does.
pub(super) fn write(fs: &dyn WritableFileSystem, ino: Ino, offset: u64, bytes: &[u8]) -> Result<()> {
    let lock = LayoutLock::new();
    let mut done = 0;
    while done < bytes.len() {
        let at = offset + done as u64;
        let layout = lock.shared();
        let ticket = fs.begin_write(&layout, ino, at..at + (bytes.len() - done) as u64)?;
        assert_eq!(ticket.extent().span, Span::Driver);
        drop(ticket);
        done += fs.write(&layout, ino, at, &bytes[done..])?;
    }
    Ok(())
}

/// Makes every kind of change, and checks the results.
fn change_everything(fs: &dyn FileSystem) {
    let (root, writable) = (fs.root(), fs.writable().unwrap());
    let make =
        |text: &str, kind, target: &str| writable.create(root, name(text), &new(kind, target)).unwrap();
    let file = make("file", FileKind::Regular, "");
    assert_eq!((file.kind, file.mode.bits(), file.size), (FileKind::Regular, 0o640, 0));
    let directory = make("dir", FileKind::Directory, "");
    assert_eq!((directory.kind, directory.mode.bits()), (FileKind::Directory, 0o640));
    assert_eq!(fs.read_link(make("link", FileKind::Symlink, "to").ino).unwrap(), b"to");
    for (text, kind) in
        [("pipe", FileKind::Fifo), ("char", FileKind::CharDevice), ("socket", FileKind::Socket)]
    {
        assert_eq!(make(text, kind, "").kind, kind);
    }
    for kind in [FileKind::Regular, FileKind::Directory, FileKind::Symlink] {
        assert_eq!(writable.create(root, name("file"), &new(kind, "x")).err(), Some(Error::Exists));
    }
    assert_eq!(writable.create(root, name("empty"), &new(FileKind::Symlink, "")).err(), Some(Error::Invalid));

    assert_eq!(writable.link(file.ino, root, name("second")).unwrap().nlink, 2);
    assert_eq!(writable.link(directory.ino, root, name("third")).err(), Some(Error::NotPermitted));
    assert_eq!(writable.link(file.ino, root, name("dir")).err(), Some(Error::Exists));
    writable.rename(root, name("second"), root, name("moved"), RenameFlags::empty()).unwrap();
    assert_eq!((at(fs, "second"), at(fs, "moved")), (Err(Error::NotFound), Ok(file.ino)));
    let kept = writable.rename(root, name("link"), root, name("moved"), RenameFlags::NO_REPLACE);
    assert_eq!(kept, Err(Error::Exists));
    let missing = writable.rename(root, name("none"), root, name("new"), RenameFlags::empty());
    assert_eq!(missing, Err(Error::NotFound));
    writable.unlink(root, name("moved")).unwrap();
    assert_eq!(writable.unlink(root, name("moved")), Err(Error::NotFound));
    assert_eq!(writable.unlink(root, name("dir")), Err(Error::IsDirectory));
    assert_eq!(writable.rmdir(root, name("file")), Err(Error::NotDirectory));
    writable.rmdir(root, name("dir")).unwrap();
    assert_eq!(at(fs, "dir"), Err(Error::NotFound));

    let bytes = fake::contents();
    write(writable, file.ino, 0, &bytes).unwrap();
    write(writable, file.ino, 100_000, &[7; 50_000]).unwrap();
    writable.sync_file(file.ino).unwrap();
    let mut expected = bytes;
    expected[100_000..150_000].fill(7);
    assert!(read(fs, file.ino).unwrap() == expected);
    writable.truncate(&LayoutLock::new().exclusive(), file.ino, 500_000).unwrap();
    expected.resize(500_000, 0);
    assert!(read(fs, file.ino).unwrap() == expected);

    let time = |secs| Some(TimeChange::At(Timestamp::new(secs, 0)));
    let change = SetAttr { mode: Some(Mode::new(0o4711)), mtime: time(5), ..SetAttr::default() };
    let attr = writable.set_attr(file.ino, &change).unwrap();
    assert_eq!((attr.mode.bits(), attr.mtime.secs()), (0o4711, 5));
    let early = SetAttr { mtime: time(-1), ..SetAttr::default() };
    assert_eq!(writable.set_attr(file.ino, &early), Err(Error::OutOfRange));
    writable.close().unwrap();
    assert!(fs.writable().is_none() && read(fs, file.ino).unwrap() == expected);
    assert_eq!(writable.unlink(root, name("file")), Err(Error::ReadOnly));
}

#[test]
fn every_change_reaches_the_server_also_if_it_restarts_or_writes_less() {
    for mood in [Mood::Changes, Mood::NoExclusive, Mood::WritesShort, Mood::LosesData, Mood::LosesReplies] {
        println!("{mood:?}");
        let (fake, fs) = fake(mood);
        change_everything(&*fs);
        let store = fake.store.lock().unwrap();
        let names: Vec<_> = store.names.keys().map(|name| String::from_utf8_lossy(name)).collect();
        assert_eq!(names, ["char", "file", "link", "pipe", "socket"]);
    }
}

#[test]
fn a_small_file_is_written_with_one_call_and_a_large_one_is_committed_once() {
    let (fake, fs) = fake(Mood::Changes);
    let (root, writable) = (fs.root(), fs.writable().unwrap());
    for (text, len, commits) in [("small", 5000, 0), ("large", 200_000, 1)] {
        let file = writable.create(root, name(text), &new(FileKind::Regular, "")).unwrap();
        fake.store.lock().unwrap().calls.clear();
        write(writable, file.ino, 0, &vec![1; len]).unwrap();
        writable.sync().unwrap();
        let calls = fake.store.lock().unwrap().calls.clone();
        assert_eq!(calls.iter().filter(|&&call| call == 7).count(), len.div_ceil(8192));
        assert_eq!(calls.iter().filter(|&&call| call == 21).count(), commits, "{calls:?}");
    }
}
