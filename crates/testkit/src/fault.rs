//! A device whose Nth read, write or flush fails, once or from then on.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use obento_base::{DeviceError, Result};
use obento_block::BlockDevice;

/// `EIO`, as a broken disk answers.
const EIO: i32 = 5;
/// A write that fails is done nevertheless up to its middle, in units of this on the device: the largest structure that formats write
/// in place and cannot tell torn, ext4's super block, is done or not.
const TORN: u64 = 1024;

/// What a device is asked to do.
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
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Flush];
}

/// How long a fault lasts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Lasting {
    /// One request.
    Once,
    /// That request and all of its kind after it.
    ForGood,
}

/// Which request fails.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fault {
    /// Of what kind.
    pub request: Request,
    /// Which of that kind, counted from 0.
    pub nth: u64,
    /// And those after it?
    pub lasting: Lasting,
}

/// Passes requests on to `below`, but for those that are to fail. A write that fails is done in part.
#[derive(Debug)]
pub struct FaultDevice<D> {
    below: D,
    fault: Option<Fault>,
    counts: [AtomicU64; 3],
    hits: AtomicU64,
}

impl<D: BlockDevice> FaultDevice<D> {
    /// A device on which `fault` happens; with none it counts alone.
    pub fn new(below: D, fault: Option<Fault>) -> Self {
        Self { below, fault, counts: Default::default(), hits: AtomicU64::new(0) }
    }

    /// How many requests of this kind there were.
    pub fn count(&self, request: Request) -> u64 {
        self.counts[request as usize].load(Ordering::Relaxed)
    }

    /// How many requests failed.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    fn fails(&self, request: Request) -> bool {
        let number = self.counts[request as usize].fetch_add(1, Ordering::Relaxed);
        let fails = self.fault.is_some_and(|fault| {
            let past = fault.lasting == Lasting::ForGood && number > fault.nth;
            fault.request == request && (number == fault.nth || past)
        });
        self.hits.fetch_add(fails.into(), Ordering::Relaxed);
        fails
    }
}

impl<D: BlockDevice> BlockDevice for FaultDevice<D> {
    fn len(&self) -> u64 {
        self.below.len()
    }

    fn sector_size(&self) -> u32 {
        self.below.sector_size()
    }

    fn is_read_only(&self) -> bool {
        self.below.is_read_only()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if self.fails(Request::Read) {
            return Err(DeviceError::Read { offset, len: buf.len() as u64, errno: EIO }.into());
        }
        self.below.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        if self.fails(Request::Write) {
            let middle = (offset + buf.len() as u64 / 2) / TORN * TORN;
            self.below.write_at(offset, &buf[..middle.saturating_sub(offset) as usize])?;
            return Err(DeviceError::Write { offset, len: buf.len() as u64, errno: EIO }.into());
        }
        self.below.write_at(offset, buf)
    }

    fn flush(&self) -> Result<()> {
        if self.fails(Request::Flush) {
            return Err(DeviceError::Flush { errno: EIO }.into());
        }
        self.below.flush()
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        if self.fails(Request::Write) {
            let len = range.end.saturating_sub(range.start);
            return Err(DeviceError::Write { offset: range.start, len, errno: EIO }.into());
        }
        self.below.discard(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento_block::MemDevice;

    fn device(request: Request, nth: u64, lasting: Lasting) -> FaultDevice<MemDevice> {
        FaultDevice::new(MemDevice::new(vec![0; 4096]), Some(Fault { request, nth, lasting }))
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
    fn a_write_that_fails_is_torn() {
        let device = device(Request::Write, 0, Lasting::Once);
        assert!(device.write_at(0, &[7; 2048]).is_err());
        let mut bytes = [0; 2048];
        device.read_at(0, &mut bytes).unwrap();
        assert!(bytes[..1024] == [7; 1024] && bytes[1024..] == [0; 1024]);
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
