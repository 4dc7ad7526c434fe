//! `recover` of damaged volumes.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::process::Output;
use std::slice::from_ref;

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

/// Adds the contents of all regular files below `folder`.
fn add_contents(folder: &std::path::Path, contents: &mut Vec<Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let kind = entry.symlink_metadata().unwrap().file_type();
        if kind.is_dir() {
            add_contents(&entry, contents);
        } else if kind.is_file() {
            contents.push(fs::read(entry).unwrap());
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
    let lost = "lost\t-\tdisk.img:/\tthe root (inode 2) is not a directory; its owner, permissions and times were not \
                applied\n";
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
fn the_files_of_a_volume_with_an_overwritten_root_and_bitmap_are_recovered() {
    let Some(twins) = twins() else { return };
    let size = block_size(&twins);
    let places = ["block bitmap at ", "inode table at "].map(|wanted| group_at(&twins, wanted));
    let image = fs::File::options().write(true).open(twins.path("disk.img")).unwrap();
    let mut dice = Dice(33);
    for place in places {
        let noise = dice.text(size);
        image.write_all_at(&noise, place).unwrap();
    }
    drop(image);
    let output = twins.ours(&["recover", "disk.img", "saved"], b"");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let wanted = contents(&twins.tree());
    let found = contents(&twins.path("saved"));
    // The inodes of the first files are in the block of the root's inode.
    assert!(wanted.iter().filter(|wanted| !found.contains(wanted)).count() <= 6, "{output:?}");
    let repeated = text(&output.stderr).matches("marked as having errors").count();
    assert!(repeated <= 1, "{output:?}");
}

#[test]
fn a_volume_with_errors_in_which_no_file_is_found_is_not_a_success() {
    let Some(twins) = Twins::with(&["debugfs"], "24M", |_| {}) else { return };
    let image = twins.path("disk.img");
    let empty = twins.ours(&["recover", "disk.img", "saved"], b"");
    assert_eq!(empty.status.code(), Some(0), "{empty:?}");
    run(program("debugfs").args(["-w", "-R", "set_inode_field <2> links_count 9"]).arg(&image)).unwrap();
    let output = twins.ours(&["recover", "disk.img", "other"], b"");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("a repair of a copy found no files"), "{output:?}");
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
    // The list needs no copy.
    let listed = twins.ours(&["recover", "--list", "--map", "map", "disk.img"], b"");
    assert_eq!((listed.status.code(), text(&listed.stdout)), (Some(1), list), "{listed:?}");
    let note = "22 files read, and nothing copied: 1 damaged file, 0 unreadable entries\n";
    assert!(text(&listed.stderr).ends_with(note), "{listed:?}");
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
        list.contains("\"kind\":\"unrecovered\",\"path\":\"disk.img:/d/e\",\"state\":\"damaged\""),
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

/// Writes a map file in which the ranges `bad` are not finished, and recovers disk.img with it.
fn recover_with_map(twins: &Twins, bad: &[std::ops::Range<u64>], saved: &str) -> Output {
    let len = fs::metadata(twins.path("disk.img")).unwrap().len();
    let (mut map, mut at) = ("0x0 + 1\n".to_owned(), 0);
    for range in bad {
        if range.start > at {
            map += &format!("{at:#x} {:#x} +\n", range.start - at);
        }
        let status = if range.end == len { '?' } else { '-' };
        map += &format!("{:#x} {:#x} {status}\n", range.start, range.end - range.start);
        at = range.end;
    }
    if at < len {
        map += &format!("{at:#x} {:#x} +\n", len - at);
    }
    fs::write(twins.path("map"), map).unwrap();
    twins.ours(&["recover", "--map", "map", "disk.img", saved], b"")
}

/// Returns the files of `folder` by contents.
fn contents(folder: &std::path::Path) -> Vec<Vec<u8>> {
    let mut contents = Vec::new();
    add_contents(folder, &mut contents);
    contents.sort();
    contents
}

/// Returns the first byte of a structure of the first group.
fn group_at(twins: &Twins, wanted: &str) -> u64 {
    let output = run(program("debugfs").args(["-R", "stats"]).arg(twins.path("disk.img"))).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let at = text.find(wanted).unwrap_or_else(|| panic!("{wanted}: {text}")) + wanted.len();
    let number: String = text[at..].trim_start().chars().take_while(char::is_ascii_digit).collect();
    number.parse::<u64>().unwrap() * block_size(twins)
}

#[test]
fn a_map_with_bad_metadata_gives_all_files() {
    let Some(twins) = twins() else { return };
    let size = block_size(&twins);
    let len = fs::metadata(twins.path("disk.img")).unwrap().len();
    let wanted = contents(&twins.tree());
    let inodes = group_at(&twins, "inode table at ");
    let cases = [
        ("the last sector", len - 512..len),
        ("the first sector", 0..512),
        ("the super block", 1024..2048),
        ("the descriptors", size.max(2048)..size.max(2048) + size),
        ("the super block and the descriptors", 0..size.max(2048) + size),
        ("the end of an unfinished copy", len - (64 << 20)..len),
        ("the inode of the root", inodes..inodes + size),
    ];
    for (number, (what, bad)) in cases.into_iter().enumerate() {
        let saved = format!("saved{number}");
        let output = recover_with_map(&twins, from_ref(&bad), &saved);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{what}: {output:?}");
        let found = contents(&twins.path(&saved));
        let missing = wanted.iter().filter(|wanted| !found.contains(wanted)).count();
        // The inodes of the first files are in the block of the root's inode.
        let lost = if what == "the inode of the root" { 16 } else { 0 };
        assert!(missing <= lost, "{what}: {missing} files are missing: {output:?}");
    }
}

#[test]
fn a_map_with_a_bad_directory_block_gives_the_files_without_names() {
    let Some(twins) = twins() else { return };
    let size = block_size(&twins);
    let directory = debugfs(&twins, "bmap /d/e 0") * size;
    let output = recover_with_map(&twins, from_ref(&(directory..directory + size)), "saved");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        text(&output.stdout).starts_with("damaged\t-\tdisk.img:/d/e\tthe map does not list "),
        "{output:?}"
    );
    assert_eq!(contents(&twins.path("saved")), contents(&twins.tree()), "{output:?}");
    assert!(text(&output.stderr).contains("20 files without a name are stored in lost+found"), "{output:?}");
}

#[test]
fn a_repaired_copy_shows_no_zeros_for_bad_data() {
    // Blocks of 1 KiB: a page of memory has four.
    let Some(twins) = Twins::with(&["debugfs"], "24M", |tree| {
        fs::create_dir(tree.join("d")).unwrap();
        for number in 0..40 {
            fs::write(tree.join(format!("d/{number}")), Dice(number).text(5000)).unwrap();
        }
    }) else {
        return;
    };
    let size = block_size(&twins);
    let directory = debugfs(&twins, "bmap /d 0") * size;
    let wanted = contents(&twins.tree());
    // Some blocks after that of the directory have data of its files.
    for sector in 1..16 {
        let data = directory + size + sector * 512;
        let saved = format!("saved{sector}");
        let output = recover_with_map(&twins, &[directory..directory + size, data..data + 512], &saved);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let changed =
            contents(&twins.path(&saved)).into_iter().filter(|found| !wanted.contains(found)).count();
        let report = text(&output.stdout);
        // The directory has no range of bytes.
        let is_file = |line: &&str| line.starts_with("damaged\t") && !line.starts_with("damaged\t-\t");
        let listed = report.lines().filter(is_file).count();
        assert_eq!(changed, listed, "{sector}: {report}");
    }
}

#[test]
fn only_the_bad_bytes_of_a_map_are_zeros() {
    let Some(twins) = Twins::with(&["debugfs"], "24M", |tree| {
        fs::write(tree.join("bad"), Dice(32).text(5 << 20)).unwrap();
    }) else {
        return;
    };
    let size = block_size(&twins);
    let original = fs::read(twins.tree().join("bad")).unwrap();
    let start = debugfs(&twins, "bmap /bad 64") * size;
    assert_eq!(start, (debugfs(&twins, "bmap /bad 2000") - 1936) * size, "the file is contiguous");
    let first = 64 * size;
    for (number, len) in [512_u64, 1000, 4096, 8192, 131_072, 1 << 20].into_iter().enumerate() {
        let saved = format!("saved{number}");
        let between = len.next_multiple_of(512) + 4096;
        let (one, other) = (start + 512, start + 512 + between);
        let output = recover_with_map(&twins, &[one..one + len, other..other + 512], &saved);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let found = fs::read(twins.path(&saved).join("bad")).unwrap();
        let at = first + 512;
        let losses = [at..at + len, at + between..at + between + 512];
        let expected = |at: u64, byte| if losses.iter().any(|range| range.contains(&at)) { 0 } else { byte };
        let differs =
            (0..).zip(&found).zip(&original).find(|((at, found), byte)| expected(*at, **byte) != **found);
        assert_eq!((differs, found.len()), (None, original.len()), "{len}: {output:?}");
    }
}

#[test]
fn a_map_with_a_bad_first_fat_or_boot_sector_gives_all_files() {
    let Some(twins) = twins() else { return };
    for (number, options) in ["fat=16", "fat=32"].into_iter().enumerate() {
        let quietly = |args: &[&str]| {
            let output = twins.ours(args, b"");
            assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
        };
        let _ = fs::remove_file(twins.path("disk.img"));
        quietly(&["mkfs", "-q", "-t", "vfat", "-E", options, "disk.img", "600M"]);
        quietly(&["cp", "-r", "tree/.", "disk.img:/"]);
        let image = fs::read(twins.path("disk.img")).unwrap();
        let table = u64::from(u16::from_le_bytes([image[14], image[15]])) * 512;
        let mut cases = Vec::from_iter([table].map(|table| table..table + 4096));
        if options == "fat=32" {
            cases.push(0..512);
        }
        for (case, bad) in cases.into_iter().enumerate() {
            let saved = format!("saved{number}{case}");
            let output = recover_with_map(&twins, &[bad], &saved);
            assert_eq!(output.status.code(), Some(0), "{options} {case}: {output:?}");
            assert_eq!(contents(&twins.path(&saved)), contents(&twins.tree()), "{options} {case}");
        }
    }
}

#[test]
fn names_lost_below_a_directory_without_a_name_are_reported() {
    let Some(twins) = twins() else { return };
    let size = block_size(&twins);
    let image = twins.path("disk.img");
    let directory = debugfs(&twins, "bmap /d 0") * size;
    run(program("debugfs").args(["-w", "-R", "clri /d/e/f5"]).arg(&image)).unwrap();
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(&vec![0; usize::try_from(size).unwrap()], directory).unwrap();
    drop(file);
    let output = twins.ours(&["recover", "disk.img", "saved"], b"");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let list = text(&output.stdout);
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines.len(), 2, "{output:?}");
    assert!(lines[0].starts_with("damaged\t-\tdisk.img:/d\t"), "{list}");
    assert!(lines[1].starts_with("lost\t-\tdisk.img:/lost+found/#") && lines[1].contains("/f5\t"), "{list}");
    assert!(text(&output.stderr).contains("1 entry lost; 1 directory damaged"), "{output:?}");
}

