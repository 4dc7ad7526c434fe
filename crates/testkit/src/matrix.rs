//! The combinations of features with which ext2, ext3 and ext4 are tested: all that `mke2fs` can create and that change
//! how a volume is read.

use crate::image::{Filler, ImageSpec, Tune};
use crate::tree::TreeSpec;

/// Returns a sparse image of 1 GiB with enough inodes for `tree`, written by the kernel.
pub fn base(name: &'static str, mke2fs: &[&'static str], tree: TreeSpec) -> ImageSpec {
    let inodes = if tree.wide > 10_000 { "80000" } else { "16000" };
    let mut args = vec!["-N", inodes];
    args.extend(mke2fs);
    ImageSpec {
        name,
        mke2fs: args,
        tune: Vec::new(),
        len: 1 << 30,
        tree,
        filler: Filler::Kernel,
        mount: "",
        mask: None,
    }
}

/// Returns every combination, with as much of `tree` as it can store.
pub fn ext4(tree: TreeSpec) -> Vec<ImageSpec> {
    let mut all = Vec::new();
    all.extend(block_sizes_and_generations(tree));
    all.extend(checksums_and_descriptors(tree));
    all.extend(allocation(tree));
    all.extend(inodes(tree));
    all.extend(directories(tree));
    all.extend(journals_and_the_rest(tree));
    all.extend(large_blocks(tree));
    all
}

/// The largest sparse file with indirect blocks of 1 KiB has 16 GiB.
fn indirect_1k(tree: TreeSpec) -> TreeSpec {
    TreeSpec { sparse_len: tree.sparse_len.min(8 << 30), ..small_xattrs(tree) }
}

/// Without `ea_inode`, all attributes of an inode must fit into one block.
fn small_xattrs(tree: TreeSpec) -> TreeSpec {
    TreeSpec { xattr_len: tree.xattr_len.min(700), ..tree }
}

/// Filling a linear directory of many blocks takes the kernel quadratic time.
fn narrow(tree: TreeSpec) -> TreeSpec {
    TreeSpec { wide: tree.wide.min(4_000), ..tree }
}

fn block_sizes_and_generations(tree: TreeSpec) -> Vec<ImageSpec> {
    let unindexed = narrow(tree);
    vec![
        base("ext4", &["-t", "ext4"], tree),
        base("ext4-1k", &["-t", "ext4", "-b", "1024"], small_xattrs(tree)),
        base("ext4-2k", &["-t", "ext4", "-b", "2048"], small_xattrs(tree)),
        base("ext2", &["-t", "ext2", "-b", "4096"], tree),
        base("ext2-1k", &["-t", "ext2", "-b", "1024"], indirect_1k(tree)),
        base("ext2-128", &["-t", "ext2", "-I", "128", "-b", "4096"], tree),
        base("ext2-bare", &["-t", "ext2", "-O", "none,filetype,ext_attr", "-b", "4096"], unindexed),
        base("ext2-no-filetype", &["-t", "ext2", "-O", "^filetype", "-b", "4096"], tree),
        base("ext3", &["-t", "ext3", "-b", "4096"], tree),
        base("ext3-1k", &["-t", "ext3", "-b", "1024"], indirect_1k(tree)),
        base("ext3-128", &["-t", "ext3", "-I", "128", "-b", "4096"], tree),
    ]
}

fn checksums_and_descriptors(tree: TreeSpec) -> Vec<ImageSpec> {
    let t1k = small_xattrs(tree);
    vec![
        base("no-64bit", &["-t", "ext4", "-O", "^64bit"], tree),
        base("no-64bit-no-csum-1k", &["-t", "ext4", "-O", "^64bit,^metadata_csum", "-b", "1024"], t1k),
        base("uninit-bg", &["-t", "ext4", "-O", "^metadata_csum,uninit_bg"], tree),
        base("uninit-bg-32bit", &["-t", "ext4", "-O", "^metadata_csum,uninit_bg,^64bit"], tree),
        base("no-csum", &["-t", "ext4", "-O", "^metadata_csum,^uninit_bg"], tree),
        base("csum-seed", &["-t", "ext4", "-O", "metadata_csum_seed"], tree),
        base("meta-bg", &["-t", "ext4", "-O", "meta_bg,^resize_inode"], tree),
        base("meta-bg-1k", &["-t", "ext4", "-O", "meta_bg,^resize_inode", "-b", "1024", "-g", "1024"], t1k),
        base("meta-bg-32bit", &["-t", "ext4", "-O", "meta_bg,^resize_inode,^64bit,^metadata_csum"], tree),
        base("small-groups", &["-t", "ext4", "-b", "1024", "-g", "2048"], t1k),
        base("sparse-super2", &["-t", "ext4", "-O", "sparse_super2", "-E", "num_backup_sb=2"], tree),
        base("sparse-super2-none", &["-t", "ext4", "-O", "sparse_super2", "-E", "num_backup_sb=0"], tree),
        base("no-sparse-super", &["-t", "ext4", "-O", "^sparse_super,^resize_inode"], tree),
    ]
}

