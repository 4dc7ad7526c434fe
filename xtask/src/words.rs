//! Words with a plainer replacement, which documents, comments and messages must not contain.
//!
//! Code in backticks, code blocks and arguments of format strings are exempt.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

/// The documents and folders that are checked.
const CHECKED: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs",
    "crates",
    "xtask",
    "fuzz/fuzz_targets",
];

/// The paths below [`CHECKED`] that are not checked, each with the reason.
const UNCHECKED: &[&str] = &[
    // This contains the words.
    "xtask/src/words.rs",
];

/// Words and pairs of words, with their replacements.
const REPLACED: &[(&str, &str)] = &[
    ("tell", "report, print, return"),
    ("tells", "reports, prints, returns"),
    ("told", "reported, printed, returned"),
    ("mend", "repair"),
    ("mends", "repairs"),
    ("mended", "repaired"),
    ("mending", "repairing"),
    ("whoever", "the caller, the process, the user"),
    ("somebody", "another process, another thread, a user"),
    ("nobody", "no other process, no other thread"),
    ("anew", "again"),
    ("is none", "is not a ..."),
    ("are none", "are not ..."),
    ("goes by", "uses, follows"),
    ("held to", "checked against"),
];

/// Strings that are exempt: names of fields in JSON, which do not change, and user names.
const EXEMPT: &[&str] = &["\"mended\"", "\\\"mended\\\"", "\"nobody\"", "\\\"nobody\\\"", "\"nobody::r--\""];

/// Fails if a file in [`CHECKED`] contains a word of [`REPLACED`], and names each line.
pub fn check(root: &Path) -> Result<()> {
    let mut found = Vec::new();
    let unchecked: Vec<PathBuf> = UNCHECKED.iter().map(|path| root.join(path)).collect();
    for path in CHECKED {
        for file in files(&root.join(path), &unchecked)? {
            let text = fs::read_to_string(&file)?;
            let prose = if file.extension().is_some_and(|end| end == "md") {
                markdown(&text)
            } else {
                rust(&without_exempt(&text))
            };
            let shown = file.strip_prefix(root).unwrap_or(&file).display();
            found.extend(words(&prose).map(|(line, word, instead)| {
                format!("{shown}:{line}: '{word}' is not plain English: write {instead}")
            }));
        }
    }
    ensure!(found.is_empty(), "{}", found.join("\n"));
    Ok(())
}

/// Returns the documents and sources at `path` except `unchecked`, in order.
pub fn files(path: &Path, unchecked: &[PathBuf]) -> Result<Vec<PathBuf>> {
    if unchecked.iter().any(|unchecked| unchecked == path) {
        return Ok(Vec::new());
    }
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    let mut entries: Vec<PathBuf> =
        fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    entries.sort();
    for entry in entries {
        match entry.extension().and_then(|end| end.to_str()) {
            Some("md" | "rs") => found.extend(files(&entry, unchecked)?),
            _ if entry.is_dir() => found.extend(files(&entry, unchecked)?),
            _ => {}
        }
    }
    Ok(found)
}

/// Returns the lines of a document without code.
fn markdown(text: &str) -> Vec<(usize, String)> {
    let mut is_code = false;
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.starts_with("```") {
            is_code = !is_code;
        } else if !is_code && !line.starts_with("    ") {
            lines.push((number, without_code(line)));
        }
    }
    lines
}

/// Returns the comments and string literals of a source file.
fn rust(text: &str) -> Vec<(usize, String)> {
    let prose = |line: &str| match line.trim_start().strip_prefix("//") {
        Some(comment) => without_code(comment),
        None => line.split('"').skip(1).step_by(2).map(without_arguments).collect::<Vec<_>>().join(" "),
    };
    (1..).zip(text.lines()).map(|(number, line)| (number, prose(line))).collect()
}

/// Returns `text` without the strings in [`EXEMPT`].
fn without_exempt(text: &str) -> String {
    EXEMPT.iter().fold(text.to_owned(), |text, exempt| text.replace(exempt, "\"\""))
}

/// Returns `line` without the parts in backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// Returns the format string `literal` without its arguments in braces.
fn without_arguments(literal: &str) -> String {
    literal
        .split('{')
        .map(|part| part.split_once('}').map_or(part, |(_, rest)| rest))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns the words of [`REPLACED`] in `prose`: line, word, replacement.
fn words(prose: &[(usize, String)]) -> impl Iterator<Item = (usize, &'static str, &'static str)> + '_ {
    prose.iter().flat_map(|(number, line)| {
        let line = line.to_lowercase();
        let words: Vec<&str> =
            line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect();
        let has = |phrase: &str| {
            let phrase: Vec<&str> = phrase.split(' ').collect();
            words.windows(phrase.len()).any(|words| words == phrase)
        };
        let found: Vec<_> = REPLACED.iter().filter(|(word, _)| has(word)).collect();
        found.into_iter().map(move |&(word, instead)| (*number, word, instead))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(prose: &[(usize, String)]) -> Vec<(usize, &'static str)> {
        words(prose).map(|(line, word, _)| (line, word)).collect()
    }

    #[test]
    fn a_word_is_found_in_prose_comments_and_strings_but_not_in_code() {
        let page =
            "It tells all.\n```\nmend\n```\n    mend\nThe type `Mending` is NONE of it: its size is none.\n";
        assert_eq!(found(&markdown(page)), [(1, "tells"), (6, "is none")]);
        let source = "/// Told once.\nlet mend = \"Nobody may {told:?}\";\n// `anew`\nlet x = 1; // fine\n";
        assert_eq!(found(&rust(source)), [(1, "told"), (2, "nobody")]);
    }

    #[test]
    fn a_word_in_a_checked_path_is_an_error_that_names_its_place() {
        let folder = tempfile::tempdir().unwrap();
        for path in CHECKED {
            let path = folder.path().join(path);
            match path.extension() {
                Some(_) => fs::write(path, "plain\n").unwrap(),
                None => fs::create_dir_all(path).unwrap(),
            }
        }
        let (checked, unchecked) = ("crates/base/src", "xtask/src");
        fs::create_dir_all(folder.path().join(checked)).unwrap();
        fs::create_dir_all(folder.path().join(unchecked)).unwrap();
        fs::write(folder.path().join(unchecked).join("words.rs"), "\n// Anew.\n").unwrap();
        check(folder.path()).unwrap();
        fs::write(folder.path().join("crates/base/src/a.rs"), "\n// Anew.\n").unwrap();
        let error = check(folder.path()).unwrap_err().to_string();
        assert_eq!(error, "crates/base/src/a.rs:2: 'anew' is not plain English: write again");
    }
}
