//! A driver a type.

use std::sync::Arc;

use obento_base::{Corrupt, DeviceError, Error, Feature, Result, Structure};
use obento_block::{BlockDevice, Overlay};
use obento_driver::{Access, Driver, FileSystem, OpenOptions, Probe};

use crate::engine::Shared;
use crate::kernel::Kernel;
use crate::launch::Settings;
use crate::probe::probe;
use crate::types::{TYPES, Type};
use crate::volume::{Opening, Volume};

/// MiB of memory of a guest, unless somebody says otherwise.
pub const MEMORY: u32 = 128;

/// What is missing where the package is.
const NO_KERNEL: &str = "this type without the kernel engine (`apt-get install user-mode-linux` installs it)";

/// The driver of one type of the kernel's.
#[derive(Clone, Copy, Debug)]
pub struct LinuxDriver {
    kind: &'static Type,
    memory: u32,
}

impl LinuxDriver {
    /// One for each type, the most telling signature first.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        TYPES.iter().map(|kind| Self { kind, memory: MEMORY })
    }

    /// The same, with so many MiB of memory for the guest.
    #[must_use]
    pub fn with_memory(self, memory: u32) -> Self {
        Self { memory, ..self }
    }
}

/// What the kernel calls a type.
pub(crate) fn kernel_name(name: &str) -> &str {
    if name == "ufs1" { "ufs" } else { name }
}

impl Driver for LinuxDriver {
    fn names(&self) -> &'static [&'static str] {
        self.kind.names
    }

    fn probe(&self, device: &dyn BlockDevice) -> Result<Option<Probe>> {
        probe(self.kind, device)
    }

    fn open(&self, device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Arc<dyn FileSystem>> {
        // Also where the type was forced: a kernel is not started for what it will refuse.
        let Some(probe) = probe(self.kind, &*device)? else { return Err(no_signature()) };
        let writable = options.access == Access::ReadWrite;
        if writable && !self.kind.writes {
            return Err(Error::Unsupported(Feature::Named("changing this type, which Linux only reads,")));
        }
        if writable && device.is_read_only() {
            return Err(DeviceError::ReadOnly.into());
        }
        let kernel = Kernel::installed().ok_or(Error::Unsupported(Feature::Named(NO_KERNEL)))?;
        let settings = Settings {
            kernel: &kernel,
            modules: self.kind.modules,
            memory: self.memory,
            without_raid6: !self.kind.names.contains(&"btrfs"),
        };
        // The kernel replays journals onto its disk: a volume that is only read gets one that the image does not see.
        let disk: Arc<dyn BlockDevice> =
            if writable { device.clone() } else { Arc::new(Overlay::new(device.clone())) };
        let engine = Shared::start(&settings, disk)?;
        let clock = options.clock.clone();
        let volume = Volume::mount(engine, Opening { kind: self.kind, probe, device, clock, writable })?;
        Ok(Arc::new(volume))
    }
}

fn no_signature() -> Error {
    Corrupt::Field { structure: Structure::SuperBlock, field: "magic number", block: 0, offset: 0, found: 0 }
        .into()
}
