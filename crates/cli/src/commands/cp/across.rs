//! Moves between the host and an image, or between images: everything is copied, and then the source is removed.
//!
//! Invariant: a source is removed only after all of it was copied and the copy is on stable storage. On the host, only
//! files are removed that the copy read and that have not changed since.
//! Invariant: no other user can exchange the unfinished copy, if the file system stores owners.
//! Invariant: the copy is created beside the target and renamed when it is complete. The old target stays until then, and a move that
//! failed or was killed can be repeated.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use obento::Error;
use obento::address::Operand;
use obento::base::FileKind;
use obento::copy::{Backup, CopyError, CopyOptions, TargetIs, WriteReport, copy_in, copy_out_to};
use obento::driver::Access;
use obento::host::HostError;
use obento::host::interrupt;
use obento::host::sandbox::Rights;
use obento::vfs::Symlinks;

use super::super::mv::JUST_MOVED;
use super::end::{EndError, Endpoint, FileIdentity, HostEndpoint, source_of, target_of};
use super::report_losses;
use super::watch::CopyDisplay;
use crate::cause::Cause;
use crate::change::consent::agrees;
use crate::change::place::trimmed;
use crate::change::{Done, Verbose};
use crate::context::Context;
use crate::open::{self, open_for_change, prepare};
use crate::replaced::OldFile;
use crate::report::{Report, renamed, shell_word, subject};

/// The options of a move.
pub struct Moves {
    /// Which files may be replaced.
    pub replace: Replace,
    /// Whether the target is a name, even if it is a directory.
    pub is_copy: bool,
    /// Whether the target must be a directory.
    pub into: bool,
    /// The treatment of files that are replaced.
    pub backup: Backup,
    /// Whether a disk image of the host may be lost, because its name is the target.
    pub may_lose_image: bool,
}

impl Moves {
    /// Opens the file of the host that `target` names, if a source may replace it without a question.
    fn old_file(&self, target: &OsStr, context: &Context) -> Option<OldFile> {
        let is_kept = self.may_lose_image || self.backup != Backup::None;
        let is_asked = matches!(self.replace, Replace::Never | Replace::Ask);
        match open::operand(target, context) {
            Ok(Operand::Host(path)) if !is_kept && !is_asked => OldFile::open(&path),
            _ => None,
        }
    }
}

/// Whether an existing file is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replace {
    Always,
    Never,
    /// After the user agrees.
    Ask,
    /// If it is older than the source.
    Older,
}

/// Returns whether a move between these operands leaves an image.
pub fn concerns(sources: &[OsString], target: &OsStr, context: &Context) -> bool {
    let image = |operand: &OsStr| match open::operand(operand, context) {
        Ok(Operand::Image(address)) if address.place.is_some() => Some((address.image, address.part)),
        _ => None,
    };
    let ends: Vec<_> = sources.iter().map(|source| image(source)).chain([image(target)]).collect();
    ends.iter().any(Option::is_some) && ends.windows(2).any(|pair| pair[0] != pair[1])
}

/// Returns whether all sources and `target` are host paths. An existing file as `target` may be an image whose path is
/// missing.
pub fn is_on_host(sources: &[OsString], target: &OsStr, context: &Context) -> bool {
    let is_host = |operand: &OsStr| matches!(open::operand(operand, context), Ok(Operand::Host(_)));
    let is_target = is_host(target) && !open::is_image_name(target, context);
    is_target && sources.iter().all(|source| is_host(source))
}

