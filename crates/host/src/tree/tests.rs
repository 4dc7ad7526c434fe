//! Writes trees as root and as a user without privileges. For the latter, a test runs itself again under
//! `setpriv`.

mod behind;
mod limits;
mod others;

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use obento_base::{DeviceNumber, FileKind, Mode, Name, Timestamp};
use obento_block::MemDevice;
use obento_testkit::oracle::{Oracle, require};
use tempfile::TempDir;

use self::others::{
    a_directory_swapped_for_a_link_while_it_is_written_leads_nowhere,
    an_entry_at_a_target_name_is_replaced_and_never_followed, shared,
};
use super::*;
use crate::{DataSink, FileDevice, HostError, Metadata, SinkError, Xattr};

const OTHER_USER: u32 = 65534;

fn name(text: &str) -> &Name {
    Name::new(text.as_bytes()).unwrap()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns metadata that every user can keep.
fn plain(mode: u16) -> Metadata<'static> {
    Metadata {
        mode: Mode::new(mode),
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        atime: Timestamp::new(1_000_000_000, 123_456_789),
        mtime: Timestamp::new(-5, 999_999_999),
        ctime: Timestamp::EPOCH,
        xattrs: &[],
    }
}

fn content(bytes: &'static [u8]) -> impl FnOnce(&mut dyn DataSink) -> Result<(), HostError> {
    move |sink| sink.bytes(bytes)
}

fn writer(root: &TempDir, options: TreeOptions) -> TreeWriter {
    TreeWriter::open(root.path(), options).unwrap().behind()
}

fn lost(report: &Report, loss: Loss) -> u64 {
    report.lost.get(&loss).map_or(0, |lost| lost.count)
}

/// Runs the test `test` of this file again as a user without privileges. Copies the program to a place where
/// that user can read it.
fn again_without_rights(test: &str) {
    if !require(&[Oracle::Program("setpriv")]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = dir.path().join("tests");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let id = OTHER_USER.to_string();
    let status = Command::new("setpriv")
        .args(["--reuid", &id, "--regid", &id, "--clear-groups"])
        .arg(&program)
        .args(["--exact", &format!("tree::tests::{test}")])
        .env("TMPDIR", dir.path())
        .status()
        .unwrap();
    assert!(status.success(), "{test} fails without rights");
}

#[test]
fn a_tree_keeps_kinds_modes_and_times() {
    let root = tempfile::tempdir().unwrap();
    let mut tree = writer(&root, TreeOptions::default());
    tree.set_root(&plain(0o755));
    tree.enter(name("dir"), &plain(0o500)).unwrap();
    tree.file(name("file"), &plain(0o4755), content(b"hello")).unwrap();
    tree.file(name("secret"), &plain(0o000), content(b"")).unwrap();
    tree.symlink(name("link"), &plain(0o777), b"/nowhere/else").unwrap();
    tree.node(name("fifo"), &plain(0o666), FileKind::Fifo, DeviceNumber::default()).unwrap();
    tree.node(name("socket"), &plain(0o644), FileKind::Socket, DeviceNumber::default()).unwrap();
    tree.leave().unwrap();
    let report = tree.finish().unwrap();
    assert_eq!((report.files, report.directories, report.others, report.bytes), (2, 1, 3, 5));
    assert_eq!(report.lost, std::collections::BTreeMap::new());

    let meta = |path: &str| fs::symlink_metadata(root.path().join(path)).unwrap();
    for path in ["", "dir", "dir/file", "dir/link", "dir/fifo", "dir/socket"] {
        let meta = meta(path);
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (-5, 999_999_999), "{path}");
    }
    assert_eq!(meta("dir").mode() & 0o7777, 0o500);
    assert_eq!(meta("dir/file").mode() & 0o7777, 0o4755);
    assert_eq!(meta("dir/secret").mode() & 0o7777, 0);
    assert_eq!(meta("dir/fifo").mode(), 0o010_666);
    assert!(meta("dir/socket").file_type().is_socket());
    assert_eq!(fs::read_link(root.path().join("dir/link")).unwrap(), PathBuf::from("/nowhere/else"));
    assert_eq!(fs::read(root.path().join("dir/file")).unwrap(), b"hello");
    if is_root() {
        again_without_rights("a_tree_keeps_kinds_modes_and_times");
    } else {
        fs::set_permissions(root.path().join("dir"), fs::Permissions::from_mode(0o700)).unwrap();
    }
}

