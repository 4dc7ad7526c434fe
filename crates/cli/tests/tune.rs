//! `obento tune` against dumpe2fs, e2fsck, blkid, fsck.fat, fatlabel, fsck.exfat and exfatlabel.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use obento_testkit::oracle::{LoopMount, Oracle, call, require};

struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    #[track_caller]
    fn run(&self, line: &str, code: i32) -> (String, String) {
        let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        let output = command.current_dir(self.0.path()).args(words).output().unwrap();
        let (text, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{line}: {text}{said}");
        (text, said)
    }

    fn judged(&self, program: &str, args: &[&str], image: &str) -> String {
        let args = args.iter().map(Path::new).map(Path::to_owned).chain([self.path(image)]);
        text(&call(program, args).unwrap().stdout)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The value of a line of dumpe2fs.
#[track_caller]
fn value<'t>(dump: &'t str, name: &str) -> &'t str {
    let line = dump.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name}: {dump}")).trim()
}

#[test]
fn ext_volumes_of_mke2fs_get_the_settings_that_dumpe2fs_shows() {
    if !require(&["mke2fs", "dumpe2fs", "e2fsck", "blkid"].map(Oracle::Program)) {
        return;
    }
    let bench = Bench::new();
    for options in [
        &["-t", "ext4", "-b", "4096"][..],
        &["-t", "ext3", "-b", "4096"],
        &["-t", "ext2", "-b", "1024"],
        &["-t", "ext4", "-b", "4096", "-O", "^has_journal,metadata_csum_seed"],
        &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,^uninit_bg,bigalloc"],
        &["-t", "ext4", "-b", "4096", "-O", "orphan_file,sparse_super2,^resize_inode"],
    ] {
        File::create(bench.path("image")).unwrap().set_len(300 << 20).unwrap();
        bench.judged("mke2fs", &[&["-q", "-F"], options].concat(), "image");
        bench.run(
            "tune image -L new-label -U 01234567-89ab-cdef-0123-456789abcdef -m 2.5 -u 1000 -g 70 -c 30 -C 4 \
             -i 6w -e remount-ro -o acl,journal_data_ordered,^user_xattr -O large_file,dir_index",
            0,
        );
        let dump = bench.judged("dumpe2fs", &["-h"], "image");
        let blocks: u64 = value(&dump, "Block count").parse().unwrap();
        for (name, expected) in [
            ("Filesystem volume name", "new-label"),
            ("Filesystem UUID", "01234567-89ab-cdef-0123-456789abcdef"),
            ("Reserved block count", &*(blocks * 25 / 1000).to_string()),
            ("Maximum mount count", "30"),
            ("Mount count", "4"),
            ("Errors behavior", "Remount read-only"),
            ("Default mount options", "journal_data_ordered acl"),
        ] {
            let found = value(&dump, name);
            assert!(
                found == expected || name.starts_with("Default") && found.contains("acl"),
                "{name}: {dump}"
            );
        }
        assert!(value(&dump, "Reserved blocks uid").starts_with("1000 "), "{dump}");
        assert!(value(&dump, "Reserved blocks gid").starts_with("70 "), "{dump}");
        assert!(value(&dump, "Check interval").starts_with("3628800 "), "{dump}");
        assert!(value(&dump, "Filesystem features").contains("large_file"), "{dump}");
        bench.judged("e2fsck", &["-fn"], "image");
        // The first backup has the same settings.
        if !options.iter().any(|option| option.contains("bigalloc")) {
            let is_small = options.contains(&"1024");
            let (block, size) = if is_small { ("8193", "1024") } else { ("32768", "4096") };
            let places = [format!("superblock={block}"), format!("blocksize={size}")];
            let dump = bench.judged("dumpe2fs", &["-h", "-o", &places[0], "-o", &places[1]], "image");
            assert_eq!(value(&dump, "Filesystem volume name"), "new-label");
            assert_eq!(value(&dump, "Mount count"), "4");
        }
        let said = bench.judged("blkid", &["-p"], "image");
        assert!(said.contains("LABEL=\"new-label\"") && said.contains("01234567-89ab"), "{said}");
        bench.run("check image", 0);
        bench.run("mkdir image:/dir", 0);
        bench.judged("e2fsck", &["-fn"], "image");
    }
    let (_, said) = bench.run("tune image -O ^extent", 2);
    assert!(said.contains("'extent' cannot be disabled") && said.contains("tune2fs -O"), "{said}");
    let (_, said) = bench.run("tune image", 2);
    assert!(said.contains("no setting is given"), "{said}");
    for uuid in ["time", "random", "clear"] {
        bench.run(&format!("tune image -U {uuid}"), 0);
        bench.judged("e2fsck", &["-fn"], "image");
    }
}

