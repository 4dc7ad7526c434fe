//! `undelete` on FAT, exFAT, ext2, ext3 and ext4: files that obento, the kernel or debugfs deleted.

use std::fs;
use std::path::Path;
use std::process::Command;

use obento_testkit::oracle::{Oracle, program, run};
use obento_testkit::require;
use obento_testkit::scratch::memory_folder;
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
fn extracted_files_are_private_and_their_bytes_are_limited() {
    use std::os::unix::fs::MetadataExt;

    for fs_type in TYPES {
        let card = Card::new(fs_type, fill);
        card.quietly(&["rm", "-r", "card.img:/DCIM", "card.img:/SHORT.TXT"]);
        card.list(&["--to", "out"]);
        let mut pending = vec![card.0.path().join("out")];
        let mut files = 0;
        while let Some(folder) = pending.pop() {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                let meta = entry.metadata().unwrap();
                let expected = if meta.is_dir() { 0o700 } else { 0o600 };
                assert_eq!(meta.mode() & 0o7777, expected, "{fs_type}: {:?}", entry.path());
                files += u32::from(meta.is_file());
                pending.extend(meta.is_dir().then(|| entry.path()));
            }
        }
        assert_eq!(files, 9, "{fs_type}");
        let limit = ["undelete", "card.img", "*.TXT", "--to", "less", "--max-bytes"];
        let len = fs::metadata(card.tree().join("SHORT.TXT")).unwrap().len();
        let (code, _, said) = card.obento(&[&limit[..], &[&(len - 1).to_string()]].concat());
        assert_eq!(code, Some(2), "{said}");
        assert!(
            said.contains(&format!("the limit of {} bytes is reached", len - 1))
                && said.contains("--max-bytes"),
            "{said}"
        );
        assert_eq!(fs::read_dir(card.0.path().join("less")).unwrap().count(), 0);
        card.quietly(&[&limit[..], &[&len.to_string()]].concat());
    }
}

