//! The disk of a volume that is only read: writes of the kernel are stored in memory, up to a limit.
//!
//! Before it shows a volume, a kernel replays the volume's log. It writes nothing else. A compromised kernel writes
//! arbitrary data, and must not exhaust the memory of the host.
//!
//! For a volume that is longer than its truncated image, the disk has the length of the volume. A kernel shortens a
//! request that crosses the end of its disk, and returns zeros for the rest (Linux 6.1, block/bio.c `guard_bio_eod`). A
//! read past the end of the image fails.

use std::ops::Range;
use std::sync::Arc;

use obento_base::wire::to_u64;
use obento_base::{DeviceError, Result};
use obento_block::{Backing, BlockDevice, Overlay};

/// The most bytes that are stored: the longest log that Linux creates by default is that of XFS. Source:
/// Linux 6.1, fs/xfs/libxfs/xfs_fs.h `XFS_MAX_LOG_BYTES`.
const KEPT_MAX: u64 = 2 << 30;

/// The longest volume. A larger length in a super block is damage.
const LEN_MAX: u64 = 1 << 56;
/// The page that contains the end of a volume may be read as a whole.
const PAGE: u64 = 4096;

/// `ENOSPC` of Linux.
const NO_SPACE: i32 = 28;

/// A device that stores writes in memory.
pub struct Scratch {
    overlay: Overlay<Arc<dyn BlockDevice>>,
    kept_max: u64,
    len: u64,
}

impl Scratch {
    /// Creates the disk over `below`, which is only read and contains the start of a volume of `len` bytes.
    pub fn new(below: Arc<dyn BlockDevice>, len: u64) -> Self {
        let is_cut = len > below.len() && len <= LEN_MAX;
        let len = if is_cut { len.next_multiple_of(PAGE) } else { below.len() };
        Self { len, overlay: Overlay::new(below), kept_max: KEPT_MAX }
    }
}

impl BlockDevice for Scratch {
    fn len(&self) -> u64 {
        self.len
    }

    fn sector_size(&self) -> u32 {
        self.overlay.sector_size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.overlay.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        let len = to_u64(buf.len());
        if self.overlay.changed_len().saturating_add(len) > self.kept_max {
            return Err(DeviceError::Write { offset, len, errno: NO_SPACE }.into());
        }
        self.overlay.write_at(offset, buf)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn backing(&self, range: Range<u64>) -> Option<Backing> {
        // A range past the end of the image has no backing.
        self.overlay.backing(range.start..range.end.min(self.overlay.len()))
    }
}

#[cfg(test)]
mod tests {
    use obento_base::Error;
    use obento_block::MemDevice;

    use super::*;

    #[test]
    fn writes_are_stored_up_to_the_limit_and_then_refused() {
        let below = Arc::new(MemDevice::read_only(vec![0x55; 1 << 20]));
        let scratch = Scratch { kept_max: 64 << 10, ..Scratch::new(below.clone(), 0) };
        for at in (0..64 << 10).step_by(4096) {
            scratch.write_at(at, &[7; 4096]).unwrap();
        }
        let refused = scratch.write_at(512 << 10, &[7; 4096]);
        let is_reported = matches!(refused, Err(Error::Device(DeviceError::Write { errno: NO_SPACE, .. })));
        assert!(is_reported, "{refused:?}");
        let mut seen = vec![0; 1 << 20];
        scratch.read_at(0, &mut seen).unwrap();
        assert!(seen[..64 << 10].iter().all(|byte| *byte == 7), "stored data stays");
        assert!(seen[64 << 10..].iter().all(|byte| *byte == 0x55));
        assert!(below.snapshot().iter().all(|byte| *byte == 0x55));
    }

    #[test]
    fn a_truncated_volume_keeps_its_length_and_reads_of_missing_bytes_fail() {
        let below = Arc::new(MemDevice::read_only(vec![0x55; 4096]));
        let scratch = Scratch::new(below.clone(), 9000);
        assert_eq!(scratch.len(), 12288);
        let mut seen = [0; 512];
        scratch.read_at(4096 - 512, &mut seen).unwrap();
        assert_eq!(seen, [0x55; 512]);
        for at in [4096 - 256, 4096, 8704, u64::MAX] {
            let out = DeviceError::OutOfBounds { offset: at, len: 512, device_len: 4096 };
            assert_eq!(scratch.read_at(at, &mut seen), Err(out.into()));
            assert_eq!(scratch.write_at(at, &seen), Err(out.into()));
        }
        assert_eq!([0, 4000, u64::MAX].map(|len| Scratch::new(below.clone(), len).len()), [4096; 3]);
    }
}
