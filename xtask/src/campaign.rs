//! Trees of the world, built into images: a Debian root and the source of Linux.

use std::path::Path;

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::packages::{self, Package};

const PACKAGES: &[Package] =
    &[("/sbin/mke2fs", "e2fsprogs"), ("/usr/sbin/debootstrap", "debootstrap"), ("/usr/bin/xz", "xz-utils")];
/// The package of the source, of some 140 MB; it is fetched and not installed.
const LINUX: &str = "linux-source-6.1";
const SUITE: &str = "bookworm";

/// Where trees are, and where they come from.
#[derive(clap::Args)]
pub struct Options {
    /// Where trees are fetched to, or are from the last time: 2 GiB, and 5 GiB more while images are built.
    #[arg(long, default_value = "/var/tmp/obento-trees")]
    folder: String,
    /// Where Debian is fetched from.
    #[arg(long, default_value = "http://deb.debian.org/debian")]
    mirror: String,
}

/// Fetches the trees that are missing, builds images of them, and lets e2fsck and the kernel judge those. Takes root.
pub fn run(shell: &Shell, options: &Options) -> Result<()> {
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
