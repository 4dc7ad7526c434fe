//! External journals.

mod common;

use std::fs::{self, File};
use std::path::Path;

use obento_base::Name;
use obento_driver::{FileSystem as _, Notice, OpenOptions};
use obento_ext4::{Ext4, open_volume};
use obento_testkit::oracle::{LoopMount, call};
use obento_testkit::{Oracle, require};

/// A loop device over a file, detached on drop.
struct Loop(String);

impl Loop {
    fn new(file: &Path) -> Self {
        let output = call("losetup", ["-f".as_ref(), "--show".as_ref(), file.as_os_str()]).unwrap();
        Self(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = call("losetup", ["-d", &self.0]);
    }
}

#[test]
fn an_external_journal_is_replayed_from_its_device_and_missed_without_it() {
    let needs = [Oracle::Program("mke2fs"), Oracle::Program("losetup"), Oracle::LoopMount];
    if !require(&needs) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [log, image, log_copy, image_copy] =
        ["log", "image", "log-copy", "image-copy"].map(|name| folder.path().join(name));
    File::create(&log).unwrap().set_len(8 << 20).unwrap();
    File::create(&image).unwrap().set_len(64 << 20).unwrap();
    call("mke2fs", ["-q", "-F", "-b", "1024", "-O", "journal_dev", log.to_str().unwrap()]).unwrap();
    let device = Loop::new(&log);
    let journal = format!("device={}", device.0);
    let image_arg = image.to_str().unwrap();
    call("mke2fs", ["-q", "-F", "-t", "ext4", "-b", "1024", "-J", &journal, image_arg]).unwrap();
    let mount = LoopMount::new(&image, &format!("journal_path={}", device.0)).unwrap();
    for n in 0..50 {
        let file = File::create(mount.path().join(format!("file-{n}"))).unwrap();
        file.sync_all().unwrap();
    }
    call("sync", [device.0.as_str()]).unwrap();
    fs::copy(&image, &image_copy).unwrap();
    call("cp", [device.0.as_str(), log_copy.to_str().unwrap()]).unwrap();
    mount.unmount().unwrap();
    drop(device);

    let count = |fs: &Ext4| {
        let named = |n: u32| fs.lookup(fs.root(), Name::new(format!("file-{n}").as_bytes()).unwrap());
        (0..50).filter(|&n| named(n).is_ok()).count()
    };
    let options = OpenOptions { journal: Some(common::device(&log_copy)), ..common::options() };
    let with = Ext4::new(open_volume(common::device(&image_copy), &options).unwrap());
    assert!(matches!(with.info().notices[..], [Notice::Replayed { .. }]), "{:?}", with.info().notices);
    assert_eq!(count(&with), 50);
    assert_eq!(common::read_everything(&with).errors, []);

    let without = common::open(&image_copy).unwrap();
    assert!(
        matches!(without.info().notices[..], [Notice::JournalMissing { .. }]),
        "{:?}",
        without.info().notices
    );
    assert!(count(&without) < 50);

    // The wrong device is not a journal of this volume.
    let options = OpenOptions { journal: Some(common::device(&image_copy)), ..common::options() };
    let wrong = Ext4::new(open_volume(common::device(&image_copy), &options).unwrap());
    assert!(matches!(wrong.info().notices[..], [Notice::ReplayFailed(_)]), "{:?}", wrong.info().notices);
}
