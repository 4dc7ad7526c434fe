//! Copies into an image, from the host or from an image.

use std::io::{self, Read};

use obento_base::{Error, FileKind, Mode, Name, Timestamp};
use obento_host::tree::{Keep, TreeOptions};
use obento_host::{DataSink, Metadata, SinkError, interrupt};
use obento_vfs::{Caller, Node, Symlinks};

use super::engine::Copy;
use super::holes::HoleSink;
use super::image::{CHUNK, ImageTarget, ImageWriter, OverwritePolicy, TargetPlace};
use super::options::may_meet_twice;
use super::source::CopyFrom;
use super::tree_sink::{FileError, NewEntry, TreeSink as _};
use super::{
    CopyError, CopyOptions, CopyReport, HardLinks, Observer, ProblemReason, Progress, TargetIs, expect_wanted,
};

/// Copies `sources` to `target`. [`CopyOptions::target`] decides whether `target` is a directory to copy into
/// or the copy itself. A problem with one file is passed to `observer`, and the copy continues. The copy is on
/// stable storage after [`Volume::sync`](obento_open::Volume::sync) or [`Volume::close`](obento_open::Volume::close).
///
/// If the copy replaces a file, the name refers at every moment to the old file or to the complete new file. Exception:
/// with [`HardLinks::Separate`], a regular file with several names is overwritten in place, as cp(1) does, so that all
/// its names refer to the new contents. If this fails, its contents stay incomplete. The exception does not apply if
/// the options request backups, or if a source is on the volume of the target.
///
/// # Errors
///
/// - Errors that prevent the copy from starting: a target that cannot be used, or a volume that cannot be
///   changed.
/// - Errors that end the copy: the limit on bytes, a stop by the observer, or a device that fails. Files that
///   were copied before the error remain.
///
/// ```no_run
/// use obento::Image;
/// use obento::address::FileSelector;
/// use obento::copy::{CopyFrom, CopyOptions, ImageTarget, Quiet};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let volume = Image::builder().for_change().open("disk.img")?.volume(None)?;
/// let target = ImageTarget {
///     volume: volume.clone(),
///     place: FileSelector::Path(b"/srv".to_vec()),
///     prefix: b"disk.img:".to_vec(),
/// };
/// let source = CopyFrom::Host(b"folder".to_vec());
/// let mut problems = Quiet::default();
/// let report = obento::copy::copy_in(&[source], &target, &CopyOptions::archive(), &mut problems)?;
/// println!("{} files, {} problems", report.written.files, report.problems);
/// volume.close()?;
/// # Ok(())
/// # }
/// ```
pub fn copy_in(
    sources: &[CopyFrom],
    target: &ImageTarget,
    options: &CopyOptions,
    observer: &mut dyn Observer,
) -> Result<CopyReport, CopyError> {
    let place = target.find(sources, options)?;
    let failed = |error| CopyError::Target { path: target.shown(), error };
    let root = place.node().clone();
    let mut writer =
        ImageWriter::open(root.clone(), place.address(), options.tree.clone()).map_err(failed)?;
    let is_within = sources.iter().any(|source| source.is_in_volume_of(&root));
    writer.over(match options.hard_links {
        // A file that would be written in place may be the source by another name.
        HardLinks::Separate if is_within => OverwritePolicy::Apart,
        HardLinks::Separate => OverwritePolicy::Contents,
        HardLinks::Keep => OverwritePolicy::File,
    });
    if may_meet_twice(sources.iter().map(CopyFrom::name)) {
        writer.may_return();
    }
    let mut copy = Copy::new(writer, Some(root.clone()), options, observer);
    for (index, source) in sources.iter().enumerate() {
        let index = match source {
            CopyFrom::Image(from) => {
                sources.iter().position(|other| other.is_in_volume_of(&from.node)).unwrap_or(index)
            }
            CopyFrom::Host(_) | CopyFrom::HostEntry(..) => index,
        };
        let name = match place.name(source) {
            None => None,
            Some(Ok(name)) => Some(name),
            Some(Err(_)) => {
                copy.fail(source.shown(), ProblemReason::Nameless)?;
                continue;
            }
        };
        match refusal(source, &place, name.as_deref()).map_err(failed)? {
            Some(trouble) => copy.fail(source.shown(), trouble)?,
            None => copy.source(source, index, name.as_deref())?,
        }
    }
    let (written, problems) = copy.finish()?;
    Ok(CopyReport { written, problems })
}

