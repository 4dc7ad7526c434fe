//! `obento complete`: the candidates for the last word of a command line, for the scripts that `obento completions` prints.
//!
//! Paths inside images are completed here, commands and options too; files of the host are completed by the shell.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::{Arg, Command};

use obento::address::{FileSelector, Operand, is_server};
use obento::base::{FileKind, is_printable};
use obento::driver::Access;
use obento::registry::Engine;

use super::shell::complete::entries;
use super::shell::words::{Unfinished, quoted, unfinished};
use crate::context::Context;
use crate::open::{BareOperand, operand, seal_before_decoding};
use crate::options::{EngineChoice, GlobalOptions};
use crate::output::{Outcome, Output};

/// Print the candidates for the last word of a command line
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Print candidates without quotes
    #[arg(long)]
    plain: bool,
    /// Print the number of characters before the last of these first
    #[arg(long, value_name = "CHARACTERS")]
    breaks: Option<String>,
    /// The command line up to the cursor
    #[arg(allow_hyphen_values = true)]
    line: OsString,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let Some(Unfinished { words, word, start }) = unfinished(args.line.as_bytes()) else { return Ok(()) };
    // A word with quotes would have to be completed with the same quotes.
    let is_as_typed = args.line.as_bytes().get(start..) == Some(quoted(&word).as_bytes());
    if words.is_empty() || !args.plain && !is_as_typed {
        return Ok(());
    }
    let candidates = candidates(&words[1..], &word, context);
    let mut out = Output::stdout();
    if let Some(breaks) = &args.breaks {
        let typed = quoted(&word);
        let before = typed.char_indices().rev().find(|(_, c)| breaks.contains(*c));
        writeln!(out, "{}", before.map_or(0, |(at, _)| typed[..at].chars().count() + 1))?;
    }
    for candidate in candidates.into_iter().filter(|text| text.starts_with(&word)) {
        let is_plain = String::from_utf8_lossy(&candidate).chars().all(is_printable);
        match args.plain {
            true if is_plain => out.write_all(&candidate)?,
            true => continue,
            false => out.write_all(quoted(&candidate).as_bytes())?,
        }
        out.write_all(b"\n")?;
    }
    out.finish()
}

/// Returns what `word` behind `words` may become.
fn candidates(words: &[OsString], word: &[u8], context: &Context) -> Vec<Vec<u8>> {
    let root = (context.table().commands)();
    let (command, has_operand, option) = position(&root, words);
    let of_text = |texts: Vec<String>| texts.into_iter().map(String::into_bytes).collect();
    if let Some(values) = option.map(values).filter(|values| !values.is_empty()) {
        return of_text(values);
    }
    if word.starts_with(b"-") && option.is_none() {
        return of_text(options(command, &root));
    }
    let names =
        command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(|sub| sub.get_name().to_owned());
    match command.get_name() {
        "help" if !has_operand => {
            let all =
                root.get_subcommands().filter(|sub| !sub.is_hide_set()).map(|sub| sub.get_name().to_owned());
            of_text(all.chain(["options".to_owned(), "layout".to_owned()]).collect())
        }
        // A command with an operand before its subcommands.
        _ if option.is_none() && is_parent(command) && !has_operand => paths(word, context),
        _ if option.is_none() && command.has_subcommands() => of_text(names.collect()),
        "completions" => of_text(command.get_positionals().flat_map(values).collect()),
        _ => paths(word, context),
    }
}

/// Follows `words` from `root`. Returns the subcommand, whether it has an operand, and the option whose value is next.
fn position<'c>(root: &'c Command, words: &[OsString]) -> (&'c Command, bool, Option<&'c Arg>) {
    let (mut command, mut has_operand, mut option) = (root, false, None);
    for word in words {
        let text = word.to_string_lossy();
        if option.take().is_some() {
            continue;
        }
        if text.starts_with('-') {
            option = named(command, root, &text).filter(|arg| takes_next_word(arg));
        } else if let Some(sub) =
            command.find_subcommand(&*text).filter(|_| has_operand == is_parent(command))
        {
            command = sub;
        } else {
            has_operand = true;
        }
    }
    (command, has_operand, option)
}

/// Returns whether `command` has an operand before its subcommands.
fn is_parent(command: &Command) -> bool {
    command.has_subcommands() && command.get_positionals().next().is_some()
}

/// Returns the option that `text` names: `--long`, or the last letter of `-abc`.
fn named<'c>(command: &'c Command, root: &'c Command, text: &str) -> Option<&'c Arg> {
    let mut all = command.get_arguments().chain(root.get_arguments());
    match text.strip_prefix("--") {
        Some(long) => all.find(|arg| arg.get_long() == Some(long)),
        None => all.find(|arg| arg.get_short().is_some() && arg.get_short() == text.chars().next_back()),
    }
}

fn takes_next_word(arg: &Arg) -> bool {
    arg.get_action().takes_values() && !arg.is_require_equals_set()
}

fn values(arg: &Arg) -> Vec<String> {
    arg.get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| value.get_name().to_owned())
        .collect()
}

/// Returns the long options of `command`, and those of every command.
fn options(command: &Command, root: &Command) -> Vec<String> {
    let all = command.get_arguments().chain(root.get_arguments());
    let shown = all.filter(|arg| !arg.is_hide_set() || arg.is_global_set());
    let mut longs: Vec<_> = shown.filter_map(|arg| Some(format!("--{}", arg.get_long()?))).collect();
    longs.sort();
    longs.dedup();
    longs
}

/// Returns the paths in an image that the address `word` may become. Volumes that need the kernel engine have none: starting a kernel
/// takes too long.
fn paths(word: &[u8], context: &Context) -> Vec<Vec<u8>> {
    let Some(at) = word.iter().rposition(|&byte| byte == b'/' || byte == b':') else { return Vec::new() };
    let (directory, prefix) = word.split_at(at + 1);
    // Completing a word must not start a program or connect to a host.
    if is_server(OsStr::from_bytes(word)) {
        return Vec::new();
    }
    if directory.ends_with(b":") {
        let path = [directory, b"/"].concat();
        let is_address = matches!(operand(OsStr::from_bytes(&path), context), Ok(Operand::Image(_)));
        return if is_address && prefix.is_empty() { vec![path] } else { Vec::new() };
    }
    let options = GlobalOptions { engine: Some(EngineChoice::Native), ..GlobalOptions::default() };
    let registry = context.registry().clone().with_engine(Engine::Native, None);
    let context = Context::new(options, registry, context.table());
    let argument = OsString::from_vec(directory.to_vec());
    let Ok(Operand::Image(address)) = operand(&argument, &context) else { return Vec::new() };
    let Some(place @ FileSelector::Path(_)) = address.place.clone() else { return Vec::new() };
    seal_before_decoding([&argument], BareOperand::Image, Access::ReadOnly, &context);
    let volume = context.volume(&address);
    context.seal();
    let Ok(volume) = volume else { return Vec::new() };
    let found = entries(&volume, &place, prefix);
    let slash = |kind| if kind == FileKind::Directory { &b"/"[..] } else { b"" };
    found.into_iter().map(|(name, kind)| [directory, &name, slash(kind)].concat()).collect()
}
