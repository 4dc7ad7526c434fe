//! `obento mkfs` as a user runs it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::process::{Command, Output};

use obento_testkit::oracle::{LoopMount, Oracle, call, program, require, run};
use tempfile::TempDir;

const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

/// A folder for images.
struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        command.current_dir(self.0.path()).args(line.split(' ')).env_clear().env("TZ", "UTC0");
        command
    }

    fn obento(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// Expects this exit code, and returns standard output and error.
    #[track_caller]
    fn run(&self, line: &str, code: i32) -> (String, String) {
        let output = self.obento(line);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{line}: {out}{err}");
        (out, err)
    }

    #[track_caller]
    fn fails(&self, line: &str, expected: &str) {
        let (out, err) = self.run(line, 2);
        assert_eq!((out.as_str(), err.as_str()), ("", expected), "{line}");
    }

    #[track_caller]
    fn fsck(&self, name: &str) {
        if require(&[Oracle::Program("e2fsck")]) {
            call("e2fsck", ["-fn".as_ref(), self.path(name).as_os_str()]).unwrap();
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_single_block_is_named_in_the_singular() {
    let bench = Bench::new();
    let expected = "disk.img: jffs2, 64 KiB in 1 block of 65536 bytes\n";
    assert_eq!(bench.run("mkfs -t jffs2 disk.img 64K", 0), (expected.to_owned(), String::new()));
}

#[test]
fn a_new_image_is_sparse_and_described_in_a_few_lines() {
    let bench = Bench::new();
    let (out, err) = bench.run(&format!("mkfs -U {UUID} -L data disk.img 1G"), 0);
    assert_eq!(err, "");
    assert_eq!(
        out,
        "disk.img: ext4 'data', 1 GiB in 262144 blocks of 4096 bytes, 65536 inodes
  UUID      01234567-89ab-cdef-0123-456789abcdef
  journal   32 MiB
  reserved  13107 blocks for the super user
  backups   of the super block in blocks 32768, 98304, 163840, 229376
  features  has_journal ext_attr resize_inode dir_index filetype extent 64bit flex_bg sparse_super large_file \
huge_file dir_nlink extra_isize metadata_csum
"
    );
    let meta = fs::metadata(bench.path("disk.img")).unwrap();
    assert_eq!(meta.len(), 1 << 30);
    assert!(meta.blocks() * 512 < 2 << 20, "{} KiB", meta.blocks() / 2);
    bench.fsck("disk.img");
    assert_eq!(bench.run("ls disk.img", 0).0, "lost+found\n");
}

#[test]
fn existing_contents_are_named_and_only_force_overwrites_them() {
    let bench = Bench::new();
    bench.run("mkfs -q -t ext3 -L old -M /srv/old disk.img 20M", 0);
    let refused = "obento: cannot create a file system on 'disk.img': it contains an ext3 file system of 20 MiB labelled \
                   'old', last mounted on '/srv/old'\n  help: use --force (-f) to overwrite it\n";
    bench.fails("mkfs disk.img", refused);
    bench.run("mkfs -q -F disk.img", 0);
    assert!(bench.run("info disk.img", 0).0.contains("ext4"));
    bench.fsck("disk.img");

    fs::write(bench.path("letter.txt"), "Dear all,\n".repeat(100_000)).unwrap();
    bench.fails(
        "mkfs letter.txt",
        "obento: cannot create a file system on 'letter.txt': it contains text\n  help: use --force (-f) to overwrite it\n",
    );
    assert!(fs::read_to_string(bench.path("letter.txt")).unwrap().starts_with("Dear all,"));
}

#[test]
fn data_in_a_file_that_mkfs_would_extend_is_not_overwritten_without_a_request() {
    let bench = Bench::new();
    let mut apple = vec![0; 4096];
    apple[4096 - 512..][..4].copy_from_slice(b"koly");
    for (name, what, bytes) in
        [("note.txt", "text", b"Dear all,\n".to_vec()), ("disk.dmg", "an Apple disk image (DMG)", apple)]
    {
        fs::write(bench.path(name), &bytes).unwrap();
        let refused = format!(
            "obento: cannot create a file system on '{name}': it contains {what}\n  help: use --force (-f) to overwrite it\n"
        );
        for fs_type in ["ext4", "vfat", "exfat"] {
            bench.fails(&format!("mkfs -t {fs_type} {name} 512M"), &refused);
            assert_eq!(fs::read(bench.path(name)).unwrap(), bytes, "{fs_type}");
        }
        bench.run(&format!("mkfs -q --force -t ext4 {name} 1M"), 0);
        bench.fsck(name);
    }
}

#[test]
fn a_wrong_option_costs_nothing() {
    let bench = Bench::new();
    let said = |line: &str| bench.run(line, 2).1;
    assert_eq!(
        said("mkfs new.img"),
        "obento: cannot create 'new.img': a new file requires a size\n  help: add the size after 'new.img'\n"
    );
    assert!(said("mkfs -O extend new.img 1M").contains("unknown feature 'extend'"));
    assert!(said("mkfs -O ^extent new.img 10M").contains("64bit requires extent"));
    assert!(said("mkfs -E strid=1 new.img 1M").contains("unknown setting 'strid'"));
    assert!(
        said("mkfs -I 100 new.img 1M").contains("invalid value '100' for -I\n  help: use a power of two")
    );
    assert!(
        said("mkfs -t floppyfs new.img 1M")
            .contains("help: supported types: bfs, btrfs, exfat, ext4/ext3/ext2, ")
    );
    assert!(said("mkfs -d folder new.img 1M").contains("obento build IMAGE --from DIR"));
    assert!(said("mkfs -t ext2 new.img 17T").contains("is too large for these settings"));
    assert!(said("mkfs new.img 20k").contains("too small"));
    assert!(
        said("mkfs new.img ten")
            .contains("invalid size 'ten'\n  help: write a size of at least 1 byte, such as 10G")
    );
    assert!(said("mkfs -U 12 new.img 1M").contains("invalid UUID"));
    assert!(!bench.path("new.img").exists());
    assert_eq!(bench.run("mkfs", 2).0, "");
}

#[test]
fn a_dry_run_reports_and_creates_nothing() {
    let bench = Bench::new();
    assert!(
        bench.run("mkfs -n new.img 1T", 0).0.starts_with("new.img: would be ext4, 1 TiB in 268435456 blocks")
    );
    assert!(!bench.path("new.img").exists());
    bench.run("mkfs -q disk.img 20M", 0);
    let before = fs::read(bench.path("disk.img")).unwrap();
    let (json, _) = bench.run("--json mkfs -n -t ext2 disk.img", 0);
    assert!(
        json.starts_with("{\"schema\":\"obento/1\",\"kind\":\"made\",\"path\":\"disk.img\",\"made\":false"),
        "{json}"
    );
    assert!(fs::read(bench.path("disk.img")).unwrap() == before);
}

#[test]
fn the_variable_that_forbids_changes_forbids_this_too() {
    let bench = Bench::new();
    let output = bench.command("mkfs disk.img 10M").env("OBENTO_READONLY", "1").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("OBENTO_READONLY is set"), "{}", text(&output.stderr));
    assert!(!bench.path("disk.img").exists());
}

#[test]
fn the_same_options_and_moment_make_the_same_bytes() {
    let bench = Bench::new();
    for name in ["a.img", "b.img"] {
        let line = format!("mkfs -q -U {UUID} -E hash_seed={UUID} {name} 30M");
        let output = bench.command(&line).env("SOURCE_DATE_EPOCH", "1700000000").output().unwrap();
        assert!(output.status.success());
    }
    let bytes = |name: &str| fs::read(bench.path(name)).unwrap();
    assert!(bytes("a.img") == bytes("b.img"));
}

#[test]
fn sizes_are_in_kib_blocks_or_the_given_unit_and_a_file_grows_to_them() {
    let bench = Bench::new();
    let size = |line: &str| {
        let (json, _) = bench.run(&format!("--json mkfs -n {line}"), 0);
        let value: String =
            json.split("\"size\":").nth(1).unwrap().chars().take_while(char::is_ascii_digit).collect();
        value.parse::<u64>().unwrap()
    };
    assert_eq!(size("new.img 8192"), 8 << 20);
    assert_eq!(size("-b 4096 new.img 8192"), 32 << 20);
    assert_eq!(size("new.img 32768s"), 16 << 20);
    assert_eq!(size("-b 4k new.img 3G"), 3 << 30);
    File::create(bench.path("empty.img")).unwrap();
    bench.run("mkfs -q empty.img 12M", 0);
    assert_eq!(fs::metadata(bench.path("empty.img")).unwrap().len(), 12 << 20);
    bench.run("mkfs -q -F empty.img 6M", 0);
    assert_eq!(
        fs::metadata(bench.path("empty.img")).unwrap().len(),
        12 << 20,
        "what lies behind is not touched"
    );
    bench.fsck("empty.img");
}

#[test]
fn an_image_that_is_in_use_is_refused() {
    if !require(&[Oracle::LoopMount]) {
        return;
    }
    let bench = Bench::new();
    bench.run("mkfs -q disk.img 20M", 0);
    let mount = LoopMount::new(&bench.path("disk.img"), "").unwrap();
    let (_, err) = bench.run("mkfs -F disk.img", 2);
    assert!(err.contains("/dev/loop") && err.contains("in use"), "{err}");
    mount.unmount().unwrap();
}

#[test]
fn a_partition_is_made_alone() {
    if !require(&[Oracle::Program("sfdisk"), Oracle::Program("e2fsck")]) {
        return;
    }
    let bench = Bench::new();
    let image = bench.path("disk.img");
    File::create(&image).unwrap().set_len(64 << 20).unwrap();
    fs::write(bench.path("table"), "label: gpt\nsize=16M\nsize=40M\n").unwrap();
    run(program("sfdisk").arg("-q").arg(&image).stdin(File::open(bench.path("table")).unwrap())).unwrap();
    bench.run("mkfs -q -L one disk.img@1", 0);
    bench.run("mkfs -q -t ext2 -L two disk.img@2", 0);
    assert!(bench.run("info disk.img@label=one", 0).0.contains("ext4"));
    let (_, err) = bench.run("mkfs disk.img", 2);
    assert!(
        err.contains(
            "it contains a partition table (GPT) with 2 partitions: 1 (ext4 labelled \"one\"), 2 (ext2"
        ),
        "{err}"
    );
    let (_, err) = bench.run("mkfs disk.img@2", 2);
    assert!(err.contains("it contains an ext2 file system of 40 MiB labelled 'two'"), "{err}");
    assert!(bench.run("mkfs disk.img@7 8M", 2).1.contains("disk.img@1"));
    let part = bench.path("part.img");
    let mut bytes = vec![0; 16 << 20];
    File::open(&image).unwrap().read_exact_at(&mut bytes, 1 << 20).unwrap();
    fs::write(&part, bytes).unwrap();
    bench.fsck("part.img");
}

#[test]
fn an_offset_overwrites_other_partitions_and_the_backup_of_the_table_only_with_force() {
    if !require(&[Oracle::Program("sfdisk"), Oracle::Program("sgdisk")]) {
        return;
    }
    let bench = Bench::new();
    let image = bench.path("disk.img");
    let partition = |table: &str| {
        fs::write(&image, vec![0; 64 << 20]).unwrap();
        fs::write(bench.path("table"), table).unwrap();
        run(program("sfdisk").arg("-q").arg(&image).stdin(File::open(bench.path("table")).unwrap())).unwrap();
        fs::read(&image).unwrap()
    };
    let before = partition("label: gpt\nsize=16M\nsize=40M\n");
    for (line, what) in [
        ("mkfs disk.img@+1M", "partition 1, partition 2 and the backup of the partition table"),
        ("mkfs disk.img@+17M", "partition 2 and the backup of the partition table"),
        ("mkfs disk.img@+2M 8M", "contain partition 1"),
        ("mkfs disk.img@+1M 17M", "partition 1 and partition 2"),
        ("mkfs -E offset=1M disk.img 17M", "partition 1 and partition 2"),
        ("mkfs disk.img@+4096 512K", "contain the partition table"),
    ] {
        let (_, err) = bench.run(line, 2);
        assert!(err.contains(what) && err.contains("-f"), "{line}: {err}");
    }
    assert!(bench.run("mkfs disk.img@+1M", 2).1.contains("name a partition by its number: disk.img@1"));
    assert!(fs::read(&image).unwrap() == before, "nothing was written");
    // A volume that is as long as its partition changes no other byte.
    bench.run("mkfs -q disk.img@+1M 16M", 0);
    let after = fs::read(&image).unwrap();
    assert!(after[..1 << 20] == before[..1 << 20] && after[17 << 20..] == before[17 << 20..]);
    run(program("sgdisk").arg("-v").arg(&image)).unwrap();
    bench.run("mkfs -q -F disk.img@+17M", 0);
    // The last partition of an MBR has nothing behind it.
    partition("label: dos\nsize=16M\nsize=47M\n");
    bench.run("mkfs -q disk.img@+17M", 0);
    assert!(bench.run("mkfs disk.img@+1M", 2).1.contains("partition 1 and partition 2"));
}

#[test]
fn an_external_journal_is_made_and_joined() {
    if !require(&[Oracle::Program("dumpe2fs")]) {
        return;
    }
    let bench = Bench::new();
    bench.run(&format!("mkfs -q -b 4096 -O journal_dev -U {UUID} log.img 16M"), 0);
    bench.run("mkfs -q -b 4096 -J device=log.img disk.img 64M", 0);
    let dump = |name: &str| text(&call("dumpe2fs", [bench.path(name)]).unwrap().stdout);
    assert!(dump("disk.img").contains(&format!("Journal UUID:             {UUID}")));
    let users = dump("log.img");
    assert!(
        users.contains("Journal users:            ") && !users.contains("number of users:  0"),
        "{users}"
    );
    let (_, alone) = bench.run("touch disk.img:/file", 1);
    assert!(alone.contains("--journal FILE"), "{alone}");
    bench.run("touch --journal log.img disk.img:/file", 0);
    bench.run("mkfs -q -F -b 1024 -n disk.img", 0);
    assert!(
        bench.run("mkfs -F -b 1024 -J device=log.img disk.img", 2).1.contains("has blocks of another size")
    );
    assert!(bench.run("mkfs -J device=disk.img new.img 64M", 2).1.contains("-O journal_dev"));
    assert!(!bench.path("new.img").exists());
}

#[test]
fn a_full_host_leaves_no_file_behind() {
    if !require(&[Oracle::Root]) {
        return;
    }
    let bench = Bench::new();
    let small = bench.path("small");
    fs::create_dir(&small).unwrap();
    call("mount", ["-t", "tmpfs", "-o", "size=256k", "tmpfs", small.to_str().unwrap()]).unwrap();
    let (_, err) = bench.run("mkfs -t ext2 -b 1024 small/disk.img 200M", 2);
    let left = fs::read_dir(&small).unwrap().count();
    call("umount", [&small]).unwrap();
    assert!(err.contains("no space left on the disk of the image"), "{err}");
    assert_eq!(left, 0);
}

#[test]
fn a_tebibyte_takes_little_space() {
    let bench = Bench::new();
    bench.run("mkfs -q disk.img 1T", 0);
    let meta = fs::metadata(bench.path("disk.img")).unwrap();
    assert_eq!(meta.len(), 1 << 40);
    assert!(meta.blocks() * 512 < 40 << 20, "{} KiB", meta.blocks() / 2);
}

/// A kill at any time leaves a complete file system or none.
#[test]
fn a_kill_leaves_no_incomplete_file_that_looks_complete() {
    if !require(&[Oracle::Program("e2fsck"), Oracle::Program("mke2fs")]) {
        return;
    }
    let bench = Bench::new();
    for round in 0..20 {
        let image = bench.path("disk.img");
        File::create(&image).unwrap().set_len(2 << 30).unwrap();
        call("mke2fs", ["-q".as_ref(), "-F".as_ref(), "-t".as_ref(), "ext2".as_ref(), image.as_os_str()])
            .unwrap();
        let mut child = bench.command("mkfs -q -F -t ext4 disk.img").spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_micros(1_000 * (1 + round * 2)));
        child.kill().unwrap();
        let _ = child.wait().unwrap();
        if bench.obento("info disk.img").status.success() && has_super_block(&image) {
            bench.fsck("disk.img");
        }
    }
}

fn has_super_block(image: &Path) -> bool {
    let mut magic = [0; 2];
    File::open(image).unwrap().read_exact_at(&mut magic, 1024 + 0x38).unwrap();
    magic == [0x53, 0xef]
}

/// The earlier contents of a device. Some signatures overlap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Before {
    PartitionTable,
    Arrays,
}

