//! Each test runs itself again in a separate process, because privileges cannot be regained.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsFd;
use std::process::Command;

use obento_base::{Mode, Name, Timestamp};

use super::*;
use crate::tree::{LinkKey, TreeOptions, TreeWriter};
use crate::{HostError, Metadata};

const INSIDE: &str = "OBENTO_TEST_INSIDE_SANDBOX";

/// Returns whether this is the process that drops privileges. The other one starts it and checks its result.
fn inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    // The files remain, because the process has lost the right to remove them.
    let folder = tempfile::tempdir().unwrap();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("sandbox::tests::{test}"), "--test-threads=1"])
        .env(INSIDE, "1")
        .env("TMPDIR", folder.path())
        .status()
        .unwrap();
    assert!(status.success(), "{test} fails in its sandbox: {status}");
    false
}

/// Checks that the measures that this kernel and container support are in force, and that the others have a
/// reason.
fn check(applied: &Applied) {
    for measure in [&applied.no_new_privs, &applied.capabilities, &applied.landlock, &applied.seccomp] {
        if let Measure::Missing(reason) = measure {
            println!("skipped: {reason}");
        }
    }
    assert_eq!(applied.no_new_privs, Measure::Applied);
}

#[test]
fn a_reader_reads_open_files_and_opens_nothing() {
    if !inside("a_reader_reads_open_files_and_opens_nothing") {
        return;
    }
    let mut open = File::open("/proc/self/status").unwrap();
    let applied = enter(Rights::Read);
    check(&applied);
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert!(text.contains("NoNewPrivs:\t1"), "{text}");
    let sum = std::thread::spawn(|| vec![1_u8; 10 << 20].iter().map(|&b| u64::from(b)).sum::<u64>());
    assert_eq!(sum.join().unwrap(), 10 << 20);
    if applied.seccomp == Measure::Applied {
        assert!(File::open("/etc/passwd").is_err() && fs::write("/tmp/obento-none", "").is_err());
        assert!(Command::new("/bin/true").status().is_err());
        assert!(std::net::UdpSocket::bind("127.0.0.1:0").is_err());
    }
}

#[test]
fn an_image_that_is_open_for_change_is_read_and_written_in_every_way() {
    if !inside("an_image_that_is_open_for_change_is_read_and_written_in_every_way") {
        return;
    }
    let files = crate::io::IoBackend::ALL.map(|backend| {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let opened = crate::io::open(file.path(), Some(crate::lock::Purpose::Change), backend);
        (file, opened)
    });
    check(&enter(Rights::Read));
    for (_file, opened) in &files {
        let device = match opened {
            Ok(opened) => &opened.device,
            Err(error) => {
                println!("skipped: {error}");
                continue;
            }
        };
        let mut buf = vec![0; 600 << 10];
        device.write_at(5, &vec![9; 600 << 10]).unwrap();
        device.read_at(5, &mut buf).unwrap();
        device.discard(0..4096).unwrap();
        device.flush().unwrap();
        assert_eq!(buf, vec![9; 600 << 10]);
    }
}

#[test]
fn a_writer_writes_beneath_its_target_and_nowhere_else() {
    if !inside("a_writer_writes_beneath_its_target_and_nowhere_else") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let outside = tempfile::NamedTempFile::new().unwrap();
    let folder = File::open(root.path()).unwrap();
    let applied = enter(Rights::WriteBeneath(&[folder.as_fd()]));
    check(&applied);
    // Works without `/proc`, too.
    let mut tree = TreeWriter::open(root.path(), TreeOptions::default()).unwrap();
    let time = Timestamp::new(5, 6);
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let mode = Mode::new(0o755);
    let meta = Metadata { mode, uid, gid, atime: time, mtime: time, ctime: time, xattrs: &[] };
    let name = |text: &'static str| Name::new(text.as_bytes()).unwrap();
    tree.enter(name("d"), &meta).unwrap();
    tree.file::<HostError>(name("f"), &meta, |sink| sink.bytes(b"x")).unwrap();
    tree.remember(LinkKey { source: 0, ino: 1 }, name("f"), 2).unwrap();
    tree.symlink(name("l"), &meta, b"f").unwrap();
    tree.leave().unwrap();
    tree.link(name("hard"), &meta, LinkKey { source: 0, ino: 1 }).unwrap().unwrap();
    let null = obento_base::DeviceNumber::default();
    tree.node(name("fifo"), &meta, obento_base::FileKind::Fifo, null).unwrap();
    let report = tree.finish().unwrap();
    assert!(report.lost.is_empty(), "{report:?}");
    if applied.landlock != Measure::Missing("the kernel has no Landlock, or it is off".into()) {
        assert!(File::open(outside.path()).is_err() && File::open("/etc/passwd").is_err());
    }
    if applied.seccomp == Measure::Applied {
        assert!(Command::new("/bin/true").status().is_err());
        assert!(std::net::UdpSocket::bind("127.0.0.1:0").is_err());
    }
}

