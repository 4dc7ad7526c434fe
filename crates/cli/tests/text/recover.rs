//! `recover` of damaged volumes.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::process::Output;

use obento_testkit::oracle::{program, run};

use crate::support::{Dice, Twins};

fn twins() -> Option<Twins> {
    let mut dice = Dice(31);
    Twins::with(&["debugfs"], "600M", |tree| {
        fs::create_dir_all(tree.join("d/e")).unwrap();
        for file in 0..20 {
            fs::write(tree.join(format!("d/e/f{file}")), dice.text(20_000)).unwrap();
        }
        fs::write(tree.join("good"), dice.text(50_000)).unwrap();
        fs::write(tree.join("bad"), dice.text(50_000)).unwrap();
    })
}

/// Returns the number in the answer of debugfs to `request`.
fn debugfs(twins: &Twins, request: &str) -> u64 {
    let output = run(program("debugfs").args(["-R", request]).arg(twins.path("disk.img"))).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().find_map(|word| word.parse().ok()).unwrap_or_else(|| panic!("{request}: {text}"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn block_size(twins: &Twins) -> u64 {
    let output = run(program("debugfs").args(["-R", "stats"]).arg(twins.path("disk.img"))).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Block size:")).unwrap();
    line.trim().parse().unwrap()
}

#[track_caller]
fn same_file(twins: &Twins, name: &str) {
    let (copy, original) = (twins.path("saved").join(name), twins.tree().join(name));
    assert!(fs::read(copy).unwrap() == fs::read(original).unwrap(), "{name}");
}

#[test]
fn an_undamaged_volume_is_recovered_whole() {
    let Some(twins) = twins() else { return };
    let output = twins.ours(&["recover", "disk.img", "saved"], b"");
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), String::new()));
    assert!(text(&output.stderr).contains("0 of them damaged; 0 entries lost"), "{output:?}");
    same_file(&twins, "bad");
    same_file(&twins, "d/e/f7");
    // A second recovery would mix with the first one.
    let again = twins.ours(&["recover", "disk.img", "saved"], b"");
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("the directory is not empty"));
}

/// Adds the contents of all files below `folder`.
fn add_contents(folder: &std::path::Path, contents: &mut Vec<Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        match entry.is_dir() {
            true => add_contents(&entry, contents),
            false => contents.push(fs::read(entry).unwrap()),
        }
    }
}

#[test]
fn the_files_of_a_volume_whose_root_is_not_a_directory_are_recovered() {
    let Some(twins) = twins() else { return };
    let image = twins.path("disk.img");
    run(program("debugfs").args(["-w", "-R", "set_inode_field <2> mode 0100755"]).arg(&image)).unwrap();
    let before = fs::read(&image).unwrap();
    let output = twins.ours(&["recover", "disk.img", "saved"], b"");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let lost = "lost\t-\tdisk.img:/\tthe root (inode 2) is not a directory\n";
    assert_eq!(text(&output.stdout), lost, "{output:?}");
    let mut found = Vec::new();
    add_contents(&twins.path("saved"), &mut found);
    for name in ["good", "bad", "d/e/f0", "d/e/f19"] {
        let wanted = fs::read(twins.tree().join(name)).unwrap();
        assert!(found.contains(&wanted), "{name} is not recovered: {output:?}");
    }
    assert!(fs::read(&image).unwrap() == before, "the image was changed");
}

#[test]
fn a_map_of_ddrescue_shows_which_files_are_damaged() {
    let Some(twins) = twins() else { return };
    let size = block_size(&twins);
    // The second block of the file was not read.
    let start = debugfs(&twins, "bmap /bad 1") * size;
    let len = fs::metadata(twins.path("disk.img")).unwrap().len();
    let map = format!(
        "# Mapfile. Created by GNU ddrescue\n{start:#x} ? 1\n0x0 {start:#x} +\n{start:#x} {size:#x} -\n{:#x} {:#x} +\n",
        start + size,
        len - start - size
    );
    fs::write(twins.path("map"), map).unwrap();
    let output: Output =
        twins.ours(&["recover", "--map", "map", "disk.img", "saved", "--report", "list"], b"");
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()), "{output:?}");
    let list = fs::read_to_string(twins.path("list")).unwrap();
    let expected = format!("damaged\t{size}-{}\tdisk.img:/bad\t", 2 * size);
    assert!(list.starts_with(&expected) && list.lines().count() == 1, "{list}");
    same_file(&twins, "good");
    same_file(&twins, "d/e/f19");
    let (found, mut expected) =
        (fs::read(twins.path("saved/bad")).unwrap(), fs::read(twins.tree().join("bad")).unwrap());
    let lost = usize::try_from(size).unwrap();
    expected[lost..2 * lost].fill(0);
    assert!(found == expected);
    let bad = twins.ours(&["recover", "--map", "list", "disk.img", "other"], b"");
    assert_eq!(bad.status.code(), Some(2));
    assert!(text(&bad.stderr).contains("ddrescue"), "{bad:?}");
}

#[test]
fn the_rest_of_a_volume_with_overwritten_metadata_is_recovered() {
    let Some(twins) = twins() else { return };
    let size = block_size(&twins);
    let image = fs::File::options().write(true).open(twins.path("disk.img")).unwrap();
    // Neither the primary super block nor the block of a directory can be read.
    let directory = debugfs(&twins, "bmap /d/e 0") * size;
    image.write_all_at(&vec![0x5a; usize::try_from(size).unwrap()], directory).unwrap();
    image.write_all_at(&[0xff; 1024], 1024).unwrap();
    drop(image);
    let output = twins.ours(&["recover", "disk.img", "saved", "--json"], b"");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let list = text(&output.stdout);
    assert!(
        list.contains("\"kind\":\"unrecovered\",\"path\":\"disk.img:/d/e\",\"state\":\"lost\""),
        "{list}"
    );
    assert!(list.contains("\"kind\":\"recovered\""), "{list}");
    same_file(&twins, "good");
    same_file(&twins, "bad");
    // The files of the lost directory have no name.
    let mut found = Vec::new();
    add_contents(&twins.path("saved"), &mut found);
    for number in 0..20 {
        let wanted = fs::read(twins.tree().join(format!("d/e/f{number}"))).unwrap();
        assert!(found.contains(&wanted), "f{number} is not recovered: {list}");
    }
    assert!(list.contains("\"unnamed\":20,"), "{list}");
}
