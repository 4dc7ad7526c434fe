//! Servers that no one here wrote are read as what they serve.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use obento_base::{DeviceError, Error, FileKind, Ino, Name};
use obento_driver::{Access, Cookie, FileSystem, LayoutLock};
use obento_fuse_source::{FuseServer, StartError};
use obento_testkit::oracle::{Oracle, program, run, until};
use obento_testkit::require;
use obento_testkit::signals::expect_no_sigpipe;

/// Makes a tree on the host.
fn tree(folder: &Path) {
    fs::create_dir_all(folder.join("dir/deep")).unwrap();
    fs::write(folder.join("empty"), "").unwrap();
    fs::write(folder.join("small"), "contents\n").unwrap();
    fs::write(folder.join("large"), (0..700_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>()).unwrap();
    fs::write(folder.join("dir/caf\u{e9}"), "x").unwrap();
    symlink("dir/deep", folder.join("link")).unwrap();
    fs::set_permissions(folder.join("small"), fs::Permissions::from_mode(0o640)).unwrap();
    for number in 0..300 {
        fs::write(folder.join(format!("dir/deep/file number {number}")), number.to_string()).unwrap();
    }
}

#[derive(PartialEq, Eq, Debug)]
enum Seen {
    Directory,
    Link(Vec<u8>),
    File(u16, Vec<u8>),
}

fn host_tree(folder: &Path, prefix: &str, found: &mut BTreeMap<String, Seen>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        let kind = entry.file_type().unwrap();
        let seen = if kind.is_dir() {
            host_tree(&entry.path(), &format!("{path}/"), found);
            Seen::Directory
        } else if kind.is_symlink() {
            Seen::Link(fs::read_link(entry.path()).unwrap().into_os_string().into_encoded_bytes())
        } else {
            let mode = entry.metadata().unwrap().permissions().mode() & 0o7777;
            Seen::File(mode as u16, fs::read(entry.path()).unwrap())
        };
        found.insert(path, seen);
    }
}

fn served_tree(fs: &dyn FileSystem, dir: Ino, prefix: &str, found: &mut BTreeMap<String, Seen>) {
    let mut entries = Vec::new();
    fs.read_dir(dir, Cookie::START, &mut |entry| {
        let entry = entry.unwrap();
        entries.push((entry.name.to_buf(), entry.ino));
        ControlFlow::Continue(())
    })
    .unwrap();
    for (name, ino) in entries {
        assert_eq!(fs.lookup(dir, &name), Ok(ino));
        let path = format!("{prefix}{}", str::from_utf8(name.as_bytes()).unwrap());
        let attr = fs.getattr(ino).unwrap();
        let seen = match attr.kind {
            FileKind::Directory => {
                assert_eq!(fs.parent(ino), Ok(dir));
                served_tree(fs, ino, &format!("{path}/"), found);
                Seen::Directory
            }
            FileKind::Symlink => Seen::Link(fs.read_link(ino).unwrap()),
            _ => {
                let lock = LayoutLock::new();
                let mut bytes = vec![0; attr.size as usize];
                assert_eq!(fs.read(&lock.shared(), ino, 0, &mut bytes), Ok(bytes.len()));
                Seen::File(attr.mode.bits(), bytes)
            }
        };
        found.insert(path, seen);
    }
}

fn mount(name: &str, arguments: &[&str]) -> Result<Arc<dyn FileSystem>, StartError> {
    let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
    FuseServer::start_with(name.as_ref(), &arguments, Duration::from_secs(20))?.mount(Access::ReadOnly)
}

/// Compares what a server shows with the tree of the host.
fn compare(fs: &dyn FileSystem, folder: &Path) {
    let (mut served, mut host) = (BTreeMap::new(), BTreeMap::new());
    served_tree(fs, fs.root(), "", &mut served);
    host_tree(folder, "", &mut host);
    assert_eq!(served.keys().collect::<Vec<_>>(), host.keys().collect::<Vec<_>>());
    for (path, seen) in &host {
        assert!(served[path] == *seen, "{path} differs");
    }
    assert_eq!(fs.lookup(fs.root(), Name::new(b"none").unwrap()), Err(Error::NotFound));
    assert!(fs.statfs().is_ok());
}