/// Changes bytes of the inode table block of the root at the offset `at` in its inode.
fn write_to_root(twins: &Twins, at: u64, bytes: &[u8]) {
    let shown = run(program("debugfs").args(["-R", "imap <2>"]).arg(twins.path("disk.img"))).unwrap();
    let shown = text(&shown.stdout);
    let after =
        |word: &str| shown.split(word).nth(1).unwrap().split([',', '\n']).next().unwrap().trim().to_owned();
    let block: u64 = after("at block ").parse().unwrap();
    let offset = u64::from_str_radix(after("offset 0x").as_str(), 16).unwrap();
    let image = fs::File::options().write(true).open(twins.path("disk.img")).unwrap();
    image.write_all_at(bytes, block * block_size(twins) + offset + at).unwrap();
}

#[test]
fn the_attributes_of_an_arbitrary_root_are_not_those_of_the_copy() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    let Some(twins) = twins() else { return };
    let whole = fs::read(twins.path("disk.img")).unwrap();
    // A directory with another mode and owner, and a file.
    for mode in [[0xef, 0x4f, 0x34, 0x12], [0xef, 0x8f, 0x34, 0x12]] {
        write_to_root(&twins, 0, &mode);
        fs::create_dir(twins.path("kept")).unwrap();
        fs::set_permissions(twins.path("kept"), fs::Permissions::from_mode(0o751)).unwrap();
        let before = fs::metadata(twins.path("kept")).unwrap();
        for (saved, mode) in [("saved", 0o700), ("kept", 0o751)] {
            let output = twins.ours(&["recover", "disk.img", saved], b"");
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            let list = text(&output.stdout);
            assert!(list.contains("its owner, permissions and times were not applied\n"), "{list}");
            let attr = fs::metadata(twins.path(saved)).unwrap();
            assert_eq!(
                (attr.mode() & 0o7777, attr.uid(), attr.gid()),
                (mode, before.uid(), before.gid()),
                "{saved}"
            );
            fs::remove_dir_all(twins.path(saved)).unwrap();
        }
        fs::write(twins.path("disk.img"), &whole).unwrap();
    }
}