impl Before {
    /// The names of some signatures in wipefs.
    fn kinds(self) -> &'static [&'static str] {
        match self {
            Self::PartitionTable => &["gpt", "PMBR", "iso9660", "VMFS"],
            Self::Arrays => {
                &["zfs_member", "linux_raid_member", "isw_raid_member", "btrfs", "VMFS_volume_member"]
            }
        }
    }

    /// Writes the signatures to both ends of an image, as they remain when a disk gets another use.
    fn plant(self, image: &Path) {
        const LEN: u64 = 64 << 20;
        let _ = fs::remove_file(image);
        let file = File::create(image).unwrap();
        file.set_len(LEN).unwrap();
        let put = |bytes: &[u8], at: u64| file.write_all_at(bytes, at).unwrap();
        if self == Self::PartitionTable {
            call("sgdisk", ["-o".as_ref(), "-n".as_ref(), "1:2048:0".as_ref(), image.as_os_str()]).unwrap();
            put(b"\x01CD001\x01", 32 << 10);
            put(&0x2fab_f15e_u32.to_le_bytes(), 2 << 20);
            return;
        }
        // mdraid: mdp_superblock_1 of version 1.0, 8 KiB before the end, with its own position as
        // `super_offset`.
        let mut array = [0_u8; 256];
        array[..4].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
        array[4] = 1;
        let at = LEN - (8 << 10);
        array[144..152].copy_from_slice(&(at / 512).to_le_bytes());
        put(&array, at);
        // ZFS: the arrays of uberblocks of all four labels.
        for label in [0, 256 << 10, LEN - (512 << 10), LEN - (256 << 10)] {
            (0..32_u64).for_each(|n| put(&0x00ba_b10c_u64.to_le_bytes(), label + (128 << 10) + n * 1024));
        }
        put(&0xc001_d00d_u32.to_le_bytes(), 1 << 20);
        put(b"_BHRfS_M", (64 << 10) + 64);
        put(b"Intel Raid ISM Cfg Sig. 1.0.00", LEN - 1024);
    }
}

