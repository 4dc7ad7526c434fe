//! `obento resize` against resize2fs, dumpe2fs, e2fsck and the kernel.

use std::fs::{self, File};
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
        let mut words = line.split(' ');
        let mut command = obento_testkit::oracle::program(words.next().unwrap());
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

#[test]
fn the_kernel_reads_and_writes_grown_volumes() {
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
    assert_eq!(said, "'image': ext4 would grow from 32 MiB to 64 MiB (67108864 bytes)\n");
    assert_eq!(fs::metadata(bench.path("image")).unwrap().len(), 32 << 20);
    let (said, _) = bench.run("resize image +32M", 0);
    assert_eq!(said, "'image': ext4 grew from 32 MiB to 64 MiB (67108864 bytes)\n");
    let (said, _) = bench.run("resize image --maximum", 0);
    assert_eq!(said, "'image': ext4 already has 64 MiB (67108864 bytes)\n");
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
    refused("resize image 16M", "shrinking is not supported yet");
    refused("resize image 16M", "help: 'resize2fs' shrinks");
    refused("resize image --minimum", "shrinking is not supported yet");
    refused("resize image", "required");
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
