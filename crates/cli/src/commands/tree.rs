//! `obento tree`: draws a directory tree, as tree(1) does.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::Write;
use std::ops::ControlFlow;

use obento::base::{Attr, FileKind, Ino, NameBuf, Quantity};
use obento::driver::{Cookie, DirEntry};
use obento::vfs::Symlinks;
use obento::volume::Owners;
use obento::{Error, Node, Result};

use crate::context::Context;
use crate::escape::{NameStyle, escape};
use crate::format::colors::{ColorTarget, Colors, Painter};
use crate::format::mode::{classify, mode_string};
use crate::help::page::Page;
use crate::json::Line;
use crate::open::{Found, damaged, find_all};
use crate::output::{Outcome, Output};
use crate::report::Report;

/// The page of `tree`.
pub const PAGE: Page = Page::new(&[("obento tree -L 2 disk.img", "Draw the upper two levels of a volume")])
    .see_also(&["tree(1)"]);

/// Draw directory trees
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Images, and directories in them
    #[arg(required = true, value_name = "IMAGE[:PATH]")]
    paths: Vec<OsString>,
    /// Also show names that start with a dot
    #[arg(short, long)]
    all: bool,
    /// Show directories only
    #[arg(short, long)]
    dirs_only: bool,
    /// Show at most N levels
    #[arg(short = 'L', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    level: Option<u32>,
    /// Show types and modes
    #[arg(short, long)]
    perm: bool,
    /// Show owners
    #[arg(short, long)]
    user: bool,
    /// Show groups
    #[arg(short, long)]
    group: bool,
    /// Show sizes in bytes
    #[arg(short, long)]
    size: bool,
    /// Show sizes such as 1.5K
    #[arg(short = 'h', long)]
    human: bool,
    /// Append one of */=>| to names, by type
    #[arg(short = 'F', long)]
    classify: bool,
    /// Show the full path of each file
    #[arg(short = 'f', long)]
    full_path: bool,
    /// List directories before files
    #[arg(long)]
    dirsfirst: bool,
    /// Show only names, without lines
    #[arg(short = 'i', long)]
    no_indent: bool,
    /// Omit the counts at the end
    #[arg(long)]
    noreport: bool,
    /// Draw with ASCII characters
    #[arg(long)]
    ascii: bool,
    /// Do not use colours
    #[arg(short, overrides_with = "colors")]
    no_colors: bool,
    /// Use colours even if the output is not a terminal
    #[arg(short = 'C', overrides_with = "no_colors")]
    colors: bool,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let found = find_all(&args.paths, Symlinks::Follow, context, |report| context.fail(report));
    let colors = args.colors || (context.colors() && !args.no_colors);
    let painter = colors.then(|| Painter::new(Colors::from_env()));
    let out = Output::stdout();
    let style = if out.is_terminal() { NameStyle::Backslash } else { NameStyle::Literal };
    let mut drawer = Drawer { args, context, painter, out, style, directories: 0, files: 0 };
    let any = !found.is_empty();
    for top in found {
        drawer.tree(&top)?;
    }
    if any && !args.noreport && !context.json() {
        drawer.report()?;
    }
    drawer.out.finish()
}

struct Drawer<'a> {
    args: &'a Args,
    context: &'a Context,
    painter: Option<Painter>,
    out: Output,
    style: NameStyle,
    directories: u64,
    files: u64,
}

/// A directory that is being drawn. The paths and the line prefixes of all levels share one buffer each. Separate
/// buffers of a deep tree would need space for the square of its depth.
struct Level {
    directory: Node,
    /// The remaining entries, in reverse order.
    entries: Vec<Child>,
    /// The length of its path.
    path: usize,
    /// The length of the prefix of its lines.
    lead: usize,
}

/// An entry of a directory. Its inode is referenced only when it is drawn.
struct Child {
    name: NameBuf,
    ino: Ino,
    kind: Option<FileKind>,
}

impl Child {
    /// Returns the file. The driver may have forgotten the number of a file that is not in use. The file is then found
    /// by its name in `directory`.
    fn node(&self, directory: &Node) -> Result<Node> {
        let Self { name, ino, kind } = self;
        directory.child(&DirEntry { name, ino: *ino, kind: *kind, next: Cookie::START })
    }
}

/// The number of entries of all directories on the current path that are held at once.
const MAX_NAMES: usize = 1 << 20;
/// Deeper than one path in Linux can be.
const MAX_DEPTH: usize = 1 << 14;

