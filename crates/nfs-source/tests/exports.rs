//! Exports are read as what the server has, and a server that fails or lies costs an error.

mod fake;

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fake::{Fake, Mood};
use obento_base::{DeviceError, DeviceNumber, Error, FileKind, Ino, Mode, Name, Result, Timestamp};
use obento_driver::{
    Access, Cookie, FileSystem, LayoutLock, NewNode, RenameFlags, SetAttr, Span, TimeChange,
    WritableFileSystem,
};
use obento_nfs_source::{Export, MountError, NfsAddress};
use obento_testkit::ganesha::Ganesha;
use obento_testkit::signals::expect_no_sigpipe;

fn mount(
    host: &str,
    export: &str,
    port: u16,
    mount_port: u16,
    deadline: Duration,
) -> Result<Arc<dyn FileSystem>, MountError> {
    let address = NfsAddress {
        host: host.into(),
        export: export.into(),
        port: Some(port),
        mount_port: Some(mount_port),
        entries_max: None,
    };
    Export::open_with(&address, deadline)?.valid_for(ALWAYS).mount(Access::ReadWrite)
}

/// A validity that no test reaches, however slow the machine is.
const ALWAYS: Duration = Duration::from_secs(86_400);

fn fake(mood: Mood) -> (Fake, Arc<dyn FileSystem>) {
    let fake = Fake::start(mood);
    let is_late = matches!(mood, Mood::Hangs | Mood::NeverReady(_));
    let deadline = Duration::from_millis(if is_late { 700 } else { 30_000 });
    let fs = mount("127.0.0.1", "/srv", fake.port, fake.port, deadline).unwrap();
    (fake, fs)
}

fn at(fs: &dyn FileSystem, name: &str) -> Result<Ino> {
    fs.lookup(fs.root(), Name::new(name.as_bytes()).unwrap())
}

fn read(fs: &dyn FileSystem, ino: Ino) -> Result<Vec<u8>> {
    let mut bytes = vec![0; fs.getattr(ino)?.size as usize];
    let len = fs.read(&LayoutLock::new().shared(), ino, 0, &mut bytes)?;
    bytes.truncate(len);
    Ok(bytes)
}

