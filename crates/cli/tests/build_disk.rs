//! `obento build --disk`: whole disks, judged by sgdisk, sfdisk, e2fsck and the kernel.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use obento_testkit::oracle::{LoopMount, Oracle, call, program, require};
use obento_testkit::second;
use tempfile::TempDir;

struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Expects this exit code, and returns standard output and error.
    #[track_caller]
    fn run(&self, line: &str, code: i32) -> (String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        let output = command.current_dir(self.0.path()).args(line.split(' ')).env_clear().output().unwrap();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{line}: {out}{err}");
        (out, err)
    }

    /// Returns the message for an invalid layout.
    #[track_caller]
    fn refused(&self, layout: &str) -> String {
        fs::write(self.path("bad.toml"), layout).unwrap();
        let (_, err) = self.run("build bad.img --disk bad.toml", 2);
        assert!(!self.path("bad.img").exists());
        err
    }

    fn sources(&self) {
        fs::create_dir_all(self.path("esp/EFI/BOOT")).unwrap();
        fs::write(self.path("esp/EFI/BOOT/BOOTX64.EFI"), "loader").unwrap();
        fs::create_dir_all(self.path("root/etc")).unwrap();
        fs::write(self.path("root/etc/fstab"), "none\n").unwrap();
        fs::write(self.path("root/big"), vec![7; 3 << 20]).unwrap();
        symlink("etc/fstab", self.path("root/link")).unwrap();
        fs::set_permissions(self.path("root/etc/fstab"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(self.path("boot.img"), "raw bytes").unwrap();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the partitions that the kernel finds, in sectors; `None` if it does not look for partitions.
fn kernel_places(disk: &Path) -> Option<Vec<(u64, u64)>> {
    let device = call("losetup", ["-fP".as_ref(), "--show".as_ref(), disk.as_os_str()]).unwrap();
    let device = text(&device.stdout).trim().to_owned();
    let name = device.trim_start_matches("/dev/");
    let number = |at: u32, what: &str| -> Option<u64> {
        fs::read_to_string(format!("/sys/block/{name}/{name}p{at}/{what}")).ok()?.trim().parse().ok()
    };
    let places = (1..=5).map(|at| Some((number(at, "start")?, number(at, "size")?))).collect();
    call("losetup", ["-d", &device]).unwrap();
    places
}

/// A layout with one partition of each kind.
const GPT: &str = r#"
[disk]
size = "200M"

[[partition]]
type = "esp"
label = "ESP"
size = "24M"
content = "vfat"
from = ["esp"]

[[partition]]
type = "swap"
size = "8M"
content = "swap"
fs-label = "pages"
fs-uuid = "01234567-89ab-cdef-0123-456789abcdef"

[[partition]]
type = "0fc63daf-8483-4772-8e79-3d69d8477de4"
label = "raw"
uuid = "11111111-2222-3333-4444-555555555555"
content = "raw:boot.img"
attributes = ["read-only", "no-auto"]

[[partition]]
type = "root-x86-64"
label = "root"
size = "rest"
content = "ext4"
from = ["root"]
add = ["boot.img:/boot/"]
owner = "5:6"
fs-label = "sys"

[[partition]]
type = "home"
content = "ext2"
free = "50%"
"#;

#[test]
fn a_disk_of_every_content_is_right_to_all_judges() {
    let bench = Bench::new();
    bench.sources();
    fs::write(bench.path("layout.toml"), GPT).unwrap();
    let (said, notes) = bench.run("build disk.img --disk layout.toml --verify", 0);
    let (notes, modes) = notes.split_once("the permissions of").unwrap();
    assert!(modes.ends_with(" are not preserved\n"), "{modes}");
    assert!(said.contains("  4 Linux root (x86-64) ") && said.contains("'root': ext4 "), "{said}");
    assert_eq!(notes, "obento: disk.img@1: note: ");
    assert_eq!(fs::metadata(bench.path("disk.img")).unwrap().len(), 200 << 20);
    // The bytes do not depend on the folder and the name: paths are relative to the layout file.
    fs::create_dir(bench.path("other")).unwrap();
    bench.run("build other/again.img --disk ./layout.toml -q", 0);
    let image = fs::read(bench.path("disk.img")).unwrap();
    assert!(fs::read(bench.path("other/again.img")).unwrap() == image);

    assert_eq!(bench.run("cat disk.img@ESP:/EFI/BOOT/BOOTX64.EFI", 0).0, "loader");
    assert_eq!(bench.run("ls disk.img@4:/", 0).0, "big\nboot\netc\nlink\nlost+found\n");
    assert_eq!(bench.run("stat -c %u:%g:%a disk.img@4:/etc/fstab", 0).0, "5:6:600\n");
    assert_eq!(bench.run("ls disk.img@5:/", 0).0, "lost+found\n");
    for number in [1, 4, 5] {
        bench.run(&format!("check disk.img@{number}"), 0);
    }
    let info = bench.run("info disk.img", 0).0;
    for words in ["Linux swap space", "11111111-2222-3333-4444-555555555555", "label                 sys"] {
        assert!(info.contains(words), "{words}: {info}");
    }
    let raw = image.windows(9).position(|window| window == b"raw bytes").unwrap();
    assert_eq!(raw % (1 << 20), 0);

    let disk = bench.path("disk.img");
    if require(&[Oracle::Program("sgdisk"), Oracle::Program("sfdisk"), Oracle::Program("swaplabel")]) {
        let said = text(&call("sgdisk", ["-v".as_ref(), disk.as_os_str()]).unwrap().stdout);
        assert!(said.contains("No problems found"), "{said}");
        let said = text(&call("sfdisk", ["--verify".as_ref(), disk.as_os_str()]).unwrap().stdout);
        assert!(said.contains("No errors detected"), "{said}");
        let said = text(&call("sfdisk", ["--dump".as_ref(), disk.as_os_str()]).unwrap().stdout);
        assert!(said.contains("attrs=\"GUID:60,63\"") && said.contains("name=\"root\""), "{said}");
        fs::write(bench.path("esp.img"), &image[1 << 20..25 << 20]).unwrap();
        fs::write(bench.path("swap"), &image[25 << 20..33 << 20]).unwrap();
        let said = text(&call("swaplabel", [bench.path("swap")]).unwrap().stdout);
        assert!(
            said.contains("LABEL: pages") && said.contains("UUID:  01234567-89ab-cdef-0123-456789abcdef"),
            "{said}"
        );
    }
    if require(&[Oracle::Program("fsck.fat"), Oracle::Program("mtype")]) {
        call("fsck.fat", ["-n".as_ref(), bench.path("esp.img").as_os_str()]).unwrap();
        let image = bench.path("esp.img");
        let said =
            call("mtype", ["-i".as_ref(), image.as_os_str(), "::/EFI/BOOT/BOOTX64.EFI".as_ref()]).unwrap();
        assert_eq!(said.stdout, b"loader");
    }
    let judges = [Oracle::Root, Oracle::LoopMount, Oracle::Program("losetup"), Oracle::Program("sfdisk")];
    if require(&judges) {
        let dump = text(&call("sfdisk", ["--dump".as_ref(), disk.as_os_str()]).unwrap().stdout);
        let number = |line: &str, name: &str| -> u64 {
            let rest = line.split(name).nth(1).unwrap();
            rest.split(',').next().unwrap().trim().parse().unwrap()
        };
        let lines = dump.lines().filter(|line| line.contains("start="));
        let places: Vec<(u64, u64)> =
            lines.map(|line| (number(line, "start="), number(line, "size="))).collect();
        assert_eq!(places[..3], [(2048, 49_152), (51_200, 16_384), (67_584, 2048)]);
        assert_eq!(kernel_places(&disk).unwrap_or(places.clone()), places);
        let mount = LoopMount::new(&disk, &format!("ro,offset={}", places[3].0 * 512)).unwrap();
        assert_eq!(fs::read(mount.path().join("big")).unwrap(), vec![7; 3 << 20]);
        assert_eq!(fs::read_link(mount.path().join("link")).unwrap().as_os_str(), "etc/fstab");
        mount.unmount().unwrap();
    }
}

#[test]
fn an_mbr_has_logical_partitions_behind_the_third() {
    let bench = Bench::new();
    bench.sources();
    let partition = |kind: &str, more: &str| format!("[[partition]]\ntype = \"{kind}\"\n{more}\n");
    let layout = [
        "[disk]\ntable = \"mbr\"\nuuid = \"0xcafebabe\"\n".to_owned(),
        partition("0x83", "content = \"ext2\"\nfrom = \"root\"\nattributes = [\"active\"]"),
        partition("swap", "content = \"swap\"\nsize = \"2M\""),
        partition("0xda", "size = \"1M\""),
        partition("linux-generic", "content = \"ext4\"\nfrom = \"root\"\nminimize = true"),
        partition("linux-generic", "content = \"ext4\"\nfrom = \"root\"\nminimize = true"),
    ];
    fs::write(bench.path("layout.toml"), layout.concat()).unwrap();
    bench.run("build disk.img --disk layout.toml -q", 0);
    for number in [1, 5, 6] {
        assert_eq!(bench.run(&format!("cat disk.img@{number}:/etc/fstab"), 0).0, "none\n");
    }
    // Two volumes with the same tree have different identifiers.
    let uuid = |number: u32| bench.run(&format!("--json info disk.img@{number}"), 0).0;
    assert_ne!(uuid(5), uuid(6));
    let disk = bench.path("disk.img");
    if require(&[Oracle::Program("sfdisk")]) {
        let said = text(&call("sfdisk", ["--verify".as_ref(), disk.as_os_str()]).unwrap().stdout);
        assert!(said.contains("No errors detected"), "{said}");
        let dump = text(&call("sfdisk", ["--dump".as_ref(), disk.as_os_str()]).unwrap().stdout);
        assert!(dump.contains("label-id: 0xcafebabe"), "{dump}");
        let of = |number: u32| {
            let line = dump.lines().find(|line| line.contains(&format!("disk.img{number} "))).unwrap();
            line.split(": ").nth(1).unwrap().replace(' ', "")
        };
        assert!(of(1).ends_with("type=83,bootable"), "{dump}");
        assert!(of(4).contains("type=f") && of(6).contains("type=83"), "{dump}");
    }
    let four = bench.refused("[disk]\ntable = \"mbr\"\n[[partition]]\ntype = \"0x05\"\nsize = \"1M\"\n");
    assert!(four.contains("'bad.toml:4': type: unknown type '0x05' for MBR"), "{four}");
}

#[test]
fn errors_in_a_layout_are_reported_with_line_and_key() {
    let bench = Bench::new();
    bench.sources();
    call("mkfifo", [bench.path("pipe").as_os_str()]).unwrap();
    let cases = [
        ("[disk]\nsizes = \"1G\"\n", "'bad.toml:2': sizes: unknown key"),
        ("x = 1\n", "'bad.toml:1': x: unknown key"),
        ("[disks]\nsize = \"1G\"\n[disk]\nsize = \"1X\"\n", "'bad.toml:1': disks: unknown key"),
        ("[disk]\ntable = \"bsd\"\ntabel = \"mbr\"\n", "'bad.toml:3': tabel: unknown key"),
        ("[[blob]]\nfil = \"x\"\noffset = \"1K\"\n", "'bad.toml:2': fil: unknown key"),
        ("[[partition]]\ntypo = \"esp\"\nsize = \"1M\"\n", "'bad.toml:2': typo: unknown key"),
        (
            "[[partition]]\ntype = \"esp\"\nsizee = \"1M\"\n",
            "'bad.toml:3': sizee: unknown key\n  help: did you mean 'size'? 'obento help layout' lists the keys",
        ),
        ("[disk]\nsize = 1.5\n", "'bad.toml:2': size: not a string"),
        (
            "[disk]\nsize = \"1X\"\n",
            "'bad.toml:2': size: invalid size '1X'\n  help: write a size such as 10G",
        ),
        ("[disk]\ntable = \"bsd\"\n", "'bad.toml:2': table: must be \"gpt\" or \"mbr\""),
        ("[disk]\nsize = \"1G\n", "'bad.toml:2': "),
        ("", "partition: at least one is required; write [[partition]]"),
        ("[partition]\ntype = \"esp\"\n", "'bad.toml:1': partition: not a list of tables"),
        ("[[partition]]\nsize = \"1M\"\n", "'bad.toml:1': type: this key is required"),
        ("[[partition]]\n\ntype = \"root\"\n", "'bad.toml:3': type: unknown type 'root' for GPT"),
        ("[[partition]]\ntype = \"esp\"\n", "size: an empty partition or a swap area requires a size"),
        (
            "[[partition]]\ntype = \"esp\"\nsize = \"1M\"\nfrom = \"esp\"\n",
            "'bad.toml:4': from: this key requires a file system",
        ),
        (
            "[[partition]]\ntype = \"esp\"\ncontent = \"ext4\"\nfrom = [\"gone\"]\n",
            "'bad.toml:4': from: cannot open 'gone'",
        ),
        (
            "[[partition]]\ntype = \"esp\"\ncontent = \"ext4\"\nfree = \"x\"\n",
            "'bad.toml:4': free: invalid value 'x'\n  help: write a value such as 20%",
        ),
        (
            "[[partition]]\ntype = \"esp\"\ncontent = \"ext4\"\nfs-uuid = \"x\"\n",
            "'bad.toml:4': fs-uuid: invalid value 'x'\n  help: write a value such as 01234567-89ab-cdef-0123-456789abcdef",
        ),
        (
            "[[partition]]\ntype = \"esp\"\ncontent = \"vfat\"\nfs-uuid = \"01234567-89ab-cdef-0123-456789abcdef\"\n",
            "'bad.toml:4': fs-uuid: invalid value '01234567-89ab-cdef-0123-456789abcdef'\n  help: write a value such as 1234-ABCD",
        ),
        (
            "[[partition]]\ntype = \"esp\"\ncontent = \"ext4\"\nfs-uuid = \"1234-ABCD\"\n",
            "'bad.toml:4': fs-uuid: invalid value '1234-ABCD'\n  help: write a value such as 01234567-",
        ),
        (
            "[[partition]]\ntype = \"esp\"\ncontent = \"ext4\"\nsize = \"9M\"\nfree = \"20%\"\n",
            "'bad.toml:5': free: cannot be combined with size",
        ),
        (
            "[[partition]]\ntype = \"esp\"\nsize = \"1M\"\nattributes = [\"fast\"]\n",
            "'bad.toml:4': attributes: unknown attribute 'fast'",
        ),
        (
            "[[partition]]\ntype = \"esp\"\nsize = \"rest\"\n",
            "'bad.toml:3': size: 'rest' requires the size of the disk",
        ),
        (
            "[disk]\nsize = \"9M\"\n[[partition]]\ntype = \"esp\"\nsize = \"rest\"\n[[partition]]\ntype = \"esp\"\n\
             size = \"rest\"\n",
            "'bad.toml:8': size: another partition uses the rest already",
        ),
        (
            "[[partition]]\ntype = \"esp\"\ncontent = \"ntfs\"\n",
            "partition 1: obento does not build volumes of type 'ntfs'",
        ),
        ("[[partition]]\ntype = \"esp\"\ncontent = \"raw:gone\"\n", "partition 1: cannot open "),
        // Opening a FIFO would wait for a writer.
        ("[[partition]]\ntype = \"esp\"\ncontent = \"raw:pipe\"\n", "pipe' is not a regular file"),
        (
            "[[blob]]\nfile = \"pipe\"\noffset = \"20K\"\n[[partition]]\ntype = \"esp\"\nsize = \"1M\"\n",
            "pipe: not a regular file",
        ),
        (
            "[[partition]]\ntype = \"esp\"\nsize = \"1M\"\ncontent = \"ext4\"\nfrom = \"root\"\n",
            "partition 1: a size of 1048576 bytes is too small; ",
        ),
        (
            "[disk]\nsize = \"5M\"\n[[partition]]\ntype = \"esp\"\nsize = \"4M\"\n",
            "a size of 5242880 bytes is too small; 6291456 bytes are required",
        ),
        (
            "[[partition]]\ntype = \"esp\"\nlabel = \"0123456789012345678901234567890123456\"\nsize = \"1M\"\n",
            "the name of partition 1 has more than 36 UTF-16 units",
        ),
    ];
    for (layout, words) in cases {
        let said = bench.refused(layout);
        assert!(said.contains(words), "{layout}: {said}");
    }
    assert!(bench.run("build x.img --disk gone.toml", 2).1.contains("cannot open 'gone.toml'"));
    bench.run("build x.img --disk gone.toml --from root", 2);
}

#[test]
fn files_that_a_small_format_cannot_store_are_refused_or_counted() {
    let bench = Bench::new();
    let tree = bench.path("tree");
    fs::create_dir_all(tree.join("folder")).unwrap();
    fs::write(tree.join("folder/file"), vec![5; 100_000]).unwrap();
    fs::hard_link(tree.join("folder/file"), tree.join("again")).unwrap();
    symlink("folder", tree.join("link")).unwrap();
    let sparse = fs::File::create(tree.join("sparse")).unwrap();
    sparse.set_len(1 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", 1 << 19).unwrap();
    let (_, said) = bench.run("build small.img -t xv6 --from tree --owner 7:8 --verify", 0);
    assert_eq!(said, "");
    bench.run("check small.img", 0);
    bench.run("diff -r small.img:/ tree", 0);
    assert_eq!(bench.run("stat -c %h:%u:%g small.img:/again", 0).0, "2:7:8\n");
    assert_eq!(bench.run("readlink small.img:/link", 0).0, "folder\n");
    assert_eq!(bench.run("du -B1 small.img:/sparse", 0).0.split('\t').next(), Some("8192"));
    if require(&[Oracle::Root, Oracle::Program("setfattr")]) {
        let set = program("setfattr").args(["-n", "user.a", "-v", "b"]).arg(tree.join("sparse")).status();
        assert!(set.unwrap().success());
        let (_, said) = bench.run("build -F small.img -t xv6 --from tree --xattrs -q", 0);
        assert!(said.contains("the extended attributes of 1 file are not preserved"), "{said}");
    }
    fs::File::create(tree.join("huge")).unwrap().set_len(1 << 40).unwrap();
    let (_, said) = bench.run("build other.img -t xv6 --from tree", 2);
    assert!(said.contains("cannot store '/huge': the file is longer than "), "{said}");
    let (_, said) = bench.run("build other.img -t xv6 --from tree --exclude huge --size 64k", 2);
    assert!(said.contains("too small"), "{said}");
}

#[test]
fn a_fat_volume_refuses_files_without_space_and_stores_the_rest() {
    let bench = Bench::new();
    let tree = bench.path("tree");
    fs::create_dir_all(tree.join("Folder with a long name")).unwrap();
    for at in 0..300_usize {
        let name = format!("Folder with a long name/file number {at}.text");
        fs::write(tree.join(name), vec![b'a' + (at % 26) as u8; at * 37]).unwrap();
    }
    bench.run("build fat.img -t vfat --from tree -L ESP --verify -q", 0);
    bench.run("diff -r fat.img:/ tree", 0);
    bench.run("build other.img -t vfat --from tree -L ESP -q --size 64M", 0);
    bench.run("diff -r other.img:/ tree", 0);
    if require(&[Oracle::Program("fsck.fat")]) {
        for name in ["fat.img", "other.img"] {
            call("fsck.fat", ["-n".as_ref(), bench.path(name).as_os_str()]).unwrap();
        }
    }
    symlink("x", tree.join("link")).unwrap();
    fs::write(tree.join("twice"), "").unwrap();
    fs::write(tree.join("TWICE"), "").unwrap();
    fs::write(tree.join("linked"), "").unwrap();
    fs::hard_link(tree.join("linked"), tree.join("again")).unwrap();
    let (_, said) = bench.run("build bad.img -t vfat --from tree", 2);
    for words in [
        "cannot store '/link': the format does not support files of this type",
        "cannot store '/twice': the format treats the name as equal to another name in the directory",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    // The second name of a file becomes a separate file.
    assert!(!said.contains("again"), "{said}");
    assert!(!bench.path("bad.img").exists());
}

#[test]
fn an_exfat_is_built_alone_and_in_a_partition_and_read_by_a_second_implementation() {
    let bench = Bench::new();
    let tree = bench.path("tree");
    fs::create_dir_all(tree.join("A folder/deeper")).unwrap();
    for at in 0..200_usize {
        let name = format!("A folder/file number {at}, of a name that needs entries \u{e4}");
        fs::write(tree.join(name), vec![b'a' + (at % 26) as u8; at * 977]).unwrap();
    }
    // This tree does not fit into the first size that the command tries.
    fs::write(tree.join("A folder/deeper/large"), vec![7; 6 << 20]).unwrap();
    bench.run("build card.img -t exfat --from tree -L CARD --verify -q", 0);
    bench.run("diff -r card.img:/ tree", 0);
    bench.run("build again.img -t exfat --from tree -L CARD -q", 0);
    assert!(fs::read(bench.path("card.img")).unwrap() == fs::read(bench.path("again.img")).unwrap());
    let mut places = vec![("card.img", 0)];
    for (table, kind, place) in [("gpt", "basic-data", "gpt.img"), ("mbr", "0x07", "mbr.img")] {
        let layout = format!(
            "[disk]\ntable = \"{table}\"\n[[partition]]\ntype = \"{kind}\"\nsize = \"32M\"\ncontent = \"exfat\"\n\
             from = [\"tree\"]\nfs-label = \"CARD\"\nextended = [\"volume_id=1234abcd\"]\n"
        );
        fs::write(bench.path("layout.toml"), layout).unwrap();
        bench.run(&format!("build {place} --disk layout.toml --verify -q"), 0);
        let (said, _) = bench.run(&format!("info {place}@1"), 0);
        assert!(said.contains("exfat") && said.contains("1234-ABCD"), "{said}");
        bench.run(&format!("diff -r {place}@1:/ tree"), 0);
        places.push((place, 1 << 20));
    }
    if second::has_exfat() {
        for (image, offset) in places {
            second::exfat(&bench.path(image), offset, "ro", |at| {
                call("diff", ["-r".as_ref(), at.as_os_str(), tree.as_os_str()]).unwrap();
            });
        }
    }
}

/// A root with a hash tree.
const VERITY: &str = r#"
[[partition]]
type = "root-x86-64"
label = "root"
content = "ext4"
from = ["root"]

[[partition]]
type = "root-x86-64-verity"
content = "verity:root"
"#;

/// Returns the value of a field of the line of the partition `number`.
fn partition_field(json: &str, number: u32, field: &str) -> String {
    let start = format!("\"number\":{number},");
    let line = json.lines().find(|line| line.contains("built_partition") && line.contains(&start)).unwrap();
    let value = line.split(&format!("\"{field}\":")).nth(1).unwrap_or_else(|| panic!("{field}: {line}"));
    value.trim_start_matches('"').split(['"', ',', '}']).next().unwrap().to_owned()
}

/// Writes the bytes of a partition to the file `name`.
fn cut_out(bench: &Bench, json: &str, number: u32, name: &str) -> Vec<u8> {
    let [start, size] = ["start", "size"].map(|field| partition_field(json, number, field).parse().unwrap());
    let disk = fs::read(bench.path("disk.img")).unwrap();
    let (start, size): (usize, usize) = (start, size);
    fs::write(bench.path(name), &disk[start..start + size]).unwrap();
    disk[start..start + size].to_vec()
}

#[test]
fn a_hash_tree_verifies_its_partition_and_determines_the_guids_of_both() {
    if !require(&[Oracle::Program("veritysetup")]) {
        return;
    }
    let bench = Bench::new();
    bench.sources();
    fs::write(bench.path("layout.toml"), VERITY).unwrap();
    let (json, _) = bench.run("build disk.img --disk layout.toml --verify --root-hash root.hash --json", 0);
    let root = partition_field(&json, 2, "root_hash");
    assert_eq!(fs::read_to_string(bench.path("root.hash")).unwrap(), root);
    let guid = |number| partition_field(&json, number, "partition_uuid").replace('-', "").to_lowercase();
    assert_eq!(guid(1) + &guid(2), root);
    let (said, _) = bench.run("build again.img --disk layout.toml", 0);
    assert!(said.contains(&format!(": verity, root hash {root}\n")), "{said}");
    assert!(fs::read(bench.path("again.img")).unwrap() == fs::read(bench.path("disk.img")).unwrap());

    let mut data = cut_out(&bench, &json, 1, "data");
    cut_out(&bench, &json, 2, "tree");
    let verify = || {
        call("veritysetup", ["verify".into(), bench.path("data"), bench.path("tree"), root.clone().into()])
    };
    verify().unwrap();
    let last = data.len() - 1;
    data[last] ^= 1;
    fs::write(bench.path("data"), &data).unwrap();
    verify().unwrap_err();
}

#[test]
fn hash_trees_of_all_depths_have_the_bytes_of_veritysetup() {
    if !require(&[Oracle::Program("veritysetup")]) {
        return;
    }
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    for (blocks, salt) in
        [(1, "00"), (2, "abcdef"), (127, ""), (128, "01"), (129, "02"), (16_384, "03"), (16_385, "0405")]
    {
        let bench = Bench::new();
        // Every third block is zero, and the last one is not.
        let block = |at: u32| if at % 3 == 1 { [0; 4096] } else { [(at % 251) as u8 + 1; 4096] };
        let data: Vec<u8> = (0..blocks).rev().flat_map(block).collect();
        fs::write(bench.path("data"), &data).unwrap();
        let layout = format!(
            "[[partition]]\ntype = \"linux-generic\"\nlabel = \"data\"\noffset = \"1MiB\"\n\
             content = \"raw:data\"\n[[partition]]\ntype = \"linux-generic\"\n\
             content = \"verity:data\"\nsalt = \"{salt}\"\nfs-uuid = \"{uuid}\"\n"
        );
        fs::write(bench.path("layout.toml"), layout).unwrap();
        let (json, _) = bench.run("build disk.img --disk layout.toml --json", 0);
        let tree = cut_out(&bench, &json, 2, "tree");
        let salt = if salt.is_empty() { "-" } else { salt };
        let made = program("veritysetup")
            .current_dir(bench.0.path())
            .args(["format", "data", "expected", "--salt", salt, "--uuid", uuid])
            .output()
            .unwrap();
        let (said, error) = (text(&made.stdout), text(&made.stderr));
        assert!(said.contains(&partition_field(&json, 2, "root_hash")), "{blocks}: {said}{error}");
        let expected = fs::read(bench.path("expected")).unwrap();
        assert!(tree[..expected.len()] == expected, "{blocks}");
        assert!(tree[expected.len()..].iter().all(|&byte| byte == 0), "{blocks}");
    }
}

#[test]
fn a_hash_tree_that_is_not_possible_is_refused_with_its_line() {
    let bench = Bench::new();
    bench.sources();
    let said = bench.refused(&VERITY.replace("verity:root", "verity:rot"));
    assert!(said.contains("bad.toml:10': content: no partition has the label 'rot'"), "{said}");
    let said = bench.refused(&VERITY.replace("\"verity:root\"", "\"verity:root\"\nsalt = \"abc\""));
    assert!(said.contains("salt: must consist of pairs of hexadecimal digits"), "{said}");
    let long = "00".repeat(257);
    let said =
        bench.refused(&VERITY.replace("\"verity:root\"", &format!("\"verity:root\"\nsalt = \"{long}\"")));
    assert!(said.contains("the salt has more than 256 bytes"), "{said}");
    let said =
        bench.refused(&VERITY.replace("content = \"ext4\"", "size = \"rest\"\ncontent = \"ext4\"").replacen(
            '\n',
            "\n[disk]\nsize = \"64M\"\n",
            1,
        ));
    assert!(said.contains("the hash tree of a partition with the size \"rest\" requires a size"), "{said}");
    let said = bench.refused(&VERITY.replace("\"verity:root\"", "\"verity:tree\"\nlabel = \"tree\""));
    assert!(said.contains("a hash tree refers to another hash tree"), "{said}");
    let again = "\n[[partition]]\ntype = \"linux-generic\"\ncontent = \"verity:root\"\n";
    let said = bench.refused(&(VERITY.to_owned() + again));
    assert!(said.contains("two hash trees refer to the same partition"), "{said}");
    let odd = "[[partition]]\ntype = \"swap\"\nlabel = \"odd\"\noffset = \"1MiB\"\nsize = \"41472\"\n\
               content = \"swap\"\n[[partition]]\ntype = \"swap\"\ncontent = \"verity:odd\"\n";
    let said = bench.refused(odd);
    assert!(said.contains("the length of the verified partition is not a multiple of 4096 bytes"), "{said}");
    let short = "[[partition]]\ntype = \"swap\"\nlabel = \"data\"\nsize = \"128M\"\ncontent = \"swap\"\n\
                 [[partition]]\ntype = \"swap\"\ncontent = \"verity:data\"\noffset = \"256MiB\"\nsize = \"64K\"\n";
    let said = bench.refused(short);
    assert!(said.contains("1064960"), "{said}");
    fs::write(bench.path("plain.toml"), VERITY.split("\n\n").next().unwrap()).unwrap();
    let (_, said) = bench.run("build plain.img --disk plain.toml --root-hash hash", 2);
    assert!(said.contains("the layout must have exactly one partition with a hash tree"), "{said}");
    let (_, said) = bench.run("build plain.img --from tree --root-hash hash", 2);
    assert!(said.contains("--root-hash requires --disk"), "{said}");
    assert!(!bench.path("hash").exists());
}

#[test]
fn a_failed_build_leaves_no_root_hash() {
    let bench = Bench::new();
    bench.sources();
    let small = VERITY.replace("content = \"ext4\"", "size = \"1M\"\ncontent = \"ext4\"");
    fs::write(bench.path("small.toml"), small).unwrap();
    bench.run("build disk.img --disk small.toml --root-hash hash", 2);
    assert!(!bench.path("hash").exists());
    fs::write(bench.path("hash"), "old").unwrap();
    let (_, said) = bench.run("build disk.img --disk small.toml --root-hash hash", 2);
    assert!(said.contains("file exists"), "{said}");
    assert_eq!(fs::read_to_string(bench.path("hash")).unwrap(), "old");
    bench.run("build disk.img --disk small.toml --root-hash hash --force", 2);
    assert_eq!(fs::read_to_string(bench.path("hash")).unwrap(), "");
    assert!(!bench.path("disk.img").exists());
}

#[test]
fn fat_and_exfat_volumes_get_the_volume_id_of_the_layout() {
    let bench = Bench::new();
    for (fs_type, id) in [("vfat", "1234-ABCD"), ("exfat", "00ff-00ee")] {
        let layout = format!(
            "[[partition]]\ntype = \"basic-data\"\ncontent = \"{fs_type}\"\nfs-uuid = \"{id}\"\nfree = \"30%\"\n"
        );
        fs::write(bench.path("layout.toml"), layout).unwrap();
        bench.run("build disk.img --disk layout.toml --force", 0);
        let (text, _) = bench.run("info disk.img", 0);
        assert!(text.contains(&id.to_uppercase()), "{text}");
        fs::create_dir_all(bench.path("empty")).unwrap();
        bench.run(&format!("build -t {fs_type} -U {id} volume.img --size 16M --force --from empty"), 0);
        let (text, _) = bench.run("info volume.img", 0);
        assert!(text.contains(&id.to_uppercase()), "{text}");
    }
}
