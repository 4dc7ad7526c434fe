//! `obento import`: extracts a tar archive into an image while reading it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use obento::Error;
use obento::address::Operand;
use obento::base::Quantity;
use obento::copy::{CopyError, Existing, Observer, Problem, ProblemReason, TreeOptions};
use obento::driver::Access;
use obento::host::{HostError, UnpackLimits, interrupt};
use obento::import::{ImportOptions, MemberProblem, import};

use super::cp::report_losses;
use crate::context::Context;
use crate::help::page::Page;
use crate::input;
use crate::open;
use crate::output::{Outcome, Output};
use crate::progress::Progress;
use crate::report::{Report, shell_word};

/// The default of `--max-files`, as for untrusted images: a compressed archive of a few KiB may have more members than
/// there are inodes.
pub(super) const MEMBERS: u64 = 10_000_000;

/// The page of `import`.
pub const PAGE: Page = Page::new(&[
    ("obento import disk.img:/ root.tar.zst", "Extract an archive into the root directory"),
    ("tar -c site | obento import disk.img:/srv", "Extract an archive from a pipe"),
])
.see_also(&["tar(1)"]);

/// Extract a tar archive into an image
///
/// The archive may be compressed with bzip2, gzip, lzma, xz or zstd, and is read once. Owners (as numbers),
/// modes, times, links, devices, holes, extended attributes and access control lists are preserved. Nothing
/// is written outside the named directory, even if the archive contains hostile paths or links.
///
/// A member replaces an existing file of any type, as in tar(1), with three exceptions. The entries of a
/// directory remain if the member is a directory. A member that is not a directory does not replace a directory that
/// has entries; this is an error. A link to a directory is preserved if the member is a directory
/// (tar --keep-directory-symlink).
///
/// Owner names in the archive are ignored, and their numbers are used, as with tar --numeric-owner. Layers of container images are
/// extracted as plain archives: a whiteout (.wh.NAME) becomes a file and removes nothing.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The directory to extract into
    #[arg(value_name = "IMAGE:/DIR")]
    target: OsString,
    /// The archive; - or nothing for standard input
    #[arg(value_name = "ARCHIVE", conflicts_with = "file")]
    archive: Option<PathBuf>,
    /// Read ARCHIVE, as with tar -f
    #[arg(short, long, value_name = "ARCHIVE")]
    file: Option<PathBuf>,
    /// Remove N leading components from each path
    #[arg(long, value_name = "N", default_value_t = 0)]
    strip_components: usize,
    /// Omit members that match PATTERN, and everything below them
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<OsString>,
    /// Keep existing files
    #[arg(short = 'k', long)]
    keep_old_files: bool,
    /// Give all files to root
    #[arg(long)]
    no_same_owner: bool,
    /// Omit extended attributes and access control lists
    #[arg(long)]
    no_xattrs: bool,
    /// Stop after N members of the archive
    #[arg(long, value_name = "N", default_value_t = MEMBERS, value_parser = clap::value_parser!(u64).range(1..))]
    max_files: u64,
    /// Print each member
    #[arg(short, long)]
    verbose: bool,
}

impl Args {
    fn options(&self, unpack: UnpackLimits) -> ImportOptions {
        let mut tree = TreeOptions::default();
        if self.no_same_owner {
            tree.keep -= obento::copy::Keep::OWNER;
        }
        if self.no_xattrs {
            tree.keep -= obento::copy::Keep::XATTRS;
        }
        if self.keep_old_files {
            tree.existing = Existing::Keep;
        }
        ImportOptions {
            strip_components: self.strip_components,
            exclude: self.exclude.iter().map(|pattern| pattern.as_bytes().to_vec()).collect(),
            tree,
            unpack,
            max_members: Some(self.max_files),
        }
    }
}

