//! Writes a disk over a partition of an existing disk.
//!
//! Invariant: the first [`HEAD`] bytes of the partition are zeros on stable storage before any other byte is written,
//! and are written last. An incomplete copy is therefore not recognised as a file system. No byte outside of the
//! partition is written.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{DeviceError, Error};
use obento_block::{BlockDevice, Slice};
use obento_host::compressed::UnpackError;
use obento_host::convert::{ConvertError, Hash, compare};

use super::ConvertStep;

/// The bytes that are written last. The super blocks of most formats are in them.
const HEAD: u64 = 1 << 20;
/// The bytes that are read at once.
const CHUNK: u64 = 1 << 20;
/// The bytes after which data is counted and zeros are looked for.
const BLOCK: usize = 4096;

/// The options of [`overwrite()`].
#[derive(Default)]
pub struct OverwriteOptions<'a> {
    /// Whether to compare the partition with the disk afterwards.
    pub verify: bool,
    /// The maximum number of bytes of the disk that are not zeros, in blocks of 4 KiB. `None` sets no limit.
    pub limit: Option<u64>,
    /// A function that receives all bytes of the disk in order.
    pub hash: Option<Box<Hash<'a>>>,
}

/// The reason why a partition was not overwritten completely.
#[derive(Debug, thiserror::Error)]
pub enum OverwriteFailure {
    /// The disk has `disk` bytes, and the partition only `partition`. Nothing was written.
    #[error("the disk has {disk} bytes, and the partition {partition}")]
    TooSmall {
        /// The size of the disk in bytes.
        disk: u64,
        /// The size of the partition in bytes.
        partition: u64,
    },
    /// The disk cannot be read.
    #[error("cannot read the disk: {0}")]
    Read(Error),
    /// The partition cannot be written or read.
    #[error("{0}")]
    Partition(Error),
    /// The disk has more data than the limit.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    /// The partition differs from the disk afterwards.
    #[error("the partition differs from its source")]
    Differs,
    /// The observer stopped the work.
    #[error("stopped")]
    Stopped,
}

/// The contents of a partition after [`overwrite()`] failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartitionState {
    /// Nothing was written.
    Unchanged,
    /// The partition is incomplete. Its first MiB may contain bytes of the earlier or of the new contents.
    Incomplete,
    /// The partition is incomplete, and its first MiB is zeros.
    StartsWithZeros,
    /// All bytes were written.
    Written,
}

/// Writes the bytes of `disk` to the start of `partition`. The rest of the partition is freed if the device can do so
/// without writing; otherwise only its last MiB becomes zeros. `watch` receives the current step and the number of
/// bytes that this step has processed, and can end the work.
///
/// # Errors
///
/// [`OverwriteFailure`] lists the errors, and [`PartitionState`] the contents of the partition after them.
pub fn overwrite(
    disk: &Arc<dyn BlockDevice>,
    partition: &Arc<dyn BlockDevice>,
    options: OverwriteOptions<'_>,
    watch: &mut dyn FnMut(ConvertStep, u64) -> ControlFlow<()>,
) -> Result<(), (OverwriteFailure, PartitionState)> {
    let mut state = PartitionState::Unchanged;
    write_and_compare(disk, partition, options, watch, &mut state).map_err(|failure| (failure, state))
}

/// Overwrites the partition, and keeps `state` up to date.
fn write_and_compare(
    disk: &Arc<dyn BlockDevice>,
    partition: &Arc<dyn BlockDevice>,
    options: OverwriteOptions<'_>,
    watch: &mut dyn FnMut(ConvertStep, u64) -> ControlFlow<()>,
    state: &mut PartitionState,
) -> Result<(), OverwriteFailure> {
    let (len, room) = (disk.len(), partition.len());
    if len > room {
        return Err(OverwriteFailure::TooSmall { disk: len, partition: room });
    }
    let limit = options.limit.unwrap_or(u64::MAX);
    let mut copy = Copy { disk: &**disk, partition: &**partition, limit, left: limit, hash: options.hash };
    let head_len = HEAD.min(len);
    let mut head = vec![0; to_usize(head_len)];
    copy.read(0, &mut head)?;
    if partition.is_read_only() {
        return Err(OverwriteFailure::Partition(DeviceError::ReadOnly.into()));
    }
    *state = PartitionState::Incomplete;
    copy.zero(0..HEAD.min(room))?;
    copy.flush()?;
    *state = PartitionState::StartsWithZeros;
    let mut chunk = vec![0; to_usize(CHUNK)];
    let mut at = head_len;
    while at < len {
        if watch(ConvertStep::Write, at).is_break() {
            return Err(OverwriteFailure::Stopped);
        }
        let end = len.min(at.saturating_add(CHUNK));
        copy.part(at, &mut chunk[..to_usize(end - at)])?;
        at = end;
    }
    copy.free(len.max(HEAD.min(room))..room)?;
    copy.flush()?;
    *state = PartitionState::Incomplete;
    copy.write(0, &head)?;
    copy.flush()?;
    *state = PartitionState::Written;
    if options.verify { expect_same(disk, partition, watch) } else { Ok(()) }
}

