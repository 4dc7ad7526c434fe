//! Verifies that the crates that others depend on can be published.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use xshell::{Shell, TempDir, cmd};

/// The crates, in the order of their dependencies.
const PUBLISHED: [&str; 34] = [
    "obento-base",
    "obento-env",
    "obento-block",
    "obento-driver",
    "obento-journal",
    "obento-clusters",
    "obento-inodes",
    "obento-remote-nodes",
    "obento-tmpfs",
    "obento-vfs",
    "obento-linux-wire",
    "obento-testkit",
    "obento-containers",
    "obento-host",
    "obento-bcachefs",
    "obento-exfat",
    "obento-ext4",
    "obento-fat",
    "obento-jffs2",
    "obento-lfs",
    "obento-ntfs",
    "obento-xv6",
    "obento-prov",
    "obento-linux-agent",
    "obento-linux",
    "obento-open",
    "obento-trees",
    "obento",
    "obento-fuse-abi",
    "obento-fuse",
    "obento-fuse-source",
    "obento-nfs-source",
    "obento-bench",
    "obento-cli",
];

/// The crates on which drivers outside of this repository depend. Only these are built from their packages: building all
/// takes many minutes.
const CORE: [&str; 11] = [
    "obento-base",
    "obento-env",
    "obento-block",
    "obento-driver",
    "obento-journal",
    "obento-clusters",
    "obento-inodes",
    "obento-tmpfs",
    "obento-vfs",
    "obento-linux-wire",
    "obento-testkit",
];

/// The crates are compiled only to test that they compile.
const QUICK: [&str; 2] = ["profile.dev.opt-level=0", "profile.dev.package.\"*\".opt-level=0"];

/// The metadata that a registry's page shows about a crate.
const SHOWN: [&str; 7] =
    ["description", "license", "repository", "readme", "documentation", "rust_version", "categories"];

/// Packages the crates in the order of their dependencies, including uncommitted changes, and builds the core crates from
/// the packages alone.
pub fn run(shell: &Shell) -> Result<()> {
    let metadata = cmd!(shell, "cargo metadata --locked --no-deps --format-version 1").quiet().read()?;
    let metadata = serde_json::from_str(&metadata)?;
    let mut left_out = published(&metadata)?;
    left_out.retain(|package| !PUBLISHED.contains(&package["name"].as_str().unwrap_or_default()));
    ensure!(
        left_out.is_empty(),
        "these crates are neither listed here nor excluded from publishing: {left_out:?}"
    );
    let lacking = lacking(&metadata)?;
    ensure!(lacking.is_empty(), "these crates lack metadata:\n  {}", lacking.join("\n  "));
    let home = new_home(shell, &cargo_home()?)?;
    let _home = shell.push_env("CARGO_HOME", home.path());
    let all = PUBLISHED.iter().flat_map(|name| ["--package", name]);
    cmd!(shell, "cargo package --locked --allow-dirty --no-verify {all...}").run()?;
    let core = CORE.iter().flat_map(|name| ["--package", name]);
    let quick = QUICK.iter().flat_map(|setting| ["--config", setting]);
    cmd!(shell, "cargo package --locked --allow-dirty {core...} {quick...}").run()?;
    Ok(())
}

/// Returns cargo's folder of the user.
fn cargo_home() -> Result<PathBuf> {
    let named = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    named.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo"))).context("HOME is not set")
}

/// Makes a folder for cargo that shares all but the unpacked sources with the folder `home`. Cargo never unpacks a package
/// again that has the same version, so that the sources of an earlier run would be compiled.
fn new_home(shell: &Shell, home: &Path) -> Result<TempDir> {
    let new = shell.create_temp_dir()?;
    let registry = new.path().join("registry");
    fs::create_dir(&registry)?;
    link_entries(home, new.path(), "registry")?;
    link_entries(&home.join("registry"), &registry, "src")?;
    Ok(new)
}

/// Creates a symbolic link in `to` for each entry of the folder `from`, if it exists, except for the entry `left_out`.
fn link_entries(from: &Path, to: &Path, left_out: &str) -> Result<()> {
    let entries = from.is_dir().then(|| fs::read_dir(from)).transpose()?;
    for entry in entries.into_iter().flatten() {
        let entry = entry?;
        if entry.file_name() != left_out {
            symlink(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Returns the crates that are not excluded from publishing, which an empty list of registries does.
fn published(metadata: &Value) -> Result<Vec<&Value>> {
    let packages = metadata["packages"].as_array().context("cargo metadata prints no packages")?;
    Ok(packages.iter().filter(|package| package["publish"].is_null()).collect())
}

/// Returns the missing metadata of each published crate.
fn lacking(metadata: &Value) -> Result<Vec<String>> {
    let missing = |package: &Value, field: &str| match &package[field] {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    let lacking = published(metadata)?.into_iter().flat_map(|package| {
        let fields = SHOWN.into_iter().filter(move |field| missing(package, field));
        fields.map(move |field| format!("{}: {field}", package["name"].as_str().unwrap_or_default()))
    });
    Ok(lacking.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_home_of_cargo_has_everything_but_unpacked_sources() {
        let shell = Shell::new().unwrap();
        let old = shell.create_temp_dir().unwrap();
        for folder in ["bin", "registry/src/-1/obento-base-0.1.0", "registry/cache"] {
            fs::create_dir_all(old.path().join(folder)).unwrap();
        }
        let new = new_home(&shell, old.path()).unwrap();
        assert!(new.path().join("bin").is_dir());
        assert!(new.path().join("registry/cache").is_dir());
        assert!(!new.path().join("registry/src").exists());
        let first = new_home(&shell, &old.path().join("missing")).unwrap();
        assert_eq!(fs::read_dir(first.path()).unwrap().count(), 1);
    }

    #[test]
    fn missing_metadata_of_published_crates_is_reported() {
        let metadata = serde_json::json!({ "packages": [
            { "name": "a", "publish": null, "description": "d", "license": "MIT", "repository": "r", "readme": "r",
              "documentation": null, "rust_version": "1", "categories": [] },
            { "name": "b", "publish": [] },
        ] });
        assert_eq!(lacking(&metadata).unwrap(), ["a: documentation", "a: categories"]);
        assert!(lacking(&Value::Null).is_err());
    }
}
