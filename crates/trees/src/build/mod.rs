//! Builds images from trees. A build reads the sources into one tree in memory, and the driver lays out the
//! tree. The build then copies the bytes of files directly to their positions in the image.
//!
//! Order:
//! 1. All sources are read (`source`). A later source replaces files of earlier sources. All problems of the
//!    sources are reported before anything is written.
//! 2. The driver plans the volume ([`obento_driver::Build`]).
//! 3. Several threads copy the bytes of files (`bytes`), and the driver writes the rest.
//! 4. If the log of the volume is requested, its bytes are written (`history`).
//! 5. The file is converted to the image format (`container`), and gets its name.
//!
//! Bytes from a pipe are stored in a spool file, or written before a plan exists (`stream`). [`build_verified`] builds
//! the image twice, checks the volume, and compares the volume with its sources (`verify`).
//!
//! Invariant: sources are not trusted. Names in a source are data, and only `model` resolves them, within the tree.

mod bytes;
mod container;
mod digest;
mod disk;
mod driver_options;
mod error;
mod fill;
mod generic;
mod history;
mod model;
mod options;
mod report;
mod source;
mod source_bytes;
mod stream;
mod verify;
mod volume;
mod whole;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use obento_base::Error;
use obento_driver::{FormatError, Formatted, Replay};
use obento_host::build::FreshFile;
use obento_open::address::PartSelector;
use obento_open::{Image, Options, Registry};

use crate::copy::Observer;
use crate::diff::diff_bytes;
use container::{Comparison, Target};
pub use disk::{
    Blob, DiskReport, DiskSettings, EmptyMaker, PartitionContent, PartitionReport, PartitionSettings,
    PartitionSize, build_disk, build_disk_verified,
};
pub use error::{BuildFailure, SourceProblem, SourceReason};
pub use fill::{FillReport, MakeEmpty, build_filled};
pub use model::PathError;
pub use options::{BuildSettings, BuildSource, ChangeMode, IdMap, Input, Owner, Pipes};
pub use report::BuildReport;
use source::Read;
use stream::Stream;
use whole::Whole;

/// Builds the image `out` from `sources`. A file of a later source replaces a file of an earlier source with
/// the same path. The image file gets its name only after it is complete.
///
/// # Errors
///
/// [`BuildFailure`] lists the errors. After an error, no file was created or replaced at `out`.
///
/// ```no_run
/// use obento::Registry;
/// use obento::build::{BuildSettings, BuildSource, build};
/// use obento::copy::Quiet;
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
    let made = make(out, sources, settings, registry, observer)?;
    made.publish(out, settings, Comparison::Skip, observer)
}

/// Builds an image like [`build`], and verifies the result. The image file gets its name only if all of these
/// conditions are met:
/// - A second build has the same bytes.
/// - The check of the volume reports nothing.
/// - Each file in the volume equals its source, except for properties that the format does not store.
///
/// # Errors
///
/// Those of [`build`], and:
///
/// - `OnlyOnce`: a source is a pipe, which cannot be read twice.
/// - `NotSame`: two builds differ.
/// - `NotSound`: the check reports a problem.
/// - `Differs`: files differ from their sources.
/// - `Other`: the converted file differs from the raw image.
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
    Made { fresh, ..first }.publish(out, settings, Comparison::Compare, observer)
}

/// A volume of an image that a build verifies.
struct Verified<'a> {
    part: Option<PartSelector>,
    read: &'a Read,
    made: &'a Formatted,
}

/// Returns the first of two images, if both have the same bytes and all `volumes` equal their sources. Fails with
/// `NotSame` or the errors of [`verify::verify`].
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

/// An image that has no name yet.
struct Made {
    fresh: FreshFile,
    read: Read,
    report: BuildReport,
}

impl Made {
    /// Gives the image its format and its name.
    fn publish(
        self,
        out: &Path,
        settings: &BuildSettings,
        comparison: Comparison,
        observer: &dyn Observer,
    ) -> Result<BuildReport, BuildFailure> {
        let identity = || container::identity_of(&self.read, settings);
        let target = Target { path: out, format: settings.container, publish: settings.publish };
        container::publish(self.fresh, target, identity, comparison, observer)?;
        Ok(self.report)
    }
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
        Some(stream) => stream.plan(&read.tree, settings)?,
        None => {
            let (plan, came) = volume::plan(&read, settings, registry)?;
            let fresh = FreshFile::new(out, plan.device_len())?;
            (plan, fresh, came)
        }
    };
    let moved = volume::write(&mut *plan, &read, (&fresh, 0), settings, observer)?;
    let (history, fresh) = history::write(&*plan, &read, fresh, settings, registry)?;
    let report = volume::report(&*plan, &read, came + moved);
    drop(plan);
    read.history = history;
    Ok(Made { fresh, read, report })
}