#[test]
fn owners_devices_and_capabilities_are_kept_as_root_and_counted_otherwise() {
    let root = tempfile::tempdir().unwrap();
    let mut tree = writer(&root, TreeOptions::default());
    // struct vfs_cap_data, revision 2: cap_net_raw, effective (include/uapi/linux/capability.h).
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let xattrs = [
        Xattr { name: b"security.capability".to_vec(), value: capability.to_vec() },
        Xattr { name: b"user.note".to_vec(), value: b"x\0y".to_vec() },
    ];
    let foreign = Metadata { uid: 4321, gid: 8765, xattrs: &xattrs, ..plain(0o6555) };
    tree.file(name("file"), &foreign, content(b"data")).unwrap();
    let link = Metadata { xattrs: &[], ..foreign };
    tree.symlink(name("link"), &link, b"t").unwrap();
    let null = DeviceNumber { major: 1, minor: 3 };
    let device = tree.node(name("null"), &link, FileKind::CharDevice, null).unwrap();
    let report = tree.finish().unwrap();

    let path = root.path().join("file");
    let meta = fs::metadata(&path).unwrap();
    let mut value = [0; 64];
    let len = rustix::fs::getxattr(&path, "user.note", &mut value).unwrap();
    assert_eq!(value[..len], *b"x\0y");
    if is_root() {
        assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777), (4321, 8765, 0o6555));
        let len = rustix::fs::getxattr(&path, "security.capability", &mut value).unwrap();
        assert_eq!(value[..len], capability);
        let link = fs::symlink_metadata(root.path().join("link")).unwrap();
        assert_eq!((link.uid(), link.gid()), (4321, 8765));
        let node = fs::metadata(root.path().join("null")).unwrap();
        assert_eq!((node.uid(), node.rdev()), (4321, rustix::fs::makedev(1, 3)));
        assert_eq!((device, report.lost.len()), (Written::Created, 0));
        again_without_rights("owners_devices_and_capabilities_are_kept_as_root_and_counted_otherwise");
    } else {
        assert_eq!((meta.uid(), meta.mode() & 0o7777, device), (OTHER_USER, 0o555, Written::Dropped));
        let kinds = [Loss::Owner, Loss::SpecialBits, Loss::Xattr, Loss::Device];
        assert_eq!(kinds.map(|kind| lost(&report, kind)), [2, 1, 1, 1]);
        assert_eq!(report.lost[&Loss::Xattr].examples[0].0, path);
    }
}

#[test]
fn an_owner_that_no_file_of_the_host_can_have_is_counted_and_its_set_user_id_bit_is_left_out() {
    for (uid, gid) in [(u32::MAX, 8765), (4321, u32::MAX), (u32::MAX, u32::MAX)] {
        let root = tempfile::tempdir().unwrap();
        let mut tree = writer(&root, TreeOptions::default());
        let foreign = Metadata { uid, gid, ..plain(0o6555) };
        tree.file(name("small"), &foreign, content(b"data")).unwrap();
        tree.symlink(name("link"), &foreign, b"t").unwrap();
        let report = tree.finish().unwrap();
        assert_eq!(lost(&report, Loss::Owner), 2, "{uid} {gid}");
        let meta = fs::metadata(root.path().join("small")).unwrap();
        assert_eq!(meta.mode() & 0o4000, 0, "{uid} {gid}");
    }
}

