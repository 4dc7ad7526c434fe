//! `obento part` against sgdisk, sfdisk and qemu-img, on raw disks and in containers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use obento_testkit::oracle::{Oracle, call, require};

struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs the command and returns its output and messages.
    #[track_caller]
    fn run(&self, args: &[&str], code: i32) -> (String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        let output = command.current_dir(self.0.path()).args(args).output().unwrap();
        let (text, said) = (text(output.stdout), text(output.stderr));
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}{said}");
        (text, said)
    }

    /// Runs `part disk.img` with the words of `line`.
    #[track_caller]
    fn part(&self, line: &str) -> String {
        let words: Vec<&str> = ["part", "disk.img"].into_iter().chain(line.split(' ')).collect();
        let (text, said) = self.run(&words, 0);
        assert_eq!(said, "", "{line}");
        text
    }

    #[track_caller]
    fn refused(&self, line: &str, message: &str) {
        let before = fs::read(self.path("disk.img")).unwrap();
        let words: Vec<&str> = ["part", "disk.img"].into_iter().chain(line.split(' ')).collect();
        let (_, said) = self.run(&words, 2);
        assert!(said.contains(message), "{line}: {said}");
        assert!(fs::read(self.path("disk.img")).unwrap() == before, "{line}");
    }

    fn judged(&self, program: &str, option: &str, words: &str) -> String {
        let said = text(call(program, [Path::new(option), &*self.path("disk.img")]).unwrap().stdout);
        assert!(said.contains(words), "{said}");
        said
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_disk_of_sgdisk_is_listed_and_changed_and_sgdisk_accepts_it() {
    if !require(&["sgdisk", "sfdisk"].map(Oracle::Program)) {
        return;
    }
    let bench = Bench::new();
    fs::write(bench.path("disk.img"), vec![0; 64 << 20]).unwrap();
    let disk = bench.path("disk.img");
    let args =
        ["-n", "1:1M:+8M", "-c", "1:boot", "-n", "2:10M:+8M", "-u", "1:11111111-2222-3333-4444-555555555555"];
    call("sgdisk", args.into_iter().map(Path::new).chain([&*disk])).unwrap();

    let (listed, said) = bench.run(&["part", "disk.img"], 0);
    assert_eq!(said, "");
    assert!(
        listed.contains("     1         1048576         9437184      8 MiB  Linux filesystem         boot"),
        "{listed}"
    );
    assert!(listed.lines().any(|line| line.ends_with("boot")) && listed.contains("free"), "{listed}");

    let said = bench.part("add --start 32M --size 4M --type esp --name ESP --attributes no-auto");
    assert!(said.contains("partition 3: EFI system, 4 MiB (4194304 bytes) at byte 33554432"), "{said}");
    let said = bench.part("grow 2 +2M");
    assert!(said.contains("(10485760 bytes) at byte 10485760"), "{said}");
    bench.part("grow boot 8M");
    bench.part("name 2 root");
    bench.part("type root root-x86-64");
    bench.part("attributes 11111111-2222-3333-4444-555555555555 +legacy-bootable +bit-56 -no-auto");
    bench.part("uuid 2 01234567-89ab-cdef-0123-456789abcdef");
    bench.part("uuid disk 00000000-0000-0000-0000-00000000000f");
    bench.judged("sgdisk", "-v", "No problems found");
    bench.judged("sfdisk", "--verify", "No errors detected");
    let dump = bench.judged("sfdisk", "--dump", "label-id: 00000000-0000-0000-0000-00000000000F");
    for words in [
        "name=\"boot\", attrs=\"LegacyBIOSBootable GUID:56\"",
        "type=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709, uuid=01234567-89AB-CDEF-0123-456789ABCDEF, name=\"root\"",
        "name=\"ESP\", attrs=\"GUID:63\"",
    ] {
        assert!(dump.contains(words), "{words}: {dump}");
    }
    bench.part("delete ESP boot");
    let dump = bench.judged("sfdisk", "--dump", "root");
    assert_eq!(dump.lines().filter(|line| line.contains("start=")).count(), 1, "{dump}");

    bench.refused("add --start 12M --size 1M", "the partition would overlap partition 2");
    bench.refused("add --size 1G", "no gap between partitions is large enough: the largest gap has");
    bench.refused("add --start 63M --size 1M", "but the usable space of the disk ends at byte 67091968");
    bench.refused("add --start 0 --size 1M", "but the disk has its partition table before byte 17408");
    bench.refused(
        "add --start 0 --size 1M",
        "help: omit --start to use free space, or name a start such as 1M",
    );
    bench.refused("grow 2 1M", "partition 2 has 10485760 bytes, which is more than the new size");
    bench.refused("delete 7", "no partition has the number, name or UUID '7'");
    bench.refused("type 2 cake", "unknown type 'cake' for GPT");
    bench.refused("attributes 2 +sweet", "unknown attribute 'sweet' for GPT");
    bench.refused(&format!("name 2 {}", "x".repeat(37)), "37 UTF-16 units, but at most 36 are allowed");
}

#[test]
fn a_grown_image_gets_its_backup_at_the_new_end_and_a_damaged_copy_is_repaired() {
    if !require(&[Oracle::Program("sgdisk")]) {
        return;
    }
    let bench = Bench::new();
    fs::write(bench.path("disk.img"), vec![0; 16 << 20]).unwrap();
    let disk = bench.path("disk.img");
    call("sgdisk", [Path::new("-n"), Path::new("1:1M:0"), &*disk]).unwrap();
    let mut bytes = fs::read(&disk).unwrap();
    bytes.resize(32 << 20, 0);
    fs::write(&disk, &bytes).unwrap();
    let (_, said) = bench.run(&["part", "disk.img"], 0);
    assert!(said.contains("repair-backup"), "{said}");
    bench.part("repair-backup");
    bench.judged("sgdisk", "-v", "No problems found");
    let said = bench.part("grow 1");
    // Up to the last usable sector: the backup of the GPT has 33 sectors.
    assert!(said.contains("(32488960 bytes)"), "{said}");
    assert_eq!(bench.part("grow 1"), "disk.img: partition 1 already has 31 MiB (32488960 bytes)\n");
    bench.judged("sgdisk", "-v", "No problems found");
    for spoiled in [600, (32 << 20) - 500] {
        let good = fs::read(&disk).unwrap();
        let mut bytes = good.clone();
        bytes[spoiled] ^= 0xff;
        fs::write(&disk, &bytes).unwrap();
        bench.run(&["part", "disk.img", "repair-backup"], 0);
        assert!(fs::read(&disk).unwrap() == good);
    }
    bench.judged("sgdisk", "-v", "No problems found");
}

#[test]
fn an_mbr_of_sfdisk_gets_logical_partitions_and_qcow2_and_vhd_are_changed_too() {
    if !require(&["sfdisk", "qemu-img"].map(Oracle::Program)) {
        return;
    }
    let bench = Bench::new();
    let disk = bench.path("disk.img");
    fs::write(&disk, vec![0; 64 << 20]).unwrap();
    let script = bench.path("script");
    fs::write(&script, "label: dos\nstart=2048, size=8192, type=83, bootable\n").unwrap();
    let status = Command::new("sfdisk").arg("-q").arg(&disk).stdin(fs::File::open(&script).unwrap()).status();
    assert!(status.unwrap().success());
    bench.part("add --type extended --start 8M");
    bench.part("add --number 5 --size 4M --type swap");
    bench.part("add --number 6 --size 4M");
    bench.part("attributes 1 -active");
    bench.part("type 6 0x0c");
    bench.part("uuid disk 0xcafebabe");
    let dump = bench.judged("sfdisk", "--dump", "label-id: 0xcafebabe");
    assert!(dump.contains("type=82") && dump.contains("type=c") && !dump.contains("bootable"), "{dump}");
    bench.judged("sfdisk", "--verify", "No errors detected");
    bench.refused("name 1 x", "a partition of an MBR has no name");
    bench.refused("delete 2", "the extended partition contains partition 5");
    bench.refused("repair-backup", "an MBR has no backup");
    bench.part("delete 2 5 6");
    bench.judged("sfdisk", "--verify", "No errors detected");

    for (format, name) in [("qcow2", "disk.qcow2"), ("vpc", "disk.vhd")] {
        let options = if format == "vpc" { "subformat=fixed,force_size=on" } else { "cluster_size=65536" };
        let args = ["convert", "-f", "raw", "-O", format, "-o", options].map(Path::new);
        call("qemu-img", args.into_iter().chain([&*disk, &*bench.path(name)])).unwrap();
        bench.run(&["part", name, "add", "--size", "16M"], 0);
        let args = ["convert", "-f", format, "-O", "raw"].map(Path::new);
        call("qemu-img", args.into_iter().chain([&*bench.path(name), &*bench.path("back.img")])).unwrap();
        let said = text(call("sfdisk", [Path::new("--dump"), &*bench.path("back.img")]).unwrap().stdout);
        assert!(said.contains("size=       32768"), "{said}");
    }
    let args = [Path::new("check"), &*bench.path("disk.qcow2")];
    call("qemu-img", args).unwrap();
}

#[test]
fn a_table_is_printed_as_json_and_disks_without_a_table_are_refused() {
    let bench = Bench::new();
    fs::write(
        bench.path("layout.toml"),
        "[disk]\nsize=\"16M\"\n[[partition]]\ntype=\"esp\"\nsize=\"4M\"\nlabel=\"a\"\n",
    )
    .unwrap();
    bench.run(&["build", "disk.img", "--disk", "layout.toml", "-q"], 0);
    let (listed, _) = bench.run(&["--json", "part", "disk.img", "list"], 0);
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), 3, "{listed}");
    assert!(
        lines[0].contains("\"kind\":\"partition_table\"") && lines[0].contains("\"backup\":true"),
        "{listed}"
    );
    assert!(
        lines[1].contains("\"kind\":\"partition\"") && lines[1].contains("\"start\":1048576"),
        "{listed}"
    );
    assert!(
        lines[2].contains("\"kind\":\"free_space\"") && lines[2].contains("\"logical\":false"),
        "{listed}"
    );
    let (added, _) = bench.run(&["--json", "part", "disk.img", "add"], 0);
    assert!(added.contains("\"number\":2,\"start\":5242880,\"size\":10485760"), "{added}");
    bench.refused("grow 1 5M", "partition 1 can have at most 4194304 bytes; partition 2 follows");
    fs::write(bench.path("empty.img"), vec![0; 1 << 20]).unwrap();
    let (_, said) = bench.run(&["part", "empty.img"], 2);
    assert!(said.contains("no partition table was found"), "{said}");
    let (_, said) = bench.run(&["part", "disk.img@1"], 2);
    assert!(said.contains("not a whole disk"), "{said}");
}

