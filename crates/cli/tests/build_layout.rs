//! Layouts with boot loaders and offsets, and the layout of an existing disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use obento_testkit::oracle::{Oracle, call, require};

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
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        let output = command.current_dir(self.0.path()).args(line.split(' ')).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let (text, said) = (text(output.stdout), text(output.stderr));
        assert_eq!(output.status.code(), Some(code), "{line}: {text}{said}");
        (text, said)
    }

    #[track_caller]
    fn refused(&self, layout: &str, message: &str) {
        fs::write(self.path("bad.toml"), layout).unwrap();
        let (_, said) = self.run("build bad.img --disk bad.toml", 2);
        assert!(said.contains(message), "{layout}: {said}");
        assert!(!self.path("bad.img").exists());
    }

    /// The lines of `sfdisk --dump` without the name of the disk.
    fn dump(&self, name: &str) -> String {
        let path = self.path(name);
        let text = String::from_utf8(call("sfdisk", [Path::new("--dump"), &*path]).unwrap().stdout).unwrap();
        text.replace(path.to_str().unwrap(), "disk")
    }
}

const ONE: &str = "[[partition]]\ntype=\"linux-generic\"\nsize=\"4M\"\n";

#[test]
fn boot_loaders_are_copied_before_the_first_partition() {
    let bench = Bench::new();
    fs::write(bench.path("spl.bin"), vec![1; 30_000]).unwrap();
    fs::write(bench.path("u-boot.itb"), vec![2; 2 << 20]).unwrap();
    let layout = "[disk]\ntable=\"mbr\"\n[[blob]]\nfile=\"spl.bin\"\noffset=\"8KiB\"\n[[blob]]\nfile=\"u-boot.itb\"\n\
                  offset=\"40K\"\n[[partition]]\ntype=\"0x83\"\noffset=\"4MiB\"\ncontent=\"ext4\"\nsize=\"16M\"\n";
    fs::write(bench.path("layout.toml"), layout).unwrap();
    bench.run("build disk.img --disk layout.toml --verify -q", 0);
    let disk = fs::read(bench.path("disk.img")).unwrap();
    assert!(
        disk[8192..38_192].iter().all(|byte| *byte == 1)
            && disk[38_192..40_960].iter().all(|byte| *byte == 0)
    );
    assert!(disk[40_960..40_960 + (2 << 20)].iter().all(|byte| *byte == 2));
    bench.run("check disk.img@1", 0);
    if require(&[Oracle::Program("sfdisk")]) {
        assert!(bench.dump("disk.img").contains("disk1 : start=        8192, size=       32768"));
    }
}

#[test]
fn boot_loaders_and_partitions_that_overlap_are_refused() {
    let bench = Bench::new();
    fs::write(bench.path("spl.bin"), vec![1; 30_000]).unwrap();
    let blob = |offset: &str| format!("[[blob]]\nfile=\"spl.bin\"\noffset=\"{offset}\"\n");
    let cases = [
        (
            format!("{}{ONE}", blob("8KiB")),
            "offset: a GPT occupies the first 17408 bytes\n  \
             help: set table = \"mbr\" in [disk], or use an offset of at least 17408",
        ),
        (format!("{}{ONE}", blob("1020K")), "overlap partition 1, bytes 1048576 to 5242880"),
        (format!("{}{}{ONE}", blob("64K"), blob("80K")), "overlap "),
        (format!("{}{ONE}", blob("6100K")), "overlap the copy of the partition table"),
        (format!("{}{ONE}", blob("1G")), "end after the disk"),
        (
            format!("{ONE}offset=\"10K\"\n"),
            "partition 1 of the layout cannot start at byte 10240: the first free byte is 17408",
        ),
        (format!("{ONE}{ONE}offset=\"4M\"\n"), "partition 2 of the layout cannot start at byte 4194304"),
        (format!("{ONE}number=\"2\"\n{ONE}"), "two partitions have the number 2"),
        (format!("{ONE}number=\"129\"\n"), "from 1 to 128"),
        (format!("[[blob]]\nfile=\"gone\"\noffset=\"64K\"\n{ONE}"), "cannot open"),
        (format!("[[blob]]\nfile=\"spl.bin\"\n{ONE}"), "offset: this key is required"),
    ];
    for (layout, message) in cases {
        bench.refused(&layout, message);
    }
}

