//! `obento diff --bytes`: images that differ in known bytes, and the names of these bytes in the output.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    #[track_caller]
    fn run(&self, line: &str, code: i32) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        let output = command.current_dir(self.0.path()).args(line.split(' ')).env_clear().output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {err}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns the output for two images, the second of which has another byte at `offset`.
    #[track_caller]
    fn differ(&self, image: &[u8], offset: usize) -> String {
        fs::write(self.path("one.img"), image).unwrap();
        let mut other = image.to_vec();
        other[offset] ^= 0x40;
        fs::write(self.path("other.img"), other).unwrap();
        let said = self.run("diff --bytes one.img other.img", 1);
        let start = format!("one.img and other.img differ, first at byte {offset}");
        assert!(said.contains("\n  1 byte differs in 1 block of 4096 bytes\n"), "{said}");
        let rest = said.strip_prefix(&start).unwrap_or_else(|| panic!("{said}"));
        match rest.strip_prefix(": ") {
            Some(same) => same.lines().next().unwrap().to_owned(),
            None => rest.lines().skip(1).take(2).collect::<Vec<_>>().join("\n"),
        }
    }
}

/// Returns the position of `bytes` in `image`, where they occur once.
#[track_caller]
fn find(image: &[u8], bytes: &[u8]) -> usize {
    let mut found = image.windows(bytes.len()).enumerate().filter(|(_, window)| *window == bytes);
    let (at, _) = found.next().unwrap();
    assert!(found.next().is_none());
    at
}

#[test]
fn the_structure_in_which_two_images_first_differ_is_named() {
    let bench = Bench::new();
    fs::create_dir_all(bench.path("tree/folder")).unwrap();
    fs::write(bench.path("tree/file"), "a".repeat(6000) + "marker").unwrap();
    fs::write(bench.path("tree/folder/uncommon"), "x").unwrap();
    fs::hard_link(bench.path("tree/file"), bench.path("tree/folder/zlink")).unwrap();
    bench.run("build disk.img --from tree --owner 4660:0 --size 64M -b 1024 -q", 0);
    let image = fs::read(bench.path("disk.img")).unwrap();
    assert_eq!(bench.run("diff --bytes disk.img disk.img", 0), "");

    assert_eq!(bench.differ(&image, 17), "boot block");
    assert_eq!(bench.differ(&image, 1024 + 0x38), "super block, s_magic");
    assert_eq!(bench.differ(&image, 8193 * 1024 + 0x7f), "super block, copy in group 1, s_volume_name");
    assert_eq!(bench.differ(&image, 2048 + 64 * 3 + 0x12), "descriptor of group 3, bg_flags");
    assert_eq!(bench.differ(&image, 8194 * 1024 + 0x12), "descriptor of group 0, copy in group 1");
    assert_eq!(bench.differ(&image, 4 * 1024), "room for group descriptors in group 0");
    let field = |line: &str, name: &str| -> usize {
        let said = bench.run(line, 0);
        let line = said.lines().find(|line| line.contains(name)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    let value = |line: &str, name: &str| -> usize {
        let said = bench.run(line, 0);
        let line = said.lines().find(|line| line.contains(name)).unwrap();
        line.split_whitespace().last().unwrap().parse().unwrap()
    };
    for (name, called) in
        [("bg_block_bitmap_lo", "block bitmap of group 0"), ("bg_inode_bitmap_lo", "inode bitmap of group 0")]
    {
        let block = value("inspect group disk.img 0", name);
        assert_eq!(bench.differ(&image, block * 1024 + 1023), called);
    }
    let ino = value("stat -c %i disk.img:/file", "");
    let uid = field("inspect inode disk.img:/file", " i_uid ");
    assert_eq!(bench.differ(&image, uid), format!("inode {ino}, i_uid"));
    let extent = field("inspect inode disk.img:/file", " ee_start_lo ");
    let said = bench.differ(&image, extent);
    assert_eq!(said, format!("inode {ino}, ee_start_lo"));

    let entry = find(&image, b"uncommon");
    assert!(bench.differ(&image, entry).starts_with(
        "  one.img: directory entry 'uncommon' of '/folder', name\n  other.img: directory entry "
    ));
    assert_eq!(bench.differ(&image, entry - 8), "directory entry 'uncommon' of '/folder', inode");
    let data = find(&image, b"marker");
    assert_eq!(bench.differ(&image, data), "block 5 of the file '/file'");
    // The rest of the last block of a file belongs to no other file.
    assert_eq!(bench.differ(&image, data + 10), "block 5 of the file '/file'");
    assert_eq!(bench.differ(&image, image.len() - 1), "unused space");
    let start = field("inspect journal disk.img", " s_maxlen ");
    assert!(bench.differ(&image, start).starts_with("  one.img: block 0 of the journal, s_maxlen\n"));
}

#[test]
fn all_differences_are_counted_and_a_shorter_image_is_reported() {
    let bench = Bench::new();
    fs::write(bench.path("one.img"), [1_u8; 10_000]).unwrap();
    let mut other = [1_u8; 9000];
    other[5..8].fill(2);
    other[8500] = 3;
    fs::write(bench.path("other.img"), other).unwrap();
    assert_eq!(
        bench.run("diff --bytes one.img other.img", 1),
        "one.img and other.img differ, first at byte 5: byte 5 of unrecognised data\n  \
         1004 bytes differ in 3 blocks of 4096 bytes\n  the sizes are 10000 and 9000 bytes\n"
    );
    bench.run("diff --bytes one.img missing.img", 2);
    bench.run("diff --bytes -r one.img other.img", 2);
    bench.run("diff --bytes one.img other.img:/etc", 2);
}