#[test]
fn a_new_table_is_accepted_by_sgdisk_and_sfdisk_and_takes_partitions() {
    if !require(&["sgdisk", "sfdisk", "qemu-img"].map(Oracle::Program)) {
        return;
    }
    let bench = Bench::new();
    let disk = bench.path("disk.img");
    fs::write(&disk, vec![0; 16 << 20]).unwrap();
    let (_, said) = bench.run(&["part", "disk.img"], 2);
    assert!(said.contains("run 'obento part disk.img create gpt'"), "{said}");
    let said = bench.part("create gpt --uuid 01234567-89ab-cdef-0123-456789abcdef");
    assert_eq!(said, "disk.img: empty GPT 01234567-89ab-cdef-0123-456789abcdef\n");
    bench.judged("sgdisk", "-v", "No problems found");
    bench.judged("sfdisk", "--verify", "No errors detected");
    bench.judged("sfdisk", "--dump", "label-id: 01234567-89AB-CDEF-0123-456789ABCDEF");
    bench.refused("create mbr", "it contains a partition table (GPT) with 0 partitions");
    bench.part("add --size 4M --name data");
    bench.judged("sgdisk", "-v", "No problems found");
    bench.refused("create gpt", "it contains a partition table (GPT) with 1 partition");

    assert_eq!(bench.part("create mbr --force --uuid 0x1234abcd"), "disk.img: empty MBR 1234abcd\n");
    let dump = bench.judged("sfdisk", "--dump", "label-id: 0x1234abcd");
    assert!(dump.contains("label: dos") && !dump.contains("start="), "{dump}");
    let (listed, _) = bench.run(&["part", "disk.img"], 0);
    assert!(listed.contains("MBR 1234abcd") && listed.contains("free"), "{listed}");
    bench.part("add --size 4M");
    bench.judged("sfdisk", "--verify", "No errors detected");
    bench.part("delete 1");
    bench.part("add --type esp");
    bench.judged("sfdisk", "--dump", "type=ef");

    call(
        "qemu-img",
        ["create", "-q", "-f", "qcow2"]
            .map(Path::new)
            .into_iter()
            .chain([&*bench.path("disk.qcow2"), Path::new("16M")]),
    )
    .unwrap();
    bench.run(&["part", "disk.qcow2", "create", "gpt"], 0);
    call("qemu-img", [Path::new("check"), Path::new("-q"), &*bench.path("disk.qcow2")]).unwrap();
    let args = ["convert", "-O", "raw"].map(Path::new);
    call("qemu-img", args.into_iter().chain([&*bench.path("disk.qcow2"), &*disk])).unwrap();
    bench.judged("sgdisk", "-v", "No problems found");
}