/// A call that the sandbox refuses, whatever the capabilities of the process.
fn refused(name: &str, result: libc::c_long) {
    let errno = std::io::Error::last_os_error().raw_os_error();
    assert_eq!((result, errno), (-1, Some(libc::ENOSYS)), "{name}");
}

#[test]
fn a_writer_changes_the_metadata_of_no_file_outside_of_its_target() {
    if !inside("a_writer_changes_the_metadata_of_no_file_outside_of_its_target") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let outside = tempfile::NamedTempFile::new().unwrap();
    let before = fs::metadata(outside.path()).unwrap();
    let folder = File::open(root.path()).unwrap();
    std::env::set_current_dir(outside.path().parent().unwrap()).unwrap();
    let applied = enter(Rights::WriteBeneath(&[folder.as_fd()]));
    if applied.seccomp != Measure::Applied {
        return println!("skipped: {:?}", applied.seccomp);
    }
    let path = std::ffi::CString::new(outside.path().as_os_str().as_encoded_bytes()).unwrap();
    let name = std::ffi::CString::new(outside.path().file_name().unwrap().as_encoded_bytes()).unwrap();
    let (path, name, here) = (path.as_ptr(), name.as_ptr(), libc::AT_FDCWD);
    let addresses = crate::handle::addresses().unwrap();
    let how: [u64; 3] = [libc::O_PATH.cast_unsigned().into(), 0, 0];
    let times = [libc::timespec { tv_sec: 1, tv_nsec: 0 }; 2];
    let (nofollow, empty_path) = (libc::AT_SYMLINK_NOFOLLOW, libc::AT_EMPTY_PATH);
    let (label, read) = (c"user.obento".as_ptr(), libc::PROT_READ | libc::PROT_WRITE);
    let page = addresses.empty;
    let map = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: each call receives strings and structures that live until it returns, and is refused.
    unsafe {
        refused("chmod", libc::syscall(libc::SYS_fchmodat, here, path, 0o777));
        refused("fchmodat2", libc::syscall(libc::SYS_fchmodat2, here, path, 0o777, 0));
        refused("chown", libc::syscall(libc::SYS_fchownat, here, path, 1, 1, 0));
        refused("lchown", libc::syscall(libc::SYS_fchownat, here, path, 1, 1, nofollow));
        refused("chown of the directory", libc::syscall(libc::SYS_fchownat, here, page, 1, 1, empty_path));
        refused("utimensat", libc::syscall(libc::SYS_utimensat, here, path, times.as_ptr(), 0));
        refused("setxattr", libc::syscall(libc::SYS_setxattr, path, label, c"x".as_ptr(), 1, 0));
        refused("lsetxattr", libc::syscall(libc::SYS_lsetxattr, path, label, c"x".as_ptr(), 1, 0));
        refused("removexattr", libc::syscall(libc::SYS_removexattr, path, label));
        refused("a handle", libc::syscall(libc::SYS_openat, here, path, libc::O_PATH, 0));
        refused("a file without access", libc::syscall(libc::SYS_openat, here, path, 3, 0));
        refused("a handle of its own kind", libc::syscall(libc::SYS_openat2, here, path, how.as_ptr(), 24));
        refused(
            "a handle of a neighbour",
            libc::syscall(libc::SYS_openat2, here, name, addresses.how[0], 24),
        );
        refused("mprotect", libc::syscall(libc::SYS_mprotect, page, 4096, read));
        refused("mprotect of a range", libc::syscall(libc::SYS_mprotect, page - 4096, 8192, read));
        refused("mprotect of all", libc::syscall(libc::SYS_mprotect, 4096, page, read));
        refused("munmap", libc::syscall(libc::SYS_munmap, page, 4096));
        refused("mmap", libc::syscall(libc::SYS_mmap, page, 4096, read, map, -1, 0));
        refused("mmap from 0", libc::syscall(libc::SYS_mmap, 0, 1_u64 << 40, read, map, -1, 0));
        refused("mremap", libc::syscall(libc::SYS_mremap, page, 4096, 4096, libc::MREMAP_MAYMOVE, 0));
        refused("madvise", libc::syscall(libc::SYS_madvise, page, 4096, libc::MADV_DONTNEED));
        let beneath = libc::syscall(
            libc::SYS_openat2,
            std::os::fd::AsRawFd::as_raw_fd(&folder),
            path,
            addresses.how[0],
            24,
        );
        assert_eq!(beneath, -1, "a handle of a file outside is opened below an open directory");
    }
    let file = outside.as_file().metadata().unwrap();
    use std::os::unix::fs::MetadataExt;
    assert_eq!((file.mode(), file.uid(), file.ctime()), (before.mode(), before.uid(), before.ctime()));
    // Memory is used as before.
    let sum = std::thread::spawn(|| vec![1_u8; 100 << 20].iter().map(|&b| u64::from(b)).sum::<u64>());
    assert_eq!(sum.join().unwrap(), 100 << 20);
}

