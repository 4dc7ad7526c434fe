//! Exports are read as what the server has, and a server that fails or lies costs an error.

mod fake;

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fake::{Fake, Mood};
use obento_base::{DeviceError, Error, FileKind, Ino, Name, Result};
use obento_driver::{Cookie, FileSystem, LayoutLock};
use obento_nfs_source::{Export, MountError, NfsAddress};
use obento_testkit::ganesha::Ganesha;

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
    };
    Export::open_with(&address, deadline)?.mount()
}

fn fake(mood: Mood) -> (Fake, Arc<dyn FileSystem>) {
    let fake = Fake::start(mood);
    let deadline = Duration::from_millis(if mood == Mood::Hangs { 700 } else { 30_000 });
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
fn a_host_without_a_server_is_reported() {
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let refused = mount("127.0.0.1", "/srv", port, port, Duration::from_secs(30)).err().unwrap();
    assert!(refused.to_string().starts_with("cannot connect to the MOUNT server at 127.0.0.1:"), "{refused}");
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