#[test]
fn an_untrusted_tree_gets_no_special_bits_devices_or_capabilities() {
    let root = tempfile::tempdir().unwrap();
    let options = TreeOptions { trust: Trust::Untrusted, ..TreeOptions::default() };
    let mut tree = writer(&root, options);
    let xattrs = [
        Xattr { name: b"security.capability".to_vec(), value: vec![1; 20] },
        Xattr { name: b"trusted.overlay.opaque".to_vec(), value: b"y".to_vec() },
        Xattr { name: b"user.note".to_vec(), value: b"kept".to_vec() },
    ];
    let meta = Metadata { xattrs: &xattrs, ..plain(0o7755) };
    tree.file(name("file"), &meta, content(b"")).unwrap();
    let node = tree.node(name("sda"), &plain(0o600), FileKind::BlockDevice, DeviceNumber::default());
    assert_eq!(node, Ok(Written::Dropped));
    tree.node(name("fifo"), &plain(0o600), FileKind::Fifo, DeviceNumber::default()).unwrap();
    let report = tree.finish().unwrap();
    let path = root.path().join("file");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o1755);
    let mut list = [0; 256];
    let len = rustix::fs::listxattr(&path, &mut list).unwrap();
    assert_eq!(list[..len], *b"user.note\0");
    assert_eq!([Loss::SpecialBits, Loss::Xattr, Loss::Device].map(|l| lost(&report, l)), [1, 2, 1]);
}

#[test]
fn without_mode_and_times_files_are_as_if_made_by_hand() {
    let root = tempfile::tempdir().unwrap();
    let options = TreeOptions { keep: Keep::empty(), ..TreeOptions::default() };
    let mut tree = writer(&root, options);
    tree.enter(name("d"), &plain(0o2777)).unwrap();
    tree.file(name("f"), &plain(0o4777), content(b"")).unwrap();
    tree.finish().unwrap();
    let umask = u32::from(umask_of_process());
    for path in ["d", "d/f"] {
        let meta = fs::metadata(root.path().join(path)).unwrap();
        assert_eq!(meta.mode() & 0o7777, 0o777 & !umask);
        assert!(meta.mtime() > 1_700_000_000);
    }
}

#[test]
fn existing_files_stay_or_go_as_asked() {
    let write = |existing, mtime| {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("f"), "old").unwrap();
        let mut tree = writer(&root, TreeOptions { existing, ..TreeOptions::default() });
        let meta = Metadata { mtime: Timestamp::new(mtime, 0), ..plain(0o644) };
        let result = tree.file(name("f"), &meta, content(b"new"));
        tree.settle();
        let content = fs::read(root.path().join("f")).unwrap();
        result.map(|written| (written, content == b"new"))
    };
    let future = 4_000_000_000;
    assert_eq!(write(Existing::Replace, 0), Ok((Written::Created, true)));
    assert_eq!(write(Existing::Keep, future), Ok((Written::Skipped, false)));
    assert_eq!(write(Existing::Update, 0), Ok((Written::Skipped, false)));
    assert_eq!(write(Existing::Update, future), Ok((Written::Created, true)));
    assert!(matches!(write(Existing::Fail, 0), Err(HostError::Exists { .. })));
}

