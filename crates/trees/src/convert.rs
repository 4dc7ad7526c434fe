//! Converts a disk to another image format.
//!
//! Invariant: the file gets its name only after it is complete and, if requested, was compared with the source.

mod partition;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use obento_block::BlockDevice;
use obento_env::{Clock, Random};
use obento_host::HostError;
use obento_host::build::{AccessLimit, FreshFile, Publish};
use obento_host::container::{self, Format};
use obento_host::convert::{
    self as host, AfterCopy, Hash, Identity, Source, compare, compare_packed, write_overlay, writer,
};
pub use obento_host::convert::{
    BACKING_NAME_MAX, Backing, ConvertError, Output as ConvertFormat, Stream, Version as Qcow2Version,
};
use obento_host::qcow2::{Qcow2Device, References};
pub use partition::{OverwriteFailure, OverwriteOptions, PartitionState, overwrite};

/// The options of a conversion.
pub struct ConvertOptions<'a> {
    /// The format of the new image.
    pub format: ConvertFormat,
    /// The treatment of an existing file at the path.
    pub publish: Publish,
    /// Whether to compare the new image with the disk before the file gets its name.
    pub verify: bool,
    /// The maximum number of bytes of the disk that are not zeros. `None` sets no limit, for a disk whose
    /// image file cannot expand.
    pub limit: Option<u64>,
    /// A function that receives all bytes of the disk in order.
    pub hash: Option<Box<Hash<'a>>>,
    /// The source of times in the image.
    pub clock: Arc<dyn Clock>,
    /// The source of identifiers in the image.
    pub random: Arc<dyn Random>,
}

/// The current step of a conversion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConvertStep {
    /// Writing the new image.
    Write,
    /// Comparing the new image with the disk.
    Verify,
}

/// The reason why a disk was not converted.
#[derive(Debug, thiserror::Error)]
pub enum ConvertFailure {
    /// Reading or writing failed, or the disk is too large for the format.
    #[error(transparent)]
    Convert(#[from] ConvertError),
    /// The new file cannot be completed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The new image differs from the disk.
    #[error("the new image differs from its source and was removed")]
    Differs,
}

/// A new image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Converted {
    /// The size of the disk in bytes.
    pub disk: u64,
    /// The length of the file in bytes.
    pub file: u64,
}

/// Creates the file that [`convert()`] writes. A process that drops privileges must create the file before it does
/// so. With the limit of the source, no further user can read its contents.
///
/// # Errors
///
/// [`HostError`], if the file cannot be created.
pub fn convert_target(path: &Path, limit: AccessLimit) -> Result<FreshFile, HostError> {
    FreshFile::with_limit(path, 0, limit)
}

/// Writes `disk` to `target`, which becomes the file `path`. `watch` receives the current step and the number
/// of bytes that this step has processed, and can end the conversion.
///
/// # Errors
///
/// [`ConvertFailure`] lists the errors. After an error, no file was created or replaced at `path`.
///
/// ```no_run
/// use std::ops::ControlFlow;
/// use std::path::Path;
/// use std::sync::Arc;
///
/// use obento::Image;
/// use obento::convert::{ConvertFormat, ConvertOptions, convert, convert_target};
/// use obento::env::{SystemClock, SystemRandom};
/// use obento::host::{AccessLimit, Publish};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let image = Image::open("disk.vmdk")?;
/// let options = ConvertOptions {
///     format: ConvertFormat::Raw,
///     publish: Publish::Keep,
///     verify: true,
///     limit: None,
///     hash: None,
///     clock: Arc::new(SystemClock),
///     random: Arc::new(SystemRandom),
/// };
/// let (source, path) = (Path::new("disk.vmdk"), Path::new("disk.img"));
/// let target = convert_target(path, AccessLimit::of([source, path]))?;
/// convert(image.device(), target, path, options, &mut |_, _| ControlFlow::Continue(()))?;
/// # Ok(())
/// # }
/// ```
pub fn convert(
    disk: &Arc<dyn BlockDevice>,
    target: FreshFile,
    path: &Path,
    options: ConvertOptions<'_>,
    watch: &mut dyn FnMut(ConvertStep, u64) -> ControlFlow<()>,
) -> Result<Converted, ConvertFailure> {
    let time = u64::try_from(options.clock.now().secs()).unwrap_or(0);
    let identity = Identity { id: options.random.uuid(), time };
    let writer = writer(options.format, disk.len(), identity).map_err(ConvertError::from)?;
    let mut writing = |done| watch(ConvertStep::Write, done);
    let source = Source { disk, after: AfterCopy::Keep, limit: options.limit };
    if options.format == ConvertFormat::Raw {
        host::set_len(target.file(), path, disk.len())?;
    }
    let len = host::convert(source, target.file(), path, writer, options.hash, &mut writing)?;
    if options.verify {
        expect_same(disk, &target, path, options.format, &mut |done| watch(ConvertStep::Verify, done))?;
    }
    target.publish(options.publish)?;
    Ok(Converted { disk: disk.len(), file: len })
}

