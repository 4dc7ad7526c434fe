//! Entries of quota files in an image that is not open.
//!
//! Source: Linux `fs/quota/quotaio_v2.h` `struct v2r1_disk_dqblk`, `struct v2_disk_dqdbheader`.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::oracle::call;

/// `QT_BLKSIZE`.
const BLOCK: u64 = 1024;
const ENTRIES: u64 = 16;
const ENTRY: u64 = 72;

/// A kind of quota file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnerKind {
    /// Usage and limits of users.
    User,
    /// Usage and limits of groups.
    Group,
    /// Usage and limits of projects.
    Project,
}

/// The limits of an owner. 0 means none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OwnerLimits {
    /// Number of inodes.
    pub hard_inodes: u64,
    /// Number of inodes.
    pub soft_inodes: u64,
    /// In KiB.
    pub hard_space: u64,
    /// In KiB.
    pub soft_space: u64,
    /// When the grace period of the space ends, in seconds since 1970.
    pub space_deadline: u64,
    /// When the grace period of the inodes ends.
    pub inode_deadline: u64,
}

/// Returns the limits of an owner, and the numbers of inodes and bytes, as the quota file in `image` contains them.
///
/// # Panics
///
/// The owner has no entry.
pub fn limits(image: &Path, kind: OwnerKind, id: u32) -> (OwnerLimits, [u64; 2]) {
    let fields = entry(image, kind, id).1;
    let [_, hard_inodes, soft_inodes, inodes, hard_space, soft_space, bytes, space_deadline, inode_deadline] =
        fields;
    let found =
        OwnerLimits { hard_inodes, soft_inodes, hard_space, soft_space, space_deadline, inode_deadline };
    (found, [inodes, bytes])
}

/// Sets the limits of an owner, who has an entry in the quota file.
///
/// # Panics
///
/// The owner has no entry.
pub fn set_limits(image: &Path, kind: OwnerKind, id: u32, new: &OwnerLimits) {
    let (at, [head, _, _, inodes, _, _, bytes, _, _]) = entry(image, kind, id);
    let fields = [
        head,
        new.hard_inodes,
        new.soft_inodes,
        inodes,
        new.hard_space,
        new.soft_space,
        bytes,
        new.space_deadline,
        new.inode_deadline,
    ];
    let bytes: Vec<u8> = fields.iter().flat_map(|field| field.to_le_bytes()).collect();
    File::options().write(true).open(image).and_then(|file| file.write_all_at(&bytes, at)).expect("a file");
}

/// Returns the byte offset of an owner's entry in the image, and its fields.
fn entry(image: &Path, kind: OwnerKind, id: u32) -> (u64, [u64; 9]) {
    let text = |request: &str| {
        let args = ["-R".as_ref(), request.as_ref(), image.as_os_str()];
        String::from_utf8(call("debugfs", args).expect("a volume").stdout).expect("text")
    };
    let stats = text("stats -h");
    let value = |name: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or_else(|| panic!("{name} {stats}"))
    };
    let name = match kind {
        OwnerKind::User => "User quota inode:",
        OwnerKind::Group => "Group quota inode:",
        OwnerKind::Project => "Project quota inode:",
    };
    let (inode, block_size) = (value(name), value("Block size:"));
    let dump = tempfile::NamedTempFile::new().expect("a file");
    text(&format!("dump <{inode}> {}", dump.path().display()));
    let bytes = fs::read(dump.path()).expect("a quota file");
    let field = |at: u64| u64::from_le_bytes(bytes[at as usize..][..8].try_into().expect("8 bytes"));
    // Entries follow each block of numbers, so the tree has to be followed.
    let number =
        |at: u64| u64::from(u32::from_le_bytes(bytes[at as usize..][..4].try_into().expect("4 bytes")));
    let block = id.to_be_bytes().iter().fold(1, |node, &digit| number(node * BLOCK + u64::from(digit) * 4));
    assert!(block != 0, "{kind:?} {id} has no entry");
    let places = (0..14).map(|n| block * BLOCK + ENTRIES + n * ENTRY);
    let at =
        places.into_iter().find(|&at| number(at) == u64::from(id) && (0..9).any(|n| field(at + n * 8) != 0));
    let at = at.unwrap_or_else(|| panic!("{kind:?} {id} has no entry in block {block}"));
    let place: u64 = text(&format!("bmap <{inode}> {}", at / block_size)).trim().parse().expect("a block");
    (place * block_size + at % block_size, std::array::from_fn(|n| field(at + n as u64 * 8)))
}