#[test]
fn nothing_is_extracted_through_a_link_of_another_user() {
    if !require(&[Oracle::Root]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let obento = |words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_obento"));
        command.current_dir(folder.path()).args(words).output().unwrap()
    };
    assert!(obento(&["mkfs", "-q", "-t", "vfat", "card.img", "8M"]).status.success());
    assert!(obento(&["write", "card.img:/deleted"]).status.success());
    assert!(obento(&["rm", "card.img:/deleted"]).status.success());
    fs::create_dir(folder.path().join("other")).unwrap();
    std::os::unix::fs::symlink("other", folder.path().join("link")).unwrap();
    std::os::unix::fs::lchown(folder.path().join("link"), Some(12345), None).unwrap();
    for to in ["link", "link/new"] {
        let output = obento(&["undelete", "card.img", "--to", to]);
        assert_eq!(output.status.code(), Some(2), "{to}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("symbolic link of another user"), "{to}");
    }
    assert_eq!(fs::read_dir(folder.path().join("other")).unwrap().count(), 0);
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

/// A volume of FAT32 with clusters of 4 KiB.
fn card_of_small_clusters(fill: impl FnOnce(&Path)) -> Card {
    let card = Card::new("vfat", fill);
    let image = card.0.path().join("card.img");
    run(program("mkfs.fat")
        .args(["-C", "-F", "32", "-s", "8"])
        .arg(image.with_extension("fat"))
        .arg("65536"))
    .unwrap();
    fs::rename(image.with_extension("fat"), &image).unwrap();
    card.quietly(&["cp", "-r", "tree/.", "card.img:/"]);
    card
}

/// The paths of a directory with more names than a few clusters hold.
fn long_names(directory: &str) -> Vec<String> {
    (0..300).map(|number| format!("{directory}/a file of {directory} {number:03}.text")).collect()
}

#[test]
fn all_names_of_a_deleted_directory_in_several_places_are_found() {
    if !require(&[Oracle::Program("mkfs.fat")]) {
        return;
    }
    let names = long_names("many");
    let card = card_of_small_clusters(|tree| {
        fs::create_dir(tree.join("many")).unwrap();
        names.iter().for_each(|name| fs::write(tree.join(name), vec![b't'; 5000]).unwrap());
        fs::write(tree.join("kept"), "kept").unwrap();
    });
    card.quietly(&["rm", "-r", "card.img:/many"]);
    let found = card.list(&["--to", "out"]);
    let mut paths: Vec<_> = found.iter().map(|(_, path)| path.replacen("_any", "many", 1)).collect();
    paths.sort();
    assert_eq!(paths, names);
    assert!(found.iter().all(|(certainty, _)| certainty == "likely"), "{found:?}");
}

#[test]
fn names_that_two_deleted_directories_may_have_are_doubtful() {
    if !require(&[Oracle::Program("mkfs.fat")]) {
        return;
    }
    // A name has two entries, so that each cluster ends behind a name.
    let names = |start: &str| {
        (0..400).map(|number| format!("{start} directory/{start} {number:03}")).collect::<Vec<_>>()
    };
    let (first, second) = (names("one"), names("two"));
    let card = card_of_small_clusters(|tree| {
        ["one directory", "two directory"].iter().for_each(|name| fs::create_dir(tree.join(name)).unwrap());
    });
    // The clusters of both directories alternate.
    for (round, names) in first.chunks(40).zip(second.chunks(40)).enumerate() {
        for (directory, names) in [("one directory", names.0), ("two directory", names.1)] {
            let part = card.0.path().join(format!("{round} {directory}"));
            fs::create_dir(&part).unwrap();
            for name in names {
                fs::write(part.join(name.rsplit('/').next().unwrap()), vec![b't'; 5000]).unwrap();
            }
            let source = format!("{round} {directory}/.");
            card.quietly(&["cp", "-r", &source, &format!("card.img:/{directory}/")]);
        }
    }
    card.quietly(&["rm", "-r", "card.img:/one directory", "card.img:/two directory"]);
    let (_, text, said) = card.obento(&["undelete", "card.img"]);
    assert_eq!(text.lines().count(), 800, "{said}");
    let base = |path: &str| path.rsplit('/').next().unwrap().to_owned();
    let mut names: Vec<_> = text.lines().map(base).collect();
    names.sort();
    assert!(names == [first, second].concat().iter().map(|path| base(path)).collect::<Vec<_>>(), "{text}");
    // A line that is not doubtful has the path of its file.
    let known: Vec<_> = text.lines().filter(|line| !line.starts_with("doubtful")).collect();
    assert!((120..200).contains(&known.len()), "{}", known.len());
    let is_right = |line: &&str| line.contains("one directory/one ") || line.contains("two directory/two ");
    assert!(known.iter().all(is_right), "{text}");
}

#[test]
fn a_deleted_directory_that_may_be_incomplete_is_named() {
    if !require(&[Oracle::Program("mkfs.fat")]) {
        return;
    }
    let card = card_of_small_clusters(|tree| {
        fs::create_dir(tree.join("a long directory")).unwrap();
        long_names("a long directory").iter().for_each(|name| fs::write(tree.join(name), "text").unwrap());
    });
    card.quietly(&["rm", "-r", "card.img:/a long directory"]);
    let image = card.0.path().join("card.img");
    let mut bytes = fs::read(&image).unwrap();
    // The names of the last cluster are overwritten.
    let name: Vec<u8> = " 299.".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let at = bytes.windows(name.len()).rposition(|part| part == name).unwrap();
    let at = at - at % 4096;
    bytes[at..at + 4096].fill(b'x');
    fs::write(&image, &bytes).unwrap();
    let (code, text, said) = card.obento(&["undelete", "card.img"]);
    assert_eq!(code, Some(0), "{said}");
    assert!((200..300).contains(&text.lines().count()), "{text}");
    let note = "obento: card.img:/a long directory: note: deleted files may be missing: the end of this deleted \
                directory was not found\n";
    assert_eq!(said, note);
    // The first cluster is overwritten, too.
    let own = bytes.chunks(4096).position(|cluster| cluster.starts_with(b".          \x10")).unwrap() * 4096;
    bytes[own..own + 4096].fill(b'x');
    fs::write(&image, &bytes).unwrap();
    let (_, _, said) = card.obento(&["undelete", "card.img"]);
    let note = "obento: card.img:/a long directory: note: deleted files may be missing: the start of this deleted \
                directory was overwritten\n";
    assert!(said.starts_with(note), "{said}");
}

#[test]
fn a_deleted_directory_of_exfat_that_was_overwritten_in_part_is_named() {
    let card = Card::new("exfat", |tree| {
        fs::create_dir(tree.join("many")).unwrap();
        fs::create_dir(tree.join("before")).unwrap();
        long_names("many").iter().for_each(|name| fs::write(tree.join(name), vec![b't'; 5000]).unwrap());
    });
    card.quietly(&["rm", "-r", "card.img:/before", "card.img:/many"]);
    assert_eq!(card.list(&[]).len(), 300);
    // The entry and the space of the first directory, and the first cluster of the second one, are used again.
    fs::write(card.0.path().join("new"), vec![7; 6000]).unwrap();
    card.quietly(&["cp", "new", "card.img:/new"]);
    let (_, text, said) = card.obento(&["undelete", "card.img", "--least", "overwritten"]);
    assert!((100..300).contains(&text.lines().count()), "{}: {said}", text.lines().count());
    let note = "obento: card.img:/many: note: deleted files may be missing: a part of this deleted directory was \
                overwritten\n";
    assert_eq!(said, note);
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
    card.quietly(&["mkfs", "-q", "-t", "ext4", "other.img", "8M"]);
    let (code, text, said) = card.obento(&["undelete", "other.img"]);
    assert_eq!((code, text.as_str()), (Some(1), ""));
    assert!(said.contains("no deleted files were found"), "{said}");
    fs::write(card.0.path().join("other.img"), [0x55; 1 << 20]).unwrap();
    let (code, _, said) = card.obento(&["undelete", "other.img"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("no supported file system; the data looks like text"), "{said}");
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

impl Card {
    /// Runs `change` on the volume, which the kernel has mounted.
    fn mounted(&self, change: impl FnOnce(&Path)) {
        let (image, at) = (self.0.path().join("card.img"), self.0.path().join("mnt"));
        fs::create_dir_all(&at).unwrap();
        run(program("mount").args(["-o", "loop"]).arg(&image).arg(&at)).unwrap();
        let changed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| change(&at)));
        run(program("umount").arg(&at)).unwrap();
        if let Err(panic) = changed {
            std::panic::resume_unwind(panic);
        }
    }
}

/// A volume whose files the kernel has written and deleted: one in a directory, a directory with two, and one with holes.
fn deleted_by_the_kernel(options: &[&str]) -> Card {
    let card = Card::new("vfat", |tree| {
        fill(tree);
        fs::create_dir(tree.join("gone")).unwrap();
        fs::write(tree.join("gone/large"), Dice(7).text(3 << 20)).unwrap();
        fs::write(tree.join("gone/small"), "a few bytes").unwrap();
    });
    let image = card.0.path().join("card.img");
    fs::remove_file(&image).unwrap();
    run(program("mke2fs").args(["-q", "-F"]).args(options).arg(&image).arg("48M")).unwrap();
    card.mounted(|at| {
        run(program("cp").arg("-r").arg(card.tree().join(".")).arg(at)).unwrap();
        let script = "printf start > sparse; printf end | dd of=sparse bs=1k seek=300 2>/dev/null; sync; cp sparse ../tree/sparse";
        run(program("sh").args(["-c", script]).current_dir(at)).unwrap();
        let remove = "rm 'DCIM/Holiday in Rome/Photograph 5.jpeg' sparse; rm -r gone; echo > new";
        run(program("sh").args(["-c", remove]).current_dir(at)).unwrap();
    });
    card
}

const DELETED: [&str; 4] = ["DCIM/Holiday in Rome/Photograph 5.jpeg", "gone/large", "gone/small", "sparse"];

#[test]
fn files_that_the_kernel_deleted_are_found_in_the_journal() {
    if !require(&[Oracle::Root, Oracle::LoopMount, Oracle::Program("mke2fs")]) {
        return;
    }
    for options in
        [&["-t", "ext4"][..], &["-t", "ext3"], &["-t", "ext4", "-b", "4096", "-O", "^filetype,bigalloc"]]
    {
        let card = deleted_by_the_kernel(options);
        let before = fs::read(card.0.path().join("card.img")).unwrap();
        let found = card.list(&["--to", "out"]);
        assert_eq!(found, both("likely", &DELETED), "{options:?}");
        for path in DELETED {
            card.same(path, path);
        }
        assert!(fs::read(card.0.path().join("card.img")).unwrap() == before, "the image has changed");
        // Blocks that another file uses are not shown as those of a deleted file.
        card.mounted(|at| {
            let _ = fs::write(at.join("filler"), vec![0; 48 << 20]);
        });
        let (_, found, _) = card.obento(&["undelete", "card.img", "--least", "likely"]);
        assert!(!found.contains("gone/large"), "{options:?}: {found}");
    }
}

#[test]
fn a_deleted_file_does_not_get_the_name_of_the_file_that_uses_its_inode_again() {
    if !require(&[Oracle::Root, Oracle::LoopMount, Oracle::Program("mke2fs")]) {
        return;
    }
    let card = deleted_by_the_kernel(&["-t", "ext4"]);
    card.mounted(|at| {
        let script = "mkdir d; for i in $(seq 200); do yes old | head -c $((i*700)) > d/f$i; done; sync; rm -r d; sync; \
                      for i in $(seq 60); do yes new | head -c $((i*900)) > n$i; done";
        run(program("bash").args(["-c", script]).current_dir(at)).unwrap();
    });
    let found = card.list(&["--to", "out"]);
    assert!(found.len() > 100, "{found:?}");
    let wrong: Vec<_> = found.iter().filter(|(_, path)| path.starts_with('n') && path != "new").collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn files_that_were_deleted_while_they_were_open_are_certain() {
    if !require(&[Oracle::Root, Oracle::LoopMount, Oracle::Program("mke2fs")]) {
        return;
    }
    for options in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "orphan_file"]] {
        let card = deleted_by_the_kernel(options);
        card.mounted(|at| {
            let photo = at.join("DCIM/Holiday in Rome/Photograph 2.jpeg");
            let open = fs::File::open(&photo).unwrap();
            fs::remove_file(&photo).unwrap();
            run(program("sync").arg("-f").arg(at)).unwrap();
            fs::copy(card.0.path().join("card.img"), card.0.path().join("copy.img")).unwrap();
            drop(open);
        });
        fs::rename(card.0.path().join("copy.img"), card.0.path().join("card.img")).unwrap();
        let photo = "DCIM/Holiday in Rome/Photograph 2.jpeg";
        let found = card.list(&["--least", "certain", "--to", "out"]);
        assert_eq!(found, both("certain", &[photo]), "{options:?}");
        card.same(photo, photo);
    }
}

#[test]
fn inodes_that_debugfs_lists_as_deleted_are_found() {
    if !require(&["mke2fs", "debugfs"].map(Oracle::Program)) {
        return;
    }
    let card = Card::new("vfat", fill);
    let image = card.0.path().join("card.img");
    fs::remove_file(&image).unwrap();
    let tree = card.tree();
    run(program("mke2fs").args(["-q", "-F", "-t", "ext2", "-d"]).arg(tree).arg(&image).arg("16M")).unwrap();
    for name in ["SHORT.TXT", "kept file.bin"] {
        run(program("debugfs").args(["-w", "-R", &format!("rm \"{name}\"")]).arg(&image)).unwrap();
    }
    let listed = run(program("debugfs").args(["-R", "lsdel"]).arg(&image)).unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("2 deleted inodes found"), "{listed}");
    let found = card.list(&["--to", "out"]);
    assert_eq!(found, both("certain", &["SHORT.TXT", "kept file.bin"]), "{listed}");
    card.same("SHORT.TXT", "SHORT.TXT");
    card.same("kept file.bin", "kept file.bin");
}

