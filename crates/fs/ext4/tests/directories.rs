//! Directories that the kernel and e2fsprogs created, listed in the order of the kernel.

mod common;

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use obento_base::{Error, Name};
use obento_driver::{Cookie, FileSystem};
use obento_testkit::oracle::{LoopMount, Oracle, call, program, require, run};

const KERNEL: &[Oracle] = &[
    Oracle::Program("mke2fs"),
    Oracle::Program("debugfs"),
    Oracle::Program("tune2fs"),
    Oracle::Program("e2fsck"),
    Oracle::Program("ls"),
    Oracle::LoopMount,
];

fn make(folder: &Path, len: &str, options: &[&str]) -> PathBuf {
    let image = folder.join("image");
    let fixed = ["-q", "-F", "-m", "0"];
    call("mke2fs", [&fixed[..], options, &[image.to_str().unwrap(), len]].concat()).unwrap();
    image
}

fn debugfs(image: &Path, requests: &[&str]) {
    for request in requests {
        run(program("debugfs").args(["-w", "-R", request]).arg(image)).unwrap();
    }
}

/// Creates `count` links to one file, since only the names matter.
fn fill(image: &Path, path: &str, count: u32, name: impl Fn(u32) -> Vec<u8>) {
    let mount = LoopMount::new(image, "rw").unwrap();
    let folder = mount.path().join(path);
    fs::create_dir(&folder).unwrap();
    let file = mount.path().join("file");
    fs::write(&file, b"").unwrap();
    for n in 0..count {
        fs::hard_link(&file, folder.join(std::ffi::OsStr::from_bytes(&name(n)))).unwrap();
    }
    mount.unmount().unwrap();
}

/// Returns a name with bytes that are negative as signed characters, and in no encoding.
fn raw_name(n: u32) -> Vec<u8> {
    [&n.to_string().into_bytes()[..], &[0xff - (n % 100) as u8, b'-', 0x80 | (n % 128) as u8]].concat()
}

#[test]
fn every_hash_version_gives_the_order_of_the_kernel_and_finds_every_name() {
    if !require(KERNEL) {
        return;
    }
    for algorithm in ["legacy", "half_md4", "tea"] {
        for flags in ["ssv flags 1", "ssv flags 2"] {
            let folder = tempfile::tempdir().unwrap();
            let image = make(folder.path(), "16M", &["-t", "ext4", "-b", "1024"]);
            call("tune2fs", ["-E", &format!("hash_alg={algorithm}"), image.to_str().unwrap()]).unwrap();
            debugfs(&image, &[flags]);
            fill(&image, "wide", 5000, raw_name);
            fill_again(&image, "small", 20);
            assert_eq!(common::assert_lists_as_the_kernel(&image, "wide"), 5000);
            assert_eq!(common::assert_lists_as_the_kernel(&image, "small"), 20);
        }
    }
}

/// Creates a second directory of `count` files beside the first.
fn fill_again(image: &Path, path: &str, count: u32) {
    let mount = LoopMount::new(image, "rw").unwrap();
    fs::create_dir(mount.path().join(path)).unwrap();
    for n in 0..count {
        let name = raw_name(n);
        fs::write(mount.path().join(path).join(std::ffi::OsStr::from_bytes(&name)), b"").unwrap();
    }
    mount.unmount().unwrap();
}

#[test]
fn sixty_thousand_names_in_one_directory_with_and_without_checksums_and_an_index() {
    if !require(KERNEL) {
        return;
    }
    for options in [
        &["-t", "ext4", "-b", "1024"][..],
        &["-t", "ext4", "-O", "^metadata_csum,^64bit"],
        &["-t", "ext2", "-b", "1024"],
        &["-t", "ext3", "-b", "2048", "-O", "^dir_index"],
        &["-t", "ext2", "-O", "^filetype,^dir_index"],
    ] {
        let folder = tempfile::tempdir().unwrap();
        let image = make(folder.path(), "24M", options);
        // Without an index, each new name is searched from front to back.
        let count = if options.last().unwrap().contains("^dir_index") { 3_000 } else { 60_000 };
        fill(&image, "wide", count, |n| format!("entry-{n}").into_bytes());
        assert_eq!(common::assert_lists_as_the_kernel(&image, "wide"), count as usize);
    }
}

#[test]
fn three_levels_of_index_are_read_with_large_dir() {
    if !require(KERNEL) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // With this seed two names have the hash 0xa14579c and are in two leaves, which are sorted as one.
    let seed = "hash_seed=45a4f320-6b39-4304-b3b6-ae9ea297ef85";
    let options = ["-t", "ext4", "-b", "1024", "-O", "large_dir", "-N", "64", "-E", seed];
    let image = make(folder.path(), "64M", &options);
    fill(&image, "deep", 55_000, |n| format!("{n:0>250}").into_bytes());
    let dump = run(program("debugfs").args(["-R", "htree_dump /deep"]).arg(&image)).unwrap();
    let dump = String::from_utf8_lossy(&dump.stdout);
    assert!(dump.contains("Indirect levels: 2") && dump.contains("Hash 0x0a14579d"));
    assert_eq!(common::assert_lists_as_the_kernel(&image, "deep"), 55_000);
}

