//! A pool of buffers for reuse: copying a block is cheaper than allocating memory for it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use obento_base::Result;
use obento_env::sync::Mutex;

/// Maximum number of buffers per shard: enough for a few operations at the same time.
const MOST: usize = 8;

/// The unused buffers of a shard. All have the same length.
pub(super) struct Spares {
    len: usize,
    buffers: Mutex<Vec<Box<[u8]>>>,
}

impl Spares {
    pub(super) fn new(len: usize) -> Self {
        Self { len, buffers: Mutex::new(Vec::with_capacity(MOST)) }
    }

    /// Returns a copy of `bytes`.
    pub(super) fn copy(&self, bytes: &[u8]) -> Box<[u8]> {
        match self.take() {
            Some(mut buffer) if buffer.len() == bytes.len() => {
                buffer.copy_from_slice(bytes);
                buffer
            }
            _ => Box::from(bytes),
        }
    }

    /// Returns a buffer of zeros.
    pub(super) fn zeroed(&self) -> Result<Box<[u8]>> {
        match self.take() {
            Some(mut buffer) => {
                buffer.fill(0);
                Ok(buffer)
            }
            None => super::zeroed(self.len),
        }
    }

    /// Returns a buffer to the pool.
    pub(super) fn put(&self, buffer: Box<[u8]>) {
        if buffer.len() != self.len {
            return;
        }
        let mut buffers = self.buffers.lock();
        if buffers.len() < MOST {
            buffers.push(buffer);
            return;
        }
        // Free the memory without holding the lock.
        drop(buffers);
        drop(buffer);
    }

    fn take(&self) -> Option<Box<[u8]>> {
        self.buffers.lock().pop()
    }
}
