//! Messages that name the argument at fault, the true cause, and the next step.

use std::fs::{self, File};
use std::path::Path;

use super::{check_in, folder_of_images, obento, volume};

/// Checks the messages of commands that fail.
#[track_caller]
fn all(folder: &Path, lines: &[(&str, i32, &str)]) {
    for (line, status, stderr) in lines {
        let args: Vec<&str> = line.split(' ').collect();
        check_in(folder, &args, *status, "", &format!("obento: {stderr}\n"));
    }
}

/// Creates a disk with an empty partition of 4 MiB for each of `sizes`.
pub fn disk(folder: &Path, name: &str, table: &str, parts: usize) {
    let len = format!("{}M", 4 * parts + 4);
    assert!(obento(folder, &["part", name, "create", table, "--size", &len]).status.success());
    for _ in 0..parts {
        assert!(obento(folder, &["part", name, "add", "--size", "4M"]).status.success());
    }
}

#[test]
fn a_size_that_is_not_possible_is_reported_with_its_unit_and_the_least_size() {
    let folder = folder_of_images();
    fs::write(folder.path().join("10M.img"), "").unwrap();
    all(
        folder.path(),
        &[
            (
                "mkfs 10M new.img",
                2,
                "invalid size 'new.img'\n  help: the image comes first: obento mkfs new.img 10M",
            ),
            (
                "mkfs new.img ten",
                2,
                "invalid size 'ten'\n  help: write a size of at least 1 byte, such as 10G",
            ),
            (
                "resize 10M plain.img",
                2,
                "invalid value 'plain.img' for SIZE: not a size\n  help: the image comes before the size: plain.img \
                 SIZE",
            ),
            (
                "mkfs new.img 10",
                2,
                "cannot create a file system on 'new.img': a size of 10240 bytes is too small for the reserved \
                 inodes\n  help: use a larger size, or fewer features or inodes, which also need space; the least \
                 size with these options is 104 KiB; 10 counts KiB; write 10M for MiB",
            ),
            (
                "mkfs -t vfat new.img 1K",
                2,
                "cannot create a file system on 'new.img': a size of 1024 bytes is too small for a FAT volume with \
                 this cluster size\n  help: use a larger size; the least size with these options is 50 KiB",
            ),
            (
                "resize plain.img 4",
                2,
                "cannot resize 'plain.img': the contents do not fit; a size of 1656832 bytes is large enough\n  help: \
                 use --minimum, which may shrink the volume further; 4 is a size in bytes; add M for MiB",
            ),
            (
                "resize fat.img 9M",
                2,
                "cannot resize 'fat.img': the volume can have at most 8388608 bytes (the limit of FAT12)\n  help: \
                 create a larger volume with 'obento mkfs', and copy the files to it with 'obento cp -a OLD:/. NEW:/'",
            ),
        ],
    );
    for args in [["-q", "ext.img", "104K"], ["-qtvfat", "vfat.img", "50K"]] {
        assert!(obento(folder.path(), &[&["mkfs"], &args[..]].concat()).status.success(), "{args:?}");
    }
}

#[test]
fn a_size_that_is_larger_than_the_target_is_reported_with_the_kind_of_the_target() {
    let folder = folder_of_images();
    assert!(obento(folder.path(), &["convert", "-q", "plain.img", "q.qcow2"]).status.success());
    disk(folder.path(), "disk.img", "mbr", 1);
    assert!(obento(folder.path(), &["mkfs", "-q", "disk.img@1"]).status.success());
    all(
        folder.path(),
        &[
            (
                "mkfs -F q.qcow2 1G",
                2,
                "cannot create a file system on 'q.qcow2': a size of 1073741824 bytes is larger than the disk in the \
                 image file, which has 8388608 bytes\n  help: omit SIZE to use all of the disk in the image file",
            ),
            (
                "mkfs -F disk.img@1 1G",
                2,
                "cannot create a file system on 'disk.img@1': a size of 1073741824 bytes is larger than the \
                 partition, which has 4194304 bytes\n  help: omit SIZE to use all of the partition",
            ),
            // The size is the first reason: --force would not help.
            (
                "convert plain.img disk.img@1",
                2,
                "cannot convert to 'disk.img@1': the source has 8 MiB (8388608 bytes), and the partition only 4 MiB \
                 (4194304 bytes)\n  help: grow the partition with 'obento part disk.img grow 1', or shrink a file \
                 system in the source with 'obento resize plain.img --minimum', before it is written to disk.img@1",
            ),
        ],
    );
}

