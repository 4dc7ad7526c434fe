//! Decides which of several formats on one image counts, compared with blkid, which mount(8) uses. Tests each pair of
//! types, and each type with a partition table.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use obento::driver::{Contents, FormatOptions};
use obento::env::{SystemClock, SystemRandom};
use obento::image::{FormatTarget, PartitionContents};
use obento::{Image, OpenError, Registry};

/// The number of bytes that contain all signatures at the start of a volume.
const HEAD: usize = 256 << 10;
/// The start of the only partition, and its size, in MiB.
const PARTITION: (u64, u64) = (8, 16);
const MIB: u64 = 1 << 20;

/// A type: its name here, its name in blkid, and the size of a volume in MiB. The command creates a volume in the file
/// `$F` of `$M` MiB.
type Type = (&'static str, &'static str, u64, &'static str);

#[rustfmt::skip]
const TYPES: &[Type] = &[
    ("vfat", "vfat", 64, "mkfs.fat -F32 -s1 $F"),
    ("vfat", "vfat", 16, "mkfs.fat -F16 $F"),
    ("ntfs", "ntfs", 32, "mkfs.ntfs -q -F -f $F"),
    ("exfat", "exfat", 64, "mkfs.exfat $F"),
    ("ext4", "ext4", 64, "mke2fs -q -F -t ext4 $F"),
    ("ext2", "ext2", 64, "mke2fs -q -F -t ext2 $F"),
    ("jbd", "jbd", 64, "mke2fs -q -F -O journal_dev $F"),
    ("xfs", "xfs", 300, "mkfs.xfs -q -f $F"),
    ("btrfs", "btrfs", 128, "mkfs.btrfs -q $F"),
    ("f2fs", "f2fs", 64, "mkfs.f2fs -q $F"),
    ("jfs", "jfs", 64, "mkfs.jfs -q $F"),
    ("reiserfs", "reiserfs", 64, "mkfs.reiserfs -q -ff $F"),
    ("nilfs2", "nilfs2", 160, "mkfs.nilfs2 -q $F"),
    ("udf", "udf", 64, "mkudffs $F"),
    ("hfs", "hfs", 64, "hformat $F"),
    ("minix", "minix", 16, "mkfs.minix -3 $F"),
    ("squashfs", "squashfs", 0, "mksquashfs $D $F -quiet -noappend"),
    ("erofs", "erofs", 0, "mkfs.erofs $F $D"),
    ("iso9660", "iso9660", 0, "rm -f $F; xorriso -as mkisofs -quiet -J -R -o $F $D"),
    ("cramfs", "cramfs", 0, "mkfs.cramfs $D $F"),
    ("swap", "swap", 16, "mkswap $F"),
    ("OCFS2", "ocfs2", 64, "yes | mkfs.ocfs2 -q -N 1 -M local $F"),
    ("bcache", "bcache", 16, "make-bcache -B $F"),
    ("Reiser4", "reiser4", 64, "mkfs.reiser4 -f -y $F"),
    ("crypto_LUKS", "crypto_LUKS", 32, "echo x | cryptsetup luksFormat -q --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 $F -"),
    ("dm-verity", "DM_verity_hash", 16, "truncate -s 1M $F.data; veritysetup format $F.data $F"),
];

struct Fixture {
    kind: Type,
    len: u64,
    head: Vec<u8>,
}

fn has_all_programs() -> bool {
    let programs = TYPES.iter().map(|kind| kind.3).chain(["blkid", "sfdisk", "sgdisk"]);
    let names =
        programs.flat_map(|line| line.split([';', '|'])).filter_map(|line| line.split_whitespace().next());
    let mut missing = names.filter(|name| !run(&format!("command -v {name}"), &[]));
    match missing.next() {
        Some(name) => {
            assert!(std::env::var_os("OBENTO_REQUIRE_ORACLES").is_none(), "{name} is not installed");
            println!("skipped: {name} is not installed");
            false
        }
        None => true,
    }
}

fn run(line: &str, variables: &[(&str, &str)]) -> bool {
    let mut command = Command::new("sh");
    command.args(["-c", line]).envs(variables.iter().copied()).stdout(Stdio::null()).stderr(Stdio::null());
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).status().unwrap().success()
}

