//! Names of types: a crate does not give one name to two types that are visible outside of their modules.
//!
//! A name such as `State` then identifies one type of its crate, and a reader can search for it. The check scans lines for
//! declarations and does not parse them: a declaration starts its line, as rustfmt writes it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};

use crate::words::files;

/// Names that a crate may declare more than once, each with the reason.
const REVIEWED: &[(&str, &str)] = &[
    // Each subcommand has one, and clap's documentation uses this name: `commands::ls::Args`.
    ("crates/cli", "Args"),
    // Implementations for several environments, of which one is compiled.
    ("crates/env", "Mutex"),
    ("crates/env", "RwLock"),
    ("crates/env", "Waiters"),
    // Each task has one: `fuzz::Options`.
    ("xtask", "Options"),
];

/// Fails if a crate below `root` declares a visible type name twice, and names both places.
pub fn check(root: &Path) -> Result<()> {
    let mut found = Vec::new();
    for folder in crates(&root.join("crates"))?.into_iter().chain([root.join("xtask")]) {
        let name = folder.strip_prefix(root).unwrap_or(&folder).display().to_string();
        let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for file in files(&folder.join("src"), &[])? {
            let shown = file.strip_prefix(root).unwrap_or(&file).display().to_string();
            for (number, line) in (1..).zip(fs::read_to_string(&file)?.lines()) {
                if let Some(declared) = declared(line) {
                    places.entry(declared.to_owned()).or_default().push(format!("{shown}:{number}"));
                }
            }
        }
        places.retain(|declared, places| places.len() > 1 && !is_reviewed(&name, declared));
        found.extend(places.iter().map(|(declared, places)| {
            format!(
                "{}: '{declared}' names two types of one crate: give each type a specific name",
                places.join(", ")
            )
        }));
    }
    ensure!(found.is_empty(), "{}", found.join("\n"));
    Ok(())
}

/// The folders below `folder` that contain a package.
pub fn crates(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if !path.is_dir() || path.ends_with("src") || path.ends_with("tests") {
            continue;
        }
        if path.join("Cargo.toml").is_file() {
            found.push(path.clone());
        }
        found.extend(crates(&path)?);
    }
    found.sort();
    Ok(found)
}

fn is_reviewed(folder: &str, name: &str) -> bool {
    REVIEWED.contains(&(folder, name))
}

/// The name of the visible type that `line` declares, if it declares one.
fn declared(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub")?;
    let rest = match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(')')?.1,
        None => rest,
    };
    let rest = rest.strip_prefix(' ')?;
    let rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
    let (kind, rest) = rest.split_once(' ')?;
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (["struct", "enum", "trait", "union"].contains(&kind) && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_declarations_of_all_kinds_are_found() {
        for (line, name) in [
            ("pub struct State {", Some("State")),
            ("    pub(super) enum Kind<'a> {", Some("Kind")),
            ("pub(in crate::copy) trait Items: Send {", Some("Items")),
            ("pub unsafe trait Sealed {}", Some("Sealed")),
            ("pub struct Ino(pub u64);", Some("Ino")),
            ("struct Private;", None),
            ("pub fn structure() {", None),
            ("/// pub struct Example;", None),
        ] {
            assert_eq!(declared(line), name, "{line}");
        }
    }

    #[test]
    fn two_visible_types_of_one_name_are_an_error_that_names_both_places() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for source in ["crates/base/src", "crates/fs/toy/src", "xtask/src"] {
            fs::create_dir_all(root.join(source)).unwrap();
            fs::write(root.join(source).with_file_name("Cargo.toml"), "").unwrap();
        }
        fs::write(root.join("crates/base/src/a.rs"), "pub struct State;\nstruct Local;\n").unwrap();
        fs::write(root.join("crates/fs/toy/src/a.rs"), "pub struct State;\nstruct Local;\n").unwrap();
        check(root).unwrap();
        fs::write(root.join("crates/fs/toy/src/b.rs"), "\npub(crate) enum State {}\nstruct Local;\n")
            .unwrap();
        assert_eq!(
            check(root).unwrap_err().to_string(),
            "crates/fs/toy/src/a.rs:1, crates/fs/toy/src/b.rs:2: 'State' names two types of one crate: give each type a specific name"
        );
    }
}
