//! `obento lsattr`: shows the flags of files as lsattr(1) of e2fsprogs does.

use std::ffi::OsString;
use std::io::Write;

use obento::base::{Attr, FileKind};
use obento::vfs::Symlinks;
use obento::walk::{Step, Walk};

use crate::context::Context;
use crate::format::flags::{letters, words};
use crate::help::page::Page;
use crate::json::Line;
use crate::open::{Found, find_all, join};
use crate::output::{Outcome, Output};
use crate::report::Report;

/// The page of `lsattr`.
pub const PAGE: Page = Page::new(&[("obento lsattr disk.img:/etc", "Show the flags of files")])
    .see_also(&["lsattr(1)", "chattr(1)"]);

/// Show the flags of files
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Images, and files and directories in them
    #[arg(required = true, value_name = "IMAGE[:PATH]")]
    paths: Vec<OsString>,
    /// Also show names that start with a dot
    #[arg(short = 'a')]
    all: bool,
    /// Show directories themselves, not their contents
    #[arg(short = 'd')]
    directory: bool,
    /// Print words instead of letters
    #[arg(short = 'l')]
    long: bool,
    /// Also show the files below directories
    #[arg(short = 'R')]
    recursive: bool,
    /// Print the project number
    #[arg(short = 'p')]
    project: bool,
    /// Print the generation of the inode
    #[arg(short = 'v')]
    version: bool,
    /// Ignored, for compatibility
    #[arg(short = 'V', hide = true)]
    banner: bool,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let found = find_all(&args.paths, Symlinks::Keep, context, |report| context.warn(report));
    let mut lister = Lister { args, context, out: Output::stdout() };
    for file in found {
        lister.operand(&file)?;
    }
    lister.out.finish()
}

struct Lister<'a> {
    args: &'a Args,
    context: &'a Context,
    out: Output,
}

impl Lister<'_> {
    fn operand(&mut self, found: &Found) -> Outcome {
        let attr = match found.node.attr() {
            Ok(attr) => attr,
            Err(error) => {
                self.context.warn(&Report::on("cannot access", found.shown(), error));
                return Ok(());
            }
        };
        if !attr.is_dir() || self.args.directory {
            return self.line(&attr, &found.shown());
        }
        self.directory(found)
    }

    /// Lists a directory, with `-R` recursively: the list of a directory follows its line.
    fn directory(&mut self, found: &Found) -> Outcome {
        let top = found.shown();
        let depth = if self.args.recursive { usize::MAX } else { 1 };
        // Each line of JSON contains the path, so a directory needs no heading.
        let has_headings = self.args.recursive && !self.context.json();
        let mut walk = Walk::new(found.node.clone()).max_depth(depth);
        if self.args.all && !self.args.recursive {
            if let Ok(attr) = found.node.attr() {
                self.line(&attr, &join(&top, b"."))?;
            }
            if let Ok(attr) = found.node.parent().and_then(|parent| parent.attr()) {
                self.line(&attr, &join(&top, b".."))?;
            }
        }
        while let Some(step) = walk.next() {
            match step {
                Ok(entry) if entry.path.is_empty() => {}
                Ok(entry) if entry.name().starts_with(b".") && !self.args.all => walk.prune(),
                Ok(entry) if entry.step == Step::Leave && has_headings => writeln!(self.out)?,
                Ok(entry) if entry.step == Step::Leave || !has_flags(&entry.attr) => {}
                Ok(entry) => {
                    let shown = join(&top, &entry.path);
                    self.line(&entry.attr, &shown)?;
                    if entry.step == Step::Enter && has_headings {
                        writeln!(self.out)?;
                        self.out.write_name(&shown)?;
                        writeln!(self.out, ":")?;
                    }
                }
                Err(damage) => {
                    let path = join(&top, &damage.path);
                    self.context.warn(&Report::on("cannot read", path, damage.error));
                }
            }
        }
        Ok(())
    }

    fn line(&mut self, attr: &Attr, shown: &[u8]) -> Outcome {
        if !has_flags(attr) {
            self.context.warn(&Report::on(
                "cannot read the flags of",
                shown,
                "only files and directories have flags",
            ));
            return Ok(());
        }
        if self.context.json() {
            let line =
                Line::new("flags").bytes("path", shown).field("flags", letters(attr.flags).replace('-', ""));
            let line = line.field("project", attr.project).field("generation", attr.generation.0);
            return Ok(line.write(&mut self.out)?);
        }
        if self.args.project {
            write!(self.out, "{:5} ", attr.project)?;
        }
        if self.args.version {
            write!(self.out, "{:5} ", attr.generation.0)?;
        }
        let name = self.out.shown(shown).into_owned();
        if self.args.long {
            self.out.write_all(&name)?;
            let width = 28_usize.saturating_sub(name.len());
            return Ok(writeln!(self.out, "{:width$} {}", "", words(attr.flags))?);
        }
        write!(self.out, "{} ", letters(attr.flags))?;
        self.out.write_all(&name)?;
        Ok(writeln!(self.out)?)
    }
}

fn has_flags(attr: &Attr) -> bool {
    matches!(attr.kind, FileKind::Regular | FileKind::Directory)
}
