//! A format without special cases in the commands: created, mounted, used by programs and checked through the
//! contract alone.

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use obento_testkit::{Oracle, require};

/// Runs `obento` and returns its output. Panics if it fails.
fn obento(folder: &Path, args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_obento")).current_dir(folder).args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_xv6_volume_is_made_mounted_used_and_checked() {
    if !require(&[Oracle::Fuse]) {
        return;
    }
    let folder = tempfile::Builder::new().prefix("obento-xv6-").tempdir().unwrap();
    let (folder, at) = (folder.path(), folder.path().join("mnt"));
    fs::create_dir(&at).unwrap();
    obento(folder, &["mkfs", "-t", "xv6", "-L", "teaching", "-N", "512", "disk.img", "32M"]);
    obento(folder, &["mount", "disk.img", "mnt"]);
    let path = |name: &str| at.join(name);
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n / 7) as u8).collect();
    fs::create_dir(path("dir")).unwrap();
    fs::write(path("dir/file"), &bytes).unwrap();
    fs::set_permissions(path("dir/file"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::hard_link(path("dir/file"), path("other")).unwrap();
    symlink("dir/file", path("link")).unwrap();
    fs::rename(path("dir"), path("moved")).unwrap();
    let sparse = fs::File::create(path("sparse")).unwrap();
    sparse.write_all_at(b"far", 3_000_000_000).unwrap();
    sparse.set_len(3_000_000_500).unwrap();
    let gone = fs::OpenOptions::new().read(true).write(true).create_new(true).open(path("gone")).unwrap();
    fs::remove_file(path("gone")).unwrap();
    gone.write_all_at(b"still here", 0).unwrap();
    let mut back = [0; 10];
    gone.read_exact_at(&mut back, 0).unwrap();
    assert_eq!(&back, b"still here");
    drop((gone, sparse));
    (0..300).for_each(|n| fs::write(path(&format!("moved/{n}")), format!("{n}")).unwrap());
    (0..300).filter(|n| n % 2 == 0).for_each(|n| fs::remove_file(path(&format!("moved/{n}"))).unwrap());
    obento(folder, &["umount", "mnt"]);
    obento(folder, &["check", "disk.img"]);
    obento(folder, &["mount", "-o", "ro", "disk.img", "mnt"]);
    assert!(fs::read(path("other")).unwrap() == bytes);
    let attributes = fs::metadata(path("other")).unwrap();
    assert_eq!((attributes.nlink(), attributes.mode() & 0o7777), (2, 0o640));
    assert_eq!(fs::read_link(path("link")).unwrap(), Path::new("dir/file"));
    assert_eq!(fs::read_dir(path("moved")).unwrap().count(), 151);
    assert!(fs::metadata(path("sparse")).unwrap().blocks() < 100);
    obento(folder, &["umount", "mnt"]);
    assert_eq!(obento(folder, &["cat", "disk.img:/moved/7"]), "7");
}
