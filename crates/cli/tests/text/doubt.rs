//! `recover` reports files with wrong checksums as damaged.

use std::fs;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use obento_testkit::oracle::{program, run};

use crate::support::{Dice, Twins};

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns the byte at which the inode of `path` starts. The blocks have 4096 bytes.
fn inode_at(twins: &Twins, path: &str) -> u64 {
    let request = format!("imap {path}");
    let output = run(program("debugfs").args(["-R", &request]).arg(twins.path("disk.img"))).unwrap();
    let text = text(&output.stdout);
    let words: Vec<&str> = text.split(|c: char| c.is_whitespace() || c == ',').collect();
    let after = |word: &str| words[words.iter().rposition(|found| *found == word).unwrap() + 1];
    let block: u64 = after("block").parse().unwrap();
    block * 4096 + u64::from_str_radix(after("offset").trim_start_matches("0x"), 16).unwrap()
}

/// Returns a volume with blocks of 4096 bytes and 60 short files.
fn volume(features: &str) -> Option<Twins> {
    let twins = Twins::with(&["debugfs"], "24M", |tree| {
        (0..60).for_each(|file| fs::write(tree.join(format!("f{file}")), format!("file {file}\n")).unwrap());
    })?;
    let options = ["-q", "-F", "-t", "ext4", "-b", "4096", "-O", features, "-d"];
    let image = twins.path("disk.img");
    run(program("mke2fs").args(options).arg(twins.tree()).arg(image).arg("64M")).unwrap();
    Some(twins)
}

fn write(twins: &Twins, at: u64, bytes: &[u8]) {
    let image = fs::File::options().write(true).open(twins.path("disk.img")).unwrap();
    image.write_all_at(bytes, at).unwrap();
}

#[test]
fn a_file_whose_inode_has_a_wrong_checksum_is_reported_as_damaged() {
    let Some(twins) = volume("metadata_csum") else { return };
    let inode = inode_at(&twins, "/f2");
    // A bit of the size, of the mode, and of the highest byte of the size.
    for (number, (at, value)) in [(4, 77), (1, 0x8d), (0x6f, 0x3f)].into_iter().enumerate() {
        let whole = fs::read(twins.path("disk.img")).unwrap();
        write(&twins, inode + at, &[value]);
        let saved = format!("saved{number}");
        let output = twins.ours(&["recover", "disk.img", &saved], b"");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let list = text(&output.stdout);
        assert!(
            list.starts_with("damaged\t-\tdisk.img:/f2\tinode ") && list.contains(": stored checksum is 0x"),
            "{list}"
        );
        assert_eq!(list.lines().count(), 1, "{list}");
        assert!(text(&output.stderr).contains("60 files recovered, 1 of them damaged; 0 entries lost\n"));
        let attr = fs::metadata(twins.path(&saved).join("f2")).unwrap();
        assert_eq!(attr.mode() & 0o7777, 0o600, "the mode of a doubtful file");
        assert!(attr.len() <= 4096, "{}", attr.len());
        let listed = twins.ours(&["recover", "--list", "disk.img"], b"");
        let read = list.replace("; its owner, permissions and times were not applied", "");
        assert_ne!(read, list);
        assert_eq!((listed.status.code(), text(&listed.stdout)), (Some(1), read), "{listed:?}");
        fs::write(twins.path("disk.img"), whole).unwrap();
    }
}

#[test]
fn a_list_that_ends_early_contains_the_lost_files() {
    let Some(twins) = volume("metadata_csum") else { return };
    // A FIFO with a wrong checksum is lost. It comes before the file at which the limit ends the list.
    let image = twins.path("disk.img");
    run(program("debugfs").args(["-w", "-R", "sif f0 mode 010644"]).arg(&image)).unwrap();
    write(&twins, inode_at(&twins, "/f0") + 4, &[0x7f]);
    let whole = twins.ours(&["recover", "--list", "disk.img"], b"");
    let cut = twins.ours(&["recover", "--list", "--max-unpacked", "1", "disk.img"], b"");
    assert_eq!((whole.status.code(), cut.status.code()), (Some(1), Some(2)), "{whole:?} {cut:?}");
    assert!(text(&cut.stderr).contains("--max-unpacked sets this limit"), "{cut:?}");
    for output in [whole, cut] {
        assert!(text(&output.stdout).starts_with("lost\t-\tdisk.img:/f0\t"), "{output:?}");
    }
}

