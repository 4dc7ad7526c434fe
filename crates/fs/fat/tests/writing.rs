//! Changing volumes through the layer above: what was done is read again by us and by mtools, and `fsck.fat` finds no
//! fault.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{NOW, judge, mtool, open_image, open_to_write, oracles, shape, walk};
use obento_base::{Error, FileKind, Mode, Name};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{Access, Driver as _, FileSystem, NewNode, OpenOptions, SetAttr, TimeChange};
use obento_fat::FatDriver;
use obento_testkit::changes::{Model, close, create, name, node, nothing_worse_than_lost_clusters, tree_of};
use obento_testkit::record::{Event, RecordDevice};

fn random_changes(shape_name: &str, seed: u64) {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = shape(shape_name).make(folder.path());
    for round in 0..3 {
        let mut model = Model::new(open_to_write(&image), seed + round);
        for step in 0..250 {
            model.step();
            if step % 50 == 49 {
                model.compare(&format!("seed {seed}, round {round}, step {step}"));
                model.fs.writable().unwrap().sync().unwrap();
            }
        }
        model.compare(&format!("seed {seed}, round {round}"));
        close(&*model.fs);
        judge(&image);
        assert!(tree_of(&*open_image(&image)) == model.tree, "opened again: seed {seed}, round {round}");
    }
    for (path, bytes) in tree_of(&*open_image(&image)).iter().take(20) {
        if let Some(bytes) = bytes {
            let target = folder.path().join("back");
            let _ = std::fs::remove_file(&target);
            mtool(&image, "mcopy", [format!("::{path}").as_ref(), target.as_os_str()]);
            assert!(std::fs::read(&target).unwrap() == *bytes, "{path}");
        }
    }
}

#[test]
fn random_changes_of_fat12_leave_what_a_model_says() {
    random_changes("fat12", 100);
}

#[test]
fn random_changes_of_fat16_with_large_sectors_leave_what_a_model_says() {
    random_changes("fat16-sector-4k", 200);
}

#[test]
fn random_changes_of_fat32_leave_what_a_model_says() {
    random_changes("fat32", 300);
}

#[test]
fn random_changes_with_one_fat_leave_what_a_model_says() {
    random_changes("fat12-sector-2k", 400);
}

/// Opens a copy of the volume for changes, in memory, recorded.
fn recorded(image: &Path) -> (Vec<u8>, Arc<RecordDevice<MemDevice>>, Arc<dyn FileSystem>) {
    let bytes = std::fs::read(image).unwrap();
    let device = Arc::new(RecordDevice::new(MemDevice::new(bytes.clone())));
    let fs = FatDriver::default().open(device.clone(), &common::writing()).unwrap();
    (bytes, device, fs)
}

/// The power fails after each write. `fsck.fat` judges some of what is left: it must be able to mend it.
fn cuts(shape_name: &str, seed: u64) {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = shape(shape_name).make(folder.path());
    let (mut bytes, device, fs) = recorded(&image);
    let mut model = Model::new(fs, seed);
    for step in 0..120 {
        model.step();
        if step % 7 == 6 {
            model.fs.writable().unwrap().sync().unwrap();
        }
    }
    close(&*model.fs);
    let cut = folder.path().join("cut.img");
    for (number, event) in device.take_events().into_iter().enumerate() {
        let Event::Write { offset, bytes: written } = event else { continue };
        bytes[offset as usize..offset as usize + written.len()].copy_from_slice(&written);
        let what = format!("{shape_name}, seed {seed}, cut after event {number}");
        let fs = common::open(Arc::new(MemDevice::read_only(bytes.clone())));
        let fs = fs.unwrap_or_else(|error| panic!("{what}: {error}"));
        nothing_worse_than_lost_clusters(&*fs, &what);
        if number % 23 == 0 {
            std::fs::write(&cut, &bytes).unwrap();
            // What it mends it says by 1; afterwards nothing is left.
            let _ = obento_testkit::oracle::program("fsck.fat").arg("-a").arg(&cut).output().unwrap();
            judge(&cut);
        }
    }
    assert!(tree_of(&*common::open(Arc::new(MemDevice::read_only(bytes))).unwrap()) == model.tree);
}

#[test]
fn a_cut_after_any_write_to_fat12_leaves_lost_clusters_at_worst() {
    (0..4).for_each(|seed| cuts("fat12", 1000 + seed));
}

#[test]
fn a_cut_after_any_write_with_large_sectors_leaves_lost_clusters_at_worst() {
    (0..2).for_each(|seed| cuts("fat12-sector-2k", 2000 + seed));
}

