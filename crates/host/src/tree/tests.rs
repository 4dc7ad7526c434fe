//! Writes trees as root and as a user without privileges. For the latter, a test runs itself again under
//! `setpriv`.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use obento_base::{DeviceNumber, FileKind, Mode, Name, Timestamp};
use obento_block::MemDevice;
use obento_testkit::oracle::{Oracle, require};
use tempfile::TempDir;

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
fn an_entry_at_a_target_name_is_replaced_and_never_followed() {
    let outside = tempfile::tempdir().unwrap();
    let victim = outside.path().join("victim");
    fs::write(&victim, "untouched").unwrap();
    let root = tempfile::tempdir().unwrap();
    symlink(&victim, root.path().join("link")).unwrap();
    symlink(outside.path(), root.path().join("linkdir")).unwrap();
    fs::hard_link(&victim, root.path().join("hard")).unwrap();
    fs::create_dir(root.path().join("dir")).unwrap();
    let fifo = root.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();

    let mut tree = writer(&root, TreeOptions::default());
    for target in ["link", "hard", "fifo"] {
        tree.file(name(target), &plain(0o644), content(b"new")).unwrap();
        assert!(fs::symlink_metadata(root.path().join(target)).unwrap().is_file());
    }
    let error = tree.enter(name("linkdir"), &plain(0o755)).unwrap_err();
    assert_eq!(error, HostError::NotDirectory { path: root.path().join("linkdir") });
    let error = tree.file(name("dir"), &plain(0o644), content(b"new")).unwrap_err();
    assert_eq!(error, HostError::IsDirectory { path: root.path().join("dir") });
    tree.finish().unwrap();
    assert_eq!(fs::read(&victim).unwrap(), b"untouched");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn a_name_that_the_source_has_twice_is_refused_the_second_time() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().as_os_str().as_encoded_bytes();
    let root = tempfile::tempdir().unwrap();
    let mut tree = writer(&root, TreeOptions::default());
    for depth in 0..2 {
        tree.symlink(name("a"), &plain(0o777), target).unwrap();
        tree.file(name("b"), &plain(0o644), content(b"1")).unwrap();
        let duplicate = |result: Result<(), HostError>| {
            assert!(matches!(result, Err(HostError::Duplicate { .. })), "depth {depth}: {result:?}");
        };
        duplicate(tree.enter(name("a"), &plain(0o755)));
        duplicate(tree.enter(name("b"), &plain(0o755)));
        duplicate(tree.file(name("a"), &plain(0o644), content(b"2")).map(drop));
        duplicate(tree.symlink(name("b"), &plain(0o644), b"x").map(drop));
        tree.enter(name("d"), &plain(0o755)).unwrap();
    }
    tree.leave().unwrap();
    duplicate_directory(&mut tree);
    tree.finish().unwrap();
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

fn duplicate_directory(tree: &mut TreeWriter) {
    let again = tree.enter(name("d"), &plain(0o755));
    assert!(matches!(again, Err(HostError::Duplicate { .. })), "{again:?}");
}

#[test]
fn a_directory_swapped_for_a_link_while_it_is_written_leads_nowhere() {
    let outside = tempfile::tempdir().unwrap();
    let root = tempfile::tempdir().unwrap();
    let mut tree = writer(&root, TreeOptions::default());
    tree.enter(name("d"), &plain(0o755)).unwrap();
    tree.enter(name("e"), &plain(0o755)).unwrap();
    fs::rename(root.path().join("d"), root.path().join("moved")).unwrap();
    symlink(outside.path(), root.path().join("d")).unwrap();
    tree.file(name("f"), &plain(0o644), content(b"in the directory that was opened")).unwrap();
    tree.remember(LinkKey { source: 0, ino: 7 }, name("f"), 2).unwrap();
    tree.leave().unwrap();
    tree.file(name("g"), &plain(0o644), content(b"")).unwrap();
    tree.leave().unwrap();
    // The path to the first name now contains the link.
    assert_eq!(tree.link(name("h"), &plain(0o644), LinkKey { source: 0, ino: 7 }), Ok(None));
    let report = tree.finish().unwrap();
    assert_eq!(lost(&report, Loss::HardLink), 1);
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    assert!(root.path().join("moved/e/f").exists() && root.path().join("moved/g").exists());
}

#[test]
fn a_deep_tree_needs_few_open_files_and_notices_when_its_way_back_was_moved() {
    let root = tempfile::tempdir().unwrap();
    // Other tests of this process open files in other places.
    let open_files = || {
        let links =
            fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
        links.filter(|file| file.starts_with(root.path().canonicalize().unwrap())).count()
    };
    let mut tree = writer(&root, TreeOptions::default());
    for _ in 0..300 {
        tree.enter(name("d"), &plain(0o755)).unwrap();
    }
    assert!((1..100).contains(&open_files()));
    tree.file(name("f"), &plain(0o644), content(b"deep")).unwrap();
    for _ in 0..150 {
        tree.leave().unwrap();
    }
    tree.file(name("f"), &plain(0o644), content(b"half")).unwrap();
    // Directories that are closed meanwhile: ten levels below the root.
    let tenth = root.path().join("d/".repeat(10));
    fs::rename(tenth.join("d"), root.path().join("elsewhere")).unwrap();
    let error = (0..150).find_map(|_| tree.leave().err());
    assert!(matches!(error, Some(HostError::Changed { .. })), "{error:?}");
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
fn more_files_than_allowed_are_refused_whatever_their_kind() {
    let root = tempfile::tempdir().unwrap();
    let mut tree = writer(&root, TreeOptions { max_files: 4, ..TreeOptions::default() });
    tree.enter(name("dir"), &plain(0o755)).unwrap();
    tree.file(name("file"), &plain(0o644), content(b"x")).unwrap();
    tree.symlink(name("link"), &plain(0o777), b"file").unwrap();
    tree.leave().unwrap();
    let null = obento_base::DeviceNumber::default();
    tree.node(name("fifo"), &plain(0o600), FileKind::Fifo, null).unwrap();
    let limit = |entry: &str| HostError::FileLimit { path: root.path().join(entry), limit: 4 };
    assert_eq!(tree.enter(name("more"), &plain(0o755)).unwrap_err(), limit("more"));
    assert_eq!(tree.file(name("file"), &plain(0o644), content(b"x")).unwrap_err(), limit("file"));
    assert_eq!(tree.symlink(name("link"), &plain(0o777), b"x").unwrap_err(), limit("link"));
    tree.finish().unwrap();
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 2);
}

#[test]
fn more_bytes_than_allowed_are_refused_and_half_a_file_is_removed() {
    let root = tempfile::tempdir().unwrap();
    let mut tree = writer(&root, TreeOptions { max_bytes: 10, ..TreeOptions::default() });
    tree.file(name("small"), &plain(0o644), content(b"12345678")).unwrap();
    let error = tree.file(name("large"), &plain(0o644), content(b"123")).unwrap_err();
    assert_eq!(error, HostError::Limit { path: root.path().join("large"), limit: 10 });
    tree.finish().unwrap();
    assert!(root.path().join("small").exists() && !root.path().join("large").exists());
}

#[test]
fn a_file_that_takes_the_place_of_an_incomplete_one_remains() {
    let root = tempfile::tempdir().unwrap();
    let mut tree = writer(&root, TreeOptions::default());
    let path = root.path().join("file");
    let fill = |_: &mut dyn DataSink| {
        fs::rename(&path, root.path().join("moved")).unwrap();
        fs::write(&path, b"of another user").unwrap();
        Err(HostError::system("write", path.clone(), rustix::io::Errno::IO))
    };
    assert!(tree.file(name("file"), &plain(0o644), fill).is_err());
    tree.finish().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"of another user");
}