/// Returns whether `name`, the operand for the archive, is a path inside an image.
fn is_in_image(name: &Path, context: &Context) -> bool {
    matches!(open::operand(name.as_os_str(), context), Ok(Operand::Image(_)))
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let Operand::Image(address) = open::operand(&args.target, context)? else {
        let shown = args.target.as_bytes();
        if let Some(archive) = args.archive.as_ref().filter(|name| is_in_image(name, context)) {
            let words = [archive.as_os_str().as_bytes(), shown].map(shell_word).join(" ");
            return Err(Report::on("cannot import into", shown, "not a path inside an image")
                .help(format!("the image comes first: obento import {words}"))
                .into());
        }
        return Err(Report::on("cannot import into", shown, "not a path inside an image")
            .help(format!("use {} for the root directory of the image", shell_word([shown, b":/"].concat())))
            .into());
    };
    let path = args.file.as_deref().or(args.archive.as_deref()).filter(|path| *path != Path::new("-"));
    let input = open_archive(path)?;
    let name = path.map_or(&b"standard input"[..], |path| path.as_os_str().as_bytes());
    let total = path.and_then(|path| std::fs::metadata(path).ok()).filter(|meta| meta.is_file());
    if address.place.is_none() {
        // `open_for_change` reports the problem.
        open::open_for_change(&args.target, context)?;
    }
    if context.expect_changes_allowed(args.target.as_bytes()).is_ok() {
        // The archive is open already.
        open::seal_before_decoding([&args.target], open::BareOperand::Image, Access::ReadWrite, context);
    }
    let target = super::cp::open_target(&address, context)?;
    context.seal();
    let shown_name = path.map_or_else(|| "standard input".to_owned(), |_| crate::report::subject(name));
    let shown = target.shown();
    let mut watch = Watch {
        context,
        progress: Progress::new(context.messages(), "importing"),
        // A compressed archive is shorter than the data that is read from it.
        total: total.map(|meta| meta.len()).filter(|_| name.ends_with(b".tar")),
        archive: name,
        names: args.verbose.then(Output::stdout),
        last: Vec::new(),
        is_broken: false,
    };
    let imported = import(input, &target, &args.options(context.options().unpack()), &mut watch);
    let (is_broken, names) = (watch.is_broken, watch.names.take());
    drop(watch);
    names.map_or(Ok(()), Output::finish)?;
    match imported {
        Ok(report) => {
            report_losses(&report.written, &shown, false, context);
            if report.absolute > 0 {
                context.note(name, "members with absolute paths were extracted below the target");
            }
            match report.unknown {
                0 => {}
                1 => context.note(name, "1 member of an unknown type was extracted as a regular file"),
                many => {
                    context.note(
                        name,
                        format!("{many} members of unknown types were extracted as regular files"),
                    );
                }
            }
            if report.is_cut || is_broken {
                context.note(&shown, format!("extracted {}", Quantity::new(count(&report), "entry")));
            }
            if report.is_cut {
                context.raise(2);
            }
            Ok(())
        }
        Err(CopyError::Host(error @ (HostError::Limit { .. } | HostError::FileLimit { .. }))) => {
            let help = "--max-files sets this limit; the members that were extracted before remain";
            context.warn(&Report::new("the extraction is incomplete", error).help(help));
            Ok(())
        }
        Err(CopyError::Input(error)) => Err(Report::new(format!("cannot read {shown_name}"), error).into()),
        Err(error @ (CopyError::NotAnArchive { .. } | CopyError::Packed { .. })) => {
            Err(Report::new(format!("cannot import {shown_name}"), error).into())
        }
        Err(CopyError::Target { path, error: Error::NotFound }) => {
            let help = format!("create the directory first: obento mkdir -p {}", shell_word(&path));
            Err(Report::on("cannot import into", &path, "no such directory").help(help).into())
        }
        Err(CopyError::Target { path, error: error @ Error::NotDirectory }) => {
            Err(Report::on("cannot import into", &path, error).help("name a directory in the image").into())
        }
        Err(error) => Err(super::cp::failed("cannot import", error).into()),
    }
}

fn count(report: &obento::import::ImportReport) -> u64 {
    let written = &report.written;
    written.files + written.directories + written.others
}

fn open_archive(path: Option<&Path>) -> Result<File, Report> {
    use std::os::fd::AsFd;
    match path {
        Some(path) => input::open("cannot open", path),
        None if io::stdin().is_terminal() => {
            let report = Report::new("cannot import", "refusing to read an archive from a terminal");
            Err(report.help("name a file, or use a pipe: tar -c DIR | obento import disk.img:/"))
        }
        None => {
            let stdin = io::stdin().as_fd().try_clone_to_owned();
            Ok(File::from(stdin.map_err(|error| Report::new("cannot read standard input", error))?))
        }
    }
}

/// The progress bar and the reports of problems.
struct Watch<'c> {
    context: &'c Context,
    progress: Progress<'c>,
    total: Option<u64>,
    archive: &'c [u8],
    /// The output of `-v`.
    names: Option<Output>,
    /// The last member that was printed: a long member reports more than once.
    last: Vec<u8>,
    /// Whether the archive is damaged.
    is_broken: bool,
}

impl Observer for Watch<'_> {
    fn progress(&mut self, progress: &obento::copy::Progress<'_>) {
        self.progress.update(progress.bytes, self.total, progress.path);
        if let (Some(out), true) = (&mut self.names, self.last != progress.path) {
            self.last = progress.path.to_vec();
            // If the reader closed the pipe, the import continues without printing names.
            if out.write_name(progress.path).and_then(|()| out.write_all(b"\n")).is_err() {
                self.names = None;
            }
        }
    }

    fn is_stopped(&self) -> bool {
        interrupt::is_requested()
    }

    fn problem(&mut self, problem: &Problem) {
        let report = match &problem.trouble {
            ProblemReason::Member(MemberProblem::Archive(_) | MemberProblem::Limit(_)) => {
                self.is_broken = true;
                Report::on("cannot import all of", self.archive, &problem.trouble)
            }
            trouble => Report::on("cannot import", &problem.path, trouble),
        };
        self.context.warn(&report);
    }
}
