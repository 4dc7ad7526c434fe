//! `obento import`: a tar archive into an image, as it is read.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use obento::{
    Access, CopyError, Existing, HostError, ImportOptions, Observer, Operand, Problem, TreeOptions, Trouble,
    UnpackLimits, import, interrupt,
};

use super::cp::{incomplete, tell_losses, with_remedy};
use crate::context::Context;
use crate::open;
use crate::output::{Outcome, Output};
use crate::progress::Progress;
use crate::report::Report;

/// Unpack a tar archive into an image: obento import disk.img:/srv root.tar.zst
///
/// Everything is kept that the archive says: owners (as numbers), modes, times, links, devices, holes, extended
/// attributes and access control lists. It may be packed with bzip2, gzip, lzma, xz or zstd, and is read once, from front to back.
/// Nothing is written outside the directory that is named, whatever the archive's paths and links say.
///
/// A member replaces the file that has its name, whatever types the two have, as in tar(1). Three cases differ: a directory keeps its
/// entries when the member is a directory, only a directory replaces a directory that has entries, and a link to a directory stays when
/// the member is a directory (tar --keep-directory-symlink).
///
/// Names of owners in the archive are passed over, as with tar --numeric-owner: the numbers are what the image's own
/// /etc/passwd gives names to. Layers of container images are unpacked as plain archives: a whiteout (.wh.NAME) becomes a
/// file and removes nothing.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The directory to unpack into
    #[arg(value_name = "IMAGE:/DIR")]
    target: OsString,
    /// The archive; standard input without it, and for -
    #[arg(value_name = "ARCHIVE", conflicts_with = "file")]
    archive: Option<PathBuf>,
    /// The same, as tar(1) has it
    #[arg(short, long, value_name = "ARCHIVE")]
    file: Option<PathBuf>,
    /// Take N components off the front of each path
    #[arg(long, value_name = "N", default_value_t = 0)]
    strip_components: usize,
    /// Leave out what matches PATTERN, and what is below it
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<OsString>,
    /// Leave files alone that exist
    #[arg(short = 'k', long)]
    keep_old_files: bool,
    /// Make everything the image owner's
    #[arg(long)]
    no_same_owner: bool,
    /// Leave extended attributes and access control lists out
    #[arg(long)]
    no_xattrs: bool,
    /// Name each member
    #[arg(short, long)]
    verbose: bool,
}

impl Args {
    fn options(&self, unpack: UnpackLimits) -> ImportOptions {
        let mut tree = TreeOptions::default();
        if self.no_same_owner {
            tree.keep -= obento::Keep::OWNER;
        }
        if self.no_xattrs {
            tree.keep -= obento::Keep::XATTRS;
        }
        if self.keep_old_files {
            tree.existing = Existing::Keep;
        }
        ImportOptions {
            strip_components: self.strip_components,
            exclude: self.exclude.iter().map(|pattern| pattern.as_bytes().to_vec()).collect(),
            tree,
            unpack,
        }
    }
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let Operand::Image(address) = open::operand(&args.target, context)? else {
        let shown = args.target.as_bytes();
        return Err(Report::on("cannot import into", shown, "this names no directory in an image")
            .help(format!("all of the image is {}:/", crate::report::printable(shown)))
            .into());
    };
    let path = args.file.as_deref().or(args.archive.as_deref()).filter(|path| *path != Path::new("-"));
    let input = open_archive(path)?;
    let name = path.map_or(&b"standard input"[..], |path| path.as_os_str().as_bytes());
    let total = path.and_then(|path| std::fs::metadata(path).ok()).filter(|meta| meta.is_file());
    if address.place.is_none() {
        // `open_for_change` says what to do.
        open::open_for_change(&args.target, context)?;
    }
    if context.expect_changes_allowed(args.target.as_bytes()).is_ok() {
        // The archive is open already.
        open::seal_before_decoding([&args.target], open::Bare::Image, Access::ReadWrite, context);
    }
    let target = super::cp::open_target(&address, context)?;
    context.seal();
    let shown = target.shown();
    let mut watch = Watch {
        context,
        progress: Progress::new(context, "importing"),
        // What is packed is shorter than what is read of it.
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
            tell_losses(&report.written, &shown, false, context);
            if report.absolute > 0 {
                context.note(name, "paths that start with `/` were put below the target");
            }
            match report.unknown {
                0 => {}
                1 => context.note(name, "one member of an unknown type was unpacked as a regular file"),
                many => {
                    context.note(
                        name,
                        format!("{many} members of unknown types were unpacked as regular files"),
                    );
                }
            }
            if report.is_cut || is_broken {
                context.note(&shown, format!("{} files and directories were unpacked", count(&report)));
            }
            if report.is_cut {
                context.raise(2);
            }
            Ok(())
        }
        Err(CopyError::Host(error @ HostError::Limit { .. })) => {
            context.warn(&incomplete(error));
            Ok(())
        }
        Err(error @ (CopyError::NotAnArchive { .. } | CopyError::Input(_))) => {
            Err(Report::on("cannot import", name, error).into())
        }
        Err(error) => Err(Report::new("cannot import", error).into()),
    }
}

fn count(report: &obento::ImportReport) -> u64 {
    let written = &report.written;
    written.files + written.directories + written.others
}

fn open_archive(path: Option<&Path>) -> Result<File, Report> {
    use std::os::fd::AsFd;
    match path {
        Some(path) => {
            File::open(path).map_err(|error| Report::on("cannot open", path.as_os_str().as_bytes(), error))
        }
        None if io::stdin().is_terminal() => {
            let report = Report::new("cannot import", "an archive cannot be typed");
            Err(report.help("name a file, or send it in: tar -c DIR | obento import disk.img:/"))
        }
        None => {
            let stdin = io::stdin().as_fd().try_clone_to_owned();
            Ok(File::from(stdin.map_err(|error| Report::new("cannot read standard input", error))?))
        }
    }
}

/// What a person sees meanwhile.
struct Watch<'c> {
    context: &'c Context,
    progress: Progress<'c>,
    total: Option<u64>,
    archive: &'c [u8],
    /// Where `-v` names what is unpacked.
    names: Option<Output>,
    /// The member named last: a long one reports more than once.
    last: Vec<u8>,
    /// Whether the archive was damaged.
    is_broken: bool,
}

impl Observer for Watch<'_> {
    fn progress(&mut self, progress: &obento::Progress<'_>) {
        self.progress.update(progress.bytes, self.total, progress.path);
        if let (Some(out), true) = (&mut self.names, self.last != progress.path) {
            self.last = progress.path.to_vec();
            // Whoever closed the pipe wants no more names, and the import goes on.
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
            Trouble::Member(obento::MemberTrouble::Archive(_)) => {
                self.is_broken = true;
                Report::on("cannot import all of", self.archive, &problem.trouble)
            }
            trouble => Report::on("cannot import", &problem.path, trouble),
        };
        self.context.warn(&with_remedy(report, &problem.trouble));
    }
}
