//! Causes and hints: the given option, the true cause and the next step.

use super::{check_in, folder_of_images, obento};

#[test]
fn message_names_the_option_that_was_given_and_the_true_cause() {
    let folder = folder_of_images();
    for (args, status, stderr) in [
        (
            &["mkfs", "-n", "-b", "1024", "new.img", "4T"][..],
            2,
            "cannot create a file system on 'new.img': a size of 4398046511104 bytes is too large for blocks of \
             1024 bytes\n  help: use a smaller size, or larger blocks: -b 4096\n",
        ),
        (
            &["mkfs", "-n", "-t", "vfat", "-N", "5", "new.img", "10M"],
            2,
            "cannot create a file system on 'new.img': -N is not available for vfat\n  help: omit -N\n",
        ),
        (
            &["mkfs", "-n", "-t", "vfat", "-O", "x", "new.img", "10M"],
            2,
            "cannot create a file system on 'new.img': -O is not available for vfat\n  help: omit -O\n",
        ),
        (
            &["mkfs", "-n", "-C", "4k", "new.img", "10M"],
            2,
            "cannot create a file system on 'new.img': -C requires bigalloc\n  \
             help: add -O bigalloc, or omit -C\n",
        ),
        (
            &["mkfs.fat", "-I", "--variant", "atari", "fat.img"],
            2,
            "invalid value 'atari' for --variant\n  help: use 'standard', or omit --variant\n",
        ),
        (
            &["cmp", "-i", "100", "notes.txt", "mbr.img"],
            1,
            "the files differ: EOF on 'notes.txt', which has at most 100 bytes\n",
        ),
        (&["chattr", "+ai", "-a", "plain.img:/"], 2, "invalid flags: 'a' is both added and removed\n"),
        (
            &["stat", "--json", "-t", "plain.img:/"],
            2,
            "cannot combine --json and -t: each sets the output format\n  help: omit --json or -t\n",
        ),
        (
            &["part", "mbr.img", "add", "--number", "5"],
            2,
            "cannot change the partition table of 'mbr.img': the number 5 is not possible for a partition of this \
             MBR\n  help: use a number from 1 to 4, or add an extended partition first: --type extended\n",
        ),
        (
            &["part", "mbr.img", "add", "--start", "100G"],
            2,
            "cannot change the partition table of 'mbr.img': the partition would end at byte 107374182912, but the \
             usable space of the disk ends at byte 4194304\n  help: run 'obento part mbr.img' to list the free \
             space\n",
        ),
        (
            &["mkdir", "--fs-type", "squashfs", "plain.img:/x"],
            1,
            "cannot open 'plain.img': the volume has no signature of squashfs\n  \
             help: omit --fs-type: the volume is not of this type\n",
        ),
        (
            &["check", "--fs-type", "vfat", "plain.img"],
            8,
            "cannot check 'plain.img': boot sector: BPB_BytsPerSec is 0 (byte 11 of block 0)\n  \
             help: omit --fs-type if the type may be wrong\n",
        ),
        (
            &["cp", "notes.txt", "notes.txt", "plain.img:/none"],
            2,
            "cannot copy several files to 'plain.img:/none': no such directory\n  \
             help: create the directory first: obento mkdir -p plain.img:/none\n",
        ),
        (
            &["import", "plain.img:/", "notes.txt"],
            2,
            "cannot import 'notes.txt': not a tar archive: the file does not begin with a tar header\n",
        ),
    ] {
        check_in(folder.path(), args, status, "", &format!("obento: {stderr}"));
    }
    let refused = obento(folder.path(), &["mount", "--all", "--superblock", "3", "mbr.img", "."]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("--superblock is for a single volume\n  help: mount the partitions one by one"),
        "{said}"
    );
}

#[test]
fn mount_point_that_does_not_exist_leaves_the_volume_clean() {
    let folder = tempfile::tempdir().unwrap();
    for kind in ["ext2", "ext4", "vfat"] {
        assert!(obento(folder.path(), &["mkfs", "-q", "-t", kind, "disk.img", "8M"]).status.success());
        let before = std::fs::read(folder.path().join("disk.img")).unwrap();
        let refused = obento(folder.path(), &["mount", "disk.img", "none"]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains("cannot mount at '"), "{kind}: {said}");
        assert!(std::fs::read(folder.path().join("disk.img")).unwrap() == before, "{kind}");
        std::fs::remove_file(folder.path().join("disk.img")).unwrap();
    }
}

