//! The list of what could not be recovered.

use std::fs::File;
use std::io::{self, Write};

use obento::copy::{CopyReport, Observer, Problem, ProblemReason};
use obento::host::interrupt;

use super::bad::reason;
use crate::context::Context;
use crate::json::Line;
use crate::output::{Outcome, Output};
use crate::progress::Progress;
use crate::report::{printable, sentence};

/// The output of the list.
pub enum Out {
    Standard(Output),
    File(File),
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Standard(out) => out.write(bytes),
            Self::File(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Standard(out) => out.flush(),
            Self::File(file) => file.flush(),
        }
    }
}

/// Reports on a recovery while it runs.
pub struct Recovery<'c> {
    context: &'c Context,
    /// Whether a map says which ranges can be read.
    has_map: bool,
    progress: Progress<'c>,
    out: Out,
    /// The first failure of writing the list.
    failed: io::Result<()>,
    /// The path of the last damaged file, which may have several bad ranges.
    last: Vec<u8>,
    damaged: u64,
    lost: u64,
    others: u64,
    /// Files without a name, and where they are stored.
    unnamed: u64,
    unnamed_place: &'static str,
}

impl<'c> Recovery<'c> {
    pub fn new(out: Out, has_map: bool, context: &'c Context) -> Self {
        let progress = Progress::new(context.messages(), "recovering");
        let last = Vec::new();
        Self {
            context,
            has_map,
            progress,
            out,
            failed: Ok(()),
            last,
            damaged: 0,
            lost: 0,
            others: 0,
            unnamed: 0,
            unnamed_place: "",
        }
    }

    /// Returns whether an entry, such as a directory, could not be read.
    pub fn has_lost_entries(&self) -> bool {
        self.lost > 0
    }

    /// Adds files that were copied after the others, since no directory leads to them.
    pub fn add_unnamed(&mut self, files: u64, place: &'static str) {
        self.unnamed += files;
        self.unnamed_place = place;
    }

    /// Prints the summary, and sets the exit code.
    pub fn finish(mut self, copied: &CopyReport, target: &[u8]) -> Outcome {
        drop(self.progress);
        let tree = &copied.written;
        let files = tree.files + self.unnamed;
        let recovered = files + tree.directories + tree.others;
        self.failed?;
        let Self { damaged, lost, others, unnamed, .. } = self;
        if self.context.json() {
            let line = Line::new("recovered").bytes("path", target).field("files", files);
            line.field("damaged", damaged)
                .field("unnamed", unnamed)
                .field("lost", lost)
                .field("others", others)
                .write(&mut self.out)?;
        } else {
            let plural = |count: u64, one: &str, many: &str| {
                format!("{count} {}", if count == 1 { one } else { many })
            };
            let files = plural(files, "file recovered", "files recovered");
            let lost = plural(lost, "entry lost", "entries lost");
            let others = match others {
                0 => String::new(),
                others => format!("; {}", plural(others, "other problem", "other problems")),
            };
            self.context.note(target, format!("{files}, {damaged} of them damaged; {lost}{others}"));
            if unnamed > 0 {
                let place = self.unnamed_place;
                self.context.note(
                    target,
                    format!(
                        "{} stored {place}",
                        plural(unnamed, "file without a name is", "files without a name are")
                    ),
                );
            }
        }
        if damaged + lost + others > 0 {
            self.context.raise(if recovered == 0 { 2 } else { 1 });
        }
        Ok(self.out.flush()?)
    }

    fn line(&mut self, problem: &Problem) -> io::Result<()> {
        let (state, range) = match &problem.trouble {
            ProblemReason::Unread(unread) => {
                self.damaged += u64::from(self.last != problem.path);
                self.last.clone_from(&problem.path);
                ("damaged", Some(unread.range.clone()))
            }
            ProblemReason::Volume(_) => {
                self.lost += 1;
                ("lost", None)
            }
            ProblemReason::Xattrs(_) | ProblemReason::Xattr { .. } => {
                self.others += 1;
                ("attributes", None)
            }
            _ => {
                self.others += 1;
                ("unwritten", None)
            }
        };
        let reason = match &problem.trouble {
            ProblemReason::Unread(unread) if self.has_map => reason(&unread.error),
            ProblemReason::Volume(error) if self.has_map => reason(error),
            ProblemReason::Unread(unread) => unread.error.to_string(),
            ProblemReason::Volume(error) => error.to_string(),
            trouble => trouble.to_string(),
        };
        if self.context.json() {
            let line = Line::new("unrecovered").bytes("path", &problem.path).field("state", state);
            let line = match &range {
                Some(range) => line.field("start", range.start).field("end", range.end),
                None => line,
            };
            return line.field("reason", reason).write(&mut self.out);
        }
        let range = range.map_or_else(|| "-".to_owned(), |range| format!("{}-{}", range.start, range.end));
        writeln!(self.out, "{state}\t{range}\t{}\t{}", printable(&problem.path), sentence(&reason))
    }
}

impl Observer for Recovery<'_> {
    fn progress(&mut self, progress: &obento::copy::Progress<'_>) {
        self.progress.update(progress.bytes, None, progress.path);
    }

    fn is_stopped(&self) -> bool {
        interrupt::is_requested()
    }

    fn problem(&mut self, problem: &Problem) {
        if self.failed.is_ok() {
            self.failed = self.line(problem);
        }
    }
}
