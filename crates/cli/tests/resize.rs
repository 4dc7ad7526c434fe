//! `obento resize` against resize2fs, dumpe2fs, e2fsck and the kernel.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use obento_testkit::oracle::{LoopMount, Oracle, call, require};

const ORACLES: [Oracle; 5] = [
    Oracle::Program("mke2fs"),
    Oracle::Program("resize2fs"),
    Oracle::Program("dumpe2fs"),
    Oracle::Program("e2fsck"),
    Oracle::Program("debugfs"),
];

struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        command.current_dir(self.0.path()).args(line.split(' '));
        command
    }

    #[track_caller]
    fn run(&self, line: &str, code: i32) -> (String, String) {
        let output = self.command(line).output().unwrap();
        let (text, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{line}: {text}{said}");
        (text, said)
    }

    #[track_caller]
    fn judged(&self, line: &str) -> String {
        // A word contains a no-break space for a space.
        let mut words = line.split(' ').map(|word| word.replace('\u{a0}', " "));
        let mut command = obento_testkit::oracle::program(&words.next().unwrap());
        let output = command.current_dir(self.0.path()).args(words).output().unwrap();
        assert!(output.status.success(), "{line}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }

    /// Creates `image` of `len` bytes with a tree of some files.
    fn make(&self, options: &str, len: u64) {
        self.make_named("image", options, len);
    }

    fn make_named(&self, name: &str, options: &str, len: u64) {
        File::create(self.path(name)).unwrap().set_len(len).unwrap();
        let tree = self.path("tree");
        if !tree.exists() {
            fs::create_dir_all(tree.join("dir/inner")).unwrap();
            for (at, file) in (1..).zip(["a", "dir/b", "dir/inner/c"]) {
                fs::write(tree.join(file), vec![at; usize::from(at) * 70_001]).unwrap();
            }
        }
        self.judged(&format!("mke2fs -q -F -E no_copy_xattrs {options} -d tree {name}"));
    }

    /// Checks that the volume is sound for e2fsck and obento, and that its files are those of the tree.
    #[track_caller]
    fn expect_sound(&self, image: &str, what: &str) {
        call("e2fsck", [Path::new("-fn"), &self.path(image)])
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        self.run(&format!("check -q {image}"), 0);
        let output = self.command(&format!("diff -r tree {image}:/")).output().unwrap();
        let only = format!("Only in {image}:/: lost+found\n");
        assert_eq!((text(&output.stdout), output.status.code()), (only, Some(1)), "{what}");
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The lines of dumpe2fs that do not depend on the time and the way of the change.
fn shape(dump: &str) -> Vec<&str> {
    // The checksum covers the times. resize2fs adds the KiB that it writes, and does not use the journal.
    const IGNORED: [&str; 4] = ["Last write time:", "Checksum:", "Lifetime writes:", "Journal sequence:"];
    dump.lines().filter(|line| !IGNORED.iter().any(|start| line.starts_with(start))).collect()
}

/// A kind of volume, its length in MiB, and the lengths to which it grows.
type Shape = (&'static str, u64, &'static [u64]);

const SHAPES: &[Shape] = &[
    ("-t ext4 -b 1024", 20, &[100]),
    ("-t ext4 -b 1024", 20, &[21, 30, 100]),
    ("-t ext4 -b 2048 -g 2048", 20, &[70]),
    ("-t ext4 -b 4096", 100, &[130, 3000]),
    ("-t ext4 -b 4096 -g 2048 -G 4", 20, &[30, 64, 250]),
    ("-t ext3 -b 1024", 20, &[60]),
    ("-t ext3 -b 4096 -g 2048", 20, &[33, 90]),
    ("-t ext2 -b 1024", 20, &[90]),
    ("-t ext2 -b 4096 -g 4096", 20, &[24, 90]),
    ("-t ext4 -b 1024 -O ^resize_inode", 20, &[40, 60]),
    ("-t ext4 -b 1024 -O meta_bg,^resize_inode -g 1024", 20, &[31, 80]),
    ("-t ext2 -b 1024 -O meta_bg,^resize_inode -g 1024", 20, &[80]),
    ("-t ext4 -b 1024 -O ^flex_bg", 20, &[29, 100]),
    ("-t ext4 -b 1024 -O sparse_super2", 20, &[60]),
    ("-t ext4 -b 4096 -O sparse_super2 -E num_backup_sb=1 -g 2048", 20, &[60]),
    ("-t ext4 -b 4096 -O bigalloc -C 16384", 100, &[160, 400]),
    ("-t ext4 -b 1024 -O ^metadata_csum,uninit_bg", 20, &[60]),
    ("-t ext4 -b 1024 -O ^metadata_csum,^uninit_bg,^has_journal", 20, &[60]),
    ("-t ext4 -b 1024 -O ^64bit", 20, &[80]),
    ("-t ext4 -b 1024 -O 64bit -g 1024", 20, &[40]),
    ("-t ext4 -b 1024 -O ^sparse_super,^resize_inode", 20, &[60]),
    ("-t ext4 -b 1024 -I 128 -N 128", 20, &[60]),
    ("-t ext4 -b 1024 -N 8000", 20, &[60]),
    ("-t ext4 -b 4096 -O orphan_file,metadata_csum_seed -g 4096", 40, &[100]),
];

#[test]
fn volumes_grow_to_the_shape_that_resize2fs_gives_them() {
    if !require(&ORACLES) {
        return;
    }
    let bench = Bench::new();
    let mut not_compared = Vec::new();
    for &(options, len, steps) in SHAPES {
        bench.make(options, len << 20);
        fs::copy(bench.path("image"), bench.path("peer")).unwrap();
        for step in steps {
            let what = format!("{options} {len}M {steps:?} at {step}M");
            bench.run(&format!("resize -q image {step}M"), 0);
            bench.expect_sound("image", &what);
            // bigalloc requires -f.
            bench.judged(&format!("resize2fs -f peer {step}M"));
            if call("e2fsck", [Path::new("-fn"), &bench.path("peer")]).is_err() {
                not_compared.push(options);
                continue;
            }
            let (ours, theirs) = (bench.judged("dumpe2fs -h image"), bench.judged("dumpe2fs -h peer"));
            assert_eq!(shape(&ours), shape(&theirs), "{what}");
        }
    }
    // e2fsck finds errors after resize2fs: wrong counts of free clusters, and an old backup that is still in use.
    let failing = [
        "-t ext4 -b 4096 -O sparse_super2 -E num_backup_sb=1 -g 2048",
        "-t ext4 -b 4096 -O bigalloc -C 16384",
    ];
    not_compared.dedup();
    assert_eq!(not_compared, failing);
}

/// A kind of volume whose contents are in all groups, its length in MiB, and the length to which it shrinks.
const SHRINKING: &[(&str, u64, u64)] = &[
    ("-t ext4 -b 1024", 120, 60),
    ("-t ext4 -b 4096 -g 2048 -G 4", 120, 50),
    ("-t ext4 -b 4096", 300, 100),
    ("-t ext3 -b 1024", 120, 60),
    ("-t ext2 -b 1024 -N 2000", 120, 60),
    ("-t ext4 -b 1024 -O ^flex_bg", 120, 45),
    ("-t ext4 -b 1024 -O ^metadata_csum,uninit_bg", 120, 60),
    ("-t ext4 -b 1024 -O 64bit -g 1024", 100, 50),
    ("-t ext4 -b 1024 -O ^64bit,^resize_inode", 120, 60),
    ("-t ext4 -b 1024 -O meta_bg,^resize_inode -g 1024", 120, 50),
    ("-t ext4 -b 1024 -O meta_bg,^resize_inode,^64bit,^flex_bg -g 1024", 120, 60),
    ("-t ext3 -b 1024 -O meta_bg,^resize_inode -g 1024", 120, 50),
    ("-t ext2 -b 1024 -O meta_bg,^resize_inode -g 1024 -N 2000", 120, 60),
    ("-t ext4 -b 4096 -O orphan_file,metadata_csum_seed -g 4096", 120, 50),
];

#[test]
fn volumes_shrink_and_keep_all_files() {
    if !require(&ORACLES) {
        return;
    }
    let bench = Bench::new();
    for &(options, len, step) in SHRINKING {
        bench.make(options, len << 20);
        // Files at the end of the volume: fill it, and remove what is at the start.
        fs::write(bench.path("large"), vec![7; usize::try_from(len).unwrap() << 19]).unwrap();
        bench.run("cp large image:/ballast", 0);
        bench.run("mkdir image:/dir/late", 0);
        bench.run("cp -r tree image:/dir/late/", 0);
        bench.run("rm image:/ballast", 0);
        bench.run("rm -r image:/dir/late/tree/dir", 0);
        let what = format!("{options} to {step}M");
        fs::copy(bench.path("image"), bench.path("before")).unwrap();
        bench.run(&format!("resize -q image {step}M"), 0);
        assert_eq!(fs::metadata(bench.path("image")).unwrap().len(), step << 20, "{what}");
        expect_unchanged(&bench, &what);
        let (said, _) = bench.run("resize image --minimum", 0);
        assert!(said.contains("shrank"), "{what}: {said}");
        expect_unchanged(&bench, &what);
        // Without a journal, inodes get no other numbers, so that resize2fs makes such volumes smaller.
        if !options.starts_with("-t ext2") {
            let ours = fs::metadata(bench.path("image")).unwrap().len();
            fs::copy(bench.path("before"), bench.path("peer")).unwrap();
            bench.judged("e2fsck -fp peer");
            bench.judged("resize2fs -M peer");
            let peer = fs::metadata(bench.path("peer")).unwrap().len();
            assert!(ours <= peer, "{what}: {ours} bytes, and {peer} by resize2fs");
        }
        bench.run("resize -q image +64M", 0);
        expect_unchanged(&bench, &what);
    }
}

#[test]
fn a_large_directory_whose_inode_gets_another_number_keeps_its_index() {
    if !require(&ORACLES) {
        return;
    }
    let bench = Bench::new();
    for (dir, count) in [("tree/early", 8_100), ("big", 4_000)] {
        fs::create_dir_all(bench.path(dir)).unwrap();
        for number in 0..count {
            File::create(bench.path(&format!("{dir}/a-file-with-a-rather-long-name-{number:06}"))).unwrap();
        }
    }
    File::create(bench.path("image")).unwrap().set_len(120 << 20).unwrap();
    bench.judged("mke2fs -q -F -t ext4 -b 1024 -N 15000 -d tree image");
    // The first eight groups have no free inode.
    bench.run("cp -r big image:/", 0);
    bench.run("rm -r image:/early", 0);
    let index = bench.judged("debugfs -R htree_dump\u{a0}/big image");
    assert!(index.contains("Indirect levels: 1"), "{}", index.get(..400).unwrap_or(&index));
    fs::copy(bench.path("image"), bench.path("before")).unwrap();
    bench.run("resize -q image 60M", 0);
    expect_unchanged(&bench, "a large directory");
    let stat = bench.judged("debugfs -R stat\u{a0}/big image");
    let ino: u32 = stat.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(ino < 8_000, "{stat}");
}

#[test]
fn a_partition_shrinks_after_its_volume_and_the_next_one_stays() {
    if !require(&ORACLES) || !require(&[Oracle::Program("sfdisk")]) {
        return;
    }
    let bench = Bench::new();
    for table in ["gpt", "dos"] {
        bench.make_named("volume", "-t ext4 -b 1024", 64 << 20);
        File::create(bench.path("disk")).unwrap().set_len(200 << 20).unwrap();
        let script = format!("label: {table}\nstart=1MiB,size=64MiB\nstart=65MiB,size=16MiB\n");
        fs::write(bench.path("script"), script).unwrap();
        call("sh", ["-c", &format!("cd {} && sfdisk -q disk < script", bench.0.path().display())]).unwrap();
        bench.judged("dd if=volume of=disk bs=1M seek=1 conv=notrunc status=none");
        fs::write(bench.path("next"), vec![9; 16 << 20]).unwrap();
        bench.judged("dd if=next of=disk bs=1M seek=65 conv=notrunc status=none");
        let (said, _) = bench.run("--json resize disk@1 --minimum", 0);
        let number = |key: &str| -> u64 {
            let rest = said.split_once(&format!("\"{key}\":")).unwrap().1;
            rest.split([',', '}']).next().unwrap().trim().parse().unwrap()
        };
        let len = number("size");
        assert!(len < 32 << 20 && number("partition_size") == len.next_multiple_of(512), "{table}: {said}");
        let sectors = len.div_ceil(512);
        let dump = bench.judged("sfdisk -d disk");
        assert!(dump.contains(&format!("start=        2048, size=       {sectors:>5},")), "{dump}");
        let disk = fs::read(bench.path("disk")).unwrap();
        assert!(disk[65 << 20..81 << 20].iter().all(|&byte| byte == 9), "{table}");
        fs::write(bench.path("volume"), &disk[1 << 20..(1 << 20) + usize::try_from(len).unwrap()]).unwrap();
        bench.expect_sound("volume", table);
    }
}

#[test]
fn a_file_with_other_data_after_the_volume_keeps_its_length() {
    if !require(&ORACLES) {
        return;
    }
    let bench = Bench::new();
    bench.make("-t ext4 -b 1024", 40 << 20);
    File::options().write(true).open(bench.path("image")).unwrap().set_len(64 << 20).unwrap();
    let note = "the image file keeps its length, because other data may follow the volume";
    let (said, noted) = bench.run("resize image 30M --dry-run", 0);
    assert!(said.contains("would shrink from 40 MiB to 30 MiB") && noted.contains(note), "{said}{noted}");
    let (said, noted) = bench.run("resize image 30M", 0);
    assert!(said.contains("shrank from 40 MiB to 30 MiB") && noted.contains(note), "{said}{noted}");
    assert_eq!(fs::metadata(bench.path("image")).unwrap().len(), 64 << 20);
    bench.expect_sound("image", "30M");
    let (said, _) = bench.run("resize image --minimum --dry-run", 0);
    assert!(said.contains("would shrink from 30 MiB to at most "), "{said}");
}

/// Checks that the volume is sound, and that its files are those of `before`.
#[track_caller]
fn expect_unchanged(bench: &Bench, what: &str) {
    call("e2fsck", [Path::new("-fn"), &bench.path("image")])
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    bench.run("check -q image", 0);
    let (found, _) = bench.run("diff -r before:/ image:/", 0);
    assert_eq!(found, "", "{what}");
}

#[test]
fn the_kernel_reads_and_writes_grown_and_shrunk_volumes() {
    if !require(&ORACLES) || !require(&[Oracle::LoopMount]) {
        return;
    }
    let bench = Bench::new();
    for options in ["-t ext4 -b 1024", "-t ext2 -b 4096 -g 2048", "-t ext4 -b 1024 -O ^resize_inode -g 1024"]
    {
        bench.make(options, 20 << 20);
        bench.run("resize -q image 150M", 0);
        let mount = LoopMount::new(&bench.path("image"), "").unwrap();
        assert_eq!(fs::read(mount.path().join("dir/b")).unwrap(), vec![2; 140_002], "{options}");
        // More than the old volume has.
        fs::write(mount.path().join("large"), vec![9; 60 << 20]).unwrap();
        mount.unmount().unwrap();
        call("e2fsck", [Path::new("-fn"), &bench.path("image")]).unwrap();
        bench.run("cp image:/large large", 0);
        assert_eq!(fs::metadata(bench.path("large")).unwrap().len(), 60 << 20, "{options}");
        bench.run("rm image:/large", 0);
        bench.run("resize -q image 40M", 0);
        let mount = LoopMount::new(&bench.path("image"), "").unwrap();
        assert_eq!(fs::read(mount.path().join("dir/b")).unwrap(), vec![2; 140_002], "{options}");
        fs::write(mount.path().join("new"), vec![8; 10 << 20]).unwrap();
        mount.unmount().unwrap();
        call("e2fsck", [Path::new("-fn"), &bench.path("image")]).unwrap();
    }
}

#[test]
fn meta_bg_takes_over_when_no_descriptor_blocks_are_reserved() {
    if !require(&ORACLES) {
        return;
    }
    let bench = Bench::new();
    // The number of descriptor blocks before the first one that meta_bg places.
    for (options, first) in [
        ("-t ext4 -b 1024 -g 1024 -O 64bit,^resize_inode", 2),
        ("-t ext4 -b 1024 -g 1024 -O 64bit -E resize=50000", 4),
        ("-t ext2 -b 1024 -g 1024 -O ^resize_inode", 1),
        ("-t ext4 -b 1024 -g 1024 -O 64bit,sparse_super2,^resize_inode", 2),
    ] {
        bench.make(options, 20 << 20);
        let mut notes = 0;
        for step in [60, 61, 120] {
            let (_, said) = bench.run(&format!("resize -q image {step}M"), 0);
            notes += u32::from(said.contains("meta_bg"));
            bench.expect_sound("image", options);
        }
        assert_eq!(notes, 1, "{options}");
        let dump = bench.judged("dumpe2fs -h image");
        assert!(dump.contains("meta_bg") && !dump.contains("resize_inode"), "{options}: {dump}");
        let found = dump.lines().find_map(|line| line.strip_prefix("First meta block group:"));
        assert_eq!(found.map(str::trim), Some(first.to_string().as_str()), "{options}: {dump}");
        // resize2fs continues from there.
        bench.judged("resize2fs image 200M");
        bench.expect_sound("image", options);
        if options.contains("sparse_super2") {
            continue;
        }
        // Without a group that meta_bg lays out, the feature is removed, as by resize2fs.
        fs::copy(bench.path("image"), bench.path("peer")).unwrap();
        for step in [50, 14] {
            bench.run(&format!("resize -q image {step}M"), 0);
            bench.expect_sound("image", options);
            bench.judged("e2fsck -fp peer");
            bench.judged(&format!("resize2fs peer {step}M"));
            let has_feature = |image: &str| bench.judged(&format!("dumpe2fs -h {image}")).contains("meta_bg");
            assert_eq!(has_feature("image"), has_feature("peer"), "{options} to {step}M");
        }
        bench.run("resize -q image 60M", 0);
        bench.expect_sound("image", options);
    }
}

#[test]
fn sizes_are_given_as_numbers_as_differences_and_by_the_image() {
    if !require(&ORACLES) {
        return;
    }
    let bench = Bench::new();
    bench.make("-t ext4 -b 4096", 32 << 20);
    let (said, _) = bench.run("resize image +32M --dry-run", 0);
    assert_eq!(said, "image: ext4 would grow from 32 MiB to 64 MiB (67108864 bytes)\n");
    assert_eq!(fs::metadata(bench.path("image")).unwrap().len(), 32 << 20);
    let (said, _) = bench.run("resize image +32M", 0);
    assert_eq!(said, "image: ext4 grew from 32 MiB to 64 MiB (67108864 bytes)\n");
    let (said, _) = bench.run("resize image --maximum", 0);
    assert_eq!(said, "image: ext4 already has 64 MiB (67108864 bytes)\n");
    File::options().write(true).open(bench.path("image")).unwrap().set_len(100 << 20).unwrap();
    let (said, _) = bench.run("--json resize image --maximum", 0);
    assert!(said.contains("\"old_size\":67108864,\"size\":104857600,\"dry_run\":false"), "{said}");
    bench.expect_sound("image", "maximum");
}

#[test]
fn a_partition_grows_with_its_volume_into_the_free_space() {
    if !require(&ORACLES) || !require(&[Oracle::Program("sfdisk")]) {
        return;
    }
    let bench = Bench::new();
    for table in ["gpt", "dos"] {
        bench.make_named("volume", "-t ext4 -b 4096", 32 << 20);
        File::create(bench.path("disk")).unwrap().set_len(200 << 20).unwrap();
        let script = format!("label: {table}\nstart=1MiB,size=32MiB\nstart=120MiB,size=16MiB\n");
        fs::write(bench.path("script"), script).unwrap();
        call("sh", ["-c", &format!("cd {} && sfdisk -q disk < script", bench.0.path().display())]).unwrap();
        bench.judged("dd if=volume of=disk bs=1M seek=1 conv=notrunc status=none");
        let (said, _) = bench.run("resize disk@1 100M", 0);
        assert!(said.contains("grew from 32 MiB to 100 MiB"), "{said}");
        assert!(bench.run("part disk", 0).0.contains("105906176"), "{table}");
        bench.judged("dd if=disk of=volume bs=1M skip=1 count=100 status=none");
        bench.expect_sound("volume", table);
        let (_, said) = bench.run("resize disk@1 150M", 2);
        assert!(said.contains("partition 1 can have at most 124780544 bytes"), "{said}");
        assert!(said.contains("help: run 'obento part disk' to list the free space"), "{said}");
        assert!(said.contains("truncate -s +SIZE disk"), "{said}");
    }
}

#[test]
fn space_that_a_volume_cannot_use_is_not_added_to_its_image_or_partition() {
    let bench = Bench::new();
    for (kind, name, part) in [
        ("ext4 -b 4096", "file.img", ""),
        ("exfat", "file.img", ""),
        ("vfat", "file.img", ""),
        ("ext4 -b 4096", "disk.img", "@1"),
        ("exfat", "disk.img", "@1"),
    ] {
        let image = bench.path(name);
        File::create(&image).unwrap().set_len(48 << 20).unwrap();
        if !part.is_empty() {
            bench.run("part disk.img create gpt", 0);
            bench.run("part disk.img add --size 20M", 0);
        }
        bench.run(&format!("mkfs -q -F -t {kind} {name}{part}"), 0);
        let before = fs::read(&image).unwrap();
        let (said, _) = bench.run(&format!("resize {name}{part} +1K"), 0);
        assert!(said.contains("already has"), "{kind} {name}: {said}");
        assert!(fs::read(&image).unwrap() == before, "{kind} {name}: the image changed");
    }
}

#[test]
fn sizes_and_images_that_are_not_supported_are_refused() {
    if !require(&ORACLES) || !require(&[Oracle::Program("qemu-img")]) {
        return;
    }
    let bench = Bench::new();
    bench.make("-t ext4 -b 1024", 32 << 20);
    let before = fs::read(bench.path("image")).unwrap();
    let refused = |line: &str, why: &str| {
        let (_, said) = bench.run(line, 2);
        assert!(said.contains(why), "{line}: {said}");
    };
    refused("resize image 1M", "the contents do not fit; a size of ");
    refused("resize image 1M", "help: use --minimum, which may shrink the volume further");
    refused("resize image", "missing argument: SIZE, --maximum or --minimum");
    refused("resize image 5X", "not a size");
    refused("resize image:/dir 64M", "a path inside an image");
    assert!(fs::read(bench.path("image")).unwrap() == before);

    bench.judged("qemu-img convert -O qcow2 image disk.qcow2");
    refused("resize disk.qcow2 64M", "cannot become longer");
    bench.judged("qemu-img resize -q disk.qcow2 64M");
    bench.run("resize disk.qcow2 --maximum", 0);
    bench.judged("qemu-img check -q disk.qcow2");
    bench.judged("qemu-img convert -O raw disk.qcow2 raw");
    bench.expect_sound("raw", "qcow2");
}

#[test]
fn a_volume_that_needs_a_check_is_refused_until_it_is_checked() {
    if !require(&ORACLES) {
        return;
    }
    let bench = Bench::new();
    bench.make("-t ext4 -b 1024", 32 << 20);
    call("debugfs", ["-w", "-R", "ssv state 2", bench.path("image").to_str().unwrap()]).unwrap();
    let (_, said) = bench.run("resize image 64M", 2);
    assert!(said.contains("marked as having errors"), "{said}");
    assert!(said.contains("help: run 'obento check -y image' first"), "{said}");
    bench.run("check -p -q image", 0);
    bench.run("resize -q image 64M", 0);
    bench.expect_sound("image", "checked");
}

#[test]
fn a_damaged_volume_is_neither_grown_nor_shrunk_and_keeps_its_bytes() {
    if !require(&ORACLES) {
        return;
    }
    let bench = Bench::new();
    bench.make("-t ext4 -b 1024", 32 << 20);
    // The root directory loses its map.
    call("debugfs", ["-w", "-R", "sif <2> block[5] 0x00ffffff", bench.path("image").to_str().unwrap()])
        .unwrap();
    let before = fs::read(bench.path("image")).unwrap();
    for size in ["64M", "16M", "--minimum"] {
        let (_, said) = bench.run(&format!("resize image {size}"), 2);
        assert!(said.contains("help: run 'obento check -y image' first"), "{size}: {said}");
        assert!(fs::read(bench.path("image")).unwrap() == before, "{size}");
    }
    bench.run("check -y -q image", 1);
    bench.run("resize -q image 64M", 0);
    bench.judged("e2fsck -fn image");
}

#[test]
fn a_fat_volume_shrinks_and_grows_with_its_image_file_and_its_partition() {
    let oracles = ["mkfs.fat", "fsck.fat", "sfdisk"].map(Oracle::Program);
    if !require(&oracles) {
        return;
    }
    let bench = Bench::new();
    File::create(bench.path("image")).unwrap().set_len(64 << 20).unwrap();
    bench.judged("mkfs.fat -F 16 -s 4 image");
    fs::create_dir_all(bench.path("tree/dir")).unwrap();
    fs::write(bench.path("tree/dir/file"), vec![5; 700_001]).unwrap();
    fs::write(bench.path("ballast"), vec![7; 50 << 20]).unwrap();
    bench.run("cp ballast image:/ballast", 0);
    bench.run("cp -r tree image:/", 0);
    bench.run("rm image:/ballast", 0);
    let expect_same = |image: &str| {
        bench.judged(&format!("fsck.fat -n {image}"));
        bench.run(&format!("diff -r tree {image}:/tree"), 0);
    };
    bench.run("resize -q image 32M", 0);
    assert_eq!(fs::metadata(bench.path("image")).unwrap().len(), 32 << 20);
    expect_same("image");
    let (_, said) = bench.run("resize image 1M", 2);
    assert!(said.contains("the contents do not fit; a size of ") && said.contains("use --minimum"), "{said}");
    bench.run("resize -q image --minimum", 0);
    expect_same("image");
    bench.run("resize -q image 48M", 0);
    expect_same("image");

    File::create(bench.path("disk")).unwrap().set_len(100 << 20).unwrap();
    fs::write(bench.path("script"), "label: gpt\nstart=1MiB,size=48MiB\n").unwrap();
    call("sh", ["-c", &format!("cd {} && sfdisk -q disk < script", bench.0.path().display())]).unwrap();
    bench.judged("dd if=image of=disk bs=1M seek=1 conv=notrunc status=none");
    bench.run("resize -q disk@1 24M", 0);
    assert!(bench.judged("sfdisk -d disk").contains("start=        2048, size=       49152,"));
    bench.run("check -q disk", 0);
    bench.run("diff -r tree disk@1:/tree", 0);
}

#[test]
fn a_floppy_of_mformat_shrinks_although_its_entry_begins_at_byte_0() {
    if !require(&["mformat", "fsck.fat"].map(Oracle::Program)) {
        return;
    }
    let bench = Bench::new();
    bench.judged("mformat -C -f 1440 -i floppy.img ::");
    bench.run("resize -q floppy.img --minimum", 0);
    bench.judged("fsck.fat -n floppy.img");
    assert!(fs::metadata(bench.path("floppy.img")).unwrap().len() < 1_474_560);
}

#[test]
fn an_exfat_partition_shrinks_to_the_minimum_and_grows_to_the_maximum() {
    if !require(&[Oracle::Program("fsck.exfat")]) {
        return;
    }
    let bench = Bench::new();
    fs::create_dir_all(bench.path("tree/dir")).unwrap();
    fs::write(bench.path("tree/a"), vec![1; 3_000_000]).unwrap();
    fs::write(bench.path("tree/dir/b"), vec![2; 70_000]).unwrap();
    let layout = "[disk]\nsize = \"80M\"\n[[partition]]\ntype = \"basic-data\"\nsize = \"40M\"\n\
                  content = \"exfat\"\nfrom = [\"tree\"]\n";
    fs::write(bench.path("layout.toml"), layout).unwrap();
    bench.run("build -q disk.img --disk layout.toml", 0);
    for size in ["--minimum", "--maximum", "20M"] {
        bench.run(&format!("resize disk.img@1 {size}"), 0);
        bench.run("check -q disk.img", 0);
        bench.run("diff -r tree disk.img@1:/", 0);
        bench.judged("dd if=disk.img of=volume.img bs=1M skip=1 status=none");
        bench.judged("fsck.exfat -n volume.img");
    }
}

/// Returns the length of the partition of `disk`, whose only partition starts at 1 MiB, in the MBR.
fn set_mbr_len(disk: &Path, sectors: u32) {
    File::options().write(true).open(disk).unwrap().write_all_at(&sectors.to_le_bytes(), 446 + 12).unwrap();
}

#[test]
fn the_free_space_after_a_partition_is_reported_and_used_by_two_commands() {
    let bench = Bench::new();
    for fs_type in ["ext4 -b 4096", "exfat", "vfat"] {
        let disk = bench.path("disk.img");
        let _ = fs::remove_file(&disk);
        File::create(&disk).unwrap().set_len(64 << 20).unwrap();
        bench.run("part disk.img create mbr", 0);
        bench.run("part disk.img add", 0);
        bench.run(&format!("mkfs -q -F -t {fs_type} disk.img@1"), 0);
        let (_, said) = bench.run("resize disk.img --maximum", 0);
        assert_eq!(said, "", "no space follows");
        let (_, said) = bench.run("resize disk.img@1 +64M", 2);
        assert!(said.contains("truncate -s +SIZE disk.img"), "{said}");
        File::options().write(true).open(&disk).unwrap().set_len(128 << 20).unwrap();
        let (said, notes) = bench.run("resize disk.img --maximum", 0);
        assert!(said.contains("already has 63 MiB"), "{said}");
        assert!(notes.contains("64 MiB of free space follows partition 1"), "{notes}");
        assert!(notes.contains("'obento part disk.img grow 1'"), "{notes}");
        bench.run("part disk.img grow 1", 0);
        let (said, notes) = bench.run("resize disk.img --maximum", 0);
        assert!(said.contains("grew from 63 MiB to 127 MiB") && notes.is_empty(), "{said}{notes}");
    }
}

#[test]
fn a_partition_of_a_block_device_that_is_full_gets_no_advice_to_extend_the_device() {
    if !require(&[Oracle::Root, Oracle::LoopMount, Oracle::Program("losetup")]) {
        return;
    }
    let bench = Bench::new();
    File::create(bench.path("disk.img")).unwrap().set_len(64 << 20).unwrap();
    bench.run("part disk.img create mbr", 0);
    bench.run("part disk.img add", 0);
    bench.run("mkfs -q -F -t ext4 disk.img@1", 0);
    let disk = bench.path("disk.img");
    let attached = call("losetup", ["-f".as_ref(), "--show".as_ref(), disk.as_os_str()]).unwrap();
    let device = String::from_utf8(attached.stdout).unwrap().trim().to_owned();
    let (_, said) = bench.run(&format!("resize {device}@1 +64M"), 2);
    call("losetup", ["-d", &device]).unwrap();
    assert!(said.contains(&format!("run 'obento part {device}' to list the free space")), "{said}");
    assert!(!said.contains("truncate"), "{said}");
}

#[test]
fn a_partition_that_is_shorter_than_its_volume_is_grown() {
    let bench = Bench::new();
    for fs_type in ["ext4 -b 4096", "exfat", "vfat"] {
        let disk = bench.path("disk.img");
        let _ = fs::remove_file(&disk);
        File::create(&disk).unwrap().set_len(64 << 20).unwrap();
        bench.run("part disk.img create mbr", 0);
        bench.run("part disk.img add", 0);
        bench.run(&format!("mkfs -q -F -t {fs_type} disk.img@1"), 0);
        set_mbr_len(&disk, 126_000);
        let (_, said) = bench.run("mkdir disk.img@1:/dir", 1);
        assert!(
            said.contains("the partition has 64512000 bytes, but its file system needs at least "),
            "{said}"
        );
        assert!(said.contains("help: run 'obento part disk.img grow 1'"), "{said}");
        let (_, said) = bench.run("resize disk.img@1 --maximum", 2);
        assert!(said.contains("'obento part disk.img grow 1'"), "{fs_type}: {said}");
        bench.run("part disk.img grow 1", 0);
        bench.run("mkdir disk.img@1:/dir", 0);
        // Without space after the partition, the advice does not help.
        set_mbr_len(&disk, 126_000);
        File::options().write(true).open(&disk).unwrap().set_len((1 << 20) + 126_000 * 512).unwrap();
        let (_, said) = bench.run("mkdir disk.img@1:/other", 1);
        assert!(!said.contains("grow 1") && said.contains("'obento recover'"), "{fs_type}: {said}");
    }
}

/// Lets all entries of the triply indirect block of `file`, and of the blocks below it, be one block each: 2^30 blocks.
fn map_endlessly(image: &Path, bench: &Bench, file: &str) {
    const BLOCK: u64 = 4096;
    let disk = File::options().write(true).open(image).unwrap();
    for (table, below) in [(2000_u32, 2001_u32), (2001, 2002), (2002, 2003)] {
        let entries = below.to_le_bytes().repeat(1024);
        disk.write_all_at(&entries, u64::from(table) * BLOCK).unwrap();
    }
    drop(disk);
    for change in ["block[TIND] 2000", "size 4398046511104", "blocks 8192"] {
        let command = format!("sif {file} {change}").replace(' ', "\u{a0}");
        bench.judged(&format!("debugfs -w -R {command} {}", image.display()));
    }
}

#[test]
fn a_map_that_names_blocks_again_and_again_is_refused_in_little_memory() {
    if !require(&ORACLES) {
        return;
    }
    let bench = Bench::new();
    bench.make("-t ext2 -b 4096", 16 << 20);
    for name in ["a", "dir/b", "dir/inner/c"] {
        map_endlessly(&bench.path("image"), &bench, name);
    }
    for line in ["resize --minimum --dry-run image", "resize --minimum image"] {
        let limited = format!("ulimit -v 2000000; exec \"$0\" {line}");
        let output = Command::new("sh")
            .args(["-c", &limited, env!("CARGO_BIN_EXE_obento")])
            .current_dir(bench.0.path())
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        let help = "run 'obento check -y image' first";
        assert_eq!(
            said,
            format!("obento: cannot resize 'image': blocks belong to several files\n  help: {help}\n"),
            "{line}"
        );
    }
}

#[test]
fn a_volume_with_an_external_journal_is_refused_before_its_file_grows() {
    if !require(&ORACLES) {
        return;
    }
    let bench = Bench::new();
    bench.make("-t ext4", 16 << 20);
    bench.judged("debugfs -w -R ssv\u{a0}journal_inum\u{a0}0 image");
    let before = fs::read(bench.path("image")).unwrap();
    for line in ["resize image +5M", "resize image --minimum", "resize --dry-run image 8M"] {
        let (_, said) = bench.run(line, 2);
        assert!(said.contains("the feature 'a journal on another device' prevents resizing"), "{said}");
        assert!(fs::read(bench.path("image")).unwrap() == before, "{line}");
    }
}
