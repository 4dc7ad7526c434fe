//! A device that passes from one process to another while its volume is in use: see [`Handoff`].
//!
//! Locking: a device has two locks. A thread acquires them in this order:
//! 1. The lock of the stored changes. Writes, flushes, discards and punches hold this lock shared. So does a read of a
//!    device that is not released; a read of a released device acquires no lock. [`Handoff::release`] and the guard of
//!    [`Handoff::freeze`] hold this lock exclusively.
//! 2. The lock of the list of these changes. The release, and writes and flushes of a holding device, hold this lock.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};

use obento_base::wire::to_u64;
use obento_base::{Error, Result};
use obento_env::sync::{Mutex, RwLock, RwLockWriteGuard};

use crate::Overlay;
use crate::device::{Backing, BlockDevice, ReadRequest, check_buf, check_range};

/// Maximum total length of the writes that a device stores in memory. This limit bounds the changes that a
/// process can make before the release, including the replay of a journal.
const MAX_HELD: u64 = 256 << 20;

/// One change that waits for the release.
enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Flush,
}

/// The changes of a device that writes nothing yet.
struct Held {
    /// The device with all held changes.
    view: Overlay<Arc<dyn BlockDevice>>,
    changes: Mutex<(u64, Vec<Change>)>,
}

impl Held {
    fn write(&self, offset: u64, buf: &[u8]) -> Result<()> {
        check_buf(self.view.len(), offset, buf)?;
        let mut changes = self.changes.lock();
        let held = changes.0.saturating_add(to_u64(buf.len()));
        if held > MAX_HELD {
            return Err(Error::NoMemory);
        }
        changes.1.try_reserve(1)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(buf.len())?;
        bytes.extend_from_slice(buf);
        self.view.write_at(offset, buf)?;
        changes.1.push(Change::Write { offset, bytes });
        changes.0 = held;
        Ok(())
    }
}

/// A device that passes from one process to another while its volume is in use.
///
/// The process that passes on the volume [freezes](Self::freeze) its device. Its threads can then no longer
/// write. The process that receives the volume opens it on a [holding](Self::holding) device, which stores
/// writes in memory until the device is [released](Self::release).
///
/// Until the release, neither process changes the underlying device. The first process can therefore continue
/// if the second process fails.
///
/// Invariant: a holding device writes nothing to the underlying device before its release. At the release,
/// the device repeats the stored writes and flushes in their original order. A crash during the release
/// therefore has the same effect as a crash while the process makes these writes directly.
/// Invariant: a released device never stores writes again.
pub struct Handoff {
    below: Arc<dyn BlockDevice>,
    /// Whether the device passes writes on instead of storing them. Never becomes `false` again.
    is_released: AtomicBool,
    held: RwLock<Option<Held>>,
}

/// A guard for a frozen device. While this guard exists, every write, flush, discard, punch and
/// [release](Handoff::release) waits. On a holding device, reads wait, too. The thread that owns the guard must not
/// call a method that waits: the thread would wait for itself.
#[must_use]
pub struct Frozen<'a> {
    _writers: RwLockWriteGuard<'a, Option<Held>>,
}

impl Handoff {
    /// Creates a device that passes every call to `below`.
    pub fn passing(below: Arc<dyn BlockDevice>) -> Self {
        Self { below, is_released: AtomicBool::new(true), held: RwLock::new(None) }
    }

    /// Creates a device that stores its writes and flushes in memory until [`release`](Self::release). If the
    /// total length of the stored writes would exceed 256 MiB, a write fails with `NoMemory`. A stored flush
    /// succeeds although nothing is on stable storage. The process must therefore confirm no sync before the
    /// release. Until the release, a discard has no effect, and a punch returns `false`.
    pub fn holding(below: Arc<dyn BlockDevice>) -> Self {
        let held = Held { view: Overlay::new(Arc::clone(&below)), changes: Mutex::default() };
        Self { below, is_released: AtomicBool::new(false), held: RwLock::new(Some(held)) }
    }

    /// Waits for the calls in progress, and makes later writes, flushes, discards and punches wait until the
    /// guard is dropped.
    pub fn freeze(&self) -> Frozen<'_> {
        Frozen { _writers: self.held.write() }
    }

    /// Repeats the stored writes and flushes on the underlying device, in order. Later writes are passed to the
    /// underlying device directly. Other threads that use the device wait until the call returns. Has no
    /// effect on a released device.
    ///
    /// # Errors
    ///
    /// As for [`BlockDevice::write_at`] and [`BlockDevice::flush`]. After an error, the device still stores all its
    /// writes, and the next call repeats all of them.
    pub fn release(&self) -> Result<()> {
        let mut held = self.held.write();
        if let Some(held) = &*held {
            for change in &held.changes.lock().1 {
                match change {
                    Change::Write { offset, bytes } => self.below.write_at(*offset, bytes)?,
                    Change::Flush => self.below.flush()?,
                }
            }
        }
        *held = None;
        self.is_released.store(true, Ordering::Release);
        Ok(())
    }

    fn is_released(&self) -> bool {
        self.is_released.load(Ordering::Acquire)
    }
}

