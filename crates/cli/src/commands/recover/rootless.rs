//! Files that no directory leads to: they are found as a repair finds them, on a copy in memory.

use std::sync::Arc;

use obento::Image;
use obento::Options;
use obento::address::{Address, FileSelector, PartSelector};
use obento::block::Overlay;
use obento::check::check;
use obento::copy::{Observer as _, Problem, ProblemReason};
use obento::driver::{CheckOptions, Finding, RepairMode};
use obento::env::SystemClock;

use super::report::Recovery;
use super::shown;
use crate::open;
use crate::report::Report;

/// Returns `image`, or a repaired copy if the path of `address` cannot be found because the root is not a directory. If the
/// copy cannot be repaired, returns `image`, whose error is then the result.
///
/// # Errors
///
/// The volume or the copy cannot be opened.
pub fn with_root(
    image: Image,
    address: &Address,
    options: &Options,
    recovery: &mut Recovery<'_>,
) -> Result<Image, Report> {
    let part = address.part.as_ref();
    let volume = image.volume_to_read(part).map_err(Report::plain)?;
    let needs_root = !matches!(address.place, Some(FileSelector::Inode(_)));
    let Some(error) = volume.vfs().expect_root().err().filter(|_| needs_root) else { return Ok(image) };
    drop(volume);
    let Some(copy) = repaired(&image, part, options)? else { return Ok(image) };
    let path = [&shown(address)[..], b":/"].concat();
    recovery.problem(&Problem { path, trouble: ProblemReason::Volume(error) });
    Ok(copy)
}

/// Returns a copy of `image` in memory in which `part` is repaired, or `None` if the volume cannot be repaired.
///
/// # Errors
///
/// The copy cannot be opened.
pub fn repaired(
    image: &Image,
    part: Option<&PartSelector>,
    options: &Options,
) -> Result<Option<Image>, Report> {
    let copy = Arc::new(Overlay::new(image.device().clone()));
    let of_copy = Options { journal: None, ..options.clone() }.for_change();
    let copy = Image::on_device(image.path(), copy, image.registry(), &of_copy).map_err(open::cannot_open)?;
    let checking = CheckOptions {
        repair_mode: RepairMode::All,
        rescue: true,
        journal: image.journal().cloned(),
        ..CheckOptions::new(Arc::new(SystemClock))
    };
    let is_repaired = check(&copy, part, &checking, &mut Vec::<Finding>::new()).is_ok();
    Ok(is_repaired.then_some(copy))
}
