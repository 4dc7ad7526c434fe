//! The sources or the products of a file, as a tree.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use obento::base::{FileKind, Mode, Quantity};
use obento::provenance::{FileId, Lineage, Version};

use super::args::Args;
use super::history::{process, seconds};
use super::log::Log;
use super::paths::Paths;
use super::select::timestamp;
use crate::context::Context;
use crate::format::colors::{ColorTarget, Colors, Painter};
use crate::format::time::Clock;
use crate::json::Line;
use crate::output::{Outcome, Output, go_on};
use crate::pager::Pager;
use crate::report::{Report, printable};

/// The most lines of a tree, and its greatest depth, unless the user sets a number of lines. A program that used and wrote
/// many files has a tree whose size is the square of their number.
const LINES_MAX: usize = 10_000;
const DEPTH_MAX: usize = 256;

/// The direction of a tree.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Back,
    Forward,
}

/// Prints the lineage of the file `path`.
pub fn run(
    args: &Args,
    path: &OsStr,
    log: &Log,
    clock: Clock,
    pager: Option<Pager>,
    context: &Context,
) -> Outcome {
    let mut lineage = Lineage::new(log.indexed(context));
    let mut paths = Paths::new(&log.tree);
    let file = find(path.as_bytes(), &mut lineage, &mut paths, log)?;
    let painter = context.colors().then(|| Painter::new(Colors::from_env()));
    let mut drawer = Drawer {
        lineage,
        paths,
        log,
        clock,
        painter,
        out: Output::paged(pager),
        direction: if args.forward { Direction::Forward } else { Direction::Back },
        is_ascii: args.ascii,
        is_json: context.json(),
        depth: 0,
        programs: HashSet::new(),
        left: args.lines.unwrap_or(LINES_MAX),
        // A tree is never deeper than it is long.
        depth_max: if args.lines.is_some() { usize::MAX } else { DEPTH_MAX },
        excess: None,
    };
    let newest = drawer.lineage.newest(file);
    drawer.draw(newest)?;
    // Messages follow the output, since a pager uses the whole terminal.
    drawer.out.finish()?;
    log.report_all(drawer.lineage.log().take_damage(), context);
    if let Some(excess) = drawer.excess.filter(|_| args.lines.is_none()) {
        let shown = [log.shown(), b":", path.as_bytes()].concat();
        let cause = match excess {
            Excess::Lines => format!("the tree has more than {LINES_MAX} lines"),
            Excess::Depth => format!("the tree has more than {DEPTH_MAX} levels"),
        };
        let report = Report::on("cannot show the whole tree of", shown, cause);
        context.warn(&report.help("show more lines with -n N, or the whole graph with --export"));
    }
    Ok(())
}

/// Returns the file at `path` in the volume, or the last file with this path in the log.
fn find(path: &[u8], lineage: &mut Lineage, paths: &mut Paths, log: &Log) -> Result<FileId, Report> {
    if let Some(file) = log.tree.find(path) {
        return Ok(file);
    }
    let absolute = [b"/", path.strip_prefix(b"/").unwrap_or(path)].concat();
    let mut removed = None;
    let name = absolute.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    for file in lineage.log().named(name) {
        let end = lineage.removed(file).map_or(0, |removal| removal.sequence);
        if paths.of_file(lineage, file) == absolute && removed.is_none_or(|(known, _)| known < end) {
            removed = Some((end, file));
        }
    }
    removed.map(|(_, file)| file).ok_or_else(|| {
        let shown = [log.shown(), b":", path].concat();
        Report::on(
            "cannot show the sources of",
            shown,
            "neither the volume nor its history has a file with this path",
        )
    })
}

struct Drawer<'a> {
    lineage: Lineage,
    paths: Paths,
    log: &'a Log,
    clock: Clock,
    painter: Option<Painter>,
    out: Output,
    direction: Direction,
    is_ascii: bool,
    is_json: bool,
    /// The greatest number of steps from the file.
    depth: usize,
    programs: HashSet<Vec<u8>>,
    /// The number of lines that may still be printed.
    left: usize,
    depth_max: usize,
    /// Why versions were left out.
    excess: Option<Excess>,
}

