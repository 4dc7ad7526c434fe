//! `obento export`: writes a tree of an image as a tar archive.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use obento::base::{FileKind, NameBuf, Quantity};
use obento::copy::{Observer, Problem};
use obento::driver::Access;
use obento::export::{ExportOptions, export};
use obento::host::sandbox::Rights;
use obento::host::{AccessLimit, FolderAccess, HostDir, HostError, interrupt};
use obento::vfs::Symlinks;
use rustix::fs::AtFlags;

use crate::context::Context;
use crate::help::page::Page;
use crate::open::{self, Found, join};
use crate::output::{Outcome, Stop, create_output, emptied, not_written};
use crate::progress::Progress;
use crate::replaced::OldFile;
use crate::report::Report;

/// The page of `export`.
pub const PAGE: Page = Page::new(&[
    ("obento export disk.img root.tar", "Write all files to an archive"),
    ("obento export disk.img:/etc | tar -tv", "List the archive of a directory"),
])
.see_also(&["tar(1)", "pax(1)"]);

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
    /// Replace FILE even if it is a disk image
    #[arg(short, long)]
    force: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let path = args.output.as_ref().or(args.file.as_ref()).filter(|path| path.as_os_str() != "-");
    if path.is_none() && io::stdout().is_terminal() {
        let report = Report::new("cannot export", "refusing to write an archive to a terminal");
        return Err(report.help("name a file, or use a pipe: obento export disk.img | tar -tv").into());
    }
    let is_prepared = open::prepare([&args.source], open::BareOperand::Image, Access::ReadOnly, context);
    let place = path.map(|path| OutputPlace::find(path)).transpose()?;
    // Opened here, since the rights are given up before it is decoded.
    let old = path.filter(|_| !args.force).and_then(|path| OldFile::open(path));
    if is_prepared {
        confine(place.as_ref(), context);
    }
    let location = open::open(&args.source, context)?;
    confine(place.as_ref(), context);
    let limit = limit(&args.source, context)?;
    let mut found = location.find(Symlinks::Keep, "cannot export")?;
    let Some(first) = found.pop().filter(|_| found.is_empty()) else {
        let report = Report::on("cannot export", args.source.as_bytes(), "the pattern matches several files");
        return Err(report.help("name one directory").into());
    };
    let name = path.map_or_else(|| "standard output".into(), Clone::clone);
    let options = ExportOptions { xattrs: !args.no_xattrs, output: name, name: start(&first) };
    let (Some(path), Some(place)) = (path, place) else {
        // Not the line-buffered standard output of the library.
        let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        return write_archive(&first, output, options, context);
    };
    if let Some(old) = old {
        let shown = path.as_os_str().as_bytes();
        // The archive would replace the image; a path in the image cannot be the output.
        old.expect_no_image("cannot export to", shown, "", context).map_err(|report| {
            report.help(
                "name another file; to put files into the image, use 'obento cp'; --force replaces the image",
            )
        })?;
    }
    context.stop_between_steps();
    let output = emptied(place.open(path, limit)?, path, &context.host_files())?;
    let written = write_archive(&first, output, options, context);
    if written.is_err() && !place.remove() {
        context.note(path.as_os_str().as_bytes(), "the archive is incomplete");
    }
    written
}

/// Returns the limit that the image, which is open, sets to the permissions of an archive of its files.
fn limit(source: &OsStr, context: &Context) -> Result<AccessLimit, Report> {
    let address = open::address(source, context)?;
    Ok(match address.server() {
        Some(_) => AccessLimit::NONE,
        None => context.access_limit(&address.image),
    })
}

/// The output, as it was found before the rights were given up.
enum OutputPlace {
    /// An existing file, because opening it later would require the right to follow its path.
    File(File),
    /// A new name in a directory.
    New(HostDir, NameBuf, FolderAccess),
}

impl OutputPlace {
    /// Fails if an existing file cannot be opened, or the path contains a symbolic link of another user.
    fn find(path: &Path) -> Result<Self, Report> {
        match HostDir::open_parent(path) {
            Ok((dir, name)) if matches!(dir.stat(&name), Ok(None)) => {
                let access = FolderAccess::of(dir.as_fd());
                Ok(Self::New(dir, name, access))
            }
            Err(error @ HostError::ForeignLink { .. }) => Err(Report::plain(error)),
            _ => create_output(path).map(Self::File),
        }
    }

    /// Opens the file. Only users who may read the image may read a new file.
    fn open(&self, path: &Path, limit: AccessLimit) -> Result<File, Report> {
        match self {
            Self::File(file) => file
                .try_clone()
                .map_err(|error| Report::on("cannot write to", path.as_os_str().as_bytes(), error)),
            Self::New(dir, name, access) => {
                dir.open_output(name, limit.mode_in(access)).map_err(|error| not_written(path, error))
            }
        }
    }

    /// Removes an archive that is not complete. Returns whether it is gone, or is not a file.
    fn remove(&self) -> bool {
        match self {
            Self::File(file) => file.metadata().is_ok_and(|meta| !meta.is_file()),
            Self::New(dir, name, _) => {
                rustix::fs::unlinkat(dir.as_fd(), name.as_bytes(), AtFlags::empty()).is_ok()
            }
        }
    }
}

/// Gives up all rights except creating and removing the archive.
fn confine(place: Option<&OutputPlace>, context: &Context) {
    match place {
        None => context.seal(),
        Some(OutputPlace::New(dir, ..)) => context.confine(Rights::WriteBeneath(&[dir.as_fd()])),
        // It is truncated later, which the right to write to open files does not include.
        Some(OutputPlace::File(_)) => context.confine(Rights::WriteBeneath(&[])),
    }
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
    let mut watch =
        Watch { context, progress: Progress::new(context.messages(), "exporting"), prefix: found.shown() };
    let exported = export(&found.node, output, &options, &mut watch);
    drop(watch);
    match (exported, failure.take()) {
        (_, Some(error)) if error.kind() == io::ErrorKind::BrokenPipe => Err(Stop::Output(error)),
        (Err(_), Some(error)) if is_stdout => Err(Stop::Output(error)),
        (Err(error), _) => Err(Report::plain(error).into()),
        (Ok((_, report)), _) => {
            if report.sockets > 0 {
                let sockets = Quantity::new(report.sockets, "socket");
                context.note(&found.shown(), format!("omitted {sockets}, which tar cannot store"));
            }
            if report.unlinked > 0 {
                let files = Quantity::new(report.unlinked, "file");
                context.note(
                    &found.shown(),
                    format!(
                        "{files} with several names: too many to link, so each name became a separate file"
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
    fn progress(&mut self, progress: &obento::copy::Progress<'_>) {
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
