//! The crates of the workspace, and which long tests they have.
//!
//! A manifest lists them in `[package.metadata.obento]`:
//!
//! - `no-std = true`: `cargo xtask no-std` builds the crate for a target without an operating system.
//! - `coverage = [PACKAGE, ...]`: the line coverage of the crate is measured; the tests of these packages count.
//! - `crash = TEST`: the test of power failures, in the program `crash`.
//! - `faults = true`: the program `faults` has the test `every_single_request_fails_in_turn`.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use xshell::{Shell, cmd};

/// A crate of the workspace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Crate {
    /// The name of the package: `obento-fat`.
    pub package: String,
    /// The folder below the root of the workspace: `crates/fs/fat`.
    pub folder: String,
    /// The number of its libraries, programs and integration tests, each of which has a test program.
    pub programs: usize,
    pub no_std: bool,
    /// The packages whose tests count for the line coverage; `None` if it is not measured.
    pub coverage: Option<Vec<String>>,
    pub crash: Option<String>,
    pub faults: bool,
}

impl Crate {
    /// Returns the name of the package without `obento-`.
    pub fn name(&self) -> &str {
        self.package.strip_prefix("obento-").unwrap_or(&self.package)
    }

    fn parse(package: &Value, root: &Path) -> Result<Self> {
        let text = |key: &str| package[key].as_str().with_context(|| format!("a package has no {key}"));
        let folder =
            Path::new(text("manifest_path")?).parent().and_then(|folder| folder.strip_prefix(root).ok());
        let kinds = package["targets"].as_array().into_iter().flatten();
        let is_program = |target: &&Value| {
            let kinds = target["kind"].as_array();
            kinds.is_some_and(|kinds| {
                kinds.iter().any(|kind| kind == "lib" || kind == "bin" || kind == "test")
            })
        };
        let mut parsed = Self {
            package: text("name")?.to_owned(),
            folder: folder
                .and_then(Path::to_str)
                .context("a package is outside of the workspace")?
                .to_owned(),
            programs: kinds.filter(is_program).count(),
            no_std: false,
            coverage: None,
            crash: None,
            faults: false,
        };
        for (key, value) in package["metadata"]["obento"].as_object().into_iter().flatten() {
            let known = parsed.set(key, value);
            known.with_context(|| format!("{}: invalid {key} in package.metadata.obento", parsed.package))?;
        }
        Ok(parsed)
    }

    fn set(&mut self, key: &str, value: &Value) -> Result<()> {
        match key {
            "no-std" => self.no_std = value.as_bool().context("it is true or false")?,
            "faults" => self.faults = value.as_bool().context("it is true or false")?,
            "crash" => self.crash = Some(value.as_str().context("it is the name of a test")?.to_owned()),
            "coverage" => {
                let names = value.as_array().context("it is a list of packages")?;
                let names = names.iter().map(|name| name.as_str().map(str::to_owned));
                self.coverage = Some(names.collect::<Option<_>>().context("it is a list of packages")?);
            }
            _ => bail!("unknown key"),
        }
        Ok(())
    }
}

/// Returns the crates of the workspace, sorted by their folders.
pub fn all(shell: &Shell) -> Result<Vec<Crate>> {
    let metadata = cmd!(shell, "cargo metadata --locked --no-deps --format-version 1").quiet().read()?;
    parse(&metadata)
}

/// Parses the output of `cargo metadata`.
fn parse(metadata: &str) -> Result<Vec<Crate>> {
    let metadata: Value = serde_json::from_str(metadata)?;
    let root = metadata["workspace_root"].as_str().context("cargo names no workspace")?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let crates: Result<Vec<Crate>> = packages.map(|package| Crate::parse(package, Path::new(root))).collect();
    let mut crates = crates?;
    crates.sort_by(|one, other| one.folder.cmp(&other.folder));
    for name in crates.iter().flat_map(|one| one.coverage.iter().flatten()) {
        ensure!(crates.iter().any(|one| one.package == *name), "no package is called {name}");
    }
    Ok(crates)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(metadata: &str) -> String {
        format!(
            r#"{{"workspace_root": "/w", "packages": [{{"name": "obento-b", "manifest_path": "/w/crates/fs/b/Cargo.toml",
                "targets": [{{"kind": ["lib"]}}, {{"kind": ["test"]}}, {{"kind": ["bench"]}}], "metadata": {metadata}}},
                {{"name": "obento-a", "manifest_path": "/w/crates/a/Cargo.toml", "targets": [], "metadata": null}}]}}"#
        )
    }

    #[test]
    fn a_manifest_says_which_long_tests_a_crate_has() {
        let text =
            r#"{"obento": {"no-std": true, "coverage": ["obento-a"], "crash": "campaign", "faults": true}}"#;
        let crates = parse(&workspace(text)).unwrap();
        assert_eq!(crates[0].name(), "a");
        assert_eq!((crates[0].no_std, &crates[0].coverage, crates[0].programs), (false, &None, 0));
        let expected = Crate {
            package: "obento-b".into(),
            folder: "crates/fs/b".into(),
            programs: 2,
            no_std: true,
            coverage: Some(vec!["obento-a".into()]),
            crash: Some("campaign".into()),
            faults: true,
        };
        assert_eq!(crates[1], expected);
    }

    #[test]
    fn an_unknown_key_type_or_package_is_an_error() {
        for text in [r#"{"nostd": true}"#, r#"{"no-std": "yes"}"#, r#"{"coverage": ["obento-c"]}"#] {
            assert!(parse(&workspace(&format!(r#"{{"obento": {text}}}"#))).is_err(), "{text}");
        }
    }
}
