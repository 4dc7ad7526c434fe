//! Moves between the host and an image, and from one image to another: a copy of everything, and then the source goes.
//!
//! Invariant: a source is removed only once all of it was copied and the copy is on stable storage.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use obento::{
    CopyFrom, CopyOptions, CopySource, Error, FileKind, ImageTarget, Loss, Operand, RemoveObserver, Symlinks,
    TargetIs, Timestamp, WriteReport, copy_in, copy_out, remove_tree,
};

use super::tell_losses;
use super::watch::Watch;
use crate::change::consent::agrees;
use crate::change::{Done, Tell};
use crate::context::Context;
use crate::open::{self, Location, join, open_for_change};
use crate::report::{Report, subject};

/// How to move.
pub struct Moves {
    /// Whether anything that is there may be replaced; asked for each.
    pub replace: Replace,
    /// Whether the target is what it says, even if it is a directory.
    pub is_copy: bool,
    /// Whether the target must be a directory.
    pub into: bool,
}

/// What happens to what is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replace {
    Always,
    Never,
    /// The person is asked.
    Ask,
    /// If it is older than the source.
    Older,
}

/// Where something is, or comes to be.
#[derive(Clone)]
enum End {
    Host(PathBuf),
    Image(Location),
}

/// Whether a move between these leaves an image.
pub fn concerns(sources: &[OsString], target: &OsStr, context: &Context) -> bool {
    let image = |operand: &OsStr| match open::operand(operand, context) {
        Ok(Operand::Image(address)) if address.place.is_some() => Some((address.image, address.part)),
        _ => None,
    };
    let ends: Vec<_> = sources.iter().map(|source| image(source)).chain([image(target)]).collect();
    ends.iter().any(Option::is_some) && ends.windows(2).any(|pair| pair[0] != pair[1])
}

/// Moves `sources` to `target`.
pub fn run(sources: &[OsString], target: &OsStr, moves: &Moves, tell: &mut Tell, context: &Context) -> Done {
    let target = open(target, context)?;
    let opened: Vec<_> = sources.iter().map(|source| open(source, context)).collect();
    let mut found = Vec::new();
    for source in opened {
        match source.and_then(find) {
            Ok(sources) => found.extend(sources),
            Err(report) => context.warn(&report),
        }
    }
    let is_dir = target.kind(Symlinks::Follow) == Ok(Some(FileKind::Directory));
    let must = moves.into || found.len() > 1;
    if must && !is_dir {
        return Err(Report::on("cannot move into", target.shown(), Error::NotDirectory));
    }
    for source in found {
        let to = if must || is_dir && !moves.is_copy { target.child(source.name()) } else { target.clone() };
        if let Err(report) = one(&source, &to, moves, tell, context) {
            context.warn(&report);
        }
    }
    Ok(())
}

fn open(operand: &OsStr, context: &Context) -> Result<End, Report> {
    match open::operand(operand, context)? {
        Operand::Image(address) if address.place.is_some() => {
            open_for_change(operand, context).map(End::Image)
        }
        Operand::Host(path) => Ok(End::Host(path)),
        _ => open_for_change(operand, context).map(End::Image),
    }
}

fn find(source: End) -> Result<Vec<End>, Report> {
    match source {
        End::Host(path) => match fs::symlink_metadata(&path) {
            Ok(_) => Ok(vec![End::Host(path)]),
            Err(error) => Err(Report::on("cannot access", path.as_os_str().as_bytes(), error)),
        },
        End::Image(location) => {
            let found = location.find(Symlinks::Keep, "cannot access")?;
            Ok(found.into_iter().map(|found| End::Image(found.location)).collect())
        }
    }
}

