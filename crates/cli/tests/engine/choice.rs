//! The choice of the driver of a volume. Both drivers of a type show the same.

use obento_testkit::oracle::{LoopMount, Oracle, require};

use crate::support::Bench;

/// Returns the outputs of both engines for `line`, which has a `{}` for the choice: native, and linux.
fn both(bench: &Bench, line: &str) -> [String; 2] {
    ["native", "linux"].map(|engine| bench.done(&line.replace("{}", &format!("--engine {engine}"))))
}

#[test]
fn an_ext4_looks_the_same_by_the_kernel() {
    if !require(&[Oracle::Program("linux.uml"), Oracle::Program("mkfs.ext4")]) {
        return;
    }
    let bench = Bench::new();
    bench.blank("image", 32);
    bench.shell("mkfs.ext4 -q -d tree image");
    let fields = "%p_%i_%y_%m_%n_%U_%G_%s_%b_%l_%T@_%C@\\n";
    for line in ["ls {} -lR image:/", "ls {} -lai image:/dir", &format!("find {{}} image:/ -printf {fields}")]
    {
        let [native, linux] = both(&bench, line);
        assert!(native.lines().count() > 4, "{native}");
        assert_eq!(native, linux, "{line}");
    }
    // Another program of the same kernel sees the changes of this one.
    bench.done("--engine linux mkdir image:/made");
    assert_eq!(bench.done("--engine native ls -d image:/made"), "image:/made\n");
    bench.shell("e2fsck -fn image");
}

#[test]
fn a_vfat_looks_the_same_by_the_kernel_but_for_the_links_of_directories() {
    if !require(&[Oracle::Program("linux.uml"), Oracle::Program("mkfs.vfat")]) {
        return;
    }
    let bench = Bench::new();
    bench.blank("image", 32);
    bench.shell("rm tree/link && mkfs.vfat image");
    bench.done("cp -r tree/ image:/");
    let fields = "%p_%y_%m_%U_%G_%s_%b_%T@\\n";
    // Linux counts subdirectories as links of a directory, and sets the time of the root to 1970.
    for line in ["ls {} -l image:/tree/many", &format!("find {{}} image:/tree -printf {fields}")] {
        let [native, linux] = both(&bench, line);
        assert!(native.lines().count() > 400, "{native}");
        assert_eq!(native, linux, "{line}");
    }
    let shown = "--mount-options uid=7,gid=8,fmask=0137,dmask=0027";
    let [native, linux] = both(&bench, &format!("find {{}} {shown} image:/tree -printf {fields}"));
    assert!(native.contains("_640_7_8_"), "{native}");
    assert_eq!(native, linux);
    bench.done("--engine linux cp tree/five image:/tree/six");
    bench.done("--engine native cp image:/tree/six six");
    bench.shell("cmp six tree/five");
}

#[test]
fn the_kernel_reads_fat_volumes_that_obento_wrote_and_the_reverse() {
    if !require(&[Oracle::Program("linux.uml"), Oracle::Program("fsck.fat")]) {
        return;
    }
    let bench = Bench::new();
    bench.shell("rm tree/link && chmod 755 tree/small && chown -R 0:0 tree");
    for name in ["UPPER.TXT", "lower.TXT", "Mixed.Txt", "two dots.. here", "\u{e9}t\u{e9}", &"x".repeat(255)]
    {
        bench.shell(&format!(
            "echo '{name}' > 'tree/dir/{name}'; touch -d '2021-07-08 09:10:12 UTC' 'tree/dir/{name}'"
        ));
    }
    let fields = "%P %y %s %Ts";
    let copy = "cp -r --preserve=timestamps";
    // FAT12, FAT16 and FAT32, by size.
    for size in ["8M", "64M", "600M"] {
        bench.done(&format!("mkfs -q -t vfat copied {size}"));
        bench.done(&format!("--engine native {copy} tree/ copied:/"));
        bench.done(&format!("build -q -t vfat --size {size} built --from tree --chmod 755"));
        bench.done(&format!("mkfs -q -t vfat theirs {size}"));
        bench.done(&format!("--engine linux {copy} tree/ theirs:/"));
        for (engine, from) in [("linux", "copied:/tree"), ("linux", "built:/."), ("native", "theirs:/tree")] {
            bench.shell("rm -rf back && mkdir back");
            bench.done(&format!("--engine {engine} {copy} -T {from} back"));
            bench.expect_equal("back", fields);
        }
        bench.shell("for image in copied built theirs; do fsck.fat -n $image && rm $image; done");
    }
}

