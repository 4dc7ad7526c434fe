//! Erasing the signatures of previous contents before a volume is created.
//!
//! Source: util-linux `libblkid/src/superblocks`, `libblkid/src/partitions`.

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, Result};
use obento_block::BlockDevice;

use crate::Contents;

/// The length of the range with signatures at the start of a device. The last one is the signature of the second header
/// of LUKS2, which can be at 4 MiB.
const HEAD: u64 = (4 << 20) + (64 << 10);
/// The length of the range with signatures at the end of a device: of the backup of a GPT, of members of RAID arrays,
/// of the last two labels of ZFS, and of the second super block of NILFS2. The signature of a Promise array is up to
/// 3920 sectors from the end.
const TAIL: u64 = 2 << 20;
/// The number of bytes that are read at once.
const CHUNK: usize = 64 << 10;
/// The granularity at which bytes are overwritten.
const PAGE: usize = 4096;
static ZEROS: [u8; CHUNK] = [0; CHUNK];

/// Overwrites the signatures of file systems, partition tables, RAID members and encrypted devices. `len` is the length
/// of the new volume in bytes. Afterwards, the first 4,160 KiB and the last 2 MiB of the first `len` bytes of `device`
/// read as zeros. All other bytes of the device do not change.
///
/// `contents` selects the method:
///
/// - [`Contents::Zeros`]: does nothing, and does not flush the device.
/// - [`Contents::Unknown`]: punches both ranges, if the device supports this. Then flushes the device.
/// - [`Contents::Preserved`], or a device that cannot be punched: writes zeros only to pages that contain other bytes.
///   A hole of a sparse file therefore stays a hole. Skips a page that can be neither read nor written. Then flushes
///   the device.
///
/// # Errors
///
/// - `Device`: the device failed.
/// - `NoMemory`: memory is exhausted.
pub fn erase_signatures(device: &dyn BlockDevice, len: u64, contents: Contents) -> Result<()> {
    if contents == Contents::Zeros {
        return Ok(());
    }
    let len = len.min(device.len());
    let head = HEAD.min(len);
    let tail = len.saturating_sub(TAIL).max(head)..len;
    let mut buffer = Vec::new();
    for range in [0..head, tail].into_iter().filter(|range| !range.is_empty()) {
        if contents == Contents::Preserved || !device.punch(range.clone())? {
            buffer.try_reserve_exact(CHUNK)?;
            buffer.resize(CHUNK, 0);
            overwrite(device, range, &mut buffer)?;
        }
    }
    device.flush()
}

/// Writes zeros to the pages of `range` that contain other bytes.
fn overwrite(device: &dyn BlockDevice, range: Range<u64>, buffer: &mut [u8]) -> Result<()> {
    let mut at = range.start;
    while at < range.end {
        let left = range.end.saturating_sub(at);
        let zeros = device.known_zeros(at..range.end).min(left);
        // Writes stay aligned to pages.
        let zeros = if zeros == left { left } else { zeros & !to_u64(PAGE.wrapping_sub(1)) };
        at = at.saturating_add(zeros);
        let len = to_usize(range.end.saturating_sub(at)).min(buffer.len());
        let bytes = buffer.get_mut(..len).unwrap_or_default();
        if len > 0 {
            overwrite_chunk(device, at, bytes)?;
        }
        at = at.saturating_add(to_u64(len));
    }
    Ok(())
}

fn overwrite_chunk(device: &dyn BlockDevice, start: u64, bytes: &mut [u8]) -> Result<()> {
    if device.read_at(start, bytes).is_ok() {
        return overwrite_pages(device, start, bytes);
    }
    for (number, page) in (0_u64..).zip(bytes.chunks_mut(PAGE)) {
        let at = start.saturating_add(number.saturating_mul(to_u64(PAGE)));
        let zeros = ZEROS.get(..page.len()).unwrap_or_default();
        if device.read_at(at, page).is_err() {
            skip_unreadable(device.write_at(at, zeros))?;
        } else if page != zeros {
            device.write_at(at, zeros)?;
        }
    }
    Ok(())
}