fn one(source: &End, to: &End, moves: &Moves, tell: &mut Tell, context: &Context) -> Done {
    let failed = |cause: &dyn std::fmt::Display| {
        Report::on(&format!("cannot move {} to", subject(source.shown())), to.shown(), cause)
    };
    if let (End::Host(_), End::Host(_)) = (source, to) {
        return Err(failed(&"both are on the host").help("mv(1) moves those"));
    }
    if source.name().is_empty() {
        return Err(failed(&"it has no name of its own: name it by its path, without . or .. at the end"));
    }
    if !make_way(source, to, moves).map_err(|cause| failed(&cause))? {
        return Ok(());
    }
    let mut watch = Watch::new(context, None, None);
    let copied = copy(source, to, context, &mut watch);
    if watch.finish().is_err() {
        return Err(failed(&"standard output cannot be written"));
    }
    let (written, problems) = copied.map_err(|cause| failed(&cause))?;
    tell_losses(&written, &to.shown(), false, context);
    let is_whole =
        problems == 0 && !written.lost.keys().any(|loss| matches!(loss, Loss::Device | Loss::Special));
    if !is_whole {
        return Err(failed(&"not all of it was copied").help("the source stays as it is"));
    }
    to.sync().map_err(|cause| failed(&cause))?;
    source.remove().map_err(|cause| {
        Report::on("cannot remove", source.shown(), cause).help("its copy is whole: remove it by hand")
    })?;
    tell.say(|| format!("moved {} -> {}", subject(source.shown()), subject(to.shown())));
    Ok(())
}

/// Whether what is at the target, if anything, may be replaced; an empty directory is removed for one that comes.
fn make_way(source: &End, to: &End, moves: &Moves) -> Result<bool, String> {
    let Some(there) = to.kind(Symlinks::Keep)? else { return Ok(true) };
    if source.is_same(to) {
        return Err("they are the same file".into());
    }
    let is_older = || Ok::<_, String>(to.modified()? < source.modified()?);
    let may = match moves.replace {
        Replace::Always => true,
        Replace::Never => false,
        Replace::Ask => agrees(&format!("replace {}?", subject(to.shown()))),
        Replace::Older => there == FileKind::Directory || is_older()?,
    };
    if !may {
        return Ok(false);
    }
    let is_dir = source.kind(Symlinks::Keep)? == Some(FileKind::Directory);
    match (is_dir, there == FileKind::Directory) {
        (false, false) => Ok(true),
        (true, true) => to.remove_empty().map(|()| true),
        (false, true) => Err("it is a directory, and the source is none".into()),
        (true, false) => Err("it is no directory, and the source is one".into()),
    }
}

fn copy(
    source: &End,
    to: &End,
    context: &Context,
    watch: &mut Watch<'_>,
) -> Result<(WriteReport, u64), String> {
    let spared = context.opener().host_files();
    let options = CopyOptions { target: TargetIs::Copy, spared, ..CopyOptions::archive() };
    let report = match (source, to) {
        (source, End::Image(location)) => {
            let target = ImageTarget {
                volume: (*location.volume).clone(),
                place: location.place.clone(),
                prefix: location.prefix.to_vec(),
            };
            let from = match source {
                End::Host(path) => CopyFrom::Host(path.as_os_str().as_bytes().to_vec()),
                End::Image(location) => CopyFrom::Image(source_of(location)?),
            };
            copy_in(&[from], &target, &options, watch)
        }
        (End::Image(location), End::Host(path)) => copy_out(&[source_of(location)?], path, &options, watch),
        (End::Host(_), End::Host(_)) => return Err("both are on the host".into()),
    };
    report.map(|report| (report.written, report.problems)).map_err(|error| error.to_string())
}

fn source_of(location: &Location) -> Result<CopySource, String> {
    let node = location.volume.resolve(&location.place, Symlinks::Keep).map_err(|error| error.to_string())?;
    let prefix = location.prefix.to_vec();
    Ok(CopySource { node, path: location.shown().split_off(prefix.len()), prefix })
}

impl End {
    fn shown(&self) -> Vec<u8> {
        match self {
            Self::Host(path) => path.as_os_str().as_bytes().to_vec(),
            Self::Image(location) => location.shown(),
        }
    }