/// The limit of a tree that was exceeded.
#[derive(Clone, Copy)]
enum Excess {
    Lines,
    Depth,
}

/// A version whose neighbours are being drawn.
struct Level {
    version: Version,
    /// The remaining neighbours, in reverse order.
    rest: Vec<Version>,
    /// Length of the prefix of their lines.
    lead: usize,
}

/// The versions from the top of a tree to the current line.
///
/// Invariant: the levels have no more neighbours than lines may still be printed, and one: so a program that used many
/// files does not need memory for each pair of them.
#[derive(Default)]
struct Levels {
    stack: Vec<Level>,
    /// The number of neighbours of all levels.
    count: usize,
    /// The levels below this one have no neighbours.
    first: usize,
}

impl Levels {
    fn push(&mut self, level: Level, left: usize) {
        self.count = self.count.saturating_add(level.rest.len());
        self.stack.push(level);
        // The neighbours of the first level are printed last.
        let mut excess = self.count.saturating_sub(left.saturating_add(1));
        while excess > 0
            && let Some(level) = self.stack.get_mut(self.first)
        {
            let len = excess.min(level.rest.len());
            level.rest.drain(..len);
            self.count = self.count.saturating_sub(len);
            excess = excess.saturating_sub(len);
            if level.rest.is_empty() {
                self.first = self.first.saturating_add(1);
            }
        }
    }

    /// Returns the next version, and the level that contained it.
    fn pop(&mut self) -> Option<(Version, &Level)> {
        while self.stack.last()?.rest.is_empty() {
            self.stack.pop();
            self.first = self.first.min(self.stack.len());
        }
        let level = self.stack.last_mut()?;
        let version = level.rest.pop()?;
        self.count = self.count.saturating_sub(1);
        Some((version, level))
    }
}

