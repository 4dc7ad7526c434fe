//! Images out of trees: sources are read into one tree in memory, the driver lays it out, and the bytes of files go straight
//! to where they belong.
//!
//! Order: all sources are read ([`source`], each over those before it), and what is wrong with any of them is told before
//! anything is written; the driver plans ([`obento_driver::Build`]); bytes are moved in as many threads as help ([`bytes`]), the
//! driver writes the rest; and the file gets its name.
//! Invariant: a source is hostile. Its names are data, resolved within the tree ([`model`]) and nowhere else.

mod bytes;
mod digest;
mod error;
mod model;
mod options;
mod source;

use std::path::Path;
use std::sync::Arc;

use obento_base::Timestamp;
use obento_block::BlockDevice;
use obento_driver::{BuildOptions, FormatError, FormatOptions, Formatted, Tree};
use obento_env::{Clock as _, FixedClock, SystemClock};
use obento_host::build::FreshFile;

use crate::{Observer, Registry};
pub use error::{BuildFailure, SourceProblem};
pub use options::{BuildSettings, BuildSource, ChangeMode, IdMap, Input, Owner};

use digest::Seed;

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
    let is_pipe = |source: &BuildSource| {
        matches!(source, BuildSource::Archive(Input::Standard) | BuildSource::Layer(Input::Standard))
    };
    if sources.iter().any(is_pipe) {
        return Err(BuildFailure::OnlyOnce);
    }
    let (first, report) = make(out, sources, settings, registry, observer)?;
    let (second, _) = make(out, sources, settings, registry, observer)?;
    if let Some(offset) = first_difference(first.device(), second.device()).map_err(FormatError::from)? {
        return Err(BuildFailure::NotSame { offset });
    }
    first.publish(settings.publish)?;
    Ok(report)
}

/// The first byte in which two devices differ.
pub(crate) fn first_difference(
    one: &dyn BlockDevice,
    other: &dyn BlockDevice,
) -> obento_base::Result<Option<u64>> {
    const CHUNK: usize = 1 << 20;
    let (mut a, mut b) = (vec![0; CHUNK], vec![0; CHUNK]);
    let len = one.len().min(other.len());
    let mut at = 0;
    while at < len {
        let part = usize::try_from(len - at).unwrap_or(CHUNK).min(CHUNK);
        one.read_at(at, &mut a[..part])?;
        other.read_at(at, &mut b[..part])?;
        if a[..part] != b[..part] {
            let inside = a[..part].iter().zip(&b[..part]).position(|(a, b)| a != b).unwrap_or(0);
            return Ok(Some(at + inside as u64));
        }
        at += part as u64;
    }
    Ok((one.len() != other.len()).then_some(len))
}

/// Builds an image that has no name yet.
fn make(
    out: &Path,
    sources: &[BuildSource],
    settings: &BuildSettings,
    registry: &Registry,
    observer: &mut dyn Observer,
) -> Result<(FreshFile, BuildReport), BuildFailure> {
    let driver = registry.drivers().iter().filter_map(|driver| Some((driver.format()?, driver.build()?)));
    let mut driver = driver.filter(|(format, _)| format.types().contains(&settings.fs_type.as_str()));
    let (_, builder) =
        driver.next().ok_or_else(|| BuildFailure::UnknownType { fs_type: settings.fs_type.clone() })?;
    let source::Read { tree, supply, excluded, notes } = source::read_all(out, sources, settings, observer)?;
    let options = build_options(&tree, settings);
    let mut plan = builder.plan(&tree, &options).map_err(|error| BuildFailure::of_plan(error, &tree))?;
    let formatted = plan.formatted().clone();
    let fresh = FreshFile::new(out, plan.device_len())?;
    let moved = bytes::move_all(&tree, &supply, &*plan, &fresh, settings, observer)?;
    plan.write(&Unflushed(fresh.device())).map_err(BuildFailure::Format)?;
    drop(plan);
    let directories = tree.nodes().filter(|(_, node)| node.body.kind() == obento_base::FileKind::Directory);
    let directories = directories.count() as u64;
    let report = BuildReport {
        formatted,
        files: u64::from(tree.len()) - directories,
        directories,
        bytes: moved,
        excluded,
        notes,
    };
    Ok((fresh, report))
}

/// What the driver is told. Nothing in it is of this moment or this machine.
fn build_options(tree: &Tree, settings: &BuildSettings) -> BuildOptions {
    // A volume that was written in the future is one that checks complain of.
    let now = SystemClock.now();
    let times = tree.nodes().map(|(_, node)| node.attr.mtime);
    let newest = times.filter(|time| *time <= now).max().unwrap_or(Timestamp::EPOCH);
    let now = settings.epoch.map_or(newest, |epoch| Timestamp::new(epoch, 0));
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

/// A device whose flushes wait: nothing of a file without a name survives a crash, and all of it is synced before it gets one.
struct Unflushed<'a>(&'a obento_host::FileDevice);

impl BlockDevice for Unflushed<'_> {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> obento_base::Result<()> {
        self.0.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> obento_base::Result<()> {
        self.0.write_at(offset, buf)
    }
    fn flush(&self) -> obento_base::Result<()> {
        Ok(())
    }
}
