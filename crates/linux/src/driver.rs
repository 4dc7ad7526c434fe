//! The drivers, one for each type.

use std::sync::{Arc, OnceLock};

use obento_base::{DeviceError, EngineObstacle, Error, Feature, Mode, OpenOption, Result};
use obento_block::BlockDevice;
use obento_driver::{
    Access, Build, Check, Checksums, Driver, FileSystem, Format, OpenOptions, Probe, Replay, Resize,
    VolumeOptions,
};

use crate::engine::Shared;
use crate::installed::{kernel_of, unavailable};
use crate::kernel::{Config, Kernel};
use crate::launch::Settings;
use crate::padded;
use crate::probe::{first_bytes, probe};
use crate::scratch::Scratch;
use crate::starter::Starter;
use crate::types::needs::Need;
use crate::types::{OTHERS, TYPES, Type};
use crate::volume::{Opening, Volume};

/// The smallest and the largest default memory of a guest in MiB. With 128 MiB, an XFS volume in which 200,000 files
/// were created took five times as long as with 192 MiB, or its kernel failed. Inodes in the log cannot be evicted.
const MEMORY: (u32, u32) = (128, 1024);
const MEMORY_TO_WRITE: u32 = 256;
/// Guest memory: the minimum for volumes up to this size, plus 1 MiB for each further `BYTES_A_MIB` bytes.
const SMALL: u64 = 64 << 30;
const BYTES_A_MIB: u64 = 4 << 30;

/// How the kernel is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelUse {
    /// The memory in MiB, or `None` for a size that depends on the volume.
    pub memory: Option<u32>,
    /// Whether the kernel may be started. Volumes are recognised in any case.
    pub start: KernelStart,
    /// Options of mount(8) in addition to those that obento needs.
    pub options: &'static str,
}

/// Whether a kernel may be started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelStart {
    /// To open a volume.
    Allowed,
    /// Never.
    Forbidden,
}

impl Default for KernelUse {
    fn default() -> Self {
        Self { memory: None, start: KernelStart::Allowed, options: "" }
    }
}

/// The driver of one type of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct LinuxDriver {
    kind: &'static Type,
    how: KernelUse,
}

