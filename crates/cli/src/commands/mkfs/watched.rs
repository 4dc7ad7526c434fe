//! A device that shows the progress of writing: if existing contents cannot be discarded, zeros are
//! written over them, which takes long.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use obento::Result;
use obento::block::BlockDevice;

use crate::context::Context;
use crate::progress::Meter;

/// The device and its progress.
pub struct Watched {
    device: Arc<dyn BlockDevice>,
    name: Vec<u8>,
    written: Mutex<(u64, Meter)>,
}

impl Watched {
    /// Creates the device called `name`.
    pub fn new(device: Arc<dyn BlockDevice>, name: &[u8], context: &Context) -> Self {
        let meter = Meter::new(context.messages(), "writing");
        Self { device, name: name.to_vec(), written: Mutex::new((0, meter)) }
    }
}

impl BlockDevice for Watched {
    obento::base::forward! { self.device;
        fn len(&self) -> u64;
        fn sector_size(&self) -> u32;
        fn is_read_only(&self) -> bool;
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
        fn flush(&self) -> Result<()>;
        fn discard(&self, range: Range<u64>) -> Result<()>;
        fn punch(&self, range: Range<u64>) -> Result<bool>;
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.device.write_at(offset, buf)?;
        // An error of the progress bar does not matter.
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let (bytes, meter) = &mut *written;
        *bytes += buf.len() as u64;
        meter.update(*bytes, None, &self.name);
        Ok(())
    }
}