/// Returns the first bytes of a volume of each type.
fn fixtures(at: &Path) -> Vec<Fixture> {
    let sources = at.join("sources");
    fs::create_dir(&sources).unwrap();
    fs::write(sources.join("file"), "text").unwrap();
    let make = |kind: &Type| {
        let path = at.join("volume");
        File::create(&path).unwrap().set_len(kind.2 * MIB).unwrap();
        let names = [("F", path.to_str().unwrap()), ("D", sources.to_str().unwrap())];
        assert!(run(kind.3, &names), "{}", kind.3);
        let file = File::open(&path).unwrap();
        let len = file.metadata().unwrap().len();
        let mut head = vec![0; HEAD.min(usize::try_from(len).unwrap())];
        file.read_exact_at(&mut head, 0).unwrap();
        fs::remove_file(&path).unwrap();
        Fixture { kind: *kind, len, head }
    };
    TYPES.iter().map(make).collect()
}

/// Writes the sectors of `head` that are not zeros over the existing bytes.
fn put(file: &File, head: &[u8]) {
    for (number, sector) in (0_u64..).zip(head.chunks(512)) {
        if sector.iter().any(|byte| *byte != 0) {
            file.write_all_at(sector, number * 512).unwrap();
        }
    }
}

/// The types of the super block and of the partition table in the file, according to blkid.
#[derive(Debug, PartialEq)]
enum Judged {
    Ambiguous,
    Types(Option<String>, Option<String>),
}

fn blkid(path: &Path) -> Judged {
    let output = Command::new("/sbin/blkid").args(["-p", "-o", "export"]).arg(path).output().unwrap();
    if output.status.code() == Some(8) {
        return Judged::Ambiguous;
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
    Judged::Types(value("TYPE="), value("PTTYPE="))
}

/// Returns the type of the whole file according to obento, by its name in blkid.
fn whole(image: &Image) -> Judged {
    let content = image.probe_all().into_iter().find(|content| content.partition.is_none());
    let name = match content.map(|content| content.holds) {
        Some(PartitionContents::Ambiguous(_)) => return Judged::Ambiguous,
        Some(PartitionContents::FileSystem(probe)) => probe.fs_type.to_owned(),
        Some(PartitionContents::Other(looks)) => looks.name.to_owned(),
        _ => String::new(),
    };
    let of_blkid = TYPES.iter().find(|kind| kind.0 == name).map(|kind| kind.1.to_owned());
    Judged::Types(of_blkid, None)
}

fn open(path: &Path) -> Image {
    Image::open(path).unwrap()
}

#[test]
fn a_volume_under_another_one_counts_or_is_ambiguous_as_for_blkid() {
    if !has_all_programs() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let all = fixtures(folder.path());
    let path = folder.path().join("pair");
    let (mut wrong, mut ambiguous) = (String::new(), 0);
    for below in &all {
        for above in &all {
            let file = File::create(&path).unwrap();
            file.set_len(below.len.max(above.len)).unwrap();
            put(&file, &below.head);
            put(&file, &above.head);
            let (ours, theirs) = (whole(&open(&path)), blkid(&path));
            let theirs = match theirs {
                // Another test covers the partition table.
                Judged::Types(kind, _) => Judged::Types(kind, None),
                judged => judged,
            };
            if ours != theirs {
                writeln!(wrong, "{} over {}: {ours:?}, blkid: {theirs:?}", above.kind.3, below.kind.3)
                    .unwrap();
            }
            if ours == Judged::Ambiguous {
                ambiguous += 1;
                let changing = Image::builder().for_change().open(&path).unwrap();
                assert!(matches!(changing.volume(None), Err(OpenError::Ambiguous { .. })));
            }
        }
    }
    assert_eq!(wrong, "");
    assert!(ambiguous > 100, "{ambiguous}");
}

/// Creates the file `path` of `size` MiB with an old volume or table, which the command `line` writes.
fn put_old(path: &Path, line: &str, size: u64, sources: &Path) {
    let _ = fs::remove_file(path);
    File::create(path).unwrap().set_len(size * MIB).unwrap();
    let names = [("F", path.to_str().unwrap()), ("D", sources.to_str().unwrap())];
    assert!(run(line, &names), "{line}");
}

#[test]
fn a_new_volume_over_any_old_one_is_the_only_one_for_blkid_even_without_discard() {
    if !has_all_programs() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, sources) = (folder.path().join("disk"), folder.path().join("sources"));
    fs::create_dir(&sources).unwrap();
    fs::write(sources.join("file"), "text").unwrap();
    let tables = [
        ("GPT", "sgdisk -o -n 1:2048:0 $F"),
        ("MBR", "printf 'label: dos\\nstart=4096,type=L\\n' | sfdisk -q $F"),
    ];
    let tables = tables.map(|(name, line)| (name, 64, line));
    let old = TYPES.iter().map(|kind| (kind.0, kind.2, kind.3)).chain(tables);
    let registry = Registry::default();
    let mut wrong = String::new();
    for (name, size, line) in old {
        put_old(&path, line, size, &sources);
        let bytes = fs::read(&path).unwrap();
        for (new, driver) in [("ext4", "ext4"), ("vfat", "vfat"), ("exfat", "exfat"), ("xv6", "xv6")] {
            let file = File::create(&path).unwrap();
            // The old end stays the end.
            file.set_len((bytes.len() as u64).next_multiple_of(4096).max(16 * MIB)).unwrap();
            put(&file, &bytes);
            let used = file.metadata().unwrap().blocks();
            let target = FormatTarget::open(&path, None).unwrap();
            let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
            let mut options = FormatOptions::new(new, clock, random);
            options.contents = Contents::Preserved;
            let format = registry.find(driver).unwrap().format().unwrap();
            format.format(&*target.device(), &options).unwrap();
            target.keep();
            let theirs = match blkid(&path) {
                // The boot sector of exFAT ends like an MBR.
                Judged::Types(kind, _) if new == "exfat" => Judged::Types(kind, None),
                judged => judged,
            };
            let expected = Judged::Types((new != "xv6").then(|| new.to_owned()), None);
            let found = open(&path).volume(None).map(|volume| volume.info().probe.fs_type);
            if theirs != expected || !matches!(&found, Ok(kind) if *kind == new) {
                writeln!(wrong, "{new} over {name}: {theirs:?}, {:?}", found.err()).unwrap();
            }
            // Zeros are written only over other bytes: the erased 6 MiB do not fill the holes. exFAT itself writes 2 MiB.
            let grown = file.metadata().unwrap().blocks().saturating_sub(used);
            if new == "exfat" && grown * 512 > 3 * MIB {
                writeln!(wrong, "{new} over {name} fills {grown} sectors").unwrap();
            }
        }
    }
    assert_eq!(wrong, "");
}

