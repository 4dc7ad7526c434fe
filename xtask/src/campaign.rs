//! Images built from large trees: a Debian root and the source of Linux.

use std::path::Path;

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::packages::{self, Package};

const PACKAGES: &[Package] =
    &[("/sbin/mke2fs", "e2fsprogs"), ("/usr/sbin/debootstrap", "debootstrap"), ("/usr/bin/xz", "xz-utils")];
/// The Debian package with the source. It has about 140 MB and is downloaded, not installed.
const LINUX: &str = "linux-source-6.1";
const SUITE: &str = "bookworm";

/// The trees and their origins.
#[derive(clap::Args)]
pub struct Options {
    /// Folder for the downloaded trees, which are reused: 2 GiB, and 5 GiB more while images are built.
    #[arg(long, default_value = "/var/tmp/obento-trees")]
    folder: String,
    /// Debian mirror.
    #[arg(long, default_value = "http://deb.debian.org/debian")]
    mirror: String,
    /// Build this many random trees of data, zeros and holes instead, each from a random kind of source. Requires no
    /// root.
    #[arg(long, value_name = "N")]
    random: Option<u64>,
    /// Number of the first random tree.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "random")]
    seed: u64,
}

/// The checkers of the formats in which random trees are built.
const CHECKS: &[Package] =
    &[("/sbin/e2fsck", "e2fsprogs"), ("/sbin/fsck.fat", "dosfstools"), ("/sbin/fsck.exfat", "exfatprogs")];

/// Builds `count` random trees, and compares each volume with its source files.
fn random(shell: &Shell, count: u64, seed: u64) -> Result<()> {
    packages::ensure(shell, CHECKS)?;
    let _count = shell.push_env("OBENTO_TREES", count.to_string());
    let _seed = shell.push_env("OBENTO_SEED", seed.to_string());
    cmd!(shell, "cargo test --release -p obento --test build_holes -- --nocapture").run()?;
    Ok(())
}

/// Downloads the missing trees, builds images of them, and checks the images with e2fsck and the kernel. Requires root.
pub fn run(shell: &Shell, options: &Options) -> Result<()> {
    if let Some(count) = options.random {
        return random(shell, count, options.seed);
    }
    packages::ensure(shell, PACKAGES)?;
    let folder = Path::new(&options.folder);
    shell.create_dir(folder)?;
    let (debian, linux) = (folder.join("debian"), folder.join("linux"));
    if !debian.join("etc/debian_version").exists() {
        let mirror = &options.mirror;
        cmd!(shell, "debootstrap --variant=minbase {SUITE} {debian} {mirror}").run()?;
    }
    if !linux.exists() {
        let _folder = shell.push_dir(folder);
        cmd!(shell, "apt-get download {LINUX}").run()?;
        let package = shell.read_dir(".")?.into_iter().find(|path| path.to_string_lossy().contains(LINUX));
        let package = package.unwrap_or_default();
        let archive = format!("./usr/src/{LINUX}.tar.xz");
        cmd!(shell, "sh -c 'dpkg-deb --fsys-tarfile \"$0\" | tar x \"$1\"' {package} {archive}").run()?;
        shell.create_dir(&linux)?;
        cmd!(shell, "tar xf {archive} -C {linux}").run()?;
    }
    let trees = std::env::join_paths([&debian, &linux])?;
    let _trees = shell.push_env("OBENTO_BUILD_TREES", trees);
    cmd!(
        shell,
        "cargo test --release -p obento-cli --test build -- --ignored --nocapture trees_of_the_world"
    )
    .run()?;
    Ok(())
}