#[test]
fn a_writer_sets_the_metadata_of_links_and_nodes() {
    use std::os::unix::fs::MetadataExt;

    if !inside("a_writer_sets_the_metadata_of_links_and_nodes") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let folder = File::open(root.path()).unwrap();
    let applied = enter(Rights::WriteBeneath(&[folder.as_fd()]));
    check(&applied);
    let mut tree = TreeWriter::open(root.path(), TreeOptions::default()).unwrap();
    let (time, mode) = (Timestamp::new(5, 6), Mode::new(0o642));
    let is_root = rustix::process::geteuid().is_root();
    let (uid, gid) = if is_root { (7, 8) } else { (rustix::process::geteuid().as_raw(), 0) };
    let gid = if is_root { gid } else { rustix::process::getegid().as_raw() };
    let label = crate::Xattr { name: b"trusted.x".to_vec(), value: b"y".to_vec() };
    let xattrs = if is_root { std::slice::from_ref(&label) } else { &[] };
    let meta = Metadata { mode, uid, gid, atime: time, mtime: time, ctime: time, xattrs };
    let name = |text: &'static str| Name::new(text.as_bytes()).unwrap();
    tree.symlink(name("link"), &meta, b"nothing").unwrap();
    let null = obento_base::DeviceNumber::default();
    tree.node(name("fifo"), &meta, obento_base::FileKind::Fifo, null).unwrap();
    let report = tree.finish().unwrap();
    let is_xattr = |loss: &crate::tree::Loss| *loss == crate::tree::Loss::Xattr;
    assert!(report.lost.keys().all(is_xattr), "{report:?}");
    assert!(report.lost.is_empty() || applied.landlock != Measure::Applied || !is_root, "{report:?}");
    for (entry, bits) in [("link", 0o777), ("fifo", 0o642)] {
        let stat = fs::symlink_metadata(root.path().join(entry)).unwrap();
        assert_eq!((stat.mode() & 0o7777, stat.uid(), stat.gid()), (bits, uid, gid), "{entry}");
        assert_eq!((stat.mtime(), stat.atime()), (5, 5), "{entry}");
    }
}