/// Returns a disk of 32 MiB with one partition, which contains ext4 if `filled`.
fn disk(path: &Path, label: &str, filled: bool) -> Vec<u8> {
    File::create(path).unwrap().set_len(32 * MIB).unwrap();
    let (start, size) = PARTITION;
    let script =
        format!("printf 'label: {label}\\nstart={start}MiB,size={size}MiB,type=L\\n' | sfdisk -q $F");
    assert!(run(&script, &[("F", path.to_str().unwrap())]));
    if filled {
        let line = format!("mke2fs -q -F -t ext4 -E offset={} $F {size}M", start * MIB);
        assert!(run(&line, &[("F", path.to_str().unwrap())]));
    }
    let mut head = vec![0; HEAD];
    File::open(path).unwrap().read_exact_at(&mut head, 0).unwrap();
    head
}

/// Returns the expected selection by the table of `crates/open/src/image/choose.rs`, given the types that
/// blkid and sfdisk find.
fn expected(judged: &Judged, has_table: bool, filled: bool) -> &'static str {
    match judged {
        Judged::Ambiguous => "ambiguous",
        Judged::Types(Some(kind), _) if kind == "udf" || kind == "iso9660" => "whole",
        Judged::Types(Some(_), _) if has_table && filled => "ambiguous",
        Judged::Types(Some(_), _) => "whole",
        Judged::Types(None, _) if has_table && filled => "partition",
        Judged::Types(None, _) => "nothing",
    }
}

#[test]
fn a_volume_and_a_partition_table_on_one_image_are_distinguished_as_by_blkid_and_sfdisk() {
    if !has_all_programs() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let all = fixtures(folder.path());
    let path = folder.path().join("disk");
    let mut wrong = String::new();
    for (label, filled) in [("dos", true), ("dos", false), ("gpt", true), ("gpt", false)] {
        let table = disk(&path, label, filled);
        let bytes = fs::read(&path).unwrap();
        for fixture in &all {
            for table_last in [false, true] {
                fs::write(&path, &bytes).unwrap();
                let file = File::options().write(true).open(&path).unwrap();
                put(&file, &fixture.head);
                if table_last {
                    put(&file, &table);
                }
                let judged = blkid(&path);
                let has_table = run("sfdisk -J $F | grep -q '\"node\"'", &[("F", path.to_str().unwrap())]);
                let image = open(&path);
                let chosen = match image.volume_bytes(None) {
                    Err(OpenError::Ambiguous { .. }) => "ambiguous",
                    Err(_) => "nothing",
                    Ok((_, content)) if content.partition.is_some() => "partition",
                    Ok((_, content)) => match content.holds {
                        PartitionContents::Other(looks) if looks.may_be_anything() => "nothing",
                        _ => "whole",
                    },
                };
                let expected = expected(&judged, has_table, filled);
                if chosen != expected {
                    let order = if table_last { "under" } else { "over" };
                    let kind = fixture.kind.3;
                    writeln!(
                        wrong,
                        "{kind} {order} {label}, filled {filled}: {chosen}; {judged:?}, sfdisk {has_table}"
                    )
                    .unwrap();
                }
            }
        }
    }
    assert_eq!(wrong, "");
}

