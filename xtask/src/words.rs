//! The words that plain English does without: documents, comments and messages of the paths in [`PLAIN`] contain none of them.
//!
//! Code in backticks and code blocks is exempt, since it names what exists.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

/// The paths that have been rewritten in plain English. Other paths follow; none leaves this list.
const PLAIN: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/README.md",
    "docs/bench.md",
    "docs/benchmarks",
    "docs/build.md",
    "docs/campaigns",
    "docs/changing.md",
    "docs/check.md",
    "docs/decisions",
    "docs/disk.md",
    "docs/exfat.md",
    "docs/fat.md",
    "docs/formats",
    "docs/fuzzing.md",
    "docs/glossary.md",
    "docs/json.md",
    "docs/judges.md",
    "docs/mount.md",
    "docs/ntfs.md",
    "docs/proof.md",
    "docs/writing-a-driver.md",
    "crates/base/src",
    "crates/block/src",
    "crates/cli/src",
    "crates/driver/src",
    "crates/env/src",
    "crates/fs/clusters",
    "crates/fs/exfat/src/dir",
    "crates/fs/exfat/src/format",
    "crates/fs/exfat/src/inspect",
    "crates/fs/exfat/src/lib.rs",
    "crates/fs/exfat/src/raw",
    "crates/fs/exfat/src/writer",
    "crates/fs/ext4/benches",
    "crates/fs/ext4/src/allocator",
    "crates/fs/ext4/src/build",
    "crates/fs/ext4/src/check/repair",
    "crates/fs/ext4/src/dir",
    "crates/fs/ext4/src/fast_commit",
    "crates/fs/ext4/src/format",
    "crates/fs/ext4/src/group",
    "crates/fs/ext4/src/inode",
    "crates/fs/ext4/src/inspect",
    "crates/fs/ext4/src/lib.rs",
    "crates/fs/ext4/src/map",
    "crates/fs/ext4/src/ops",
    "crates/fs/ext4/src/raw",
    "crates/fs/ext4/src/writer",
    "crates/fs/ext4/src/xattr",
    "crates/fs/fat/src/dir",
    "crates/fs/ntfs",
    "crates/fs/fat/src/format",
    "crates/fs/fat/src/inspect",
    "crates/fs/fat/src/lib.rs",
    "crates/fs/fat/src/name",
    "crates/fs/fat/src/raw",
    "crates/fs/fat/src/table",
    "crates/fs/fat/src/writer",
    "crates/fs/inodes",
    "crates/fs/tmpfs",
    "crates/host/src/build",
    "crates/host/src/compressed",
    "crates/host/src/directory.rs",
    "crates/host/src/file.rs",
    "crates/host/src/io",
    "crates/host/src/lib.rs",
    "crates/host/src/qcow2",
    "crates/host/src/sandbox",
    "crates/host/src/tree",
    "crates/journal/src",
    "crates/obento/examples",
    "crates/obento/src/address",
    "crates/obento/src/backup.rs",
    "crates/obento/src/build/generic",
    "crates/obento/src/build/mod.rs",
    "crates/obento/src/build/options.rs",
    "crates/obento/src/build/verify.rs",
    "crates/obento/src/check.rs",
    "crates/obento/src/copy/source",
    "crates/obento/src/diff",
    "crates/obento/src/export.rs",
    "crates/obento/src/fs",
    "crates/obento/src/image/claim",
    "crates/obento/src/image/mod.rs",
    "crates/obento/src/image/options.rs",
    "crates/obento/src/image/signature",
    "crates/obento/src/lib.rs",
    "crates/obento/src/partition",
    "crates/obento/src/remove.rs",
    "crates/obento/src/volume",
    "crates/obento/src/walk.rs",
    "crates/vfs/src",
];

/// Words and pairs of words with a plain replacement.
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

/// Strings that are exempt: names of fields in JSON, which do not change.
const EXEMPT: &[&str] = &["\"mended\""];

/// Fails if a path in [`PLAIN`] contains a word of [`REPLACED`], and names each place.
pub fn check(root: &Path) -> Result<()> {
    let mut found = Vec::new();
    for path in PLAIN {
        for file in files(&root.join(path))? {
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

/// The documents and sources at `path`, in order.
fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    let mut entries: Vec<PathBuf> =
        fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    entries.sort();
    for entry in entries {
        match entry.extension().and_then(|end| end.to_str()) {
            Some("md" | "rs") => found.push(entry),
            _ if entry.is_dir() => found.extend(files(&entry)?),
            _ => {}
        }
    }
    Ok(found)
}

/// The lines of a document, with code removed.
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

/// The comments and string literals of a source file.
fn rust(text: &str) -> Vec<(usize, String)> {
    let prose = |line: &str| match line.trim_start().strip_prefix("//") {
        Some(comment) => without_code(comment),
        None => line.split('"').skip(1).step_by(2).collect::<Vec<_>>().join(" "),
    };
    (1..).zip(text.lines()).map(|(number, line)| (number, prose(line))).collect()
}

/// `text` without the strings in [`EXEMPT`].
fn without_exempt(text: &str) -> String {
    EXEMPT.iter().fold(text.to_owned(), |text, exempt| text.replace(exempt, "\"\""))
}

/// `line` without the parts in backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// The words of [`REPLACED`] in `prose`: line, word, replacement.
fn words(prose: &[(usize, String)]) -> impl Iterator<Item = (usize, &'static str, &'static str)> + '_ {
    prose.iter().flat_map(|(number, line)| {
        let line = line.to_lowercase();
        let words: Vec<&str> =
            line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
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
        let source = "/// Told once.\nlet mend = \"Nobody may\";\n// `anew`\nlet x = 1; // fine\n";
        assert_eq!(found(&rust(source)), [(1, "told"), (2, "nobody")]);
    }

    #[test]
    fn a_word_in_a_checked_path_is_an_error_that_names_its_place() {
        let folder = tempfile::tempdir().unwrap();
        for path in PLAIN {
            let path = folder.path().join(path);
            let is_file = path.extension().is_some();
            fs::create_dir_all(if is_file { path.parent().unwrap() } else { &path }).unwrap();
            if is_file {
                fs::write(path, "plain\n").unwrap();
            }
        }
        check(folder.path()).unwrap();
        fs::write(folder.path().join("crates/base/src/a.rs"), "\n// Anew.\n").unwrap();
        let error = check(folder.path()).unwrap_err().to_string();
        assert_eq!(error, "crates/base/src/a.rs:2: 'anew' is not plain English: write again");
    }
}
