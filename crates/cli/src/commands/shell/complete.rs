//! Completion at the prompt of the shell: commands, their options, and names in the image.

use std::rc::Rc;

use obento::Volume;
use obento::address::FileSelector;
use obento::base::FileKind;
use obento::vfs::Symlinks;
use obento::walk::Walk;
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper, Result};

use crate::change::place::last_component;
use crate::open::inside::ShellImage;

use super::words::{Unfinished, quoted, unfinished};

/// The number of entries that are read at most, so that completion is fast in a directory with millions of entries.
const MAX_NAMES: usize = 10_000;

/// Completes the end of a line.
pub struct Completion {
    pub inside: Rc<ShellImage>,
    pub volume: Rc<Volume>,
    /// The commands, sorted.
    pub commands: Vec<String>,
    pub definition: clap::Command,
}

impl Completion {
    fn options(&self, command: &str, start: &str) -> Vec<Pair> {
        let Some(definition) = self.definition.find_subcommand(command) else { return Vec::new() };
        let all = definition
            .get_arguments()
            .chain(self.definition.get_arguments())
            .filter(|arg| !arg.is_hide_set() || arg.is_global_set())
            .filter_map(|arg| arg.get_long());
        let mut options: Vec<_> =
            all.map(|long| format!("--{long}")).filter(|long| long.starts_with(start)).collect();
        options.sort();
        options.dedup();
        options.into_iter().map(|text| Pair { display: text.clone(), replacement: text + " " }).collect()
    }

    /// Returns the entries that the path `start` can be completed to.
    fn names(&self, start: &[u8]) -> Vec<Pair> {
        let at = start.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        let (directory, prefix) = start.split_at(at);
        let place = FileSelector::Path(self.inside.path(directory));
        let pairs = entries(&self.volume, &place, prefix).into_iter().map(|(name, kind)| {
            let (name, directory) = (quoted(&name), quoted(directory));
            let (shown_end, end) = if kind == FileKind::Directory { ("/", "/") } else { ("", " ") };
            Pair { display: format!("{name}{shown_end}"), replacement: format!("{directory}{name}{end}") }
        });
        let mut pairs: Vec<Pair> = pairs.collect();
        pairs.sort_by(|a, b| a.display.cmp(&b.display));
        pairs.dedup_by(|a, b| a.replacement == b.replacement);
        pairs
    }
}

/// Returns the entries of the directory at `place` whose names start with `prefix`, sorted by name. Entries that start with a dot
/// require a prefix that does.
pub fn entries(volume: &Volume, place: &FileSelector, prefix: &[u8]) -> Vec<(Vec<u8>, FileKind)> {
    let Ok(node) = volume.resolve(place, Symlinks::Follow) else { return Vec::new() };
    let entries = Walk::new(node).max_depth(1).take(MAX_NAMES).flatten();
    let mut found: Vec<(Vec<u8>, FileKind)> = entries
        .filter(|entry| entry.depth == 1)
        .map(|entry| (last_component(&entry.path).to_vec(), entry.attr.kind))
        .filter(|(name, _)| name.starts_with(prefix) && (!name.starts_with(b".") || prefix.starts_with(b".")))
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found.dedup_by(|a, b| a.0 == b.0);
    found
}

impl Completer for Completion {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, _context: &Context<'_>) -> Result<(usize, Vec<Pair>)> {
        let before = line.get(..pos).unwrap_or(line);
        let Some(Unfinished { words, word, start }) = unfinished(before.as_bytes()) else {
            return Ok((pos, Vec::new()));
        };
        let text = String::from_utf8_lossy(&word);
        let pairs = match words.first() {
            Some(command) if word.starts_with(b"-") => self.options(&command.to_string_lossy(), &text),
            Some(command) if command != "help" => self.names(&word),
            _ => {
                let known = self.commands.iter().filter(|command| command.starts_with(&*text));
                known.map(|text| Pair { display: text.clone(), replacement: format!("{text} ") }).collect()
            }
        };
        Ok((start, pairs))
    }
}

impl Helper for Completion {}
impl Highlighter for Completion {}
impl Validator for Completion {}
impl Hinter for Completion {
    type Hint = String;
}
