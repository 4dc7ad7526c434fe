//! `obento man [DIR]`: the manual pages, generated from the same definitions as the help.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use obento::host::{HostError, open_output};

use crate::context::{CommandTable, Context};
use crate::help::ADDRESSES;
use crate::help::page::{ENVIRONMENT, EXIT, MAIN, Page, page};
use crate::help::topics;
use crate::output::{Outcome, Output, of_output};
use crate::report::Report;

/// The page of `man`.
pub const PAGE: Page = Page::new(&[
    ("obento man | man -l -", "Show the main page"),
    ("obento man ~/.local/share/man/man1", "Install all pages"),
])
.see_also(&["man(1)"]);

/// Write the manual pages
///
/// Without DIR, the main page is printed.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Write one page for obento and one for each command to this directory
    dir: Option<PathBuf>,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let table = context.table();
    let mut command = (table.commands_for_man)();
    command.build();
    let Some(dir) = &args.dir else {
        let mut out = Output::stdout();
        write_page(&command, "", table, &mut out)?;
        return out.finish();
    };
    write_pages(&command, "", table, dir).map_err(|error| match error.errno() {
        Some(errno) => {
            let reason = io::Error::from(errno);
            let report = Report::on("cannot write pages to", dir.as_os_str().as_encoded_bytes(), reason);
            of_output(report, &dir.join("obento.1"), errno)
        }
        None => Report::plain(error),
    })?;
    Ok(())
}

/// Writes the page of `command`, whose words after `obento` are `path`, and those of its subcommands to `dir`.
fn write_pages(command: &Command, path: &str, table: CommandTable, dir: &Path) -> Result<(), HostError> {
    let file = dir.join(format!("{}.1", page_name(path)));
    let failed = |error| HostError::of_io("write", &file, &error);
    let mut text = Vec::new();
    write_page(command, path, table, &mut text).map_err(failed)?;
    let mut output = open_output(&file, 0o666)?;
    if output.metadata().map_err(failed)?.is_file() {
        output.set_len(0).map_err(failed)?;
    }
    output.write_all(&text).map_err(failed)?;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        write_pages(sub, format!("{path} {}", sub.get_name()).trim_start(), table, dir)?;
    }
    Ok(())
}

fn page_name(path: &str) -> String {
    format!("obento {path}").trim_end().replace(' ', "-")
}

fn write_page(
    command: &Command,
    path: &str,
    table: CommandTable,
    out: &mut impl io::Write,
) -> io::Result<()> {
    let name = page_name(path);
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let man = Man::new(command.clone().long_about(with_full_stop(&about)))
        .title(name)
        .source(concat!("obento ", env!("CARGO_PKG_VERSION")));
    man.render_title(out)?;
    man.render_name_section(out)?;
    synopsis(command, out)?;
    man.render_description_section(out)?;
    notes(command, out)?;
    man.render_options_section(out)?;
    match path {
        "" => main_sections(table, out)?,
        path => sub_sections(command, path, table, out)?,
    }
    Ok(())
}

/// Returns `text`, whose first paragraph ends with a full stop: help shows this paragraph as a title.
fn with_full_stop(text: &str) -> String {
    match text.split_once("\n\n") {
        Some((title, rest)) if !title.ends_with('.') => format!("{title}.\n\n{rest}"),
        None if !text.is_empty() && !text.ends_with('.') => format!("{text}."),
        _ => text.to_owned(),
    }
}

/// Writes the usage that help shows.
fn synopsis(command: &Command, out: &mut impl io::Write) -> io::Result<()> {
    let usage = command.clone().render_usage().to_string();
    let mut page = Roff::new();
    page.control("SH", ["SYNOPSIS"]);
    for line in usage.trim_start_matches("Usage:").lines() {
        page.text([roman(line.trim_start())]);
        page.control("br", []);
    }
    page.to_writer(out)
}

/// Writes the text that help shows behind the options. An indented line is a term and its description, or the rest of a
/// description.
fn notes(command: &Command, out: &mut impl io::Write) -> io::Result<()> {
    let Some(text) = command.get_after_help() else { return Ok(()) };
    let mut page = Roff::new();
    for paragraph in text.to_string().split("\n\n") {
        page.control("PP", []);
        for line in paragraph.lines().filter(|line| !line.starts_with(' ')) {
            page.text([roman(line)]);
            page.control("br", []);
        }
        terms(paragraph).iter().for_each(|(term, text)| item(&mut page, term, text));
    }
    page.to_writer(out)
}