#[test]
fn blocks_larger_than_a_page_hold_entries_and_an_index_that_e2fsck_made() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck"), Oracle::Program("debugfs")]) {
        return;
    }
    let names: Vec<String> = (0..4500).map(|n| format!("entry-with-a-longer-name-{n:0>6}")).collect();
    for (size, checksums) in [("8192", "^metadata_csum"), ("65536", "metadata_csum")] {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        fs::create_dir_all(tree.join("wide")).unwrap();
        names.iter().for_each(|name| fs::write(tree.join("wide").join(name), b"").unwrap());
        let options =
            ["-t", "ext4", "-b", size, "-O", checksums, "-N", "16384", "-d", tree.to_str().unwrap()];
        let image = make(folder.path(), "512M", &options);
        let sorted = || {
            let fs = common::open(&image).unwrap();
            let dir = common::find(&fs, fs.root(), "wide");
            names.iter().step_by(13).for_each(|name| assert!(common::find(&fs, dir, name).0 > 11));
            let mut found: Vec<_> =
                common::our_order(&fs, dir).into_iter().map(|(name, _)| name.to_string()).collect();
            found.sort();
            found
        };
        assert_eq!(sorted(), names, "blocks of {size}");
        program("e2fsck").args(["-fyD"]).arg(&image).output().unwrap();
        let dump = run(program("debugfs").args(["-R", "htree_dump /wide"]).arg(&image)).unwrap();
        assert!(String::from_utf8_lossy(&dump.stdout).contains("Indirect levels: 0"));
        assert_eq!(sorted(), names, "blocks of {size} with an index");
    }
}

#[test]
fn directories_inside_the_inode_are_read_as_they_grow_out_of_it() {
    if !require(KERNEL) {
        return;
    }
    for options in [&["-t", "ext4", "-O", "inline_data"][..], &["-t", "ext4", "-O", "inline_data,^dir_index"]]
    {
        let folder = tempfile::tempdir().unwrap();
        let image = make(folder.path(), "16M", options);
        let mount = LoopMount::new(&image, "rw").unwrap();
        let names: Vec<String> = (0..24).map(|count| format!("with{count}")).collect();
        for (count, name) in names.iter().enumerate() {
            let folder = mount.path().join(name);
            fs::create_dir(&folder).unwrap();
            (0..count).for_each(|n| fs::write(folder.join(format!("inner{n}")), b"").unwrap());
        }
        mount.unmount().unwrap();
        for (count, name) in names.iter().enumerate() {
            assert_eq!(common::assert_lists_as_the_kernel(&image, name), count);
        }
    }
}

#[test]
fn names_without_case_are_found_through_an_index_that_e2fsck_made() {
    if !require(KERNEL) {
        return;
    }
    let texts: Vec<String> = (0..600)
        .map(|n| ["Straße-", "ΣΊΣΥΦΟΣ-", "Ångström-", "plain-"][n % 4].to_owned() + &n.to_string())
        .collect();
    for hash in ["half_md4", "tea", "legacy"] {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        fs::create_dir_all(tree.join("any")).unwrap();
        texts.iter().for_each(|name| fs::write(tree.join("any").join(name), name).unwrap());
        let options = [
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "casefold",
            "-E",
            "encoding=utf8,hash_seed=00112233-4455-6677-8899-aabbccddeeff",
            "-d",
        ];
        let image = make(folder.path(), "16M", &[&options[..], &[tree.to_str().unwrap()]].concat());
        call("tune2fs", ["-E", &format!("hash_alg={hash}"), image.to_str().unwrap()]).unwrap();
        // This sets the flag without a test whether the directory is empty.
        debugfs(&image, &["sif /any flags 0x40080000"]);
        let status = program("e2fsck").args(["-fyD"]).arg(&image).output().unwrap().status;
        assert_eq!(status.code().map(|code| code & !3), Some(0));
        // A scan must not replace the index: EXT4_ENC_NO_COMPAT_FALLBACK.
        debugfs(&image, &["ssv encoding_flags 2"]);
        let fs = common::open(&image).unwrap();
        let dir = common::find(&fs, fs.root(), "any");
        assert_eq!(common::our_order(&fs, dir).len(), texts.len());
        for name in &texts {
            let ino = common::find(&fs, dir, name);
            assert_eq!(common::find(&fs, dir, &name.to_uppercase()), ino);
            assert_eq!(common::find(&fs, dir, &name.to_lowercase().replace('å', "a\u{30a}")), ino);
        }
        let absent = Name::new("STRASSE-1".as_bytes()).unwrap();
        assert_eq!(fs.lookup(dir, absent), Err(Error::NotFound));
    }
}

#[test]
fn encrypted_names_are_unsupported_and_the_rest_of_the_volume_is_read() {
    if !require(KERNEL) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = make(folder.path(), "8M", &["-t", "ext4", "-O", "encrypt"]);
    fill_again(&image, "secret", 3);
    fill_again(&image, "open", 3);
    debugfs(&image, &["sif /secret flags 0x80800"]);
    let fs = common::open(&image).unwrap();
    let secret = common::find(&fs, fs.root(), "secret");
    let refused = fs.read_dir(secret, Cookie::START, &mut |_| panic!("no entry can be read"));
    assert!(matches!(refused, Err(Error::Unsupported(_))));
    let looked_up = fs.lookup(secret, Name::new(b"a").unwrap());
    assert!(matches!(looked_up, Err(Error::Unsupported(_))));
    assert_eq!(fs.parent(secret), Ok(fs.root()));
    assert_eq!(common::our_order(&fs, common::find(&fs, fs.root(), "open")).len(), 3);
}