#[test]
fn a_reader_of_a_tree_opens_files_below_it_and_changes_nothing() {
    if !inside("a_reader_of_a_tree_opens_files_below_it_and_changes_nothing") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("f"), "x").unwrap();
    let outside = tempfile::NamedTempFile::new().unwrap();
    let folder = File::open(root.path()).unwrap();
    let folders = &[folder.as_fd()];
    let applied = enter(Rights::ReadBeneath { folders, trees: folders });
    check(&applied);
    let found: Vec<_> = crate::source::Walk::new(root.path()).unwrap().map(Result::unwrap).collect();
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|entry| entry.xattrs().is_ok()));
    found[1].open_file().unwrap();
    if applied.landlock != Measure::Missing("the kernel has no Landlock, or it is off".into()) {
        assert!(File::open(outside.path()).is_err() && File::open("/etc/passwd").is_err());
        assert!(
            fs::write(root.path().join("f"), "y").is_err() && fs::write(root.path().join("g"), "").is_err()
        );
        let truncating = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::TRUNC;
        let mode = rustix::fs::Mode::empty();
        let path = root.path().join("f");
        assert!(rustix::fs::openat(&folder, "f", truncating, mode).is_err());
        assert!(rustix::fs::open(&path, truncating, mode).is_err());
        let resolve = rustix::fs::ResolveFlags::empty();
        assert!(rustix::fs::openat2(&folder, "f", truncating, mode, resolve).is_err());
        let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: the path lives until the call returns.
        assert_eq!(unsafe { libc::truncate(path.as_ptr(), 0) }, -1);
        assert_eq!(found[1].attr().size, 1);
        assert_eq!(fs::metadata(root.path().join("f")).unwrap().len(), 1);
    }
    if applied.seccomp == Measure::Applied {
        assert!(fs::remove_file(root.path().join("f")).is_err());
        assert!(Command::new("/bin/true").status().is_err());
    }
}

#[test]
fn a_reader_of_a_deep_tree_opens_its_deepest_files_and_none_outside() {
    if !inside("a_reader_of_a_deep_tree_opens_its_deepest_files_and_none_outside") {
        return;
    }
    const DEPTH: usize = 600;
    let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
    for start in [&root, &outside] {
        let mut dir = std::os::fd::OwnedFd::from(File::open(start.path()).unwrap());
        for _ in 0..DEPTH {
            rustix::fs::mkdirat(&dir, "d", rustix::fs::Mode::RWXU).unwrap();
            dir = rustix::fs::openat(&dir, "d", flags, rustix::fs::Mode::empty()).unwrap();
        }
    }
    let folder = File::open(root.path()).unwrap();
    // A directory that is open, but that no rule allows.
    let other = File::open(outside.path()).unwrap();
    let folders = &[folder.as_fd()];
    let applied = enter(Rights::ReadBeneath { folders, trees: folders });
    check(&applied);
    let deepest = crate::source::Walk::new(root.path()).unwrap().map(Result::unwrap).count();
    assert_eq!(deepest, DEPTH + 1);
    if applied.landlock == Measure::Applied {
        assert!(rustix::fs::openat(&other, "d", flags, rustix::fs::Mode::empty()).is_err());
    }
}

#[test]
fn a_builder_reads_its_sources_and_makes_its_image_and_that_is_all() {
    if !inside("a_builder_reads_its_sources_and_makes_its_image_and_that_is_all") {
        return;
    }
    let (source, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(source.path().join("f"), "x").unwrap();
    let archive = tempfile::NamedTempFile::new().unwrap();
    let outside = tempfile::NamedTempFile::new().unwrap();
    let folders = [File::open(source.path()).unwrap(), File::open(out.path()).unwrap()];
    let read = [folders[0].as_fd(), archive.as_file().as_fd()];
    let applied = enter(Rights::Build { read: &read, write: &[folders[1].as_fd()] });
    check(&applied);
    let found: Vec<_> = crate::source::Walk::new(source.path()).unwrap().map(Result::unwrap).collect();
    assert!(found.len() == 2 && found.iter().all(|entry| entry.is_readable() && entry.xattrs().is_ok()));
    File::open(archive.path()).unwrap();
    for publish in [crate::build::Publish::Keep, crate::build::Publish::Replace] {
        let fresh = crate::build::FreshFile::new(&out.path().join("image"), 5).unwrap();
        drop(crate::build::Writeback::new(fresh.device().host_file().clone()));
        fresh.publish(publish).unwrap();
    }
    let mut spool = crate::build::Spool::beside(&out.path().join("image")).unwrap();
    let start = spool.begin();
    spool.write(start, 0, b"x").unwrap();
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 1);
    if applied.landlock != Measure::Missing("the kernel has no Landlock, or it is off".into()) {
        assert!(File::open(outside.path()).is_err() && File::open("/etc/passwd").is_err());
        let more = [source.path().join("f"), source.path().join("g"), archive.path().into()];
        assert!(more.iter().all(|path| fs::write(path, "y").is_err()));
        assert!(fs::remove_file(&more[0]).is_err());
    }
    if applied.seccomp == Measure::Applied {
        assert!(Command::new("/bin/true").status().is_err());
        assert!(std::net::UdpSocket::bind("127.0.0.1:0").is_err());
        assert!(fs::create_dir(out.path().join("d")).is_err());
    }
}