fn list(fs: &dyn FileSystem, dir: Ino) -> Result<Vec<(String, Ino)>> {
    let mut found = Vec::new();
    fs.read_dir(dir, Cookie::START, &mut |entry| {
        let entry = entry.unwrap();
        found.push((String::from_utf8_lossy(entry.name.as_bytes()).into_owned(), entry.ino));
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

fn nfs(text: &'static str) -> Error {
    Error::Device(DeviceError::Nfs(text))
}

#[test]
fn a_sound_server_shows_its_files() {
    for mood in [Mood::Sound, Mood::OtherNumbers, Mood::Short, Mood::Fragments, Mood::NotReady] {
        println!("{mood:?}");
        let (_fake, fs) = fake(mood);
        let names = list(&*fs, fs.root()).unwrap();
        assert_eq!(names.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["file", "link", "dir"]);
        for (name, ino) in &names {
            assert_eq!(at(&*fs, name), Ok(*ino));
        }
        let attr = fs.getattr(names[0].1).unwrap();
        assert_eq!((attr.mode.bits(), attr.uid, attr.gid, attr.mtime.nanos()), (0o640, 10, 20, 2));
        assert!(read(&*fs, names[0].1).unwrap() == fake::contents());
        assert_eq!(fs.read_link(names[1].1).unwrap(), b"file");
        assert_eq!(fs.parent(names[2].1), Ok(fs.root()));
        assert_eq!(at(&*fs, "none"), Err(Error::NotFound));
        assert_eq!(fs.getattr(Ino(99)), Err(Error::Stale));
        assert_eq!(fs.statfs().unwrap().blocks, 1 << 18);
    }
}

#[test]
fn a_listing_continues_after_any_entry() {
    let (_fake, fs) = fake(Mood::Sound);
    let mut from = Cookie::START;
    let mut names = Vec::new();
    loop {
        let mut next = None;
        fs.read_dir(fs.root(), from, &mut |entry| {
            let entry = entry.unwrap();
            names.push(String::from_utf8_lossy(entry.name.as_bytes()).into_owned());
            next = Some(entry.next);
            ControlFlow::Break(())
        })
        .unwrap();
        let Some(next) = next else { break };
        from = next;
    }
    assert_eq!(names, ["file", "link", "dir"]);
}

#[test]
fn a_large_read_is_several_calls_at_once() {
    let (fake, fs) = fake(Mood::Sound);
    let file = at(&*fs, "file").unwrap();
    assert!(read(&*fs, file).unwrap() == fake::contents());
    assert_eq!(fake.reads.load(Ordering::Relaxed), 400_000_u32.div_ceil(8192));
}

/// Reads `len` bytes at `offset`.
fn read_at(fs: &dyn FileSystem, ino: Ino, offset: u64, len: usize) -> Vec<u8> {
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

/// Serves a file of 16 MiB. Reads no call before the client has received the reply to the last one.
fn serve_one_by_one(mut stream: UnixStream) -> Option<()> {
    const LEN: u32 = 1 << 20;
    let word = |bytes: &[u8], at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    let mut attributes = fake::attributes(2);
    attributes[20..28].copy_from_slice(&(16_u64 << 20).to_be_bytes());
    loop {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark).ok()?;
        let mut call = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        stream.read_exact(&mut call).ok()?;
        let results = match word(&call, 20) {
            1 => [words(&[0]), fake::attributes(1)].concat(),
            3 => [words(&[0, 4, 2, 1]), attributes.clone(), words(&[0])].concat(),
            6 => {
                let count = word(&call, call.len() - 4);
                [words(&[0, 0, count, 0, count]), vec![5; count as usize]].concat()
            }
            7 => words(&[0, 0, 0, LEN, 2, 0, 0]),
            _ => [words(&[0, 0, LEN, 0, 0, LEN]), vec![0; 40]].concat(),
        };
        let reply = [words(&[word(&call, 0), 1, 0, 0, 0, 0]), results].concat();
        stream.write_all(&(0x8000_0000 | reply.len() as u32).to_be_bytes()).ok()?;
        stream.write_all(&reply).ok()?;
    }
}

#[test]
fn writes_do_not_wait_for_a_server_that_waits_until_its_replies_are_received() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    std::thread::spawn(move || serve_one_by_one(theirs));
    let export = Export::over(ours.into(), &1_u32.to_be_bytes(), Duration::from_secs(60)).unwrap();
    let fs = export.mount(Access::ReadWrite).unwrap();
    let file = at(&*fs, "file").unwrap();
    assert_eq!(read_at(&*fs, file, 0, 1000), [5; 1000]);
    // Requests 4 MiB more than it returns, which do not fit into the socket.
    assert_eq!(read_at(&*fs, file, 1000, 1000), [5; 1000]);
    write(fs.writable().unwrap(), file, 0, &vec![7; 8 << 20]).unwrap();
}

#[test]
fn a_server_that_restarts_costs_nothing() {
    let (_fake, fs) = fake(Mood::RestartsOnce);
    let file = at(&*fs, "file").unwrap();
    assert!(read(&*fs, file).unwrap() == fake::contents());
}

#[test]
fn a_server_that_hangs_costs_one_call_its_deadline_and_later_calls_nothing() {
    let (_fake, fs) = fake(Mood::Hangs);
    let file = at(&*fs, "file").unwrap();
    let start = Instant::now();
    assert_eq!(read(&*fs, file), Err(nfs("did not respond in time")));
    for _ in 0..100 {
        assert_eq!(at(&*fs, "file"), Err(nfs("closed the connection")));
    }
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_call_and_its_repetitions_have_one_deadline_if_the_server_is_never_ready() {
    for procedure in [3, 6, 7] {
        println!("{procedure}");
        let (_fake, fs) = fake(Mood::NeverReady(procedure));
        let create = || fs.writable().unwrap().create(fs.root(), name("file"), &new(FileKind::Regular, ""));
        let write = |file| write(fs.writable().unwrap(), file, 0, b"text");
        let found = match procedure {
            3 => at(&*fs, "file").map(drop),
            6 => {
                let file = create().unwrap().ino;
                write(file).unwrap();
                fs.read(&LayoutLock::new().shared(), file, 0, &mut [0; 4]).map(drop)
            }
            _ => write(create().unwrap().ino),
        };
        assert_eq!(found, Err(nfs("did not respond in time")));
        // The server has answered each call, so it gets further calls.
        let expected = if procedure == 3 { Err(nfs("did not respond in time")) } else { Ok(()) };
        assert_eq!(at(&*fs, "file").map(drop), expected);
    }
}

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
fn a_server_that_fails_or_lies_costs_an_error() {
    let nonsense = nfs("sent an invalid reply");
    for (mood, expected) in [
        (Mood::Dies, nfs("closed the connection")),
        (Mood::HugeRecord, nonsense),
        (Mood::Cut, nonsense),
        (Mood::Long, nonsense),
    ] {
        println!("{mood:?}");
        let (_fake, fs) = fake(mood);
        let file = at(&*fs, "file").unwrap();
        assert_eq!(read(&*fs, file), Err(expected));
    }
    for mood in [Mood::Loop, Mood::Slash, Mood::SameCookie] {
        println!("{mood:?}");
        let (_fake, fs) = fake(mood);
        assert_eq!(list(&*fs, fs.root()), Err(nonsense));
    }
    let (_fake, fs) = fake(Mood::Stale);
    assert_eq!(at(&*fs, "link"), Err(Error::Stale));
    let fake = Fake::start(Mood::Rejects);
    let refused = mount("127.0.0.1", "/srv", fake.port, fake.port, Duration::from_secs(30)).err().unwrap();
    assert_eq!(refused.to_string(), "the NFS server rejects the call");
}

#[test]
fn a_listing_without_an_end_fails_at_the_limit_also_in_portions() {
    for (mood, portion) in [(Mood::Endless, 5000), (Mood::Endless, 50), (Mood::EndlessDots, 50)] {
        println!("{mood:?}, {portion}");
        let fake = Fake::start(mood);
        let address = NfsAddress {
            host: "127.0.0.1".into(),
            export: b"/srv".into(),
            port: Some(fake.port),
            mount_port: Some(fake.port),
            entries_max: Some(1000),
        };
        let fs = Export::open(&address).unwrap().mount(Access::ReadOnly).unwrap();
        let (mut from, mut count) = (Cookie::START, 0);
        let error = loop {
            let mut in_portion = 0;
            let listed = fs.read_dir(fs.root(), from, &mut |entry| {
                (from, count, in_portion) = (entry.unwrap().next, count + 1, in_portion + 1);
                if in_portion < portion { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            assert!(count <= 1000);
            if let Err(error) = listed {
                break error;
            }
        };
        let expected = if mood == Mood::EndlessDots { 0 } else { 1000 };
        assert_eq!((error, count), (nfs("lists more entries of a directory than permitted"), expected));
        // A new listing starts from the first entry.
        let first = fs.read_dir(fs.root(), Cookie::START, &mut |_| ControlFlow::Break(()));
        assert_eq!(first.is_ok(), mood == Mood::Endless);
    }
}

/// Connects to a server with little memory for its files.
fn with_few_files(fake: &Fake, files_max: usize) -> Arc<dyn FileSystem> {
    let address = NfsAddress {
        host: "127.0.0.1".into(),
        export: b"/srv".into(),
        port: Some(fake.port),
        mount_port: Some(fake.port),
        entries_max: None,
    };
    let export = Export::open(&address).unwrap().valid_for(ALWAYS).files_max(files_max);
    export.mount(Access::ReadWrite).unwrap()
}

#[test]
fn a_tree_without_an_end_fails_when_no_further_directory_can_be_remembered() {
    let fake = Fake::start(Mood::EndlessTree);
    let fs = with_few_files(&fake, 5000);
    let (mut left, mut count) = (VecDeque::from([fs.root()]), 0);
    let error = loop {
        let dir = left.pop_front().expect("the tree has no end");
        let mut in_directory = 0;
        let listed = fs.read_dir(dir, Cookie::START, &mut |entry| {
            left.push_back(entry.unwrap().ino);
            (count, in_directory) = (count + 1, in_directory + 1);
            if in_directory < 100 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        fs.forget(dir);
        if let Err(error) = listed {
            break error;
        }
    };
    assert_eq!((error, count), (nfs("has more directories than obento can remember"), 4999));
    // The known directories can still be used.
    let known = left.pop_front().unwrap();
    assert!(fs.getattr(known).unwrap().is_dir());
    let listed = fs.read_dir(fs.root(), Cookie::START, &mut |_| ControlFlow::Break(()));
    assert_eq!(listed, Ok(()));
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

#[test]
fn a_directory_below_itself_has_one_number() {
    let (_fake, fs) = fake(Mood::Cycle);
    let outer = at(&*fs, "dir").unwrap();
    let inner = list(&*fs, outer).unwrap()[0].1;
    assert_eq!(list(&*fs, inner).unwrap(), [("outer".to_owned(), outer)]);
}

#[test]
fn a_host_without_a_server_is_reported() {
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let refused = mount("127.0.0.1", "/srv", port, port, Duration::from_secs(30)).err().unwrap();
    assert!(refused.to_string().starts_with("cannot connect to the MOUNT server at 127.0.0.1:"), "{refused}");
}

fn name(text: &str) -> &Name {
    Name::new(text.as_bytes()).unwrap()
}

fn new(kind: FileKind, target: &str) -> NewNode<'_> {
    let rdev = DeviceNumber { major: 1, minor: 2 };
    NewNode { kind, mode: Mode::new(0o640), uid: 10, gid: 20, rdev, target: target.as_bytes() }
}

/// Writes bytes as `vfs` does.
fn write(fs: &dyn WritableFileSystem, ino: Ino, offset: u64, bytes: &[u8]) -> Result<()> {
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

#[derive(PartialEq, Eq, Debug)]
enum Seen {
    Directory(u32),
    Link(Vec<u8>),
    File { mode: u32, links: u64, mtime: i64, bytes: Vec<u8> },
}

fn host_tree(folder: &Path, prefix: &str, found: &mut BTreeMap<String, Seen>) {
    for entry in fs::read_dir(folder).unwrap().map(std::result::Result::unwrap) {
        let path = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        let meta = entry.metadata().unwrap();
        let mode = meta.permissions().mode() & 0o7777;
        let seen = if meta.is_dir() {
            host_tree(&entry.path(), &format!("{path}/"), found);
            Seen::Directory(mode)
        } else if meta.is_symlink() {
            Seen::Link(fs::read_link(entry.path()).unwrap().into_os_string().into_encoded_bytes())
        } else {
            Seen::File {
                mode,
                links: meta.nlink(),
                mtime: meta.mtime_nsec(),
                bytes: fs::read(entry.path()).unwrap(),
            }
        };
        found.insert(path, seen);
    }
}

fn served_tree(fs: &dyn FileSystem, dir: Ino, prefix: &str, found: &mut BTreeMap<String, Seen>) {
    for (name, ino) in list(fs, dir).unwrap() {
        let path = format!("{prefix}{name}");
        let attr = fs.getattr(ino).unwrap();
        let mode = attr.mode.bits().into();
        let seen = match attr.kind {
            FileKind::Directory => {
                served_tree(fs, ino, &format!("{path}/"), found);
                Seen::Directory(mode)
            }
            FileKind::Symlink => Seen::Link(fs.read_link(ino).unwrap()),
            _ => Seen::File {
                mode,
                links: attr.nlink.into(),
                mtime: attr.mtime.nanos().into(),
                bytes: read(fs, ino).unwrap(),
            },
        };
        found.insert(path, seen);
    }
}

#[test]
fn an_export_of_ganesha_is_read_as_the_host_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    fs::create_dir_all(source.join("dir/deep")).unwrap();
    fs::write(source.join("empty"), "").unwrap();
    fs::write(source.join("large"), (0..1_500_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>())
        .unwrap();
    fs::hard_link(source.join("large"), source.join("dir/hard")).unwrap();
    symlink("dir/deep", source.join("link")).unwrap();
    fs::set_permissions(source.join("empty"), fs::Permissions::from_mode(0o600)).unwrap();
    for number in 0..2000 {
        fs::write(source.join(format!("dir/deep/file number {number}")), number.to_string()).unwrap();
    }
    let Some(server) = Ganesha::start(folder.path(), &source) else { return };
    let (port, mount_port) = (server.port, server.mount_port);
    let start = Instant::now();
    let export = source.to_str().unwrap();
    let fs = loop {
        match mount("127.0.0.1", export, port, mount_port, Duration::from_secs(30)) {
            Ok(fs) => break fs,
            // It takes a moment to listen.
            Err(error) => assert!(start.elapsed() < Duration::from_secs(60), "{error}"),
        }
    };
    let (mut served, mut host) = (BTreeMap::new(), BTreeMap::new());
    served_tree(&*fs, fs.root(), "", &mut served);
    host_tree(&source, "", &mut host);
    assert_eq!(served.len(), 2006);
    for (path, seen) in &host {
        assert!(served.get(path) == Some(seen), "{path} differs");
    }
    let refused = mount("127.0.0.1", "/none", port, mount_port, Duration::from_secs(30)).err().unwrap();
    assert!(matches!(refused, MountError::Refused(_)), "{refused}");
}

#[test]
fn a_server_that_has_ended_raises_no_sigpipe() {
    expect_no_sigpipe("a_server_that_has_ended_raises_no_sigpipe", || {
        let (client, server) = UnixStream::pair().unwrap();
        drop(server);
        let export = Export::over(client.into(), b"root", Duration::from_secs(20)).unwrap();
        assert!(export.mount(Access::ReadOnly).is_err());
    });
}