#[test]
fn extended_attributes_count_as_bytes_unless_they_are_not_set() {
    let root = tempfile::tempdir().unwrap();
    let xattr = |name: &[u8]| [Xattr { name: name.to_vec(), value: vec![b'x'; 100] }];
    let (user, trusted) = (xattr(b"user.a"), xattr(b"trusted.a"));
    let meta = |xattrs| Metadata { xattrs, ..plain(0o755) };
    let limited = |options| writer(&root, TreeOptions { max_bytes: 250, ..options });
    let mut tree = limited(TreeOptions { trust: Trust::Untrusted, ..TreeOptions::default() });
    tree.file(name("one"), &meta(&user), content(b"1")).unwrap();
    for other in ["two", "three", "four"] {
        tree.file(name(other), &meta(&trusted), content(b"2")).unwrap();
    }
    tree.file(name("five"), &meta(&user), content(b"5")).unwrap();
    let limit = |entry: &str| HostError::Limit { path: root.path().join(entry), limit: 250 };
    assert_eq!(tree.file(name("six"), &meta(&user), content(b"")).unwrap_err(), limit("six"));
    assert_eq!(tree.enter(name("seven"), &meta(&user)).unwrap_err(), limit("seven"));
    assert_eq!(tree.symlink(name("eight"), &meta(&user), b"x").unwrap_err(), limit("eight"));
    tree.finish().unwrap();
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 5);
    let mut tree = limited(TreeOptions { keep: Keep::MODE, ..TreeOptions::default() });
    for other in ["six", "seven", "eight"] {
        tree.file(name(other), &meta(&user), content(b"")).unwrap();
    }
    tree.finish().unwrap();
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

