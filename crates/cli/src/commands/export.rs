//! `obento export`: writes a tree of an image as a tar archive.

use std::cell::Cell;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use obento::sandbox::Rights;
use obento::{
    Access, ExportOptions, FileId, FileKind, HostDir, HostError, Observer, Problem, Symlinks, export,
    interrupt,
};

use crate::context::Context;
use crate::open::{self, Found, join};
use crate::output::{Outcome, Stop, create_output};
use crate::progress::Progress;
use crate::report::Report;

/// Write a tree of an image as a tar archive
///
/// The archive (pax format) contains times in nanoseconds, extended attributes and holes.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The image, or a file or directory in it
    #[arg(value_name = "IMAGE[:/PATH]")]
    source: OsString,
    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write to FILE instead of standard output, as with --output
    #[arg(value_name = "FILE", conflicts_with = "output")]
    file: Option<PathBuf>,
    /// Omit extended attributes
    #[arg(long)]
    no_xattrs: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let path = args.output.as_ref().or(args.file.as_ref()).filter(|path| path.as_os_str() != "-");
    if path.is_none() && io::stdout().is_terminal() {
        let report = Report::new("cannot export", "refusing to write an archive to a terminal");
        return Err(report.help("name a file, or use a pipe: obento export disk.img | tar -tv").into());
    }
    let existing = match open::prepare([&args.source], open::BareOperand::Image, Access::ReadOnly, context) {
        true => confine(path.map(PathBuf::as_path), context)?,
        false => None,
    };
    let location = open::open(&args.source, context)?;
    let output = match path {
        Some(path) => {
            let file = existing.map_or_else(|| create_output(path), Ok)?;
            emptied(file, path, &context.opener().host_files())?
        }
        // Not the line-buffered standard output of the library.
        None => File::from(io::stdout().as_fd().try_clone_to_owned()?),
    };
    context.seal();
    let mut found = location.find(Symlinks::Keep, "cannot export")?;
    let Some(first) = found.pop().filter(|_| found.is_empty()) else {
        let report = Report::on("cannot export", args.source.as_bytes(), "the pattern matches several files");
        return Err(report.help("name one directory").into());
    };
    let name = path.map_or_else(|| "standard output".into(), Clone::clone);
    write_archive(
        &first,
        output,
        ExportOptions { xattrs: !args.no_xattrs, output: name, name: start(&first) },
        context,
    )
}

/// Gives up all rights before the image is decoded, except creating `path`. Returns the file if it exists, because
/// opening it later would require the right to follow its path. Errors: it cannot be opened, or its path contains a
/// symbolic link of another user.
fn confine(path: Option<&Path>, context: &Context) -> Result<Option<File>, Report> {
    let Some(path) = path else {
        context.seal();
        return Ok(None);
    };
    match HostDir::open_parent(path) {
        Ok((dir, name)) if matches!(dir.stat(&name), Ok(None)) => {
            context.confine(Rights::WriteBeneath(&[dir.as_fd()]));
            Ok(None)
        }
        Err(error @ HostError::ForeignLink { .. }) => Err(Report::plain(error)),
        _ => {
            let file = create_output(path)?;
            // It is truncated later, which the right to write to open files does not include.
            context.confine(Rights::WriteBeneath(&[]));
            Ok(Some(file))
        }
    }
}

/// Truncates the open file at `path`. Errors: it cannot be written, or is one of `spared`, from which the image is read.
fn emptied(file: File, path: &Path, spared: &[FileId]) -> Result<File, Report> {
    let failed = |error| Report::on("cannot write to", path.as_os_str().as_bytes(), error);
    if spared.contains(&FileId::of_file(&file, path).map_err(Report::plain)?) {
        return Err(Report::plain(HostError::IsSource { path: path.into() }));
    }
    if file.metadata().map_err(failed)?.is_file() {
        file.set_len(0).map_err(failed)?;
    }
    Ok(file)
}

/// Returns the name of the top of the tree in the archive: `.`, or the name of a file.
fn start(found: &Found) -> Vec<u8> {
    let shown = found.shown();
    match found.node.kind() {
        Ok(FileKind::Directory) => b".".to_vec(),
        _ => shown.rsplit(|&b| b == b'/' || b == b':').next().unwrap_or_default().to_vec(),
    }
}

fn write_archive(found: &Found, output: File, options: ExportOptions, context: &Context) -> Outcome {
    let is_stdout = options.output == ExportOptions::default().output;
    let failure = Rc::default();
    let output = Output { file: output, failure: Rc::clone(&failure) };
    let mut watch = Watch { context, progress: Progress::new(context, "exporting"), prefix: found.shown() };
    let exported = export(&found.node, output, &options, &mut watch);
    drop(watch);
    match (exported, failure.take()) {
        (_, Some(error)) if error.kind() == io::ErrorKind::BrokenPipe => Err(Stop::Output(error)),
        (Err(_), Some(error)) if is_stdout => Err(Stop::Output(error)),
        (Err(error), _) => Err(Report::plain(error).into()),
        (Ok((_, report)), _) => {
            if report.sockets > 0 {
                context.note(
                    &found.shown(),
                    match report.sockets {
                        1 => "omitted 1 socket, which tar cannot store".to_owned(),
                        sockets => format!("omitted {sockets} sockets, which tar cannot store"),
                    },
                );
            }
            if report.unlinked > 0 {
                let count = report.unlinked;
                context.note(
                    &found.shown(),
                    format!(
                        "{count} files with several names: too many to link, so each name became a separate file"
                    ),
                );
            }
            Ok(())
        }
    }
}

/// The output of the archive; it keeps the error that ended it.
struct Output {
    file: File,
    failure: Rc<Cell<Option<io::Error>>>,
}

impl Output {
    fn keep<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| {
            let copy = error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
            self.failure.set(Some(error));
            copy
        })
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes);
        self.keep(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.file.flush();
        self.keep(flushed)
    }
}

/// The progress bar and the reports of problems.
struct Watch<'c> {
    context: &'c Context,
    progress: Progress<'c>,
    /// The address of the top of the tree.
    prefix: Vec<u8>,
}

impl Observer for Watch<'_> {
    fn progress(&mut self, progress: &obento::Progress<'_>) {
        self.progress.update(progress.bytes, None, progress.path);
    }

    fn is_stopped(&self) -> bool {
        interrupt::is_requested()
    }

    fn problem(&mut self, problem: &Problem) {
        let below = problem.path.strip_prefix(b"./").unwrap_or_default();
        let path = if below.is_empty() { self.prefix.clone() } else { join(&self.prefix, below) };
        self.context.warn(&Report::on("cannot export", path, &problem.trouble));
    }
}