#[test]
fn a_new_disk_of_a_size_gets_a_table_and_a_partition_that_is_formatted() {
    if !require(&["sfdisk", "fsck.fat"].map(Oracle::Program)) {
        return;
    }
    let bench = Bench::new();
    let run = |line: &str, code| bench.run(&line.split(' ').collect::<Vec<_>>(), code);
    let (_, said) = run("part disk.img create mbr", 2);
    assert!(said.contains("no such file") && said.contains("use --size SIZE"), "{said}");
    let (text, _) = run("part disk.img create mbr --size 64M", 0);
    assert!(text.starts_with("disk.img: empty MBR"), "{text}");
    bench.part("add --type basic-data");
    run("mkfs -q -t vfat -L STICK disk.img@1", 0);
    bench.judged("sfdisk", "-l", "W95 FAT32 (LBA)");
    // The default type is that of Linux.
    run("part windows.img create mbr --size 64M", 0);
    run("part windows.img add", 0);
    let (_, said) = run("mkfs -q -t exfat windows.img@1", 0);
    assert!(said.contains("the type of partition 1 is Linux, which Windows ignores"), "{said}");
    assert!(said.contains("'obento part windows.img type 1 0x07' changes the type"), "{said}");
    run("part windows.img type 1 0x07", 0);
    let (_, said) = run("mkfs -q -F -t exfat windows.img@1", 0);
    assert_eq!(said, "");
    fs::write(bench.path("file"), "x").unwrap();
    run("cp file disk.img:/", 0);
    let bytes = fs::read(bench.path("disk.img")).unwrap();
    assert_eq!(bytes.len(), 64 << 20);
    fs::write(bench.path("volume"), &bytes[1 << 20..]).unwrap();
    call("fsck.fat", [Path::new("-n"), &bench.path("volume")]).unwrap();
    bench.refused("create gpt --size 1G", "file exists");
    // A partition is not the name of a new disk.
    for size in ["", " --size 4M"] {
        let (_, said) = run(&format!("part disk.img@1 create gpt{size}"), 2);
        assert!(said.contains("not a whole disk") && !bench.path("disk.img@1").exists(), "{said}");
        run(&format!("part disk.img@0 create gpt{size}"), 2);
        assert!(!bench.path("disk.img@0").exists());
    }
    let (_, said) = run("part small.img create gpt --size 4K", 2);
    assert!(said.contains("use a larger disk") && !bench.path("small.img").exists(), "{said}");
}