#[test]
fn the_native_engine_starts_no_kernel_and_names_the_option_that_opens_the_volume() {
    if !require(&[Oracle::Program("mkfs.jfs")]) {
        return;
    }
    let bench = Bench::new();
    bench.blank("image", 32);
    bench.shell("mkfs.jfs -q image");
    let output = bench.obento("--engine native ls image:/");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("jfs volumes need the kernel engine\n  help: omit --engine native\n"), "{said}");
}

#[test]
fn types_that_the_kernel_lacks_are_refused_if_only_the_kernel_may_open_volumes() {
    if !require(&[Oracle::Program("linux.uml")]) {
        return;
    }
    let bench = Bench::new();
    bench.done("mkfs -q -t xv6 image 2M");
    let said = String::from_utf8_lossy(&bench.obento("--engine linux ls image:/").stderr).into_owned();
    let reported = "the kernel engine does not support xv6\n  help: omit --engine linux\n";
    assert!(said.ends_with(reported), "{said}");
}

#[test]
fn the_memory_of_the_kernel_is_chosen_within_bounds() {
    if !require(&[Oracle::Program("linux.uml"), Oracle::Program("mkfs.jfs")]) {
        return;
    }
    let bench = Bench::new();
    bench.blank("image", 32);
    bench.shell("mkfs.jfs -q image");
    for memory in [48, 300] {
        bench.done(&format!("--engine-memory {memory} ls image:/"));
    }
    for (nonsense, why) in
        [("47", "not a size from 48M to 64G"), ("70000", "not a size from 48M to 64G"), ("much", "invalid")]
    {
        let output = bench.obento(&format!("ls --engine-memory {nonsense} image:/"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("--engine-memory") && said.contains(why), "{said}");
    }
}

#[test]
fn unsupported_options_are_refused_and_a_wrong_type_is_named() {
    if !require(&[Oracle::Program("linux.uml"), Oracle::Program("mkfs.jfs")]) {
        return;
    }
    let bench = Bench::new();
    bench.blank("image", 32);
    bench.shell("mkfs.jfs -q image; : > log");
    let complaint = |line: &str| {
        let output = bench.obento(line);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for (option, reported) in [
        (
            "--superblock 8",
            "selecting a super block with the kernel engine is not supported\n  help: omit the number of the super block",
        ),
        ("--no-replay", "which opens jfs volumes, does not support --no-replay\n  help: omit this option\n"),
        ("--journal log", "with --journal: the volume has no external journal\n  help: omit --journal\n"),
    ] {
        let said = complaint(&format!("{option} ls image:/"));
        assert!(said.contains(reported), "{said}");
    }
    let said = complaint("-t xfs ls image:/");
    assert!(said.ends_with("\n  help: omit --fs-type: the volume is not of this type\n"), "{said}");
}

/// A kernel shows only the default subvolume, from which the others cannot be reached.
#[test]
fn all_subvolumes_of_a_btrfs_are_seen_whatever_its_default_and_each_can_be_the_root() {
    let oracles =
        [Oracle::Program("linux.uml"), Oracle::Program("mkfs.btrfs"), Oracle::LoopMount, Oracle::Root];
    if !require(&oracles) {
        return;
    }
    let bench = Bench::new();
    bench.blank("image", 130);
    bench.shell("mkfs.btrfs -q image");
    let mount = LoopMount::new(&bench.path("image"), "").unwrap();
    let top = mount.path().display();
    bench.shell(&format!(
        "btrfs -q subvolume create {top}/one; btrfs -q subvolume create {top}/two; touch {top}/one/in-one {top}/two/in-two;
        btrfs subvolume set-default {top}/one"
    ));
    mount.unmount().unwrap();
    assert_eq!(bench.done("ls image:/"), "one\ntwo\n");
    assert_eq!(bench.done("ls image:/two"), "in-two\n");
    assert_eq!(bench.done("--mount-options subvolid=256 ls image:/"), "in-one\n");
    bench.done("--mount-options subvolid=257 mkdir image:/made");
    assert_eq!(bench.done("ls image:/two"), "in-two\nmade\n");
    // Btrfs has no subvolumes with numbers below 5.
    for number in [1, 4, 999] {
        let output = bench.obento(&format!("--mount-options subvolid={number} ls image:/"));
        let said = String::from_utf8_lossy(&output.stderr);
        let cause = format!("no subvolume with the number {number}\n");
        assert!(said.contains(&cause) && said.contains("omit subvolid"), "{said}");
    }
    bench.blank("other", 32);
    bench.shell("mkfs.ext4 -q other");
    let output = bench.obento("--mount-options subvolid=256 ls other:/");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("subvolid requires a Btrfs or bcachefs volume"), "{said}");
}
