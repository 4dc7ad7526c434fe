//! Trees that another user or another process changes while they are written.

use super::*;

#[test]
pub(super) fn an_entry_at_a_target_name_is_replaced_and_never_followed() {
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
pub(super) fn a_directory_swapped_for_a_link_while_it_is_written_leads_nowhere() {
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
pub(super) fn shared() -> TempDir {
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