    /// The last component; empty if it is none.
    fn name(&self) -> &[u8] {
        match self {
            Self::Host(path) => path.file_name().map_or(b"", OsStrExt::as_bytes),
            Self::Image(location) => location.base_name(),
        }
    }

    fn child(&self, name: &[u8]) -> Self {
        match self {
            Self::Host(path) => {
                Self::Host(OsString::from_vec(join(path.as_os_str().as_bytes(), name)).into())
            }
            Self::Image(location) => Self::Image(location.child(name)),
        }
    }

    /// The kind of what is there; none if nothing is.
    fn kind(&self, symlinks: Symlinks) -> Result<Option<FileKind>, String> {
        match self {
            Self::Host(path) => {
                let found = match symlinks {
                    Symlinks::Follow => fs::metadata(path),
                    Symlinks::Keep => fs::symlink_metadata(path),
                };
                match found {
                    Ok(meta) if meta.is_dir() => Ok(Some(FileKind::Directory)),
                    Ok(_) => Ok(Some(FileKind::Regular)),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(error.to_string()),
                }
            }
            Self::Image(location) => match location.volume.resolve(&location.place, symlinks) {
                Ok(node) => node.kind().map(Some).map_err(|error| error.to_string()),
                Err(error) if error == Error::NotFound => Ok(None),
                Err(error) => Err(error.to_string()),
            },
        }
    }

    /// Whether it is what `other` is: an image may have several names on the host.
    fn is_same(&self, other: &Self) -> bool {
        let node = |end: &Self| match end {
            Self::Host(_) => None,
            Self::Image(location) => location.volume.resolve(&location.place, Symlinks::Keep).ok(),
        };
        node(self).is_some_and(|ours| node(other) == Some(ours))
    }

    fn modified(&self) -> Result<Timestamp, String> {
        match self {
            Self::Host(path) => {
                use std::os::unix::fs::MetadataExt;
                let meta = fs::symlink_metadata(path).map_err(|error| error.to_string())?;
                Ok(Timestamp::new(meta.mtime(), u32::try_from(meta.mtime_nsec()).unwrap_or(0)))
            }
            Self::Image(location) => {
                let node = location.volume.resolve(&location.place, Symlinks::Keep);
                node.and_then(|node| node.attr()).map(|attr| attr.mtime).map_err(|error| error.to_string())
            }
        }
    }

    fn remove_empty(&self) -> Result<(), String> {
        match self {
            Self::Host(path) => fs::remove_dir(path).map_err(|error| error.to_string()),
            Self::Image(location) => {
                let spot = location.spot().map_err(|error| error.to_string())?;
                let removed = location.volume.vfs().rmdir(&obento::Caller::Owner, &spot.dir, &spot.name);
                removed.map_err(|error| error.to_string())
            }
        }
    }

    /// Brings what was written here to stable storage.
    fn sync(&self) -> Result<(), String> {
        match self {
            Self::Host(path) => {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                let folder = fs::File::open(parent.unwrap_or(Path::new("."))).map_err(|e| e.to_string())?;
                rustix::fs::syncfs(folder).map_err(|error| error.to_string())
            }
            Self::Image(location) => location.volume.vfs().sync().map_err(|error| error.to_string()),
        }
    }

    /// Removes all of it.
    fn remove(&self) -> Result<(), String> {
        match self {
            Self::Host(path) => {
                let is_dir = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
                let removed = if is_dir { fs::remove_dir_all(path) } else { fs::remove_file(path) };
                removed.map_err(|error| error.to_string())
            }
            Self::Image(location) => {
                let spot = location.spot().map_err(|error| error.to_string())?;
                let mut first = First(None);
                match remove_tree(&spot.dir, &spot.name, &mut first) {
                    true => Ok(()),
                    false => Err(first.0.unwrap_or_default()),
                }
            }
        }
    }
}

/// Keeps the first failure.
struct First(Option<String>);

impl RemoveObserver for First {
    fn failed(&mut self, path: &[u8], error: Error) {
        self.0.get_or_insert_with(|| format!("{}: {error}", crate::report::printable(path)));
    }
}
