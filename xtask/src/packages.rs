//! Installation of Debian packages.

use std::path::Path;

use anyhow::Result;
use xshell::{Shell, cmd};

/// A file that exists if a package is installed, and the package.
pub type Package = (&'static str, &'static str);

/// Installs the missing packages. If that is not possible, prints which ones to install, and continues; the following
/// steps report what they skip.
pub fn ensure(shell: &Shell, packages: &[Package]) -> Result<()> {
    let is_missing = |(file, _): &&Package| !Path::new(file).exists();
    install(shell, packages.iter().filter(is_missing).map(|&(_, package)| package).collect())
}

/// Installs one package if `file` is missing.
pub fn ensure_one(shell: &Shell, file: &Path, package: &str) -> Result<()> {
    install(shell, if file.exists() { Vec::new() } else { vec![package] })
}

fn install(shell: &Shell, missing: Vec<&str>) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let root = cmd!(shell, "id -u").quiet().read().is_ok_and(|id| id == "0");
    if !root || !Path::new("/usr/bin/apt-get").exists() {
        eprintln!(
            "note: not installed, and this user may not install it: {0}\n      sudo apt-get install {0}",
            missing.join(" ")
        );
        return Ok(());
    }
    let _environment = shell.push_env("DEBIAN_FRONTEND", "noninteractive");
    cmd!(shell, "apt-get update -qq").run()?;
    cmd!(shell, "apt-get install -y -qq --no-install-recommends {missing...}").ignore_stdout().run()?;
    Ok(())
}
