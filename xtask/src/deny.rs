//! Checks of the crates of other projects: their licences, their sources, and several versions of one crate.
//!
//! `cargo deny` does the same, but is not among Debian's packages, and building it takes longer than the check is worth.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use xshell::{Shell, cmd};

/// The licences that a distributor of obento can satisfy by including their texts.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
    "bzip2-1.0.6",
];

/// The only source of crates.
const SOURCE: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The crates that exist in two versions, each with the crate that requires the older one.
const TWICE: &[(&str, &str)] = &[
    ("getrandom", "rand 0.8"),
    ("lock_api", "parking_lot 0.12"),
    ("nix", "imago"),
    ("parking_lot", "imago"),
    ("parking_lot_core", "parking_lot 0.12"),
    ("rand", "shuttle"),
    ("rand_core", "rand 0.8"),
    ("redox_syscall", "parking_lot_core 0.9; not compiled on Linux"),
    ("syn", "procedural macros"),
    ("windows-sys", "not compiled on Linux"),
];

/// A crate of the workspace or of another project.
struct Crate {
    name: String,
    version: String,
    licence: Option<String>,
    /// `None` for a crate of the workspace.
    source: Option<String>,
}

/// Fails with a list of all violations.
pub fn run(shell: &Shell) -> Result<()> {
    let metadata = cmd!(shell, "cargo metadata --locked --format-version 1").quiet().read()?;
    let crates = crates(&serde_json::from_str(&metadata)?)?;
    let found = violations(&crates);
    ensure!(found.is_empty(), "the crates of other projects violate a rule:\n  {}", found.join("\n  "));
    println!("{} crates: licences, sources and versions are as listed in xtask/src/deny.rs", crates.len());
    Ok(())
}

fn crates(metadata: &Value) -> Result<Vec<Crate>> {
    let packages = metadata["packages"].as_array().context("cargo metadata prints no packages")?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let one = |package: &Value| {
        Some(Crate {
            name: text(&package["name"])?,
            version: text(&package["version"])?,
            licence: text(&package["license"]),
            source: text(&package["source"]),
        })
    };
    packages.iter().map(|package| one(package).context("a package has no name")).collect()
}

/// Returns a sentence for each violation.
fn violations(crates: &[Crate]) -> Vec<String> {
    let mut found = Vec::new();
    let mut versions = BTreeMap::<_, BTreeSet<_>>::new();
    for Crate { name, version, licence, source } in crates {
        versions.entry(name.as_str()).or_default().insert(version.as_str());
        match licence.as_deref() {
            None => found.push(format!("{name} {version} declares no licence")),
            Some(licence) if !is_allowed(licence) => {
                found.push(format!("{name} {version} has the licence {licence}"));
            }
            Some(_) => {}
        }
        if source.as_ref().is_some_and(|source| source != SOURCE) {
            found.push(format!("{name} {version} is not from crates.io"));
        }
    }
    let twice: BTreeSet<_> =
        versions.iter().filter(|(_, versions)| versions.len() > 1).map(|(name, _)| *name).collect();
    let known: BTreeSet<_> = TWICE.iter().map(|(name, _)| *name).collect();
    found.extend(twice.difference(&known).map(|name| format!("{name} has several versions")));
    found.extend(known.difference(&twice).map(|name| format!("{name} has one version, but is listed")));
    found
}

/// Returns whether an SPDX expression allows a choice of [`LICENCES`] alone. `/` is an old form of `OR`.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    any(&mut words) && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

/// Parses terms with `OR` between them.
fn any(words: &mut Words<'_>) -> bool {
    let mut allowed = all(words);
    while words.next_if_eq(&"OR").is_some() {
        // Both sides are parsed in any case.
        allowed |= all(words);
    }
    allowed
}

/// Parses terms with `AND` between them.
fn all(words: &mut Words<'_>) -> bool {
    let mut allowed = one(words);
    while words.next_if_eq(&"AND").is_some() {
        allowed &= one(words);
    }
    allowed
}

/// Parses a licence with its exception, or an expression in parentheses.
fn one(words: &mut Words<'_>) -> bool {
    match words.next() {
        Some("(") => {
            let allowed = any(words);
            words.next() == Some(")") && allowed
        }
        Some(licence) if words.next_if_eq(&"WITH").is_some() => {
            let whole = format!("{licence} WITH {}", words.next().unwrap_or_default());
            LICENCES.contains(&whole.as_str())
        }
        Some(licence) => LICENCES.contains(&licence),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_license_expression_is_allowed_if_one_alternative_is_allowed() {
        for allowed in [
            "MIT",
            "MIT/Apache-2.0",
            "Apache-2.0 / MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "MIT OR Apache-2.0 OR LGPL-2.1-or-later",
            "(GPL-2.0-only) OR (MIT AND Zlib)",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(is_allowed(allowed), "{allowed}");
        }
        for refused in
            ["", "GPL-2.0-only", "MIT AND GPL-2.0-only", "(MIT", "MIT)", "MIT WITH other", "OR MIT"]
        {
            assert!(!is_allowed(refused), "{refused}");
        }
    }

    #[test]
    fn each_violation_is_reported() {
        let of = |name: &str, version: &str, licence: Option<&str>, source: Option<&str>| Crate {
            name: name.into(),
            version: version.into(),
            licence: licence.map(Into::into),
            source: source.map(Into::into),
        };
        let mut crates: Vec<_> = TWICE
            .iter()
            .flat_map(|(name, _)| {
                ["1.0.0", "2.0.0"].map(|version| of(name, version, Some("MIT"), Some(SOURCE)))
            })
            .collect();
        crates.push(of("obento", "1.0.0", Some("MIT"), None));
        assert_eq!(violations(&crates), Vec::<String>::new());
        crates.push(of("a", "1.0.0", None, Some(SOURCE)));
        crates.push(of("a", "2.0.0", Some("GPL-3.0-only"), Some(SOURCE)));
        crates.push(of("b", "1.0.0", Some("MIT"), Some("git+https://example.org/b")));
        crates.remove(0);
        let expected = [
            "a 1.0.0 declares no licence".to_owned(),
            "a 2.0.0 has the licence GPL-3.0-only".to_owned(),
            "b 1.0.0 is not from crates.io".to_owned(),
            "a has several versions".to_owned(),
            format!("{} has one version, but is listed", TWICE[0].0),
        ];
        assert_eq!(violations(&crates), expected);
    }
}