/// A user who may change the target exchanges each new directory for one of the caller, as fast as possible.
#[test]
fn a_directory_of_the_caller_that_gets_the_name_of_a_new_one_keeps_its_owner_and_mode() {
    const ROUNDS: usize = 300;
    let root = tempfile::tempdir().unwrap();
    let everyone = fs::Permissions::from_mode(0o777);
    fs::set_permissions(root.path(), everyone).unwrap();
    let own = root.path().join("own");
    fs::create_dir(&own).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).unwrap();
    let before = fs::metadata(&own).unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (cwd, flags) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                for n in 0..ROUNDS {
                    let new = root.path().join(format!("d{n}"));
                    let _ = rustix::fs::renameat_with(cwd, &own, cwd, &new, flags);
                    let _ = rustix::fs::renameat_with(cwd, &own, cwd, &new, flags);
                }
            }
        });
        let mut tree = writer(&root, TreeOptions::default());
        for n in 0..ROUNDS {
            let new = format!("d{n}");
            tree.enter(name(&new), &plain(0o755)).unwrap();
            tree.file(name("f"), &plain(0o644), content(b"")).unwrap();
            tree.leave().unwrap();
        }
        tree.finish().unwrap();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let all = fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap());
    let all: Vec<_> = all.map(|entry| (entry.file_name(), entry.metadata().unwrap())).collect();
    let kept = all.iter().filter(|(_, meta)| meta.ino() == before.ino());
    assert_eq!(
        kept.map(|(_, meta)| (meta.uid(), meta.mode(), meta.nlink())).collect::<Vec<_>>(),
        [(before.uid(), before.mode(), 2)]
    );
    assert_eq!(all.len(), ROUNDS + 1, "no staging directory is left: {all:?}");
}

/// Returns a directory in which all users can exchange entries.
fn shared() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o777)).unwrap();
    root
}

fn exchange(one: &Path, other: &Path) {
    let (cwd, flags) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
    rustix::fs::renameat_with(cwd, one, cwd, other, flags).unwrap();
}

#[test]
fn a_node_or_link_of_the_caller_that_gets_the_name_of_a_new_one_keeps_its_metadata() {
    use rustix::fs::{CWD, FileType, mknodat};

    let uid = if is_root() { OTHER_USER } else { plain(0).uid };
    let meta = Metadata { uid, ..plain(0o666) };
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    for kind in [FileKind::Fifo, FileKind::Socket, FileKind::Symlink] {
        let root = shared();
        let [own, new] = ["own", "new"].map(|name| root.path().join(name));
        match kind {
            FileKind::Symlink => symlink("/", &own).unwrap(),
            FileKind::Fifo => mknodat(CWD, &own, FileType::Fifo, mode, 0).unwrap(),
            _ => mknodat(CWD, &own, FileType::Socket, mode, 0).unwrap(),
        }
        let state = |path: &Path| {
            let meta = fs::symlink_metadata(path).unwrap();
            (meta.ino(), meta.mode(), meta.uid(), meta.mtime())
        };
        let before = state(&own);
        let mut tree = writer(&root, TreeOptions::default());
        let (one, other) = (own.clone(), new.clone());
        crate::hook::set(move || exchange(&one, &other));
        match kind {
            FileKind::Symlink => tree.symlink(name("new"), &meta, b"/nowhere"),
            kind => tree.node(name("new"), &meta, kind, DeviceNumber::default()),
        }
        .unwrap();
        crate::hook::set(|| ());
        tree.finish().unwrap();
        assert_eq!(state(&new), before, "{kind:?}");
        let (_, mode, owner, time) = state(&own);
        let expected = if kind == FileKind::Symlink { 0o777 } else { 0o666 };
        assert_eq!((mode & 0o7777, owner, time), (expected, uid, -5), "{kind:?}");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 2, "no staging directory is left");
    }
}

