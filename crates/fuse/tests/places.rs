//! Mount points below directories that other users rename and exchange.

use std::ffi::CStr;
use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use obento_fuse::options::MountOptions;
use obento_fuse::{MountError, MountPlace, Mounted, Unmounter, find_mount, mount, mount_of};
use obento_testkit::{Oracle, require};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, renameat_with};
use rustix::mount::{MountFlags, UnmountFlags};

const DETACH: Unmounter = Unmounter { lazy: true, force: false };

/// Two directories `d` and `e`, each with a mount point. No server answers the requests of the mounts.
struct Two {
    folder: tempfile::TempDir,
}

impl Two {
    fn new() -> Option<Self> {
        if !require(&[Oracle::Root, Oracle::Fuse]) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let two = Self { folder };
        ["d", "e"].into_iter().for_each(|name| fs::create_dir_all(two.at(name)).unwrap());
        Some(two)
    }

    fn parent(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.parent(name).join("mnt")
    }

    fn mount(&self, name: &str) -> Mounted {
        let directory = File::open(self.at(name)).unwrap();
        mount(directory.as_fd(), name.as_ref(), &MountOptions::default()).unwrap()
    }

    fn exchange(&self) {
        renameat_with(CWD, self.parent("d"), CWD, self.parent("e"), RenameFlags::EXCHANGE).unwrap();
    }
}

fn source(path: &Path) -> Option<PathBuf> {
    find_mount(path).map(|mount| mount.source)
}

#[test]
fn a_mount_is_found_at_the_directory_that_was_opened_and_not_at_its_former_path() {
    let Some(two) = Two::new() else { return };
    let other = two.mount("e");
    let directory = File::open(two.at("d")).unwrap();
    two.exchange();
    let ours = mount(directory.as_fd(), "ours".as_ref(), &MountOptions::default()).unwrap();
    assert_eq!(ours.place.mount().path, two.at("e"));
    assert_ne!(ours.place.mount().device, other.place.mount().device);
    two.exchange();
    ours.place.unmount(DETACH).unwrap();
    assert_eq!([two.at("d"), two.at("e")].map(|path| source(&path)), [None, Some("e".into())]);
    other.place.unmount(DETACH).unwrap();
}

#[test]
fn a_mount_that_was_found_is_unmounted_wherever_it_is_by_now() {
    let Some(two) = Two::new() else { return };
    let [ours, other] = ["d", "e"].map(|name| two.mount(name));
    let found = find_mount(&two.at("d")).unwrap();
    two.exchange();
    let place = MountPlace::open(found.clone()).unwrap();
    assert_eq!(place.mount().path, two.at("e"));
    place.unmount(DETACH).unwrap();
    assert_eq!([two.at("d"), two.at("e")].map(|path| source(&path)), [Some("e".into()), None]);
    // It has ended, and the other mount is at its path.
    assert!(matches!(MountPlace::open(found), Err(MountError::Moved)));
    assert!(matches!(ours.place.root(), Err(MountError::Moved)));
    other.place.unmount(DETACH).unwrap();
}

#[test]
fn options_are_changed_for_the_open_mount_whatever_is_at_its_path() {
    let Some(two) = Two::new() else { return };
    let [ours, other] = ["d", "e"].map(|name| two.mount(name));
    let root = ours.place.root().unwrap();
    two.exchange();
    let mut options = MountOptions::default();
    options.take("remount,ro,nosuid").unwrap();
    root.remount(&options).unwrap();
    let flags = |path: &str| find_mount(&two.at(path)).unwrap().flags;
    assert!(flags("e").contains("ro") && flags("e").contains("nosuid"), "{}", flags("e"));
    assert!(!flags("d").split(',').any(|flag| flag == "ro"), "{}", flags("d"));
    assert!(matches!(ours.place.unmount(Unmounter::default()), Err(MountError::Busy)), "the root is open");
    drop(root);
    [ours, other].into_iter().for_each(|mounted| drop(mounted.place.unmount(DETACH)));
}

#[test]
fn a_mount_point_that_another_mount_covers_is_reported_as_moved() {
    let Some(two) = Two::new() else { return };
    let ours = two.mount("d");
    // Not mount(8), which asks the server for attributes.
    let (flags, data) = (MountFlags::empty(), None::<&CStr>);
    rustix::mount::mount(c"cover", two.at("d"), c"tmpfs", flags, data).unwrap();
    assert!(matches!(ours.place.root(), Err(MountError::Moved)));
    assert!(matches!(ours.place.unmount(DETACH), Err(MountError::Moved)));
    rustix::mount::unmount(two.at("d"), UnmountFlags::empty()).unwrap();
    let root = rustix::fs::open(two.at("d"), OFlags::PATH, Mode::empty()).unwrap();
    assert_eq!(mount_of(&root).unwrap(), *ours.place.mount());
    drop(root);
    ours.place.unmount(DETACH).unwrap();
}
