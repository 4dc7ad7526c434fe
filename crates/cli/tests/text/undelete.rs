//! `undelete` on FAT and exFAT: files that obento or the kernel deleted.

use std::fs;
use std::path::Path;
use std::process::Command;

use obento_testkit::oracle::{Oracle, program, run};
use obento_testkit::require;
use tempfile::TempDir;

use crate::support::Dice;

const TYPES: [&str; 2] = ["vfat", "exfat"];

struct Card(TempDir);

impl Card {
    /// A volume with the files of `fill`.
    fn new(fs_type: &str, fill: impl FnOnce(&Path)) -> Self {
        let card = Self(tempfile::tempdir().unwrap());
        fs::create_dir(card.tree()).unwrap();
        fill(&card.tree());
        card.quietly(&["mkfs", "-q", "-t", fs_type, "card.img", "16M"]);
        card.quietly(&["cp", "-r", "tree/.", "card.img:/"]);
        card
    }

    fn tree(&self) -> std::path::PathBuf {
        self.0.path().join("tree")
    }

    fn obento(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        let output = command.current_dir(self.0.path()).args(args).env("TZ", "UTC0").output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    #[track_caller]
    fn quietly(&self, args: &[&str]) {
        let (code, _, said) = self.obento(args);
        assert_eq!(code, Some(0), "{args:?}: {said}");
    }

    /// The certainty and the path of each line.
    #[track_caller]
    fn list(&self, args: &[&str]) -> Vec<(String, String)> {
        let (_, text, said) = self.obento(&[&["undelete", "card.img"], args].concat());
        assert_eq!(said, "", "{text}");
        let mut lines: Vec<_> = text
            .lines()
            .map(|line| {
                let certainty = line.split(' ').next().unwrap();
                // After the size, the date and the time.
                let path = line.split_whitespace().skip(4).collect::<Vec<_>>().join(" ");
                (certainty.to_owned(), path)
            })
            .collect();
        lines.sort();
        lines
    }

    #[track_caller]
    fn same(&self, copy: &str, original: &str) {
        let (copy, original) = (self.0.path().join("out").join(copy), self.tree().join(original));
        assert!(fs::read(&copy).unwrap() == fs::read(original).unwrap(), "{}", copy.display());
    }
}

fn fill(tree: &Path) {
    let mut dice = Dice(41);
    fs::create_dir_all(tree.join("DCIM/Holiday in Rome")).unwrap();
    for number in 0..8 {
        let len = 1 + dice.below(90_000);
        let name = format!("DCIM/Holiday in Rome/Photograph {number}.jpeg");
        fs::write(tree.join(name), dice.text(len)).unwrap();
    }
    fs::write(tree.join("SHORT.TXT"), dice.text(5000)).unwrap();
    fs::write(tree.join("kept file.bin"), dice.text(30_000)).unwrap();
    fs::write(tree.join("empty deleted file"), "").unwrap();
}

fn both(certainty: &str, paths: &[&str]) -> Vec<(String, String)> {
    paths.iter().map(|path| (certainty.to_owned(), (*path).to_owned())).collect()
}

#[test]
fn deleted_files_are_listed_and_extracted_with_their_names_and_bytes() {
    for fs_type in TYPES {
        let card = Card::new(fs_type, fill);
        card.quietly(&["rm", "card.img:/DCIM/Holiday in Rome/Photograph 3.jpeg", "card.img:/SHORT.TXT"]);
        let (certainty, short) = match fs_type {
            "vfat" => ("likely", "_HORT.TXT"),
            _ => ("certain", "SHORT.TXT"),
        };
        let photo = "DCIM/Holiday in Rome/Photograph 3.jpeg";
        let mut expected = both(certainty, &[photo, short]);
        expected.sort();
        assert_eq!(card.list(&[]), expected, "{fs_type}");
        assert_eq!(card.list(&["*.jpeg"]), both(certainty, &[photo]));
        assert_eq!(card.list(&["DCIM/*"]), both(certainty, &[photo]));
        card.list(&["--to", "out"]);
        card.same(photo, photo);
        card.same(short, "SHORT.TXT");
        let (code, _, said) = card.obento(&["undelete", "card.img", "--to", "out"]);
        assert_eq!(code, Some(2));
        assert!(said.contains("the directory is not empty"), "{said}");
    }
}

#[test]
fn files_of_a_deleted_tree_are_found_below_its_name() {
    for fs_type in TYPES {
        let card = Card::new(fs_type, fill);
        card.quietly(&["rm", "-r", "card.img:/DCIM", "card.img:/empty deleted file"]);
        let found = card.list(&["--to", "out"]);
        assert_eq!(found.len(), 9, "{fs_type}: {found:?}");
        assert!(found.contains(&("certain".into(), "empty deleted file".into())), "{found:?}");
        let directory = fs::read_dir(card.0.path().join("out")).unwrap().flatten();
        let directory = directory.map(|entry| entry.file_name().into_string().unwrap());
        let directory = directory.into_iter().find(|name| name.ends_with("CIM")).unwrap();
        for number in 0..8 {
            let copy = format!("{directory}/Holiday in Rome/Photograph {number}.jpeg");
            card.same(&copy, &format!("DCIM/Holiday in Rome/Photograph {number}.jpeg"));
        }
    }
}

#[test]
fn a_file_whose_space_was_used_again_is_overwritten() {
    for fs_type in TYPES {
        let card = Card::new(fs_type, |tree| fs::write(tree.join("first file"), vec![7; 9 << 20]).unwrap());
        card.quietly(&["rm", "card.img:/first file"]);
        fs::write(card.0.path().join("new"), vec![9; 11 << 20]).unwrap();
        card.quietly(&["cp", "new", "card.img:/a rather long name of a file"]);
        // The entries may be in use again, too.
        let (_, text, _) = card.obento(&["undelete", "card.img", "--least", "overwritten"]);
        assert!(!text.contains("certain ") && !text.contains("likely "), "{fs_type}: {text}");
    }
}

#[test]
fn a_volume_without_deleted_files_and_other_types_are_reported() {
    let card = Card::new("vfat", fill);
    let (code, text, said) = card.obento(&["undelete", "card.img"]);
    assert_eq!((code, text.as_str()), (Some(1), ""));
    assert!(said.contains("no deleted files were found"), "{said}");
    card.quietly(&["mkfs", "-q", "other.img", "8M"]);
    let (code, _, said) = card.obento(&["undelete", "other.img"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("obento cannot find deleted files on ext4"), "{said}");
    fs::write(card.0.path().join("other.img"), [0x55; 1 << 20]).unwrap();
    let (code, _, said) = card.obento(&["undelete", "other.img"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("no supported file system; the data looks like"), "{said}");
    let (code, _, said) = card.obento(&["undelete", "card.img:/DCIM"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("not an image or a partition"), "{said}");
}

#[test]
fn files_that_the_kernel_deleted_are_found() {
    if !require(&[Oracle::Root, Oracle::LoopMount]) {
        return;
    }
    let known = fs::read_to_string("/proc/filesystems").unwrap();
    for fs_type in TYPES.into_iter().filter(|fs_type| known.contains(fs_type)) {
        let card = Card::new(fs_type, fill);
        let (image, at) = (card.0.path().join("card.img"), card.0.path().join("mnt"));
        fs::create_dir(&at).unwrap();
        run(program("mount").args(["-o", "loop", "-t", fs_type]).arg(&image).arg(&at)).unwrap();
        let removed = fs::remove_file(at.join("DCIM/Holiday in Rome/Photograph 5.jpeg"));
        run(program("umount").arg(&at)).unwrap();
        removed.unwrap();
        let photo = "DCIM/Holiday in Rome/Photograph 5.jpeg";
        let found = card.list(&["--to", "out"]);
        assert_eq!(found.iter().map(|(_, path)| path.as_str()).collect::<Vec<_>>(), [photo], "{fs_type}");
        card.same(photo, photo);
    }
}
