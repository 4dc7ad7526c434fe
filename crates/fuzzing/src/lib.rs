//! What the fuzz targets of `fuzz/` do with the fuzzer's bytes, and what they begin with.
//!
//! The programs are built by cargo-fuzz, in a workspace of their own, with sanitizers; all that they do is here, so that a test of
//! the workspace runs each target over its seeds. A target's body panics where an answer cannot be, whatever the bytes.

mod archives;
mod damage;
mod images;
mod partition_table;
mod places;
mod requests;
mod sealed;
pub mod seeds;
mod values;
mod volumes;

use std::sync::OnceLock;

use seeds::Seeds;

/// One decoder, or a few that are reached together.
pub struct Target {
    /// Its name, and that of its program.
    pub name: &'static str,
    /// What is done with the bytes.
    pub run: fn(&[u8]),
    /// What the fuzzer begins with.
    pub seeds: fn() -> Seeds,
}

const fn target(name: &'static str, run: fn(&[u8]), seeds: fn() -> Seeds) -> Target {
    Target { name, run, seeds }
}

/// All of them.
pub const TARGETS: [Target; 35] = [
    target("any_image", images::any_image, seeds::images),
    target("ext4_mend", damage::mend_ext4, || seeds::unchanged(&volumes::EXT4)),
    target("ext4_sums", sealed::structures_changed, sealed::seeds_of_structures),
    target("journal_sums", sealed::log_changed, sealed::seeds_of_log),
    target("bitmaps", |data| damage::change_one("bitmaps", data), || seeds::places("bitmaps")),
    target("orphan_file", |data| damage::change_one("orphan_file", data), || seeds::places("orphan_file")),
    target("fast_commit", damage::fast_commit, || seeds::places("fast_commit")),
    target("external_journal", damage::external_journal, || seeds::places("external_journal")),
    target("fat16", damage::scatter_fat16, || seeds::unchanged(&volumes::FAT16)),
    target("fat32", damage::scatter_fat32, || seeds::unchanged(&volumes::FAT32)),
    target("qcow2", images::qcow2, seeds::qcow2),
    target("packed", images::packed, seeds::packed),
    target("tar", archives::tar, seeds::archives),
    target("build_source", archives::build_source, seeds::sources),
    target("fuse_request", requests::fuse_request, seeds::requests),
    target("acl", values::acl, seeds::acls),
    target("owners", values::owners, seeds::owners),
    target("engine_probe", values::engine_probe, seeds::signatures),
    target("operations", damage::operations, seeds::operations),
    target("mount_and_walk", damage::mount_and_walk, || seeds::unchanged(&volumes::EXT4)),
    target("super_block", |data| damage::one("super_block", data), || seeds::places("super_block")),
    target("group", |data| damage::one("group", data), || seeds::places("group")),
    target("inode", |data| damage::one("inode", data), || seeds::places("inode")),
    target("extents", |data| damage::one("extents", data), || seeds::places("extents")),
    target("directory", |data| damage::one("directory", data), || seeds::places("directory")),
    target("htree", |data| damage::one("htree", data), || seeds::places("htree")),
    target("journal", |data| damage::one("journal", data), || seeds::places("journal")),
    target("xattr", |data| damage::one("xattr", data), || seeds::places("xattr")),
    target("fat", damage::scatter_fat, || seeds::unchanged(&volumes::FAT)),
    target("exfat", damage::scatter_exfat, || seeds::unchanged(&volumes::EXFAT)),
    target("ntfs", damage::scatter_ntfs, || seeds::unchanged(&volumes::NTFS)),
    target("ntfs_codecs", values::ntfs_codecs, seeds::ntfs_codecs),
    target("xv6", damage::scatter_xv6, || seeds::unchanged(&volumes::XV6)),
    target("partition_table", partition_table::read, seeds::partition_tables),
    target("engine_wire", values::engine_wire, seeds::messages),
];

static CHOSEN: OnceLock<&Target> = OnceLock::new();

/// What a program does first: it is the target `name` from now on. Asked for its seeds, it writes them and ends.
pub fn begin(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target that there is");
    seeds::write_if_asked(target);
    let _ = CHOSEN.set(target);
}

/// Runs the target that [`begin`] chose.
pub fn run(data: &[u8]) {
    (CHOSEN.get().expect("it has begun").run)(data);
}
