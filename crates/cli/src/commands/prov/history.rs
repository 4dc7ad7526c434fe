//! All records, the newest first.

use std::collections::HashMap;
use std::io::Write as _;

use obento::base::{FileKind, Quantity};
use obento::provenance::{
    Actor, ActorId, Entries, Entry, FileId, IndexedLog, Mark, OpenMode, Record, SegmentNames, Transferred,
};

use super::args::Args;
use super::log::Log;
use super::paths::Paths;
use super::select::{Selection, timestamp};
use crate::context::Context;
use crate::format::mode::kind_word;
use crate::format::time::{Clock, TimeStyle};
use crate::json::Line;
use crate::output::{Outcome, Output, Stop, go_on};
use crate::report::printable;

/// Prints the selected records, segment by segment.
pub fn run(args: &Args, mut selection: Selection, log: &Log, context: &Context) -> Outcome {
    let mut left = args.lines.unwrap_or(usize::MAX);
    let mut indexed = log.indexed(context);
    let mut paths = Paths::new(&log.tree);
    let mut out = Output::stdout();
    for at in (0..indexed.len()).rev() {
        go_on()?;
        if left == 0 {
            break;
        }
        if !selection.may_include(&indexed, at) {
            continue;
        }
        let events = events(&mut indexed, at, left, &selection, &mut paths, log, context)?;
        left -= events.len();
        for event in events.iter().rev() {
            match context.json() {
                true => event.json().write(&mut out)?,
                false => event.print(log, selection.clock(), &mut out)?,
            }
        }
        log.report_all(indexed.take_damage(), context);
    }
    out.finish()
}

/// Returns the last events of the segment at the position `at`, at most `most`.
fn events(
    indexed: &mut IndexedLog,
    at: usize,
    most: usize,
    selection: &Selection,
    paths: &mut Paths,
    log: &Log,
    context: &Context,
) -> std::result::Result<Vec<Event>, Stop> {
    let number = indexed.number(at).unwrap_or(0);
    let mut events = Vec::new();
    let bytes = match indexed.bytes(at) {
        Ok(bytes) => bytes,
        Err(error) => {
            log.report(number, error, context);
            return Ok(events);
        }
    };
    let before = match most {
        usize::MAX => 0,
        most => selected(&bytes, selection).saturating_sub(most),
    };
    let names = SegmentNames::new(indexed, at);
    let mut reader = EventReader { actors: HashMap::new(), names, paths, before };
    log.each_of(number, &bytes, context, &mut |entry| {
        events.extend(reader.event(entry, selection));
        Ok(())
    })?;
    Ok(events)
}

/// Returns the number of selected records of a segment. To find the path of each would take much longer.
fn selected(segment: &[u8], selection: &Selection) -> usize {
    let mut actors: HashMap<ActorId, Actor> = HashMap::new();
    let is_selected = |entry: &Entry<'_>| {
        if let Record::Actor { id, actor } = entry.record {
            actors.insert(id, actor);
            return false;
        }
        selection.includes(entry, entry.record.actor().and_then(|id| actors.get(&id)))
    };
    Entries::new(segment).flatten().filter(is_selected).count()
}

/// A record, with the names of the time when it was written.
struct Event {
    sequence: u64,
    /// `None`: an edge whose segment was removed.
    time: Option<i64>,
    actor: Option<Actor>,
    verb: &'static str,
    file: Option<FileId>,
    path: Option<Vec<u8>>,
    /// The other path of a rename.
    other: Option<Vec<u8>>,
    detail: Detail,
}

/// What only some records have.
enum Detail {
    None,
    Mode(OpenMode),
    Transfer {
        read: Transferred,
        written: Transferred,
    },
    Created {
        kind: FileKind,
        mode: u16,
        target: Vec<u8>,
    },
    Links(u32),
    Size(u64),
    Attributes(Vec<&'static str>),
    Attribute(Vec<u8>),
    Count(u64),
    Version(u64),
    /// The name of a file outside of the volume.
    Source(Vec<u8>),
    Exchange,
}

/// Turns the records of a segment into events.
struct EventReader<'a> {
    actors: HashMap<ActorId, Actor>,
    names: SegmentNames<'a>,
    paths: &'a mut Paths,
    /// The number of selected records that are older than those to be listed.
    before: usize,
}