#[test]
fn a_hint_names_the_next_step_and_only_options_that_were_given() {
    let folder = folder_of_images();
    for (args, status, stderr) in [
        (&["ls", "none.img"][..], 2, "cannot open 'none.img': no such file\n  help: check the name\n"),
        (
            &["ls", "none.img:/a"],
            2,
            "cannot open 'none.img': no such file\n  \
             help: check the name, or write 'host:' before a host path that contains ':/'\n",
        ),
        (
            &["ls", "--journal", "none.img", "plain.img"],
            2,
            "cannot open the journal 'none.img': no such file\n  help: check the name\n",
        ),
        (
            &["ls", "plain.img:#x"],
            2,
            "invalid address 'plain.img:#x': '#' must be followed by the number of an inode\n  \
             help: write an address such as plain.img:#12, or plain.img:/#x for a file with this name\n",
        ),
        (
            &["ls", "empty.img"],
            2,
            "cannot open 'empty.img': the file is empty\n  help: create a file system with 'obento mkfs empty.img \
             SIZE', or set the size of the file with truncate(1)\n",
        ),
        (
            &["ls", "zeros.img"],
            2,
            "cannot open 'zeros.img': no supported file system; the data looks like zeros\n  \
             help: create a file system with 'obento mkfs zeros.img'\n",
        ),
        (
            &["ls", "mbr.img"],
            2,
            "cannot open 'mbr.img': the partition table has no partitions\n  \
             help: add a partition: obento part mbr.img add\n",
        ),
        (
            &["ls", "--fs-type", "xfs", "plain.img"],
            2,
            "cannot open 'plain.img': the volume has no signature of xfs\n  \
             help: omit --fs-type: the volume is not of this type\n",
        ),
        (
            &["ls", "--fs-type", "vfat", "plain.img"],
            2,
            "cannot open the vfat file system of 'plain.img': boot sector: BPB_BytsPerSec is 0 (byte 11 of block 0)\n  \
             help: omit --fs-type if the type may be wrong; otherwise copy the readable files with 'obento recover'\n",
        ),
        (
            &["grep", "x", "plain.img:/"],
            2,
            "cannot read 'plain.img:/': is a directory\n  help: use -r to read all files below it\n",
        ),
        (
            &["rmdir", "plain.img:/"],
            1,
            "cannot remove directory 'plain.img:/': the root directory of the volume cannot be removed\n",
        ),
        (
            &["mv", "plain.img:/", "plain.img:/a"],
            1,
            "cannot move 'plain.img:/' to 'plain.img:/a': the root directory cannot be moved\n",
        ),
        (
            &["ln", "notes.txt", "plain.img:/a"],
            1,
            "cannot link to 'notes.txt': the target of a hard link must be a file in the image\n  \
             help: write IMAGE:/PATH, or use -s to create a symbolic link with this text\n",
        ),
        (
            &["part", "plain.img"],
            2,
            "cannot use 'plain.img': no partition table was found: the image contains an ext4 file system of 8 MiB\n  \
             help: name a disk with partitions\n",
        ),
        (
            &["convert", "plain.img:/a", "out.qcow2"],
            2,
            "cannot convert 'plain.img:/a': this is a path inside an image\n  \
             help: name the image, or a partition: disk.img@2\n",
        ),
    ] {
        check_in(folder.path(), args, status, "", &format!("obento: {stderr}"));
    }
}

#[test]
fn a_directory_that_does_not_exist_is_not_reported_as_an_unmount_that_failed_to_open_it() {
    let folder = folder_of_images();
    let list = "not mounted\n  help: run 'obento mount --status' to list the mounts of obento";
    for (name, why) in
        [("nodir", "the directory does not exist"), ("notes.txt", "not a directory"), (".", list)]
    {
        check_in(
            folder.path(),
            &["umount", name],
            1,
            "",
            &format!("obento: cannot unmount '{name}': {why}\n"),
        );
    }
}
