//! Images out of trees: sources are read into one tree in memory, the driver lays it out, and the bytes of files go straight
//! to where they belong.
//!
//! Order: all sources are read ([`source`], each over those before it), and what is wrong with any of them is told before
//! anything is written; the driver plans ([`obento_driver::Build`]); bytes are moved in as many threads as help ([`bytes`]), the
//! driver writes the rest; and the file gets its name. What comes through a pipe is spooled, or written before there is a plan
//! ([`stream`]). A build that is to be verified is done twice, checked, and compared with its sources ([`verify`]).
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
mod verify;
mod volume;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use obento_base::{DeviceError, Error};
use obento_block::BlockDevice;
use obento_driver::{FormatError, Formatted, Replay};
use obento_host::build::FreshFile;

use crate::{Image, Observer, Options, Part, Registry, diff_bytes};
pub use disk::{
    DiskReport, DiskSettings, EmptyMaker, PartitionContent, PartitionReport, PartitionSettings,
    PartitionSize, build_disk, build_disk_verified,
};
pub use error::{BuildFailure, SourceProblem};
pub use fill::{FillReport, MakeEmpty, build_filled};
pub use options::{BuildSettings, BuildSource, ChangeMode, IdMap, Input, Owner, Pipes};
use source::Read;
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
    let Made { fresh, report, .. } = make(out, sources, settings, registry, observer)?;
    fresh.publish(settings.publish)?;
    Ok(report)
}

/// Builds as [`build`] does, and verifies the result: the image gets its name only if a second build has the same bytes, the check of
/// the volume reports nothing, and each file in the volume is as its source has it, as far as the format stores that.
///
/// # Errors
///
/// As [`build`], and:
/// - `OnlyOnce`: a source is a pipe, which cannot be read twice.
/// - `NotSame`: two builds differ.
/// - `NotSound`: the check reports something.
/// - `Differs`: files differ from their sources.
pub fn build_verified(
    out: &Path,
    sources: &[BuildSource],
    settings: &BuildSettings,
    registry: &Registry,
    observer: &mut dyn Observer,
) -> Result<BuildReport, BuildFailure> {
    if sources.iter().any(BuildSource::is_pipe) {
        return Err(BuildFailure::OnlyOnce);
    }
    let first = make(out, sources, settings, registry, observer)?;
    let second = make(out, sources, settings, registry, observer)?;
    let volume = Verified { part: None, read: &first.read, made: &first.report.formatted };
    let fresh = verified(first.fresh, second.fresh, &[volume], registry)?;
    fresh.publish(settings.publish)?;
    Ok(first.report)
}

/// A volume of an image that is to be verified.
struct Verified<'a> {
    part: Option<Part>,
    read: &'a Read,
    made: &'a Formatted,
}

/// Returns the first of two images, if both have the same bytes and all `volumes` hold what they were built of. Errors: NotSame;
/// those of [`verify::verify`].
fn verified(
    first: FreshFile,
    second: FreshFile,
    volumes: &[Verified<'_>],
    registry: &Registry,
) -> Result<FreshFile, BuildFailure> {
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
    drop((other, second));
    for Verified { part, read, made } in volumes {
        verify::verify(&one, part.as_ref(), read, made)?;
    }
    drop(one);
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

/// An image that has no name yet.
struct Made {
    fresh: FreshFile,
    read: Read,
    report: BuildReport,
}

/// Builds an image that has no name yet.
fn make(
    out: &Path,
    sources: &[BuildSource],
    settings: &BuildSettings,
    registry: &Registry,
    observer: &mut dyn Observer,
) -> Result<Made, BuildFailure> {
    let stream = match settings.pipes == Pipes::Stream && sources.iter().any(BuildSource::is_pipe) {
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
    drop(plan);
    Ok(Made { fresh, read, report })
}
