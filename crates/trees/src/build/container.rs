//! Writes a new image in a disk image format, and then gives the file its name.
//!
//! A volume is built in an unnamed raw file, since its driver determines the positions of the bytes. The raw file is
//! then converted part by part. Each converted part is freed at once, so both files together take only the space of
//! one file.
//!
//! Identity: identifiers and times that a format stores are derived from the contents, like those of volumes.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use obento_block::BlockDevice;
use obento_env::Random as _;
use obento_host::HostError;
use obento_host::build::{AccessLimit, FreshFile, Publish};
use obento_host::convert::{AfterCopy, ConvertError, Identity, Output, Source, convert, writer};

use super::digest::Seed;
use super::{BuildFailure, BuildSettings, driver_options, source::Read};
use crate::convert::{ConvertFailure, convert_target, expect_same};
use crate::copy::Observer;

/// The file that a new image becomes.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) path: &'a Path,
    pub(super) format: Output,
    pub(super) publish: Publish,
}

/// Whether the file is compared with the image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Comparison {
    Skip,
    /// The raw image stays until it was compared.
    Compare,
}

/// Returns the identity of an image that contains one volume.
pub(super) fn identity_of(read: &Read, settings: &BuildSettings) -> Identity {
    let seed = Seed::of(&read.tree, settings);
    let id = Seed::of_fields([&b"obento container 1"[..], &seed.uuid()]).uuid();
    Identity { id, time: time(read, settings) }
}

/// Returns the time of a volume in seconds since 1970.
pub(super) fn time(read: &Read, settings: &BuildSettings) -> u64 {
    u64::try_from(driver_options::time(&read.tree, settings).secs()).unwrap_or(0)
}

/// Gives the image `fresh` its format and its name. Fails with `Host` or `Other`.
pub(super) fn publish(
    fresh: FreshFile,
    target: Target<'_>,
    identity: impl FnOnce() -> Identity,
    comparison: Comparison,
    observer: &dyn Observer,
) -> Result<(), BuildFailure> {
    if target.format == Output::Raw {
        return Ok(fresh.publish(target.publish)?);
    }
    let mut watch =
        |_| if observer.is_stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let disk: Arc<dyn BlockDevice> = Arc::new(fresh.share()?);
    let new = convert_target(target.path, AccessLimit::NONE)?;
    let after = if comparison == Comparison::Compare { AfterCopy::Keep } else { AfterCopy::Discard };
    let writer =
        writer(target.format, disk.len(), identity()).map_err(ConvertError::from).map_err(failure)?;
    let source = Source { disk: &disk, after, limit: None };
    convert(source, new.file(), target.path, writer, None, &mut watch).map_err(failure)?;
    if comparison == Comparison::Compare {
        expect_same(&disk, &new, target.path, target.format, &mut watch)?;
    }
    Ok(new.publish(target.publish)?)
}

fn failure(error: ConvertError) -> BuildFailure {
    match error {
        ConvertError::Write(error) => BuildFailure::Host(error),
        ConvertError::Stopped => BuildFailure::Host(HostError::Stopped),
        ConvertError::Read(error) => BuildFailure::Volume(error),
        error @ (ConvertError::TooLarge(_) | ConvertError::Unpack(_)) => {
            BuildFailure::Other { why: error.to_string() }
        }
    }
}

impl From<ConvertFailure> for BuildFailure {
    fn from(error: ConvertFailure) -> Self {
        match error {
            ConvertFailure::Convert(error) => failure(error),
            ConvertFailure::Host(error) => Self::Host(error),
            ConvertFailure::Differs => Self::Other { why: ConvertFailure::Differs.to_string() },
        }
    }
}