#[test]
fn a_search_of_a_damaged_volume_ends() {
    if !require(&[Oracle::Root, Oracle::LoopMount, Oracle::Program("mke2fs")]) {
        return;
    }
    let card = deleted_by_the_kernel(&["-t", "ext4"]);
    let image = card.0.path().join("card.img");
    let sound = fs::read(&image).unwrap();
    let mut dice = Dice(99);
    for round in 0..12 {
        let mut bytes = sound.clone();
        // Bytes that are not zero are metadata or data.
        for _ in 0..400 {
            let start = dice.below(bytes.len() as u64 - 64) as usize;
            let Some(at) = bytes[start..].iter().position(|&byte| byte != 0) else { continue };
            let at = start + at;
            let end = (at + 1 + dice.below(8) as usize).min(bytes.len());
            let value = dice.below(256) as u8;
            bytes[at..end].fill(value);
        }
        fs::write(&image, &bytes).unwrap();
        let (code, _, said) = card.obento(&["undelete", "card.img", "--least", "overwritten"]);
        assert!(matches!(code, Some(0..=2)), "{round}: {said}");
    }
}

#[test]
fn files_that_options_omit_are_counted() {
    for fs_type in TYPES {
        let card = Card::new(fs_type, fill);
        for number in 0..8 {
            card.quietly(&["rm", &format!("card.img:/DCIM/Holiday in Rome/Photograph {number}.jpeg")]);
        }
        let (code, text, said) = card.obento(&["undelete", "card.img", "*.png"]);
        assert_eq!((code, &*text), (Some(1), ""), "{said}");
        assert!(said.contains("no deleted files were selected: 8 files do not match a pattern"), "{said}");
        let mut listed = card.list(&["*.JPEG"]);
        listed.retain(|(_, path)| path.ends_with(".jpeg"));
        assert_eq!(listed.len(), 8, "the names of {fs_type} ignore case");
        // All clusters are in use again.
        fs::write(card.tree().join("large"), vec![1; 14 << 20]).unwrap();
        let _ = card.obento(&["cp", "tree/large", "card.img:/"]);
        let (code, _, said) = card.obento(&["undelete", "card.img", "*.jpeg", "--least", "certain"]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("--least certain omits 8 files (--least overwritten lists all)"), "{said}");
    }
    let card = Card::new("vfat", fill);
    let (_, _, said) = card.obento(&["undelete", "card.img"]);
    assert!(said.contains("no deleted files were found"), "{said}");
    let (_, _, said) = card.obento(&["undelete", "card.img", "--to", "card.img:/dir"]);
    assert!(said.contains("help: name a directory of the host"), "{said}");
}

