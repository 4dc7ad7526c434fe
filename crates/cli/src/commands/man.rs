//! `obento man [DIR]`: the manual pages, generated from the same definitions as the help.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::help::pages::{ENVIRONMENT, EXIT, GROUPS, page};
use crate::output::{Outcome, Output};
use crate::report::Report;

/// Write the manual pages
///
/// Without DIR, the main page is printed.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Write one page for obento and one for each command to this directory
    dir: Option<PathBuf>,
}

pub fn run(args: &Args) -> Outcome {
    let mut command = crate::help::command_for_man();
    command.build();
    let Some(dir) = &args.dir else {
        let mut out = Output::stdout();
        write_page(&command, "", &mut out)?;
        return out.finish();
    };
    write_pages(&command, "", dir).map_err(|error| {
        let help = "the directory must exist and be writable";
        Report::on("cannot write pages to", dir.as_os_str().as_encoded_bytes(), error).help(help)
    })?;
    Ok(())
}

/// Writes the page of `command`, whose words after `obento` are `path`, and those of its subcommands to `dir`.
fn write_pages(command: &Command, path: &str, dir: &Path) -> io::Result<()> {
    let mut text = Vec::new();
    write_page(command, path, &mut text)?;
    fs::write(dir.join(format!("{}.1", page_name(path))), text)?;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        write_pages(sub, format!("{path} {}", sub.get_name()).trim_start(), dir)?;
    }
    Ok(())
}

fn page_name(path: &str) -> String {
    format!("obento {path}").trim_end().replace(' ', "-")
}

fn write_page(command: &Command, path: &str, out: &mut impl io::Write) -> io::Result<()> {
    let name = page_name(path);
    let man = Man::new(command.clone()).title(name);
    man.render_title(out)?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    man.render_description_section(out)?;
    notes(command, out)?;
    man.render_options_section(out)?;
    match path {
        "" => main_sections(out)?,
        path => sub_sections(command, path, out)?,
    }
    Ok(())
}

/// Writes the text that help shows behind the options; indented lines are literal.
fn notes(command: &Command, out: &mut impl io::Write) -> io::Result<()> {
    let Some(text) = command.get_after_help() else { return Ok(()) };
    let mut page = Roff::new();
    for paragraph in text.to_string().split("\n\n") {
        page.control("PP", []);
        for line in paragraph.lines() {
            page.text([roman(line.trim_start())]);
            page.control("br", []);
        }
    }
    page.to_writer(out)
}

fn main_sections(out: &mut impl io::Write) -> io::Result<()> {
    let mut options = crate::help::options();
    options.build();
    let mut section = Vec::new();
    Man::new(options).render_options_section(&mut section)?;
    out.write_all(&section)?;
    let mut page = Roff::new();
    for (group, names) in GROUPS {
        page.control("SH", [&*format!("COMMANDS: {}", group.to_uppercase())]);
        for name in *names {
            let about = crate::help::command_for_man();
            let about = about.find_subcommand(name).and_then(|sub| sub.get_about().map(ToString::to_string));
            item(&mut page, &format!("{}(1)", page_name(name)), &about.unwrap_or_default());
        }
    }
    section_of(&mut page, "EXIT STATUS", EXIT);
    section_of(&mut page, "ENVIRONMENT", ENVIRONMENT);
    page.to_writer(out)
}

fn sub_sections(command: &Command, path: &str, out: &mut impl io::Write) -> io::Result<()> {
    let mut page_ = Roff::new();
    let facts = page(path);
    let subs: Vec<_> = command.get_subcommands().filter(|sub| !sub.is_hide_set()).collect();
    if !subs.is_empty() {
        page_.control("SH", ["COMMANDS"]);
        for sub in subs {
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            item(&mut page_, &format!("{}(1)", page_name(&format!("{path} {}", sub.get_name()))), &about);
        }
    }
    page_.text([roman("The options of every command are described in obento(1).")]);
    let examples = facts.map_or(&[][..], |page| page.examples);
    if !examples.is_empty() {
        section_of(&mut page_, "EXAMPLES", examples);
    }
    section_of(&mut page_, "EXIT STATUS", facts.and_then(|page| page.exit).unwrap_or(EXIT));
    let own = facts.map_or(&[][..], |page| page.environment);
    section_of(&mut page_, "ENVIRONMENT", &[own, ENVIRONMENT].concat());
    page_.control("SH", ["SEE ALSO"]);
    let also = ["obento(1)"].iter().chain(facts.map_or(&[][..], |page| page.see_also));
    page_.text([roman(also.copied().collect::<Vec<_>>().join(", "))]);
    page_.to_writer(out)
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
