//! Access control lists on their way in and out: kept, settled with the mode, or reported, and never to grant more.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use obento_testkit::Oracle;
use obento_testkit::oracle::{LoopMount, call};

use crate::{Bench, text};

const TOOLS: &[Oracle] = &[
    Oracle::Root,
    Oracle::Program("mke2fs"),
    Oracle::Program("e2fsck"),
    Oracle::Program("setfacl"),
    Oracle::Program("getfacl"),
    Oracle::Program("tar"),
];

/// The lists of a file as getfacl(1) prints them through the kernel, by numbers.
fn lists(bench: &Bench, image: &str, file: &str) -> String {
    let mount = LoopMount::new(&bench.at(image), "ro").unwrap();
    let output = Command::new("getfacl").current_dir(mount.path()).args(["-cEn", file]).output().unwrap();
    mount.unmount().unwrap();
    text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A file `acl` whose list has a user, and `d` with a default list. No host has names for these numbers.
fn sources(bench: &Bench) {
    bench.write("s/acl", "text");
    fs::set_permissions(bench.at("s/acl"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::create_dir(bench.at("s/d")).unwrap();
    let path = |name: &str| bench.at(name).to_str().unwrap().to_owned();
    call("setfacl", ["-m", "u:4009:rw,g:4010:r,m:rw", &path("s/acl")]).unwrap();
    call("setfacl", ["-d", "-m", "u:4009:rwx", &path("s/d")]).unwrap();
}

const ACL: &str = "user::rw- user:4009:rw- group::r-- group:4010:r-- mask::rw- other::---";

#[test]
fn lists_are_kept_with_the_mode_in_both_directions() {
    let Some(bench) = Bench::new(&[TOOLS, &[Oracle::LoopMount]].concat()) else { return };
    sources(&bench);
    for option in ["-p", "-a", "--preserve=mode"] {
        bench.ext4("t.img", &[]);
        bench.quiet(&["cp", "-r", option, "s", "t.img:/"]);
        assert_eq!(lists(&bench, "t.img", "s/acl"), ACL, "{option}");
        assert!(lists(&bench, "t.img", "s/d").contains("default:user:4009:rwx"), "{option}");
        let _ = fs::remove_dir_all(bench.at("back"));
        bench.quiet(&["cp", "-r", option, "t.img:/s", "back"]);
        let found = call("getfacl", ["-cEn", bench.at("back/acl").to_str().unwrap()]);
        assert!(format!("{found:?}").contains("user:4009:rw-"), "{option}: {found:?}");
    }
    bench.ext4("t.img", &[]);
    bench.quiet(&["cp", "-a", "--no-preserve=mode", "s/acl", "t.img:/"]);
    assert!(!lists(&bench, "t.img", "acl").contains("user:4009"));
}

#[test]
fn a_list_that_a_volume_cannot_keep_is_reported() {
    let Some(bench) = Bench::new(TOOLS) else { return };
    sources(&bench);
    for kind in ["vfat", "xv6"] {
        bench.mkfs(kind, "v.img");
        let copied = bench.obento(&["cp", "-p", "s/acl", "v.img:/acl"]);
        assert_eq!(copied.status.code(), Some(1), "{kind}: {}", text(&copied.stderr));
        assert!(
            text(&copied.stderr).contains("access control list not preserved"),
            "{}",
            text(&copied.stderr)
        );
    }
}

#[test]
fn a_list_that_a_volume_with_modes_cannot_store_leaves_the_group_its_own_entry() {
    let engine = [Oracle::Program("linux.uml"), Oracle::Program("mkfs.minix")];
    let Some(bench) = Bench::new(&[TOOLS, &engine].concat()) else { return };
    sources(&bench);
    let folder = bench.path().to_str().unwrap();
    call("tar", ["--acls", "-C", folder, "-cf", bench.at("t.tar").to_str().unwrap(), "s"]).unwrap();
    let mode = |path: &str| bench.prints(&["stat", "-c", "%a", path]).trim().to_owned();
    let empty = || {
        fs::File::create(bench.at("m.img")).unwrap().set_len(16 << 20).unwrap();
        call("mkfs.minix", [bench.at("m.img").to_str().unwrap()]).unwrap();
    };
    // The mode of the source shows the mask, rw-; its group has r-- only.
    let ways: [&[&str]; 3] = [
        &["cp", "-r", "-p", "s", "m.img:/"],
        &["import", "m.img:/", "t.tar"],
        &["build", "-q", "-F", "-t", "minix", "m.img", "--from", "t.tar"],
    ];
    for way in ways {
        empty();
        bench.fails(way, "access control list");
        assert_eq!(mode("m.img:/s/acl"), "640", "{way:?}");
    }
    // A directory that gives its group to new files sets the mode once more.
    empty();
    bench.quiet(&["mkdir", "-m", "2775", "m.img:/g"]);
    bench.fails(&["cp", "-p", "s/acl", "m.img:/g"], "access control list");
    assert_eq!(mode("m.img:/g/acl"), "640");
}

#[test]
fn a_list_that_a_mount_of_the_host_cannot_store_leaves_the_group_its_own_entry() {
    let Some(bench) = Bench::new(&[TOOLS, &[Oracle::LoopMount]].concat()) else { return };
    sources(&bench);
    bench.ext4("t.img", &[]);
    bench.quiet(&["cp", "-r", "-p", "s", "t.img:/"]);
    // The ramfs of Linux has modes and no lists.
    fs::create_dir(bench.at("m")).unwrap();
    call("mount", ["-t", "ramfs", "none", bench.at("m").to_str().unwrap()]).unwrap();
    let copied = bench.obento(&["cp", "-p", "t.img:/s/acl", "m/acl"]);
    let mode = fs::metadata(bench.at("m/acl")).map(|meta| meta.permissions().mode() & 0o7777);
    call("umount", [bench.at("m")]).unwrap();
    assert_eq!(copied.status.code(), Some(1), "{}", text(&copied.stderr));
    assert!(text(&copied.stderr).contains("access control list"), "{}", text(&copied.stderr));
    assert_eq!(mode.unwrap(), 0o640);
}

/// An archive with a list that names `joe` and `staff`, as GNU tar and bsdtar write it where those have names.
fn archive(bench: &Bench, with_owners: bool) {
    let list = "user::rw-\nuser:joe:rw-\ngroup::r--\ngroup:staff:r-x\nmask::rwx\nother::---\n";
    archive_of(bench, list, with_owners);
}

/// The same with another list.
fn archive_of(bench: &Bench, list: &str, with_owners: bool) {
    let record = |key: &str, value: &str| {
        let bare = key.len() + value.len() + 3;
        let len =
            (1..4).map(|digits| bare + digits).find(|len| len.to_string().len() + bare == *len).unwrap();
        format!("{len} {key}={value}\n")
    };
    let mut tar = Vec::new();
    let mut member = |name: &str, kind: u8, bytes: &[u8]| {
        let mut block = [0_u8; 512];
        block[..name.len()].copy_from_slice(name.as_bytes());
        let mut put = |at: usize, field: &str| block[at..at + field.len()].copy_from_slice(field.as_bytes());
        put(100, "0000670\0");
        put(108, "0000000\0");
        put(116, "0000000\0");
        put(124, &format!("{:011o}\0", bytes.len()));
        put(136, "00000000000\0");
        put(148, "        ");
        put(257, "ustar\x0000");
        block[156] = kind;
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        tar.extend(block);
        tar.extend(bytes);
        tar.resize(tar.len().next_multiple_of(512), 0);
    };
    member("x", b'x', record("SCHILY.acl.access", list).as_bytes());
    member("named", b'0', b"text");
    member("x", b'x', record("SCHILY.acl.access", "user::rwx,group::r--,other::---").as_bytes());
    member("base", b'0', b"text");
    if with_owners {
        // Behind the file whose list needs them.
        member("etc/passwd", b'0', b"joe:x:1234:100::/:/bin/sh\n");
        member("etc/group", b'0', b"staff:x:77:\n");
    }
    tar.resize(tar.len() + 1024, 0);
    fs::write(bench.at("a.tar"), tar).unwrap();
}

#[test]
fn names_in_a_list_are_those_of_the_image_that_the_archive_becomes() {
    let Some(bench) = Bench::new(&[TOOLS, &[Oracle::LoopMount]].concat()) else { return };
    archive(&bench, true);
    let expected = "user::rw- user:1234:rw- group::r-- group:77:r-x mask::rwx other::---";
    bench.ext4("t.img", &[]);
    bench.quiet(&["import", "t.img:/", "a.tar"]);
    bench.prints(&["build", "-q", "-t", "ext4", "b.img", "--from", "a.tar"]);
    for image in ["t.img", "b.img"] {
        assert_eq!(lists(&bench, image, "named"), expected, "{image}");
        // A list of the three base entries is a mode.
        assert_eq!(lists(&bench, image, "base"), "user::rwx group::r-- other::---", "{image}");
        assert_eq!(bench.prints(&["stat", "-c", "%a", &format!("{image}:/base")]).trim(), "740");
        let named = bench.prints(&["getfattr", "-m", "-", &format!("{image}:/base")]);
        assert!(!named.contains("posix_acl"), "{image}: {named}");
        call("e2fsck", ["-fn", bench.at(image).to_str().unwrap()]).unwrap();
    }
}

#[test]
fn a_name_that_the_image_lacks_is_reported_and_grants_nothing() {
    let Some(bench) = Bench::new(&[TOOLS, &[Oracle::LoopMount]].concat()) else { return };
    archive(&bench, false);
    bench.ext4("t.img", &[]);
    bench.fails(&["import", "t.img:/", "a.tar"], "the image has no user 'joe'");
    // The mask stays, and so the group has what its own entry says.
    assert_eq!(lists(&bench, "t.img", "named"), "user::rw- group::r-- mask::rwx other::---");
    bench.fails(&["build", "-q", "-t", "ext4", "b.img", "--from", "a.tar"], "the image has no user 'joe'");
    bench.fails(
        &["build", "-q", "-F", "-t", "ext4", "--verify", "b.img", "--from", "a.tar"],
        "the image has no group 'staff'",
    );
    assert_eq!(lists(&bench, "b.img", "named"), lists(&bench, "t.img", "named"));
    call("e2fsck", ["-fn", bench.at("b.img").to_str().unwrap()]).unwrap();
}

#[test]
fn a_number_in_the_list_of_an_archive_replaces_a_name_that_the_image_lacks() {
    let Some(bench) = Bench::new(&[TOOLS, &[Oracle::LoopMount]].concat()) else { return };
    archive_of(
        &bench,
        "user::rw-,user:joe:rw-:1234,group::r--,group:staff:r-x:77,mask::rwx,other::---",
        false,
    );
    bench.ext4("t.img", &[]);
    bench.quiet(&["import", "t.img:/", "a.tar"]);
    bench.prints(&["build", "-q", "-t", "ext4", "b.img", "--from", "a.tar"]);
    for image in ["t.img", "b.img"] {
        let expected = "user::rw- user:1234:rw- group::r-- group:77:r-x mask::rwx other::---";
        assert_eq!(lists(&bench, image, "named"), expected, "{image}");
    }
}

#[test]
fn a_build_gives_a_file_the_mode_of_its_list() {
    let Some(bench) = Bench::new(&[TOOLS, &[Oracle::LoopMount]].concat()) else { return };
    sources(&bench);
    let tar = bench.at("t.tar");
    call("tar", ["--acls", "-C", bench.path().to_str().unwrap(), "-cf", tar.to_str().unwrap(), "s"]).unwrap();
    for source in ["s", "t.tar"] {
        bench.prints(&["build", "-q", "-t", "ext4", "b.img", "--force", "--xattrs", "--from", source]);
        let file = if source == "s" { "acl" } else { "s/acl" };
        assert_eq!(lists(&bench, "b.img", file), ACL, "{source}");
        call("e2fsck", ["-fn", bench.at("b.img").to_str().unwrap()]).unwrap();
    }
    // Without the list, the mask grants the group nothing.
    bench.prints(&["build", "-q", "-t", "ext4", "d.img", "--from", "s"]);
    assert_eq!(lists(&bench, "d.img", "acl"), "user::rw- group::r-- other::---");
    // chmod changes the list, as it does on a mounted volume: the mask goes.
    bench.prints(&["build", "-q", "-t", "ext4", "c.img", "--xattrs", "--from", "s", "--chmod", "go="]);
    assert_eq!(lists(&bench, "c.img", "acl"), ACL.replace("mask::rw-", "mask::---"));
}

#[test]
fn a_file_is_copied_without_an_attribute_for_which_its_inode_has_no_room() {
    let Some(bench) = Bench::new(&[]) else { return };
    bench.quiet(&["mkfs", "-q", "-t", "ext4", "-b", "4096", "a.img", "16M"]);
    bench.quiet(&["mkfs", "-q", "-t", "ext4", "-b", "1024", "b.img", "16M"]);
    fs::write(bench.at("f"), "data").unwrap();
    bench.quiet(&["cp", "f", "a.img:/"]);
    bench.quiet(&["setfattr", "-n", "user.large", "-v", &"v".repeat(2000), "a.img:/f"]);
    for target in ["b.img:/", "b.img:/g"] {
        let output = bench.obento(&["cp", "-a", "a.img:/f", target]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.contains("1 extended attribute not preserved (too large for the inode)"), "{said}");
    }
    assert_eq!(bench.prints(&["cat", "b.img:/f", "b.img:/g"]), "datadata");
}