#[test]
fn a_new_table_destroys_known_data_only_with_force() {
    if !require(&["mke2fs", "sfdisk"].map(Oracle::Program)) {
        return;
    }
    let bench = Bench::new();
    let disk = bench.path("disk.img");
    for (table, length) in [("gpt", 16 << 20), ("mbr", 16 << 20)] {
        fs::write(&disk, vec![0; length]).unwrap();
        call("mke2fs", [Path::new("-q"), Path::new("-F"), &*disk]).unwrap();
        bench.refused(&format!("create {table}"), "it contains an ext2 file system of 16 MiB");
        bench.part(&format!("create {table} -f"));
        bench.part("add");
        bench.judged("sfdisk", "--verify", "No errors detected");
        bench.run(&["mkfs", "-q", "-F", "disk.img@1"], 0);
        bench.run(&["ls", "disk.img:/"], 0);
    }
    let mut luks = vec![0; 1 << 20];
    luks[..8].copy_from_slice(b"LUKS\xba\xbe\0\x02");
    fs::write(&disk, &luks).unwrap();
    bench.refused("create gpt", "LUKS");
    // A GPT whose MBR is lost may be repaired.
    fs::write(&disk, vec![0; 16 << 20]).unwrap();
    bench.part("create gpt");
    let mut bytes = fs::read(&disk).unwrap();
    bytes[..512].fill(0);
    fs::write(&disk, &bytes).unwrap();
    bench.refused("create mbr", "it contains a GPT whose protective MBR is missing");
    fs::write(&disk, vec![0; 30 << 10]).unwrap();
    bench.refused("create gpt", "the disk has 30720 bytes, but GPT requires at least 34816");
}

