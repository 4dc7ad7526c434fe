//! `obento chmod`: changes the permission bits of files.

use std::ffi::{OsStr, OsString};

use obento::Node;
use obento::base::{Attr, FileKind, Mode};
use obento::driver::SetAttr;
use obento::vfs::{Caller, Symlinks};
use obento::walk::Walk;

use crate::change::lacking::expect_stored;
use crate::change::mode::ModeChange;
use crate::change::scope::Scope;
use crate::change::{Done, Verbose, each_below, each_file_by, immutable, umask};
use crate::context::Context;
use crate::format::mode::mode_string;
use crate::help::page::Page;
use crate::open::{Found, open};
use crate::output::Outcome;
use crate::report::{Report, subject};

/// The page of `chmod`.
pub const PAGE: Page = Page::new(&[
    ("obento chmod 600 disk.img:/etc/shadow", "Set the mode of a file"),
    ("obento chmod -R u+rwX,go-w disk.img:/srv", "Change the modes below a directory"),
])
.see_also(&["chmod(1)"]);

/// Change the permission bits of files
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "obento chmod [OPTIONS] <MODE> <IMAGE:PATH>...\n       obento chmod [OPTIONS] --reference <IMAGE:FILE> <IMAGE:PATH>..."
)]
pub struct Args {
    #[command(flatten)]
    scope: Scope,
    /// Use the mode of FILE
    #[arg(long, value_name = "IMAGE:FILE")]
    reference: Option<OsString>,
    /// A mode such as 755 or u+rw,g-w, and then files in images; only files if --reference is given
    #[arg(required = true, value_name = "MODE|IMAGE:PATH")]
    operands: Vec<OsString>,
}

/// A change of modes.
enum RequestedMode {
    Change(ModeChange, u16),
    Exactly(Mode),
}

impl RequestedMode {
    fn apply(&self, attr: &Attr) -> Mode {
        match self {
            Self::Change(change, umask) => change.apply(attr.mode, attr.is_dir(), *umask),
            Self::Exactly(mode) => *mode,
        }
    }
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let (wanted, paths) = match (&args.reference, args.operands.split_first()) {
        (None, Some((mode, paths))) if !paths.is_empty() => (Some(parse(mode)?), paths),
        (None, _) => {
            let report = Report::new("cannot change modes", "missing operand after the mode");
            return Err(report.help("usage: obento chmod u+w disk.img:/FILE").into());
        }
        (Some(_), _) => (None, args.operands.as_slice()),
    };
    let mut changer =
        Changer { args, context, wanted, verbose: Verbose::new(args.scope.verbose || args.scope.changes) };
    each_file_by(paths, args.reference.as_ref(), Symlinks::Follow, "cannot access", context, |found| {
        changer.operand(found)
    });
    changer.verbose.finish()
}

fn parse(mode: &OsStr) -> Result<RequestedMode, Report> {
    let change = mode.to_str().and_then(ModeChange::parse);
    let failed = || {
        Report::plain(format!("invalid mode {}", subject(mode.as_encoded_bytes())))
            .help("write a mode such as 755 or u+rw,g-w, followed by the files")
    };
    Ok(RequestedMode::Change(change.ok_or_else(failed)?, umask()))
}

/// Returns the mode of the file that `--reference` names.
fn referred(file: &OsStr, context: &Context) -> Result<RequestedMode, Report> {
    let location = open(file, context)?;
    let attr = location.volume.resolve(&location.place, Symlinks::Follow).and_then(|node| node.attr());
    let attr = attr.map_err(|error| location.not_found("cannot access", error))?;
    Ok(RequestedMode::Exactly(attr.mode))
}

struct Changer<'a> {
    args: &'a Args,
    context: &'a Context,
    /// `None` before the reference was read.
    wanted: Option<RequestedMode>,
    verbose: Verbose,
}

impl Changer<'_> {
    fn operand(&mut self, found: &Found) -> Done {
        if self.wanted.is_none() {
            self.wanted = Some(referred(self.args.reference.as_deref().unwrap_or_default(), self.context)?);
        }
        if !self.args.scope.recursive {
            return self.change(&found.node, None, &found.shown());
        }
        self.args.scope.expect_no_root(found)?;
        let context = self.context;
        each_below(Walk::new(found.node.clone()), found, context, |entry, shown| {
            // The target of a link may be anywhere.
            if entry.attr.kind == FileKind::Symlink {
                Ok(())
            } else {
                self.change(&entry.node, Some(entry.attr), shown)
            }
        });
        Ok(())
    }

    fn change(&mut self, node: &Node, attr: Option<Attr>, shown: &[u8]) -> Done {
        let changed = attr.map_or_else(|| node.attr(), Ok).and_then(|attr| {
            let mode = self.wanted.as_ref().map_or(attr.mode, |wanted| wanted.apply(&attr));
            let change = SetAttr { mode: Some(mode), ..SetAttr::default() };
            node.vfs().set_attr(&Caller::Owner, node, &change).map(|after| (attr, mode, after))
        });
        let failed = |error| immutable(Report::on("cannot change the mode of", shown, error), error, shown);
        let changed = changed.map_err(failed);
        let changed = changed
            .and_then(|(before, mode, after)| expect_stored(mode, &after, shown).map(|()| (before, after)));
        let (before, after) = match changed {
            Err(_) if self.args.scope.silent => {
                self.context.raise(1);
                return Ok(());
            }
            changed => changed?,
        };
        let name = || subject(shown);
        if before.mode != after.mode {
            let (old, new) = (words(&before), words(&after));
            self.verbose.say(|| format!("mode of {} changed from {old} to {new}", name()));
        } else if self.args.scope.verbose {
            self.verbose.say(|| format!("mode of {} retained as {}", name(), words(&after)));
        }
        Ok(())
    }
}

/// Returns `0644 (rw-r--r--)`.
fn words(attr: &Attr) -> String {
    let letters = mode_string(attr.kind, attr.mode);
    format!("{:04o} ({})", attr.mode.bits(), String::from_utf8_lossy(&letters[1..]))
}
