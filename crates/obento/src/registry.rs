//! The drivers that images are opened with.

use std::fmt;
use std::sync::Arc;

use obento_base::Result;
use obento_block::BlockDevice;
use obento_driver::{Driver, Probe};
use obento_linux::{Instead, LinuxDriver, Start, Use};

/// The drivers that images are opened with: those of obento, and any that an application brings.
///
/// Of two drivers of one type, the one that was added later opens its volumes. If drivers of different types recognise a volume, it is
/// ambiguous, and nothing is opened unless a type is named.
#[derive(Clone)]
pub struct Registry {
    drivers: Vec<Arc<dyn Driver>>,
    /// How many of them, the last, are those of the kernel engine.
    of_engine: usize,
}

/// Which drivers open volumes. Making and checking do not depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Engine {
    /// Drivers of obento and of the application where there are any, and the kernel engine for the rest.
    #[default]
    Both,
    /// Never a kernel: what only it opens is recognised and refused.
    Native,
    /// Only the kernel: what it does not know is recognised and refused.
    Linux,
}

impl Default for Registry {
    /// Every driver of obento that opens volumes of a device.
    fn default() -> Self {
        // Those of the kernel engine are asked last: what obento knows by itself needs no kernel.
        let engine = LinuxDriver::all().rev().fold(Self::empty(), Self::with);
        let engine = Self { of_engine: engine.drivers.len(), ..engine };
        // ext4 is asked first: its super block leaves room for a boot sector before it, which may be that of a FAT.
        let known = engine.with(obento_fat::FatDriver::default()).with(obento_ext4::Ext4Driver);
        // And this before it: an old ext4 may have left copies of its super block.
        known.with(obento_exfat::ExFatDriver::default()).with(obento_xv6::Xv6Driver)
    }
}

impl Registry {
    /// No driver at all.
    pub fn empty() -> Self {
        Self { drivers: Vec::new(), of_engine: 0 }
    }

    /// This registry and `driver`.
    ///
    /// A driver of an application's own is opened and used like those of obento:
    ///
    /// ```
    /// use std::sync::Arc;
    /// use obento::driver::{Driver, FileSystem, OpenOptions, Probe};
    /// use obento::{BlockDevice, Image, MemDevice, Options, Registry, tmpfs};
    ///
    /// /// Volumes that begin with `greetings`, and hold a file of that name.
    /// struct Greetings;
    ///
    /// impl Driver for Greetings {
    ///     fn names(&self) -> &'static [&'static str] {
    ///         &["greetings"]
    ///     }
    ///
    ///     fn probe(&self, device: &dyn BlockDevice) -> obento::Result<Option<Probe>> {
    ///         let mut magic = [0; 9];
    ///         device.read_at(0, &mut magic)?;
    ///         let probe = Probe { fs_type: "greetings", len: device.len(), ..Probe::default() };
    ///         Ok((magic == *b"greetings").then_some(probe))
    ///     }
    ///
    ///     fn open(
    ///         &self,
    ///         _device: Arc<dyn BlockDevice>,
    ///         options: &OpenOptions,
    ///     ) -> obento::Result<Arc<dyn FileSystem>> {
    ///         Ok(Arc::new(tmpfs::Tmpfs::new(tmpfs::Options::new(options.clock.clone()))))
    ///     }
    /// }
    ///
    /// let device = Arc::new(MemDevice::new(b"greetings from afar".to_vec()));
    /// let registry = Registry::default().with(Greetings);
    /// let image = Image::on_device("memory".as_ref(), device, &registry, &Options::default().for_change())?;
    /// let volume = image.volume(None)?;
    /// volume.write("/greetings", "hello")?;
    /// assert_eq!(volume.read("/greetings")?, b"hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with(mut self, driver: impl Driver + 'static) -> Self {
        self.drivers.insert(0, Arc::new(driver));
        self
    }

    /// These drivers, of which those that `engine` names open volumes, a kernel with `memory` MiB. A registry that has no drivers
    /// of the kernel engine is left as it is.
    ///
    /// ```
    /// use obento::{Engine, Registry};
    ///
    /// let registry = Registry::default().with_engine(Engine::Native, None);
    /// assert!(registry.find("xfs").is_some(), "it is known, though not opened");
    /// ```
    #[must_use]
    pub fn with_engine(self, engine: Engine, memory: Option<u32>) -> Self {
        if self.of_engine == 0 || (engine, memory) == (Engine::Both, None) {
            return self;
        }
        let start = if engine == Engine::Native { Start::Forbidden } else { Start::Allowed };
        let how = Use { memory, start, ..Use::default() };
        let natives = self.drivers.iter().take(self.drivers.len() - self.of_engine).cloned();
        let natives = natives.map(|driver| match engine {
            Engine::Linux => Arc::new(Instead::of(driver, how)) as Arc<dyn Driver>,
            _ => driver,
        });
        let engines = LinuxDriver::used(how).map(|driver| Arc::new(driver) as Arc<dyn Driver>);
        Self { drivers: natives.chain(engines).collect(), of_engine: self.of_engine }
    }

    /// The drivers that need no kernel.
    pub fn natives(&self) -> &[Arc<dyn Driver>] {
        let (natives, _) = self.drivers.split_at(self.drivers.len() - self.of_engine);
        natives
    }

    /// The types that the kernel engine opens here, but for those that a driver of obento or of the application has.
    pub fn engine_types(&self) -> &'static [obento_linux::types::Type] {
        if self.of_engine == 0 { &[] } else { obento_linux::types::TYPES }
    }

    /// The type of the kernel engine that has this name, if no other driver has it.
    pub fn engine_type(&self, name: &str) -> Option<&'static obento_linux::types::Type> {
        let is_native = self.natives().iter().any(|driver| driver.names().contains(&name));
        self.engine_types().iter().find(|kind| kind.names.contains(&name)).filter(|_| !is_native)
    }

    /// The drivers, in the order in which they are asked.
    pub fn drivers(&self) -> &[Arc<dyn Driver>] {
        &self.drivers
    }

    /// The names that `-t TYPE` accepts.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.drivers.iter().flat_map(|driver| driver.names().iter().copied())
    }

    /// The driver that has this name.
    ///
    /// ```
    /// let registry = obento::Registry::default();
    /// assert!(registry.find("ext4").is_some() && registry.find("floppyfs").is_none());
    /// ```
    pub fn find(&self, name: &str) -> Option<&Arc<dyn Driver>> {
        self.drivers.iter().find(|driver| driver.names().contains(&name))
    }

    /// Returns the first driver that recognises the volume on `device`, and what its signature says. Several types may claim a device:
    /// [`Image::volume`](crate::Image::volume) decides between them. Errors: those of the device.
    pub fn probe(&self, device: &dyn BlockDevice) -> Result<Option<(&Arc<dyn Driver>, Probe)>> {
        for driver in &self.drivers {
            if let Some(probe) = driver.probe(device)? {
                return Ok(Some((driver, probe)));
            }
        }
        Ok(None)
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}