impl EventReader<'_> {
    /// Returns the event of the next record, if it is selected.
    fn event(&mut self, entry: &Entry<'_>, selection: &Selection) -> Option<Event> {
        if let Record::Actor { id, actor } = entry.record {
            self.actors.insert(id, actor);
            return None;
        }
        let actor = entry.record.actor().and_then(|id| self.actors.get(&id)).copied();
        let mut is_selected = selection.includes(entry, actor.as_ref());
        if is_selected && self.before > 0 {
            (self.before, is_selected) = (self.before.saturating_sub(1), false);
        }
        // A removal, and the old name of a rename, name the file as it was.
        let before = is_selected.then(|| self.path_of(&entry.record)).flatten();
        self.names.add(&entry.record);
        if !is_selected {
            return None;
        }
        let (verb, detail) = describe(&entry.record);
        let renamed = match entry.record {
            Record::Rename { to, new_name, .. } => Some(self.paths.path(&mut self.names, to, new_name)),
            _ => None,
        };
        let is_compacted = matches!(entry.record, Record::Used { .. } | Record::Generated { .. });
        Some(Event {
            sequence: entry.sequence,
            time: (!is_compacted).then_some(entry.time),
            actor,
            verb,
            file: entry.record.file(),
            path: before,
            other: renamed,
            detail,
        })
    }

    /// Returns the path of the file of a record before the record.
    fn path_of(&mut self, record: &Record<'_>) -> Option<Vec<u8>> {
        let named = match *record {
            Record::Create { parent, name, .. }
            | Record::Link { parent, name, .. }
            | Record::Remove { parent, name, .. }
            | Record::Generated { parent, name, .. } => Some((parent, name)),
            Record::Rename { from, name, .. } => Some((from, name)),
            _ => None,
        };
        if let Some((parent, name)) = named.filter(|(_, name)| !name.is_empty()) {
            return Some(self.paths.path(&mut self.names, parent, name));
        }
        record.file().map(|file| self.paths.of_file(&mut self.names, file))
    }
}

fn describe(record: &Record<'_>) -> (&'static str, Detail) {
    match *record {
        Record::Open { mode, .. } => ("open", Detail::Mode(mode)),
        Record::Close { read, written, .. } => ("close", Detail::Transfer { read, written }),
        Record::Create { kind, mode, target, .. } => {
            ("create", Detail::Created { kind, mode, target: target.into() })
        }
        Record::Link { .. } => ("link", Detail::None),
        Record::Remove { links, .. } => ("remove", Detail::Links(links)),
        Record::Rename { exchange: true, .. } => ("rename", Detail::Exchange),
        Record::Rename { .. } => ("rename", Detail::None),
        Record::Write { written, .. } => {
            ("write", Detail::Transfer { read: Transferred::default(), written })
        }
        Record::Truncate { size, .. } => ("truncate", Detail::Size(size)),
        Record::SetAttr { mask, .. } => ("attributes", Detail::Attributes(mask.names().collect())),
        Record::Xattr { name, removed: false, .. } => ("xattr", Detail::Attribute(name.into())),
        Record::Xattr { name, .. } => ("xattr-remove", Detail::Attribute(name.into())),
        Record::Used { version, .. } => ("used", Detail::Version(version)),
        Record::Generated { version, .. } => ("generated", Detail::Version(version)),
        Record::Source { name, .. } => ("source", Detail::Source(name.into())),
        Record::Mark(Mark::Mount { .. }) => ("mount", Detail::None),
        Record::Mark(Mark::Unmount) => ("unmount", Detail::None),
        Record::Mark(Mark::Crash) => ("crash", Detail::None),
        Record::Mark(Mark::Lost(count)) => ("lost", Detail::Count(count)),
        Record::Mark(Mark::Upgrade) => ("upgrade", Detail::None),
        Record::Actor { .. } | Record::Unknown { .. } => ("unknown", Detail::None),
    }
}

impl Event {
    fn print(&self, log: &Log, clock: &mut Clock, out: &mut Output) -> Outcome {
        let time = self.time.map_or_else(|| "-".to_owned(), |time| seconds(clock, time));
        write!(out, "{:>8} {time:<19} ", self.sequence)?;
        match &self.actor {
            Some(actor) => {
                let user = log.tree.user(actor.uid).map_or_else(|| actor.uid.to_string(), printable);
                let program = format!("{}[{}]", printable(actor.comm()), actor.pid);
                write!(out, "{user:<8} {program:<18} ")?;
            }
            None => write!(out, "{:<8} {:<18} ", "-", "-")?,
        }
        write!(out, "{}", self.verb)?;
        if let Some(path) = &self.path {
            write!(out, "{:pad$} ", "", pad = 10usize.saturating_sub(self.verb.len()))?;
            out.write_name(path)?;
        }
        if let Some(other) = &self.other {
            out.write_all(if matches!(self.detail, Detail::Exchange) { b" <-> " } else { b" -> " })?;
            out.write_name(other)?;
        }
        self.print_detail(out)?;
        Ok(writeln!(out)?)
    }

