//! Giving up what a build has no use for, before it reads what others wrote.
//!
//! Archives, layouts and manifests are as hostile as images. What is left is to read the sources and to write beside the image. A
//! manifest may name any file of the host for its content, so then all may be read. What starts programs and kernels for types that
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

/// Gives up all rights but to read `sources` and `files`, and to make `out`. Where nothing is read but directories of the host there
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
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let names_any = |source: &&BuildSource| matches!(source, BuildSource::Mtree(_) | BuildSource::Dump(_));
    let read: Vec<OwnedFd> = match sources.iter().any(names_any) {
        true => open(Path::new("/")).into_iter().collect(),
        // What cannot be opened is told when it is read.
        false => sources.iter().filter_map(|source| source.path()).chain(files).filter_map(open).collect(),
    };
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

fn open(path: &Path) -> Option<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()
}