#[test]
fn an_existing_directory_keeps_its_metadata_where_other_users_can_exchange_it() {
    let root = shared();
    let mode = |path: &str| fs::metadata(root.path().join(path)).unwrap().mode() & 0o7777;
    for path in ["d", "d/e"] {
        fs::create_dir(root.path().join(path)).unwrap();
        fs::set_permissions(root.path().join(path), fs::Permissions::from_mode(0o700)).unwrap();
    }
    if is_root() {
        std::os::unix::fs::chown(root.path().join("d"), Some(OTHER_USER), None).unwrap();
    }
    let mut tree = writer(&root, TreeOptions::default());
    tree.enter(name("d"), &plain(0o777)).unwrap();
    // The directory may have been exchanged with its contents.
    tree.enter(name("e"), &plain(0o777)).unwrap();
    tree.enter(name("new"), &plain(0o751)).unwrap();
    tree.leave().unwrap();
    tree.leave().unwrap();
    tree.leave().unwrap();
    let report = tree.finish().unwrap();
    assert_eq!(["d", "d/e", "d/e/new"].map(mode), [0o700, 0o700, 0o751]);
    assert_eq!([Loss::Mode, Loss::Times].map(|loss| lost(&report, loss)), [2, 2]);
    if is_root() {
        assert_eq!(fs::metadata(root.path().join("d")).unwrap().uid(), OTHER_USER);
        assert_eq!(lost(&report, Loss::Owner), 1);
    }
}

#[test]
fn a_directory_that_this_run_created_gets_metadata_again_only_under_its_name() {
    let root = shared();
    let mode = |path: &str| fs::metadata(root.path().join(path)).unwrap().mode() & 0o7777;
    let mut tree = TreeWriter::open(root.path(), TreeOptions::default()).unwrap().returning();
    let mut enter = |path: &str, mode| {
        tree.enter(name(path), &plain(mode)).unwrap();
        tree.leave().unwrap();
    };
    enter("d", 0o700);
    enter("e", 0o755);
    enter("d", 0o750);
    assert_eq!(["d", "e"].map(mode), [0o750, 0o755]);
    exchange(&root.path().join("d"), &root.path().join("e"));
    enter("e", 0o777);
    assert_eq!(["d", "e"].map(mode), [0o755, 0o750]);
    let report = tree.finish().unwrap();
    assert_eq!(lost(&report, Loss::Mode), 1);
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

#[test]
fn two_cursors_write_one_tree() {
    let root = tempfile::tempdir().unwrap();
    let mut tree = writer(&root, TreeOptions::default());
    tree.enter(name("d"), &plain(0o755)).unwrap();
    let forks: Vec<TreeWriter> = (0..2).map(|_| tree.fork().unwrap()).collect();
    std::thread::scope(|scope| {
        for (index, mut fork) in forks.into_iter().enumerate() {
            scope.spawn(move || {
                fork.enter(name(["x", "y"][index]), &plain(0o755)).unwrap();
                for file in 0..100 {
                    fork.file(name(&file.to_string()), &plain(0o644), content(b"1")).unwrap();
                }
                fork.finish().unwrap();
            });
        }
    });
    tree.leave().unwrap();
    let report = tree.finish().unwrap();
    assert_eq!((report.files, report.directories, report.bytes), (200, 3, 200));
    assert_eq!(fs::metadata(root.path().join("d")).unwrap().mtime(), -5);
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

#[test]
fn small_files_are_written_behind_with_all_that_belongs_to_them() {
    let root = tempfile::tempdir().unwrap();
    let mut tree = writer(&root, TreeOptions::default());
    let bytes: Vec<u8> = (0..40_000_u32).map(|at| (at % 251) as u8).collect();
    for file in 0..200_usize {
        let bytes = &bytes[..file * 200];
        let fill = |sink: &mut dyn DataSink| {
            sink.bytes(bytes)?;
            sink.hole(4096)?;
            // More than is written later.
            if file % 50 == 7 { sink.bytes(&vec![9; 70_000]) } else { sink.bytes(b"end") }
        };
        tree.file(name(&format!("{file:03}")), &plain(0o640), fill).unwrap();
    }
    let report = tree.finish().unwrap();
    assert_eq!(report.files, 200);
    for file in 0..200_usize {
        let path = root.path().join(format!("{file:03}"));
        let mut expected = bytes[..file * 200].to_vec();
        expected.extend([0; 4096]);
        if file % 50 == 7 {
            expected.extend([9; 70_000])
        } else {
            expected.extend(b"end")
        }
        assert!(fs::read(&path).unwrap() == expected, "{file}");
        let meta = fs::metadata(&path).unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.mtime(), meta.mtime_nsec()), (0o640, -5, 999_999_999));
    }
}

