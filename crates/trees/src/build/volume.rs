//! Plans one volume of an image with its driver, and writes its bytes.

use obento_base::FileKind;
use obento_block::{BlockDevice, Slice};
use obento_driver::BuildPlan;
use obento_host::build::FreshFile;
use obento_open::Registry;

use super::bytes::{self, VolumeInImage};
use super::driver_options::{build_options, with_builder};
use super::report::BuildReport;
use super::source::Read;
use super::source_bytes::SourceBytes;
use super::{BuildFailure, BuildSettings};
use crate::copy::Observer;

/// Lays out the tree that was read. Returns the plan and the number of bytes of files that it contains. Fails with
/// `UnknownType` or the errors of the driver, with paths.
pub(super) fn plan<'t>(
    read: &'t Read,
    settings: &BuildSettings,
    registry: &Registry,
) -> Result<(Box<dyn BuildPlan + 't>, u64), BuildFailure> {
    let options = build_options(&read.tree, settings);
    let bytes = SourceBytes::of(read);
    let planned =
        with_builder(settings, registry, |builder| builder.plan_with(&read.tree, &options, &bytes))?;
    if let Some(failure) = bytes.failure() {
        return Err(failure.into());
    }
    let plan = planned.map_err(|error| BuildFailure::of_plan(error, &read.tree))?;
    Ok((plan, bytes.len()))
}

/// Writes a volume to `fresh`, from byte `start` on. Returns the number of bytes of files. Fails with `Host` or
/// `Format`.
pub(super) fn write(
    plan: &mut dyn BuildPlan,
    read: &Read,
    (fresh, start): (&FreshFile, u64),
    settings: &BuildSettings,
    observer: &mut dyn Observer,
) -> Result<u64, BuildFailure> {
    let moved = bytes::move_all(read, plan, VolumeInImage { fresh, start }, settings.threads(), observer)?;
    let range = start..start.saturating_add(plan.device_len());
    let slice = Slice::new(Unflushed(fresh.device()), range).map_err(obento_driver::FormatError::from)?;
    plan.write(&slice).map_err(BuildFailure::Format)?;
    Ok(moved)
}

/// Returns the report of the build.
pub(super) fn report(plan: &dyn BuildPlan, read: &Read, moved: u64) -> BuildReport {
    let kinds = read.tree.nodes().map(|(_, node)| node.body.kind());
    let directories = kinds.filter(|kind| *kind == FileKind::Directory).count() as u64;
    BuildReport {
        formatted: plan.formatted().clone(),
        files: u64::from(read.tree.len()) - directories,
        directories,
        bytes: moved,
        excluded: read.excluded,
        notes: read.notes.clone(),
        lost: read.lost.clone(),
    }
}

/// A device whose flushes do nothing. An unnamed file does not survive a crash, and it is synced before it
/// gets a name.
struct Unflushed<'a>(&'a obento_host::FileDevice);

impl BlockDevice for Unflushed<'_> {
    obento_base::forward! { self.0;
        fn len(&self) -> u64;
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> obento_base::Result<()>;
        fn write_at(&self, offset: u64, buf: &[u8]) -> obento_base::Result<()>;
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn flush(&self) -> obento_base::Result<()> {
        Ok(())
    }
}