/// A FAT32 volume of 100 MiB with clusters of 512 bytes, which has cluster numbers above 65535. It is empty.
fn empty_card_with_many_clusters(fill: impl FnOnce(&Path)) -> Card {
    let card = Card(tempfile::tempdir().unwrap());
    fs::create_dir(card.tree()).unwrap();
    fill(&card.tree());
    let image = card.0.path().join("card.img");
    run(program("mkfs.fat").args(["-F", "32", "-s", "1", "-C"]).arg(&image).arg("102400")).unwrap();
    card
}

/// Clears the upper half of the number of the first cluster in each deleted entry of a volume of FAT32, as Windows does when
/// it deletes a file. Returns the number of entries that had another upper half than 0.
fn clear_as_windows(image: &Path) -> usize {
    let mut bytes = fs::read(image).unwrap();
    let mut cleared = 0;
    for entry in bytes.chunks_exact_mut(32) {
        let is_deleted = entry[0] == 0xe5 && entry[11] != 0x0f;
        if is_deleted && entry[20..22] != [0, 0] {
            entry[20..22].fill(0);
            cleared += 1;
        }
    }
    fs::write(image, bytes).unwrap();
    cleared
}

#[test]
fn files_that_windows_deleted_behind_cluster_65535_are_found() {
    if !require(&[Oracle::Program("mkfs.fat")]) {
        return;
    }
    let photo = |dice: &mut Dice| {
        let len = 20_000 + dice.below(9_000);
        [b"\xff\xd8\xff\xe0".to_vec(), dice.text(len)].concat()
    };
    for is_filler_deleted in [false, true] {
        let card = empty_card_with_many_clusters(|tree| {
            let mut dice = Dice(11);
            // Clusters of 512 bytes up to number 73731, with data everywhere.
            fs::write(tree.join("a filler.bin"), vec![0x5a; 36 << 20]).unwrap();
            fs::create_dir_all(tree.join("Holiday in Rome/Evening")).unwrap();
            for number in 0..4 {
                fs::write(tree.join(format!("Holiday in Rome/Photo {number}.jpeg")), photo(&mut dice))
                    .unwrap();
                fs::write(tree.join(format!("Holiday in Rome/Evening/{number}.jpeg")), photo(&mut dice))
                    .unwrap();
            }
            fs::write(tree.join("Holiday in Rome/Evening/my notes.txt"), dice.text(3000)).unwrap();
            fs::write(tree.join("A letter.txt"), dice.text(5000)).unwrap();
        });
        let image = card.0.path().join("card.img");
        card.quietly(&["cp", "tree/a filler.bin", "card.img:/"]);
        card.quietly(&["cp", "-r", "tree/Holiday in Rome", "tree/A letter.txt", "card.img:/"]);
        card.quietly(&["rm", "-r", "card.img:/Holiday in Rome", "card.img:/A letter.txt"]);
        if is_filler_deleted {
            card.quietly(&["rm", "card.img:/a filler.bin"]);
        }
        let files = [
            "Holiday in Rome/Photo 0.jpeg",
            "Holiday in Rome/Photo 3.jpeg",
            "Holiday in Rome/Evening/0.jpeg",
            "Holiday in Rome/Evening/3.jpeg",
            "Holiday in Rome/Evening/my notes.txt",
            "A letter.txt",
        ];
        let wanted = |found: &[(String, String)]| -> Vec<String> {
            let of = |file: &&str| found.iter().find(|(_, path)| path == file).map(|found| found.0.clone());
            files.iter().map(|file| of(file).unwrap_or_default()).collect()
        };
        assert_eq!(wanted(&card.list(&[])), ["likely"; 6], "deleted by obento, which keeps the numbers");
        assert_eq!(clear_as_windows(&image), 12, "ten files and two directories");
        let found = card.list(&["--to", "out"]);
        assert_eq!(wanted(&found), ["possible"; 6], "{found:?}");
        files.iter().for_each(|file| card.same(file, file));
        let (code, text, _) = card.obento(&["undelete", "card.img", "--least", "likely"]);
        assert_eq!((code, text.as_str()), (Some(1), ""), "no guess is presented as likely");
    }
}

