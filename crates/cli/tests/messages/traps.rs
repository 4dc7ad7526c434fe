//! Commands that would destroy an image or a partition table because the user forgot a word.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use obento_testkit::oracle::{program, run};
use obento_testkit::{Oracle, require};

use super::{check_in, folder_of_images, obento};

/// Fails with `stderr` and leaves `file` as it is.
#[track_caller]
fn spares(folder: &Path, file: &str, args: &[&str], status: i32, stderr: &str) {
    let before = fs::read(folder.join(file)).unwrap();
    check_in(folder, args, status, "", &format!("obento: {stderr}\n"));
    assert!(fs::read(folder.join(file)).unwrap() == before, "{args:?}");
}

#[test]
fn a_disk_image_is_not_replaced_by_a_copied_file_because_its_path_was_forgotten() {
    let folder = folder_of_images();
    let at = folder.path();
    fs::set_permissions(at.join("fat.img"), fs::Permissions::from_mode(0o444)).unwrap();
    check_in(at, &["cp", "notes.txt", "plain.img:/notes.txt"], 0, "", "");
    let why = |what: &str| {
        format!(
            "{what} 'fat.img': the file is a disk image\n  help: use fat.img:/ for its root directory, or --force \
             to replace the image"
        )
    };
    spares(at, "fat.img", &["cp", "plain.img:/notes.txt", "fat.img"], 2, &why("cannot copy to"));
    spares(at, "fat.img", &["mv", "plain.img:/notes.txt", "fat.img"], 1, &why("cannot move to"));
    for args in [&["export", "plain.img", "fat.img"][..], &["export", "plain.img", "-o", "fat.img"]] {
        spares(
            at,
            "fat.img",
            args,
            2,
            "cannot export to 'fat.img': the file is a disk image\n  help: name another file; to put files into the \
             image, use 'obento cp'; --force replaces the image",
        );
    }
    // A partition table is that of a disk, too.
    assert!(obento(at, &["part", "mbr.img", "add"]).status.success());
    let why = "cannot copy to 'mbr.img': the file is a disk image\n  help: use --force to replace the image";
    spares(at, "mbr.img", &["cp", "plain.img:/notes.txt", "mbr.img"], 2, why);
    // The disk of a virtual machine, and one that requires another file, without a file system.
    assert!(obento(at, &["convert", "-q", "zeros.img", "vm.qcow2"]).status.success());
    assert!(obento(at, &["convert", "-q", "--backing", "vm.qcow2", "over.qcow2"]).status.success());
    for name in ["vm.qcow2", "over.qcow2"] {
        let why = why.replace("mbr.img", name);
        spares(at, name, &["cp", "plain.img:/notes.txt", name], 2, &why);
    }
}

#[test]
fn a_disk_image_is_not_emptied_by_a_report_or_a_list() {
    let folder = folder_of_images();
    let at = folder.path();
    let why = "cannot write to 'fat.img': the file is a disk image\n  help: name another file, or delete the image first";
    for args in [
        &["find", "plain.img", "-fprint", "fat.img"][..],
        &["find", "plain.img", "-fprint0", "fat.img"],
        &["find", "plain.img", "-fls", "fat.img"],
        &["find", "plain.img", "-fprintf", "fat.img", "%p"],
        &["recover", "--list", "plain.img", "--report", "fat.img"],
        &["recover", "plain.img", "out", "--report", "fat.img"],
    ] {
        spares(at, "fat.img", args, 2, why);
    }
    // A text is replaced.
    check_in(at, &["find", "plain.img", "-name", "lost+found", "-fprint", "notes.txt"], 0, "", "");
    assert_eq!(fs::read_to_string(at.join("notes.txt")).unwrap(), "plain.img:/lost+found\n");
}