impl LinuxDriver {
    /// Returns a driver for each type, the longest signature first.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        Self::used(KernelUse::default())
    }

    /// Like [`all`](Self::all), with the kernel used as in `how`.
    pub fn used(how: KernelUse) -> impl DoubleEndedIterator<Item = Self> {
        TYPES.iter().map(move |kind| Self { kind, how })
    }

    /// Returns the type.
    pub fn kind(&self) -> &'static Type {
        self.kind
    }

    /// Opens the volume on `device`, which `find` recognises if the options contain no result of a probe. A kernel is
    /// not started for a volume that it will reject, even if the caller requests the type.
    fn open_found(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &OpenOptions,
        find: impl FnOnce(&dyn BlockDevice) -> Result<Option<Probe>>,
    ) -> Result<Arc<dyn FileSystem>> {
        let found = options.probe.clone().map_or_else(|| find(&*device), |probe| Ok(Some(probe)))?;
        Ok(Arc::new(self.mount(found.ok_or(NO_SIGNATURE)?, device, options)?))
    }

    /// Fails with `Unsupported` if no kernel may be started, or none that opens the type is installed.
    pub(crate) fn expect_kernel(&self) -> Result<()> {
        match (self.how.start, Starter::get()) {
            (KernelStart::Forbidden, _) => Err(unavailable(EngineObstacle::Excluded)),
            (_, Some(_)) => Ok(()),
            (_, None) => kernel_of(self.kind).map(drop),
        }
    }

    /// Lets a kernel mount the volume on `device`, which has the properties `probe`.
    pub(crate) fn mount(
        &self,
        probe: Probe,
        device: Arc<dyn BlockDevice>,
        options: &OpenOptions,
    ) -> Result<Volume> {
        let writable = options.access == Access::ReadWrite;
        if let Some(option) = unsupported_option(options) {
            return Err(Error::Unsupported(Feature::EngineOption(option)));
        }
        if writable && !self.kind.writes {
            return Err(Error::Unsupported(Feature::Writing));
        }
        if options.shown.subvolume.is_some_and(|number| is_no_subvolume(self.kind, number)) {
            return Err(Error::NotFound);
        }
        if writable && device.is_read_only() {
            return Err(DeviceError::ReadOnly.into());
        }
        if self.how.start == KernelStart::Forbidden {
            return Err(unavailable(EngineObstacle::Excluded));
        }
        if writable && probe.len > device.len() {
            let (len, device_len) = (probe.len, device.len());
            return Err(DeviceError::OutOfBounds { offset: 0, len, device_len }.into());
        }
        if writable && let Some(reason) = (self.kind.stays)(&first_bytes(&*device)?) {
            return Err(Error::Unsupported(reason));
        }
        let found = device.len();
        // A read past the end of a truncated image is an error of the device, and never returns zeros.
        let device = if probe.len > found { device } else { padded::to_sectors(device) };
        let memory = self.how.memory.unwrap_or_else(|| memory_for(device.len(), writable));
        // The kernel replays journals onto its disk. For a volume that is only read, the disk stores writes
        // in memory and not in the image.
        let disk: Arc<dyn BlockDevice> =
            if writable { device.clone() } else { Arc::new(Scratch::new(device.clone(), probe.len)) };
        let engine = match Starter::get() {
            Some(starter) => Shared::start_by(starter, (self.kind, memory), disk.clone())?,
            None => {
                let kernel = kernel_of(self.kind)?;
                let settings = Settings { kernel: &kernel, modules: self.kind.modules, memory };
                Shared::start(&settings, disk.clone())?
            }
        };
        let hidden = self.hidden(&first_bytes(&*device)?);
        let words = mount_options(self.kind, &options.shown, self.how.options);
        let opening = Opening {
            kind: self.kind,
            words,
            probe,
            device: disk,
            found,
            clock: options.clock.clone(),
            writable,
            hidden,
        };
        Volume::mount(engine, opening)
    }

    /// Returns the parts of a volume beginning with `start` that the kernel omits without an error. A kernel
    /// that does not print its build options is assumed to omit nothing.
    fn hidden(&self, start: &[u8]) -> Vec<Need> {
        let is_silent = |need: &Need| need.part.is_left_out_silently();
        if !self.kind.needs.iter().any(is_silent) || !(self.kind.may_have_xattrs)(start) {
            return Vec::new();
        }
        static CONFIG: OnceLock<Option<Config>> = OnceLock::new();
        let config = CONFIG.get_or_init(|| Kernel::installed()?.config());
        config.iter().flat_map(|config| config.lacks(self.kind)).filter(is_silent).collect()
    }
}

/// Returns an option of the caller that has no equivalent in mount(8) for all types.
fn unsupported_option(options: &OpenOptions) -> Option<OpenOption> {
    let given = [
        (options.super_block.is_some(), OpenOption::SuperBlock),
        (options.replay == Replay::Skip, OpenOption::NoReplay),
        (options.checksums == Checksums::Ignore, OpenOption::IgnoreChecksums),
        (options.journal.is_some(), OpenOption::Journal),
    ];
    given.into_iter().find_map(|(is_given, option)| is_given.then_some(option))
}

/// Returns the memory in MiB for a volume of `len` bytes: replay holds bitmaps and log in memory, and caches
/// need memory too.
fn memory_for(len: u64, writable: bool) -> u32 {
    let least = if writable { MEMORY_TO_WRITE } else { MEMORY.0 };
    let more = len.saturating_sub(SMALL) / BYTES_A_MIB;
    u32::try_from(more).unwrap_or(u32::MAX).saturating_add(least).min(MEMORY.1)
}

