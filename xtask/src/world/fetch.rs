//! The packages with test files, which the clients of their registries download.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use super::run::{output, text};
use crate::corpus::HELPER;

/// The pool of Debian's source packages.
const DEBIAN: &str = "http://deb.debian.org/debian/pool/main";

/// A package of a registry.
pub struct Source {
    /// The prefix of the names of its items.
    pub name: &'static str,
    /// The registry, and the name of the package there.
    origin: Origin,
    /// The SHA-256 of the file that the registry serves.
    sha256: &'static str,
    /// Whether the short run includes the package.
    pub is_short: bool,
}

/// A registry, with the client's argument for the package.
enum Origin {
    /// The path of a file in the pool.
    Debian(&'static str),
    /// A module and its version.
    Go(&'static str),
    /// A package and its version; the source is downloaded.
    Python(&'static str),
    /// A package of crates.io and its version.
    Crate(&'static str, &'static str),
}

macro_rules! sources {
    ($($name:literal $origin:ident $path:literal $(@ $version:literal)? $sha256:literal $short:literal)*) => {
        &[$(Source {
            name: $name, origin: Origin::$origin($path $(, $version)?), sha256: $sha256, is_short: $short,
        }),*]
    };
}

/// All packages.
pub const SOURCES: &[Source] = sources! {
    "libarchive" Debian "liba/libarchive/libarchive_3.6.2.orig.tar.xz" "9e2c1b80d5fbe59b61308fdfab6c79b5021d7ff4ff2489fb12daf0a96a83551d" true
    "tar-split" Go "github.com/vbatts/tar-split@v0.12.3" "c1eb652b555939db8438ac0b71271d2eb3b65e5650d12e4c127f00577016fc07" true
    "util-linux" Debian "u/util-linux/util-linux_2.38.1.orig.tar.xz" "60492a19b44e6cf9a3ddff68325b333b8b52b6c59ce3ebd6a0ecaa4c5117e84f" false
    "dosfstools" Debian "d/dosfstools/dosfstools_4.2.orig.tar.gz" "64926eebf90092dca21b14259a5301b7b98e7b1943e8a201c7d726084809b527" true
    "btrfs-progs" Debian "b/btrfs-progs/btrfs-progs_6.2.orig.tar.xz" "5fa59b9304bec59a8f0cb505f60c95d8c46b2948389033ad9d3cd72928bfd144" false
    "libarchive-c" Python "libarchive-c==5.3" "5ddb42f1a245c927e7686545da77159859d5d4c6d00163c59daff4df314dae82" true
    "go-diskfs" Go "github.com/diskfs/go-diskfs@v1.9.4" "4f8acbe8da9b3fb057bcaff97ea2e2906a4c5e588d5c112420be6ced0b106934" false
    "go-xfs" Go "github.com/masahiro331/go-xfs-filesystem@v0.0.0-20260422061116-d21e5e4481bb" "907cc848d222c0cb088b82286f10593ef9e8c5730d1bf74c25b44072b649f420" false
    "iso9660" Go "github.com/kdomanski/iso9660@v0.4.0" "9620d9c8e608e9d70b7a02de6f6ab79929cda218da83884b8f0b06f4456c72ac" false
    "dissect.ntfs" Python "dissect.ntfs==3.16" "ce93136796aa9471f3aa28855b4b3c3e8132f9f97bc17a2f5494e0a660c190dd" false
    "ntfs" Crate "ntfs" @ "0.4.0" "26fe2140f3b6eef2648fa331ca7af7652da1bf3bb84f715878bf50f2f8f03c38" false
    "go-ntfs" Go "www.velocidex.com/golang/go-ntfs@v0.2.1" "5dddadc86526d3611acad0b6966def38b929694a2be474b40c4174521b876ce3" false
    "archives" Go "github.com/mholt/archives@v0.1.5" "634be5320d8da86e249cf0dcf01f00f6842651fb515f4519f0fb8a4c3e779254" false
};

impl Source {
    /// Returns the file of the package, and downloads it once. Fails if the client fails or the hash differs.
    pub fn fetched(&self, cache: &Path) -> Result<PathBuf> {
        let file = cache.join("fetched").join(self.name);
        if !file.exists() {
            fs::create_dir_all(cache.join("fetched"))?;
            let new = file.with_extension("new");
            let _ = fs::remove_file(&new);
            match self.origin {
                Origin::Debian(path) => debian(path, &new),
                Origin::Go(module) => go(module, cache, &new),
                Origin::Python(package) => python(package, cache, &new),
                Origin::Crate(name, version) => package_of_cargo(name, version, cache, &new),
            }
            .with_context(|| format!("cannot fetch {}", self.name))?;
            fs::rename(&new, &file)?;
        }
        let sum = text("sha256sum", &[file.as_os_str()])?;
        if !sum.starts_with(self.sha256) {
            fs::remove_file(&file)?;
            bail!("{} is not the pinned file: its SHA-256 is {sum}", self.name);
        }
        Ok(file)
    }
}

fn debian(path: &str, to: &Path) -> Result<()> {
    let uri = format!("{DEBIAN}/{path}");
    output(HELPER, &["download-file".as_ref(), uri.as_ref(), to.as_os_str()]).map(drop)
}

fn go(module: &str, cache: &Path, to: &Path) -> Result<()> {
    let folder = cache.join("go");
    fs::create_dir_all(&folder)?;
    let mut command = std::process::Command::new("go");
    command.args(["mod", "download", "-json", module]).current_dir(&folder);
    command.env("GOPATH", &folder).env("GOFLAGS", "-modcacherw").env("GOTOOLCHAIN", "local");
    let said: serde_json::Value = serde_json::from_slice(&command.output()?.stdout)?;
    fs::copy(said["Zip"].as_str().with_context(|| said["Error"].to_string())?, to)?;
    fs::remove_dir_all(&folder)?;
    Ok(())
}

fn python(package: &str, cache: &Path, to: &Path) -> Result<()> {
    let folder = cache.join("python");
    let args = ["download", "-q", "--no-deps", "--no-binary", ":all:", "-d"].map(AsRef::as_ref);
    output("pip", &[&args[..], &[folder.as_os_str(), package.as_ref()]].concat())?;
    let mut files = fs::read_dir(&folder)?;
    let file = files.next().context("pip fetched nothing")??.path();
    ensure!(files.next().is_none(), "pip fetched several files");
    fs::copy(file, to)?;
    fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Takes a package from the cache of cargo, which fetches it for a package that depends on it.
fn package_of_cargo(name: &str, version: &str, cache: &Path, to: &Path) -> Result<()> {
    let folder = cache.join("cargo");
    let home = folder.join("home");
    fs::create_dir_all(folder.join("src"))?;
    let manifest = format!(
        "[package]\nname = \"fetched\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[dependencies]\n{name} = \"={version}\"\n[workspace]\n"
    );
    fs::write(folder.join("Cargo.toml"), manifest)?;
    fs::write(folder.join("src/lib.rs"), "")?;
    let mut command = std::process::Command::new("cargo");
    let status = command.args(["fetch", "--quiet"]).current_dir(&folder).env("CARGO_HOME", &home).status()?;
    ensure!(status.success(), "cargo fetched nothing");
    let registry = fs::read_dir(home.join("registry/cache"))?.next().context("cargo has no cache")??.path();
    fs::copy(registry.join(format!("{name}-{version}.crate")), to)?;
    fs::remove_dir_all(&folder)?;
    Ok(())
}