/// Moves `sources` to `target`.
pub fn run(
    sources: &[OsString],
    target: &OsStr,
    moves: &Moves,
    verbose: &mut Verbose,
    context: &Context,
) -> Done {
    let target_word = target.to_owned();
    let can_wait = prepare(
        sources.iter().chain([&target_word]),
        open::BareOperand::HostFile,
        Access::ReadWrite,
        context,
    );
    let target_host = host(target, context, HostEndpoint::target)?;
    // Opened here, since the rights are given up before it is decoded.
    let old = moves.old_file(target, context);
    let hosts = sources.iter().map(|source| host(source, context, |path| Ok(HostEndpoint::source(path))));
    let hosts: Vec<Option<HostEndpoint>> = hosts.collect::<Result<_, _>>()?;
    let ends = || hosts.iter().flatten().chain(&target_host);
    if can_wait {
        confine(ends(), context);
    }
    let target = open(target, target_host.clone(), context)?;
    let opened: Vec<_> =
        sources.iter().zip(&hosts).map(|(source, host)| open(source, host.clone(), context)).collect();
    confine(ends(), context);
    let mut found = Vec::new();
    for source in opened {
        match source.and_then(find) {
            Ok(sources) => found.extend(sources),
            Err(report) => context.warn(&report),
        }
    }
    // An image may be moved over an earlier copy, which has the same name.
    if let Some(old) = old.filter(|_| found.iter().any(|source| source.name() != target.name())) {
        let force = "--force to replace the image";
        old.expect_no_image("cannot move to", &target.shown(), force, context)?;
    }
    let is_dir = target.is_directory();
    let must = moves.into || found.len() > 1;
    if must && !is_dir {
        return Err(match target.kind(Symlinks::Follow) {
            Ok(None) => no_directory(&target.shown(), matches!(target, Endpoint::Image(_))),
            _ => Report::on("cannot move into", target.shown(), Error::NotDirectory),
        });
    }
    let mut moved = Vec::new();
    for source in found {
        let into = must || is_dir && !moves.is_copy;
        // A source without a name is rejected before the target is read.
        let to =
            if into && !source.name().is_empty() { target.child(source.name()) } else { Ok(target.clone()) };
        let done = to.map_err(|cause| cannot_move(&source, &target, cause)).and_then(|to| {
            one(&source, &to, (moves, &moved), verbose, context)?;
            moved.extend(to.identity());
            Ok(())
        });
        if let Err(report) = done {
            context.warn(&report);
        }
        if interrupt::is_requested() {
            break;
        }
    }
    Ok(())
}

/// Returns the report of a directory for moved files that does not exist.
pub fn no_directory(shown: &[u8], is_in_image: bool) -> Report {
    let (mkdir, directory) = (if is_in_image { "obento mkdir" } else { "mkdir" }, shell_word(trimmed(shown)));
    Report::on("cannot move into", shown, "no such directory")
        .help(format!("create the directory first: {mkdir} -p {directory}"))
}

/// Gives up all rights except reading and changing what is below the host directories of the operands.
fn confine<'e>(ends: impl Iterator<Item = &'e HostEndpoint>, context: &Context) {
    let grounds: Vec<_> = ends.flat_map(HostEndpoint::grounds).map(AsFd::as_fd).collect();
    context.confine(if grounds.is_empty() { Rights::Read } else { Rights::WriteBeneath(&grounds) });
}

/// Follows an operand that is a host path; `None` for others. Fails if its path contains a symbolic link of another user.
fn host(
    operand: &OsStr,
    context: &Context,
    follow: impl FnOnce(PathBuf) -> Result<HostEndpoint, HostError>,
) -> Result<Option<HostEndpoint>, Report> {
    match open::operand(operand, context) {
        Ok(Operand::Host(path)) => follow(path).map(Some).map_err(Report::plain),
        // Other problems are reported when the operand is opened.
        _ => Ok(None),
    }
}

fn open(operand: &OsStr, host: Option<HostEndpoint>, context: &Context) -> Result<Endpoint, Report> {
    match host {
        Some(host) => Ok(Endpoint::Host(host)),
        None => open_for_change(operand, context).map(Endpoint::Image),
    }
}

