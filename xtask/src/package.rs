//! Verifies that the crates that others depend on can be published.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use xshell::{Shell, cmd};

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
    let all = PUBLISHED.iter().flat_map(|name| ["--package", name]);
    cmd!(shell, "cargo package --locked --allow-dirty --no-verify {all...}").run()?;
    let core = CORE.iter().flat_map(|name| ["--package", name]);
    let quick = QUICK.iter().flat_map(|setting| ["--config", setting]);
    cmd!(shell, "cargo package --locked --allow-dirty {core...} {quick...}").run()?;
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