impl Drawer<'_> {
    fn draw(&mut self, top: Version) -> Outcome {
        let mut drawn = HashSet::new();
        self.draw_lines(top, &mut drawn)?;
        self.summary(drawn.len())
    }

    /// Draws the lines of the tree of `top`, up to the limits.
    fn draw_lines(&mut self, top: Version, drawn: &mut HashSet<Version>) -> Outcome {
        if !self.takes_line() {
            return Ok(());
        }
        drawn.insert(top);
        self.line("", top, None, 0, false)?;
        let (mut lead, mut levels) = (String::new(), Levels::default());
        levels.push(self.level(top, 0), self.left);
        while let Some((version, level)) = levels.pop() {
            go_on()?;
            lead.truncate(level.lead);
            if !self.takes_line() {
                return Ok(());
            }
            let (stem, below) = strokes(self.is_ascii, level.rest.is_empty());
            let (of, is_repeated) = (level.version, !drawn.insert(version));
            let depth = levels.stack.len();
            self.depth = self.depth.max(depth);
            self.line(&format!("{lead}{stem}"), version, Some(of), depth, is_repeated)?;
            if is_repeated {
                continue;
            }
            lead.push_str(below);
            let level = self.level(version, lead.len());
            if depth < self.depth_max {
                levels.push(level, self.left);
            } else if !level.rest.is_empty() {
                self.excess = Some(Excess::Depth);
            }
        }
        Ok(())
    }

    /// Returns whether another line may be printed.
    fn takes_line(&mut self) -> bool {
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or_else(|| {
            self.excess = Some(Excess::Lines);
            0
        });
        left.is_some()
    }

    fn level(&mut self, version: Version, lead: usize) -> Level {
        let mut rest = match self.direction {
            Direction::Back => self.lineage.sources(version),
            Direction::Forward => self.lineage.products(version),
        };
        rest.reverse();
        Level { version, rest, lead }
    }

    fn line(
        &mut self,
        lead: &str,
        version: Version,
        of: Option<Version>,
        depth: usize,
        is_repeated: bool,
    ) -> Outcome {
        let path = self.paths.of_file(&mut self.lineage, version.file);
        if self.is_json {
            return self.json(version, of, depth, &path);
        }
        let mut text = lead.as_bytes().to_vec();
        let shown = self.out.shown(&path).into_owned();
        let look = ColorTarget::File { kind: FileKind::Regular, mode: Mode::new(0o644), nlink: 1 };
        let is_removed = self.lineage.removed(version.file).is_some();
        let look = if is_removed { ColorTarget::Missing } else { look };
        match &mut self.painter {
            Some(painter) => painter.paint(&mut text, &path, look, &shown),
            None => text.extend_from_slice(&shown),
        }
        if is_removed {
            text.extend_from_slice(b" (removed)");
        }
        text.extend_from_slice(self.origin(version).as_bytes());
        if let Some(source) = self.lineage.origin(version) {
            text.extend_from_slice(b", from ");
            text.extend_from_slice(&self.out.shown(source));
        }
        text.extend_from_slice(if is_repeated { b" (shown above)\n" } else { b"\n" });
        Ok(self.out.write_all(&text)?)
    }

    /// Returns by which program, by whom and when a version was written.
    fn origin(&mut self, version: Version) -> String {
        let Some(edge) = self.lineage.generation(version) else { return "  older than the log".into() };
        self.programs.insert(edge.actor.comm().to_vec());
        let user = self.log.tree.user(edge.actor.uid);
        let user = user.map_or_else(|| edge.actor.uid.to_string(), printable);
        let program = printable(edge.actor.comm());
        let time = match edge.time {
            0 => String::new(),
            time => format!(", {}", seconds(&mut self.clock, time)),
        };
        format!("  version {} by {program}[{}], user {user}{time}", version.number, edge.actor.pid)
    }

    fn json(&mut self, version: Version, of: Option<Version>, depth: usize, path: &[u8]) -> Outcome {
        let line = Line::new("lineage").bytes("path", path).field("depth", depth);
        let line = line.field("id", id(version)).field("of", of.map(id));
        let line = line.field("ino", version.file.ino.0).field("generation", version.file.generation.0);
        let line = line
            .field("version", version.number)
            .field("removed", self.lineage.removed(version.file).is_some());
        let line = match self.lineage.generation(version) {
            Some(edge) if edge.time != 0 => process(line, &edge.actor).time("time", timestamp(edge.time)),
            Some(edge) => process(line, &edge.actor),
            None => line,
        };
        let line = match self.lineage.origin(version) {
            Some(source) => line.bytes("source", source),
            None => line,
        };
        Ok(line.field("certainty", of.map(|_| "possible")).write(&mut self.out)?)
    }

    fn summary(&mut self, files: usize) -> Outcome {
        if self.is_json {
            return Ok(());
        }
        let count = |count: usize, one| Quantity::new(count as u64, one);
        let (versions, steps) = (count(files, "version"), count(self.depth, "step"));
        let programs = count(self.programs.len(), "program");
        let more = match self.excess {
            None => "",
            Some(_) if self.depth_max == DEPTH_MAX => " and more",
            Some(_) => " and more, which -n excludes",
        };
        Ok(writeln!(
            self.out,
            "\n{versions}, {steps}, {programs}{more}; each source is possible, not certain"
        )?)
    }
}

/// Returns the name of a version in JSON and in exports: inode number, generation and version.
pub fn id(version: Version) -> String {
    format!("{}.{}.{}", version.file.ino, version.file.generation.0, version.number)
}

/// Returns the prefix of a line, and that of the lines below it.
fn strokes(is_ascii: bool, is_last: bool) -> (&'static str, &'static str) {
    match (is_ascii, is_last) {
        (true, false) => ("|-- ", "|   "),
        (true, true) => ("`-- ", "    "),
        (false, false) => ("├── ", "│\u{a0}\u{a0} "),
        (false, true) => ("└── ", "    "),
    }
}