impl Drawer<'_> {
    /// Draws one operand. Not recursive, and a directory is drawn once: a damaged volume may contain cycles.
    fn tree(&mut self, top: &Found) -> Outcome {
        let owners = top.location.volume.owners();
        let shown = top.shown();
        let attr = top.node.attr().ok();
        self.line("", &shown, &shown, attr.as_ref(), &top.node, owners)?;
        if !attr.is_some_and(|attr| attr.is_dir()) {
            self.context.fail(&Report::on("cannot draw", &shown, "not a directory"));
            return Ok(());
        }
        self.directories += 1;
        let mut entered: HashSet<Ino> = HashSet::from([top.node.ino()]);
        let (mut path, mut lead) = (shown, String::new());
        let entries = self.children(&top.node, &path, MAX_NAMES);
        let mut levels = vec![Level { directory: top.node.clone(), entries, path: path.len(), lead: 0 }];
        loop {
            let depth = levels.len();
            let Some(level) = levels.last_mut() else { break };
            path.truncate(level.path);
            lead.truncate(level.lead);
            let Some(child) = level.entries.pop() else {
                levels.pop();
                continue;
            };
            let (stem, below) = self.strokes(level.entries.is_empty());
            if !path.ends_with(b"/") {
                path.push(b'/');
            }
            path.extend_from_slice(child.name.as_bytes());
            let Some((node, attr)) = self.meet(&level.directory, &child, &path) else { continue };
            lead.push_str(stem);
            self.line(&lead, child.name.as_bytes(), &path, Some(&attr), &node, owners)?;
            lead.truncate(lead.len() - stem.len());
            if !attr.is_dir() {
                self.files += 1;
                continue;
            }
            self.directories += 1;
            if self.args.level.is_some_and(|most| depth >= most as usize) {
                continue;
            }
            if depth < MAX_DEPTH && entered.insert(node.ino()) {
                lead.push_str(below);
                let room = MAX_NAMES.saturating_sub(levels.iter().map(|level| level.entries.len()).sum());
                let entries = self.children(&node, &path, room);
                levels.push(Level { directory: node, entries, path: path.len(), lead: lead.len() });
            } else {
                let failed = |cause| Report::on("cannot draw", &path, cause);
                self.context.fail(&match depth {
                    ..MAX_DEPTH => failed("already shown: the directories form a cycle"),
                    _ => failed("too many nested directories").help("run 'obento tree' on this directory"),
                });
            }
        }
        Ok(())
    }

    /// Returns the file of an entry, and its attributes.
    fn meet(&self, directory: &Node, child: &Child, path: &[u8]) -> Option<(Node, Attr)> {
        let warn = |error| self.context.warn(&Report::on("cannot access", path, error));
        let met = child.node(directory).and_then(|node| node.attr().map(|attr| (node, attr)));
        met.map_err(warn).ok()
    }

    /// Returns at most `room` entries of a directory, in reverse order.
    fn children(&self, directory: &Node, path: &[u8], room: usize) -> Vec<Child> {
        let mut children: Vec<Child> = Vec::new();
        let damage = |error| {
            let report = Report::on("cannot read all of directory", path, error);
            self.context.warn(&damaged(report, error));
        };
        let result = directory.read_dir(Cookie::START, &mut |entry: Result<DirEntry<'_>>| {
            match entry {
                Ok(entry) if !self.args.all && entry.name.as_bytes().starts_with(b".") => {}
                Ok(_) if children.len() >= room => {
                    damage(Error::NoMemory);
                    return ControlFlow::Break(());
                }
                Ok(DirEntry { name, ino, kind, .. }) => {
                    children.push(Child { name: name.to_buf(), ino, kind });
                }
                Err(error) => damage(error),
            }
            ControlFlow::Continue(())
        });
        if let Err(error) = result {
            damage(error);
        }
        if self.args.dirs_only || self.args.dirsfirst {
            let found = |child: &Child| child.node(directory).and_then(|node| node.kind()).ok();
            children.iter_mut().for_each(|child| child.kind = child.kind.or_else(|| found(child)));
        }
        let is_file = |child: &Child| child.kind != Some(FileKind::Directory);
        children.retain(|child| !self.args.dirs_only || !is_file(child));
        children.sort_by(|a, b| {
            let first =
                if self.args.dirsfirst { is_file(a).cmp(&is_file(b)) } else { std::cmp::Ordering::Equal };
            first.then_with(|| a.name.cmp(&b.name)).reverse()
        });
        children
    }

    /// Returns the prefix of a name, and that of the names below it.
    fn strokes(&self, last: bool) -> (&'static str, &'static str) {
        match (self.args.no_indent, self.args.ascii, last) {
            (true, ..) => ("", ""),
            (_, true, false) => ("|-- ", "|   "),
            (_, true, true) => ("`-- ", "    "),
            (_, false, false) => ("├── ", "│\u{a0}\u{a0} "),
            (_, false, true) => ("└── ", "    "),
        }
    }

    fn line(
        &mut self,
        lead: &str,
        name: &[u8],
        path: &[u8],
        attr: Option<&Attr>,
        node: &Node,
        owners: &Owners,
    ) -> Outcome {
        let target = match attr {
            Some(attr) if attr.kind == FileKind::Symlink => node.read_link().ok(),
            _ => None,
        };
        if self.context.json() {
            let line = Line::new("entry").bytes("path", path);
            let line = match attr {
                Some(attr) => line.attr(attr, owners),
                None => line.field("ino", node.ino().0),
            };
            let line = match &target {
                Some(target) => line.bytes("target", target),
                None => line,
            };
            return Ok(line.write(&mut self.out)?);
        }
        let mut text = lead.as_bytes().to_vec();
        if let Some(attr) = attr
            && let Some(facts) = self.facts(attr, owners)
        {
            text.extend_from_slice(b"[");
            text.extend_from_slice(&facts);
            text.extend_from_slice(b"]  ");
        }
        let shown = escape(if self.args.full_path { path } else { name }, self.style);
        let look = attr.map(|attr| ColorTarget::File { kind: attr.kind, mode: attr.mode, nlink: attr.nlink });
        match (&mut self.painter, look) {
            (Some(painter), Some(look)) => painter.paint(&mut text, name, look, &shown),
            _ => text.extend_from_slice(&shown),
        }
        if let Some(target) = target {
            text.extend_from_slice(b" -> ");
            text.extend_from_slice(&escape(&target, self.style));
        } else if self.args.classify
            && let Some(attr) = attr
            && !text.ends_with(b"/")
        {
            text.extend(classify(attr.kind, attr.mode));
        }
        text.push(b'\n');
        Ok(self.out.write_all(&text)?)
    }

    /// Returns the text in brackets: mode, owner, group, size.
    fn facts(&self, attr: &Attr, owners: &Owners) -> Option<Vec<u8>> {
        let mut facts: Vec<Vec<u8>> = Vec::new();
        let owner = |name: Option<&[u8]>, id: u32| {
            let text = name.map_or_else(|| id.to_string(), crate::report::printable);
            format!("{text:<8}").into_bytes()
        };
        if self.args.perm {
            facts.push(mode_string(attr.kind, attr.mode).to_vec());
        }
        if self.args.user {
            facts.push(owner(owners.user(attr.uid), attr.uid));
        }
        if self.args.group {
            facts.push(owner(owners.group(attr.gid), attr.gid));
        }
        if self.args.human {
            facts.push(human(attr.size).into_bytes());
        } else if self.args.size {
            facts.push(format!("{:>11}", attr.size).into_bytes());
        }
        (!facts.is_empty()).then(|| facts.join(&b' '))
    }

    fn report(&mut self) -> Outcome {
        let mut text = format!("\n{}", Quantity::new(self.directories, "directory"));
        if !self.args.dirs_only {
            text += &format!(", {}", Quantity::new(self.files, "file"));
        }
        text.push('\n');
        Ok(self.out.write_all(text.as_bytes())?)
    }
}

/// Returns a size rounded to the nearest unit, as tree.c does; coreutils rounds up.
fn human(size: u64) -> String {
    let mut rest = size;
    let mut power = usize::from(rest >= 1024);
    while rest >= 1024 * 1024 {
        rest /= 1024;
        power += 1;
    }
    let letter = char::from(b"BKMGTPE"[power.min(6)]);
    let value = rest as f64 / 1024.0;
    match (power, rest / 1024) {
        (0, _) => format!("{rest:>4}"),
        (_, ..10) => format!("{value:>3.1}{letter}"),
        _ => format!("{value:>3.0}{letter}"),
    }
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn sizes_are_rounded_to_the_nearest_unit() {
        for (size, expected) in
            [(0, "   0"), (1023, "1023"), (1650, "1.6K"), (15_000, " 15K"), (3 << 30, "3.0G")]
        {
            assert_eq!(human(size), expected);
        }
    }
}