    fn print_detail(&self, out: &mut Output) -> Outcome {
        let range = |done: &Transferred| {
            format!("{} in {}-{}", Quantity::new(done.bytes, "byte"), done.start, done.end)
        };
        match &self.detail {
            Detail::None | Detail::Exchange => {}
            Detail::Mode(mode) => write!(out, " ({})", mode_word(*mode))?,
            Detail::Transfer { read, written } => {
                if read.bytes > 0 {
                    write!(out, " (read {})", range(read))?;
                }
                if written.bytes > 0 {
                    write!(out, " (wrote {})", range(written))?;
                }
            }
            Detail::Created { target, .. } if !target.is_empty() => {
                out.write_all(b" -> ")?;
                out.write_name(target)?;
            }
            Detail::Created { kind: FileKind::Regular, .. } => {}
            Detail::Created { kind, .. } => write!(out, " ({})", kind_word(*kind))?,
            Detail::Links(0) => {}
            Detail::Links(links) => write!(out, " ({})", Quantity::new((*links).into(), "other name"))?,
            Detail::Size(size) => write!(out, " (to {})", Quantity::new(*size, "byte"))?,
            Detail::Attributes(names) => write!(out, " ({})", names.join(", "))?,
            Detail::Attribute(name) => {
                out.write_all(b" ")?;
                out.write_name(name)?;
            }
            Detail::Count(count) => write!(out, " ({})", Quantity::new(*count, "record"))?,
            Detail::Version(version) => write!(out, " (version {version})")?,
            Detail::Source(name) => {
                out.write_all(b" <- ")?;
                out.write_name(name)?;
            }
        }
        Ok(())
    }

    fn json(&self) -> Line {
        let mut line = Line::new("provenance").field("sequence", self.sequence).field("event", self.verb);
        line = match self.time {
            Some(time) => line.time("time", timestamp(time)),
            None => line.field("time", None::<&str>),
        };
        if let Some(actor) = &self.actor {
            line = process(line, actor);
        }
        if let Some(path) = &self.path {
            line = line.bytes("path", path);
        }
        if let Some(other) = &self.other {
            line = line.bytes("new_path", other);
        }
        if let Some(file) = self.file {
            line = line.field("ino", file.ino.0).field("generation", file.generation.0);
        }
        self.json_detail(line)
    }

    fn json_detail(&self, line: Line) -> Line {
        let transfer = |line: Line, key: &str, done: &Transferred| {
            let line = line.field(key, done.bytes).field(&format!("{key}_start"), done.start);
            line.field(&format!("{key}_end"), done.end)
        };
        match &self.detail {
            Detail::None => line,
            Detail::Exchange => line.field("exchange", true),
            Detail::Mode(mode) => line.field("read", mode.read).field("write", mode.write),
            Detail::Transfer { read, written } => match self.verb {
                "close" => transfer(transfer(line, "bytes_read", read), "bytes_written", written),
                _ => transfer(line, "bytes_written", written),
            },
            Detail::Created { kind, mode, target } => {
                let line = line.field("type", kind_word(*kind)).field("mode", format_args!("{mode:04o}"));
                if target.is_empty() { line } else { line.bytes("target", target) }
            }
            Detail::Links(links) => line.field("nlink", links),
            Detail::Size(size) => line.field("size", size),
            Detail::Attributes(names) => line.field("attributes", names),
            Detail::Attribute(name) => line.bytes("name", name),
            Detail::Count(count) => line.field("records", count),
            Detail::Version(version) => line.field("version", version),
            Detail::Source(name) => line.bytes("source", name),
        }
    }
}

/// Adds a process.
pub fn process(line: Line, actor: &Actor) -> Line {
    let line = line.field("pid", actor.pid).field("process_start", actor.start);
    line.field("uid", actor.uid).field("gid", actor.gid).bytes("program", actor.comm())
}

/// Returns a time without the fraction of a second.
pub fn seconds(clock: &mut Clock, micros: i64) -> String {
    let mut text = clock.text(&TimeStyle::FullIso, timestamp(micros));
    if let Some(point) = text.find('.') {
        text.truncate(point);
    }
    text
}

fn mode_word(mode: OpenMode) -> &'static str {
    match (mode.read, mode.write) {
        (true, true) => "read, write",
        (false, true) => "write",
        _ => "read",
    }
}
