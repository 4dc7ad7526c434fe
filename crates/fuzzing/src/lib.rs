//! The fuzz targets of `fuzz/`, and their seeds.
//!
//! cargo-fuzz builds the programs in a workspace of their own, with sanitizers. All code of the targets is here, so
//! that a test of this workspace can run each target on its seeds. A target panics if a result is impossible for any
//! input.

mod archives;
mod damage;
mod images;
mod partition_table;
mod places;
mod provenance;
mod requests;
mod sealed;
pub mod seeds;
mod servers;
mod values;
mod volumes;

use std::sync::OnceLock;

use seeds::Seeds;

/// One decoder, or several that are reached together.
pub struct Target {
    /// The name of the target and of its program.
    pub name: &'static str,
    /// The function that processes the fuzzer's bytes.
    pub run: fn(&[u8]),
    /// The function that returns the initial inputs.
    pub seeds: fn() -> Seeds,
}

const fn target(name: &'static str, run: fn(&[u8]), seeds: fn() -> Seeds) -> Target {
    Target { name, run, seeds }
}

/// All targets.
pub const TARGETS: [Target; 45] = [
    target("any_image", images::any_image, seeds::images),
    target("ext4_repair", damage::repair_ext4, || seeds::unchanged(&volumes::EXT4)),
    target("ext4_sums", sealed::structures_changed, sealed::seeds_of_structures),
    target("journal_sums", sealed::log_changed, sealed::seeds_of_log),
    target("bitmaps", |data| damage::change_one("bitmaps", data), || seeds::places("bitmaps")),
    target("orphan_file", |data| damage::change_one("orphan_file", data), || seeds::places("orphan_file")),
    target("fast_commit", damage::fast_commit, || seeds::places("fast_commit")),
    target("external_journal", damage::external_journal, || seeds::places("external_journal")),
    target("fat16", damage::scatter_fat16, || seeds::unchanged(&volumes::FAT16)),
    target("fat32", damage::scatter_fat32, || seeds::unchanged(&volumes::FAT32)),
    target("qcow2", images::qcow2, seeds::qcow2),
    target("containers", images::containers, seeds::containers),
    target("packed", images::packed, seeds::packed),
    target("tar", archives::tar, seeds::archives),
    target("build_source", archives::build_source, seeds::sources),
    target("fuse_request", requests::fuse_request, seeds::requests),
    target("fuse_reply", servers::fuse_reply, servers::fuse_replies),
    target("nfs_reply", servers::nfs_reply, servers::nfs_replies),
    target("acl", values::acl, seeds::acls),
    target("provenance", provenance::segment, provenance::seeds),
    target("provenance_index", provenance::index, provenance::index_seeds),
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
    target("jffs2", damage::scatter_jffs2, || seeds::unchanged(&volumes::JFFS2)),
    target("jffs2_codecs", values::jffs2_codecs, seeds::jffs2_codecs),
    target("ntfs", damage::scatter_ntfs, || seeds::unchanged(&volumes::NTFS)),
    target("ntfs_codecs", values::ntfs_codecs, seeds::ntfs_codecs),
    target("bcachefs", damage::scatter_bcachefs, || seeds::unchanged(&volumes::BCACHEFS)),
    target("bcachefs_codecs", values::bcachefs_codecs, seeds::bcachefs_codecs),
    target("lfs", damage::scatter_lfs, || seeds::unchanged(&volumes::LFS)),
    target("xv6", damage::scatter_xv6, || seeds::unchanged(&volumes::XV6)),
    target("partition_table", partition_table::read, seeds::partition_tables),
    target("engine_wire", values::engine_wire, seeds::messages),
];

static CHOSEN: OnceLock<&Target> = OnceLock::new();

/// Selects the target `name` when a program starts. If the environment requests the seeds, writes them and exits.
pub fn begin(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target that exists");
    seeds::write_if_asked(target);
    let _ = CHOSEN.set(target);
}

/// Runs the target that [`begin`] selected.
pub fn run(data: &[u8]) {
    (CHOSEN.get().expect("it has begun").run)(data);
}