#[test]
fn a_file_that_windows_deleted_and_whose_contents_are_gone_is_not_presented_as_recovered() {
    if !require(&[Oracle::Program("mkfs.fat")]) {
        return;
    }
    let card = empty_card_with_many_clusters(|tree| {
        fs::write(tree.join("a filler.bin"), vec![0x5a; 36 << 20]).unwrap();
        fs::write(tree.join("A photo.jpeg"), [b"\xff\xd8\xff\xe0".to_vec(), vec![1; 9000]].concat()).unwrap();
    });
    let image = card.0.path().join("card.img");
    card.quietly(&["cp", "tree/a filler.bin", "tree/A photo.jpeg", "card.img:/"]);
    card.quietly(&["rm", "card.img:/A photo.jpeg"]);
    assert_eq!(clear_as_windows(&image), 1);
    // Another file had its clusters in the meantime, and was deleted, too.
    let mut bytes = fs::read(&image).unwrap();
    let at = bytes.windows(6).position(|part| part == b"\xff\xd8\xff\xe0\x01\x01").unwrap();
    bytes[at..at + 9004].fill(0x66);
    fs::write(&image, bytes).unwrap();
    card.quietly(&["rm", "card.img:/a filler.bin"]);
    let found = card.list(&["*.jpeg", "--least", "overwritten"]);
    assert_eq!(found, both("doubtful", &["A photo.jpeg"]));
}

