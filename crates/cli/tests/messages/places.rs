//! Operands that name a partition, and other places that a command does not support.

use std::fs;

use super::{folder_of_images, obento};

/// Runs obento in `folder`. Returns the exit code and the messages.
fn said(folder: &std::path::Path, args: &[&str]) -> (Option<i32>, String) {
    let output = obento(folder, args);
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_partition_as_an_operand_of_a_command_for_files_gets_the_command_that_copies_it() {
    let folder = folder_of_images();
    let folder = folder.path();
    let copies = "help: the bytes of a partition are not an operand here; copy them to a file: obento convert \
                  mbr.img@1 part.img\n";
    for args in [&["diff", "--bytes", "mbr.img@1", "plain.img"][..], &["cmp", "mbr.img@1", "plain.img"]] {
        let (code, said) = said(folder, args);
        assert_eq!(code, Some(2), "{args:?}: {said}");
        assert!(said.ends_with(copies), "{args:?}: {said}");
    }
    let (_, copied) = said(folder, &["cp", "notes.txt", "mbr.img@1"]);
    assert!(copied.ends_with("help: use mbr.img@1:/ for the root directory of the partition\n"), "{copied}");
    let (_, read) = said(folder, &["cat", "mbr.img@1/etc/fstab"]);
    assert!(read.ends_with("help: a colon precedes the path: mbr.img@1:/etc/fstab\n"), "{read}");
}

#[test]
fn an_encrypted_partition_is_copied_before_another_program_opens_it() {
    let folder = folder_of_images();
    let folder = folder.path();
    said(folder, &["part", "crypt.img", "create", "gpt", "--size", "10M"]);
    said(folder, &["part", "crypt.img", "add"]);
    let mut bytes = fs::read(folder.join("crypt.img")).unwrap();
    bytes[1 << 20..][..6].copy_from_slice(b"LUKS\xba\xbe");
    fs::write(folder.join("crypt.img"), bytes).unwrap();
    let (_, said) = said(folder, &["ls", "crypt.img@1:/"]);
    let help = "help: copy the partition with 'obento convert crypt.img@1 partition.img'; then open it as root: \
                'cryptsetup open partition.img NAME'";
    assert!(said.contains(help), "{said}");
}

#[test]
fn a_conversion_that_rounds_the_size_says_so() {
    let folder = folder_of_images();
    let folder = folder.path();
    fs::write(folder.join("odd.raw"), vec![1; 1_000_001]).unwrap();
    for (out, note) in [
        (
            "odd.simg",
            "3519 bytes of zeros were added: an Android sparse image has whole blocks of 4096 bytes, here",
        ),
        ("odd.vmdk", "447 bytes of zeros were added: a VMDK disk has whole sectors of 512 bytes, here"),
        ("odd.vdi", "447 bytes of zeros were added: a VDI disk has whole sectors of 512 bytes, here"),
        ("odd.qcow2", "447 bytes of zeros were added: a qcow2 disk has whole sectors of 512 bytes, here"),
    ] {
        let (code, said) = said(folder, &["convert", "odd.raw", out]);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains(note), "{out}: {said}");
    }
    fs::write(folder.join("even.raw"), vec![1; 1 << 20]).unwrap();
    for out in ["even.simg", "even.vmdk", "even.vhd"] {
        let (_, said) = said(folder, &["convert", "-q", "even.raw", out]);
        assert_eq!(said, "", "{out}");
    }
}

#[test]
fn a_pattern_of_undelete_may_start_with_a_slash() {
    let folder = folder_of_images();
    let folder = folder.path();
    for args in [
        &["mkfs", "-q", "-t", "vfat", "card.img", "4M"][..],
        &["cp", "notes.txt", "card.img:/notes.txt"],
        &["rm", "card.img:/notes.txt"],
    ] {
        assert_eq!(said(folder, args), (Some(0), String::new()), "{args:?}");
    }
    for pattern in ["/*otes.txt", "*otes.txt"] {
        let output = obento(folder, &["undelete", "card.img", pattern]);
        assert_eq!(output.status.code(), Some(0), "{pattern}: {output:?}");
    }
}

#[test]
fn a_verbose_copy_lists_the_names_that_the_target_does_not_support() {
    let folder = folder_of_images();
    let folder = folder.path();
    fs::create_dir(folder.join("odd")).unwrap();
    for name in ["a:b", "ok", "what?"] {
        fs::write(folder.join("odd").join(name), name).unwrap();
    }
    assert_eq!(said(folder, &["mkfs", "-q", "-t", "vfat", "card.img", "4M"]).0, Some(0));
    let output = obento(folder, &["cp", "-rv", "odd", "card.img:/"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let copied = String::from_utf8(output.stdout).unwrap();
    assert_eq!(copied, "'odd' -> 'card.img:/odd'\n'odd/ok' -> 'card.img:/odd/ok'\n");
    let said = String::from_utf8(output.stderr).unwrap();
    for name in ["odd/a:b", "odd/what?"] {
        let line = format!("cannot copy '{name}': the file system of the copy does not support the name\n");
        assert!(said.contains(&line), "{said}");
    }
    assert!(said.contains("cannot create 2 entries with unsupported names"), "{said}");
}

#[test]
fn a_check_names_the_type_of_a_volume_that_only_a_copy_of_its_start_opens() {
    let folder = folder_of_images();
    let folder = folder.path();
    assert_eq!(said(folder, &["mkfs", "-q", "-t", "exfat", "card.img", "64M"]).0, Some(0));
    let mut bytes = fs::read(folder.join("card.img")).unwrap();
    bytes[..6144]
        .iter_mut()
        .zip(0_u32..)
        .for_each(|(byte, at)| *byte = at.wrapping_mul(2_654_435_761).to_le_bytes()[2]);
    fs::write(folder.join("card.img"), bytes).unwrap();
    assert_eq!(obento(folder, &["ls", "card.img:/"]).status.code(), Some(0));
    let (code, said) = said(folder, &["check", "card.img"]);
    assert_eq!(code, Some(8), "{said}");
    assert!(said.ends_with("obento --fs-type exfat check card.img\n"), "{said}");
}
