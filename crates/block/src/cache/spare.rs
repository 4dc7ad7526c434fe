//! Buffers that are not in use, kept for the next block: copying a block costs less than having memory for it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use obento_base::Result;
use obento_env::sync::Mutex;

/// How many a shard keeps: what a few operations need at once.
const MOST: usize = 8;

/// The spare buffers of a shard, all of one length.
pub(super) struct Spares {
    len: usize,
    buffers: Mutex<Vec<Box<[u8]>>>,
}

impl Spares {
    pub(super) fn new(len: usize) -> Self {
        Self { len, buffers: Mutex::new(Vec::with_capacity(MOST)) }
    }

    /// A copy of `bytes`.
    pub(super) fn copy(&self, bytes: &[u8]) -> Box<[u8]> {
        match self.take() {
            Some(mut buffer) if buffer.len() == bytes.len() => {
                buffer.copy_from_slice(bytes);
                buffer
            }
            _ => Box::from(bytes),
        }
    }

    /// A buffer of zeros.
    pub(super) fn zeroed(&self) -> Result<Box<[u8]>> {
        match self.take() {
            Some(mut buffer) => {
                buffer.fill(0);
                Ok(buffer)
            }
            None => super::zeroed(self.len),
        }
    }

    /// Gives a buffer back.
    pub(super) fn put(&self, buffer: Box<[u8]>) {
        if buffer.len() != self.len {
            return;
        }
        let mut buffers = self.buffers.lock();
        if buffers.len() < MOST {
            buffers.push(buffer);
            return;
        }
        // Memory is given back without the lock.
        drop(buffers);
        drop(buffer);
    }

    fn take(&self) -> Option<Box<[u8]>> {
        self.buffers.lock().pop()
    }
}