#[test]
fn a_new_file_system_leaves_no_earlier_signature_on_the_device() {
    if !require(&[Oracle::Program("wipefs"), Oracle::Program("sgdisk")]) {
        return;
    }
    let bench = Bench::new();
    let image = bench.path("disk.img");
    let signatures = || {
        let output =
            call("wipefs", ["-n".as_ref(), "-i".as_ref(), "-p".as_ref(), image.as_os_str()]).unwrap();
        let lines = text(&output.stdout);
        let kinds = lines.lines().filter(|line| !line.starts_with('#'));
        kinds.filter_map(|line| line.rsplit(',').next()).map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let natives = ["ext2", "ext4", "vfat", "exfat", "xv6"].map(|kind| (kind, ""));
    let engine = [("f2fs", "mkfs.f2fs"), ("minix", "mkfs.minix")];
    let kinds = natives.into_iter().chain(engine).filter(|(_, maker)| {
        maker.is_empty() || require(&[Oracle::Program(maker), Oracle::Program("linux.uml")])
    });
    for (kind, maker) in kinds {
        for before in [Before::PartitionTable, Before::Arrays] {
            for options in
                ["", " -E nodiscard"].into_iter().filter(|options| maker.is_empty() || options.is_empty())
            {
                before.plant(&image);
                let planted = signatures();
                let missing = before.kinds().iter().find(|kind| !planted.contains(**kind));
                assert_eq!(missing, None, "{planted:?}");
                let output = bench.obento(&format!("mkfs -q -F -t {kind}{options} disk.img"));
                if !options.is_empty() && text(&output.stderr).contains("nodiscard") {
                    // This type does not have the option.
                    continue;
                }
                assert!(output.status.success(), "{kind}{options}: {}", text(&output.stderr));
                // wipefs takes the boot sectors of FAT and exFAT for a partition table.
                let is_own = |found: &&String| *found == kind || kind.ends_with("fat") && *found == "dos";
                let left: Vec<_> = signatures().into_iter().filter(|found| !is_own(&found)).collect();
                assert_eq!(left, [""; 0], "{kind}{options} over {before:?}");
            }
        }
    }
}

#[test]
fn options_of_the_journal_are_reported_in_their_own_unit() {
    let bench = Bench::new();
    for (options, words) in [
        ("-J size=999999", "invalid value '999999' for -J size\n  help: use a number of MiB from 1 to 7"),
        ("-J size=abc", "invalid value 'abc' for -J size\n  help: use a number of MiB, such as 16"),
        ("-J foo=1", "unknown journal option 'foo'\n  help: use size, location, fast_commit_size or device"),
        ("-J abc", "unknown journal option 'abc'"),
        ("--journal log.img", "--journal is for opening volumes\n  help: use -J device=FILE"),
    ] {
        let (_, said) = bench.run(&format!("mkfs {options} x.img 16M"), 2);
        assert!(said.contains(words), "{options}: {said}");
        assert!(!bench.path("x.img").exists());
    }
}

#[test]
fn the_summary_of_fat_and_exfat_counts_clusters_and_sectors() {
    let bench = Bench::new();
    for (options, space, backups) in [
        ("-t vfat -E fat=32 -U 1234-ABCD x.img 64M", "clusters of ", Some("boot sector in sector 6\n")),
        ("-t vfat -U 1234-ABCD y.img 64M", "32695 clusters of 2048 bytes\n", None),
        (
            "-t exfat -U 1234-ABCD z.img 64M",
            "15872 clusters of 4096 bytes\n",
            Some("boot sector in sector 12\n"),
        ),
    ] {
        let (out, _) = bench.run(&format!("mkfs {options}"), 0);
        assert!(out.contains(space), "{out}");
        assert_eq!(
            out.split_once("backups   of the ").map(|(_, rest)| &rest[..rest.find('\n').unwrap() + 1]),
            backups
        );
        let image = options.split(' ').rev().nth(1).unwrap();
        let (info, _) = bench.run(&format!("info {image}"), 0);
        let count = info.lines().find_map(|line| line.trim().strip_prefix("clusters ")).unwrap().trim();
        assert!(out.contains(&format!(" in {count} clusters of ")), "{out}{info}");
    }
}
