//! A device whose Nth read, write or flush fails, once or from then on; and a slow device.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use obento_base::{DeviceError, Result};
use obento_block::BlockDevice;

use crate::model::StepClock;

/// `EIO`, the error of a broken disk.
const EIO: i32 = 5;
/// `ENOSPC`, the error of an image file on a full disk.
const ENOSPC: i32 = 28;
/// A partial write ends at its middle, in units of this size. Formats write structures up to this size in place without
/// detecting torn writes. The largest, ext4's super block, is written completely or not at all.
const TORN: u64 = 1024;

/// A kind of request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Request {
    /// `read_at`.
    Read,
    /// `write_at`, and `discard`.
    Write,
    /// `flush`.
    Flush,
}

impl Request {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Flush];
}

/// The way in which a request fails.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FaultKind {
    /// `EIO`, without any effect.
    Io,
    /// `EIO`, and half of the request was done, as when a medium ends or a transfer is interrupted.
    Short,
    /// `ENOSPC`, without any effect. Reads and discards do not fail in this way.
    NoSpace,
}

impl FaultKind {
    /// All ways.
    pub const ALL: [Self; 3] = [Self::Io, Self::Short, Self::NoSpace];

    /// Returns the ways in which such a request may fail.
    pub fn of(request: Request) -> &'static [Self] {
        match request {
            Request::Read => &[Self::Io, Self::Short],
            Request::Write => &Self::ALL,
            // A host file system with delayed allocation may find no free blocks when it flushes.
            Request::Flush => &[Self::Io, Self::NoSpace],
        }
    }

    fn errno(self) -> i32 {
        match self {
            Self::Io | Self::Short => EIO,
            Self::NoSpace => ENOSPC,
        }
    }
}

/// The duration of a fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Lasting {
    /// One request.
    Once,
    /// The request and all later ones of its kind.
    ForGood,
}

/// The request that fails.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fault {
    /// The kind of the request.
    pub request: Request,
    /// The index of the request among its kind, from 0.
    pub nth: u64,
    /// The duration.
    pub lasting: Lasting,
    /// The way.
    pub failure: FaultKind,
}

/// Passes requests to `below`, except those that fail.
#[derive(Debug)]
pub struct FaultDevice<D> {
    below: D,
    fault: Option<Fault>,
    counts: [AtomicU64; 3],
    hits: AtomicU64,
}

impl<D: BlockDevice> FaultDevice<D> {
    /// Returns a device with `fault`; with `None`, it only counts requests.
    pub fn new(below: D, fault: Option<Fault>) -> Self {
        Self { below, fault, counts: Default::default(), hits: AtomicU64::new(0) }
    }

    /// Returns the number of requests of this kind.
    pub fn count(&self, request: Request) -> u64 {
        self.counts[request as usize].load(Ordering::Relaxed)
    }

    /// Returns the number of failed requests.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Returns the way in which this request fails, or `None` if it succeeds.
    fn failure(&self, request: Request) -> Option<FaultKind> {
        let number = self.counts[request as usize].fetch_add(1, Ordering::Relaxed);
        let fault = self.fault.filter(|fault| {
            let past = fault.lasting == Lasting::ForGood && number > fault.nth;
            fault.request == request && (number == fault.nth || past)
        });
        self.hits.fetch_add(fault.is_some().into(), Ordering::Relaxed);
        fault.map(|fault| fault.failure)
    }
}

impl<D: BlockDevice> BlockDevice for FaultDevice<D> {
    obento_base::forward! { self.below;
        fn len(&self) -> u64;
        fn sector_size(&self) -> u32;
        fn is_read_only(&self) -> bool;
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let Some(failure) = self.failure(Request::Read) else { return self.below.read_at(offset, buf) };
        let len = buf.len() as u64;
        if failure == FaultKind::Short {
            self.below.read_at(offset, &mut buf[..done(offset, len)])?;
        }
        Err(DeviceError::Read { offset, len, errno: failure.errno() }.into())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        let Some(failure) = self.failure(Request::Write) else { return self.below.write_at(offset, buf) };
        let len = buf.len() as u64;
        if failure == FaultKind::Short {
            self.below.write_at(offset, &buf[..done(offset, len)])?;
        }
        Err(DeviceError::Write { offset, len, errno: failure.errno() }.into())
    }

    fn flush(&self) -> Result<()> {
        match self.failure(Request::Flush) {
            Some(failure) => Err(DeviceError::Flush { errno: failure.errno() }.into()),
            None => self.below.flush(),
        }
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        match self.failure(Request::Write) {
            Some(failure @ (FaultKind::Io | FaultKind::Short)) => {
                let len = range.end.saturating_sub(range.start);
                Err(DeviceError::Write { offset: range.start, len, errno: failure.errno() }.into())
            }
            _ => self.below.discard(range),
        }
    }
}

/// Returns how many bytes of an interrupted request are done.
fn done(offset: u64, len: u64) -> usize {
    let middle = (offset + len / 2) / TORN * TORN;
    middle.saturating_sub(offset) as usize
}

