//! The drivers that images are opened with.

use std::fmt;
use std::sync::Arc;

use obento_base::Result;
use obento_block::BlockDevice;
use obento_driver::{Driver, Probe};

/// The drivers that images are opened with: those of obento, and any that an application brings.
///
/// Of two drivers that recognise the same volume, the one that was added later wins.
#[derive(Clone)]
pub struct Registry {
    drivers: Vec<Arc<dyn Driver>>,
}

impl Default for Registry {
    /// Every driver of obento that opens volumes of a device.
    fn default() -> Self {
        Self::empty().with(obento_ext4::Ext4Driver)
    }
}

impl Registry {
    /// No driver at all.
    pub fn empty() -> Self {
        Self { drivers: Vec::new() }
    }

    /// This registry and `driver`.
    #[must_use]
    pub fn with(mut self, driver: impl Driver + 'static) -> Self {
        self.drivers.insert(0, Arc::new(driver));
        self
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
    pub fn find(&self, name: &str) -> Option<&Arc<dyn Driver>> {
        self.drivers.iter().find(|driver| driver.names().contains(&name))
    }

    /// The driver that recognises what fills `device`, and what it tells. Errors: those of the device.
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