#[test]
fn files_that_use_the_same_blocks_are_reported() {
    let Some(twins) = Twins::with(&["mke2fs", "debugfs"], "24M", |tree| {
        for name in ["one", "two", "three"] {
            fs::write(tree.join(name), name.repeat(2000)).unwrap();
        }
    }) else {
        return;
    };
    let image = twins.path("disk.img");
    fs::remove_file(&image).unwrap();
    run(program("mke2fs")
        .args(["-q", "-t", "ext2", "-b", "1024", "-d"])
        .arg(twins.tree())
        .arg(&image)
        .arg("8M"))
    .unwrap();
    let block = debugfs(&twins, "bmap one 3");
    for index in [1, 2] {
        let request = format!("set_inode_field two block[{index}] {block}");
        run(program("debugfs").args(["-w", "-R", &request]).arg(&image)).unwrap();
    }
    let shared = "another file uses some of these blocks, too";
    let wanted = [
        format!("damaged\t1024-3072\tdisk.img:/two\t{shared}"),
        format!("damaged\t3072-4096\tdisk.img:/one\t{shared}"),
    ];
    for args in [&["recover", "disk.img", "saved"][..], &["recover", "--list", "disk.img"]] {
        let output = twins.ours(args, b"");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let list = text(&output.stdout);
        let mut lines: Vec<_> = list.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, wanted, "{output:?}");
        let said = text(&output.stderr);
        assert!(said.contains("2 of them damaged") || said.contains("2 damaged files"), "{said}");
    }
}

