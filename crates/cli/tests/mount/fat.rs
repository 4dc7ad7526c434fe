//! FAT behind a mount point: shown with the options of vfat, used and checked, with `fsck.fat` and mtools as
//! the last checks.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use obento_testkit::oracle::call;
use obento_testkit::{Oracle, require};

use super::support::{obento, text};

fn judge(folder: &Path) {
    call("fsck.fat", ["-n".as_ref(), folder.join("disk.img").as_os_str()]).unwrap();
}

#[test]
fn a_fat_volume_is_shown_as_the_options_of_vfat_say() {
    if !require(&[Oracle::Fuse, Oracle::Program("fsck.fat"), Oracle::Program("mdir")]) {
        return;
    }
    let folder = tempfile::Builder::new().prefix("obento-fat-").tempdir().unwrap();
    let (folder, at) = (folder.path(), folder.path().join("mnt"));
    fs::create_dir(&at).unwrap();
    obento(folder, &["mkfs", "-t", "vfat", "disk.img", "64M"]);
    obento(
        folder,
        &["mount", "-o", "uid=1000,gid=100,fmask=0137,dmask=027,time_offset=60", "disk.img", "mnt"],
    );
    fs::create_dir(at.join("Folder")).unwrap();
    fs::write(at.join("Folder/a long name.txt"), "hello").unwrap();
    let file = fs::metadata(at.join("FOLDER/A LONG NAME.TXT")).unwrap();
    assert_eq!((file.uid(), file.gid(), file.mode() & 0o777), (1000, 100, 0o640));
    assert_eq!(fs::metadata(at.join("Folder")).unwrap().mode() & 0o777, 0o750);
    // Bits that FAT cannot store are dropped, as in Linux, and other kinds of files are refused.
    fs::set_permissions(at.join("Folder"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(fs::metadata(at.join("Folder")).unwrap().mode() & 0o777, 0o750);
    // Other bits than permissions are refused, as in Linux.
    for (name, mode) in [("Folder", 0o1750), ("Folder", 0o2750), ("Folder/a long name.txt", 0o4640)] {
        let refused = fs::set_permissions(at.join(name), fs::Permissions::from_mode(mode)).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied, "{name} {mode:o}");
    }
    assert!(std::os::unix::fs::symlink("Folder", at.join("link")).is_err());
    obento(folder, &["umount", "mnt"]);
    judge(folder);
    // The clocks of the volume are an hour ahead of those of this process.
    let shown = |options: &str| {
        obento(folder, &["mount", "-o", options, "disk.img", "mnt"]);
        let time = fs::metadata(at.join("Folder/a long name.txt")).unwrap().mtime();
        obento(folder, &["umount", "mnt"]);
        time
    };
    assert_eq!(shown("ro,tz=UTC") - shown("ro,time_offset=60"), 3600);
    call("mdir", ["-i".as_ref(), folder.join("disk.img").as_os_str(), "::Folder".as_ref()]).unwrap();
    obento(folder, &["check", "disk.img"]);
}

#[test]
fn options_of_vfat_are_refused_where_the_format_keeps_them_itself() {
    if !require(&[Oracle::Fuse]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("mnt")).unwrap();
    obento(folder.path(), &["mkfs", "-t", "ext4", "disk.img", "16M"]);
    for (options, word) in
        [("uid=1000", "stores owners"), ("uid=me", "expected a number"), ("unask=022", "unask")]
    {
        let refused = Command::new(env!("CARGO_BIN_EXE_obento"))
            .current_dir(folder.path())
            .args(["mount", "-o", options, "disk.img", "mnt"])
            .output()
            .unwrap();
        assert!(
            !refused.status.success() && text(&refused.stderr).contains(word),
            "{}",
            text(&refused.stderr)
        );
    }
}

#[test]
fn mkfs_fat_creates_the_same_volume_as_that_program_for_the_same_options() {
    if !require(&[Oracle::Program("mkfs.fat"), Oracle::Program("fsck.fat")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("message"), "Nothing starts here,\n\tpress a key.\n").unwrap();
    fs::write(folder.join("blocks"), "1000\n1001\n30000\n").unwrap();
    for letters in [
        "-n LABEL -v",
        "-F 32 -a -i 89abcdef",
        "-F 32 -b 8 -R 40 -s 2 -D 0x81",
        "-F 16 -f 1 -r 1024 -M 0xf9 -g 16/63",
        "-F 12 -s 64 -h 63 --codepage=437 -n UMLAUT",
        "-S 2048 --variant=standard",
        "-F 32 --mbr -m message",
        "-F 16 --mbr=no -l blocks",
        "--mbr=y -c",
    ] {
        for name in ["theirs.img", "disk.img"] {
            fs::File::create(folder.join(name)).unwrap().set_len(40 << 20).unwrap();
        }
        let theirs = folder.join("theirs.img");
        let mut mkfs = Command::new("mkfs.fat");
        mkfs.arg("--invariant").args(letters.split(' ')).arg(&theirs).current_dir(folder);
        assert!(mkfs.output().unwrap().status.success(), "{letters}");
        let ours = ["mkfs.fat", "--invariant"].into_iter().chain(letters.split(' ')).chain(["disk.img"]);
        obento(folder, &ours.collect::<Vec<_>>());
        assert!(fs::read(folder.join("disk.img")).unwrap() == fs::read(theirs).unwrap(), "{letters}");
        judge(folder);
    }
}
