//! The output of a copy: problems, progress, and with `-v` every name.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;

use obento::copy::{Loss, Observer, Problem, ProblemReason};
use obento::host::{HostError, interrupt};
use obento::{Error, Volume};

use crate::change::lacking::limit;
use crate::context::Context;
use crate::open::join;
use crate::output::{Outcome, Output};
use crate::progress::Progress;
use crate::report::{Report, subject};

/// Reports on a copy while it runs.
pub struct CopyDisplay<'c> {
    context: &'c Context,
    progress: Progress<'c>,
    total: Option<u64>,
    names: Option<Names>,
    /// The hint for a file that is too large for the target.
    too_large: Option<String>,
    /// The first failure of writing names.
    failed: io::Result<()>,
    /// The temporary name of the copy, and the name that messages show.
    unfinished: Option<(Vec<u8>, Vec<u8>)>,
}

/// Writes `'disk.img:/a' -> 'b/a'` for every entry.
pub struct Names {
    out: Output,
    /// Where each source goes: its address, and the path of the copy.
    places: Vec<(Vec<u8>, Vec<u8>)>,
    /// The entry named last: a long file reports more than once.
    last: Vec<u8>,
    /// Its line, which is printed when the entry is copied.
    line: String,
}

impl Names {
    /// Names copies of `sources`, each an address and the name that its copy has in a directory, in `target`, or as
    /// `target`.
    pub fn new<'s>(
        sources: impl Iterator<Item = (Vec<u8>, Option<&'s [u8]>)>,
        target: &[u8],
        into: bool,
    ) -> Self {
        let place = |name: Option<&[u8]>| match name {
            Some(name) if into => join(target, name),
            _ => target.to_vec(),
        };
        let places = sources.map(|(source, name)| (source, place(name))).collect();
        Self { out: Output::stdout(), places, last: Vec::new(), line: String::new() }
    }

    fn name(&mut self, path: &[u8]) -> io::Result<()> {
        if self.last == path {
            return Ok(());
        }
        self.last = path.to_vec();
        self.write()?;
        let below = |source: &[u8]| path.strip_prefix(source).map(<[u8]>::to_vec);
        let found =
            self.places.iter().filter_map(|(source, copy)| Some((source.len(), copy, below(source)?)));
        // Of two sources that fit, the longer is the one that lies inside the other.
        let Some((_, copy, below)) = found.max_by_key(|(len, ..)| *len) else { return Ok(()) };
        let below = below.strip_prefix(b"/").unwrap_or(&below);
        let copy = if below.is_empty() { copy.clone() } else { join(copy, below) };
        // For people, wherever it goes: a line a file.
        self.line = format!("{} -> {}\n", subject(path), subject(&copy));
        Ok(())
    }

    /// Prints the line of the entry named last.
    fn write(&mut self) -> io::Result<()> {
        self.out.write_all(std::mem::take(&mut self.line).as_bytes())
    }

    fn finish(mut self) -> Outcome {
        self.write()?;
        self.out.finish()
    }
}

impl<'c> CopyDisplay<'c> {
    /// A watch over `total` bytes, if that is known.
    pub fn new(context: &'c Context, total: Option<u64>, names: Option<Names>) -> Self {
        let progress = Progress::new(context.messages(), "copying");
        Self { context, progress, total, names, too_large: None, failed: Ok(()), unfinished: None }
    }

    /// Shows the name `to` in messages instead of `from`, the temporary name of the copy.
    #[must_use]
    pub fn renaming(self, from: Vec<u8>, to: Vec<u8>) -> Self {
        Self { unfinished: Some((from, to)), ..self }
    }

    /// Adds the limit of files on `target`, the volume of the copies, to reports.
    pub fn into_volume(self, target: &Volume) -> Self {
        Self { too_large: Some(limit(target)), ..self }
    }

    /// Drops the line of an entry that was not copied.
    fn omit(&mut self, path: &[u8]) {
        if let Some(names) = &mut self.names
            && names.last == path
        {
            names.line.clear();
        }
    }

    /// Removes the progress bar and writes out the names.
    pub fn finish(self) -> Outcome {
        self.failed?;
        self.names.map_or(Ok(()), Names::finish)
    }
}

impl Observer for CopyDisplay<'_> {
    fn progress(&mut self, progress: &obento::copy::Progress<'_>) {
        self.progress.update(progress.bytes, self.total, progress.path);
        if let (Some(names), true) = (&mut self.names, self.failed.is_ok()) {
            self.failed = names.name(progress.path);
        }
    }

    fn is_stopped(&self) -> bool {
        interrupt::is_requested()
    }

    fn dropped(&mut self, path: &[u8], loss: Loss) {
        self.omit(path);
        // Without --verbose, the report has the number of these entries.
        if self.names.is_none() {
            return;
        }
        match loss {
            Loss::Name => {
                let why = "the file system of the copy does not support the name";
                self.context.warn(&Report::on("cannot copy", path, why));
            }
            // The report at the end gives the reason, which may be an option.
            _ => self.context.note(path, "not copied"),
        }
    }

    fn problem(&mut self, problem: &Problem) {
        if !matches!(
            problem.trouble,
            ProblemReason::Unread(_) | ProblemReason::Xattrs(_) | ProblemReason::Xattr { .. }
        ) {
            self.omit(&problem.path);
        }
        let report = match &problem.trouble {
            // The operation on this file is named once.
            ProblemReason::Host(HostError::System { path, errno, .. })
                if path.as_os_str().as_bytes() == problem.path =>
            {
                Report::on("cannot copy", &problem.path, io::Error::from(*errno))
            }
            trouble => {
                let report = Report::on("cannot copy", &problem.path, trouble);
                match (trouble, &self.too_large) {
                    (ProblemReason::Target { error: Error::FileTooBig, .. }, Some(limit)) => {
                        report.help(limit)
                    }
                    _ => report,
                }
            }
        };
        self.context.warn(&match &self.unfinished {
            Some((from, to)) => report.renamed(from, to),
            None => report,
        });
    }
}
