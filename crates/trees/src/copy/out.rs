//! Copies from an image into a directory of the host.

use std::path::Path;

use obento_base::{FileKind, Name};
use obento_host::tree::TreeWriter;

use super::engine::Copy;
use super::options::may_meet_twice;
use super::source::CopyFrom;
use super::target::{CopyPlace, HostTarget};
use super::{CopyError, CopyOptions, CopyReport, CopySource, Observer, ProblemReason};

/// Copies `sources` to `target`. [`CopyOptions::target`] decides whether `target` is a directory to copy into
/// or the copy itself. A problem with one file is passed to `observer`, and the copy continues.
///
/// # Errors
///
/// - Errors that prevent the copy from starting: a target that cannot be opened.
/// - [`HostError::Limit`](super::HostError::Limit), if the copy would write more than the maximum number of
///   bytes, and [`HostError::Stopped`](super::HostError::Stopped), if the observer ends the copy. Files that
///   were copied before the error remain.
///
/// ```no_run
/// use obento::Image;
/// use obento::copy::{CopyOptions, CopySource, Quiet};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let volume = Image::open("disk.img")?.volume(None)?;
/// let root = CopySource { node: volume.root(), path: b"/".to_vec(), prefix: Vec::new() };
/// let mut problems = Quiet::default();
/// let report = obento::copy::copy_out(&[root], "folder".as_ref(), &CopyOptions::archive(), &mut problems)?;
/// println!("{} files, {} problems", report.written.files, report.problems);
/// # Ok(())
/// # }
/// ```
pub fn copy_out(
    sources: &[CopySource],
    target: &Path,
    options: &CopyOptions,
    observer: &mut dyn Observer,
) -> Result<CopyReport, CopyError> {
    copy_out_to(sources, &HostTarget::open(target)?, options, observer)
}

/// Copies as [`copy_out`] does, to a target whose path was already resolved.
pub fn copy_out_to(
    sources: &[CopySource],
    target: &HostTarget,
    options: &CopyOptions,
    observer: &mut dyn Observer,
) -> Result<CopyReport, CopyError> {
    let place = target.place(sources, options)?;
    let (CopyPlace::Into(directory) | CopyPlace::As(directory, _)) = place;
    let mut writer = TreeWriter::open_in(directory, options.tree.clone())?.sparing(&options.spared);
    if may_meet_twice(sources.iter().map(CopySource::name)) {
        writer = writer.returning();
    }
    let writer = writer.behind();
    let mut copy = Copy::new(writer, None, options, observer);
    for source in sources {
        // Inodes of two volumes may have the same number.
        let same = |other: &CopySource| other.node.vfs().root() == source.node.vfs().root();
        let index = sources.iter().position(same).unwrap_or(usize::MAX);
        let name = match place {
            CopyPlace::As(_, name) => Some(Ok(name.to_buf())),
            CopyPlace::Into(_) => source.name().map(|name| Name::new(name).map(Name::to_buf)),
        };
        let from = CopyFrom::Image(source.clone());
        match name {
            Some(Ok(name)) => copy.source(&from, index, Some(&name))?,
            None if source.node.kind() == Ok(FileKind::Directory) => copy.source(&from, index, None)?,
            _ => copy.fail(source.join(b""), ProblemReason::Nameless)?,
        }
    }
    let (written, problems) = copy.finish()?;
    Ok(CopyReport { written, problems })
}
