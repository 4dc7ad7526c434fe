//! The drivers that open images.

use std::fmt;
use std::sync::Arc;

use obento_base::Result;
use obento_block::BlockDevice;
use obento_driver::{Driver, Probe, StoredProperties};
#[cfg(feature = "engine")]
use obento_linux::{KernelOpened, KernelStart, KernelUse, LinuxDriver};

/// The drivers that open images: those of obento, and those that an application adds.
///
/// If two drivers support the same type, the driver that was added last opens its volumes. If drivers of
/// different types recognise a volume, the rules of libblkid decide which type counts. If these rules do not
/// select one type, the volume is ambiguous. An ambiguous volume is opened only if the caller selects a type.
#[derive(Clone)]
pub struct Registry {
    drivers: Vec<Arc<dyn Driver>>,
    /// The number of drivers of the kernel engine. These drivers are at the end of the list.
    of_engine: usize,
}

/// The drivers that open volumes. The *kernel engine* opens volumes with a Linux kernel that runs as an
/// ordinary process. Formatting and checking do not depend on this choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Engine {
    /// The drivers of obento and of the application, and the kernel engine for volumes of all other types.
    #[default]
    Both,
    /// The drivers of obento and of the application. Volumes that only the kernel engine supports are recognised, but
    /// opening them fails.
    Native,
    /// The kernel engine only. Volumes that it does not support are recognised, but opening them fails.
    Linux,
}

impl Default for Registry {
    /// Returns a registry with all drivers of obento that open volumes of a device.
    fn default() -> Self {
        // The drivers of the kernel engine are asked last: a type with a native driver needs no kernel.
        #[cfg(feature = "engine")]
        let engine = LinuxDriver::all().rev().fold(Self::empty(), Self::with);
        #[cfg(not(feature = "engine"))]
        let engine = Self::empty();
        let engine = Self { of_engine: engine.drivers.len(), ..engine };
        // ext4 is asked before FAT: the super block of ext4 leaves room for a boot sector, which may be one
        // of FAT.
        let known = engine.with(obento_fat::FatDriver::default()).with(obento_ext4::Ext4Driver);
        // These are asked before ext4: copies of the super block of an earlier ext4 volume may remain.
        let known = known.with(obento_exfat::ExFatDriver::default()).with(obento_xv6::Xv6Driver);
        known
            .with(obento_ntfs::NtfsDriver::default())
            .with(obento_bcachefs::BcachefsDriver)
            .with(obento_jffs2::Jffs2Driver)
            .with(obento_lfs::LfsDriver)
    }
}

impl Registry {
    /// Returns a registry without drivers.
    pub fn empty() -> Self {
        Self { drivers: Vec::new(), of_engine: 0 }
    }

    /// Returns this registry with `driver` added.
    ///
    /// A driver of an application is opened and used like those of obento:
    ///
    /// ```
    /// use std::sync::Arc;
    /// use obento::{Image, Options, Registry, tmpfs};
    /// use obento::block::{BlockDevice, MemDevice};
    /// use obento::driver::{Driver, FileSystem, OpenOptions, Probe, Access};
    ///
    /// /// Volumes that begin with `greetings`.
    /// struct Greetings;
    ///
    /// impl Driver for Greetings {
    ///     fn names(&self) -> &'static [&'static str] {
    ///         &["greetings"]
    ///     }
    ///
    ///     fn access(&self) -> Access {
    ///         Access::ReadWrite
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

    /// Returns this registry with the drivers that `engine` selects. The kernel of the kernel engine gets
    /// `memory` MiB; `None` uses the default. Call this method at most once: a later call undoes only a part
    /// of an earlier call. A registry without drivers of the kernel engine does not change.
    ///
    /// ```
    /// use obento::Registry;
    /// use obento::registry::Engine;
    ///
    /// let registry = Registry::default().with_engine(Engine::Native, None);
    /// assert!(registry.find("xfs").is_some(), "it is known, though not opened");
    /// ```
    #[cfg(feature = "engine")]
    #[must_use]
    pub fn with_engine(self, engine: Engine, memory: Option<u32>) -> Self {
        if self.of_engine == 0 || (engine, memory) == (Engine::Both, None) {
            return self;
        }
        let start = if engine == Engine::Native { KernelStart::Forbidden } else { KernelStart::Allowed };
        let how = KernelUse { memory, start, ..KernelUse::default() };
        let natives = self.drivers.iter().take(self.drivers.len() - self.of_engine).cloned();
        let natives = natives.map(|driver| match engine {
            Engine::Linux => Arc::new(KernelOpened::of(driver, how)) as Arc<dyn Driver>,
            _ => driver,
        });
        let engines = LinuxDriver::used(how).map(|driver| Arc::new(driver) as Arc<dyn Driver>);
        Self { drivers: natives.chain(engines).collect(), of_engine: self.of_engine }
    }

    /// Returns the drivers of obento and of the application. With [`Engine::Linux`], these drivers open
    /// volumes with the kernel engine.
    pub fn natives(&self) -> &[Arc<dyn Driver>] {
        let (natives, _) = self.drivers.split_at(self.drivers.len() - self.of_engine);
        natives
    }

    /// Returns the types of the kernel engine without a driver of obento. A driver of the application may support one
    /// of these types; [`engine_type`](Self::engine_type) excludes such types. Returns no types if the registry has no
    /// drivers of the kernel engine.
    #[cfg(feature = "engine")]
    pub fn engine_types(&self) -> &'static [obento_linux::types::Type] {
        if self.of_engine == 0 { &[] } else { obento_linux::types::TYPES }
    }

    /// Returns the type of the kernel engine with this name, if no other driver has the name.
    #[cfg(feature = "engine")]
    pub fn engine_type(&self, name: &str) -> Option<&'static obento_linux::types::Type> {
        let is_native = self.natives().iter().any(|driver| driver.names().contains(&name));
        self.engine_types().iter().find(|kind| kind.names.contains(&name)).filter(|_| !is_native)
    }

    /// Returns the properties that the kernel engine stores on volumes of this type, or `None` for a type that another
    /// driver supports.
    pub fn stored_by_engine(&self, name: &str) -> Option<StoredProperties> {
        #[cfg(feature = "engine")]
        return self.engine_type(name).map(|kind| kind.keeps);
        #[cfg(not(feature = "engine"))]
        {
            let _ = name;
            None
        }
    }

    /// Returns the drivers in the order in which they are tried.
    pub fn drivers(&self) -> &[Arc<dyn Driver>] {
        &self.drivers
    }

    /// Returns the names that `-t TYPE` accepts.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.drivers.iter().flat_map(|driver| driver.names().iter().copied())
    }

    /// Returns the driver with this name. If several drivers have the name, returns the driver that was added
    /// last.
    ///
    /// ```
    /// let registry = obento::Registry::default();
    /// assert!(registry.find("ext4").is_some() && registry.find("floppyfs").is_none());
    /// ```
    pub fn find(&self, name: &str) -> Option<&Arc<dyn Driver>> {
        self.drivers.iter().find(|driver| driver.names().contains(&name))
    }

    /// Returns the first driver that recognises the volume on `device`, and the result of its probe. Several types
    /// may claim a device; [`Image::volume`](crate::Image::volume) decides between them. Fails with the errors of the
    /// device.
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
