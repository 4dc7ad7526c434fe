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
    let mut printer = Printer { args, log, context, paths: Paths::new(&log.tree), has_cut: false };
    printer.print(&changes, &mut lineage, &mut out)?;
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
    if printer.has_cut {
        let cause = "the path of a changed file has more than 512 directories or 4096 bytes";
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
}

/// The maximum length of the paths that are in memory at once. A log can contain many names in directories with long paths.
const PATHS_MAX: usize = 64 << 20;

/// A part of the paths that changed, in their order.
struct Part {
    /// The last path of the part before; `None` for the first part.
    after: Option<Vec<u8>>,
    /// Whether each path exists at the end.
    found: BTreeMap<Vec<u8>, bool>,
    len: usize,
    most: usize,
    /// Whether greater paths were left out.
    has_more: bool,
}

impl Part {
    fn after(after: Option<Vec<u8>>, most: usize) -> Self {
        Self { after, found: BTreeMap::new(), len: 0, most, has_more: false }
    }

    /// Adds a path, or changes whether it exists. If the part has too many bytes, its greatest path is left out, and so are
    /// all that follow it.
    fn add(&mut self, path: Vec<u8>, exists: bool) {
        let is_before = self.after.as_ref().is_some_and(|after| path <= *after);
        let is_beyond = || self.has_more && self.found.last_key_value().is_none_or(|(last, _)| path > *last);
        if is_before || is_beyond() {
            return;
        }
        let len = path.len();
        if self.found.insert(path, exists).is_none() {
            self.len = self.len.saturating_add(len);
        }
        while self.len > self.most
            && self.found.len() > 1
            && let Some((last, _)) = self.found.pop_last()
        {
            self.len = self.len.saturating_sub(last.len());
            self.has_more = true;
        }
    }
}

/// Prints the paths of changes.
struct Printer<'a> {
    args: &'a Args,
    log: &'a Log,
    context: &'a Context,
    paths: Paths,
    /// Whether a path was too long.
    has_cut: bool,
}

impl Printer<'_> {
    fn print(&mut self, changes: &Changes, lineage: &mut Lineage, out: &mut Output) -> Outcome {
        let mut part = Part::after(None, PATHS_MAX);
        loop {
            self.find(changes, lineage, &mut part)?;
            for (path, exists) in &part.found {
                go_on()?;
                self.print_path(path, *exists, out)?;
            }
            if !part.has_more {
                return Ok(());
            }
            part = Part::after(part.found.pop_last().map(|(last, _)| last), PATHS_MAX);
        }
    }

    /// Adds the paths that belong to a part.
    fn find(&mut self, changes: &Changes, lineage: &mut Lineage, part: &mut Part) -> Outcome {
        for ((parent, name), exists) in &changes.names {
            go_on()?;
            let path = self.paths.path(lineage, *parent, name);
            match self.paths.take_cut() {
                true => self.has_cut = true,
                false => part.add(path, *exists),
            }
        }
        for &file in &changes.files {
            go_on()?;
            each_path(file, lineage, &mut self.paths, self.log, &mut |path| {
                // The rest of a path that was cut is reported.
                if path.starts_with(b"/") {
                    part.add(path, true);
                }
            });
            self.has_cut |= self.paths.take_cut();
        }
        Ok(())
    }

    fn print_path(&self, path: &[u8], exists: bool, out: &mut Output) -> Outcome {
        // After a crash, the log may contain a change that the volume lost.
        let exists = exists && self.log.tree.has(path);
        if self.context.json() {
            Line::new("changed").bytes("path", path).field("removed", !exists).write(out)?;
        } else if exists {
            // Relative, so that tar -C accepts the path.
            let relative = path.strip_prefix(b"/").filter(|path| !path.is_empty()).unwrap_or(b".");
            out.write_name(relative)?;
            out.write_all(if self.args.null { b"\0" } else { b"\n" })?;
        }
        Ok(())
    }
}

/// Passes the paths of a file that exists to `add`. A hostile log contains many names of one file.
fn each_path(
    file: FileId,
    lineage: &mut Lineage,
    paths: &mut Paths,
    log: &Log,
    add: &mut dyn FnMut(Vec<u8>),
) {
    let links = log.tree.links(file);
    if matches!(links, Links::None) {
        return;
    }
    let end = lineage.log().len();
    let known = lineage.log().names(file, end);
    match links {
        Links::Directory if known.is_empty() => add(paths.of_unnamed(lineage, file)),
        // A file may have names that are older than the log.
        Links::File(count) if known.len() < count => {
            let names = paths.names_in_volume(file).to_vec();
            names.iter().for_each(|name| add(paths.path_in_volume(name)));
        }
        _ => known.iter().for_each(|(parent, name)| add(paths.path(lineage, *parent, name))),
    }
}