/// A disk with a GPT, whose partition 1 contains an ext4 volume.
fn gpt_with_volume() -> Bench {
    let bench = Bench::new();
    bench.part("create gpt --size 16M");
    bench.part("add --size 8M --name root");
    bench.run(&["mkfs", "-q", "disk.img@1"], 0);
    bench
}

/// The first sectors of a GPT: the MBR, the header and the entries.
const TABLE_SECTORS: usize = 34;

#[test]
fn a_disk_that_begins_with_zeros_gets_its_table_from_the_backup() {
    let bench = gpt_with_volume();
    let good = fs::read(bench.path("disk.img")).unwrap();
    for sectors in [1, 2, 5, TABLE_SECTORS, 2048] {
        let mut bytes = good.clone();
        bytes[..sectors * 512].fill(0);
        fs::write(bench.path("disk.img"), bytes).unwrap();
        bench.run(&["part", "disk.img", "repair-backup"], 0);
        assert!(fs::read(bench.path("disk.img")).unwrap() == good, "{sectors}");
    }
}

#[test]
fn a_disk_that_begins_with_other_data_does_not_get_its_table_from_the_backup() {
    let bench = gpt_with_volume();
    let good = fs::read(bench.path("disk.img")).unwrap();
    for at in [0, 513, 1024, 17_000] {
        let mut bytes = good.clone();
        bytes[..TABLE_SECTORS * 512].fill(0);
        bytes[at] = 1;
        fs::write(bench.path("disk.img"), bytes).unwrap();
        bench.refused("repair-backup", "the start of the disk has other contents");
    }
    // The label of Btrfs is after the table.
    let mut bytes = good;
    bytes[..1 << 20].fill(0);
    bytes[65_536 + 64..][..8].copy_from_slice(b"_BHRfS_M");
    fs::write(bench.path("disk.img"), bytes).unwrap();
    let before = fs::read(bench.path("disk.img")).unwrap();
    bench.run(&["part", "disk.img", "repair-backup"], 2);
    assert!(fs::read(bench.path("disk.img")).unwrap() == before);
}

#[test]
fn a_damaged_primary_gpt_is_a_finding_of_the_check_which_names_the_command_that_repairs_it() {
    let bench = gpt_with_volume();
    let good = fs::read(bench.path("disk.img")).unwrap();
    // In the header and in the entries.
    for (at, name) in [(600, "disk.img"), (1100, "disk.img@1")] {
        for option in ["-n", "-p", "-y"] {
            let mut bytes = good.clone();
            bytes[at] ^= 0xff;
            fs::write(bench.path("disk.img"), &bytes).unwrap();
            let (text, said) = bench.run(&["check", option, name], 4);
            let command = "'obento part disk.img repair-backup' writes both copies of the GPT again";
            assert_eq!(said, format!("obento: disk.img: note: {command}\n"));
            assert!(text.starts_with("the GPT at the start of the disk is damaged ("), "{text}");
            assert!(text.contains("\ndisk.img: partition table: 1 error "), "{text}");
            assert!(text.contains(&format!("\n{name}: no problems")), "{text}");
            assert!(fs::read(bench.path("disk.img")).unwrap() == bytes, "{option} {name}");
        }
    }
    bench.run(&["part", "disk.img", "repair-backup"], 0);
    assert!(fs::read(bench.path("disk.img")).unwrap() == good);
    let (text, _) = bench.run(&["check", "disk.img"], 0);
    assert!(!text.contains("table"), "{text}");
    // The record of the table comes before that of the volume.
    let mut bytes = good;
    bytes[600] ^= 0xff;
    fs::write(bench.path("disk.img"), &bytes).unwrap();
    let (text, _) = bench.run(&["--json", "check", "disk.img"], 4);
    let checked: Vec<&str> = text.lines().filter(|line| line.contains("\"kind\":\"checked\"")).collect();
    assert_eq!(checked.len(), 2, "{text}");
    assert!(
        checked[0].contains("\"table\":\"gpt\",\"clean\":false,\"found\":1,\"mended\":0,\"left\":1"),
        "{text}"
    );
    assert!(checked[1].contains("\"clean\":true"), "{text}");
}

