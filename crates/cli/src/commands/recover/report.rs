//! The list of what could not be recovered.

use std::fs::File;
use std::io::{self, Write};

use obento::{Observer, Problem, ProblemReason, interrupt};

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
    progress: Progress<'c>,
    out: Out,
    /// The first failure of writing the list.
    failed: io::Result<()>,
    /// The path of the last damaged file, which may have several bad ranges.
    last: Vec<u8>,
    damaged: u64,
    lost: u64,
    others: u64,
}

impl<'c> Recovery<'c> {
    pub fn new(out: Out, context: &'c Context) -> Self {
        let progress = Progress::new(context, "recovering");
        Self { context, progress, out, failed: Ok(()), last: Vec::new(), damaged: 0, lost: 0, others: 0 }
    }

    /// Prints the summary.
    pub fn finish(mut self, files: u64, target: &[u8]) -> Outcome {
        drop(self.progress);
        self.failed?;
        let Self { damaged, lost, others, .. } = self;
        if self.context.json() {
            let line = Line::new("recovered").bytes("path", target).field("files", files);
            line.field("damaged", damaged)
                .field("lost", lost)
                .field("others", others)
                .write(&mut self.out)?;
        } else {
            let plural = |count: u64, one: &str, many: &str| {
                format!("{count} {}", if count == 1 { one } else { many })
            };
            let files = plural(files, "file is recovered", "files are recovered");
            let damaged = plural(damaged, "of them is damaged", "of them are damaged");
            let lost = plural(lost, "entry is lost", "entries are lost");
            self.context.note(target, format!("{files}, {damaged}; {lost}"));
        }
        if damaged + lost + others > 0 {
            self.context.raise(1);
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
            ProblemReason::Xattrs(_) => {
                self.others += 1;
                ("attributes", None)
            }
            _ => {
                self.others += 1;
                ("unwritten", None)
            }
        };
        let reason = match &problem.trouble {
            ProblemReason::Unread(unread) => unread.error.to_string(),
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
    fn progress(&mut self, progress: &obento::Progress<'_>) {
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