#[test]
fn the_layout_of_a_disk_builds_a_disk_with_the_same_table() {
    if !require(&["sgdisk", "sfdisk"].map(Oracle::Program)) {
        return;
    }
    let bench = Bench::new();
    let disk = bench.path("cloud.img");
    fs::write(&disk, vec![0; (40 << 20) + 512]).unwrap();
    // The numbers of a cloud image, and a last partition up to the copy of the table.
    let args = [
        "-n",
        "14:2048:+3M",
        "-t",
        "14:ef02",
        "-n",
        "15:0:+8M",
        "-t",
        "15:ef00",
        "-c",
        "15:a \"b\"",
        "-n",
        "1:0:0",
        "-t",
        "1:8304",
        "-A",
        "1:set:60",
        "-A",
        "1:set:56",
    ];
    call("sgdisk", args.into_iter().map(Path::new).chain([&*disk])).unwrap();
    let old = bench.path("old.img");
    fs::write(&old, vec![0; 64 << 20]).unwrap();
    let script = "label: dos\nlabel-id: 0x1234abcd\nstart=63,size=4000,type=7,bootable\nstart=8192,size=8192,type=c\n\
                  start=20480,size=8192,type=83\nstart=32768,type=5\nstart=34816,size=8192,type=83\n\
                  start=45056,size=4097,type=82\n";
    fs::write(bench.path("script"), script).unwrap();
    let script = fs::File::open(bench.path("script")).unwrap();
    let status = Command::new("sfdisk").arg("-q").arg(&old).stdin(script).stdout(Stdio::null()).status();
    assert!(status.unwrap().success());
    for name in ["cloud.img", "old.img"] {
        let (layout, said) = bench.run(&format!("build --disk - --print-layout {name}"), 0);
        // Without a kernel for other types, rights are given up before the disk is decoded.
        let native = bench.run(&format!("build --engine native --disk - --print-layout {name}"), 0);
        assert_eq!(native.0, layout, "{}", native.1);
        assert_eq!(said, "");
        fs::write(bench.path("layout.toml"), layout).unwrap();
        bench.run("build again.img --disk layout.toml -q -F", 0);
        let lines = |name: &str| -> Vec<String> {
            // The extended partition ends with its last logical partition.
            let is_kept = |line: &&str| {
                !line.contains("type=5") && !line.contains("type=f,") && !line.ends_with("type=f")
            };
            bench
                .dump(name)
                .lines()
                .filter(is_kept)
                .filter(|line| !line.starts_with("device"))
                .map(str::to_owned)
                .collect()
        };
        assert_eq!(lines("again.img"), lines(name));
        assert_eq!(
            fs::metadata(bench.path("again.img")).unwrap().len(),
            fs::metadata(bench.path(name)).unwrap().len()
        );
    }
    let (_, said) = bench.run("build --print-layout layout.toml", 2);
    assert!(said.contains("no partition table was found"), "{said}");
}

#[test]
fn a_layout_is_read_from_standard_input() {
    let bench = Bench::new();
    fs::write(bench.path("loader"), [7; 5000]).unwrap();
    let layout = "[disk]\ntable = \"mbr\"\n[[blob]]\nfile = \"loader\"\noffset = \"8KiB\"\n\
                  [[partition]]\ntype = \"linux-generic\"\nsize = \"1M\"\n";
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    command.current_dir(bench.path("")).args(["build", "-q", "disk.img", "--disk", "-"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), layout.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(fs::read(bench.path("disk.img")).unwrap()[8192..13_192], [7; 5000]);
}

/// The bytes of partition `number` of an A/B disk: 16 MiB each, after 8 MiB of the ESP, which starts at 1 MiB.
fn slot(disk: &[u8], number: usize) -> &[u8] {
    let start = (9 << 20) + (number - 2) * (16 << 20);
    &disk[start..start + (16 << 20)]
}

#[test]
fn a_disk_with_a_b_partitions_has_two_equal_systems_and_an_update_changes_one_of_them() {
    let bench = Bench::new();
    fs::create_dir_all(bench.path("root/etc")).unwrap();
    fs::write(bench.path("root/etc/version"), "1\n").unwrap();
    let slot_of = |label: &str, more: &str| {
        format!(
            "[[partition]]\ntype=\"root-x86-64\"\nlabel=\"{label}\"\nsize=\"16M\"\ncontent=\"ext4\"\nfrom=\"root\"\n{more}"
        )
    };
    let layout = format!(
        "[[partition]]\ntype=\"esp\"\nsize=\"8M\"\ncontent=\"vfat\"\n{}{}",
        slot_of("root-a", ""),
        slot_of("root-b", "attributes=\"no-auto\"\n")
    );
    fs::write(bench.path("layout.toml"), layout).unwrap();
    bench.run("build disk.img --disk layout.toml --verify -q", 0);
    assert_eq!(bench.run("diff -r disk.img@name=root-a:/ disk.img@name=root-b:/", 0).0, "");
    bench.run("check disk.img", 0);
    // Both systems run on one machine, so that no identifier selects two partitions.
    let (info, _) = bench.run("--json info disk.img", 0);
    let ids: Vec<&str> = info.split("uuid\":\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let distinct: std::collections::BTreeSet<&str> = ids.iter().copied().collect();
    assert!(ids.len() > 5 && distinct.len() == ids.len(), "{info}");

    let before = fs::read(bench.path("disk.img")).unwrap();
    fs::write(bench.path("root/etc/version"), "2\n").unwrap();
    bench.run("build -q new.ext4 --from root --size 16M", 0);
    bench.run("convert -q --force new.ext4 disk.img@name=root-b", 0);
    bench.run("part disk.img attributes 2 +no-auto", 0);
    bench.run("part disk.img attributes 3 -no-auto", 0);
    let after = fs::read(bench.path("disk.img")).unwrap();
    assert!(slot(&before, 2) == slot(&after, 2) && slot(&before, 3) != slot(&after, 3));
    assert_eq!(
        bench.run("cat disk.img@name=root-a:/etc/version disk.img@name=root-b:/etc/version", 0).0,
        "1\n2\n"
    );
    let (list, _) = bench.run("part disk.img", 0);
    assert!(list.contains("root-a [no-auto]\n") && list.contains("root-b\n"), "{list}");
    if !require(&["sgdisk", "e2fsck"].map(Oracle::Program)) {
        return;
    }
    let disk = bench.path("disk.img");
    let verdict = String::from_utf8(call("sgdisk", [Path::new("-v"), &*disk]).unwrap().stdout).unwrap();
    assert!(verdict.contains("No problems found"), "{verdict}");
    for number in [2, 3] {
        fs::write(bench.path("slot.img"), slot(&after, number)).unwrap();
        call("e2fsck", [Path::new("-fn"), &*bench.path("slot.img")]).unwrap();
    }
}