#[test]
fn holes_stay_holes_and_ranges_of_a_device_arrive_completely() {
    let image = tempfile::NamedTempFile::new().unwrap();
    let pattern: Vec<u8> = (0..1_u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(image.path(), &pattern).unwrap();
    let device = FileDevice::open(image.path()).unwrap();
    let memory = MemDevice::read_only(pattern.clone());
    let root = tempfile::tempdir().unwrap();
    let mut tree = writer(&root, TreeOptions::default());
    tree.file(name("f"), &plain(0o600), |sink| {
        sink.bytes(b"start")?;
        sink.hole((1 << 30) - 5)?;
        sink.device(&device, 100, 700_000)?;
        sink.device(&memory, 3, 300_000)?;
        sink.hole(1 << 40).map_err(SinkError::from)
    })
    .unwrap();
    let report = tree.finish().unwrap();
    assert_eq!(report.bytes, 1_000_005);
    let path = root.path().join("f");
    let meta = fs::metadata(&path).unwrap();
    assert_eq!(meta.len(), (1 << 30) + 1_000_000 + (1 << 40));
    assert!(meta.blocks() * 512 < 2 << 20);
    let copy = FileDevice::open(&path).unwrap();
    let mut seen = vec![0; 1_000_000];
    obento_block::BlockDevice::read_at(&copy, 1 << 30, &mut seen).unwrap();
    assert!(seen[..700_000] == pattern[100..700_100] && seen[700_000..] == pattern[3..300_003]);
}

impl From<SinkError> for HostError {
    fn from(error: SinkError) -> Self {
        match error {
            SinkError::Sink(error) => error,
            SinkError::Source(_) => Self::system("read", "", rustix::io::Errno::IO),
        }
    }
}

#[test]
fn further_names_become_hard_links_across_directories() {
    let root = tempfile::tempdir().unwrap();
    let mut tree = writer(&root, TreeOptions::default());
    tree.enter(name("a"), &plain(0o755)).unwrap();
    assert_eq!(tree.link(name("one"), &plain(0o644), LinkKey { source: 0, ino: 12 }), Ok(None));
    tree.file(name("one"), &plain(0o644), content(b"x")).unwrap();
    tree.remember(LinkKey { source: 0, ino: 12 }, name("one"), 2).unwrap();
    assert_eq!(
        tree.link(name("two"), &plain(0o644), LinkKey { source: 0, ino: 12 }),
        Ok(Some(Written::Created))
    );
    tree.leave().unwrap();
    tree.enter(name("b"), &plain(0o755)).unwrap();
    assert_eq!(
        tree.link(name("three"), &plain(0o644), LinkKey { source: 0, ino: 12 }),
        Ok(Some(Written::Created))
    );
    tree.finish().unwrap();
    let meta = fs::metadata(root.path().join("b/three")).unwrap();
    assert_eq!((meta.nlink(), meta.mtime()), (3, -5));
}

#[test]
fn a_default_acl_of_the_target_does_not_reach_the_copies() {
    let root = tempfile::tempdir().unwrap();
    // user::rwx user:1:rwx group::r-x mask::rwx other::---, in the layout of
    // include/uapi/linux/posix_acl_xattr.h.
    let acl: Vec<u8> =
        [(1_u16, 7_u16, u32::MAX), (2, 7, 1), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 0, u32::MAX)]
            .iter()
            .fold(vec![2, 0, 0, 0], |mut bytes, (tag, perm, id)| {
                bytes.extend(tag.to_le_bytes());
                bytes.extend(perm.to_le_bytes());
                bytes.extend(id.to_le_bytes());
                bytes
            });
    let flags = rustix::fs::XattrFlags::empty();
    match rustix::fs::setxattr(root.path(), "system.posix_acl_default", &acl, flags) {
        Err(rustix::io::Errno::OPNOTSUPP) => return,
        result => result.unwrap(),
    }
    let mut tree = writer(&root, TreeOptions::default());
    tree.enter(name("d"), &plain(0o755)).unwrap();
    tree.file(name("f"), &plain(0o644), content(b"")).unwrap();
    tree.leave().unwrap();
    tree.file(name("g"), &plain(0o604), content(b"")).unwrap();
    let with_acl = [Xattr { name: b"system.posix_acl_access".to_vec(), value: acl }];
    let meta = Metadata { xattrs: &with_acl, ..plain(0o770) };
    tree.file(name("h"), &meta, content(b"")).unwrap();
    tree.finish().unwrap();
    let has_acl = |path: &str, kind: &str| {
        let path = root.path().join(path);
        rustix::fs::getxattr_query(&path, format!("system.posix_acl_{kind}")).is_ok()
    };
    let mode = |path: &str| fs::metadata(root.path().join(path)).unwrap().mode() & 0o7777;
    assert_eq!(["d", "d/f", "g", "h"].map(|path| has_acl(path, "access")), [false, false, false, true]);
    assert!(!has_acl("d", "default"));
    assert_eq!(["d", "d/f", "g", "h"].map(mode), [0o755, 0o644, 0o604, 0o770]);
}