#[test]
fn a_compressed_or_encrypted_image_is_not_replaced_by_a_copied_file_either() {
    if !require(&["gzip", "zstd", "xz"].map(Oracle::Program)) {
        return;
    }
    let folder = folder_of_images();
    let at = folder.path();
    let pack = |tool, name: &str, packed: &str| {
        let output = run(program(tool).arg("-c").arg(at.join(name))).unwrap();
        fs::write(at.join(packed), output.stdout).unwrap();
    };
    check_in(at, &["cp", "notes.txt", "plain.img:/notes.txt"], 0, "", "");
    assert!(obento(at, &["part", "mbr.img", "add"]).status.success());
    assert!(obento(at, &["convert", "-q", "plain.img", "vm.qcow2"]).status.success());
    for name in ["plain.img", "fat.img", "mbr.img", "vm.qcow2"] {
        for (tool, extension) in [("gzip", "gz"), ("zstd", "zst"), ("xz", "xz")] {
            let packed = format!("{name}.{extension}");
            pack(tool, name, &packed);
            let before = fs::read(at.join(&packed)).unwrap();
            let output = obento(at, &["cp", "plain.img:/notes.txt", &packed]);
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(stderr.contains("the file is a disk image"), "{packed}: {stderr}");
            assert!(fs::read(at.join(&packed)).unwrap() == before, "{packed}");
        }
    }
    // A header of LUKS2, and a member of a Linux RAID.
    for (name, offset, magic) in
        [("luks", 0, &b"LUKS\xba\xbe\0\x02"[..]), ("raid", 4096, b"\xfc\x4e\x2b\xa9\x01\0\0\0")]
    {
        let mut bytes = vec![0; 4 << 20];
        bytes[offset..][..magic.len()].copy_from_slice(magic);
        fs::write(at.join(name), bytes).unwrap();
        let why = format!(
            "cannot copy to '{name}': the file is a disk image\n  help: use --force to replace the image"
        );
        spares(at, name, &["cp", "plain.img:/notes.txt", name], 2, &why);
    }
    // A compressed text is not a disk image.
    pack("gzip", "notes.txt", "notes.gz");
    check_in(at, &["cp", "plain.img:/notes.txt", "notes.gz"], 0, "", "");
}

