//! A tree with all kinds of files and attributes, always the same, for images.
//!
//! System calls, without any code of obento, write the tree into a folder of the host: a loop mount or a source for
//! `mke2fs -d`.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use anyhow::{Context as _, Result};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

/// The size of the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeSpec {
    /// The number of small files, in directories of 100.
    pub files: u32,
    /// The number of entries of one wide directory.
    pub wide: u32,
    /// The length of a file with three data ranges; 0 for none.
    pub sparse_len: u64,
    /// The greatest length of the value of an extended attribute.
    pub xattr_len: usize,
    /// Device nodes, owners and `trusted.*`, which require root.
    pub root: bool,
    /// Names that are not UTF-8, which some formats refuse.
    pub raw_names: bool,
}

impl TreeSpec {
    /// A tree that is small enough for frequent tests.
    pub const SMALL: Self =
        Self { files: 120, wide: 300, sparse_len: 1 << 30, xattr_len: 900, root: true, raw_names: true };

    /// The tree for the tests of reading ext4.
    pub const FULL: Self = Self {
        files: 5_000,
        wide: 60_000,
        sparse_len: 1 << 40,
        xattr_len: 3_000,
        root: true,
        raw_names: true,
    };
}

/// Writes the tree below `root`, which must exist.
pub fn write(root: &Path, spec: &TreeSpec) -> Result<()> {
    small_files(root, spec.files)?;
    wide_directory(root, spec.wide)?;
    deep_path(root)?;
    long_names(root, spec.raw_names)?;
    sizes(root)?;
    if spec.sparse_len > 0 {
        sparse(root, spec.sparse_len)?;
    }
    links(root)?;
    special_files(root, spec.root)?;
    xattrs(root, spec)?;
    accounts(root)?;
    times(root)
}

fn small_files(root: &Path, count: u32) -> Result<()> {
    for number in 0..count {
        let folder = root.join(format!("files/{:03}", number / 100));
        if number % 100 == 0 {
            fs::create_dir_all(&folder)?;
        }
        let line = format!("file {number}\n");
        let repeats = 1 + usize::try_from(number * 7919 % 400)?;
        fs::write(folder.join(format!("f{number:05}.txt")), line.repeat(repeats))?;
    }
    Ok(())
}

fn wide_directory(root: &Path, count: u32) -> Result<()> {
    let folder = root.join("wide");
    fs::create_dir(&folder)?;
    (0..count).try_for_each(|number| File::create(folder.join(format!("entry-{number:06}"))).map(drop))?;
    Ok(())
}

fn deep_path(root: &Path) -> Result<()> {
    let mut folder = root.join("deep");
    for level in 0..60 {
        folder.push(format!("level-{level:02}-of-a-deep-path"));
    }
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("bottom"), b"the bottom\n")?;
    Ok(())
}

fn long_names(root: &Path, raw: bool) -> Result<()> {
    let folder = root.join("names");
    fs::create_dir(&folder)?;
    let mut names: Vec<Vec<u8>> = vec![
        vec![b'n'; 255],
        "é".repeat(127).into_bytes(),
        b"with space".to_vec(),
        b"-dash".to_vec(),
        b"new\nline".to_vec(),
        b"escape\x1b[31mred".to_vec(),
        b"quote'\"\\back".to_vec(),
        b"*?[glob]".to_vec(),
        b"...".to_vec(),
        "日本語".into(),
    ];
    if raw {
        names.push(b"\xff\xfe not utf-8 \x80".to_vec());
        names.push(vec![0xe9; 255]);
    }
    for name in names {
        fs::write(folder.join(OsStr::from_bytes(&name)), &name)?;
    }
    Ok(())
}