#[test]
fn a_directory_whose_block_has_a_wrong_checksum_is_reported_as_damaged() {
    let Some(twins) = volume("metadata_csum") else { return };
    let output = run(program("debugfs").args(["-R", "bmap / 0"]).arg(twins.path("disk.img"))).unwrap();
    let block: u64 = text(&output.stdout).trim().parse().unwrap();
    // The last byte of the checksum.
    write(&twins, block * 4096 + 4095, b"?");
    let output = twins.ours(&["recover", "disk.img", "saved"], b"");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let list = text(&output.stdout);
    assert!(list.starts_with("damaged\t-\tdisk.img:/\tdirectory 2: stored checksum is 0x"), "{list}");
    assert!(
        text(&output.stderr)
            .contains("60 files recovered, 0 of them damaged; 0 entries lost; 1 directory damaged")
    );
}

/// Returns the paths of all entries below `folder`, and whether they may come from an inode of arbitrary bytes.
fn entries(folder: &Path, found: &mut Vec<(String, bool)>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let attr = entry.symlink_metadata().unwrap();
        let kind = attr.file_type();
        let is_special =
            kind.is_block_device() || kind.is_char_device() || kind.is_fifo() || kind.is_socket();
        found.push((entry.display().to_string(), is_special || attr.mode() & 0o6000 != 0 && !kind.is_dir()));
        if kind.is_dir() {
            entries(&entry, found);
        }
    }
}

#[test]
fn an_inode_of_arbitrary_bytes_does_not_become_a_device_or_an_unnamed_file() {
    for features in ["^metadata_csum", "metadata_csum"] {
        let Some(twins) = volume(features) else { return };
        let block = inode_at(&twins, "/f50") / 4096 * 4096;
        let original = fs::read(twins.path("disk.img")).unwrap();
        for seed in 0..12 {
            let mut dice = Dice(seed);
            let noise: Vec<u8> = (0..4096).map(|_| dice.below(256).to_le_bytes()[0]).collect();
            write(&twins, block, &noise);
            let saved = format!("saved{seed}");
            let output = twins.ours(&["recover", "disk.img", &saved], b"");
            let list = text(&output.stdout);
            let lost: Vec<&str> = list
                .lines()
                .filter(|line| line.starts_with("lost\t"))
                .filter_map(|line| line.split('\t').nth(2))
                .collect();
            for path in &lost {
                let copy = twins.path(&saved).join(path.trim_start_matches("disk.img:/"));
                assert!(copy.symlink_metadata().is_err(), "{features} {seed}: {path} is lost, but exists");
            }
            let mut found = Vec::new();
            entries(&twins.path(&saved), &mut found);
            for (path, is_wrong) in &found {
                assert!(!is_wrong, "{features} {seed}: {path} comes from arbitrary bytes");
            }
            let is_unnamed = |path: &str| path.contains("/lost+found/") && !Path::new(path).is_dir();
            let unnamed = found.iter().filter(|(path, _)| is_unnamed(path)).count();
            let note = text(&output.stderr);
            let said = note.split("note: ").find(|note| note.contains("without a name"));
            let said = said.map_or(0, |note| note.split(' ').next().unwrap().parse().unwrap());
            assert_eq!(unnamed, said, "{features} {seed}: {note}");
            let is_file = |path: &str| fs::symlink_metadata(path).unwrap().is_file();
            let files = found.iter().filter(|(path, _)| is_file(path)).count();
            assert!(
                note.contains(&format!("note: {files} files recovered")),
                "{features} {seed} {files}: {note}"
            );
            assert!(note.contains(&format!("damaged; {} entr", lost.len())), "{features} {seed}: {note}");
            fs::write(twins.path("disk.img"), &original).unwrap();
        }
    }
}

