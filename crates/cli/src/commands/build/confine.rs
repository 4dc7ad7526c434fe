//! Giving up what a build has no use for, before it reads what others wrote.
//!
//! Archives, layouts and manifests are as hostile as images. What is left is to read the sources and to write beside the image. A
//! manifest may name any file of the host for its content, so then all may be read.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use obento::BuildSource;
use obento::sandbox::Rights;
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
    let is_host =
        |source: &&BuildSource| matches!(source, BuildSource::Directory(_) | BuildSource::Add { .. });
    if sources.iter().all(is_host) {
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

fn open(path: &Path) -> Option<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()
}