#[test]
fn a_directory_without_write_permission_leaves_the_private_directory() {
    let root = shared();
    let parent = crate::HostDir::open(root.path()).unwrap();
    assert!(parent.is_shared().unwrap());
    let private = crate::PrivateDir::in_directory(parent.clone(), "unfinished-").unwrap();
    assert!(!private.dir().is_shared().unwrap());
    private.dir().make_directory(name("d")).unwrap();
    fs::set_permissions(private.path().join("d"), fs::Permissions::from_mode(0o555)).unwrap();
    private.release(name("d"), &parent, name("d")).unwrap();
    private.remove().unwrap();
    assert_eq!(fs::metadata(root.path().join("d")).unwrap().mode() & 0o7777, 0o555);
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    if is_root() {
        again_without_rights("a_directory_without_write_permission_leaves_the_private_directory");
    }
}

/// Runs in a separate process, because a refusal is remembered.
#[test]
fn a_kernel_without_openat2_gets_by_with_openat() {
    const INSIDE: &str = "OBENTO_TEST_WITHOUT_OPENAT2";
    if std::env::var_os(INSIDE).is_none() {
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tree::tests::a_kernel_without_openat2_gets_by_with_openat"])
            .env(INSIDE, "1")
            .status();
        assert!(status.unwrap().success());
        return;
    }
    let call = std::collections::BTreeMap::from([(libc::SYS_openat2, Vec::new())]);
    let missing = seccompiler::SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = seccompiler::SeccompFilter::new(call, seccompiler::SeccompAction::Allow, missing, arch);
    let program: seccompiler::BpfProgram = filter.unwrap().try_into().unwrap();
    seccompiler::apply_filter_all_threads(&program).unwrap();
    let none = rustix::fs::openat2(
        rustix::fs::CWD,
        "/",
        rustix::fs::OFlags::PATH,
        rustix::fs::Mode::empty(),
        rustix::fs::ResolveFlags::empty(),
    );
    assert_eq!(none.err(), Some(rustix::io::Errno::NOSYS));
    an_entry_at_a_target_name_is_replaced_and_never_followed();
    a_directory_swapped_for_a_link_while_it_is_written_leads_nowhere();
}

#[test]
fn names_beyond_utf8_are_written_as_they_are() {
    use std::os::unix::ffi::OsStrExt;
    let root = tempfile::tempdir().unwrap();
    let mut tree = writer(&root, TreeOptions::default());
    tree.file(Name::new(b"\xff\n").unwrap(), &plain(0o644), content(b"")).unwrap();
    tree.finish().unwrap();
    assert!(root.path().join(Path::new(std::ffi::OsStr::from_bytes(b"\xff\n"))).exists());
}

#[test]
fn a_file_that_the_source_is_read_from_is_never_removed() {
    let root = tempfile::tempdir().unwrap();
    let image = root.path().join("image");
    fs::write(&image, "disk").unwrap();
    fs::hard_link(&image, root.path().join("other")).unwrap();
    let id = FileDevice::open(&image).unwrap().file_id();
    let mut tree = writer(&root, TreeOptions::default()).sparing(&[id]);
    for taken in ["image", "other"] {
        let path = root.path().join(taken);
        let expected = HostError::IsSource { path };
        assert_eq!(tree.file(name(taken), &plain(0o644), content(b"new")).unwrap_err(), expected);
        assert_eq!(tree.symlink(name(taken), &plain(0o777), b"new").unwrap_err(), expected);
    }
    tree.finish().unwrap();
    assert_eq!(fs::read(&image).unwrap(), b"disk");
}