#[test]
fn a_report_and_a_list_do_not_replace_the_image_that_is_read() {
    let folder = folder_of_images();
    let at = folder.path();
    let before = fs::read(at.join("fat.img")).unwrap();
    for args in [
        &["recover", "--report", "fat.img", "fat.img", "saved"][..],
        &["recover", "--list", "--report", "fat.img", "fat.img"],
        &["find", "fat.img", "-fprint", "fat.img"],
        &["find", "fat.img:/", "-fprint", "./fat.img"],
    ] {
        let output = obento(at, args);
        assert!(!output.status.success(), "{args:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("fat.img"), "{args:?}: {output:?}");
        assert!(fs::read(at.join("fat.img")).unwrap() == before, "{args:?}");
    }
}

#[test]
fn ordinary_files_and_earlier_copies_of_an_image_are_replaced_as_by_cp() {
    let folder = folder_of_images();
    let at = folder.path();
    for args in [
        &["cp", "notes.txt", "zeros.img", "plain.img:/"][..],
        &["cp", "notes.txt", "plain.img:/fat.img"],
        &["cp", "plain.img:/notes.txt", "zeros.img"],
        &["cp", "plain.img:/notes.txt", "empty.img"],
        // The same name: a copy that is repeated.
        &["cp", "plain.img:/fat.img", "fat.img"],
    ] {
        check_in(at, args, 0, "", "");
    }
    for name in ["zeros.img", "empty.img", "fat.img"] {
        assert_eq!(fs::read(at.join(name)).unwrap(), b"text\n", "{name}");
    }
    for args in [
        &["mkfs", "-q", "-F", "-t", "vfat", "fat.img", "8M"][..],
        &["cp", "-n", "plain.img:/notes.txt", "fat.img"],
        &["cp", "-u", "plain.img:/notes.txt", "fat.img"],
        &["cp", "--backup", "plain.img:/notes.txt", "fat.img"],
    ] {
        assert!(obento(at, args).status.success(), "{args:?}");
    }
    assert_eq!(fs::metadata(at.join("fat.img~")).unwrap().len(), 8 << 20);
    for args in [
        &["cp", "-f", "plain.img:/notes.txt", "fat.img"][..],
        &["mv", "-f", "plain.img:/notes.txt", "fat.img"],
        &["export", "--force", "plain.img", "fat.img"],
        &["export", "plain.img", "fat.img"],
    ] {
        if args[0] != "export" || args[1] == "--force" {
            assert!(obento(at, &["mkfs", "-q", "-F", "-t", "vfat", "fat.img", "8M"]).status.success());
        }
        check_in(at, args, 0, "", "");
    }
}

#[test]
fn a_gpt_whose_protective_mbr_is_lost_is_repaired_and_not_destroyed() {
    let folder = folder_of_images();
    let at = folder.path();
    for args in [
        &["part", "gpt.img", "create", "gpt", "--size", "8M"][..],
        &["part", "gpt.img", "add", "--name", "root"],
        &["mkfs", "-q", "gpt.img@1"],
    ] {
        assert!(obento(at, args).status.success(), "{args:?}");
    }
    let good = fs::read(at.join("gpt.img")).unwrap();
    let mut lost = good.clone();
    lost[..512].fill(0);
    fs::write(at.join("gpt.img"), lost).unwrap();
    let ignored = "gpt.img: note: a GPT without a protective MBR is ignored, as in Linux; to open a volume of this \
                   disk, name its first byte: IMAGE@+OFFSET\nobento: ";
    let repair = "run 'obento part gpt.img repair-backup' to write the MBR again";
    for args in [&["part", "gpt.img"][..], &["part", "gpt.img", "add"], &["part", "gpt.img", "delete", "1"]] {
        let why = "cannot use 'gpt.img': the GPT is intact, but its protective MBR is missing";
        spares(at, "gpt.img", args, 2, &format!("{ignored}{why}\n  help: {repair}"));
    }
    for kind in ["gpt", "mbr"] {
        let why =
            "cannot create a partition table on 'gpt.img': it contains a GPT whose protective MBR is missing";
        let help = format!("{repair}; --force destroys the GPT");
        spares(
            at,
            "gpt.img",
            &["part", "gpt.img", "create", kind],
            2,
            &format!("{ignored}{why}\n  help: {help}"),
        );
    }
    spares(
        at,
        "gpt.img",
        &["mkfs", "gpt.img"],
        2,
        "cannot create a file system on 'gpt.img': it contains a GPT whose protective MBR is missing\n  help: use \
         --force (-f) to overwrite it",
    );
    assert!(obento(at, &["part", "gpt.img", "repair-backup"]).status.success());
    assert!(fs::read(at.join("gpt.img")).unwrap() == good);
    check_in(at, &["ls", "gpt.img:/"], 0, "lost+found\n", "");
}

#[test]
fn a_disk_that_was_shortened_too_far_is_refused_with_the_size_that_it_needs() {
    let folder = folder_of_images();
    let at = folder.path();
    for args in [
        &["part", "gpt.img", "create", "gpt", "--size", "8M"][..],
        &["part", "gpt.img", "add", "--size", "2M"],
        &["part", "gpt.img", "add", "--size", "1M"],
    ] {
        assert!(obento(at, args).status.success(), "{args:?}");
    }
    let file = fs::File::options().write(true).open(at.join("gpt.img")).unwrap();
    file.set_len(4 << 20).unwrap();
    spares(
        at,
        "gpt.img",
        &["part", "gpt.img", "repair-backup"],
        2,
        "cannot change the partition table of 'gpt.img': partition 2 ends at byte 4194304, and the backup GPT needs \
         16896 bytes after it\n  help: make the disk at least 4211200 bytes long; for a raw image: truncate -s 4211200 \
         gpt.img",
    );
    file.set_len(4_211_200).unwrap();
    assert!(obento(at, &["part", "gpt.img", "repair-backup"]).status.success());
    spares(
        at,
        "gpt.img",
        &["part", "gpt.img", "grow", "1", "+1G"],
        2,
        "cannot grow 'gpt.img': partition 1 can have at most 2097152 bytes; partition 2 follows\n  help: omit the size \
         to use all free space after the partition",
    );
}
