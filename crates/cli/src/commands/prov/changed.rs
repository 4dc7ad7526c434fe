//! The files that changed since a record, for an incremental backup.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use obento::base::Ino;
use obento::provenance::{FileId, IndexedLog, Lineage, Mark, Record, each_name_change};

use super::args::Args;
use super::log::Log;
use super::paths::Paths;
use super::tree::Links;
use crate::context::Context;
use crate::json::Line;
use crate::output::{Outcome, Output, go_on};
use crate::report::Report;

/// The names and files that records changed.
#[derive(Default)]
struct Changes {
    /// Names that were created or removed, and whether the last record created the name.
    names: BTreeMap<(Ino, Vec<u8>), bool>,
    /// Files whose data or attributes were changed, with or without a change of their names.
    files: BTreeSet<FileId>,
    next: u64,
    /// Number of records since the sequence number that are missing.
    lost: u64,
    /// Whether recording ended without a mark, so that records may be missing.
    has_crashed: bool,
}

/// Prints the paths that changed since the record `sequence`.
pub fn run(args: &Args, sequence: u64, log: &Log, context: &Context) -> Outcome {
    let indexed = log.indexed(context);
    let first = first_sequence(&indexed);
    if sequence < first {
        let cause = format!("the log begins with record {first}");
        let report =
            Report::on(&format!("cannot list the changes since record {sequence} of"), log.shown(), cause);
        return Err(report.help("make a full backup").into());
    }
    let mut changes = Changes { next: first, ..Changes::default() };
    for at in 0..indexed.len() {
        go_on()?;
        let next = indexed.summary(at).map_or(0, |summary| summary.next);
        // Segment 0 contains compacted edges, which have numbers of their own.
        let number = indexed.number(at).unwrap_or(0);
        if number == 0 {
            continue;
        }
        changes.next = changes.next.max(next);
        if next > sequence {
            changes.add_segment(&indexed, at, sequence, log, context)?;
        }
    }
    if sequence > changes.next {
        let cause = match changes.next.checked_sub(1) {
            None => "the log is empty".to_owned(),
            Some(last) => format!("the last record of the log is {last}"),
        };
        let report =
            Report::on(&format!("cannot list the changes since record {sequence} of"), log.shown(), cause);
        return Err(report
            .help("make a full backup: the number belongs to another volume, or to an earlier log")
            .into());
    }
    let mut lineage = Lineage::new(indexed);
    let mut out = Output::stdout();
    changes.print(args, log, &mut lineage, context, &mut out)?;
    log.report_all(lineage.log().take_damage(), context);
    let gap = match (changes.lost, changes.has_crashed) {
        (0, false) => None,
        (0, true) => Some("recording ended without an unmount".to_owned()),
        (1, _) => Some("1 record is missing".to_owned()),
        (lost, _) => Some(format!("{lost} records are missing")),
    };
    if let Some(cause) = gap {
        let report = Report::on("the list may be incomplete for", log.shown(), cause);
        context.warn(&report.help("make a full backup"));
    }
    if let Some(cause) = log.tree.failure() {
        let report = Report::on("the list may be incomplete for", log.shown(), cause);
        context.warn(&report.help("run the command as a user who can read all files of the mount"));
    }
    match context.json() {
        true => Line::new("provenance_end").field("next_sequence", changes.next).write(&mut out)?,
        false => {
            context.note(log.shown(), format!("the next backup starts with --changed-since {}", changes.next))
        }
    }
    out.finish()
}

/// Returns the sequence number of the oldest record that is not compacted.
fn first_sequence(log: &IndexedLog) -> u64 {
    let oldest = (0..log.len()).find(|&at| log.number(at) != Some(0));
    oldest.and_then(|at| log.first_sequence(at)).unwrap_or(1)
}

impl Changes {
    /// Adds the records of the segment at the position `at` from number `sequence` on.
    fn add_segment(
        &mut self,
        indexed: &IndexedLog,
        at: usize,
        sequence: u64,
        log: &Log,
        context: &Context,
    ) -> Outcome {
        let number = indexed.number(at).unwrap_or(0);
        match indexed.bytes(at) {
            Ok(bytes) => log.each_of(number, &bytes, context, &mut |entry| {
                if entry.sequence >= sequence {
                    self.add(&entry.record);
                }
                Ok(())
            }),
            Err(error) => {
                log.report(number, error, context);
                Ok(())
            }
        }
    }

    fn add(&mut self, record: &Record<'_>) {
        each_name_change(record, &mut |_, parent, name, exists| {
            if !name.is_empty() {
                self.names.insert((parent, name.into()), exists);
            }
        });
        match *record {
            Record::Write { file, .. }
            | Record::Truncate { file, .. }
            | Record::SetAttr { file, .. }
            | Record::Xattr { file, .. } => {
                self.files.insert(file);
            }
            Record::Mark(Mark::Crash) => self.has_crashed = true,
            Record::Mark(Mark::Lost(count)) => self.lost = self.lost.saturating_add(count),
            _ => {}
        }
    }

    fn print(
        &self,
        args: &Args,
        log: &Log,
        lineage: &mut Lineage,
        context: &Context,
        out: &mut Output,
    ) -> Outcome {
        let mut paths = Paths::new(&log.tree);
        // Whether a path exists at the end.
        let mut found: BTreeMap<Vec<u8>, bool> = BTreeMap::new();
        for ((parent, name), exists) in &self.names {
            found.insert(paths.path(lineage, *parent, name), *exists);
        }
        for &file in &self.files {
            go_on()?;
            found.extend(all_paths(file, lineage, &mut paths, log).into_iter().map(|path| (path, true)));
        }
        for (path, exists) in &found {
            // After a crash, the log may contain a change that the volume lost.
            let exists = *exists && log.tree.has(path);
            if context.json() {
                Line::new("changed").bytes("path", path).field("removed", !exists).write(out)?;
            } else if exists {
                // Relative, so that tar -C accepts the path.
                let relative = path.strip_prefix(b"/").filter(|path| !path.is_empty()).unwrap_or(b".");
                out.write_name(relative)?;
                out.write_all(if args.null { b"\0" } else { b"\n" })?;
            }
        }
        Ok(())
    }
}

/// Returns the paths of a file that exists.
fn all_paths(file: FileId, lineage: &mut Lineage, paths: &mut Paths, log: &Log) -> Vec<Vec<u8>> {
    let links = log.tree.links(file);
    if matches!(links, Links::None) {
        return Vec::new();
    }
    let end = lineage.log().len();
    let known = lineage.log().names(file, end);
    match links {
        Links::Directory if known.is_empty() => vec![paths.of_unnamed(lineage, file)],
        // A file may have names that are older than the log.
        Links::File(count) if known.len() < count => paths.in_volume(file).to_vec(),
        _ => known.iter().map(|(parent, name)| paths.path(lineage, *parent, name)).collect(),
    }
}