#[test]
fn a_server_that_identifies_processes_reads_nothing_but_files_of_proc() {
    if !inside("a_server_that_identifies_processes_reads_nothing_but_files_of_proc") {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("secret");
    fs::write(&path, "x").unwrap();
    let proc = File::open("/proc").unwrap();
    let applied = enter(Rights::ServeProcesses(proc.as_fd()));
    check(&applied);
    let flags = rustix::fs::OFlags::RDONLY;
    let open = |path: &str| rustix::fs::openat(&proc, path, flags, rustix::fs::Mode::empty());
    assert!(open("1/stat").is_ok());
    if applied.landlock == Measure::Applied {
        assert!(open(&format!("self/root{}", path.display())).is_err());
        assert!(File::open(&path).is_err());
        let flags = rustix::fs::OFlags::WRONLY;
        assert!(rustix::fs::openat(&proc, "self/comm", flags, rustix::fs::Mode::empty()).is_err());
    }
}

#[test]
fn a_server_has_no_rights_of_root_and_reaches_no_other_process_and_no_path() {
    if !inside("a_server_has_no_rights_of_root_and_reaches_no_other_process_and_no_path") {
        return;
    }
    let mut open = File::open("/proc/thread-self/status").unwrap();
    let applied = enter(Rights::Serve);
    check(&applied);
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    for set in ["CapInh", "CapPrm", "CapEff"] {
        assert!(text.contains(&format!("{set}:\t0000000000000000")), "{text}");
    }
    if applied.seccomp != Measure::Applied {
        return;
    }
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let null = std::ptr::null::<libc::rlimit64>();
    // SAFETY: each call writes no more than the one structure that it receives.
    unsafe {
        refused("prlimit", libc::syscall(libc::SYS_prlimit64, 1, libc::RLIMIT_NOFILE, null, &raw mut limit));
        assert_eq!(libc::syscall(libc::SYS_prlimit64, 0, libc::RLIMIT_NOFILE, null, &raw mut limit), 0);
        refused("tgkill", libc::syscall(libc::SYS_tgkill, 1, 1, 0));
        refused("fcntl", libc::syscall(libc::SYS_fcntl, 0, libc::F_SETOWN, 1));
        let mut stat: libc::stat = std::mem::zeroed();
        refused(
            "stat",
            libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, c"/etc/passwd".as_ptr(), &raw mut stat, 0),
        );
        let mut stat: libc::statx = std::mem::zeroed();
        refused(
            "statx",
            libc::syscall(libc::SYS_statx, libc::AT_FDCWD, c"/etc/passwd".as_ptr(), 0, 0, &raw mut stat),
        );
    }
}

#[test]
fn a_compressed_image_is_decoded_after_rights_were_given_up() {
    use crate::compressed::{Compression, Options, ReservedFile, decompress};
    use obento_block::BlockDevice;
    use std::io::Write;

    if !inside("a_compressed_image_is_decoded_after_rights_were_given_up") {
        return;
    }
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&[7; 100_000]).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), packed.finish().unwrap()).unwrap();
    let device = crate::FileDevice::open(file.path()).unwrap();
    let room = Some(ReservedFile::new().unwrap());
    let applied = enter(Rights::Read);
    check(&applied);
    let options = Options { room, ..Options::default() };
    let unpacked = decompress(&device, file.path(), Compression::Gzip, options).unwrap();
    let mut bytes = vec![0; 100_000];
    unpacked.device.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, vec![7; 100_000]);
    if applied.seccomp == Measure::Applied {
        assert!(decompress(&device, file.path(), Compression::Gzip, Options::default()).is_err());
    }
}