/// Writes the bytes of `input` to the file at `target`. An existing file keeps its mode. Returns the number of bytes.
///
/// # Errors
///
/// - `Input`: `input` cannot be read.
/// - `Target`: the file cannot be written.
/// - `BadTarget`: `target` is a directory.
pub fn copy_from_reader(
    input: &mut dyn Read,
    target: &ImageTarget,
    options: &CopyOptions,
    observer: &mut dyn Observer,
) -> Result<u64, CopyError> {
    let options = CopyOptions { target: TargetIs::Copy, ..options.clone() };
    let shown = target.shown();
    let failed = |error| CopyError::Target { path: shown.clone(), error };
    if target.directory().is_some() {
        return Err(failed(Error::IsDirectory));
    }
    let TargetPlace::As(dir, address, name) = target.find(&[CopyFrom::Host(b"-".to_vec())], &options)? else {
        return Err(failed(Error::IsDirectory));
    };
    // A stream has no metadata to keep.
    let tree = TreeOptions { keep: Keep::empty(), ..options.tree.clone() };
    let mut writer = ImageWriter::open(dir, address, tree).map_err(failed)?;
    writer.over(OverwritePolicy::Contents);
    let now = Timestamp::new(i64::MAX, 0);
    let meta =
        Metadata { mode: Mode::new(0o666), uid: 0, gid: 0, atime: now, mtime: now, ctime: now, xattrs: &[] };
    let (mut bytes, mut broken, mut buffer) = (0, None, vec![0; CHUNK]);
    let mut fill = |sink: &mut dyn DataSink| {
        let mut sink = HoleSink { sink, holes: options.holes };
        loop {
            match read_full(input, &mut buffer) {
                Ok(0) => return Ok(()),
                Ok(len) => {
                    sink.bytes(&buffer[..len])?;
                    bytes += len as u64;
                    observer.progress(&Progress { files: 0, bytes, path: &shown });
                    expect_wanted(observer)?;
                }
                Err(error) => {
                    broken = Some(error);
                    return Err(SinkError::Source(Error::Invalid));
                }
            }
        }
    };
    let made = writer.create(&name, &meta, NewEntry::File(&mut fill));
    if let Some(error) = broken {
        return Err(CopyError::Input(error));
    }
    match made {
        Ok(()) => {}
        Err(FileError::Source(error)) => return Err(failed(error)),
        Err(FileError::Trouble(ProblemReason::Target { path, error })) => {
            return Err(CopyError::Target { path, error });
        }
        Err(FileError::Trouble(trouble)) => return Err(CopyError::Problem(trouble)),
    }
    writer.finish().map(|_| bytes)
}

/// Reads until `buffer` is full or the input ends, so that whole blocks are written. Returns the number of bytes.
/// Retries after an interruption. Fails with the errors of `input`.
pub fn read_full(input: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match input.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted && !interrupt::is_requested() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

/// Returns the reason why `source` cannot be copied to `place` within one volume.
fn refusal(
    source: &CopyFrom,
    place: &TargetPlace,
    name: Option<&Name>,
) -> Result<Option<ProblemReason>, Error> {
    let CopyFrom::Image(from) = source else { return Ok(None) };
    if !source.is_in_volume_of(place.node()) {
        return Ok(None);
    }
    if from.node.kind()? == FileKind::Directory {
        let inside = is_at_or_below(place.node().clone(), &from.node)?;
        let onto_itself = name.is_some_and(|name| place.node().lookup(name).as_ref() == Ok(&from.node));
        return Ok((inside || onto_itself).then_some(ProblemReason::IntoItself));
    }
    let is_same = name.is_some_and(|name| {
        let vfs = place.node().vfs();
        let at = |symlinks| vfs.resolve(place.node(), name.as_bytes(), symlinks, &Caller::Owner);
        at(Symlinks::Keep).as_ref() == Ok(&from.node) || at(Symlinks::Follow).as_ref() == Ok(&from.node)
    });
    Ok(is_same.then_some(ProblemReason::SameFile))
}

fn is_at_or_below(mut node: Node, ancestor: &Node) -> Result<bool, Error> {
    /// A limit far above any valid tree, which ends the loop for a damaged tree with a cycle.
    const MAX_DEPTH: u32 = 1 << 20;
    for _ in 0..MAX_DEPTH {
        if node == *ancestor {
            return Ok(true);
        }
        if node.is_root() {
            return Ok(false);
        }
        node = node.parent()?;
    }
    Err(Error::Loop)
}
