//! Images and trees as a program uses them: creating, inserting and extracting.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use obento::fs::TreeError;
use obento::prelude::*;
use obento_testkit::oracle::call;
use obento_testkit::{Oracle, require};

const SIZE: u64 = 16 << 20;

#[test]
fn a_failed_creation_leaves_no_file_and_an_existing_file_is_never_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    assert_eq!(
        Image::create(&path, SIZE, "floppyfs").unwrap_err().to_string(),
        "cannot create a file system of type 'floppyfs': no driver creates this type"
    );
    Image::create(&path, 1024, "ext4").unwrap_err();
    assert!(!path.exists());
    fs::write(&path, "precious").unwrap();
    Image::create(&path, SIZE, "ext4").unwrap_err();
    assert_eq!(fs::read(&path).unwrap(), b"precious");
}

#[test]
fn an_inserted_tree_comes_back_unchanged_and_merges_with_an_existing_one() {
    if !require(&[Oracle::Program("e2fsck")]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (path, tree, copy) = (dir.path().join("disk.img"), dir.path().join("tree"), dir.path().join("copy"));
    fs::create_dir_all(tree.join("bin")).unwrap();
    fs::write(tree.join("bin/run"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(tree.join("bin/run"), fs::Permissions::from_mode(0o750)).unwrap();
    std::os::unix::fs::symlink("bin/run", tree.join("start")).unwrap();

    let volume = Image::create(&path, SIZE, "ext4").unwrap().volume(None).unwrap();
    volume.create_dir("/srv").unwrap();
    volume.write("/srv/older", "kept").unwrap();
    volume.insert(&tree, "/srv").unwrap();
    volume.insert(&tree, "/").unwrap();
    volume.insert(tree.join("bin/run"), "/one-file").unwrap();
    volume.close().unwrap();
    drop(volume);
    call("e2fsck", ["-fn".as_ref(), path.as_os_str()]).unwrap();

    let volume = Image::open(&path).unwrap().volume(None).unwrap();
    fs::create_dir(&copy).unwrap();
    volume.extract("/srv", &copy).unwrap();
    assert_eq!(fs::read_to_string(copy.join("older")).unwrap(), "kept");
    assert_eq!(fs::read_to_string(copy.join("start")).unwrap(), "#!/bin/sh\n");
    assert_eq!(fs::metadata(copy.join("bin/run")).unwrap().permissions().mode() & 0o777, 0o750);
    volume.extract("/one-file", dir.path().join("single")).unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("single")).unwrap(), "#!/bin/sh\n");
    assert!(volume.exists("/bin/run").unwrap());
}

#[test]
fn a_symbolic_link_is_inserted_and_extracted_as_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let (link, copy) = (dir.path().join("link"), dir.path().join("copy"));
    fs::create_dir(dir.path().join("tree")).unwrap();
    std::os::unix::fs::symlink("tree", &link).unwrap();
    let volume = Image::create(dir.path().join("disk.img"), SIZE, "ext4").unwrap().volume(None).unwrap();
    volume.create_dir("/tree").unwrap();
    volume.insert(&link, "/link").unwrap();
    assert_eq!(volume.read_link("/link").unwrap(), b"tree");
    volume.extract("/link", &copy).unwrap();
    assert_eq!(fs::read_link(&copy).unwrap().to_str(), Some("tree"));
}

#[test]
fn a_tree_is_not_inserted_into_a_volume_that_is_open_for_reading() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    Image::create(&path, SIZE, "ext4").unwrap();
    let volume = Image::open(&path).unwrap().volume(None).unwrap();
    let error = volume.insert(dir.path(), "/srv").unwrap_err();
    assert_eq!(error.to_string(), "cannot write to '/srv': read-only");
    assert!(matches!(volume.extract("/none", dir.path()), Err(TreeError::Path(_))));
}

#[test]
fn an_extraction_that_would_replace_the_image_reports_the_file_and_copies_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    let volume = Image::create(&path, SIZE, "ext4").unwrap().volume(None).unwrap();
    volume.write("/disk.img", "not an image").unwrap();
    volume.write("/other", "copied").unwrap();
    volume.close().unwrap();
    let error = volume.extract("/", dir.path()).unwrap_err();
    assert!(error.to_string().starts_with("1 file was not copied completely: "), "{error}");
    let TreeError::Incomplete { problems, report } = error else { panic!("the image was replaced") };
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].path, b"/disk.img");
    assert_eq!(report.problems, 1);
    assert_eq!(fs::read_to_string(dir.path().join("other")).unwrap(), "copied");
    drop(volume);
    assert_eq!(Image::open(&path).unwrap().volume(None).unwrap().read("/other").unwrap(), b"copied");
}
