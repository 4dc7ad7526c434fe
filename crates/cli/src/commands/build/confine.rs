//! Giving up what a build has no use for, before it reads what others wrote.
//!
//! Archives, layouts and manifests are as hostile as images. What is left is to read the sources, to read what is in the directory of a
//! manifest and in those that `--contents` names, and to write beside the image. What starts programs and kernels for types that
//! Linux fills is a process of its own by then.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use obento::engine::kernel_of;
use obento::engine::starter::{self, Job};
use obento::engine::types::Type;
use obento::sandbox::Rights;
use obento::{BuildSource, EmptyMaker, Error};
use rustix::fs::{Mode, OFlags};

use crate::context::Context;

/// Gives up all rights but to read `sources`, the directories of manifests and `files`, and to make `out`. Where nothing is read but directories of the host there
/// is nothing to fear.
pub(super) fn confine<'a>(
    out: &Path,
    sources: impl Iterator<Item = &'a BuildSource>,
    files: impl Iterator<Item = &'a Path>,
    context: &Context,
) {
    let sources: Vec<&BuildSource> = sources.collect();
    if !is_needed(sources.iter().copied()) {
        return;
    }
    let folder = folder_of(out);
    let folders = sources.iter().filter_map(|source| match source {
        BuildSource::Mtree(path) | BuildSource::Dump(path) => Some(folder_of(path)),
        _ => None,
    });
    // A file that cannot be opened is reported when it is read.
    let paths = sources.iter().filter_map(|source| source.path()).chain(folders).chain(files);
    let read: Vec<OwnedFd> = paths.filter_map(open).collect();
    let read: Vec<_> = read.iter().map(OwnedFd::as_fd).collect();
    if let Some(folder) = open(folder) {
        context.confine(Rights::Build { read: &read, write: folder.as_fd() });
    }
}

/// Whether anything is read that others may have written.
fn is_needed<'a>(mut sources: impl Iterator<Item = &'a BuildSource>) -> bool {
    sources.any(|source| !matches!(source, BuildSource::Directory(_) | BuildSource::Add { .. }))
}

/// The same where volumes are built that `makers` make and Linux fills. What starts programs and kernels for them is forked before;
/// where that cannot be, no rights are given up. Errors: there is no kernel that opens such a volume.
pub(super) fn confine_filled<'a>(
    makers: &mut [(&'static Type, &mut EmptyMaker)],
    out: &Path,
    sources: impl Iterator<Item = &'a BuildSource> + Clone,
    files: impl Iterator<Item = &'a Path>,
    context: &Context,
) -> Result<(), Error> {
    if makers.is_empty() || !context.gives_up_rights() || !is_needed(sources.clone()) {
        confine(out, sources, files, context);
        return Ok(());
    }
    makers.iter().try_for_each(|(kind, _)| kernel_of(kind).map(drop))?;
    let jobs = makers.iter().map(|(kind, maker)| Job { kind, make: Arc::clone(&maker.make) });
    if starter::fork(jobs.collect()).is_ok() {
        for (number, (_, maker)) in makers.iter_mut().enumerate() {
            maker.make = Arc::new(move |file| starter::make(number, file));
        }
        confine(out, sources, files, context);
    }
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn open(path: &Path) -> Option<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()
}