/// Writes files around every boundary of a mapping: inline, one block, the direct blocks, the first indirect blocks.
fn sizes(root: &Path) -> Result<()> {
    let folder = root.join("sizes");
    fs::create_dir(&folder)?;
    let borders =
        [0, 1, 59, 60, 61, 100, 150, 1023, 1024, 1025, 4095, 4096, 4097, 12 * 1024 + 1, 48 * 1024 + 1];
    for size in borders.into_iter().chain([300_000, 1_200_000, 5_000_000]) {
        fs::write(folder.join(format!("{size}")), pattern(size))?;
    }
    // Every second block: one extent each, more than fit into the inode and, with blocks of 1 KiB, into one leaf.
    let fragmented = File::create(folder.join("fragmented"))?;
    for island in 0..700_u64 {
        fragmented.write_all_at(&pattern(4096), island * 8192)?;
    }
    let unwritten = File::create(folder.join("unwritten"))?;
    unwritten.write_all_at(b"head", 0)?;
    // Some file systems cannot preallocate (ext3); the file is then sparse.
    let _ = rustix::fs::fallocate(&unwritten, rustix::fs::FallocateFlags::empty(), 0, 200_000);
    unwritten.write_all_at(b"island", 100_000)?;
    unwritten.set_len(200_000)?;
    let beyond = File::create(folder.join("allocated-beyond-the-end"))?;
    beyond.write_all_at(b"short", 0)?;
    let _ = rustix::fs::fallocate(&beyond, rustix::fs::FallocateFlags::KEEP_SIZE, 0, 100_000);
    Ok(())
}