/// Returns the terms in the indented lines of `paragraph`, with their descriptions.
fn terms(paragraph: &str) -> Vec<(String, String)> {
    let mut terms: Vec<(String, String)> = Vec::new();
    for line in paragraph.lines().filter(|line| line.starts_with(' ')) {
        let text = line.trim_start();
        let (term, description) = text.split_once("  ").unwrap_or((text, ""));
        let description = description.trim_start();
        match terms.last_mut() {
            // Two columns of spaces begin a term, and more continue its description.
            Some((_, known)) if line.starts_with("   ") => {
                *known = format!("{known} {text}").trim_start().to_owned();
            }
            Some((known, text)) if known.ends_with(',') && text.is_empty() => {
                *known = format!("{known} {term}");
                *text = description.to_owned();
            }
            _ => terms.push((term.to_owned(), description.to_owned())),
        }
    }
    terms
}

fn main_sections(table: CommandTable, out: &mut impl io::Write) -> io::Result<()> {
    let mut options = topics::options();
    options.build();
    let mut section = Vec::new();
    Man::new(options).render_options_section(&mut section)?;
    out.write_all(&section)?;
    let mut page = Roff::new();
    for (group, pages) in table.groups {
        page.control("SH", [&*format!("COMMANDS: {}", group.to_uppercase())]);
        for (name, _) in *pages {
            let about = (table.commands_for_man)();
            let about = about.find_subcommand(name).and_then(|sub| sub.get_about().map(ToString::to_string));
            item(&mut page, &format!("{}(1)", page_name(name)), &about.unwrap_or_default());
        }
    }
    page.control("SH", ["ADDRESSES"]);
    terms(ADDRESSES).iter().for_each(|(term, text)| item(&mut page, term, text));
    section_of(&mut page, "EXAMPLES", MAIN.examples);
    section_of(&mut page, "EXIT STATUS", EXIT);
    section_of(&mut page, "ENVIRONMENT", ENVIRONMENT);
    see_also(&mut page, MAIN.see_also.iter());
    page.to_writer(out)
}

fn sub_sections(
    command: &Command,
    path: &str,
    table: CommandTable,
    out: &mut impl io::Write,
) -> io::Result<()> {
    let mut page_ = Roff::new();
    let facts = page(table.groups, path);
    let subs: Vec<_> = command.get_subcommands().filter(|sub| !sub.is_hide_set()).collect();
    if !subs.is_empty() {
        page_.control("SH", ["COMMANDS"]);
        for sub in subs {
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            item(&mut page_, &format!("{}(1)", page_name(&format!("{path} {}", sub.get_name()))), &about);
        }
    }
    // Otherwise the sentence continues the description of the last operand.
    page_.control("PP", []);
    page_.text([roman("The options of every command are described in obento(1).")]);
    let examples = facts.map_or(&[][..], |page| page.examples);
    if !examples.is_empty() {
        section_of(&mut page_, "EXAMPLES", examples);
    }
    section_of(&mut page_, "EXIT STATUS", facts.and_then(|page| page.exit).unwrap_or(EXIT));
    let own = facts.map_or(&[][..], |page| page.environment);
    section_of(&mut page_, "ENVIRONMENT", &[own, ENVIRONMENT].concat());
    see_also(&mut page_, ["obento(1)"].iter().chain(facts.map_or(&[][..], |page| page.see_also)));
    page_.to_writer(out)
}

fn see_also<'a>(page: &mut Roff, pages: impl Iterator<Item = &'a &'a str>) {
    page.control("SH", ["SEE ALSO"]);
    page.text([roman(pages.copied().collect::<Vec<_>>().join(", "))]);
}

fn section_of(page: &mut Roff, title: &str, items: &[(&str, &str)]) {
    page.control("SH", [title]);
    items.iter().for_each(|(term, text)| item(page, term, text));
}

fn item(page: &mut Roff, term: &str, text: &str) {
    page.control("TP", []);
    page.text([bold(term)]);
    page.text([roman(text)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_help_becomes_terms_with_their_descriptions() {
        let table = "Options:\n  ro, rw      read-only, or\n              writable\n  a=, b=,\n  c=MODE      as in ext4\n  none\n";
        let terms = terms(table);
        let pairs: Vec<_> = terms.iter().map(|(term, text)| (&**term, &**text)).collect();
        assert_eq!(
            pairs,
            [("ro, rw", "read-only, or writable"), ("a=, b=, c=MODE", "as in ext4"), ("none", "")]
        );
    }
}