fn allocation(tree: TreeSpec) -> Vec<ImageSpec> {
    // A cluster for each small file, and space for its inode among so few groups.
    let clusters =
        |name, mke2fs: &[&'static str], tree| ImageSpec { len: 8 << 30, ..base(name, mke2fs, tree) };
    vec![
        base("no-flex-bg", &["-t", "ext4", "-O", "^flex_bg"], tree),
        base("flex-bg-64", &["-t", "ext4", "-G", "64", "-b", "1024"], small_xattrs(tree)),
        base("packed-meta", &["-t", "ext4", "-E", "packed_meta_blocks=1"], tree),
        clusters("bigalloc", &["-t", "ext4", "-O", "bigalloc", "-C", "16384"], tree),
        clusters(
            "bigalloc-1k",
            &["-t", "ext4", "-O", "bigalloc", "-b", "1024", "-C", "65536"],
            small_xattrs(tree),
        ),
        base("no-extents", &["-t", "ext4", "-O", "^extent,^64bit"], tree),
        base("no-extents-1k", &["-t", "ext4", "-O", "^extent,^64bit", "-b", "1024"], indirect_1k(tree)),
        base("eager-tables", &["-t", "ext4", "-E", "lazy_itable_init=0,lazy_journal_init=0"], tree),
    ]
}

fn inodes(tree: TreeSpec) -> Vec<ImageSpec> {
    let large = TreeSpec { xattr_len: if tree.xattr_len > 1_000 { 60_000 } else { 10_000 }, ..tree };
    vec![
        base("inode-128", &["-t", "ext4", "-I", "128"], tree),
        base("inode-512", &["-t", "ext4", "-I", "512"], tree),
        base("inode-4096", &["-t", "ext4", "-I", "4096"], tree),
        base("inline-data", &["-t", "ext4", "-O", "inline_data"], tree),
        base("inline-data-1024", &["-t", "ext4", "-O", "inline_data", "-I", "1024"], tree),
        base(
            "inline-data-no-csum",
            &["-t", "ext4", "-O", "inline_data,^metadata_csum", "-b", "1024"],
            small_xattrs(tree),
        ),
        base("ea-inode", &["-t", "ext4", "-O", "ea_inode"], large),
        base("ea-inode-inline", &["-t", "ext4", "-O", "ea_inode,inline_data", "-b", "1024"], large),
        base("no-extra-isize", &["-t", "ext4", "-O", "^extra_isize,^huge_file,^dir_nlink,^large_file"], tree),
    ]
}

fn directories(tree: TreeSpec) -> Vec<ImageSpec> {
    let hashed = |name, algorithm, flags| ImageSpec {
        tune: vec![Tune::Tune2fs(vec!["-E", algorithm]), Tune::Debugfs(flags)],
        ..base(name, &["-t", "ext4"], tree)
    };
    const SIGNED: &str = "set_super_value flags 1";
    const UNSIGNED: &str = "set_super_value flags 2";
    vec![
        base("no-dir-index", &["-t", "ext4", "-O", "^dir_index"], narrow(tree)),
        base("large-dir-1k", &["-t", "ext4", "-O", "large_dir", "-b", "1024"], small_xattrs(tree)),
        hashed("hash-legacy", "hash_alg=legacy", SIGNED),
        hashed("hash-legacy-unsigned", "hash_alg=legacy", UNSIGNED),
        hashed("hash-tea", "hash_alg=tea", SIGNED),
        hashed("hash-tea-unsigned", "hash_alg=tea", UNSIGNED),
        hashed("hash-half-md4-unsigned", "hash_alg=half_md4", UNSIGNED),
        ImageSpec {
            filler: Filler::Mke2fs,
            mask: Some("casefold"),
            ..base("casefold", &["-t", "ext4", "-O", "casefold", "-E", "encoding=utf8"], by_mke2fs(tree))
        },
    ]
}

fn journals_and_the_rest(tree: TreeSpec) -> Vec<ImageSpec> {
    vec![
        base("no-journal", &["-t", "ext4", "-O", "^has_journal"], tree),
        base("small-journal", &["-t", "ext4", "-J", "size=4"], tree),
        base("fast-commit", &["-t", "ext4", "-O", "fast_commit"], tree),
        ImageSpec { mount: "data=journal", ..base("data-journal", &["-t", "ext4"], tree) },
        base("orphan-file", &["-t", "ext4", "-O", "orphan_file"], tree),
        base("mmp", &["-t", "ext4", "-O", "mmp"], tree),
        base("encrypt-verity", &["-t", "ext4", "-O", "encrypt,verity,stable_inodes"], tree),
        ImageSpec {
            filler: Filler::Mke2fs,
            ..base("quota-project", &["-t", "ext4", "-O", "quota,project"], by_mke2fs(tree))
        },
    ]
}

/// `mke2fs -d` takes quadratic time in a directory.
fn by_mke2fs(tree: TreeSpec) -> TreeSpec {
    TreeSpec { wide: tree.wide.min(2_000), files: tree.files.min(2_000), ..tree }
}

/// Returns images with blocks larger than a page, which this kernel does not mount; `debugfs` reads them.
pub fn large_blocks(tree: TreeSpec) -> Vec<ImageSpec> {
    let make = |name, size| ImageSpec {
        filler: Filler::Mke2fs,
        ..base(
            name,
            &["-t", "ext4", "-b", size],
            by_mke2fs(TreeSpec { sparse_len: tree.sparse_len.min(1 << 34), ..tree }),
        )
    };
    vec![
        make("ext4-8k", "8192"),
        make("ext4-16k", "16384"),
        make("ext4-32k", "32768"),
        make("ext4-64k", "65536"),
    ]
}

/// Returns whether this kernel can mount the image, according to its block size.
pub fn mounts(spec: &ImageSpec) -> bool {
    let size = spec.mke2fs.iter().skip_while(|&&arg| arg != "-b").nth(1);
    !matches!(size, Some(&("8192" | "16384" | "32768" | "65536")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_combination_has_its_own_name_and_there_are_at_least_forty() {
        let all = ext4(TreeSpec::SMALL);
        let names: BTreeSet<_> = all.iter().map(|spec| spec.name).collect();
        assert_eq!(names.len(), all.len());
        assert!(all.len() >= 40, "{}", all.len());
        assert_eq!(all.iter().filter(|spec| !mounts(spec)).count(), 4);
    }
}