/// Creates a stale GPT with ext4 below a live FAT volume.
fn stale_gpt(at: &Path) -> PathBuf {
    let path = at.join("d.img");
    File::create(&path).unwrap().set_len(40 * MIB).unwrap();
    let line =
        "sgdisk -o -n 1:2048:0 $F && mke2fs -q -F -t ext4 -E offset=1048576 $F 38M && mkfs.fat -I -F 32 $F";
    assert!(run(line, &[("F", path.to_str().unwrap())]));
    path
}

#[test]
fn a_stale_gpt_does_not_win_over_the_live_file_system() {
    if !has_all_programs() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = stale_gpt(folder.path());
    assert_eq!(blkid(&path), Judged::Types(Some("vfat".into()), None));
    let image = open(&path);
    assert!(image.table().is_none());
    assert_eq!(image.volume(None).unwrap().info().probe.fs_type, "vfat");
}

#[test]
fn a_backup_gpt_after_the_disk_got_an_mbr_is_ignored() {
    if !has_all_programs() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d.img");
    File::create(&path).unwrap().set_len(40 * MIB).unwrap();
    let name = [("F", path.to_str().unwrap())];
    assert!(run("sgdisk -o -n 1:2048:0 $F", &name));
    let bytes = fs::read(&path).unwrap();
    assert!(run("printf 'label: dos\\nstart=4096,type=L\\n' | sfdisk -q --wipe never $F", &name));
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&bytes[bytes.len() - 33 * 512..], 40 * MIB - 33 * 512).unwrap();
    assert_eq!(blkid(&path), Judged::Types(None, Some("dos".into())));
    let image = open(&path);
    assert_eq!(image.partitions().iter().map(|partition| partition.start).collect::<Vec<_>>(), [4096 * 512]);
}

#[test]
fn an_mbr_over_an_old_volume_has_small_sectors_though_a_backup_is_where_a_large_one_would_begin() {
    if !has_all_programs() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d.img");
    let name = [("F", path.to_str().unwrap())];
    // Group 1 of blocks of 1 KiB begins at 8 MiB and 1 KiB, where a volume at 8 MiB has its super block.
    for start in [2048, 4096, 8192] {
        for primary in ["true", "dd if=/dev/zero of=$F bs=1024 seek=1 count=1 conv=notrunc"] {
            File::create(&path).unwrap().set_len(64 * MIB).unwrap();
            let line = format!(
                "mke2fs -q -F -b 1024 $F && {primary} && \
                 echo start={start},size=8192,type=83 | sfdisk -q --wipe never $F"
            );
            assert!(run(&line, &name));
            let image = open(&path);
            let starts: Vec<_> = image.partitions().iter().map(|partition| partition.start).collect();
            assert_eq!(starts, [start * 512], "{primary}");
        }
    }
}

/// Options of xorriso for ISO images that boot from a USB stick, as used by the distributions.
#[rustfmt::skip]
const HYBRIDS: &[(&str, &str)] = &[
    ("Debian", "-isohybrid-mbr $B -b boot -c catalog -no-emul-boot -boot-load-size 4 -boot-info-table \
                -eltorito-alt-boot -e esp -no-emul-boot -isohybrid-gpt-basdat"),
    ("Ubuntu", "--grub2-mbr $B --protective-msdos-label -partition_cyl_align off -partition_offset 16 --mbr-force-bootable \
                -append_partition 2 28732ac11ff8d211ba4b00a0c93ec93b $D/esp -appended_part_as_gpt \
                -iso_mbr_part_type a2a0d0ebe5b9334487c068b6b72699c7 -c catalog -b boot -no-emul-boot -boot-load-size 4 -boot-info-table \
                -eltorito-alt-boot -e --interval:appended_partition_2::: -no-emul-boot"),
    ("Fedora", "-isohybrid-mbr $B -b boot -c catalog -no-emul-boot -boot-load-size 4 -boot-info-table \
                -eltorito-alt-boot -e esp -no-emul-boot -isohybrid-gpt-basdat -isohybrid-apm-hfsplus"),
    ("a disk with an MBR", "-append_partition 2 0xef $D/esp -partition_offset 16"),
];