/// Returns `len` bytes that differ from block to block and within a block.
pub fn pattern(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let mut bytes = Vec::with_capacity(len + 4);
    while bytes.len() < len {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bytes.extend_from_slice(&state.to_be_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn sparse(root: &Path, len: u64) -> Result<()> {
    let file = File::create(root.join("sparse"))?;
    file.set_len(len)?;
    for at in [0, len / 2, len - 10_000] {
        file.write_all_at(&pattern(10_000), at)?;
    }
    Ok(())
}

fn links(root: &Path) -> Result<()> {
    let folder = root.join("links");
    fs::create_dir(&folder)?;
    fs::write(folder.join("original"), b"three names\n")?;
    fs::hard_link(folder.join("original"), folder.join("second"))?;
    fs::hard_link(folder.join("original"), root.join("third"))?;
    symlink("original", folder.join("fast"))?;
    symlink("x".repeat(59), folder.join("fast-longest"))?;
    symlink("x".repeat(60), folder.join("slow-shortest"))?;
    symlink("y/".repeat(500), folder.join("slow"))?;
    symlink("/etc/passwd", folder.join("absolute"))?;
    symlink("../links/loop", folder.join("loop"))?;
    symlink(OsStr::from_bytes(b"\xff raw"), folder.join("raw"))?;
    Ok(())
}

fn special_files(root: &Path, privileged: bool) -> Result<()> {
    let folder = root.join("special");
    fs::create_dir(&folder)?;
    let mode = Mode::from_raw_mode(0o640);
    rustix::fs::mknodat(CWD, folder.join("fifo"), FileType::Fifo, mode, 0)?;
    // The path of a socket has at most 107 bytes, so the socket is bound with a short name and moved.
    let short = tempfile::tempdir()?;
    let bound = short.path().join("s");
    drop(UnixListener::bind(&bound)?);
    if fs::rename(&bound, folder.join("socket")).is_err() {
        rustix::fs::mknodat(CWD, folder.join("socket"), FileType::Socket, mode, 0)?;
    }
    if privileged {
        for (name, kind, major, minor) in [
            ("null", FileType::CharacterDevice, 1, 3),
            ("disk", FileType::BlockDevice, 8, 17),
            ("wide-numbers", FileType::BlockDevice, 259, 70_000),
        ] {
            let device = rustix::fs::makedev(major, minor);
            rustix::fs::mknodat(CWD, folder.join(name), kind, mode, device)
                .with_context(|| format!("mknod {name}"))?;
        }
    }
    for (name, mode) in [("setuid", 0o4755), ("setgid", 0o2711), ("none", 0), ("all", 0o777)] {
        let path = folder.join(name);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(name.as_bytes())?;
        if privileged {
            let (uid, gid) = (Some(70_000), Some(1_000_000));
            std::os::unix::fs::chown(&path, uid, gid)?;
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    }
    let sticky = folder.join("sticky");
    fs::create_dir(&sticky)?;
    fs::set_permissions(&sticky, fs::Permissions::from_mode(0o1777))?;
    Ok(())
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) -> Result<()> {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())
        .with_context(|| format!("{name} on {path:?}"))
}

fn xattrs(root: &Path, spec: &TreeSpec) -> Result<()> {
    let folder = root.join("xattrs");
    fs::create_dir(&folder)?;
    let file = |name: &str| -> Result<std::path::PathBuf> {
        let path = folder.join(name);
        fs::write(&path, name)?;
        Ok(path)
    };
    set_xattr(&file("one")?, "user.note", b"a short one")?;
    let many = file("many")?;
    for number in 0..12 {
        set_xattr(&many, &format!("user.number-{number:02}"), format!("value {number}").as_bytes())?;
    }
    set_xattr(&file("empty")?, "user.empty", b"")?;
    if spec.xattr_len > 0 {
        set_xattr(&file("large")?, "user.large", &pattern(spec.xattr_len))?;
        set_xattr(&file("large-twin")?, "user.large", &pattern(spec.xattr_len))?;
    }
    let listed = folder.join("directory");
    fs::create_dir(&listed)?;
    set_xattr(&listed, "user.on-a-directory", b"yes")?;
    if spec.root {
        set_xattr(&file("capable")?, "security.capability", &CAP_NET_RAW)?;
        set_xattr(&file("trusted")?, "trusted.secret", b"\x00\x01\xff")?;
        set_xattr(&file("acl")?, "system.posix_acl_access", &ACL)?;
        let inherited = folder.join("default-acl");
        fs::create_dir(&inherited)?;
        set_xattr(&inherited, "system.posix_acl_default", &ACL)?;
    }
    Ok(())
}

/// `cap_net_raw+ep`: struct vfs_cap_data revision 2 (include/uapi/linux/capability.h).
const CAP_NET_RAW: [u8; 20] = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// `u::rw-,u:1234:r--,g::r--,g:5678:rwx,m::rwx,o::---` in the format of Linux (include/uapi/linux/posix_acl_xattr.h).
const ACL: [u8; 52] = {
    let entries: [(u8, u8, u32); 6] =
        [(1, 6, !0), (2, 4, 1234), (4, 4, !0), (8, 7, 5678), (0x10, 7, !0), (0x20, 0, !0)];
    let mut bytes = [0; 52];
    bytes[0] = 2;
    let mut n = 0;
    while n < 6 {
        let (tag, perm, id) = entries[n];
        let id = id.to_le_bytes();
        bytes[4 + 8 * n] = tag;
        bytes[6 + 8 * n] = perm;
        let mut k = 0;
        while k < 4 {
            bytes[8 + 8 * n + k] = id[k];
            k += 1;
        }
        n += 1;
    }
    bytes
};

/// Writes the image's own names of owners, which the host does not have.
fn accounts(root: &Path) -> Result<()> {
    fs::create_dir(root.join("etc"))?;
    fs::write(
        root.join("etc/passwd"),
        "root:x:0:0:root:/root:/bin/sh\nbento:x:70000:1000000::/home/bento:/bin/sh\n",
    )?;
    fs::write(root.join("etc/group"), "root:x:0:\nboxes:x:1000000:bento\n")?;
    Ok(())
}

/// Sets times before 1970, after 2038 and after 2106, with nanoseconds. They are set last, because the writes above
/// change some.
fn times(root: &Path) -> Result<()> {
    let folder = root.join("times");
    fs::create_dir(&folder)?;
    for (name, secs, nanos) in [
        ("epoch", 0, 0),
        ("before-1970", -12_345, 678_901_234),
        ("year-2000", 946_684_800, 1),
        ("2038", 2_147_483_647, 999_999_999),
        ("after-2038", 2_147_483_648, 5),
        ("2106", 4_294_967_296, 123_456_789),
        ("2446", 15_032_385_535, 999_999_999),
    ] {
        let path = folder.join(name);
        fs::write(&path, name)?;
        set_times(&path, secs, nanos)?;
    }
    set_times(&root.join("links/fast"), 1_000_000_000, 42)?;
    set_times(&folder, 1_111_111_111, 222_222_222)
}

fn set_times(path: &Path, secs: i64, nanos: i64) -> Result<()> {
    let time = Timespec { tv_sec: secs, tv_nsec: nanos as _ };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
        .with_context(|| format!("times of {path:?}"))
}
