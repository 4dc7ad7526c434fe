//! Growing a volume: Linux grows it while it is mounted.

use std::sync::Arc;

use obento_base::{DeviceError, Error};
use obento_block::BlockDevice;
use obento_driver::{
    Access, OpenOptions, Probe, Resize, ResizeError, ResizeObserver, ResizeOptions, ResizePlan, ResizeRefusal,
};
use obento_linux_wire::Request;

use crate::driver::{LinuxDriver, NO_SIGNATURE};
use crate::probe::{first_bytes, probe};

impl LinuxDriver {
    fn found(&self, device: &Arc<dyn BlockDevice>) -> Result<Probe, Error> {
        probe(self.kind(), &**device)?.ok_or(NO_SIGNATURE)
    }
}

impl Resize for LinuxDriver {
    fn plan(&self, device: &Arc<dyn BlockDevice>, len: u64) -> Result<ResizePlan, ResizeError> {
        // The caller makes room before the volume grows, so a missing kernel is an error now.
        self.expect_kernel()?;
        let old_len = self.found(device)?.len;
        let grown = self.kind().grown.ok_or(ResizeRefusal::OnlyGrows)?;
        if len < old_len {
            return Err(ResizeRefusal::OnlyGrows.into());
        }
        let len = grown(&first_bytes(&**device)?, len).ok_or(Error::Invalid)?;
        let min = self.kind().least_resized;
        if len > old_len && len < min {
            return Err(ResizeRefusal::OfType { min }.into());
        }
        Ok(ResizePlan { old_len, len: len.max(old_len), notes: Vec::new() })
    }

    fn minimum(&self, _device: &Arc<dyn BlockDevice>) -> Result<u64, ResizeError> {
        Err(ResizeRefusal::OnlyGrows.into())
    }

    fn resize(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &ResizeOptions,
        _observer: ResizeObserver<'_>,
    ) -> Result<ResizePlan, ResizeError> {
        let plan = self.plan(&device, options.len)?;
        if plan.len == plan.old_len {
            return Ok(plan);
        }
        let (len, device_len) = (plan.len, device.len());
        if len > device_len {
            return Err(Error::from(DeviceError::OutOfBounds { offset: 0, len, device_len }).into());
        }
        let how = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(Arc::clone(&options.clock)) };
        let volume = self.mount(self.found(&device)?, Arc::clone(&device), &how)?;
        volume.do_it(&mut volume.state(), &[], Request::Grow { len })?;
        volume.seal()?;
        drop(volume);
        // The kernel decides about the last part of the volume.
        Ok(ResizePlan { len: self.found(&device)?.len, ..plan })
    }
}