/// The block of pointers refers to itself on three levels.
#[test]
fn a_file_that_uses_one_block_without_end_is_reported_to_its_end() {
    const BLOCK: u32 = 1500;
    let Some(twins) = Twins::with(&["mke2fs", "debugfs"], "24M", |tree| {
        fs::write(tree.join("endless"), "contents").unwrap();
    }) else {
        return;
    };
    let image = twins.path("disk.img");
    fs::remove_file(&image).unwrap();
    let mut mke2fs = program("mke2fs");
    mke2fs.args(["-q", "-t", "ext2", "-b", "1024", "-d"]).arg(twins.tree());
    run(mke2fs.arg(&image).arg("2M")).unwrap();
    for field in [format!("block[TIND] {BLOCK}"), "size 17247252480".to_owned()] {
        let request = format!("set_inode_field endless {field}");
        run(program("debugfs").args(["-w", "-R", &request]).arg(&image)).unwrap();
    }
    let pointers = BLOCK.to_le_bytes().repeat(256);
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(&pointers, u64::from(BLOCK) * 1024).unwrap();
    let output = twins.ours(&["recover", "--list", "disk.img"], b"");
    let list = text(&output.stdout);
    let shared = "another file uses some of these blocks, too";
    assert_eq!(list, format!("damaged\t67384320-17247252480\tdisk.img:/endless\t{shared}\n"));
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("--max-unpacked sets this limit"), "{output:?}");
}

