//! Suites: sets of workloads and targets with a name.

mod published;

pub use published::{PUBLISHED, Published};

use std::time::Duration;

use crate::statistics::StopRule;
use crate::workload::{Settings, all};

/// A suite.
#[derive(Clone, Debug)]
pub struct Suite {
    /// The name.
    pub name: &'static str,
    /// A description of one line.
    pub about: &'static str,
    /// The default targets.
    pub targets: &'static [&'static str],
    /// The target with which the others are compared.
    pub baseline: &'static str,
    /// The names of the workloads, or prefixes of names.
    workloads: &'static [&'static str],
    /// The size of each file system, in bytes.
    pub size: u64,
    /// The settings.
    pub settings: fn() -> Settings,
    /// The number of repetitions.
    pub enough: StopRule,
}

const EXT4: &[&str] = &["kernel:ext4", "kernel:ext4,data=journal", "image:ext4", "fuse:ext4", "fuse2fs"];
const KERNELS: &[&str] =
    &["kernel:ext4", "kernel:xfs", "kernel:btrfs", "kernel:f2fs", "image:ext4", "fuse:ext4"];
const GIB: u64 = 1 << 30;

const ENOUGH: StopRule = StopRule { least: 3, most: 10, error: 0.03 };

/// All suites.
pub const SUITES: &[Suite] = &[
    Suite {
        name: "quick",
        about: "an overview in three minutes",
        targets: &["kernel:ext4", "image:ext4", "fuse:ext4"],
        baseline: "kernel:ext4",
        workloads: &[
            "seq_read_128k,T=1",
            "rand_read_4k,T=1",
            "seq_write_128k,T=1",
            "rand_write_4k,T=1",
            "createfiles,T=1",
            "deletefiles,T=1",
            "varmail",
        ],
        size: GIB,
        settings: || Settings {
            file_size: 128 << 20,
            run_time: Duration::from_secs(1),
            scale: 20,
            ..Settings::default()
        },
        enough: StopRule { least: 3, most: 3, ..ENOUGH },
    },
    Suite {
        name: "bento",
        about: "the measurements of the paper on Bento, next to its published results",
        targets: EXT4,
        baseline: "kernel:ext4,data=journal",
        workloads: &[
            "seq_",
            "rand_",
            "createfiles",
            "deletefiles",
            "varmail",
            "fileserver",
            "webserver",
            "lat_seq_read_512",
            "lat_seq_write_512",
            "lat_rand_write_512",
            "tar",
            "untar",
            "grep",
        ],
        size: 8 * GIB,
        settings: || Settings { threads: 18, file_size: GIB, ..Settings::default() },
        enough: ENOUGH,
    },
    Suite {
        name: "phoronix",
        about: "the file system tests of Phoronix: servers, small files, compiling, databases, git",
        targets: KERNELS,
        baseline: "kernel:ext4",
        workloads: &[
            "sqlite",
            "fs_mark-",
            "seq_read_4k,T=1",
            "rand_read_4k,T=1",
            "seq_write_4k,T=1",
            "rand_write_4k,T=1",
            "untar",
            "git-clone",
            "fileserver",
            "compilebench",
            "dbench",
            "tiobench",
            "pgbench",
            "redis-aof",
            "db_bench",
        ],
        size: 8 * GIB,
        settings: Settings::default,
        enough: ENOUGH,
    },
    Suite {
        name: "bonnie",
        about: "the file and block tests of Bonnie, and the file tests of bonnie++",
        targets: EXT4,
        baseline: "kernel:ext4",
        workloads: &["bonnie"],
        size: 8 * GIB,
        settings: Settings::default,
        enough: ENOUGH,
    },
    Suite {
        name: "iozone",
        about: "IOzone's matrix of files and records, and its throughput mode",
        targets: EXT4,
        baseline: "kernel:ext4",
        workloads: &["iozone"],
        size: 4 * GIB,
        settings: || Settings { file_size: 64 << 20, ..Settings::default() },
        enough: ENOUGH,
    },
    Suite {
        name: "rump",
        about: "the measurements of the paper on rump file systems",
        targets: EXT4,
        baseline: "kernel:ext4",
        workloads: &["rump-"],
        size: 8 * GIB,
        settings: Settings::default,
        enough: ENOUGH,
    },
    Suite {
        name: "provenance",
        about: "the cost of recording the history of a volume, in the library and on a mount",
        targets: &["image:ext4", "image:ext4,provenance", "fuse:ext4", "fuse:ext4,provenance"],
        baseline: "fuse:ext4",
        workloads: &["createfiles,T=1", "varmail", "tar", "untar", "git-clone"],
        size: 4 * GIB,
        settings: || Settings { scale: 8, ..Settings::default() },
        enough: StopRule { least: 5, most: 20, error: 0.01 },
    },
    Suite {
        name: "read",
        about: "workloads that only read, also on existing images",
        targets: &["kernel:ext4", "image:ext4", "fuse:ext4"],
        baseline: "kernel:ext4",
        workloads: &["read-"],
        size: GIB,
        settings: || Settings {
            file_size: 128 << 20,
            run_time: Duration::from_secs(1),
            ..Settings::default()
        },
        enough: ENOUGH,
    },
    Suite {
        name: "full",
        about: "every workload",
        targets: EXT4,
        baseline: "kernel:ext4",
        workloads: &[""],
        size: 8 * GIB,
        settings: Settings::default,
        enough: ENOUGH,
    },
];

impl Suite {
    /// Returns the suite with this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        SUITES.iter().find(|suite| suite.name == name)
    }

    /// Returns the names of the workloads, in the order of the catalogue.
    pub fn workloads(&self) -> Vec<String> {
        let chosen = |name: &str| self.workloads.iter().any(|start| name.starts_with(start));
        all().map(|(name, _)| name).filter(|name| chosen(name)).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Target;

    #[test]
    fn every_suite_names_existing_targets_and_workloads() {
        for suite in SUITES {
            assert!(suite.targets.contains(&suite.baseline), "{}", suite.name);
            for target in suite.targets {
                assert!(target.parse::<Target>().is_ok(), "{target}");
            }
            for start in suite.workloads {
                assert!(all().any(|(name, _)| name.starts_with(start)), "{start}");
            }
        }
    }

    #[test]
    fn the_bento_suite_has_every_row_of_the_published_tables() {
        let names = Suite::find("bento").unwrap().workloads();
        for row in PUBLISHED {
            assert!(names.iter().any(|name| name == row.workload), "{}", row.workload);
        }
    }
}
