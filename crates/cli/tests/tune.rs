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
    assert!(said.contains("cannot disable 'extent'") && said.contains("tune2fs -O"), "{said}");
    let (_, said) = bench.run("tune image -O flexible", 2);
    assert!(said.contains("unknown feature 'flexible'"), "{said}");
    // Nothing has to change.
    bench.run("tune image -O extent,^casefold", 0);
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
    if require(&["mkfs.nilfs2"].map(Oracle::Program)) {
        File::create(bench.path("n.img")).unwrap().set_len(140 << 20).unwrap();
        bench.judged("mkfs.nilfs2", &["-q"], "n.img");
        let (_, said) = bench.run("tune n.img -L x", 2);
        assert!(
            said.contains("obento does not change the settings of nilfs2 volumes")
                && said.contains("nilfs-tune"),
            "{said}"
        );
    }
    let (_, said) = bench.run("tune disk.img:/x -L x", 2);
    assert!(said.contains("a path inside an image"), "{said}");
}

#[test]
fn types_of_the_engine_are_tuned_by_their_programs() {
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    for (kind, mib, maker, programs) in [
        ("xfs", 310, &["mkfs.xfs", "-q"][..], &["mkfs.xfs", "xfs_db", "blkid"][..]),
        ("btrfs", 130, &["mkfs.btrfs", "-q"], &["mkfs.btrfs", "btrfs", "btrfstune", "blkid"]),
        ("f2fs", 64, &["mkfs.f2fs", "-q"], &["mkfs.f2fs", "f2fslabel", "blkid"]),
        ("jfs", 32, &["mkfs.jfs", "-q"], &["mkfs.jfs", "jfs_tune", "blkid"]),
        ("reiserfs", 50, &["mkfs.reiserfs", "-q", "-f", "-f"], &["mkfs.reiserfs", "reiserfstune", "blkid"]),
    ] {
        let programs: Vec<_> = programs.iter().map(|program| Oracle::Program(program)).collect();
        if !require(&programs) {
            continue;
        }
        let bench = Bench::new();
        File::create(bench.path("volume")).unwrap().set_len(mib << 20).unwrap();
        bench.judged(maker[0], &maker[1..], "volume");
        // A partition is changed on a copy.
        let mut disk = vec![0; 1 << 20];
        disk.extend(fs::read(bench.path("volume")).unwrap());
        disk.resize(disk.len() + (1 << 20), 0);
        fs::write(bench.path("disk"), disk).unwrap();
        bench.run("part disk create gpt", 0);
        bench.run(&format!("part disk add --start 1M --size {mib}M"), 0);
        for image in ["volume", "disk@1"] {
            let (_, said) = bench.run(&format!("tune {image} -L fresh"), 0);
            assert!(said.contains("running '"), "{said}");
            let (_, said) = bench.run(&format!("tune {image} -U {uuid}"), if kind == "f2fs" { 2 } else { 0 });
            let is_refused = said.contains("no program changes the setting -U of F2FS volumes");
            assert_eq!(is_refused, kind == "f2fs", "{said}");
            let (_, said) = bench.run(&format!("tune {image} -m 1"), 2);
            assert!(said.contains("no program changes the setting -m of "), "{said}");
            let long = "x".repeat(256);
            let (_, said) = bench.run(&format!("tune {image} -L {long}"), 2);
            assert!(said.contains("must have at most "), "{said}");
        }
        fs::write(
            bench.path("part"),
            &fs::read(bench.path("disk")).unwrap()[1 << 20..][..(mib as usize) << 20],
        )
        .unwrap();
        for image in ["volume", "part"] {
            let said = bench.judged("blkid", &["-p"], image);
            assert!(said.contains("LABEL=\"fresh\""), "{kind}: {said}");
            assert_eq!(said.contains(&format!(" UUID=\"{uuid}\"")), kind != "f2fs", "{kind}: {said}");
        }
        bench.run("check -q volume", 0);
    }
}

