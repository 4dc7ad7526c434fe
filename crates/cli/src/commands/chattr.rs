//! `obento chattr`: changes the flags of files as chattr(1) of e2fsprogs does.

use std::ffi::OsString;

use obento::base::{Attr, FileFlags, FileKind};
use obento::driver::SetAttr;
use obento::vfs::{Caller, Symlinks};
use obento::walk::Walk;
use obento::{Error, Node};

use crate::change::{Done, Verbose, each_below, each_file};
use crate::context::Context;
use crate::format::flags::{by_letter, letters};
use crate::help::page::Page;
use crate::output::Outcome;
use crate::report::{Report, subject};

/// The page of `chattr`.
pub const PAGE: Page =
    Page::new(&[("obento chattr +i disk.img:/etc/passwd", "Make a file immutable")]).see_also(&["chattr(1)"]);

/// Change the flags of files
#[derive(clap::Args, Debug)]
#[command(override_usage = "obento chattr [OPTIONS] <+FLAGS|-FLAGS|=FLAGS>... <IMAGE:PATH>...")]
pub struct Args {
    /// Also change the files below directories
    #[arg(short = 'R')]
    recursive: bool,
    /// Print each file with its flags
    #[arg(short = 'V')]
    verbose: bool,
    /// Do not report existing files that cannot be changed
    #[arg(short = 'f')]
    silent: bool,
    /// Set the project number for quotas
    #[arg(short = 'p', value_name = "PROJECT")]
    project: Option<u32>,
    /// +FLAGS adds, -FLAGS removes and =FLAGS replaces flags; then files in images. The flags are the letters
    /// aAcCdDeFijmPsStTux
    #[arg(required = true, value_name = "FLAGS|IMAGE:PATH")]
    operands: Vec<OsString>,
}

/// A change of flags.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Change {
    set: FileFlags,
    clear: FileFlags,
    /// `=`: removes all other flags that can be removed.
    exactly: Option<FileFlags>,
}

impl Change {
    /// Takes the flags from the front of `operands`, and returns the rest.
    fn take<'a>(&mut self, mut operands: &'a [OsString]) -> Result<&'a [OsString], Report> {
        while let Some((first, rest)) = operands.split_first() {
            let text = first.to_string_lossy();
            let Some(operator @ ('+' | '-' | '=')) = text.chars().next().filter(|_| text != "-") else {
                break;
            };
            let unknown = |letter| {
                Report::on("invalid flags", text.as_bytes(), format!("unknown flag '{letter}'"))
                    .help("choose from the flags aAcCdDeFijmPsStTux")
            };
            let mut flags = FileFlags::empty();
            for letter in text.chars().skip(1) {
                flags |= by_letter(letter).ok_or_else(|| unknown(letter))?;
            }
            match operator {
                '+' => self.set |= flags,
                '-' => self.clear |= flags,
                _ => self.exactly = Some(self.exactly.unwrap_or_default() | flags),
            }
            operands = rest;
        }
        if self.exactly.is_some() && !(self.set | self.clear).is_empty() {
            return Err(Report::new("invalid flags", "= cannot be combined with + or -"));
        }
        if self.set.intersects(self.clear) {
            let both = letters(self.set & self.clear).replace('-', "");
            return Err(Report::new("invalid flags", format!("'{both}' is both added and removed")));
        }
        Ok(operands)
    }

    fn apply(self, flags: FileFlags) -> FileFlags {
        self.exactly.map_or((flags | self.set) - self.clear, |exactly| exactly)
    }

    /// Returns the requested flags that the volume did not set; for `=` only the named ones.
    fn refused(self, flags: FileFlags) -> FileFlags {
        let wanted = self.exactly.unwrap_or_default() | self.set;
        (wanted - flags) | (self.clear & flags)
    }
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let mut change = Change::default();
    let paths = change.take(&args.operands)?;
    let says_nothing = change == Change::default() && args.project.is_none();
    if paths.is_empty() || says_nothing {
        let cause = if says_nothing { "no change of flags is given" } else { "missing operand" };
        let report = Report::new("cannot change flags", cause);
        return Err(report.help("write +, - or = before the flags: obento chattr +i disk.img:/FILE").into());
    }
    let mut changer = Changer { args, context, change, verbose: Verbose::new(args.verbose) };
    each_file(paths, Symlinks::Follow, "cannot access", context, |found| {
        if !args.recursive {
            let attr = found.node.attr();
            let attr = attr.map_err(|error| Report::on("cannot access", found.shown(), error))?;
            return changer.change(&found.node, attr, &found.shown());
        }
        each_below(Walk::new(found.node.clone()), found, context, |entry, shown| match entry.attr.kind {
            FileKind::Regular | FileKind::Directory => changer.change(&entry.node, entry.attr, shown),
            _ => Ok(()),
        });
        Ok(())
    });
    changer.verbose.finish()
}

struct Changer<'a> {
    args: &'a Args,
    context: &'a Context,
    change: Change,
    verbose: Verbose,
}

impl Changer<'_> {
    fn change(&mut self, node: &Node, attr: Attr, shown: &[u8]) -> Done {
        let failed = |cause: String| Report::on("cannot change the flags of", shown, cause);
        let done = match self.apply(node, attr) {
            Err(Error::NotSupported) if attr.is_dir() && self.change.set.contains(FileFlags::CASEFOLD) => {
                let cause = "the volume does not support directories that ignore case";
                Err(failed(cause.to_owned())
                    .help("ext4 requires the feature casefold: obento mkfs -O casefold"))
            }
            Err(error) => Err(failed(error.to_string())),
            Ok(after) if !self.change.refused(after.flags).is_empty() => {
                let refused = letters(self.change.refused(after.flags)).replace('-', "");
                let what = if refused.len() == 1 { "the flag" } else { "these flags:" };
                Err(failed(format!("the file system cannot change {what} {refused}")))
            }
            Ok(after) => {
                self.verbose.say(|| format!("Flags of {} set as {}", subject(shown), letters(after.flags)));
                self.set_project(node).map_err(|error| match error {
                    Error::NotSupported => {
                        Report::on("cannot set the project of", shown, "the volume does not support projects")
                    }
                    error => Report::on("cannot set the project of", shown, error.to_string()),
                })
            }
        };
        if done.is_err() && self.args.silent {
            self.context.raise(1);
            return Ok(());
        }
        done
    }

    fn apply(&self, node: &Node, attr: Attr) -> Result<Attr, Error> {
        if !matches!(attr.kind, FileKind::Regular | FileKind::Directory) {
            return Err(Error::NotSupported);
        }
        let flags = self.change.apply(attr.flags);
        let vfs = node.vfs();
        let by_flags = SetAttr { flags: Some(flags), ..SetAttr::default() };
        let mut after = attr;
        if flags != attr.flags || self.change != Change::default() {
            after = vfs.set_attr(&Caller::Owner, node, &by_flags)?;
        }
        Ok(after)
    }

    fn set_project(&self, node: &Node) -> Result<(), Error> {
        let Some(project) = self.args.project else { return Ok(()) };
        let change = SetAttr { project: Some(project), ..SetAttr::default() };
        node.vfs().set_attr(&Caller::Owner, node, &change).map(drop)
    }
}
