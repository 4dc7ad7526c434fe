//! Data that is read before it is needed.

use super::*;

#[test]
fn a_large_read_is_several_calls_at_once() {
    let (fake, fs) = fake(Mood::Sound);
    let file = at(&*fs, "file").unwrap();
    assert!(read(&*fs, file).unwrap() == fake::contents());
    assert_eq!(fake.reads.load(Ordering::Relaxed), 400_000_u32.div_ceil(8192));
}

/// Reads `len` bytes at `offset`.
pub(super) fn read_at(fs: &dyn FileSystem, ino: Ino, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let len = fs.read(&LayoutLock::new().shared(), ino, offset, &mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

#[test]
fn a_file_that_is_read_in_order_is_requested_before_it_is_needed() {
    let (fake, fs) = fake(Mood::Sound);
    let file = at(&*fs, "file").unwrap();
    let mut found = read_at(&*fs, file, 0, 10_000);
    assert_eq!(fake.reads.load(Ordering::Relaxed), 2);
    found.extend(read_at(&*fs, file, 10_000, 10_000));
    // The caller needs two more parts.
    let start = Instant::now();
    while fake.reads.load(Ordering::Relaxed) < 16 {
        assert!(start.elapsed() < Duration::from_secs(60));
    }
    while found.len() < 400_000 {
        found.extend(read_at(&*fs, file, found.len() as u64, 10_000));
    }
    assert!(found == fake::contents());
    // No byte is requested twice.
    assert_eq!(fake.reads.load(Ordering::Relaxed), 2 + 390_000_u32.div_ceil(8192));
}

#[test]
fn data_that_was_read_ahead_is_not_used_after_its_validity() {
    let fake = Fake::start(Mood::Sound);
    let address = NfsAddress {
        host: "127.0.0.1".into(),
        export: "/srv".into(),
        port: Some(fake.port),
        mount_port: Some(fake.port),
        entries_max: None,
    };
    let export = Export::open_with(&address, Duration::from_secs(30)).unwrap();
    let fs = export.valid_for(Duration::ZERO).mount(Access::ReadOnly).unwrap();
    let (file, whole) = (at(&*fs, "file").unwrap(), fake::contents());
    for part in 0..10 {
        let offset = part * 10_000;
        assert!(read_at(&*fs, file, offset as u64, 10_000) == whole[offset..offset + 10_000]);
    }
    // Parts that were read ahead are requested again: the whole file has fewer parts.
    assert!(fake.reads.load(Ordering::Relaxed) > 2 + 400_000_u32.div_ceil(8192));
}

#[test]
fn a_file_is_no_larger_than_the_server_supports() {
    let (_fake, fs) = fake(Mood::SmallFiles);
    assert_eq!(fs.limits().file_size_max, 1 << 20);
    let (writable, lock) = (fs.writable().unwrap(), LayoutLock::new());
    let file = writable.create(fs.root(), name("file"), &new(FileKind::Regular, "")).unwrap().ino;
    writable.truncate(&lock.exclusive(), file, 1 << 20).unwrap();
    assert_eq!(writable.truncate(&lock.exclusive(), file, (1 << 20) + 1), Err(Error::FileTooBig));
    assert_eq!(writable.write(&lock.shared(), file, 1 << 20, b"x"), Err(Error::FileTooBig));
    assert_eq!(writable.write(&lock.shared(), file, (1 << 20) - 1, b"xy"), Ok(1));
    // A server that does not know the size returns 0.
    let (_fake, fs) = fake(Mood::Sound);
    assert_eq!(fs.limits().file_size_max, i64::MAX.unsigned_abs());
}

#[test]
fn reads_out_of_order_and_of_several_files_return_their_bytes() {
    let (fake, fs) = fake(Mood::Sound);
    let (file, whole) = (at(&*fs, "file").unwrap(), fake::contents());
    // Two readers of one file disturb each other's order, but not their bytes.
    for step in 0..40_usize {
        for at in [step * 9000, 399_000 - step * 9000, step * 9000 + 9000] {
            assert!(read_at(&*fs, file, at as u64, 9000) == whole[at..whole.len().min(at + 9000)], "{at}");
        }
    }
    drop(fake);
}

#[test]
fn data_that_was_read_ahead_is_not_used_after_a_change() {
    let (_fake, fs) = fake(Mood::Changes);
    let (root, writable) = (fs.root(), fs.writable().unwrap());
    let file = writable.create(root, name("file"), &new(FileKind::Regular, "")).unwrap().ino;
    let mut expected = fake::contents();
    write(writable, file, 0, &expected).unwrap();
    let mut found = read_at(&*fs, file, 0, 10_000);
    found.extend(read_at(&*fs, file, 10_000, 10_000));
    write(writable, file, 30_000, &[7; 5000]).unwrap();
    expected[30_000..35_000].fill(7);
    found.extend(read_at(&*fs, file, 20_000, 10_000));
    writable.truncate(&LayoutLock::new().exclusive(), file, 40_000).unwrap();
    writable.truncate(&LayoutLock::new().exclusive(), file, 50_000).unwrap();
    expected.truncate(40_000);
    expected.resize(50_000, 0);
    found.extend(read_at(&*fs, file, 30_000, 100_000));
    assert!(found == expected);
}