fn expect_same(
    disk: &Arc<dyn BlockDevice>,
    partition: &Arc<dyn BlockDevice>,
    watch: &mut dyn FnMut(ConvertStep, u64) -> ControlFlow<()>,
) -> Result<(), OverwriteFailure> {
    let written = Slice::new(partition.clone(), 0..disk.len()).map_err(OverwriteFailure::Partition)?;
    let written: Arc<dyn BlockDevice> = Arc::new(written);
    match compare(disk, &written, &mut |done| watch(ConvertStep::Verify, done)) {
        Ok(true) => Ok(()),
        Ok(false) => Err(OverwriteFailure::Differs),
        Err(ConvertError::Read(error)) => Err(OverwriteFailure::Partition(error)),
        Err(_) => Err(OverwriteFailure::Stopped),
    }
}

struct Copy<'a, 'h> {
    disk: &'a dyn BlockDevice,
    partition: &'a dyn BlockDevice,
    /// The bytes of data that the disk may contain, and those of them that were not read yet.
    limit: u64,
    left: u64,
    hash: Option<Box<Hash<'h>>>,
}

impl Copy<'_, '_> {
    /// Reads bytes of the disk, and counts and hashes them.
    fn read(&mut self, at: u64, buf: &mut [u8]) -> Result<(), OverwriteFailure> {
        let range = at..at.saturating_add(to_u64(buf.len()));
        if self.disk.known_zeros(range) >= to_u64(buf.len()) {
            buf.fill(0);
        } else {
            self.disk.read_at(at, buf).map_err(OverwriteFailure::Read)?;
        }
        let data: usize = buf.chunks(BLOCK).filter(|block| !is_zero(block)).map(<[u8]>::len).sum();
        let left = self.left.checked_sub(to_u64(data));
        self.left = left.ok_or(UnpackError::Bytes { limit: self.limit })?;
        if let Some(hash) = &mut self.hash {
            hash(buf);
        }
        Ok(())
    }

    /// Copies the bytes from `at` on through `buf`.
    fn part(&mut self, at: u64, buf: &mut [u8]) -> Result<(), OverwriteFailure> {
        self.read(at, buf)?;
        match is_zero(buf) {
            true => self.zero(at..at.saturating_add(to_u64(buf.len()))),
            false => self.write(at, buf),
        }
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), OverwriteFailure> {
        self.partition.write_at(at, bytes).map_err(OverwriteFailure::Partition)
    }

    fn flush(&self) -> Result<(), OverwriteFailure> {
        self.partition.flush().map_err(OverwriteFailure::Partition)
    }

    /// Makes a range zero without writing it, and returns whether this succeeded.
    fn punch(&self, range: &Range<u64>) -> Result<bool, OverwriteFailure> {
        let is_zero = self.partition.known_zeros(range.clone()) >= range.end - range.start;
        Ok(is_zero || self.partition.punch(range.clone()).map_err(OverwriteFailure::Partition)?)
    }

    /// Makes a range zero.
    fn zero(&self, range: Range<u64>) -> Result<(), OverwriteFailure> {
        if range.is_empty() || self.punch(&range)? {
            return Ok(());
        }
        let zeros = vec![0; to_usize(CHUNK.min(range.end - range.start))];
        for at in range.clone().step_by(to_usize(CHUNK)) {
            self.write(at, &zeros[..to_usize(CHUNK.min(range.end - at))])?;
        }
        Ok(())
    }

