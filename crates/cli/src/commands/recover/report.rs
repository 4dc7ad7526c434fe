//! The list of what could not be recovered.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use obento::base::Quantity;
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
    /// The start of the shown paths, and the directory that contains their copies.
    prefix: Vec<u8>,
    target: Option<PathBuf>,
    /// The first failure of writing the list.
    failed: io::Result<()>,
    /// The path of the last damaged file, which may have several bad ranges.
    last: Vec<u8>,
    damaged: u64,
    lost: u64,
    /// Directories of which only a part could be read.
    directories: u64,
    others: u64,
    /// Whether the volume has errors, although all that it contains could be read.
    has_errors: bool,
    /// Files without a name, and where they are stored.
    unnamed: u64,
    /// The regular files among them.
    unnamed_files: u64,
    unnamed_place: &'static str,
}

impl<'c> Recovery<'c> {
    pub fn new(
        out: Out,
        has_map: bool,
        prefix: Vec<u8>,
        target: Option<PathBuf>,
        context: &'c Context,
    ) -> Self {
        let progress = Progress::new(context.messages(), "recovering");
        let last = Vec::new();
        Self {
            context,
            has_map,
            progress,
            out,
            prefix,
            target,
            failed: Ok(()),
            last,
            damaged: 0,
            lost: 0,
            directories: 0,
            others: 0,
            has_errors: false,
            unnamed: 0,
            unnamed_files: 0,
            unnamed_place: "",
        }
    }

    /// Returns whether an entry, or a part of a directory, could not be read.
    pub fn has_lost_entries(&self) -> bool {
        self.lost + self.directories > 0
    }

    /// Records that a check has found errors on the volume.
    pub fn add_errors(&mut self) {
        self.has_errors = true;
    }

    /// Adds files that were copied after the others, since no directory leads to them.
    pub fn add_unnamed(&mut self, written: &CopyReport, place: &'static str) {
        self.unnamed += written.written.files + written.written.others;
        self.unnamed_files += written.written.files;
        self.unnamed_place = place;
    }

    /// Returns whether the copy of a path of the volume is a directory.
    fn is_copied_directory(&self, path: &[u8]) -> bool {
        let below = path.strip_prefix(&self.prefix[..]).and_then(|path| path.strip_prefix(b"/"));
        let Some(below) = below else { return false };
        let copy = self.target.as_ref().map(|target| target.join(OsStr::from_bytes(below)));
        let is_directory = |copy| fs::symlink_metadata(copy).is_ok_and(|copy| copy.is_dir());
        !below.is_empty() && copy.is_some_and(is_directory)
    }

    /// Prints the summary, and sets the exit code.
    pub fn finish(mut self, copied: &CopyReport, target: &[u8]) -> Outcome {
        drop(self.progress);
        let tree = &copied.written;
        let files = tree.files + self.unnamed_files;
        let recovered = tree.files + self.unnamed + tree.directories + tree.others;
        self.failed?;
        let Self { damaged, lost, directories, others, unnamed, .. } = self;
        if self.context.json() {
            let line = Line::new("recovered").bytes("path", target).field("files", files);
            line.field("damaged", damaged)
                .field("unnamed", unnamed)
                .field("lost", lost)
                .field("damaged_directories", directories)
                .field("others", others)
                .write(&mut self.out)?;
        } else {
            let plural = |count: u64, one: &str, many: &str| {
                format!("{count} {}", if count == 1 { one } else { many })
            };
            let files_found = files;
            let files = plural(files, "file recovered", "files recovered");
            let lost = plural(lost, "entry lost", "entries lost");
            let also = |count: u64, one, many| match count {
                0 => String::new(),
                count => format!("; {}", plural(count, one, many)),
            };
            let directories = also(directories, "directory damaged", "directories damaged");
            let others = also(others, "other problem", "other problems");
            self.context
                .note(target, format!("{files}, {damaged} of them damaged; {lost}{directories}{others}"));
            if self.has_errors && files_found == 0 {
                let note = "the volume has errors, and a repair of a copy found no files";
                self.context.note(target, note);
            }
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
        let is_incomplete = damaged + lost + directories + others > 0;
        if is_incomplete || self.has_errors && tree.files + unnamed == 0 {
            self.context.raise(if recovered == 0 { 2 } else { 1 });
        }
        Ok(self.out.flush()?)
    }

    /// Prints the summary of a list of `files` files that were read and not copied, and sets the exit code.
    pub fn finish_list(mut self, files: u64, source: &[u8]) -> Outcome {
        drop(self.progress);
        self.failed?;
        let Self { damaged, lost, others, .. } = self;
        if self.context.json() {
            let line = Line::new("listed").bytes("path", source).field("files", files);
            line.field("damaged", damaged)
                .field("lost", lost)
                .field("others", others)
                .write(&mut self.out)?;
        } else {
            let (files, damaged) = (Quantity::new(files, "file"), Quantity::new(damaged, "damaged file"));
            let lost = Quantity::new(lost, "unreadable entry");
            self.context.note(source, format!("{files} read, and nothing copied: {damaged}, {lost}"));
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
            // The directory was copied before its entries were listed.
            ProblemReason::Volume(_) if self.is_copied_directory(&problem.path) => {
                self.directories += 1;
                ("damaged", None)
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
