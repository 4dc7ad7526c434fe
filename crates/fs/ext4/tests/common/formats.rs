//! Volumes that obento and `mke2fs` create, for comparison.

use std::sync::Arc;

use obento_base::Timestamp;
use obento_driver::FormatOptions;
use obento_env::{FixedClock, FixedRandom};

/// The time at which these volumes are created.
pub const NOW: i64 = 1_700_000_000;
pub const UUID: &str = "01234567-89ab-cdef-fedc-ba9876543210";
pub const HASH_SEED: &str = "00112233-4455-6677-8899-aabbccddeeff";

/// A volume, defined by the arguments of `mke2fs`.
#[derive(Clone, Copy, Debug)]
pub struct Made {
    pub name: &'static str,
    pub len: u64,
    /// Separated by spaces.
    pub args: &'static str,
}

/// Volumes that deliberately differ from those of `mke2fs`.
pub const OTHERS: &[&str] = &[
    // Its lost+found, which begins in the inode, has one block less than the intended 16 KiB.
    "inline-data",
];

/// Journal devices for other volumes.
#[rustfmt::skip]
pub const JOURNALS: &[Made] = &[
    made("journal", 16 * M, "-t ext4 -O journal_dev"),
    made("journal-4k", 16 * M, "-t ext4 -b 4096 -O journal_dev -L log"),
    made("journal-no-csum", 16 * M, "-t ext4 -O journal_dev,^metadata_csum"),
    made("journal-habits", 16 * M, "-t ext4 -b 1024 -O journal_dev -m 3 -e panic -M /some -E root_owner=5:5,stride=3"),
    made("journal-short-inodes", 16 * M, "-t ext4 -I 128 -O journal_dev"),
    made("journal-fast-commit", 16 * M, "-t ext4 -O journal_dev,fast_commit"),
];

/// Returns obento's options for these arguments, which are letters of `mke2fs`.
pub fn options(made: &Made) -> FormatOptions {
    let clock = Arc::new(FixedClock(Timestamp::new(NOW, 0)));
    let mut options = FormatOptions::new("ext4", clock, Arc::new(FixedRandom(1)));
    options.uuid = Some(uuid_bytes(UUID));
    options.settings.push(("hash_seed".into(), HASH_SEED.into()));
    let mut words = made.args.split_whitespace();
    while let Some(letter) = words.next() {
        let value = words.next().expect("each letter has a value");
        let name = match letter {
            "-t" => {
                options.fs_type = value.into();
                continue;
            }
            "-b" => {
                options.block_size = Some(value.parse().unwrap());
                continue;
            }
            "-L" => {
                options.label = value.into();
                continue;
            }
            "-O" => {
                options.features.push(value.into());
                continue;
            }
            "-E" | "-J" => {
                for setting in value.split(',') {
                    let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
                    let name = if letter == "-J" && name == "size" { "journal_size" } else { name };
                    let name = if letter == "-J" && name == "location" { "journal_location" } else { name };
                    options.settings.push((name.into(), value.into()));
                }
                continue;
            }
            "-C" => "cluster_size",
            "-g" => "blocks_per_group",
            "-G" => "flex_bg_size",
            "-i" => "inode_ratio",
            "-I" => "inode_size",
            "-N" => "inodes",
            "-m" => "reserved_percent",
            "-M" => "last_mounted",
            "-r" => "revision",
            "-e" => "errors",
            "-T" => "usage",
            other => panic!("no such letter {other}"),
        };
        options.settings.push((name.into(), value.into()));
    }
    options
}

/// Returns the arguments of `mke2fs` for the same volume.
pub fn arguments(made: &Made) -> Vec<String> {
    let mut args: Vec<String> = made.args.split_whitespace().map(str::to_owned).collect();
    let seed = format!("hash_seed={HASH_SEED}");
    match args.iter().position(|arg| arg == "-E") {
        Some(at) => args[at + 1].push_str(&format!(",{seed}")),
        None => args.extend(["-E".into(), seed]),
    }
    if !made.args.starts_with("-t") {
        args.extend(["-t".into(), "ext4".into()]);
    }
    args.extend(["-q".into(), "-F".into(), "-U".into(), UUID.into()]);
    args
}

fn uuid_bytes(text: &str) -> [u8; 16] {
    let digits: String = text.chars().filter(|&digit| digit != '-').collect();
    u128::from_str_radix(&digits, 16).unwrap().to_be_bytes()
}

const fn made(name: &'static str, len: u64, args: &'static str) -> Made {
    Made { name, len, args }
}