#[test]
fn sshfs_over_an_sftp_server_shows_its_tree() {
    if !require(&[Oracle::Program("sshfs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (source, ssh) = (folder.path().join("source"), folder.path().join("ssh"));
    tree(&source);
    fs::write(&ssh, "#!/bin/sh\nexec /usr/lib/openssh/sftp-server\n").unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    let command = format!("ssh_command={}", ssh.display());
    let fs = mount("sshfs", &["-o", &command, &format!("host:{}", source.display())]).unwrap();
    compare(&*fs, &source);
}

#[test]
fn squashfuse_shows_its_image() {
    if !require(&[Oracle::Program("squashfuse"), Oracle::Program("mksquashfs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (source, image) = (folder.path().join("source"), folder.path().join("image"));
    tree(&source);
    run(program("mksquashfs").args([&source, &image]).args(["-quiet", "-no-progress"])).unwrap();
    for name in ["squashfuse", "squashfuse_ll"] {
        println!("{name}");
        compare(&*mount(name, &[image.to_str().unwrap()]).unwrap(), &source);
    }
}

#[test]
fn fuse_overlayfs_shows_its_layers_as_one_tree() {
    if !require(&[Oracle::Program("fuse-overlayfs"), Oracle::Fuse, Oracle::Root]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [lower, upper, work, whole] =
        ["lower", "upper", "work", "whole"].map(|name| folder.path().join(name));
    tree(&lower);
    tree(&whole);
    fs::create_dir_all(&work).unwrap();
    fs::create_dir_all(upper.join("dir")).unwrap();
    for changed in [&upper, &whole] {
        fs::write(changed.join("small"), "of the upper layer").unwrap();
        fs::write(changed.join("dir/added"), "new").unwrap();
    }
    let options =
        format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
    let fs = mount("fuse-overlayfs", &["-o", &options]).unwrap();
    fs::set_permissions(whole.join("small"), fs::Permissions::from_mode(0o644)).unwrap();
    compare(&*fs, &whole);
}

#[test]
fn servers_of_libfuse_2_are_refused_with_the_reason() {
    if !require(&[Oracle::Program("bindfs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let error = mount("bindfs", &[folder.path().to_str().unwrap()]).err().expect("it is refused");
    assert!(matches!(error, StartError::Refused(Error::Device(DeviceError::Server(_)))), "{error}");
    // The command line adds what such a server needs.
    assert_eq!(error.to_string(), "the FUSE server ended");
}

#[test]
fn a_program_that_is_missing_is_reported() {
    let error = FuseServer::start("obento-no-such-program x".as_ref(), None, Access::ReadOnly)
        .err()
        .expect("it fails")
        .to_string();
    assert!(error.contains("obento-no-such-program"), "{error}");
}

/// A server in shell and Python that answers INIT, then does what its argument says.
const ODD: &str = r#"
import os, struct, sys, time
def answer(unique, body, error=0):
    os.write(0, struct.pack("=IiQ", 16 + len(body), error, unique) + body)
def attr(mode, size=0):
    return struct.pack("=6Q10I", 1, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
what = sys.argv[1]
while True:
    request = os.read(0, 1 << 20)
    if not request:
        break
    length, opcode, unique, node = struct.unpack("=IIQQ", request[:24])
    if opcode == 26:
        answer(unique, struct.pack("=IIIIIIIHH8I", 7, 31, 0, 0, 0, 4096, 1, 0, 0, *[0] * 8))
    elif opcode == 2:
        pass
    elif what == "hang":
        time.sleep(100)
    elif what == "die":
        break
    elif what == "short":
        answer(unique, b"abc")
    elif what == "length":
        os.write(0, struct.pack("=IiQ", 1 << 30, 0, unique))
    elif what == "part":
        os.write(0, struct.pack("=IiQ", 999, 0, unique))
    elif what == "error":
        answer(unique, b"", 5)
    elif what == "late":
        answer(unique - 2, struct.pack("=QII", 1, 0, 0) + attr(0o40755))
        answer(0, b"a notice")
        answer(unique, struct.pack("=QII", 1, 0, 0) + attr(0o40700))
    elif opcode in (22, 23) and what.startswith("value "):
        answer(unique, b"v" * int(what[6:]))
    elif opcode == 3:
        answer(unique, struct.pack("=QII", 1, 0, 0) + attr(0o100644))
    elif opcode == 1:
        answer(unique, struct.pack("=QQQQII", 1, 0, 1, 1, 0, 0) + attr(0o40755))
    elif opcode == 27:
        answer(unique, struct.pack("=QII", 7, 0, 0))
    elif opcode == 28:
        answer(unique, struct.pack("=QQII", 2, 1, 9, 8) + b"a/b/c/d/e" + bytes(7))
    else:
        answer(unique, b"", -38)
"#;

fn odd(what: &str) -> Arc<dyn FileSystem> {
    let arguments = ["-c", ODD, what].map(OsString::from);
    // Two of them never answer.
    let deadline = Duration::from_millis(if ["hang", "part"].contains(&what) { 700 } else { 30_000 });
    FuseServer::start_with("python3".as_ref(), &arguments, deadline).unwrap().mount(Access::ReadOnly).unwrap()
}

#[test]
fn a_server_that_hangs_costs_one_call_its_deadline_and_later_calls_nothing() {
    if !require(&[Oracle::Program("python3")]) {
        return;
    }
    let fs = odd("hang");
    let start = Instant::now();
    assert_eq!(fs.getattr(fs.root()), Err(Error::Device(DeviceError::Server("did not respond in time"))));
    for _ in 0..100 {
        assert!(fs.getattr(fs.root()).is_err_and(|error| error.is_damage()));
    }
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_server_that_ends_or_sends_nonsense_costs_an_error() {
    if !require(&[Oracle::Program("python3")]) {
        return;
    }
    let server = |text| Err(Error::Device(DeviceError::Server(text)));
    for (what, text) in [
        ("die", "ended"),
        ("short", "sent an invalid reply"),
        ("length", "sent an invalid reply"),
        ("part", "did not respond in time"),
        ("error", "sent an invalid reply"),
        // The root as a file.
        ("lie", "sent an invalid reply"),
    ] {
        let fs = odd(what);
        assert_eq!(fs.getattr(fs.root()).map(|_| ()), server(text), "{what}");
    }
}

/// Returns whether a child of this process has ended and was not reaped.
fn has_zombies() -> bool {
    let own = std::process::id().to_string();
    let stats = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name is in parentheses and may contain spaces. State and parent follow.
        Some(stat.rsplit(')').next()?.split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>())
    });
    stats.into_iter().any(|fields| fields == ["Z", &own])
}

#[test]
fn a_server_that_ends_is_reaped() {
    if !require(&[Oracle::Program("python3")]) {
        return;
    }
    for what in ["die", "late"] {
        let fs = odd(what);
        let _ = fs.getattr(fs.root());
        drop(fs);
        // Servers of other tests may end in between.
        assert!(until(|| !has_zombies()), "{what}");
    }
}

#[test]
fn late_replies_and_notices_are_ignored() {
    if !require(&[Oracle::Program("python3")]) {
        return;
    }
    let fs = odd("late");
    assert_eq!(fs.getattr(fs.root()).unwrap().mode.bits(), 0o700);
}

#[test]
fn a_name_with_a_slash_and_the_root_as_a_child_are_nonsense() {
    if !require(&[Oracle::Program("python3")]) {
        return;
    }
    let nonsense = Error::Device(DeviceError::Server("sent an invalid reply"));
    let fs = odd("lie");
    assert_eq!(fs.lookup(fs.root(), Name::new(b"loop").unwrap()), Err(nonsense));
    let fs = odd("lie");
    let mut names = 0;
    let listed = fs.read_dir(fs.root(), Cookie::START, &mut |_| {
        names += 1;
        ControlFlow::Continue(())
    });
    assert_eq!((listed, names), (Err(nonsense), 0));
}

#[test]
fn a_longer_attribute_than_requested_is_nonsense() {
    if !require(&[Oracle::Program("python3")]) {
        return;
    }
    let nonsense = Error::Device(DeviceError::Server("sent an invalid reply"));
    let fs = odd("value 65536");
    let xattrs = fs.xattrs().unwrap();
    assert_eq!(xattrs.get_xattr(fs.root(), b"user.a").map(|value| value.len()), Ok(65536));
    let fs = odd("value 65537");
    let xattrs = fs.xattrs().unwrap();
    assert_eq!(xattrs.get_xattr(fs.root(), b"user.a").map(|value| value.len()), Err(nonsense));
    let (fs, mut names) = (odd("value 65537"), 0);
    let listed = fs.xattrs().unwrap().list_xattrs(fs.root(), &mut |_| names += 1);
    assert_eq!((listed, names), (Err(nonsense), 0));
}

#[test]
fn a_server_that_has_ended_raises_no_sigpipe() {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    expect_no_sigpipe("a_server_that_has_ended_raises_no_sigpipe", || {
        let (client, server) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        drop(server);
        let refused = obento_fuse_source::connect(client, Duration::from_secs(20), Access::ReadOnly);
        assert!(refused.is_err());
    });
}