/// Writes zeros to the pages of a chunk with these bytes that are not zero, adjacent pages at once.
fn overwrite_pages(device: &dyn BlockDevice, start: u64, bytes: &[u8]) -> Result<()> {
    let is_zero = |page: &[u8]| ZEROS.get(..page.len()) == Some(page);
    let mut at = start;
    for run in bytes.chunks(PAGE).collect::<Vec<_>>().chunk_by(|one, next| is_zero(one) == is_zero(next)) {
        let len: usize = run.iter().map(|page| page.len()).sum();
        if run.first().is_some_and(|page| !is_zero(page)) {
            device.write_at(at, ZEROS.get(..len).unwrap_or_default())?;
        }
        at = at.saturating_add(to_u64(len));
    }
    Ok(())
}

/// Ignores the error of writing a page that cannot be read either, because its bytes are no signature.
fn skip_unreadable(written: Result<()>) -> Result<()> {
    match written {
        Err(Error::Device(_)) => Ok(()),
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use obento_base::DeviceError;

    use super::*;

    /// A device of bytes that counts writes, and that can neither read nor write one page.
    struct Bytes {
        bytes: std::sync::Mutex<Vec<u8>>,
        bad: Option<u64>,
        written: std::sync::Mutex<Vec<Range<u64>>>,
    }

    impl Bytes {
        fn filled(len: usize, byte: u8) -> Self {
            Self { bytes: vec![byte; len].into(), bad: None, written: Vec::new().into() }
        }

        fn is_bad(&self, offset: u64, len: usize) -> bool {
            self.bad.is_some_and(|bad| bad < offset + len as u64 && offset < bad + PAGE as u64)
        }
    }

    impl BlockDevice for Bytes {
        fn len(&self) -> u64 {
            self.bytes.lock().unwrap().len() as u64
        }

        fn is_read_only(&self) -> bool {
            false
        }

        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
            if self.is_bad(offset, buf.len()) {
                return Err(DeviceError::Read { offset, len: buf.len() as u64, errno: 5 }.into());
            }
            buf.copy_from_slice(&self.bytes.lock().unwrap()[offset as usize..][..buf.len()]);
            Ok(())
        }

        fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
            if self.is_bad(offset, buf.len()) {
                return Err(DeviceError::Write { offset, len: buf.len() as u64, errno: 5 }.into());
            }
            self.bytes.lock().unwrap()[offset as usize..][..buf.len()].copy_from_slice(buf);
            self.written.lock().unwrap().push(offset..offset + buf.len() as u64);
            Ok(())
        }

        fn flush(&self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn both_ends_become_zeros_and_the_middle_is_not_changed() {
        let len = 7 << 20 | 512;
        let device = Bytes::filled(len, 1);
        erase_signatures(&device, device.len(), Contents::Preserved).unwrap();
        let bytes = device.bytes.lock().unwrap();
        let (head, tail) = (HEAD as usize, len - TAIL as usize);
        assert!(bytes.iter().enumerate().all(|(at, &byte)| byte == u8::from((head..tail).contains(&at))));
    }

    #[test]
    fn a_device_smaller_than_both_ranges_is_erased_once() {
        for len in [512, 4096, 4 << 20, (4 << 20) + 512] {
            let device = Bytes::filled(len, 1);
            erase_signatures(&device, device.len(), Contents::Unknown).unwrap();
            assert!(device.bytes.lock().unwrap().iter().all(|&byte| byte == 0));
            let written: u64 =
                device.written.lock().unwrap().iter().map(|range| range.end - range.start).sum();
            assert_eq!(written, len as u64);
        }
    }

    #[test]
    fn only_pages_with_other_bytes_than_zeros_are_written() {
        let device = Bytes::filled(8 << 20, 0);
        for at in [65_600, (8 << 20) - 512] {
            device.bytes.lock().unwrap()[at] = 1;
        }
        erase_signatures(&device, device.len(), Contents::Zeros).unwrap();
        assert!(device.written.lock().unwrap().is_empty());
        erase_signatures(&device, device.len(), Contents::Preserved).unwrap();
        assert_eq!(*device.written.lock().unwrap(), [65_536..69_632, (8 << 20) - 4096..8 << 20]);
    }

    #[test]
    fn a_page_that_can_be_neither_read_nor_written_is_skipped() {
        let device = Bytes { bad: Some(8192), ..Bytes::filled(1 << 20, 1) };
        erase_signatures(&device, device.len(), Contents::Preserved).unwrap();
        let left = device.bytes.lock().unwrap().iter().filter(|&&byte| byte == 1).count();
        assert_eq!(left, PAGE);
    }
}