#[test]
fn a_hybrid_iso_opens_as_the_iso_and_its_partitions_by_number() {
    if !has_all_programs() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (sources, boot, path) =
        (folder.path().join("d"), folder.path().join("mbr"), folder.path().join("iso"));
    fs::create_dir(&sources).unwrap();
    fs::write(sources.join("boot"), vec![0x90; 4096]).unwrap();
    // xorriso requires this start of the boot code, and replaces it with that of an Apple partition map.
    fs::write(&boot, [&[0x33, 0xed][..], &[0x90; 430]].concat()).unwrap();
    let esp = sources.join("esp");
    File::create(&esp).unwrap().set_len(2 * MIB).unwrap();
    let names = [
        ("F", path.to_str().unwrap()),
        ("D", sources.to_str().unwrap()),
        ("B", boot.to_str().unwrap()),
        ("E", esp.to_str().unwrap()),
    ];
    assert!(run("mkfs.fat -n ESP $E", &names));
    for (name, options) in HYBRIDS {
        let line = format!("rm -f $F; xorriso -as mkisofs -quiet -r -J -V HYBRID {options} -o $F $D");
        assert!(run(&line, &names), "{name}");
        let Judged::Types(Some(kind), Some(_)) = blkid(&path) else { panic!("{name}: no table") };
        assert_eq!(kind, "iso9660");
        let image = open(&path);
        let (_, content) = image.volume_bytes(None).unwrap();
        assert_eq!(content.probe().map(|probe| probe.label.clone()), Some(b"HYBRID".to_vec()), "{name}");
        assert!(content.partition.is_none() && image.ambiguity().is_none());
        let partitions = image.probe_all();
        let esp =
            partitions.iter().find(|content| content.probe().is_some_and(|probe| probe.fs_type == "vfat"));
        let number =
            esp.and_then(|esp| esp.partition.as_ref()).unwrap_or_else(|| panic!("{name}: no ESP")).number;
        let volume = image.volume(Some(&obento::address::PartSelector::Number(number))).unwrap();
        assert_eq!(volume.info().probe.label, b"ESP", "{name}");
    }
}

/// Volumes whose labels are not at a fixed position: the size, and the command that creates one in the file
/// `$F` of `$M` MiB.
#[rustfmt::skip]
const LABELLED: &[(u64, &str)] = &[
    (16, "mkudffs --label=Daten $F"),
    (16, "mkudffs --label='ungew\u{f6}hnlich \u{20ac}' $F"),
    (0, "xorriso -as mkisofs -quiet -J -R -V 'Mixed_Case Label that is longer' -o $F $D"),
    (0, "xorriso -as mkisofs -quiet -R -V PLAIN -o $F $D"),
    (0, "genisoimage -quiet -J -V 'mixed Case' -o $F $D"),
    (16, "mkfs.fat -n LABEL $F"),
    (64, "mke2fs -q -F -t ext4 -L label $F"),
    (64, "mkfs.f2fs -q -l label $F"),
];

#[test]
fn labels_are_those_that_blkid_prints() {
    if !has_all_programs() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (sources, path) = (folder.path().join("d"), folder.path().join("volume"));
    fs::create_dir(&sources).unwrap();
    for (size, line) in LABELLED {
        let _ = fs::remove_file(&path);
        if *size > 0 {
            File::create(&path).unwrap().set_len(size * MIB).unwrap();
        }
        assert!(run(line, &[("F", path.to_str().unwrap()), ("D", sources.to_str().unwrap())]), "{line}");
        let output = Command::new("/sbin/blkid")
            .args(["-p", "-s", "LABEL", "-o", "value"])
            .arg(&path)
            .output()
            .unwrap();
        let image = open(&path);
        let label = image.probe_all()[0].probe().map(|probe| probe.label.clone()).unwrap_or_default();
        assert_eq!(
            String::from_utf8_lossy(&label),
            String::from_utf8_lossy(&output.stdout).trim_end(),
            "{line}"
        );
    }
}