#[test]
fn a_volume_is_marked_while_it_is_changed_and_only_then() {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for shape_name in ["fat12", "fat16", "fat32"] {
        let image = shape(shape_name).make(folder.path());
        let before = std::fs::read(&image).unwrap();
        let fs = open_to_write(&image);
        fs.writable().unwrap().sync().unwrap();
        assert!(std::fs::read(&image).unwrap() == before, "nothing was changed");
        create(&*fs, fs.root(), "f", FileKind::Regular).unwrap();
        fs.writable().unwrap().sync().unwrap();
        assert_eq!(open_image(&image).info().state, "not unmounted cleanly");
        close(&*fs);
        assert_eq!(open_image(&image).info().state, "clean");
        judge(&image);
    }
}

#[test]
fn what_the_format_cannot_hold_is_refused() {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = shape("fat16").make(folder.path());
    let fs = open_to_write(&image);
    let root = fs.root();
    for kind in [FileKind::Fifo, FileKind::Socket, FileKind::CharDevice, FileKind::BlockDevice] {
        assert_eq!(create(&*fs, root, "x", kind), Err(Error::NotPermitted));
    }
    let link = NewNode { target: b"target", ..node(FileKind::Symlink) };
    assert_eq!(fs.writable().unwrap().create(root, name("x"), &link).map(drop), Err(Error::NotPermitted));
    for text in ["a:b", "what?", "tail.", "tail ", "a\\b"] {
        assert_eq!(create(&*fs, root, text, FileKind::Regular), Err(Error::Invalid), "{text}");
    }
    assert_eq!(
        fs.writable().unwrap().create(root, Name::new(b"\xff").unwrap(), &node(FileKind::Regular)).map(drop),
        Err(Error::Invalid)
    );
    assert_eq!(create(&*fs, root, &"x".repeat(256), FileKind::Regular), Err(Error::NameTooLong));
    let ino = create(&*fs, root, &"\u{4e00}".repeat(255), FileKind::Regular).unwrap();
    let writable = fs.writable().unwrap();
    let owner = SetAttr { uid: Some(1), ..SetAttr::default() };
    assert_eq!(writable.set_attr(ino, &owner).map(drop), Err(Error::NotPermitted));
    let read_only =
        SetAttr { mode: Some(Mode::new(0o444)), mtime: Some(TimeChange::Now), ..SetAttr::default() };
    let attr = writable.set_attr(ino, &read_only).unwrap();
    assert_eq!((attr.mode, attr.mtime), (Mode::new(0o555), NOW));
    close(&*fs);
    judge(&image);
}

#[test]
fn names_are_made_as_windows_and_linux_make_them() {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = shape("fat16").make(folder.path());
    let fs = open_to_write(&image);
    for text in ["README.TXT", "lower.txt", "Mixed.txt", "a long name.html", "a long name.htm", ".dots"] {
        create(&*fs, fs.root(), text, FileKind::Regular).unwrap();
    }
    for n in 0..15 {
        create(&*fs, fs.root(), &format!("numbered file {n}"), FileKind::Regular).unwrap();
    }
    close(&*fs);
    judge(&image);
    let listing = mtool(&image, "mdir", ["-a", "::/"]);
    for line in [
        "README   TXT",
        "lower    txt",
        "MIXED~1  TXT",
        "ALONGN~1 HTM",
        "ALONGN~2 HTM",
        "DOTS~1 ",
        "NUMBER~9 ",
    ] {
        assert!(listing.contains(line), "{line}:\n{listing}");
    }
    assert!(listing.contains("a long name.html") && listing.contains("numbered file 14"), "{listing}");
}

#[test]
fn a_directory_grows_as_far_as_the_format_allows_and_the_root_of_fat16_does_not() {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = shape("fat12-4k").make(folder.path());
    let fs = open_to_write(&image);
    let dir = create(&*fs, fs.root(), "D", FileKind::Directory).unwrap();
    let bytes = std::fs::read(&image).unwrap();
    let room = usize::from(u16::from_le_bytes([bytes[17], bytes[18]]));
    for n in 1..room {
        create(&*fs, fs.root(), &format!("F{n}"), FileKind::Regular).unwrap();
    }
    assert_eq!(create(&*fs, fs.root(), "F0", FileKind::Regular), Err(Error::NoSpace));
    for n in 0..1000 {
        create(&*fs, dir, &format!("F{n}"), FileKind::Regular).unwrap();
    }
    close(&*fs);
    judge(&image);
    assert_eq!(walk(&*open_image(&image)).len(), room + 1000);
}

#[test]
fn a_device_that_cannot_be_written_is_refused() {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = shape("fat12").make(folder.path());
    let device: Arc<dyn BlockDevice> = common::in_memory(&image);
    let options = OpenOptions { access: Access::ReadWrite, ..common::reading() };
    let refused = FatDriver::default().open(device, &options).map(drop);
    assert_eq!(refused, Err(Error::ReadOnly));
}