/// Completes a conversion to a raw image without copying. `disk` was compressed and has been unpacked to the
/// file `unpacked`; the call gives this file its name.
///
/// # Errors
///
/// `Host`. After an error, no file was created or replaced.
pub fn publish_unpacked(
    disk: &dyn BlockDevice,
    unpacked: FreshFile,
    publish: Publish,
) -> Result<Converted, ConvertFailure> {
    unpacked.publish(publish)?;
    Ok(Converted { disk: disk.len(), file: disk.len() })
}

/// Writes a qcow2 image of a disk of `disk` bytes to `target`, which becomes the file `path`. The image has
/// no data of its own: its contents are those of `backing`, and changes of the image do not change `backing`.
///
/// # Errors
///
/// [`ConvertFailure`] lists the errors. After an error, no file was created or replaced at `path`.
pub fn create_overlay(
    backing: &Backing<'_>,
    disk: u64,
    target: FreshFile,
    path: &Path,
    (version, publish): (Qcow2Version, Publish),
) -> Result<Converted, ConvertFailure> {
    let file = write_overlay(target.file(), path, version, disk, backing)?;
    target.publish(publish)?;
    Ok(Converted { disk, file })
}

/// Compares a new image with the disk.
///
/// # Errors
///
/// - `Differs`.
/// - Those of reading both.
pub(crate) fn expect_same(
    disk: &Arc<dyn BlockDevice>,
    target: &FreshFile,
    path: &Path,
    format: ConvertFormat,
    watch: &mut host::Watch<'_>,
) -> Result<(), ConvertFailure> {
    let is_same = match format {
        ConvertFormat::Packed(_) => compare_packed(disk, target.file(), path, watch)?,
        format => compare(disk, &reopen(target, path, format)?, watch)?,
    };
    if is_same { Ok(()) } else { Err(ConvertFailure::Differs) }
}

/// Opens the disk in a new image that can be read at any offset.
fn reopen(target: &FreshFile, path: &Path, format: ConvertFormat) -> Result<Arc<dyn BlockDevice>, HostError> {
    let file: Arc<dyn BlockDevice> = Arc::new(target.share()?);
    match format {
        ConvertFormat::Raw => Ok(file),
        ConvertFormat::Qcow2 { .. } => Ok(Arc::new(Qcow2Device::open(file, path, References::Refuse)?)),
        ConvertFormat::Vhd => container::open(Format::Vhd, file, path),
        ConvertFormat::Vmdk => container::open(Format::Vmdk, file, path),
        ConvertFormat::Vdi => container::open(Format::Vdi, file, path),
        ConvertFormat::AndroidSparse => container::open(Format::AndroidSparse, file, path),
        // The caller unpacks these as a stream.
        ConvertFormat::Packed(_) => Ok(file),
    }
}