#[test]
fn files_below_a_lost_root_are_counted_as_files_without_a_name() {
    let Some(twins) = volume("^metadata_csum") else { return };
    run(program("debugfs").args(["-w", "-R", "clri <2>"]).arg(twins.path("disk.img"))).unwrap();
    let output = twins.ours(&["recover", "disk.img", "saved"], b"");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("60 files without a name are stored in lost+found"), "{output:?}");
}

#[test]
fn the_files_of_a_directory_whose_block_is_replaced_by_that_of_another_one_are_found() {
    // Without checksums, the block is a valid directory.
    let Some(twins) = volume("^metadata_csum") else { return };
    let image = twins.path("disk.img");
    for directory in ["one", "two"] {
        fs::create_dir(twins.tree().join(directory)).unwrap();
        for file in 0..9 {
            let (name, contents) = (format!("{directory}/{directory}-{file}"), format!("{directory} {file}"));
            fs::write(twins.tree().join(name), contents).unwrap();
        }
    }
    let options = ["-q", "-F", "-t", "ext4", "-b", "4096", "-O", "^metadata_csum", "-d"];
    run(program("mke2fs").args(options).arg(twins.tree()).arg(&image).arg("64M")).unwrap();
    let block = |directory: &str| {
        let output =
            run(program("debugfs").args(["-R", &format!("blocks {directory}")]).arg(&image)).unwrap();
        text(&output.stdout).trim().parse::<u64>().unwrap() * 4096
    };
    let (one, two) = (block("/one"), block("/two"));
    let bytes = fs::read(&image).unwrap();
    write(&twins, one, &bytes[two as usize..][..4096]);
    let output = twins.ours(&["recover", "disk.img", "saved"], b"");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("9 files without a name are stored in lost+found"), "{output:?}");
    let found = fs::read_dir(twins.path("saved/lost+found")).unwrap();
    let mut found: Vec<_> = found.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap()).collect();
    found.sort_unstable();
    assert_eq!(found, (0..9).map(|file| format!("one {file}")).collect::<Vec<_>>());
}

#[test]
fn the_chains_of_the_second_fat_replace_those_of_an_overwritten_first_fat() {
    let Some(twins) = volume("metadata_csum") else { return };
    let mut dice = Dice(7);
    fs::create_dir(twins.tree().join("d")).unwrap();
    for file in 0..40 {
        fs::write(twins.tree().join(format!("d/long name {file}")), dice.text(30_000)).unwrap();
    }
    for options in ["fat=12", "fat=16", "fat=32"] {
        let quietly = |args: &[&str]| {
            let output = twins.ours(args, b"");
            assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
        };
        let _ = fs::remove_file(twins.path("disk.img"));
        let size = if options == "fat=32" { "600M" } else { "12M" };
        quietly(&["mkfs", "-q", "-t", "vfat", "-E", options, "disk.img", size]);
        quietly(&["cp", "-r", "tree/.", "disk.img:/"]);
        let image = fs::read(twins.path("disk.img")).unwrap();
        let start = u64::from(u16::from_le_bytes([image[14], image[15]])) * 512;
        let mut noise = |_| dice.below(256).to_le_bytes()[0];
        let first_fats: [Vec<u8>; 2] = [(0..4096).map(&mut noise).collect(), vec![0; 4096]];
        for (number, first) in first_fats.into_iter().enumerate() {
            write(&twins, start, &first);
            let saved = format!("saved {options} {number}");
            let output = twins.ours(&["recover", "disk.img", &saved], b"");
            assert_eq!(output.status.code(), Some(0), "{options}: {output:?}");
            for file in 0..40 {
                let name = format!("d/long name {file}");
                let (copy, original) = (twins.path(&saved).join(&name), twins.tree().join(&name));
                assert!(fs::read(copy).unwrap() == fs::read(original).unwrap(), "{options}: {name}");
            }
        }
    }
}