#[test]
fn a_setting_without_its_value_is_reported_with_its_form() {
    let folder = folder_of_images();
    all(
        folder.path(),
        &[
            (
                "mkfs -E stride new.img 8M",
                2,
                "cannot create a file system on 'new.img': stride requires a value\n  help: write stride=VALUE; the \
                 value is a number from 0 to 65535",
            ),
            ("mkfs -J size new.img 8M", 2, "-J size requires a value\n  help: write -J size=VALUE"),
            (
                "mkfs -E offset new.img 8M",
                2,
                "-E offset requires a value\n  help: write an offset such as offset=1M",
            ),
            (
                "build new.img --from . -E stride",
                2,
                "cannot build 'new.img': stride requires a value\n  help: write stride=VALUE; the value is a number \
                 from 0 to 65535",
            ),
            (
                "mkfs -t vfat -C 4k new.img 40M",
                2,
                "cannot create a file system on 'new.img': -C is not available for vfat\n  help: use -b to set the \
                 cluster size",
            ),
            (
                "tune plain.img -L a-label-of-more-than-16-bytes",
                2,
                "cannot change the settings of 'plain.img': invalid value 'a-label-of-more-than-16-bytes' for -L: \
                 must have at most 16 bytes, and no NUL\n  help: write a shorter label, without special characters",
            ),
        ],
    );
    let output =
        obento(folder.path(), &["mkfs", "-q", "-L", "a-label-of-more-than-16-bytes", "new.img", "8M"]);
    let note = "obento: new.img: note: the label was truncated to 'a-label-of-more-': labels of this type have at \
                most 16 bytes\n";
    assert_eq!(String::from_utf8(output.stderr).unwrap(), note);
}

#[test]
fn a_source_of_a_build_that_cannot_be_used_is_reported_with_what_to_write_instead() {
    let folder = folder_of_images();
    let layout =
        "[disk]\ntable = \"gpt\"\n\n[[partition]]\ntype = \"esp\"\ncontent = \"vfat\"\nfrom = \"none\"\n";
    fs::write(folder.path().join("layout.toml"), layout).unwrap();
    all(
        folder.path(),
        &[
            (
                "build new.img --from foo:dir",
                2,
                "cannot open 'foo:dir': unknown prefix 'foo:'\n  help: use dir:, tar:, layer:, oci:, mtree: or dump:, \
                 or write './' before a path that contains ':'",
            ),
            (
                "build new.img --from notes.txt",
                2,
                "cannot build 'new.img': cannot read 'notes.txt': not a tar archive: the file does not begin with a \
                 tar header\n  help: use --add notes.txt:/notes.txt to add a file that is not an archive",
            ),
            (
                "build new.img --print-layout plain.img",
                2,
                "cannot build 'new.img': --print-layout prints a layout, and builds no image\n  help: omit 'new.img'",
            ),
            (
                "build new.img --disk layout.toml",
                2,
                "cannot use 'layout.toml:7': from: cannot open 'none': no such file or directory\n  help: paths start \
                 at the directory of the layout file",
            ),
        ],
    );
    let piped = super::command(folder.path(), &["build", "new.img", "--disk", "-"])
        .stdin(File::open(folder.path().join("layout.toml")).unwrap())
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8(piped.stderr).unwrap(),
        "obento: cannot use line 7 of standard input: from: cannot open 'none': no such file or directory\n  help: \
         paths start at the current directory\n"
    );
}

#[test]
fn a_file_of_the_host_in_place_of_a_file_in_an_image_is_reported_with_the_form_of_the_argument() {
    let folder = folder_of_images();
    assert!(obento(folder.path(), &["cp", "notes.txt", "plain.img:/f"]).status.success());
    let reference = "cannot open 'notes.txt': no supported file system; the data looks like text\n  help: --reference \
                     names a file in an image, such as disk.img:/etc/passwd";
    all(
        folder.path(),
        &[
            ("truncate -r notes.txt plain.img:/f", 1, reference),
            ("chown --reference notes.txt plain.img:/f", 1, reference),
            ("chmod --reference notes.txt plain.img:/f", 1, reference),
            (
                "sha256sum -c plain.img:/list",
                2,
                "cannot read 'plain.img:/list': no such file or directory\n  help: a list is a file of the host; to \
                 read one from an image, use 'obento cat plain.img:/list | obento sha256sum -c -'",
            ),
            (
                "cp plain.img copy.img",
                1,
                "cannot copy 'plain.img': not a path inside an image\n  help: use plain.img:/ for the root directory \
                 of the image, or cp(1) to copy the image itself",
            ),
        ],
    );
}