fn find(source: Endpoint) -> Result<Vec<Endpoint>, Report> {
    match source {
        Endpoint::Host(host) => {
            let shown = Endpoint::Host(host.clone()).shown();
            let found = host.find().map_err(|error| match error.errno() {
                Some(errno) => Report::on("cannot access", shown, std::io::Error::from(errno)),
                None => Report::plain(error),
            });
            Ok(vec![Endpoint::Host(found?)])
        }
        Endpoint::Image(location) => {
            let found = location.find(Symlinks::Keep, "cannot access")?;
            Ok(found.into_iter().map(|found| Endpoint::Image(found.location)).collect())
        }
    }
}

fn one(
    source: &Endpoint,
    to: &Endpoint,
    (moves, moved): (&Moves, &[FileIdentity]),
    verbose: &mut Verbose,
    context: &Context,
) -> Done {
    let failed = |cause: &dyn Cause| cannot_move(source, to, cause);
    if let (Endpoint::Host(_), Endpoint::Host(_)) = (source, to) {
        return Err(failed(&"source and target are both on the host")
            .help("use mv(1); a path in an image has the form disk.img:/PATH"));
    }
    if source.name().is_empty() {
        if let Endpoint::Image(location) = source
            && location.shown().ends_with(b":/")
        {
            let help = "use 'obento cp -a' to copy the files of the volume";
            return Err(failed(&"the root directory of the volume cannot be moved").help(help));
        }
        return Err(failed(&"the path must end with a name, not with . or .."));
    }
    if source.is_behind_link() {
        return Err(failed(&Error::NotDirectory).help("omit the trailing slash to move the link itself"));
    }
    let moved = match way(source, to, moves).map_err(|cause| failed(&cause))? {
        TargetState::Barred => return Ok(()),
        TargetState::Open
            if moves.backup != Backup::Numbered && to.identity().is_some_and(|id| moved.contains(&id)) =>
        {
            return Err(failed(&JUST_MOVED));
        }
        TargetState::Open => take_place(source, to, moves, context),
    };
    let kept = moved.map_err(|error| failed(&error))?;
    source
        .remove()
        .map_err(|error| Report::on("cannot remove", source.shown(), error.cause).help(error.help))?;
    let backup = kept.map_or_else(String::new, |kept| format!(" (backup: {})", subject(kept)));
    verbose.say(|| format!("moved {} -> {}{backup}", subject(source.shown()), subject(to.shown())));
    Ok(())
}

fn cannot_move(source: &Endpoint, to: &Endpoint, cause: impl Cause) -> Report {
    Report::on(&format!("cannot move {} to", subject(source.shown())), to.shown(), cause)
}

/// The answer to whether the target may be replaced.
enum TargetState {
    /// No file exists, or the existing file is to be replaced.
    Open,
    /// The existing file is preserved.
    Barred,
}

fn way(source: &Endpoint, to: &Endpoint, moves: &Moves) -> Result<TargetState, EndError> {
    let Some(there) = to.kind(Symlinks::Keep)? else { return Ok(TargetState::Open) };
    if source.is_same(to) {
        return Err(EndError::Text("source and target are the same file".into()));
    }
    let is_older = || Ok::<_, EndError>(to.modified()? < source.modified()?);
    let may = match moves.replace {
        Replace::Always => true,
        Replace::Never => false,
        Replace::Ask => agrees(&format!("replace {}?", subject(to.shown()))),
        Replace::Older => there == FileKind::Directory || is_older()?,
    };
    if !may {
        return Ok(TargetState::Barred);
    }
    let is_dir = source.kind(Symlinks::Keep)? == Some(FileKind::Directory);
    match (is_dir, there == FileKind::Directory) {
        _ if moves.backup != Backup::None => Ok(TargetState::Open),
        (false, false) => Ok(TargetState::Open),
        (true, true) if to.is_empty()? => Ok(TargetState::Open),
        (true, true) => Err(Error::NotEmpty.into()),
        (false, true) => Err(EndError::Text("the target is a directory, but the source is not".into())),
        (true, false) => Err(EndError::Text("the source is a directory, but the target is not".into())),
    }
}