/// Returns whether no volume of `kind` has a subvolume with this number. In Btrfs, smaller numbers are those of other
/// trees.
fn is_no_subvolume(kind: &Type, number: u64) -> bool {
    /// `BTRFS_FS_TREE_OBJECTID`, the subvolume that contains all others. Source: Linux 6.1,
    /// include/uapi/linux/btrfs_tree.h.
    const FIRST: u64 = 5;
    kind.names.contains(&"btrfs") && number < FIRST
}

/// Returns the options of mount(8) for a volume of `kind`, with the properties in `shown` and the options in
/// `more`.
fn mount_options(kind: &Type, shown: &VolumeOptions, more: &str) -> String {
    let mut words = vec![kind.options.to_owned(), more.to_owned()];
    if kind.shows_owners {
        // The default mask of the native drivers, which equals the mask of root's shell.
        let mask = |mask: Option<Mode>| mask.map_or(0o022, Mode::bits);
        let (uid, gid) = (shown.uid.unwrap_or(0), shown.gid.unwrap_or(0));
        let (files, folders) = (mask(shown.file_mask), mask(shown.dir_mask));
        words.push(format!("uid={uid},gid={gid},fmask={files:04o},dmask={folders:04o}"));
    }
    if let Some(number) = shown.subvolume.filter(|_| kind.names.contains(&"btrfs")) {
        words.push(format!("subvolid={number}"));
    }
    words.retain(|word| !word.is_empty());
    words.join(",")
}

/// A native driver whose volumes the kernel opens. Recognising, formatting and checking stay with the native
/// driver.
pub struct KernelOpened {
    native: Arc<dyn Driver>,
    linux: Option<LinuxDriver>,
}

impl KernelOpened {
    /// Wraps `native`, with the kernel used as in `how`.
    pub fn of(native: Arc<dyn Driver>, how: KernelUse) -> Self {
        let kind = OTHERS.iter().find(|kind| kind.names.first() == native.names().first());
        Self { native, linux: kind.map(|kind| LinuxDriver { kind, how }) }
    }
}

impl Driver for KernelOpened {
    obento_base::forward! { self.native;
        fn names(&self) -> &'static [&'static str];
        fn probe(&self, device: &dyn BlockDevice) -> Result<Option<Probe>>;
        fn format(&self) -> Option<&dyn Format>;
        fn build(&self) -> Option<&dyn Build>;
        fn check(&self) -> Option<&dyn Check>;
    }

    fn access(&self) -> Access {
        self.linux.as_ref().map_or(Access::ReadOnly, LinuxDriver::access)
    }

    fn open(&self, device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Arc<dyn FileSystem>> {
        let Some(linux) = &self.linux else { return Err(unavailable(EngineObstacle::NoDriver)) };
        linux.open_found(device, options, |device| self.native.probe(device))
    }
}

impl Driver for LinuxDriver {
    fn names(&self) -> &'static [&'static str] {
        self.kind.names
    }

    fn access(&self) -> Access {
        if self.kind.writes { Access::ReadWrite } else { Access::ReadOnly }
    }

    fn probe(&self, device: &dyn BlockDevice) -> Result<Option<Probe>> {
        probe(self.kind, device)
    }

    fn open(&self, device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Arc<dyn FileSystem>> {
        self.open_found(device, options, |device| probe(self.kind, device))
    }

    fn resize(&self) -> Option<&dyn Resize> {
        self.kind.grown.is_some().then_some(self)
    }
}

pub(crate) const NO_SIGNATURE: Error = Error::Unsupported(Feature::NoSignature);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_grows_with_the_volume_up_to_a_limit() {
        let sizes = [1 << 20, SMALL, SMALL + BYTES_A_MIB, 1 << 40, u64::MAX];
        assert_eq!(sizes.map(|len| memory_for(len, false)), [128, 128, 129, 368, 1024]);
        assert_eq!(sizes.map(|len| memory_for(len, true)), [256, 256, 257, 496, 1024]);
    }
}
