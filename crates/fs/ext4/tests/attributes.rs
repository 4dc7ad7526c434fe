//! Extended attributes that the kernel and e2fsprogs wrote, byte for byte as `getxattr(2)` returns them.

mod common;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};

use obento_base::{Corrupt, Error, Ino, Name};
use obento_driver::{FileSystem, XattrMode};
use obento_ext4::Ext4;
use obento_testkit::oracle::{LoopMount, Oracle, call, program, require, run};
use rustix::fs::{XattrFlags, lgetxattr, llistxattr, lsetxattr};

const KERNEL: &[Oracle] = &[
    Oracle::Program("mke2fs"),
    Oracle::Program("debugfs"),
    Oracle::Program("setfacl"),
    Oracle::LoopMount,
    Oracle::Root,
];

type Attributes = BTreeMap<Vec<u8>, Vec<u8>>;

fn make(folder: &Path, options: &[&str]) -> PathBuf {
    let image = folder.join("image");
    call("mke2fs", [&["-q", "-F"][..], options, &[image.to_str().unwrap(), "16M"]].concat()).unwrap();
    image
}

fn kernel_attributes(path: &Path) -> Attributes {
    let mut names = vec![0; 1 << 16];
    let len = llistxattr(path, &mut names[..]).unwrap();
    let names = names[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    let get = |name: &[u8]| {
        let mut value = vec![0; 1 << 16];
        let len = lgetxattr(path, CString::new(name).unwrap().as_c_str(), &mut value[..]).unwrap();
        value.truncate(len);
        (name.to_vec(), value)
    };
    names.map(get).collect()
}

fn our_attributes(fs: &Ext4, ino: Ino) -> Attributes {
    let xattrs = fs.xattrs().unwrap();
    let mut names = Vec::new();
    xattrs.list_xattrs(ino, &mut |name| names.push(name.to_vec())).unwrap();
    names.into_iter().map(|name| (name.clone(), xattrs.get_xattr(ino, &name).unwrap())).collect()
}

fn find(fs: &Ext4, name: &str) -> Ino {
    fs.lookup(fs.root(), Name::new(name.as_bytes()).unwrap()).unwrap()
}

fn set(path: &Path, name: &str, value: &[u8]) {
    lsetxattr(path, name, value, XattrFlags::empty())
        .unwrap_or_else(|error| panic!("{path:?} {name}: {error}"));
}

fn patterned(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// Sets as many kinds of attributes as the volume has space for.
fn write_attributes(root: &Path, large: usize) {
    fs::create_dir(root.join("dir")).unwrap();
    for name in ["inside", "block", "shared", "acl", "large", "none"] {
        fs::write(root.join(name), b"").unwrap();
    }
    set(&root.join("inside"), "user.short", b"x");
    set(&root.join("inside"), "user.empty", b"");
    for n in 0..12 {
        set(&root.join("block"), &format!("user.attribute-{n}"), &patterned(n * 3));
        set(&root.join("shared"), &format!("user.attribute-{n}"), &patterned(n * 3));
    }
    set(&root.join("block"), "trusted.overlay.opaque", b"y");
    set(
        &root.join("block"),
        "security.capability",
        &[1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    );
    set(&root.join("large"), "user.large", &patterned(large));
    std::os::unix::fs::symlink("target", root.join("link")).unwrap();
    set(&root.join("link"), "trusted.on-link", b"value");
    for (rules, path) in
        [("u:1000:rwx,g:2000:r-x,u:0:---", "acl"), ("u:77:rw-", "dir"), ("d:u:1000:rwx", "dir")]
    {
        run(program("setfacl").arg("-m").arg(rules).arg(root.join(path))).unwrap();
    }
}

#[test]
fn attributes_equal_those_of_the_kernel_in_inodes_blocks_and_inodes_of_their_own() {
    if !require(KERNEL) {
        return;
    }
    for (large, options) in [
        (900, &["-t", "ext4", "-b", "1024", "-I", "256"][..]),
        (3000, &["-t", "ext4", "-b", "4096", "-I", "1024"]),
        (3000, &["-t", "ext2", "-b", "4096", "-I", "128"]),
        (3000, &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum"]),
        (40_000, &["-t", "ext4", "-b", "4096", "-O", "ea_inode"]),
        (60_000, &["-t", "ext4", "-b", "4096", "-O", "ea_inode,^metadata_csum,inline_data"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let image = make(folder.path(), options);
        let mount = LoopMount::new(&image, "rw").unwrap();
        write_attributes(mount.path(), large);
        mount.unmount().unwrap();
        let fs = common::open(&image).unwrap();
        let mount = LoopMount::new(&image, "ro").unwrap();
        for name in ["inside", "block", "shared", "acl", "large", "none", "link", "dir", "lost+found"] {
            let expected = kernel_attributes(&mount.path().join(name));
            assert_eq!(our_attributes(&fs, find(&fs, name)), expected, "{name} with {options:?}");
        }
        mount.unmount().unwrap();
    }
}

#[test]
fn attributes_that_e2fsprogs_wrote_are_read_and_a_read_only_volume_keeps_them() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("debugfs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = make(folder.path(), &["-t", "ext4", "-b", "4096", "-O", "ea_inode"]);
    // The maximum that debugfs takes from a file, and more than fits a block of attributes.
    let large = folder.path().join("large");
    fs::write(&large, patterned(4096)).unwrap();
    for request in [
        "ea_set / user.note hello",
        "ea_set / trusted.t 1",
        &format!("ea_set -f {} / user.large", large.display()),
    ] {
        run(program("debugfs").args(["-w", "-R", request]).arg(&image)).unwrap();
    }
    let fs = common::open(&image).unwrap();
    let expected = [
        (b"user.note".to_vec(), b"hello".to_vec()),
        (b"trusted.t".to_vec(), b"1".to_vec()),
        (b"user.large".to_vec(), patterned(4096)),
    ];
    assert_eq!(our_attributes(&fs, fs.root()), Attributes::from(expected));
    let xattrs = fs.xattrs().unwrap();
    assert_eq!(xattrs.get_xattr(fs.root(), b"user.absent"), Err(Error::NoData));
    assert_eq!(xattrs.set_xattr(fs.root(), b"user.note", b"", XattrMode::Set), Err(Error::ReadOnly));
    assert_eq!(xattrs.remove_xattr(fs.root(), b"user.note"), Err(Error::ReadOnly));
}

#[test]
fn a_value_in_its_own_inode_is_believed_by_its_hash_or_by_pointing_back_to_its_owner() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("debugfs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = make(folder.path(), &["-t", "ext4", "-b", "4096", "-O", "ea_inode"]);
    let large = folder.path().join("large");
    fs::write(&large, patterned(4096)).unwrap();
    let debugfs = |request: &str| run(program("debugfs").args(["-w", "-R", request]).arg(&image)).unwrap();
    debugfs(&format!("ea_set -f {} lost+found user.large", large.display()));
    let fs = common::open(&image).unwrap();
    let owner = find(&fs, "lost+found");
    let read = || common::open(&image).unwrap().xattrs().unwrap().get_xattr(owner, b"user.large");
    assert_eq!(read(), Ok(patterned(4096)));
    // The first free inode after the owner contains the value.
    let holder = owner.0 + 1;
    debugfs(&format!("sif <{holder}> atime @1"));
    assert!(matches!(read(), Err(Error::Corrupt(Corrupt::Checksum { found: 1, .. }))));
    let generation = fs.getattr(owner).unwrap().generation.0;
    debugfs(&format!("sif <{holder}> mtime @{owner}"));
    debugfs(&format!("sif <{holder}> generation {generation}"));
    assert_eq!(read(), Ok(patterned(4096)));
    debugfs(&format!("sif <{holder}> flags 0x80000"));
    assert!(matches!(read(), Err(Error::Corrupt(Corrupt::Field { field: "e_value_inum", .. }))));
}