/// The reason why a source stays.
#[derive(Debug, thiserror::Error)]
enum MoveError {
    #[error(transparent)]
    Failed(#[from] EndError),
    /// `text` names the target instead of the unfinished copy.
    #[error("{text}")]
    Copy { text: String, error: CopyError },
    /// The missing parts were reported.
    #[error("not everything was copied")]
    InPart,
}

impl Cause for MoveError {
    fn inner(&self) -> Option<&dyn Cause> {
        match self {
            Self::Failed(error) => Some(error),
            Self::Copy { error, .. } => Some(error),
            Self::InPart => None,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::InPart => Some("the source is unchanged".to_owned()),
            _ => self.inner()?.hint(),
        }
    }
}

/// Copies `source` beside `to`, and renames the copy when it is complete and on stable storage. Returns the name of the backup.
fn take_place(
    source: &Endpoint,
    to: &Endpoint,
    moves: &Moves,
    context: &Context,
) -> Result<Option<Vec<u8>>, MoveError> {
    let beside = to.beside()?;
    let placed = copy_whole(source, (&beside, to), context)
        .and_then(|()| Ok(beside.rename_onto(to, &moves.backup)?))
        .and_then(|kept| Ok(to.sync().map(|()| kept)?));
    // The directory of the copy remains if another user has exchanged it.
    if let Err(cause) = beside.discard() {
        let report = Report::on("cannot remove the unfinished copy", beside.shown(), cause);
        context.warn(&report.help("another process may have exchanged it; examine the directory"));
    }
    placed
}

/// Copies all of `source` to the unused name `to`, and writes it to stable storage. Messages show `at`.
fn copy_whole(
    source: &Endpoint,
    (to, at): (&Endpoint, &Endpoint),
    context: &Context,
) -> Result<(), MoveError> {
    let mut watch = CopyDisplay::new(context, None, None).renaming(to.shown(), at.shown());
    // The unused name is removed then.
    context.stop_between_steps();
    let copied = copy(source, to, context, &mut watch);
    watch.finish().map_err(|_| EndError::Text("standard output cannot be written".into()))?;
    let copied = copied.map_err(|error| match error {
        MoveError::Copy { text, error } => {
            MoveError::Copy { text: renamed(&text, &to.shown(), &at.shown()), error }
        }
        error => error,
    });
    let (mut written, problems) = copied?;
    let unfinished = to.shown();
    let plain = unfinished.strip_prefix(b"./").unwrap_or(&unfinished);
    for (path, _) in written.lost.values_mut().flat_map(|lost| &mut lost.examples) {
        let lost = path.as_os_str().as_bytes();
        if let Some(below) = lost.strip_prefix(b"./").unwrap_or(lost).strip_prefix(plain) {
            *path = OsString::from_vec([&at.shown(), below].concat()).into();
        }
    }
    report_losses(&written, &at.shown(), false, context);
    if problems > 0 || written.lost.keys().any(|loss| loss.is_entry()) {
        return Err(MoveError::InPart);
    }
    Ok(to.sync()?)
}

fn copy(
    source: &Endpoint,
    to: &Endpoint,
    context: &Context,
    watch: &mut CopyDisplay<'_>,
) -> Result<(WriteReport, u64), MoveError> {
    let spared = context.host_files();
    let options = CopyOptions { target: TargetIs::Copy, spared, ..CopyOptions::archive() };
    let report = match (source, to) {
        (source, Endpoint::Image(location)) => {
            copy_in(&[source.source()?], &target_of(location), &options, watch)
        }
        (Endpoint::Image(location), Endpoint::Host(host)) => {
            copy_out_to(&[source_of(location)?], &host.as_target()?, &options, watch)
        }
        (Endpoint::Host(_), Endpoint::Host(_)) => return Err(EndError::from(Error::CrossDevice).into()),
    };
    let report = report.map_err(|error| MoveError::Copy { text: error.to_string(), error })?;
    Ok((report.written, report.problems))
}
