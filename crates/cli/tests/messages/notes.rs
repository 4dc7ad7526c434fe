//! Notes about work that succeeded, and the summary of a list.

use std::fs::{self, File};

use obento_testkit::oracle::{program, run};
use obento_testkit::{Oracle, require};

use super::causes::disk;
use super::{check_in, folder_of_images, obento, volume};

#[test]
fn a_disk_whose_last_partition_shrinks_is_reported_with_the_command_that_shortens_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    assert!(obento(at, &["part", "disk.img", "create", "gpt", "--size", "64M"]).status.success());
    assert!(obento(at, &["part", "disk.img", "add"]).status.success());
    assert!(obento(at, &["mkfs", "-q", "disk.img@1"]).status.success());
    let output = obento(at, &["resize", "-q", "disk.img", "20M"]);
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "obento: disk.img: note: the file still has 64 MiB; to shorten the file, run 'truncate -s 23068672 disk.img', \
         and then 'obento part disk.img repair-backup'\n"
    );
    File::options().write(true).open(at.join("disk.img")).unwrap().set_len(23_068_672).unwrap();
    assert!(obento(at, &["part", "disk.img", "repair-backup"]).status.success());
    check_in(at, &["check", "-q", "disk.img"], 0, "", "");
    // A partition with another one after it does not allow a shorter file.
    disk(at, "two.img", "mbr", 2);
    assert!(obento(at, &["mkfs", "-q", "two.img@1"]).status.success());
    check_in(at, &["resize", "-q", "two.img@1", "2M"], 0, "", "");
}

#[test]
fn a_vhd_image_that_is_longer_than_its_disk_is_reported() {
    let folder = folder_of_images();
    File::create(folder.path().join("odd.img")).unwrap().set_len((3 << 20) + 1000).unwrap();
    let output = obento(folder.path(), &["convert", "odd.img", "odd.vhd"]);
    assert!(output.status.success(), "{output:?}");
    let note =
        "obento: odd.vhd: note: 1047576 bytes of zeros were added: a VHD disk has whole MiB, here 4 MiB\n";
    assert_eq!(String::from_utf8_lossy(&output.stderr), note);
    check_in(folder.path(), &["convert", "-q", "plain.img", "even.vhd"], 0, "", "");
}

#[test]
fn a_list_of_damaged_files_needs_no_copy() {
    let folder = volume();
    fs::write(folder.path().join("map"), "0x0 ? 1\n0x0 0x800000 +\n").unwrap();
    check_in(
        folder.path(),
        &["recover", "--list", "--map", "map", "disk.img"],
        0,
        "",
        "obento: disk.img: note: 0 files read, and nothing copied: 0 damaged files, 0 unreadable entries\n",
    );
    let both = obento(folder.path(), &["recover", "--list", "disk.img", "dir"]);
    assert_eq!(both.status.code(), Some(2), "{both:?}");
    let neither = obento(folder.path(), &["recover", "disk.img"]);
    assert!(String::from_utf8(neither.stderr).unwrap().starts_with("obento: missing operand DIR\n"));
}

#[test]
fn a_damaged_table_of_a_compressed_image_is_reported_without_a_command_that_fails() {
    if !require(&[Oracle::Program("gzip")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for args in [
        &["part", "disk.img", "create", "gpt", "--size", "8M"][..],
        &["part", "disk.img", "add"],
        &["mkfs", "-q", "disk.img@1"],
    ] {
        assert!(obento(at, args).status.success(), "{args:?}");
    }
    let mut bytes = fs::read(at.join("disk.img")).unwrap();
    bytes[600] ^= 0xff;
    fs::write(at.join("disk.img"), bytes).unwrap();
    run(program("gzip").arg(at.join("disk.img"))).unwrap();
    for args in [&["ls", "disk.img.gz"][..], &["part", "disk.img.gz"], &["info", "disk.img.gz"]] {
        let output = obento(at, args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        assert!(text.contains("GPT at the start of the disk is damaged"), "{args:?}: {text}");
        assert!(!text.contains("repair-backup"), "{args:?}: {text}");
    }
}

#[test]
fn every_directive_of_stat_without_a_value_is_noted_once() {
    let folder = volume();
    // `?` is the value of %C for a file without this attribute.
    let context = ["setfattr", "-n", "security.selinux", "-v", "label", "disk.img:/"];
    assert!(obento(folder.path(), &context).status.success());
    for (option, directory) in [("-c", "disk.img:/"), ("-fc", "disk.img:/")] {
        // H, I and L are modifiers.
        for letter in ('a'..='z').chain('A'..='Z').filter(|letter| !"HIL".contains(*letter)) {
            let format = format!("%{letter}|%{letter}");
            let output = obento(folder.path(), &["stat", option, &format, directory]);
            let (value, note) =
                (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
            let expected = match value.as_str() {
                "?|?\n" => format!("obento: stat: note: unknown directive '%{letter}' in the format\n"),
                _ => String::new(),
            };
            assert_eq!(note, expected, "{option} {format}: {value}");
        }
    }
}