    /// Frees the end of the partition. Its last bytes can contain the signature of an earlier file system.
    fn free(&self, range: Range<u64>) -> Result<(), OverwriteFailure> {
        if range.is_empty() || self.punch(&range)? {
            return Ok(());
        }
        self.zero(range.end.saturating_sub(HEAD).max(range.start)..range.end)
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(BLOCK).all(|block| block.iter().fold(0, |all, byte| all | byte) == 0)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use obento_base::Result;
    use obento_block::MemDevice;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// A disk that cannot be written after some writes, and that records the writes and flushes.
    struct Failing {
        below: MemDevice,
        left: Mutex<usize>,
        calls: Mutex<Vec<&'static str>>,
    }

    impl Failing {
        fn after(writes: usize) -> Arc<Self> {
            let below = MemDevice::new(vec![0xaa; to_usize(8 * MIB)]);
            Arc::new(Self { below, left: Mutex::new(writes), calls: Mutex::default() })
        }

        /// Records a call. Several writes of one kind in a row are recorded once.
        fn record(&self, call: &'static str) {
            let mut calls = self.calls.lock().unwrap();
            if call == "flush" || calls.last() != Some(&call) {
                calls.push(call);
            }
        }
    }

    impl BlockDevice for Failing {
        fn len(&self) -> u64 {
            self.below.len()
        }
        fn is_read_only(&self) -> bool {
            false
        }
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
            self.below.read_at(offset, buf)
        }
        fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
            let mut left = self.left.lock().unwrap();
            *left =
                left.checked_sub(1).ok_or(DeviceError::Write { offset, len: to_u64(buf.len()), errno: 5 })?;
            self.record(match (offset < MIB, is_zero(buf)) {
                (true, true) => "zeros at the start",
                (true, false) => "start",
                (false, _) => "data",
            });
            self.below.write_at(offset, buf)
        }
        fn flush(&self) -> Result<()> {
            self.record("flush");
            self.below.flush()
        }
    }

    fn disk() -> Vec<u8> {
        let mut disk: Vec<u8> = (0..4 * MIB + 700).map(|at| (at % 251) as u8).collect();
        disk[2 * MIB as usize..3 * MIB as usize].fill(0);
        disk
    }

    fn device(bytes: Vec<u8>) -> Arc<dyn BlockDevice> {
        Arc::new(MemDevice::new(bytes))
    }

    fn bytes_of(device: &dyn BlockDevice) -> Vec<u8> {
        let mut bytes = vec![0; to_usize(device.len())];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    }

    fn go_on(_: ConvertStep, _: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    #[test]
    fn a_partition_gets_the_bytes_of_the_disk_and_its_last_mib_becomes_zeros() {
        let (source, mut hashed) = (disk(), Vec::<u8>::new());
        let partition = device(vec![0xaa; to_usize(8 * MIB)]);
        let hash = Box::new(|bytes: &[u8]| hashed.extend(bytes));
        let options = OverwriteOptions { verify: true, limit: None, hash: Some(hash) };
        overwrite(&device(source.clone()), &partition, options, &mut go_on).unwrap();
        assert!(hashed == source);
        let bytes = bytes_of(&*partition);
        assert!(bytes[..source.len()] == source);
        assert!(bytes[to_usize(7 * MIB)..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn after_each_failed_write_the_partition_starts_with_zeros() {
        for writes in 1..7 {
            let failing = Failing::after(writes);
            let partition: Arc<dyn BlockDevice> = failing.clone();
            let failure = overwrite(&device(disk()), &partition, OverwriteOptions::default(), &mut go_on);
            assert!(matches!(failure, Err((OverwriteFailure::Partition(_), _))), "{writes}: {failure:?}");
            let bytes = bytes_of(&failing.below);
            assert!(bytes[..to_usize(MIB)].iter().all(|&byte| byte == 0), "{writes}");
        }
    }

    #[test]
    fn the_start_is_zeroed_and_flushed_first_and_written_after_the_data_is_flushed() {
        let failing = Failing::after(usize::MAX);
        let partition: Arc<dyn BlockDevice> = failing.clone();
        overwrite(&device(disk()), &partition, OverwriteOptions::default(), &mut go_on).unwrap();
        let calls = failing.calls.lock().unwrap();
        assert_eq!(*calls, ["zeros at the start", "flush", "data", "flush", "start", "flush"]);
    }

    #[test]
    fn a_failure_reports_whether_the_partition_was_changed_and_starts_with_zeros() {
        let state = |writes, limit, step: Option<ConvertStep>| {
            let options = OverwriteOptions { limit, verify: true, hash: None };
            let partition: Arc<dyn BlockDevice> = Failing::after(writes);
            let mut watch = |now, _| match step == Some(now) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            };
            overwrite(&device(disk()), &partition, options, &mut watch).unwrap_err().1
        };
        assert_eq!(state(9, Some(MIB / 2), None), PartitionState::Unchanged);
        assert_eq!(state(0, None, None), PartitionState::Incomplete);
        assert_eq!(state(1, None, None), PartitionState::StartsWithZeros);
        assert_eq!(state(9, Some(2 * MIB), None), PartitionState::StartsWithZeros);
        assert_eq!(state(9, None, Some(ConvertStep::Write)), PartitionState::StartsWithZeros);
        // The last write is that of the start.
        assert_eq!(state(6, None, None), PartitionState::Incomplete);
        assert_eq!(state(9, None, Some(ConvertStep::Verify)), PartitionState::Written);
    }

    #[test]
    fn nothing_is_written_to_a_partition_that_is_too_small_and_a_limit_ends_the_copy() {
        let partition = device(vec![0xaa; to_usize(4 * MIB)]);
        let failure = overwrite(&device(disk()), &partition, OverwriteOptions::default(), &mut go_on);
        assert!(
            matches!(failure, Err((OverwriteFailure::TooSmall { .. }, PartitionState::Unchanged))),
            "{failure:?}"
        );
        assert!(bytes_of(&*partition).iter().all(|&byte| byte == 0xaa));
        let partition = device(vec![0xaa; to_usize(5 * MIB)]);
        let options = OverwriteOptions { limit: Some(2 * MIB), ..OverwriteOptions::default() };
        let failure = overwrite(&device(disk()), &partition, options, &mut go_on);
        assert!(
            matches!(failure, Err((OverwriteFailure::Unpack(UnpackError::Bytes { .. }), _))),
            "{failure:?}"
        );
    }
}
