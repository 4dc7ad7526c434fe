//! Moves between the host and images, and between two images, that fail, replace a file or preserve it.

use std::fs;
use std::os::unix::fs::symlink;

use obento_testkit::oracle::{program, run};

use crate::support::{Disk, text};

/// A folder with `disk.img` and, smaller, `other.img`.
fn two() -> Option<Disk> {
    let disk = Disk::new("8M", &[])?;
    let other = disk.folder().join("other.img");
    run(program("mke2fs").args(["-q", "-F", "-O", "^has_journal"]).arg(other).arg("1M")).unwrap();
    Some(disk)
}

fn listed(disk: &Disk, directory: &str) -> String {
    disk.read(&format!("ls -A {directory}"))
}

#[test]
fn a_directory_that_could_not_be_moved_onto_an_empty_one_leaves_it_where_it_was() {
    let Some(disk) = two() else { return };
    let at = disk.folder();
    fs::create_dir_all(at.join("tree/below")).unwrap();
    fs::write(at.join("tree/below/huge"), vec![1; 12 << 20]).unwrap();
    disk.quietly(&["mkdir -m 711 disk.img:/empty other.img:/empty", "mkdir disk.img:/source"]);
    let ino = disk.read("stat -c %i.%a disk.img:/empty");
    let output = disk.obento(&["mv", "-T", "tree", "disk.img:/empty"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).ends_with(
        "obento: cannot move 'tree' to 'disk.img:/empty': not everything was copied\n  help: the source is unchanged\n"
    ));
    assert_eq!(disk.read("stat -c %i.%a disk.img:/empty"), ino);
    assert_eq!(listed(&disk, "disk.img:/"), "empty\nlost+found\nsource\n");
    assert!(at.join("tree/below/huge").exists());
    disk.obento_with(&["write", "disk.img:/source/big"], &vec![7; 2 << 20]);
    assert_eq!(disk.obento(&["mv", "-T", "disk.img:/source", "other.img:/empty"]).status.code(), Some(1));
    assert_eq!(disk.read("stat -c %a other.img:/empty"), "711\n");
    assert_eq!(listed(&disk, "other.img:/"), "empty\nlost+found\n");
    assert_eq!(listed(&disk, "disk.img:/source"), "big\n");
    fs::create_dir(at.join("back")).unwrap();
    disk.quietly(&["mv -T disk.img:/source back", "mkdir disk.img:/full", "mkdir disk.img:/full/x"]);
    assert_eq!(fs::read(at.join("back/big")).unwrap(), vec![7; 2 << 20]);
    assert_eq!(listed(&disk, "disk.img:/"), "empty\nfull\nlost+found\n");
    disk.check("mv -T back disk.img:/full", 1, "", {
        "obento: cannot move 'back' to 'disk.img:/full': directory not empty\n"
    });
    let left: Vec<_> = fs::read_dir(at).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with('.')), "{left:?}");
}

#[test]
fn a_directory_by_the_name_of_a_link_is_not_moved() {
    let Some(disk) = two() else { return };
    let at = disk.folder();
    fs::create_dir(at.join("real")).unwrap();
    fs::write(at.join("real/file"), "precious").unwrap();
    symlink("real", at.join("link")).unwrap();
    disk.quietly(&["mkdir disk.img:/real disk.img:/real/in", "ln -s real disk.img:/link"]);
    let refused = |from: &str, to: &str| {
        let help = "help: omit the trailing slash to move the link itself";
        let error = format!("obento: cannot move '{from}' to '{to}': not a directory\n  {help}\n");
        disk.check(&format!("mv {from} {to}"), 1, "", &error);
    };
    refused("link/", "disk.img:/moved");
    refused("disk.img:/link/", "moved");
    refused("disk.img:/link/", "other.img:/moved");
    refused("disk.img:/link/", "disk.img:/moved");
    assert_eq!(fs::read_to_string(at.join("real/file")).unwrap(), "precious");
    assert_eq!(listed(&disk, "disk.img:/real"), "in\n");
    disk.quietly(&["mv link disk.img:/moved"]);
    assert_eq!(disk.read("readlink disk.img:/moved"), "real\n");
}

