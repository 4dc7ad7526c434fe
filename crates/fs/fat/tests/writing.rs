//! Changing volumes through the layer above: obento and mtools read the result, and `fsck.fat` finds nothing.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{FORMAT, judge, mtool, open_image, open_to_write, oracles, shape, walk};
use obento_base::{Error, FileKind};
use obento_block::BlockDevice;
use obento_driver::Driver as _;
use obento_fat::FatDriver;
use obento_testkit::changes::{Tree, close, create, tree_of};

fn random_changes(shape_name: &str, seed: u64) {
    FORMAT.random_changes(shape_name, seed, |image| {
        let back = tempfile::tempdir().unwrap();
        mtool(image, "mcopy", ["-s".as_ref(), "-Q".as_ref(), "::/*".as_ref(), back.path().as_os_str()]);
        assert!(host_tree(back.path()) == tree_of(&*open_image(image)), "same as mtools: seed {seed}");
    });
}

/// Returns the tree below a directory of the host.
fn host_tree(root: &Path) -> Tree {
    let (mut tree, mut todo) = (Tree::new(), vec![(String::new(), root.to_owned())]);
    while let Some((path, folder)) = todo.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = format!("{path}/{}", entry.file_name().to_str().unwrap());
            let is_dir = entry.file_type().unwrap().is_dir();
            tree.insert(path.clone(), (!is_dir).then(|| std::fs::read(entry.path()).unwrap()));
            if is_dir {
                todo.push((path, entry.path()));
            }
        }
    }
    tree
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

#[test]
fn a_cut_after_any_write_to_fat12_leaves_lost_clusters_at_worst() {
    (0..4).for_each(|seed| FORMAT.random_cuts("fat12", 1000 + seed));
}

#[test]
fn a_cut_after_any_write_with_large_sectors_leaves_lost_clusters_at_worst() {
    (0..2).for_each(|seed| FORMAT.random_cuts("fat12-sector-2k", 2000 + seed));
}

#[test]
fn a_volume_is_marked_while_it_is_changed_and_only_then() {
    for shape_name in ["fat12", "fat16", "fat32"] {
        FORMAT.marks(shape_name);
    }
}

#[test]
fn a_file_in_the_clusters_of_a_removed_directory_keeps_its_data() {
    for shape_name in ["fat12", "fat12-4k", "fat12-sector-2k", "fat16", "fat32"] {
        FORMAT.reuses_directories(shape_name);
    }
}

#[test]
fn values_that_the_format_cannot_store_are_refused() {
    FORMAT.refuses("fat16");
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
    let refused = FatDriver::default().open(device, &FORMAT.writing()).map(drop);
    assert_eq!(refused, Err(Error::ReadOnly));
}