impl BlockDevice for Handoff {
    obento_base::forward! { self.below;
        fn len(&self) -> u64;
        fn sector_size(&self) -> u32;
        fn is_read_only(&self) -> bool;
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if self.is_released() {
            return self.below.read_at(offset, buf);
        }
        match &*self.held.read() {
            Some(held) => held.view.read_at(offset, buf),
            None => self.below.read_at(offset, buf),
        }
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        if self.is_released() {
            return self.below.read_many(requests);
        }
        requests.iter_mut().try_for_each(|request| self.read_at(request.offset, request.buf))
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        match &*self.held.read() {
            Some(held) if !self.is_read_only() => held.write(offset, buf),
            _ => self.below.write_at(offset, buf),
        }
    }

    fn flush(&self) -> Result<()> {
        match &*self.held.read() {
            Some(held) => {
                let mut changes = held.changes.lock();
                changes.1.try_reserve(1)?;
                changes.1.push(Change::Flush);
                Ok(())
            }
            None => self.below.flush(),
        }
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        match &*self.held.read() {
            // The contents of discarded bytes are unspecified, so they may stay as they are.
            Some(_) if !self.is_read_only() => {
                check_range(self.len(), range.start, range.end.saturating_sub(range.start))
            }
            _ => self.below.discard(range),
        }
    }

    fn punch(&self, range: Range<u64>) -> Result<bool> {
        match &*self.held.read() {
            Some(_) if !self.is_read_only() => {
                check_range(self.len(), range.start, range.end.saturating_sub(range.start)).map(|()| false)
            }
            _ => self.below.punch(range),
        }
    }

    fn known_zeros(&self, range: Range<u64>) -> u64 {
        if self.is_released() { self.below.known_zeros(range) } else { 0 }
    }

    fn backing(&self, range: Range<u64>) -> Option<Backing> {
        self.below.backing(range).filter(|_| self.is_released())
    }
}

impl fmt::Debug for Handoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handoff").field("is_released", &self.is_released()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDevice;
    use std::vec;

    fn bytes(device: &dyn BlockDevice) -> Vec<u8> {
        let mut bytes = vec![0; 8192];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn held_writes_are_read_back_and_reach_the_device_below_only_when_released() {
        let below = Arc::new(MemDevice::new(vec![7; 8192]));
        let device = Handoff::holding(below.clone());
        device.write_at(4095, &[1, 2]).unwrap();
        device.flush().unwrap();
        device.write_at(4096, &[3]).unwrap();
        assert_eq!(bytes(&device)[4094..4098], [7, 1, 3, 7]);
        assert_eq!(bytes(&below), [7; 8192]);
        assert!(device.backing(0..8).is_none());
        device.release().unwrap();
        assert_eq!(bytes(&below)[4094..4098], [7, 1, 3, 7]);
        device.write_at(0, &[9]).unwrap();
        assert_eq!(bytes(&below)[0], 9);
    }

    #[test]
    fn writes_past_the_end_fail_while_they_are_held() {
        let device = Handoff::holding(Arc::new(MemDevice::new(vec![0; 8192])));
        assert!(device.write_at(8191, &[1, 2]).is_err() && device.punch(0..8193).is_err());
        assert_eq!(device.punch(0..4096), Ok(false));
        device.discard(0..4096).unwrap();
    }

    #[test]
    fn a_read_only_device_refuses_changes_also_while_writes_are_held() {
        let device = Handoff::holding(Arc::new(MemDevice::read_only(vec![0; 8192])));
        let refused = Err(obento_base::DeviceError::ReadOnly.into());
        assert_eq!(device.write_at(0, &[1]), refused);
        assert_eq!(device.punch(0..4096).map(drop), refused);
    }

    #[test]
    fn several_reads_see_held_writes_and_a_released_device_passes_every_call_on() {
        let below = Arc::new(MemDevice::new(vec![7; 8192]));
        let device = Handoff::holding(below.clone());
        device.write_at(0, &[1]).unwrap();
        let first_bytes = |device: &Handoff| {
            let (mut first, mut second) = ([0; 2], [0; 2]);
            let mut requests =
                [ReadRequest { offset: 0, buf: &mut first }, ReadRequest { offset: 4096, buf: &mut second }];
            device.read_many(&mut requests).unwrap();
            (first, second)
        };
        assert_eq!(first_bytes(&device), ([1, 7], [7, 7]));
        assert_eq!(device.known_zeros(0..8192), 0);
        assert_eq!(std::format!("{device:?}"), "Handoff { is_released: false, .. }");
        device.release().unwrap();
        assert_eq!(first_bytes(&device), ([1, 7], [7, 7]));
        let below: &dyn BlockDevice = &*below;
        assert_eq!((device.len(), device.sector_size()), (below.len(), below.sector_size()));
        assert_eq!(device.is_read_only(), below.is_read_only());
        assert_eq!(device.known_zeros(0..8192), below.known_zeros(0..8192));
        assert_eq!(device.backing(0..8).is_some(), below.backing(0..8).is_some());
        device.flush().unwrap();
        device.discard(0..4096).unwrap();
        assert_eq!(device.punch(4096..8192), below.punch(4096..8192));
    }

    #[test]
    fn a_frozen_device_is_written_only_after_it_thaws() {
        let device = Handoff::passing(Arc::new(MemDevice::new(vec![0; 8192])));
        std::thread::scope(|threads| {
            let frozen = device.freeze();
            let writer = threads.spawn(|| device.write_at(0, &[5]));
            assert_eq!(bytes(&device)[0], 0);
            drop(frozen);
            writer.join().unwrap().unwrap();
        });
        assert_eq!(bytes(&device)[0], 5);
    }
}
