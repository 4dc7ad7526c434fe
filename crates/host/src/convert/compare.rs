//! Compares a disk with the image that was written from it.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Seek as _};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use obento_base::wire::{to_u64, to_usize};
use obento_block::BlockDevice;

use super::claim::{Claims, ZeroParts};
use super::{CHUNK, ConvertError, Watch};
use crate::HostError;
use crate::compressed::{Stream, UnpackLimits};

/// Returns whether two disks have the same length and bytes; `longer` may have more bytes, if they are zeros.
///
/// # Errors
///
/// `Read` if a disk cannot be read; `Stopped`.
pub fn compare(
    disk: &Arc<dyn BlockDevice>,
    longer: &Arc<dyn BlockDevice>,
    watch: &mut Watch<'_>,
) -> Result<bool, ConvertError> {
    let claims = Claims::new(longer, CHUNK, ZeroParts::Whole);
    let (mut one, mut other) = (vec![0; to_usize(CHUNK)], vec![0; to_usize(CHUNK)]);
    if longer.len() < disk.len() {
        return Ok(false);
    }
    while let Some(part) = claims.next() {
        let mut at = part.start;
        while at < part.start + part.len {
            let len = to_usize(CHUNK.min(part.start + part.len - at));
            let (one, other) = (&mut one[..len], &mut other[..len]);
            let there = to_usize(disk.len().saturating_sub(at)).min(len);
            one[there..].fill(0);
            let range = at..at + to_u64(there);
            let is_known = part.is_zero && disk.known_zeros(range) >= to_u64(there);
            if !is_known {
                disk.read_at(at, &mut one[..there]).map_err(ConvertError::Read)?;
                longer.read_at(at, other).map_err(ConvertError::Read)?;
                if one != other {
                    return Ok(false);
                }
            }
            at += to_u64(len);
        }
        if watch(at).is_break() {
            return Err(ConvertError::Stopped);
        }
    }
    Ok(true)
}

/// Returns whether the compressed `file` unpacks to the bytes of `disk`. The bytes are compared while they are
/// unpacked, since they may take more space than there is. `path` appears in messages.
///
/// # Errors
///
/// - `Read` if the disk cannot be read.
/// - `Write` if the file cannot be unpacked.
/// - `Stopped`.
pub fn compare_packed(
    disk: &Arc<dyn BlockDevice>,
    file: BorrowedFd<'_>,
    path: &Path,
    watch: &mut Watch<'_>,
) -> Result<bool, ConvertError> {
    let failed = |error: &std::io::Error| ConvertError::Write(HostError::io("read", path, error));
    // One more byte shows that the stream is too long.
    let limits = UnpackLimits { bytes: Some(disk.len().saturating_add(1)), ..UnpackLimits::default() };
    let mut file = File::from(file.try_clone_to_owned().map_err(|error| failed(&error))?);
    file.rewind().map_err(|error| failed(&error))?;
    let mut stream = Stream::new(file, limits).map_err(|error| failed(&error))?;
    let (mut one, mut other) = (vec![0; to_usize(CHUNK)], vec![0; to_usize(CHUNK)]);
    let mut at = 0;
    while at < disk.len() {
        let len = to_usize(CHUNK.min(disk.len() - at));
        let (one, other) = (&mut one[..len], &mut other[..len]);
        match stream.read_exact(other) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
            done => done.map_err(|error| failed(&error))?,
        }
        disk.read_at(at, one).map_err(ConvertError::Read)?;
        if one != other {
            return Ok(false);
        }
        at += to_u64(len);
        if watch(at).is_break() {
            return Err(ConvertError::Stopped);
        }
    }
    let more = stream.read(&mut other[..1]).map_err(|error| failed(&error))?;
    Ok(more == 0)
}