#[test]
fn a_file_that_a_later_write_cannot_complete_is_reported_and_removed() {
    let root = tempfile::tempdir().unwrap();
    let mut tree = writer(&root, TreeOptions::default());
    for file in ["a", "b", "c"] {
        tree.file(name(file), &plain(0o600), content(b"bytes")).unwrap();
    }
    tree.break_last();
    tree.file(name("d"), &plain(0o600), content(b"more")).unwrap();
    tree.settle();
    let errors = tree.late_errors();
    assert_eq!(errors.iter().map(|error| error.path().unwrap()).collect::<Vec<_>>(), [root.path().join("c")]);
    assert_eq!(tree.finish().unwrap().files, 3);
    let mut left: Vec<_> =
        fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["a", "b", "d"]);
}

#[test]
fn small_files_with_bytes_in_a_host_file_are_written_behind_too() {
    let root = tempfile::tempdir().unwrap();
    let source: Vec<u8> = (0..200_000_u32).map(|at| (at / 7 % 251) as u8).collect();
    let image = root.path().join("image");
    fs::write(&image, &source).unwrap();
    let device = FileDevice::open(&image).unwrap();
    let mut tree = writer(&root, TreeOptions::default());
    for file in 0..200_usize {
        let fill = |sink: &mut dyn DataSink| {
            sink.bytes(b"begin")?;
            sink.device(&device, file as u64 * 3, file as u64 * 111)?;
            sink.hole(4096)?;
            // The last files are longer than those that are written later.
            sink.device(&device, 100_000, if file < 190 { 30_000 } else { 60_000 })?;
            sink.device(&device, 7, 4096)
        };
        tree.file::<SinkError>(name(&format!("{file:03}")), &plain(0o640), fill).unwrap();
    }
    assert_eq!(tree.finish().unwrap().files, 200);
    for file in 0..200_usize {
        let mut expected = b"begin".to_vec();
        expected.extend(&source[file * 3..file * 114]);
        expected.extend([0; 4096]);
        expected.extend(&source[100_000..if file < 190 { 130_000 } else { 160_000 }]);
        expected.extend(&source[7..7 + 4096]);
        assert!(fs::read(root.path().join(format!("{file:03}"))).unwrap() == expected, "{file}");
    }
}

#[test]
fn bytes_that_a_later_read_cannot_get_are_zeros_and_reported() {
    let root = tempfile::tempdir().unwrap();
    let image = root.path().join("image");
    fs::write(&image, [7; 20_000]).unwrap();
    let device = FileDevice::open(&image).unwrap();
    fs::OpenOptions::new().write(true).open(&image).unwrap().set_len(10_000).unwrap();
    let mut tree = writer(&root, TreeOptions::default());
    let fill = |sink: &mut dyn DataSink| {
        sink.device(&device, 0, 20_000)?;
        sink.device(&device, 0, 5000)
    };
    tree.file::<SinkError>(name("file"), &plain(0o640), fill).unwrap();
    tree.settle();
    let errors = tree.late_errors();
    assert_eq!(
        errors.iter().map(|error| error.path().unwrap()).collect::<Vec<_>>(),
        [root.path().join("file")]
    );
    assert_eq!(tree.finish().unwrap().files, 1);
    let expected = [&[7; 10_000][..], &[0; 10_000], &[7; 5000]].concat();
    assert!(fs::read(root.path().join("file")).unwrap() == expected);
}