#[test]
fn fat_volumes_get_labels_and_serial_numbers() {
    if !require(&["mkfs.fat", "fsck.fat", "fatlabel", "blkid"].map(Oracle::Program)) {
        return;
    }
    let bench = Bench::new();
    for (options, mib) in [
        (&["-F", "12"][..], 2),
        (&["-F", "16", "-n", "OLD"], 20),
        (&["-F", "32"], 64),
        (&["-F", "32", "-n", "OLD"], 64),
    ] {
        File::create(bench.path("image")).unwrap().set_len(mib << 20).unwrap();
        bench.judged("mkfs.fat", options, "image");
        bench.run("touch image:/a image:/b", 0);
        bench.run("tune image -L NEW -U 1234-ABCD", 0);
        assert_eq!(bench.judged("fatlabel", &[], "image").trim(), "NEW");
        let said = bench.judged("blkid", &["-p"], "image");
        assert!(said.contains("LABEL=\"NEW\"") && said.contains("UUID=\"1234-ABCD\""), "{said}");
        bench.judged("fsck.fat", &["-n"], "image");
        bench.run("check image", 0);
        assert_eq!(bench.run("ls image", 0).0, "a\nb\n");
        // The code page of labels lacks this letter.
        bench.run("tune image -L \u{4e2d}", 2);
        let output = Command::new(env!("CARGO_BIN_EXE_obento"))
            .args(["tune", "-L", ""])
            .arg(bench.path("image"))
            .status();
        assert!(output.unwrap().success());
        let said = bench.judged("blkid", &["-p"], "image");
        assert!(!said.contains(" LABEL=\""), "{said}");
        bench.judged("fsck.fat", &["-n"], "image");
    }
    let (_, said) = bench.run("tune image -U 01234567-89ab-cdef-0123-456789abcdef", 2);
    assert!(said.contains("FAT has a serial number instead"), "{said}");
}

#[test]
fn exfat_volumes_get_labels_and_serial_numbers() {
    if !require(&["mkfs.exfat", "fsck.exfat", "exfatlabel", "blkid"].map(Oracle::Program)) {
        return;
    }
    let bench = Bench::new();
    for options in [&[][..], &["-n", "OLD"]] {
        File::create(bench.path("image")).unwrap().set_len(64 << 20).unwrap();
        bench.judged("mkfs.exfat", options, "image");
        bench.run("tune image -L Größe -U 1234-abcd", 0);
        assert!(bench.judged("exfatlabel", &[], "image").contains("Größe"));
        let said = bench.judged("blkid", &["-p"], "image");
        assert!(said.contains("UUID=\"1234-ABCD\""), "{said}");
        bench.judged("fsck.exfat", &["-n"], "image");
        bench.run("check image", 0);
        bench.run("tune image -U random", 0);
        bench.judged("fsck.exfat", &["-n"], "image");
    }
}

#[test]
fn a_partition_and_a_qcow2_image_are_tuned_and_other_types_are_refused_by_name() {
    let bench = Bench::new();
    let layout = "[disk]\nsize=\"64M\"\n[[partition]]\ntype=\"esp\"\nsize=\"4M\"\n[[partition]]\ntype=\"linux-generic\"\n\
                  content=\"ext4\"\nsize=\"32M\"\nfs-label=\"old\"\n";
    fs::write(bench.path("layout.toml"), layout).unwrap();
    bench.run("build disk.img --disk layout.toml -q", 0);
    bench.run("convert -q disk.img disk.qcow2", 0);
    for name in ["disk.img", "disk.qcow2"] {
        bench.run(&format!("tune {name}@2 -L fresh"), 0);
        assert!(bench.run(&format!("info {name}@2"), 0).0.contains("fresh"));
        bench.run(&format!("check {name}@2"), 0);
    }
    if require(&[Oracle::Program("mkfs.xfs")]) {
        File::create(bench.path("x.img")).unwrap().set_len(400 << 20).unwrap();
        bench.judged("mkfs.xfs", &["-q"], "x.img");
        let (_, said) = bench.run("tune x.img -L x", 2);
        assert!(
            said.contains("obento does not support this for xfs") && said.contains("xfs_admin"),
            "{said}"
        );
    }
    let (_, said) = bench.run("tune disk.img:/x -L x", 2);
    assert!(said.contains("a path inside an image"), "{said}");
}

#[test]
fn a_volume_that_needs_recovery_is_recovered_before_its_settings_change() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck"), Oracle::LoopMount]) {
        return;
    }
    for kind in ["ext3", "ext4"] {
        let bench = Bench::new();
        File::create(bench.path("made")).unwrap().set_len(64 << 20).unwrap();
        bench.judged("mke2fs", &["-q", "-F", "-t", kind, "-b", "1024", "-I", "256"], "made");
        let mount = LoopMount::new(&bench.path("made"), "").unwrap();
        let held = File::create(mount.path().join("held")).unwrap();
        fs::write(mount.path().join("file"), vec![7; 100_000]).unwrap();
        fs::create_dir(mount.path().join("dir")).unwrap();
        fs::remove_file(mount.path().join("held")).unwrap();
        rustix::fs::syncfs(File::open(mount.path()).unwrap()).unwrap();
        fs::copy(bench.path("made"), bench.path("image")).unwrap();
        drop(held);
        mount.unmount().unwrap();
        assert!(bench.run("info image", 0).0.contains("needs recovery"));
        bench.run("tune image -L data", 0);
        bench.judged("e2fsck", &["-f", "-n"], "image");
        assert_eq!(bench.run("ls image", 0).0, "dir\nfile\nlost+found\n", "{kind}");
        assert_eq!(bench.judged("blkid", &["-p", "-o", "value", "-s", "LABEL"], "image"), "data\n");
    }
}
