//! What the tabulator key offers: commands, their options, and names in the image.

use std::rc::Rc;

use obento::{FileKind, Place, Symlinks, Volume, Walk};
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper, Result};

use crate::change::place::last_component;
use crate::escape::{Style, escape};
use crate::open::Inside;

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
    fn names(&self, start: &str) -> Vec<Pair> {
        let directory = start.rfind('/').map_or("", |at| &start[..=at]);
        let prefix = &start[directory.len()..];
        let place = Place::Path(self.inside.path(directory.as_bytes()));
        let Ok(node) = self.volume.resolve(&place, Symlinks::Follow) else { return Vec::new() };
        let entries = Walk::new(node).max_depth(1).take(MAX_NAMES).flatten();
        let mut pairs = Vec::new();
        for entry in entries.filter(|entry| entry.depth == 1) {
            // What is no text cannot be typed, and is not shown to the terminal as it is.
            let Ok(name) = str::from_utf8(last_component(&entry.path)) else { continue };
            let is_hidden = name.starts_with('.') && !prefix.starts_with('.');
            if is_hidden || !name.starts_with(prefix) {
                continue;
            }
            let is_dir = entry.attr.kind == FileKind::Directory;
            let quoted =
                |text: &str| String::from_utf8_lossy(&escape(text.as_bytes(), Style::Shell)).into_owned();
            let end = if is_dir { "/" } else { "" };
            let replacement =
                format!("{}{}", quoted(&format!("{directory}{name}{end}")), if is_dir { "" } else { " " });
            pairs.push(Pair { display: format!("{}{end}", quoted(name)), replacement });
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
        let statement = before.rfind([';', '&', '|']).map_or(0, |at| at + 1);
        let start = before.rfind([' ', ';', '&', '|']).map_or(0, |at| at + 1);
        let word = &before[start..];
        let mut words = before[statement..start].split_whitespace();
        let pairs = match words.next() {
            None => {
                let known = self.commands.iter().filter(|command| command.starts_with(word));
                known.map(|text| Pair { display: text.clone(), replacement: format!("{text} ") }).collect()
            }
            Some(command) if word.starts_with('-') => self.options(command, word),
            Some(_) => self.names(word),
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
