//! FAT behind a mount point: shown as the options of vfat say, used, checked; `fsck.fat` and mtools have the last word.

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
    // Bits that FAT cannot keep are dropped, as by Linux, and other kinds of files refused.
    fs::set_permissions(at.join("Folder"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(fs::metadata(at.join("Folder")).unwrap().mode() & 0o777, 0o750);
    assert!(std::os::unix::fs::symlink("Folder", at.join("link")).is_err());
    obento(folder, &["umount", "mnt"]);
    judge(folder);
    // Its clocks are an hour ahead of ours, which the directory keeps.
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
        [("uid=1000", "keeps owners"), ("uid=me", "wants a number"), ("unask=022", "unask")]
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