#[test]
fn a_damaged_table_without_an_undamaged_copy_is_a_finding_that_stays() {
    let bench = gpt_with_volume();
    let mut bytes = fs::read(bench.path("disk.img")).unwrap();
    // The name of the partition, in both copies of the entries.
    let second = bytes.len() - 33 * 512;
    bytes[1024 + 60] ^= 1;
    bytes[second + 60] ^= 1;
    fs::write(bench.path("disk.img"), &bytes).unwrap();
    let (text, _) = bench.run(&["check", "-y", "disk.img@1"], 4);
    assert!(text.contains("partition table: 1 error left, which this command cannot repair"), "{text}");
    assert!(fs::read(bench.path("disk.img")).unwrap() == bytes);
}

/// Creates an MBR with a primary partition, an extended one and a logical one.
fn extended(bench: &Bench) {
    bench.run(&["part", "disk.img", "create", "mbr", "--size", "600M"], 0);
    bench.part("add --size 64M --type 0x0c");
    bench.part("add --type extended");
    bench.part("add --size 100M");
}

#[test]
fn free_space_in_an_extended_partition_is_listed_and_the_next_number_is_named() {
    let bench = Bench::new();
    extended(&bench);
    let list = bench.part("list");
    let free: Vec<&str> = list.lines().filter(|line| line.contains("free")).collect();
    assert_eq!(free.len(), 1, "{list}");
    let words: Vec<&str> = free[0].split_whitespace().collect();
    assert_eq!(words[..3], ["-", "174063616", "629145600"], "{list}");
    assert!(free[0].ends_with("free, for logical partitions"), "{list}");
    let (listed, _) = bench.run(&["--json", "part", "disk.img", "list"], 0);
    assert!(listed.lines().last().is_some_and(|line| line.contains("\"logical\":true")), "{listed}");
    bench.refused(
        "add --size 10M --number 8",
        "the number 8 is not possible: the next logical partition has the number 6\n  \
         help: omit --number, or use a number from 1 to 4, or 6\n",
    );
    bench.part("add --size 10M --number 6");
}

#[test]
fn a_layout_describes_an_mbr_with_few_primary_partitions_and_names_the_new_numbers() {
    let bench = Bench::new();
    extended(&bench);
    let (layout, said) = bench.run(&["build", "--print-layout", "disk.img"], 0);
    assert!(layout.contains("\n[[partition]]\n# number 5 of the disk\ntype = \"0x83\"\n"), "{layout}");
    assert!(said.contains("disk.img: note: ") && said.ends_with(": 5 becomes 2\n"), "{said}");
    bench.part("delete 5");
    let (layout, said) = bench.run(&["build", "--print-layout", "disk.img"], 0);
    assert_eq!(layout.matches("[[partition]]").count(), 1, "{layout}");
    assert!(said.contains("note: the extended partition 2 has no partitions, and is left out\n"), "{said}");
}

#[test]
fn the_usual_codes_of_sgdisk_are_types() {
    let bench = Bench::new();
    bench.run(&["part", "disk.img", "create", "gpt", "--size", "20M"], 0);
    for (code, name) in [("8300", "Linux filesystem"), ("EF00", "EFI system"), ("8200", "swap")] {
        let added = bench.part(&format!("add --size 2M --type {code}"));
        assert!(added.to_lowercase().contains(&name.to_lowercase()), "{code}: {added}");
    }
    bench.refused("add --size 2M --type 9999", "unknown type '9999'");
}
