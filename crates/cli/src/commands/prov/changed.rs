//! The files that changed since a record, for an incremental backup.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use obento::provenance::{Directories, FileId, Mark, Record};
use obento::{FileSelector, Ino, Symlinks};

use super::Args;
use super::log::Log;
use super::paths::Paths;
use crate::context::Context;
use crate::json::Line;
use crate::output::{Outcome, Output};
use crate::report::Report;

/// The names and files that records changed.
#[derive(Default)]
struct Changes {
    /// Names that were created or removed, and whether the last record created the name.
    names: BTreeMap<(Ino, Vec<u8>), bool>,
    /// Files whose data or attributes were changed, with or without a change of their names.
    files: BTreeSet<FileId>,
    /// All names of a file that the log contains.
    known: BTreeMap<FileId, BTreeSet<(Ino, Vec<u8>)>>,
    directories: Directories,
    next: u64,
    /// Number of records since the sequence number that are missing.
    lost: u64,
    /// Whether recording ended without a mark, so that records may be missing.
    has_crashed: bool,
}

/// Prints the paths that changed since the record `sequence`.
pub fn run(args: &Args, sequence: u64, log: &Log, context: &Context) -> Outcome {
    let first = log.first_sequence();
    if sequence < first {
        let cause = format!("the records before number {first} were removed");
        let report =
            Report::on(&format!("cannot list the changes since record {sequence} of"), log.shown(), cause);
        return Err(report.help("make a full backup").into());
    }
    let mut changes = Changes { next: first, ..Changes::default() };
    log.each(context, |entry| {
        let is_new = entry.sequence >= sequence
            && !matches!(entry.record, Record::Used { .. } | Record::Generated { .. });
        changes.add(&entry.record, is_new);
        changes.next = changes.next.max(entry.sequence.saturating_add(1));
        Ok(())
    })?;
    let mut out = Output::stdout();
    changes.print(args, log, context, &mut out)?;
    let gap = match (changes.lost, changes.has_crashed) {
        (0, false) => None,
        (0, true) => Some("recording ended without an unmount".to_owned()),
        (lost, _) => Some(format!("{lost} records are missing")),
    };
    if let Some(cause) = gap {
        let report = Report::on("the list may be incomplete for", log.shown(), cause);
        context.warn(&report.help("make a full backup"));
    }
    match context.json() {
        true => Line::new("provenance_end").field("next_sequence", changes.next).write(&mut out)?,
        false => {
            context.note(log.shown(), format!("the next backup starts with --changed-since {}", changes.next))
        }
    }
    out.finish()
}

impl Changes {
    fn add(&mut self, record: &Record<'_>, is_new: bool) {
        self.directories.add(record);
        match *record {
            Record::Create { parent, name, file, .. } | Record::Link { parent, name, file, .. } => {
                self.gains(file, parent, name, is_new);
            }
            Record::Remove { parent, name, file, .. } => self.loses(file, parent, name, is_new),
            Record::Rename { from, name, to, new_name, moved, replaced, exchange, .. } => {
                if let Some(other) = replaced {
                    self.loses(other, to, new_name, is_new);
                }
                self.loses(moved, from, name, is_new);
                self.gains(moved, to, new_name, is_new);
                if let Some(other) = replaced.filter(|_| exchange) {
                    self.gains(other, from, name, is_new);
                }
            }
            Record::Write { file, .. }
            | Record::Truncate { file, .. }
            | Record::SetAttr { file, .. }
            | Record::Xattr { file, .. }
                if is_new =>
            {
                self.files.insert(file);
            }
            Record::Mark(Mark::Crash) if is_new => self.has_crashed = true,
            Record::Mark(Mark::Lost(count)) if is_new => self.lost = self.lost.saturating_add(count),
            _ => {}
        }
    }

    fn gains(&mut self, file: FileId, parent: Ino, name: &[u8], is_new: bool) {
        if name.is_empty() {
            return;
        }
        self.known.entry(file).or_default().insert((parent, name.into()));
        if is_new {
            self.names.insert((parent, name.into()), true);
        }
    }

    fn loses(&mut self, file: FileId, parent: Ino, name: &[u8], is_new: bool) {
        if let Some(names) = self.known.get_mut(&file) {
            names.remove(&(parent, name.into()));
        }
        if is_new {
            self.names.insert((parent, name.into()), false);
        }
    }

    fn print(&self, args: &Args, log: &Log, context: &Context, out: &mut Output) -> Outcome {
        let mut paths = Paths::new(&log.volume);
        // Whether a path exists at the end.
        let mut found: BTreeMap<Vec<u8>, bool> = BTreeMap::new();
        for ((parent, name), exists) in &self.names {
            found.insert(paths.path(&self.directories, *parent, name), *exists);
        }
        for file in &self.files {
            let known = self.known.get(file).into_iter().flatten();
            let known: Vec<_> =
                known.map(|(parent, name)| paths.path(&self.directories, *parent, name)).collect();
            // A file may have names that are older than the log.
            let all = match links(log, *file) {
                Links::Directory if known.is_empty() => vec![paths.of_unnamed(&self.directories, *file)],
                Links::File(count) if known.len() < count => paths.in_volume(*file).to_vec(),
                _ => known,
            };
            found.extend(all.into_iter().map(|path| (path, true)));
        }
        for (path, exists) in &found {
            // After a crash, the log may contain a change that the volume lost.
            let place = FileSelector::Path(path.clone());
            let exists = *exists && log.volume.resolve(&place, Symlinks::Keep).is_ok();
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

/// The names that a file has in the volume.
enum Links {
    None,
    Directory,
    File(usize),
}

fn links(log: &Log, file: FileId) -> Links {
    let attr = log.volume.vfs().node(file.ino).and_then(|node| node.attr());
    match attr.ok().filter(|attr| attr.generation == file.generation) {
        None => Links::None,
        Some(attr) if attr.is_dir() => Links::Directory,
        Some(attr) => Links::File(usize::try_from(attr.nlink).unwrap_or(usize::MAX)),
    }
}