#[test]
fn a_program_that_fails_after_another_one_leaves_an_error_that_names_the_changed_settings() {
    use std::os::unix::fs::PermissionsExt as _;
    if !require(&["mkfs.btrfs", "btrfs", "blkid"].map(Oracle::Program)) {
        return;
    }
    let bench = Bench::new();
    File::create(bench.path("volume")).unwrap().set_len(130 << 20).unwrap();
    bench.judged("mkfs.btrfs", &["-q"], "volume");
    let mut disk = vec![0; 1 << 20];
    disk.extend(fs::read(bench.path("volume")).unwrap());
    disk.resize(disk.len() + (1 << 20), 0);
    fs::write(bench.path("disk"), disk).unwrap();
    bench.run("part disk create gpt", 0);
    bench.run("part disk add --start 1M --size 130M", 0);
    // The program for the UUID is found here first, and fails.
    fs::create_dir(bench.path("bin")).unwrap();
    fs::write(bench.path("bin/btrfstune"), "#!/bin/sh\necho no luck\nexit 1\n").unwrap();
    fs::set_permissions(bench.path("bin/btrfstune"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bench.path("bin").display(), std::env::var("PATH").unwrap());
    // A partition is changed on a copy, which is not written back then.
    for (image, state) in [
        ("volume", "; -L is changed; -U is not changed"),
        ("disk@1", "; -L is not changed; -U is not changed"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        command.current_dir(bench.0.path()).args(["tune", image, "-L", "fresh", "-U", "random"]);
        let output = command.env("PATH", &path).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains(&format!("btrfstune ended with exit status 1: no luck{state}")),
            "{image}: {said}"
        );
        let (shown, _) = bench.run(&format!("info {image}"), 0);
        assert_eq!(shown.contains("fresh"), image == "volume", "{shown}");
    }
}

#[test]
fn a_label_that_is_too_long_is_refused_by_every_command() {
    let bench = Bench::new();
    fs::create_dir(bench.path("tree")).unwrap();
    let long = "TWELVE-CHARS";
    for (kind, limit, program) in [
        ("vfat", "at most eleven characters", "fatlabel"),
        ("exfat", "at most 11 UTF-16 units", "exfatlabel"),
    ] {
        let (_, said) = bench.run(&format!("mkfs -t {kind} -L {long} image 64M"), 2);
        assert!(said.contains(limit), "{said}");
        let (_, said) = bench.run(&format!("build -t {kind} -L {long} image --from tree"), 2);
        assert!(said.contains(limit), "{said}");
        assert!(!bench.path("image").exists());
        bench.run(&format!("mkfs -q -t {kind} -L ELEVEN-CHAR image 64M"), 0);
        let (_, said) = bench.run(&format!("tune image -L {long}"), 2);
        assert!(said.contains("at most 11 "), "{said}");
        if require(&[Oracle::Program(program)]) {
            assert!(call(program, [bench.path("image"), long.into()]).is_err(), "{program} refuses it too");
            assert!(bench.judged(program, &[], "image").contains("ELEVEN-CHAR"));
        }
        fs::remove_file(bench.path("image")).unwrap();
    }
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

#[test]
fn a_journal_is_added_and_removed() {
    if !require(&["mke2fs", "dumpe2fs", "e2fsck"].map(Oracle::Program)) {
        return;
    }
    let bench = Bench::new();
    for (options, fs_type) in [
        (&["-t", "ext2", "-b", "1024"][..], "ext3"),
        (&["-t", "ext4", "-b", "4096", "-O", "^has_journal,metadata_csum_seed"], "ext4"),
        (&["-t", "ext4", "-O", "^has_journal,^metadata_csum,^uninit_bg,bigalloc"], "ext4"),
        (&["-t", "ext4", "-O", "^has_journal,meta_bg,^resize_inode"], "ext4"),
    ] {
        File::create(bench.path("image")).unwrap().set_len(100 << 20).unwrap();
        bench.judged("mke2fs", &[&["-q", "-F"], options].concat(), "image");
        bench.run("mkdir image:/kept", 0);
        let dump = |bench: &Bench| bench.judged("dumpe2fs", &["-h"], "image");
        let free = value(&dump(&bench), "Free blocks").to_owned();
        bench.run("tune image -O has_journal -L with", 0);
        bench.judged("e2fsck", &["-fn"], "image");
        let shown = dump(&bench);
        assert!(value(&shown, "Filesystem features").contains("has_journal"), "{shown}");
        assert_eq!(value(&shown, "Filesystem volume name"), "with");
        assert_eq!(value(&shown, "Filesystem state"), "clean");
        assert_eq!(value(&shown, "Journal inode"), "8");
        assert_ne!(value(&shown, "Free blocks"), free);
        let (info, _) = bench.run("info image", 0);
        assert!(info.contains(fs_type), "{info}");
        // It is there already.
        bench.run("tune image -O has_journal", 0);
        if require(&[Oracle::Root, Oracle::LoopMount]) {
            let at = LoopMount::new(&bench.path("image"), "").unwrap();
            fs::write(at.path().join("kept/file"), "x".repeat(100_000)).unwrap();
            at.unmount().unwrap();
            bench.judged("e2fsck", &["-fn"], "image");
            bench.run("rm image:/kept/file", 0);
        }
        bench.run("check image", 0);
        bench.run("tune image -O ^has_journal", 0);
        bench.judged("e2fsck", &["-fn"], "image");
        let shown = dump(&bench);
        assert!(!value(&shown, "Filesystem features").contains("has_journal"), "{shown}");
        assert_eq!(value(&shown, "Filesystem state"), "clean");
        assert_eq!(value(&shown, "Free blocks"), free, "{options:?}");
        bench.run("check image", 0);
        bench.run("rmdir image:/kept", 0);
    }
    bench.run("mkfs -q -t ext2 --force small 1M", 0);
    let (_, said) = bench.run("tune small -O has_journal", 2);
    assert!(said.contains("too small for a journal"), "{said}");
}

/// Returns the lines of `debugfs` about a quota file: the owners and their usage.
fn quota_of(bench: &Bench, image: &str, file: &str) -> String {
    bench.judged("debugfs", &["-R", &format!("list_quota {file}")], image)
}

#[test]
fn quota_files_are_those_of_tune2fs() {
    if !require(&["mke2fs", "tune2fs", "dumpe2fs", "e2fsck", "debugfs"].map(Oracle::Program)) {
        return;
    }
    let bench = Bench::new();
    for options in [
        &["-t", "ext4", "-b", "4096"][..],
        &["-t", "ext4", "-b", "1024", "-O", "^has_journal"],
        &["-t", "ext3", "-b", "1024", "-I", "256"],
        &["-t", "ext4", "-b", "4096", "-O", "orphan_file"],
    ] {
        File::create(bench.path("ours")).unwrap().set_len(64 << 20).unwrap();
        bench.judged("mke2fs", &[&["-q", "-F"], options].concat(), "ours");
        bench.run("mkdir ours:/dir", 0);
        fs::write(bench.path("file"), vec![7; 50_000]).unwrap();
        for owner in 0..60 {
            bench.run(&format!("cp file ours:/dir/{owner}"), 0);
            bench.run(&format!("chown {}:{} ours:/dir/{owner}", owner * 1001, owner % 7), 0);
        }
        fs::copy(bench.path("ours"), bench.path("theirs")).unwrap();
        bench.run("tune ours -O quota,project", 0);
        bench.judged("tune2fs", &["-O", "quota,project"], "theirs");
        bench.judged("e2fsck", &["-fn"], "ours");
        bench.run("check ours", 0);
        let (ours, theirs) =
            (bench.judged("dumpe2fs", &["-h"], "ours"), bench.judged("dumpe2fs", &["-h"], "theirs"));
        for name in [
            "Filesystem features",
            "User quota inode",
            "Group quota inode",
            "Project quota inode",
            "Free blocks",
            "Free inodes",
        ] {
            assert_eq!(value(&ours, name), value(&theirs, name), "{name} of {options:?}");
        }
        for file in ["usr", "grp", "prj"] {
            assert_eq!(
                quota_of(&bench, "ours", file),
                quota_of(&bench, "theirs", file),
                "{file} of {options:?}"
            );
        }
        bench.run("tune ours -Q ^usrquota", 0);
        bench.judged("e2fsck", &["-fn"], "ours");
        bench.run("check ours", 0);
        assert!(!bench.judged("dumpe2fs", &["-h"], "ours").contains("User quota inode"));
        bench.run("tune ours -O ^quota,^project", 0);
        bench.judged("tune2fs", &["-O", "^quota"], "theirs");
        bench.judged("tune2fs", &["-O", "^project"], "theirs");
        bench.judged("e2fsck", &["-fn"], "ours");
        bench.run("check ours", 0);
        let (ours, theirs) =
            (bench.judged("dumpe2fs", &["-h"], "ours"), bench.judged("dumpe2fs", &["-h"], "theirs"));
        for name in ["Filesystem features", "Free blocks", "Free inodes"] {
            assert_eq!(value(&ours, name), value(&theirs, name), "{name} of {options:?}");
        }
        bench.run("rm -r ours:/dir", 0);
        bench.judged("e2fsck", &["-fn"], "ours");
    }
    let (_, said) = bench.run("tune ours -O ^project -Q prjquota", 2);
    assert!(said.contains("prjquota requires the feature 'project'"), "{said}");
    let (_, said) = bench.run("tune ours -Q home", 2);
    assert!(said.contains("unknown quota file 'home' (must be usrquota, grpquota or prjquota)"), "{said}");
    bench.judged("mke2fs", &["-q", "-F", "-I", "128"], "ours");
    let (_, said) = bench.run("tune ours -O project", 2);
    assert!(said.contains("inodes of 128 bytes have no project"), "{said}");
    let (_, said) = bench.run("tune ours -Q prjquota", 2);
    assert!(said.contains("inodes of 128 bytes have no project"), "{said}");
}

#[test]
fn the_feature_project_comes_and_goes_with_its_quota_file_as_in_tune2fs() {
    if !require(&["mke2fs", "tune2fs", "dumpe2fs", "e2fsck"].map(Oracle::Program)) {
        return;
    }
    let bench = Bench::new();
    File::create(bench.path("ours")).unwrap().set_len(32 << 20).unwrap();
    bench.judged("mke2fs", &["-q", "-F", "-t", "ext4", "-I", "256"], "ours");
    fs::copy(bench.path("ours"), bench.path("theirs")).unwrap();
    let steps =
        "-O quota,project|-O ^quota|-Q prjquota|-Q ^prjquota|-O project|-Q usrquota|-O ^project|-O ^quota";
    for step in steps.split('|') {
        bench.run(&format!("tune ours {step}"), 0);
        bench.judged("tune2fs", &step.split(' ').collect::<Vec<_>>(), "theirs");
        bench.judged("e2fsck", &["-fn"], "ours");
        let dumps = ["ours", "theirs"].map(|image| bench.judged("dumpe2fs", &["-h"], image));
        let settings = dumps.each_ref().map(|dump| {
            let is_about_quotas =
                |line: &&str| line.starts_with("Filesystem features") || line.contains("quota inode");
            dump.lines().filter(is_about_quotas).collect::<Vec<_>>()
        });
        assert_eq!(settings[0], settings[1], "after {step}");
    }
}

#[test]
fn a_volume_that_can_only_be_read_keeps_its_settings() {
    if !require(&["mke2fs", "debugfs", "mkfs.fat", "mkfs.exfat"].map(Oracle::Program)) {
        return;
    }
    let bench = Bench::new();
    let make = |name: &str, program: &str, args: &[&str]| {
        File::create(bench.path(name)).unwrap().set_len(32 << 20).unwrap();
        bench.judged(program, args, name);
    };
    make("cut.ext4", "mke2fs", &["-q", "-F", "-t", "ext4"]);
    make("cut.vfat", "mkfs.fat", &[]);
    make("cut.exfat", "mkfs.exfat", &[]);
    for name in ["cut.ext4", "cut.vfat", "cut.exfat"] {
        File::options().write(true).open(bench.path(name)).unwrap().set_len(20 << 20).unwrap();
    }
    make("new.ext4", "mke2fs", &["-q", "-F", "-t", "ext4", "-O", "^metadata_csum"]);
    bench.judged("debugfs", &["-w", "-R", "set_super_value feature_ro_compat 0x100003"], "new.ext4");
    let whole = "get a complete copy of the image";
    for (name, reported) in [
        ("cut.ext4", whole),
        ("cut.vfat", whole),
        ("cut.exfat", whole),
        ("new.ext4", "unknown read-only compatible feature bits 0x100000"),
    ] {
        let before = fs::read(bench.path(name)).unwrap();
        for options in ["-L name", "-U random"] {
            let (_, said) = bench.run(&format!("tune {options} {name}"), 2);
            assert!(said.contains(reported), "{name} {options}: {said}");
        }
        bench.run(&format!("mkdir {name}:/new"), 1);
        bench.run(&format!("resize {name} 64M"), 2);
        assert!(fs::read(bench.path(name)).unwrap() == before, "{name} was changed");
    }
}
