//! All records, the newest first.

use std::collections::{HashMap, VecDeque};
use std::io::Write as _;
use std::ops::Range;

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

/// The maximum memory of events. A segment can contain millions of records, each with a long path.
const EVENTS_MAX: usize = 64 << 20;

/// Prints the selected records, segment by segment.
pub fn run(args: &Args, selection: Selection, log: &Log, context: &Context) -> Outcome {
    let (indexed, paths, out) = (log.indexed(context), Paths::new(&log.tree), Output::stdout());
    let mut printer = Printer { selection, log, context, indexed, paths, out };
    let mut left = args.lines;
    for at in (0..printer.indexed.len()).rev() {
        go_on()?;
        if left == Some(0) {
            break;
        }
        if !printer.selection.may_include(&printer.indexed, at) {
            continue;
        }
        let printed = match printer.indexed.bytes(at) {
            Ok(bytes) => printer.print(at, &bytes, left)?,
            Err(error) => {
                log.report(printer.indexed.number(at).unwrap_or(0), error, context);
                0
            }
        };
        left = left.map(|left| left.saturating_sub(printed));
        log.report_all(printer.indexed.take_damage(), context);
    }
    printer.out.finish()
}

/// Prints the records of segments.
struct Printer<'a> {
    selection: Selection,
    log: &'a Log,
    context: &'a Context,
    indexed: IndexedLog,
    paths: Paths,
    out: Output,
}

impl Printer<'_> {
    /// Prints the last selected records of the segment at the position `at`, at most `most`. Returns their number.
    fn print(&mut self, at: usize, bytes: &[u8], most: Option<usize>) -> Result<usize, Stop> {
        let start = most.map_or(0, |most| selected(bytes, &self.selection).saturating_sub(most));
        let (mut end, mut likely, mut printed) = (usize::MAX, usize::MAX, 0_usize);
        while start < end {
            // The part before has about as many events as this one, or more if its paths are shorter.
            let (first, events) = self.events(at, bytes, end.saturating_sub(likely).max(start)..end)?;
            if events.is_empty() {
                break;
            }
            for event in events.iter().rev() {
                match self.context.json() {
                    true => event.json().write(&mut self.out)?,
                    false => event.print(self.log, self.selection.clock(), &mut self.out)?,
                }
            }
            likely = events.len().saturating_mul(2);
            printed = printed.saturating_add(events.len());
            end = first;
        }
        Ok(printed)
    }

    /// Returns the last events of a segment, as many as fit into memory, and the number of the first one. `wanted` contains
    /// numbers of selected records of the segment.
    fn events(
        &mut self,
        at: usize,
        bytes: &[u8],
        wanted: Range<usize>,
    ) -> Result<(usize, VecDeque<Event>), Stop> {
        let number = self.indexed.number(at).unwrap_or(0);
        let (mut events, mut first, mut len) = (VecDeque::<Event>::new(), wanted.start, 0_usize);
        let names = SegmentNames::new(&mut self.indexed, at);
        let mut reader =
            EventReader { actors: HashMap::new(), names, paths: &mut self.paths, next: 0, wanted };
        self.log.each_of(number, bytes, self.context, &mut |entry| {
            go_on()?;
            let Some(event) = reader.event(entry, &self.selection) else { return Ok(()) };
            len = len.saturating_add(event.len());
            events.push_back(event);
            while len > EVENTS_MAX
                && events.len() > 1
                && let Some(oldest) = events.pop_front()
            {
                len = len.saturating_sub(oldest.len());
                first = first.saturating_add(1);
            }
            Ok(())
        })?;
        Ok((first, events))
    }
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
    /// The number of the next selected record.
    next: usize,
    /// The numbers of the records to be listed.
    wanted: Range<usize>,
}

impl EventReader<'_> {
    /// Returns the event of the next record, if it is selected.
    fn event(&mut self, entry: &Entry<'_>, selection: &Selection) -> Option<Event> {
        if self.next >= self.wanted.end {
            return None;
        }
        if let Record::Actor { id, actor } = entry.record {
            self.actors.insert(id, actor);
            return None;
        }
        let actor = entry.record.actor().and_then(|id| self.actors.get(&id)).copied();
        let mut is_selected = selection.includes(entry, actor.as_ref());
        if is_selected {
            is_selected = self.next >= self.wanted.start;
            self.next = self.next.saturating_add(1);
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
    /// Returns its length in memory.
    fn len(&self) -> usize {
        let detail = match &self.detail {
            Detail::Created { target: bytes, .. } | Detail::Attribute(bytes) | Detail::Source(bytes) => {
                bytes.len()
            }
            Detail::Attributes(names) => size_of_val(names.as_slice()),
            _ => 0,
        };
        let paths = [&self.path, &self.other].into_iter().flatten().map(Vec::len).sum::<usize>();
        size_of::<Self>().saturating_add(detail).saturating_add(paths)
    }

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
