//! `obento grep`: prints the lines of files that match patterns, as GNU grep does.
//!
//! `syntax` translates POSIX patterns, `matcher` finds matches in lines, `search` splits files into lines and selects them, and `show`
//! formats the output.

mod args;
mod matcher;
mod search;
mod show;
mod syntax;

use std::cell::Cell;
use std::io::Write as _;
use std::ops::ControlFlow;

use obento::base::{Attr, FileKind};
use obento::pattern::{Case, Pattern};
use obento::vfs::Symlinks;

pub use args::Args;

use crate::context::Context;
use crate::files::{Below, Results, Said, Task, Tasks, in_order, open_all};
use crate::help::page::Page;
use crate::output::{Outcome, Output};
use crate::report::Report;
use search::{Message, Search};
use show::Show;

/// The page of `grep`.
pub const PAGE: Page = Page::new(&[
    ("obento grep -rn PermitRoot disk.img:/etc", "Find lines below /etc, with their numbers"),
    ("obento grep -rlF 'TODO' disk.img --include='*.c'", "List the C files that contain a string"),
    (
        "obento grep -rin error disk.qcow2@2",
        "Search partition 2; 'obento info disk.qcow2' lists the partitions",
    ),
    (
        "obento grep -c error 'disk.img:/var/log/*.log'",
        "Count lines in the files that match a pattern inside the image",
    ),
])
.exit(&[
    ("0", "A line was selected."),
    ("1", "No line was selected."),
    ("2", "Wrong usage, a file could not be read, or the output could not be written."),
])
.unwritten(2)
.see_also(&["grep(1)"]);

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    if args.perl_regexp {
        let report = Report::new("cannot search", "Perl expressions (-P) are not supported");
        return Err(report.help("write an extended regular expression, and use -E").into());
    }
    let (patterns, paths) = args.split()?;
    let matcher = matcher::Matcher::new(&patterns, args, args.only_matching || context.colors())?;
    let below = match (args.recursive, args.dereference_recursive) {
        (_, true) => Below::Read(Symlinks::Follow),
        (true, false) => Below::Read(Symlinks::Keep),
        (false, false) => Below::RefuseWithoutOption,
    };
    let opened = open_all(&paths, below, context);
    let mut out = Output::stdout();
    let show = Show::new(args, paths.len(), context, &out);
    let limits = search::Limits::new(args);
    let filter = filter(args);
    let tasks = Tasks::new(opened, below).filter(&filter);
    let work = |task: &Task, sink: &mut Results<'_, Message>| {
        let found = Search::new(&matcher, &show, limits, task).run(sink);
        sink.done(Message::Searched(found));
    };
    let mut has_groups = false;
    let mut result = Verdict { is_selected: false, is_failed: false };
    in_order(tasks, work, |said| {
        match said {
            Said::Bytes(bytes) => out.write_all(&bytes)?,
            Said::Fault(report) => result.fail(&report, args, context),
            Said::Done(Message::Unprinted) => has_groups = true,
            Said::Done(Message::Group) => {
                if std::mem::replace(&mut has_groups, true) {
                    out.write_all(&show.separator())?;
                }
            }
            Said::Done(Message::Searched(found)) => {
                result.is_selected |= found.is_selected;
                if let Some(error) = &found.error {
                    result.fail(&Report::on("cannot read", &found.shown, error), args, context);
                }
                if found.is_binary {
                    context.note(&found.shown, "binary file matches");
                }
                if args.quiet && result.is_selected {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    out.finish()?;
    // A part that cannot be read was not searched.
    let is_damaged = Cell::new(false);
    context.report_damage(|report| {
        is_damaged.set(true);
        show_failure(report, args, context);
    });
    result.is_failed |= is_damaged.get();
    context.set_status(match result {
        Verdict { is_selected: true, .. } if args.quiet => 0,
        Verdict { is_failed: true, .. } => 2,
        Verdict { is_selected, .. } => u8::from(!is_selected),
    });
    Ok(())
}

/// What the exit status depends on.
struct Verdict {
    is_selected: bool,
    is_failed: bool,
}

impl Verdict {
    fn fail(&mut self, report: &Report, args: &Args, context: &Context) {
        self.is_failed = true;
        show_failure(report, args, context);
    }
}

fn show_failure(report: &Report, args: &Args, context: &Context) {
    if !args.no_messages {
        context.fail(report);
    }
}

/// Returns whether a file is searched, or the files below a directory, by the base name.
fn filter(args: &Args) -> impl Fn(&[u8], &Attr, bool) -> bool + use<> {
    let compile = |patterns: &[std::ffi::OsString]| -> Vec<Pattern> {
        let bytes = patterns.iter().map(|pattern| pattern.as_encoded_bytes());
        bytes.map(|pattern| Pattern::new(pattern, Case::Sensitive)).collect()
    };
    let (include, exclude) = (compile(&args.include), compile(&args.exclude));
    let exclude_dir = compile(&args.exclude_dir);
    let any = |patterns: &[Pattern], name: &[u8]| patterns.iter().any(|pattern| pattern.matches(name));
    move |name, attr, _| match attr.kind {
        FileKind::Directory => !any(&exclude_dir, name),
        _ => (include.is_empty() || any(&include, name)) && !any(&exclude, name),
    }
}