#[test]
fn a_move_replaces_the_link_itself_and_only_after_the_copy_is_complete() {
    let Some(disk) = two() else { return };
    let at = disk.folder();
    disk.obento_with(&["write", "disk.img:/behind"], b"behind");
    disk.obento_with(&["write", "disk.img:/new"], b"new");
    disk.quietly(&["ln -s behind disk.img:/link"]);
    fs::write(at.join("file"), "file").unwrap();
    disk.quietly(&["mv file disk.img:/link"]);
    assert_eq!(disk.read("cat disk.img:/behind disk.img:/link"), "behindfile");
    fs::write(at.join("old"), "old").unwrap();
    disk.check("mv -vb disk.img:/new old", 0, "moved 'disk.img:/new' -> 'old' (backup: 'old~')\n", "");
    assert_eq!(fs::read_to_string(at.join("old")).unwrap(), "new");
    assert_eq!(fs::read_to_string(at.join("old~")).unwrap(), "old");
    disk.quietly(&["mv --backup=numbered old disk.img:/link"]);
    assert_eq!(disk.read("cat disk.img:/link disk.img:/link.~1~"), "newfile");
    disk.quietly(&["mv -b -T disk.img:/link old~"]);
    // A backup of a missing file does not exist.
    disk.check("mv -vb old~ disk.img:/moved", 0, "moved 'old~' -> 'disk.img:/moved'\n", "");
    disk.check("mv -vb disk.img:/moved old~", 0, "moved 'disk.img:/moved' -> 'old~'\n", "");
    assert_eq!(fs::read_to_string(at.join("old~~")).unwrap(), "old");
}

#[test]
fn the_next_move_removes_the_leftovers_of_a_killed_one() {
    let Some(disk) = two() else { return };
    disk.quietly(&["mkdir disk.img:/empty"]);
    let image = obento::Image::open(disk.image()).unwrap();
    let root = image.volume(None).unwrap().root();
    let left = obento::host::unfinished_name(&root, obento::base::Name::new(b"empty").unwrap()).unwrap();
    drop((root, image));
    let left = format!("disk.img:/{}", text(left.as_bytes()));
    disk.quietly(&[&format!("mkdir -p {left}/half/done")]);
    fs::create_dir_all(disk.folder().join("tree/whole")).unwrap();
    disk.quietly(&["mv -T tree disk.img:/empty"]);
    assert_eq!(listed(&disk, "disk.img:/"), "empty\nlost+found\n");
    assert_eq!(listed(&disk, "disk.img:/empty"), "whole\n");
}

#[test]
fn copies_back_up_replaced_files_as_requested_on_both_sides() {
    let Some(disk) = two() else { return };
    let at = disk.folder();
    let write = |name: &str, text: &str| fs::write(at.join(name), text).unwrap();
    write("f", "one");
    disk.quietly(&["cp f disk.img:/f"]);
    write("f", "two");
    disk.quietly(&["cp -b f disk.img:/f", "cp --backup=t f disk.img:/f", "cp --suffix=.old f disk.img:/f"]);
    assert_eq!(listed(&disk, "disk.img:/"), "f\nf.~1~\nf.~2~\nf~\nlost+found\n");
    assert_eq!(disk.read("cat disk.img:/f~ disk.img:/f.~1~"), "onetwo");
    write("f", "mine");
    disk.quietly(&["cp --backup=simple disk.img:/f f"]);
    assert_eq!(fs::read_to_string(at.join("f~")).unwrap(), "mine");
    assert_eq!(fs::read_to_string(at.join("f")).unwrap(), "two");
    disk.check("cp --backup=sometimes f disk.img:/f", 2, "", {
        "obento: invalid backup method 'sometimes'\n  help: use none, simple, numbered or \
         existing in --backup or VERSION_CONTROL\n"
    });
    assert_eq!(disk.obento(&["cp", "-nb", "f", "disk.img:/f"]).status.code(), Some(2));
    // A backup must not replace a file that was just copied.
    fs::create_dir(at.join("in")).unwrap();
    for name in ["g~", "g"] {
        write(&format!("in/{name}"), name);
    }
    disk.quietly(&["cp in/g disk.img:/g", "cp -n in/g~ disk.img:/g~"]);
    let output = disk.obento(&["cp", "--backup=simple", "in/g~", "in/g", "disk.img:/"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert_eq!(disk.read("cat disk.img:/g~"), "g~");
}

#[test]
fn a_file_of_the_user_with_the_name_of_an_unfinished_copy_stays() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    fs::write(disk.folder().join("f"), "new").unwrap();
    disk.obento_with(&["write", "disk.img:/.obento-unfinished-copy"], b"mine");
    disk.quietly(&["cp f disk.img:/f", "cp f disk.img:/f", "ln -f disk.img:/f disk.img:/f2"]);
    assert_eq!(listed(&disk, "disk.img:/"), ".obento-unfinished-copy\nf\nf2\nlost+found\n");
    assert_eq!(disk.read("cat disk.img:/.obento-unfinished-copy"), "mine");
}
