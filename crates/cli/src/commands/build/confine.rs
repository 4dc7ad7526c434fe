//! Giving up the rights that a build does not need, before it decodes files of other users.
//!
//! Archives, layouts and manifests are as hostile as images. The remaining rights are to read the sources,
//! the directories of manifests and those of `--contents`, and to write beside the outputs. The programs and
//! kernels for types that Linux fills are started by a separate process.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use obento::Error;
use obento::build::{BuildSource, EmptyMaker};
use obento::engine::kernel_of;
use obento::engine::starter::{self, Job};
use obento::engine::types::Type;
use obento::host::sandbox::Rights;
use rustix::fs::{Mode, OFlags};

use crate::context::Context;

/// Gives up all rights except reading `sources`, the directories of manifests and `files`, and creating
/// `outs`. If only directories of the host are read, nothing hostile is decoded, and no rights are given up.
pub(super) fn confine<'a>(
    outs: &[&Path],
    sources: impl Iterator<Item = &'a BuildSource>,
    files: impl Iterator<Item = &'a Path>,
    context: &Context,
) {
    let sources: Vec<&BuildSource> = sources.collect();
    if !is_needed(sources.iter().copied()) {
        return;
    }
    let folders = sources.iter().filter_map(|source| match source {
        BuildSource::Mtree(path) | BuildSource::Dump(path) => Some(folder_of(path)),
        _ => None,
    });
    // A file that cannot be opened is reported when it is read.
    let paths = sources.iter().filter_map(|source| source.path()).chain(folders).chain(files);
    let read: Vec<OwnedFd> = paths.filter_map(open).collect();
    let read: Vec<_> = read.iter().map(OwnedFd::as_fd).collect();
    let write: Option<Vec<OwnedFd>> = outs.iter().map(|out| open(folder_of(out))).collect();
    if let Some(write) = write {
        let write: Vec<_> = write.iter().map(OwnedFd::as_fd).collect();
        context.confine(Rights::Build { read: &read, write: &write });
    }
}

/// Returns whether a source is decoded that another user may have written.
fn is_needed<'a>(mut sources: impl Iterator<Item = &'a BuildSource>) -> bool {
    sources.any(|source| !matches!(source, BuildSource::Directory(_) | BuildSource::Add { .. }))
}

/// The same for volumes that `makers` create and Linux fills. The process that starts their programs and
/// kernels is forked before; if that is impossible, no rights are given up. Fails if no kernel can open such
/// a volume.
pub(super) fn confine_filled<'a>(
    makers: &mut [(&'static Type, &mut EmptyMaker)],
    outs: &[&Path],
    sources: impl Iterator<Item = &'a BuildSource> + Clone,
    files: impl Iterator<Item = &'a Path>,
    context: &Context,
) -> Result<(), Error> {
    if makers.is_empty() || !context.gives_up_rights() || !is_needed(sources.clone()) {
        confine(outs, sources, files, context);
        return Ok(());
    }
    makers.iter().try_for_each(|(kind, _)| kernel_of(kind).map(drop))?;
    let jobs = makers.iter().map(|(kind, maker)| Job { kind, make: Arc::clone(&maker.make) });
    if starter::fork(jobs.collect()).is_ok() {
        for (number, (_, maker)) in makers.iter_mut().enumerate() {
            maker.make = Arc::new(move |file| starter::make(number, file));
        }
        confine(outs, sources, files, context);
    }
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn open(path: &Path) -> Option<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()
}