#[test]
fn a_path_through_a_file_or_a_missing_directory_is_reported_by_the_part_at_fault() {
    let folder = folder_of_images();
    assert!(obento(folder.path(), &["cp", "notes.txt", "plain.img:/f"]).status.success());
    assert!(obento(folder.path(), &["cp", "notes.txt", "plain.img:/g"]).status.success());
    let missing = "no such directory\n  help: create the directory first: obento mkdir -p";
    all(
        folder.path(),
        &[
            (
                "cp notes.txt plain.img:/f/x",
                2,
                "cannot write 'plain.img:/f/x': 'plain.img:/f' is not a directory",
            ),
            (
                "mkdir plain.img:/f/x",
                1,
                "cannot create directory 'plain.img:/f/x': 'plain.img:/f' is not a directory",
            ),
            (
                "touch plain.img:/f/x/y",
                1,
                "cannot touch 'plain.img:/f/x/y': 'plain.img:/f' is not a directory",
            ),
            (
                "exec plain.img:/f/x true",
                2,
                "cannot create a copy of 'plain.img:/f/x': 'plain.img:/f' is not a directory",
            ),
            (
                "edit plain.img:/none/f",
                2,
                "cannot create a copy of 'plain.img:/none/f': no such file or directory\n  help: create the directory \
                 first: obento mkdir -p plain.img:/none",
            ),
            (
                "mv plain.img:/f plain.img:/g fat.img:/none",
                1,
                &format!("cannot move into 'fat.img:/none': {missing} fat.img:/none"),
            ),
            (
                "mv plain.img:/f plain.img:/g plain.img:/none",
                1,
                &format!("cannot move into 'plain.img:/none': {missing} plain.img:/none"),
            ),
            (
                "mv plain.img:/f plain.img:/g none",
                1,
                "cannot move into 'none': no such directory\n  help: create the directory first: mkdir -p none",
            ),
        ],
    );
}

#[test]
fn a_file_that_is_too_large_is_reported_with_the_limit_of_the_volume() {
    let folder = folder_of_images();
    File::create(folder.path().join("huge")).unwrap().set_len(5 << 30).unwrap();
    assert!(obento(folder.path(), &["cp", "notes.txt", "fat.img:/f"]).status.success());
    let limit = "file too large\n  help: a file on this volume has at most 4 GiB (4294967295 bytes)";
    all(
        folder.path(),
        &[
            ("cp huge fat.img:/", 1, &format!("cannot copy 'huge': cannot write 'fat.img:/huge': {limit}")),
            ("truncate -s 5G fat.img:/f", 1, &format!("cannot truncate 'fat.img:/f': {limit}")),
            ("fallocate -l 5G fat.img:/f", 1, &format!("cannot allocate space for 'fat.img:/f': {limit}")),
        ],
    );
}

#[test]
fn an_argument_is_named_as_the_user_typed_it() {
    let folder = folder_of_images();
    disk(folder.path(), "disk.img", "gpt", 1);
    fs::write(folder.path().join("a b.txt"), "text\n").unwrap();
    all(
        folder.path(),
        &[
            (
                r"ls C:\disk.img:/",
                2,
                "cannot open 'C:\\disk.img': no such file\n  help: check the name, or write 'host:' before a host path \
                 that contains ':/'",
            ),
            (r"ls dir\disk.img", 2, "cannot open 'dir\\disk.img': no such file\n  help: check the name"),
            (
                "ls zeros.img",
                2,
                "cannot open 'zeros.img': no supported file system; the data looks like zeros\n  help: create a file \
                 system with 'obento mkfs zeros.img'",
            ),
            (
                "ls disk.img@1",
                2,
                "cannot open 'disk.img@1': no supported file system; the data looks like zeros\n  help: create a file \
                 system with 'obento mkfs disk.img@1'",
            ),
        ],
    );
    let output = obento(folder.path(), &["ls", "disk.img@foo=bar"]);
    let text = String::from_utf8(output.stderr).unwrap();
    let cause = "obento: cannot open 'disk.img@foo=bar': no such partition; the partitions are:\n";
    let help = "\n  help: 'foo=' is not a selector; use name=, label= or uuid=\n";
    assert!(text.starts_with(cause) && text.ends_with(help), "{text}");
}

#[test]
fn a_partition_that_cannot_grow_is_reported_with_the_partition_after_it() {
    let folder = folder_of_images();
    disk(folder.path(), "disk.img", "gpt", 2);
    check_in(
        folder.path(),
        &["part", "disk.img", "grow", "1"],
        0,
        "disk.img: partition 1 already has 4 MiB (4194304 bytes); partition 2 follows it\n",
        "",
    );
}

#[test]
fn a_super_block_that_is_requested_in_vain_is_reported_with_the_copies_of_the_volume() {
    let folder = volume();
    let damaged =
        "cannot check 'disk.img': super block: magic number is 0x0, expected 0xef53 (block 77)\n  help: ";
    let omit = format!("{damaged}omit -b: the primary super block is not damaged");
    all(folder.path(), &[("check -b 77 disk.img", 8, &omit)]);
    assert!(obento(folder.path(), &["mkfs", "-qF", "disk.img", "40M"]).status.success());
    let disk = File::options().write(true).open(folder.path().join("disk.img")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&disk, &[0; 1024], 1024).unwrap();
    all(
        folder.path(),
        &[("check -b 77 disk.img", 8, &format!("{damaged}omit -b to use the copy at block 8193"))],
    );
}