#[test]
fn a_file_keeps_its_blocks_if_the_inode_of_the_other_one_has_a_wrong_checksum() {
    let Some(twins) = twins() else { return };
    let image = twins.path("disk.img");
    let features = run(program("debugfs").args(["-R", "features"]).arg(&image)).unwrap();
    assert!(text(&features.stdout).contains("metadata_csum"));
    let inode = |name: &str| {
        let shown = run(program("debugfs").args(["-R", &format!("imap {name}")]).arg(&image)).unwrap();
        let shown = text(&shown.stdout);
        let after = |word: &str| {
            shown.split(word).nth(1).unwrap().split([',', '\n']).next().unwrap().trim().to_owned()
        };
        let block: u64 = after("at block ").parse().unwrap();
        block * block_size(&twins) + u64::from_str_radix(&after("offset 0x"), 16).unwrap()
    };
    let (good, bad) = (inode("good"), inode("bad"));
    let file = fs::File::options().read(true).write(true).open(&image).unwrap();
    let mut bytes = [0; 128];
    file.read_exact_at(&mut bytes, good).unwrap();
    file.write_all_at(&bytes, bad).unwrap();
    let output = twins.ours(&["recover", "disk.img", "saved"], b"");
    let list = text(&output.stdout);
    assert!(list.lines().count() == 1 && list.starts_with("damaged\t-\tdisk.img:/bad\tinode "), "{output:?}");
    same_file(&twins, "good");
}

#[test]
fn a_damaged_first_fat_is_named_and_the_second_one_shows_the_use() {
    let Some(twins) = Twins::with(&["mkfs.fat"], "24M", |tree| {
        for number in 0..20 {
            fs::write(tree.join(format!("f{number}")), vec![number; 30_000]).unwrap();
        }
    }) else {
        return;
    };
    let image = twins.path("fat.img");
    run(program("mkfs.fat").args(["-C", "-F", "16"]).arg(&image).arg("32768")).unwrap();
    assert!(twins.ours(&["cp", "-r", "tree/.", "fat.img:/"], b"").status.success());
    let info = |name: &str| {
        let text = text(&twins.ours(&["info", name], b"").stdout);
        let line =
            |start: &str| text.lines().find(|line| line.trim_start().starts_with(start)).map(str::to_owned);
        (line("use"), line("note"))
    };
    let (used, note) = info("fat.img");
    assert!(used.is_some() && note.is_none(), "{note:?}");
    let bytes = fs::read(&image).unwrap();
    let number = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let (sector, start, len) = (number(11), number(14), number(22));
    let noise = |copies: usize| {
        let mut bytes = bytes.clone();
        let mut dice = Dice(5);
        for copy in 0..copies {
            let at = (start + copy * len) * sector;
            bytes[at..at + 8192]
                .copy_from_slice(&dice.text(8192).iter().map(|byte| !byte).collect::<Vec<_>>());
        }
        fs::write(&image, bytes).unwrap();
    };
    noise(1);
    let (found, note) = info("fat.img");
    let text_of_note = "file allocation table 1 is damaged; table 2 has fewer errors";
    assert_eq!(found, used);
    assert!(note.is_some_and(|note| note.ends_with(text_of_note)));
    let output = twins.ours(&["recover", "fat.img", "saved"], b"");
    assert!(text(&output.stderr).contains(text_of_note), "{output:?}");
    for number in 0..20 {
        let name = format!("f{number}");
        assert!(
            fs::read(twins.path("saved").join(&name)).unwrap() == fs::read(twins.tree().join(&name)).unwrap()
        );
    }
    // Without a usable FAT, no use is shown.
    noise(2);
    assert!(info("fat.img").0.is_some_and(|line| line.contains("unknown: file allocation table")));
}

/// Some systems store no media type in the first entry of the FAT, and Linux does not read it.
#[test]
fn the_use_of_a_small_fat_volume_with_an_empty_first_entry_is_known() {
    let Some(twins) = Twins::with(&["mkfs.fat", "mcopy"], "24M", |_| ()) else { return };
    let image = twins.path("fat.img");
    run(program("mkfs.fat").args(["-C", "-F", "12", "-s", "2", "-r", "16", "-R", "1"]).arg(&image).arg("40"))
        .unwrap();
    let file = fs::File::options().write(true).open(&image).unwrap();
    for sector in [1, 2] {
        file.write_all_at(&[0; 3], sector * 512).unwrap();
    }
    fs::write(twins.path("f"), vec![1; 3000]).unwrap();
    run(program("mcopy").arg("-i").arg(&image).arg(twins.path("f")).arg("::")).unwrap();
    let output = twins.ours(&["df", "fat.img"], b"");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let info = text(&twins.ours(&["info", "fat.img"], b"").stdout);
    assert!(info.contains("3 KiB of 38 KiB") && !info.contains("note"), "{info}");
}