/// A slow device: one second passes by `clock` with each request.
#[derive(Debug)]
pub struct SlowDevice<D> {
    below: D,
    clock: Arc<StepClock>,
    /// How often other threads may run before a request is done.
    yields: usize,
}

impl<D: BlockDevice> SlowDevice<D> {
    /// Returns `below`, slow by the time of `clock`. Requests do not wait for other threads: each wait can take a time slice
    /// of every other program, and a single thread waits for nothing.
    pub fn new(below: D, clock: Arc<StepClock>) -> Self {
        Self { below, clock, yields: 0 }
    }

    /// Like [`new`](Self::new), but other threads run while a request waits.
    pub fn shared(below: D, clock: Arc<StepClock>) -> Self {
        Self { yields: 4, ..Self::new(below, clock) }
    }

    fn wait(&self) {
        (0..self.yields).for_each(|_| std::thread::yield_now());
        self.clock.pass(1);
    }
}

impl<D: BlockDevice> BlockDevice for SlowDevice<D> {
    obento_base::forward! { self.below;
        fn len(&self) -> u64;
        fn sector_size(&self) -> u32;
        fn is_read_only(&self) -> bool;
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.wait();
        self.below.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.wait();
        self.below.write_at(offset, buf)
    }
    fn flush(&self) -> Result<()> {
        self.wait();
        self.below.flush()
    }
    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.wait();
        self.below.discard(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento_block::MemDevice;

    fn device(request: Request, nth: u64, lasting: Lasting) -> FaultDevice<MemDevice> {
        failing(Fault { request, nth, lasting, failure: FaultKind::Short })
    }

    fn failing(fault: Fault) -> FaultDevice<MemDevice> {
        FaultDevice::new(MemDevice::new(vec![0; 4096]), Some(fault))
    }

    #[test]
    fn a_fault_that_comes_once_fails_one_request_of_its_kind() {
        let device = device(Request::Write, 1, Lasting::Once);
        let results = [0, 1, 2].map(|at| device.write_at(at, &[1]).is_ok());
        assert_eq!(results, [true, false, true]);
        assert!(device.flush().is_ok() && device.read_at(0, &mut [0]).is_ok());
        assert_eq!((device.count(Request::Write), device.hits()), (3, 1));
    }

    #[test]
    fn a_fault_for_good_fails_every_later_request_of_its_kind() {
        let device = device(Request::Flush, 1, Lasting::ForGood);
        assert_eq!([0, 1, 2].map(|_| device.flush().is_ok()), [true, false, false]);
        assert!(device.write_at(0, &[1]).is_ok());
    }

    #[test]
    fn a_short_failure_stops_in_the_middle_of_a_request() {
        let device = device(Request::Write, 0, Lasting::Once);
        assert!(device.write_at(0, &[7; 2048]).is_err());
        let mut bytes = [0; 2048];
        device.read_at(0, &mut bytes).unwrap();
        assert!(bytes[..1024] == [7; 1024] && bytes[1024..] == [0; 1024]);
        let short = device_of(bytes);
        let mut read = [1; 2048];
        assert!(short.read_at(0, &mut read).is_err());
        assert!(read[..1024] == [7; 1024] && read[1024..] == [1; 1024]);
    }

    fn device_of(bytes: [u8; 2048]) -> FaultDevice<MemDevice> {
        let fault =
            Fault { request: Request::Read, nth: 0, lasting: Lasting::Once, failure: FaultKind::Short };
        FaultDevice::new(MemDevice::new(bytes.to_vec()), Some(fault))
    }

    #[test]
    fn a_failure_without_a_part_does_nothing_and_reports_its_number() {
        for (failure, errno) in [(FaultKind::Io, EIO), (FaultKind::NoSpace, ENOSPC)] {
            let device =
                failing(Fault { request: Request::Write, nth: 0, lasting: Lasting::ForGood, failure });
            let error = DeviceError::Write { offset: 0, len: 2048, errno };
            assert_eq!(device.write_at(0, &[7; 2048]), Err(error.into()));
            let mut bytes = [1; 2048];
            device.read_at(0, &mut bytes).unwrap();
            assert_eq!(bytes, [0; 2048]);
        }
    }

    #[test]
    fn on_a_slow_device_time_passes_with_each_request() {
        use obento_env::Clock as _;
        let clock = Arc::new(StepClock::default());
        let device = SlowDevice::new(MemDevice::new(vec![0; 4096]), clock.clone());
        let before = clock.now();
        device.write_at(0, &[7]).unwrap();
        device.flush().unwrap();
        assert_eq!(clock.now().secs() - before.secs(), 2);
    }

    #[test]
    fn a_write_that_starts_within_a_sector_is_torn_between_two() {
        let device = device(Request::Write, 0, Lasting::Once);
        assert!(device.write_at(1000, &[7; 2500]).is_err());
        let mut bytes = [0; 4096];
        device.read_at(0, &mut bytes).unwrap();
        assert!(bytes[..1000] == [0; 1000] && bytes[1000..2048] == [7; 1048] && bytes[2048..] == [0; 2048]);
    }
}