const M: u64 = 1 << 20;
const G: u64 = 1 << 30;
const T: u64 = 1 << 40;

/// All volumes. The first of each kind are small enough for a quick run.
#[rustfmt::skip]
pub const ALL: &[Made] = &[
    // Types, block sizes and volume sizes.
    made("ext4", G, "-t ext4"),
    made("ext3", G, "-t ext3"),
    made("ext2", G, "-t ext2"),
    made("ext4-small", 64 * M, "-t ext4"),
    made("ext3-small", 64 * M, "-t ext3"),
    made("ext2-small", 64 * M, "-t ext2"),
    made("ext2-floppy", 1440 << 10, "-t ext2"),
    made("ext4-smallest", 256 << 10, "-t ext4"),
    made("ext4-2k", 300 * M, "-t ext4 -b 2048"),
    made("ext4-4k-small", 40 * M, "-t ext4 -b 4096"),
    made("ext2-4k", 40 * M, "-t ext2 -b 4096"),
    made("ext3-4k", 300 * M, "-t ext3 -b 4096"),
    made("ext4-8k", 300 * M, "-t ext4 -b 8192"),
    made("ext4-64k", 2 * G, "-t ext4 -b 65536"),
    made("ext2-64k", 200 * M, "-t ext2 -b 65536"),
    made("odd-length", 777 * M + 12_345, "-t ext4"),
    made("short-last-group", 64 * M + 300 * 1024, "-t ext4 -b 1024"),
    made("dropped-last-group", 128 * M + 128 * 1024, "-t ext4 -b 4096 -O ^flex_bg"),
    made("page-rounding", 10 * M + 1024, "-t ext2 -b 1024"),
    // Inodes and reserve.
    made("inode-128", 64 * M, "-t ext4 -I 128"),
    made("inode-512", 64 * M, "-t ext4 -I 512"),
    made("inode-4096", 200 * M, "-t ext4 -b 4096 -I 4096 -i 32768"),
    made("inodes-few", 200 * M, "-t ext4 -N 16"),
    made("inodes-many", 200 * M, "-t ext4 -N 150000"),
    made("inodes-more-than-a-bitmap", 200 * M, "-t ext4 -b 4096 -N 160000 -I 128"),
    made("inode-ratio", 200 * M, "-t ext4 -i 65536"),
    made("reserve-none", 64 * M, "-t ext4 -m 0"),
    made("reserve-fraction", 64 * M, "-t ext4 -m 12.5"),
    made("usage-news", 600 * M, "-t ext4 -T news"),
    made("usage-largefile4", 600 * M, "-t ext4 -T largefile4"),
    made("usage-small", 600 * M, "-t ext4 -T small"),
    made("labels", 64 * M, "-t ext4 -L sixteen-letters! -M /some/where -e remount-ro"),
    // Groups.
    made("small-groups", 64 * M, "-t ext4 -b 1024 -g 1024"),
    made("smallest-groups", 16 * M, "-t ext4 -b 1024 -g 256 -N 256 -O ^resize_inode"),
    made("flex-1", 200 * M, "-t ext4 -G 1"),
    made("flex-4", 500 * M, "-t ext4 -G 4"),
    made("flex-64", 500 * M, "-t ext4 -G 64"),
    made("no-flex", 500 * M, "-t ext4 -O ^flex_bg"),
    made("packed", 500 * M, "-t ext4 -E packed_meta_blocks=1"),
    made("stride", 500 * M, "-t ext4 -E stride=16,stripe_width=64 -O ^flex_bg"),
    made("stride-flex", 500 * M, "-t ext4 -E stride=16,stripe_width=64"),
    made("no-resize", 200 * M, "-t ext4 -O ^resize_inode"),
    made("resize", 200 * M, "-t ext4 -b 4096 -E resize=1048576"),
    made("resize-64bit-desc-128", 200 * M, "-t ext4 -E desc_size=128"),
    made("meta-bg", 500 * M, "-t ext4 -O meta_bg,^resize_inode"),
    made("meta-bg-32bit", 500 * M, "-t ext4 -O meta_bg,^resize_inode,^64bit"),
    made("meta-bg-no-flex", 500 * M, "-t ext4 -O meta_bg,^resize_inode,^flex_bg"),
    made("meta-bg-by-need", G, "-t ext4 -b 1024 -g 256"),
    made("no-sparse", 200 * M, "-t ext4 -O ^sparse_super,^resize_inode"),
    made("sparse2", 500 * M, "-t ext4 -O sparse_super2"),
    made("sparse2-one", 500 * M, "-t ext4 -O sparse_super2 -E num_backup_sb=1"),
    made("sparse2-none", 500 * M, "-t ext4 -O sparse_super2 -E num_backup_sb=0"),
    made("sparse2-one-group", 7 * M, "-t ext4 -O sparse_super2"),
    // Checksums and features.
    made("no-csum", 200 * M, "-t ext4 -O ^metadata_csum"),
    made("uninit-bg", 200 * M, "-t ext4 -O ^metadata_csum,uninit_bg"),
    made("32bit", 200 * M, "-t ext4 -O ^64bit"),
    made("csum-ext2", 200 * M, "-t ext2 -O metadata_csum"),
    made("csum-seed", 200 * M, "-t ext4 -O metadata_csum_seed"),
    made("no-extent", 200 * M, "-t ext4 -O ^extent,^64bit"),
    made("bare", 64 * M, "-t ext2 -O none"),
    made("no-filetype", 64 * M, "-t ext2 -O ^filetype"),
    made("revision-0", 64 * M, "-t ext2 -r 0 -O none"),
    made("many-features", 200 * M, "-t ext4 -O ea_inode,large_dir,encrypt,verity,stable_inodes,project"),
    made("inline-data", 200 * M, "-t ext4 -O inline_data"),
    made("casefold", 200 * M, "-t ext4 -O casefold -E encoding=utf8,encoding_flags=strict"),
    made("root-owner", 64 * M, "-t ext4 -E root_owner=1000:100000"),
    made("eager", 64 * M, "-t ext4 -E lazy_itable_init=0,lazy_journal_init=0"),
    made("test-fs", 64 * M, "-t ext4 -E test_fs"),
    // Clusters.
    made("bigalloc", 500 * M, "-t ext4 -O bigalloc -C 16384"),
    made("bigalloc-1k", 200 * M, "-t ext4 -b 1024 -O bigalloc -C 8192"),
    made("bigalloc-default", 600 * M, "-t ext4 -b 4096 -O bigalloc"),
    made("bigalloc-no-flex", 500 * M, "-t ext4 -O bigalloc,^flex_bg -C 16384"),
    made("bigalloc-orphan", 500 * M, "-t ext4 -O bigalloc,orphan_file -b 4096 -C 65536"),
    // Journals and structures after them.
    made("no-journal", 200 * M, "-t ext4 -O ^has_journal"),
    made("journal-size", 200 * M, "-t ext4 -J size=8"),
    made("journal-many-extents", 200 * M, "-t ext4 -b 1024 -g 2048 -O ^flex_bg -J size=20"),
    made("journal-location", 200 * M, "-t ext4 -J size=8,location=100M"),
    made("journal-indirect", 300 * M, "-t ext3 -b 1024 -J size=80"),
    made("fast-commit", 200 * M, "-t ext4 -O fast_commit"),
    made("orphan-file", 200 * M, "-t ext4 -O orphan_file"),
    made("orphan-file-size", 200 * M, "-t ext4 -O orphan_file -E orphan_file_size=1M"),
    made("orphan-file-indirect", 200 * M, "-t ext3 -O orphan_file"),
    made("mmp", 200 * M, "-t ext4 -O mmp -E mmp_update_interval=7"),
    made("mmp-orphan", 200 * M, "-t ext4 -O mmp,orphan_file"),
    // Quotas.
    made("quota", 200 * M, "-t ext4 -O quota"),
    made("quota-1k", 64 * M, "-t ext4 -b 1024 -O quota,project,orphan_file"),
    made("quota-1k-owner", 64 * M, "-t ext4 -b 1024 -O quota -E root_owner=1000:70000"),
    made("quota-owner", 64 * M, "-t ext4 -b 4096 -O quota,project -E root_owner=1000:1001"),
    made("quota-2k-user", 64 * M, "-t ext4 -b 2048 -O quota -E quotatype=usrquota"),
    made("quota-64k", 2 * G, "-t ext4 -b 65536 -O quota"),
    made("quota-ext2", 64 * M, "-t ext2 -b 1024 -O quota"),
    made("quota-bigalloc", 200 * M, "-t ext4 -b 1024 -O quota,bigalloc -C 16384"),
    made("quota-projects", 64 * M, "-t ext4 -O quota -E quotatype=prjquota"),
    // Large ones.
    made("4g", 4 * G, "-t ext4"),
    made("100g", 100 * G, "-t ext4"),
    made("1t", T, "-t ext4"),
    made("1t-ext3", T, "-t ext3 -i 1048576"),
    made("5t", 5 * T, "-t ext4"),
    made("17t", 17 * T, "-t ext4 -i 4194304 -G 256 -J size=16"),
];