#[test]
fn inodes_that_cannot_be_read_are_reported_with_and_without_a_name() {
    let Some(twins) = Twins::with(&["mke2fs", "debugfs"], "24M", |tree| {
        fs::create_dir(tree.join("d")).unwrap();
        for number in 0..40 {
            fs::write(tree.join(format!("d/f{number}")), vec![number + 1; 3000]).unwrap();
        }
        fs::hard_link(tree.join("d/f39"), tree.join("d/second")).unwrap();
        std::os::unix::fs::symlink("f1", tree.join("d/link")).unwrap();
    }) else {
        return;
    };
    let whole = fs::read(twins.path("disk.img")).unwrap();
    let inode = |name: &str| {
        let shown = run(program("debugfs").args(["-R", &format!("imap {name}")]).arg(twins.path("disk.img")))
            .unwrap();
        let shown = text(&shown.stdout);
        let after = |word: &str| {
            shown.split(word).nth(1).unwrap().split([',', '\n']).next().unwrap().trim().to_owned()
        };
        let ino: u64 = after("Inode ").split(' ').next().unwrap().parse().unwrap();
        let block: u64 = after("at block ").parse().unwrap();
        (ino, block * block_size(&twins) + u64::from_str_radix(&after("offset 0x"), 16).unwrap())
    };
    let size = block_size(&twins);
    let (ino, at) = inode("d/f3");
    let directory = debugfs(&twins, "bmap d 0") * size;
    let lost_and_found = inode("lost+found").1;
    let mut dice = Dice(8);
    let write = |places: &[(u64, usize)], dice: &mut Dice| {
        fs::write(twins.path("disk.img"), &whole).unwrap();
        let image = fs::File::options().write(true).open(twins.path("disk.img")).unwrap();
        for &(at, len) in places {
            image.write_all_at(&dice.text(len as u64), at).unwrap();
        }
    };
    // The inode has its name.
    write(&[(at, 128)], &mut dice);
    let output = twins.ours(&["recover", "disk.img", "named"], b"");
    let list = text(&output.stdout);
    assert!(list.lines().count() == 1 && list.starts_with("lost\t-\tdisk.img:/d/f3\tinode "), "{output:?}");
    // The names of the directory are lost, too.
    write(&[(at, 128), (directory, size as usize)], &mut dice);
    let output = twins.ours(&["recover", "disk.img", "unnamed"], b"");
    let list = text(&output.stdout);
    assert!(list.contains(&format!("lost\t-\tdisk.img:#{ino}\tinode {ino}: ")), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("39 files recovered, 0 of them damaged; 1 entry lost"), "{said}");
    assert!(said.contains("39 files and 1 symbolic link without a name are stored in lost+found"), "{said}");
    // A repair creates another directory lost+found.
    write(&[(lost_and_found, 128)], &mut dice);
    let output = twins.ours(&["recover", "disk.img", "found"], b"");
    let list = text(&output.stdout);
    assert!(
        list.lines().count() == 1 && list.starts_with("lost\t-\tdisk.img:/lost+found\tinode 11"),
        "{output:?}"
    );
}

#[test]
fn more_than_ten_thousand_chains_of_fat_without_a_name_are_recovered() {
    const CHAINS: u32 = 10_050;
    let Some(twins) = Twins::with(&["mkfs.fat"], "24M", |_| {}) else { return };
    let image = twins.path("fat.img");
    run(program("mkfs.fat").args(["-C", "-F", "32", "-s", "1"]).arg(&image).arg("65536")).unwrap();
    let mut bytes = fs::read(&image).unwrap();
    let number = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let (sector, start, len) = (number(11), number(14), number(36));
    for copy in 0..2 {
        for chain in 0..CHAINS as usize {
            let at = (start + copy * len) * sector + (100 + chain) * 4;
            bytes[at..at + 4].copy_from_slice(&0x0fff_ffff_u32.to_le_bytes());
        }
    }
    fs::write(&image, bytes).unwrap();
    let output = twins.ours(&["recover", "fat.img", "saved"], b"");
    let said = text(&output.stderr);
    assert!(
        said.contains(&format!("{CHAINS} files without a name are stored with names that start with FSCK")),
        "{said}"
    );
    assert_eq!(fs::read_dir(twins.path("saved")).unwrap().count(), CHAINS as usize);
}
