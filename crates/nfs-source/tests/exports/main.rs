//! Exports are read as what the server has, and a server that fails or lies costs an error.

mod ahead;
mod changes;
mod failures;
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

use ahead::read_at;
use changes::{new, write};
use failures::with_few_files;
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
fn a_directory_below_itself_has_one_number() {
    let (_fake, fs) = fake(Mood::Cycle);
    let outer = at(&*fs, "dir").unwrap();
    let inner = list(&*fs, outer).unwrap()[0].1;
    assert_eq!(list(&*fs, inner).unwrap(), [("outer".to_owned(), outer)]);
}

fn name(text: &str) -> &Name {
    Name::new(text.as_bytes()).unwrap()
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
            // The server may still start.
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