#[test]
fn the_memory_does_not_grow_with_the_length_of_a_sparse_volume() {
    const TIB: u64 = 1 << 40;
    if !require(&[Oracle::Program("mke2fs")]) {
        return;
    }
    // Not every file system has such long files.
    let folder = tempfile::tempdir_in(memory_folder()).unwrap();
    let image = folder.path().join("big.img");
    fs::File::create(&image).unwrap().set_len(128 * TIB).unwrap();
    // A bit for each of the 2^31 blocks takes 256 MiB.
    let features = "^resize_inode,^has_journal,^metadata_csum,uninit_bg,64bit,sparse_super2";
    let options = "lazy_itable_init=1,nodiscard,packed_meta_blocks=1";
    let mut mke2fs = program("mke2fs");
    mke2fs.args(["-q", "-F", "-t", "ext4", "-b", "65536", "-N", "20000", "-G", "4096", "-E", options]);
    run(mke2fs.args(["-O", features]).arg(&image)).unwrap();
    let mut undelete = Command::new("sh");
    undelete.args(["-c", "ulimit -v 163840; exec \"$0\" undelete \"$1\"", env!("CARGO_BIN_EXE_obento")]);
    let output = undelete.arg(&image).output().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(messages.contains("no deleted files were found"), "{output:?}");
}
