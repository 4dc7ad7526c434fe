//! The history that the module recorded, as `obento prov` reads it from an image.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use xshell::{Shell, cmd};

/// Returns the records of `image` as `obento prov --json` prints them, the newest first.
pub fn records(shell: &Shell, command: &Path, image: &Path) -> Result<Vec<Value>> {
    let text = cmd!(shell, "{command} prov --json {image}").quiet().read()?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// A record that must exist: an event, the program, the path, and further fields.
type Expected<'a> = (&'a str, &'a str, &'a str, &'a [(&'a str, u64)]);

/// What the processes of the case `history` do.
const EXPECTED: &[Expected<'_>] = &[
    ("create", "writer", "/source", &[]),
    ("write", "writer", "/source", &[("bytes_written", 10_000), ("bytes_written_end", 10_000)]),
    ("open", "copier", "/source", &[]),
    ("close", "copier", "/source", &[("bytes_read", 10_000), ("bytes_read_end", 10_000)]),
    ("create", "copier", "/copy", &[]),
    ("write", "copier", "/copy", &[("bytes_written", 10_000)]),
    // The page of the mapping that was changed.
    ("write", "copier", "/copy", &[("bytes_written", 4096), ("bytes_written_end", 4096)]),
    ("close", "copier", "/copy", &[("bytes_written", 14_096)]),
    ("rename", "mover", "/copy", &[]),
    ("attributes", "mover", "/moved", &[]),
    ("xattr", "mover", "/moved", &[]),
    ("create", "mover", "/brief", &[]),
    ("remove", "mover", "/brief", &[]),
    ("truncate", "mover", "/source", &[("size", 5000)]),
];

/// Checks the history of the case `history`, whose `output` lists the processes.
pub fn check(shell: &Shell, command: &Path, image: &Path, output: &str) -> Result<()> {
    let records = records(shell, command, image)?;
    let processes: Vec<Vec<&str>> = output
        .lines()
        .filter_map(|line| line.trim().strip_prefix("history: "))
        .map(|line| line.split(' ').collect())
        .collect();
    for &(event, program, path, fields) in EXPECTED {
        let process = processes.iter().find(|process| process.first() == Some(&program));
        let [_, pid, user] = process.with_context(|| format!("{program} did not run"))?[..] else {
            continue;
        };
        let is_number = |value: &Value, text: &str| value.as_u64() == text.parse().ok();
        let is_it = |record: &&Value| {
            record["event"] == event
                && record["program"] == program
                && record["path"] == path
                && is_number(&record["pid"], pid)
                && is_number(&record["uid"], user)
                && is_number(&record["gid"], user)
                && record["process_start"].as_u64().is_some_and(|start| start > 0)
                && fields.iter().all(|&(name, number)| record[name] == number)
        };
        ensure!(records.iter().any(|record| is_it(&record)), "no record: {event} of {path} by {program}");
    }
    let made_of = cmd!(shell, "{command} prov --of /moved {image}").quiet().read()?;
    for part in ["/moved", "by copier[", "/source", "by writer["] {
        ensure!(made_of.contains(part), "the history of /moved lacks {part}:\n{made_of}");
    }
    let text = serde_json::to_string(&records)?;
    ensure!(!text.contains("secret"), "the value of an attribute was recorded");
    ensure!(!text.contains("\"crash\"") && !text.contains("\"lost\""), "the history has gaps");
    println!("    {} records", records.len());
    Ok(())
}

/// Checks that a power cut is recorded, and that the changes before the last sync are.
pub fn check_cut(shell: &Shell, command: &Path, image: &Path) -> Result<()> {
    let records = records(shell, command, image)?;
    let has = |event: &str, path: &str| {
        records.iter().any(|record| record["event"] == event && (path.is_empty() || record["path"] == path))
    };
    for (event, path) in [("create", "/one"), ("write", "/two"), ("remove", "/gone"), ("crash", "")] {
        ensure!(has(event, path), "no record: {event} {path}");
    }
    Ok(())
}
