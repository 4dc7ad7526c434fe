//! The driver of a build, and its options.

use std::sync::Arc;

use obento_base::Timestamp;
use obento_driver::{Build, BuildOptions, FormatOptions, Tree};
use obento_env::{Clock as _, FixedClock, SystemClock};
use obento_open::Registry;

use super::digest::Seed;
use super::generic::Generic;
use super::{BuildFailure, BuildSettings};

/// Calls a function with the builder of the type in the settings. Fails with `UnknownType`.
pub(super) fn with_builder<T>(
    settings: &BuildSettings,
    registry: &Registry,
    work: impl FnOnce(&dyn Build) -> T,
) -> Result<T, BuildFailure> {
    let mut drivers = registry.drivers().iter().filter_map(|driver| Some((driver, driver.format()?)));
    let found = drivers.find(|(_, format)| format.types().contains(&settings.fs_type.as_str()));
    let unknown = || BuildFailure::UnknownType { fs_type: settings.fs_type.clone() };
    let (driver, format) = found.ok_or_else(unknown)?;
    let generic = Generic::new(&**driver, format);
    Ok(work(driver.build().unwrap_or(&generic)))
}

/// Returns the time of a volume.
pub(super) fn time(tree: &Tree, settings: &BuildSettings) -> Timestamp {
    // Checks report a volume that was written in the future.
    let now = SystemClock.now();
    let times = tree.nodes().map(|(_, node)| node.attr.mtime);
    let newest = times.filter(|time| *time <= now).max().unwrap_or(Timestamp::EPOCH);
    settings.epoch.map_or(newest, |epoch| Timestamp::new(epoch, 0))
}

/// Returns the options of the driver. They do not depend on the current time or the machine.
pub(super) fn build_options(tree: &Tree, settings: &BuildSettings) -> BuildOptions {
    let now = time(tree, settings);
    let seed = Arc::new(Seed::of(tree, settings));
    let format = FormatOptions {
        len: settings.size,
        label: settings.label.clone(),
        uuid: settings.uuid,
        block_size: settings.block_size,
        features: settings.features.clone(),
        settings: settings.settings.clone(),
        ..FormatOptions::new(&settings.fs_type, Arc::new(FixedClock(now)), seed)
    };
    BuildOptions { format, room: settings.room }
}
