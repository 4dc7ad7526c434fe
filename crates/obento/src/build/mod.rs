//! Images out of trees: sources are read into one tree in memory, the driver lays it out, and the bytes of files go straight
//! to where they belong.
//!
//! Order: all sources are read ([`source`], each over those before it), and what is wrong with any of them is told before
//! anything is written; the driver plans ([`obento_driver::Build`]); bytes are moved in as many threads as help ([`bytes`]), the
//! driver writes the rest; and the file gets its name. What comes through a pipe is written before there is a plan ([`stream`]).
//! Invariant: a source is hostile. Its names are data, resolved within the tree ([`model`]) and nowhere else.

mod bytes;
mod digest;
mod disk;
mod error;
mod fill;
mod generic;
mod model;
mod options;
mod source;
mod stream;
mod volume;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use obento_base::{DeviceError, Error};
use obento_block::BlockDevice;
use obento_driver::{FormatError, Formatted, Replay};
use obento_host::build::FreshFile;

use crate::{Image, Observer, Options, Registry, diff_bytes};
pub use disk::{
    DiskReport, DiskSettings, EmptyMaker, PartitionContent, PartitionReport, PartitionSettings,
    PartitionSize, build_disk, build_disk_twice,
};
pub use error::{BuildFailure, SourceProblem};
pub use fill::{FillReport, MakeEmpty, build_filled};
pub use options::{BuildSettings, BuildSource, ChangeMode, IdMap, Input, Owner};
use stream::Stream;

/// What a build did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BuildReport {
    /// The volume.
    pub formatted: Formatted,
    /// Files that are no directories.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Bytes of data that were moved.
    pub bytes: u64,
    /// Entries of sources that were left out because a pattern says so.
    pub excluded: u64,
    /// What has to be known of sources.
    pub notes: Vec<String>,
}

/// Builds the image `out` of `sources`, each over those before it. It has its name only when it is whole. Errors: see
/// [`BuildFailure`]; then nothing was made.
///
/// ```no_run
/// use obento::{BuildSettings, BuildSource, Quiet, Registry, build};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let sources = [BuildSource::Directory("rootfs".into())];
/// let settings = BuildSettings::new("ext4");
/// let report = build("root.img".as_ref(), &sources, &settings, &Registry::default(), &mut Quiet::default())?;
/// println!("{} files, {} bytes", report.files, report.bytes);
/// # Ok(())
/// # }
/// ```
pub fn build(
    out: &Path,
    sources: &[BuildSource],
    settings: &BuildSettings,
    registry: &Registry,
    observer: &mut dyn Observer,
) -> Result<BuildReport, BuildFailure> {
    let (fresh, report) = make(out, sources, settings, registry, observer)?;
    fresh.publish(settings.publish)?;
    Ok(report)
}

/// The same, twice; the image gets its name only if both times it has the same bytes. Errors: as [`build`]; NotSame;
/// Host for standard input, which cannot be read twice.
pub fn build_twice(
    out: &Path,
    sources: &[BuildSource],
    settings: &BuildSettings,
    registry: &Registry,
    observer: &mut dyn Observer,
) -> Result<BuildReport, BuildFailure> {
    if sources.iter().any(BuildSource::is_pipe) {
        return Err(BuildFailure::OnlyOnce);
    }
    let (first, report) = make(out, sources, settings, registry, observer)?;
    let (second, _) = make(out, sources, settings, registry, observer)?;
    let first = same(first, second, registry)?;
    first.publish(settings.publish)?;
    Ok(report)
}

/// The first of two images that are the same. Errors: NotSame.
fn same(first: FreshFile, second: FreshFile, registry: &Registry) -> Result<FreshFile, BuildFailure> {
    let (first, second) = (Arc::new(first), Arc::new(second));
    let options = Options { replay: Replay::Skip, ..Options::default() };
    let open = |file: &Arc<FreshFile>| {
        Image::on_device("".as_ref(), Arc::new(Whole(file.clone())), registry, &options)
    };
    let failed = |_| FormatError::Device(Error::Invalid);
    let (one, other) = (open(&first).map_err(failed)?, open(&second).map_err(failed)?);
    let found = diff_bytes(&one, &other, &mut |_| ControlFlow::Continue(())).map_err(FormatError::from)?;
    if let Some(found) = found {
        return Err(BuildFailure::NotSame(Box::new(found)));
    }
    drop((one, other, second));
    Arc::into_inner(first).ok_or_else(|| FormatError::Device(Error::Invalid).into())
}

/// The bytes of a file without a name, shared.
struct Whole(Arc<FreshFile>);

impl BlockDevice for Whole {
    fn len(&self) -> u64 {
        self.0.device().len()
    }
    fn is_read_only(&self) -> bool {
        true
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> obento_base::Result<()> {
        self.0.device().read_at(offset, buf)
    }
    fn write_at(&self, _: u64, _: &[u8]) -> obento_base::Result<()> {
        Err(DeviceError::ReadOnly.into())
    }
    fn flush(&self) -> obento_base::Result<()> {
        Ok(())
    }
}

/// Builds an image that has no name yet.
fn make(
    out: &Path,
    sources: &[BuildSource],
    settings: &BuildSettings,
    registry: &Registry,
    observer: &mut dyn Observer,
) -> Result<(FreshFile, BuildReport), BuildFailure> {
    let stream = match sources.iter().any(BuildSource::is_pipe) {
        true => Stream::begin(out, settings, registry)?,
        false => None,
    };
    let mut read = source::read_all(out, sources, settings, stream, observer)?;
    let (mut plan, fresh, came) = match read.stream.take() {
        Some(stream) => stream.plan(&read, settings)?,
        None => {
            let plan = volume::plan(&read, settings, registry)?;
            let fresh = FreshFile::new(out, plan.device_len())?;
            (plan, fresh, 0)
        }
    };
    let moved = volume::write(&mut *plan, &read, (&fresh, 0), settings, observer)?;
    let report = volume::report(&*plan, &read, came + moved);
    Ok((fresh, report))
}
