//! What the tabulator key offers: commands, their options, and names in the image.

use std::rc::Rc;

use obento::{FileKind, Place, Symlinks, Volume, Walk};
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper, Result};

use crate::change::place::last_component;
use crate::open::Inside;

use super::words::{Unfinished, quoted, unfinished};

/// Names that are looked at at most, so that a key does not take long in a directory of millions.
const MAX_NAMES: usize = 10_000;

/// Knows what may come at the end of a line.
pub struct Completion {
    pub inside: Rc<Inside>,
    pub volume: Rc<Volume>,
    /// The commands, sorted.
    pub commands: Vec<String>,
    pub definition: clap::Command,
}

impl Completion {
    fn options(&self, command: &str, start: &str) -> Vec<Pair> {
        let Some(definition) = self.definition.find_subcommand(command) else { return Vec::new() };
        let all =
            definition.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(|arg| arg.get_long());
        let mut options: Vec<_> =
            all.map(|long| format!("--{long}")).filter(|long| long.starts_with(start)).collect();
        options.sort();
        options.into_iter().map(|text| Pair { display: text.clone(), replacement: text + " " }).collect()
    }

    /// Names in the directory that `start` leads to which begin like its last component.
    fn names(&self, start: &[u8]) -> Vec<Pair> {
        let at = start.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        let (directory, prefix) = start.split_at(at);
        let place = Place::Path(self.inside.path(directory));
        let Ok(node) = self.volume.resolve(&place, Symlinks::Follow) else { return Vec::new() };
        let entries = Walk::new(node).max_depth(1).take(MAX_NAMES).flatten();
        let mut pairs = Vec::new();
        for entry in entries.filter(|entry| entry.depth == 1) {
            let name = last_component(&entry.path);
            let is_hidden = name.starts_with(b".") && !prefix.starts_with(b".");
            if is_hidden || !name.starts_with(prefix) {
                continue;
            }
            let (name, directory) = (quoted(name), quoted(directory));
            let (shown_end, end) =
                if entry.attr.kind == FileKind::Directory { ("/", "/") } else { ("", " ") };
            pairs.push(Pair {
                display: format!("{name}{shown_end}"),
                replacement: format!("{directory}{name}{end}"),
            });
        }
        pairs.sort_by(|a, b| a.display.cmp(&b.display));
        pairs.dedup_by(|a, b| a.replacement == b.replacement);
        pairs
    }
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
