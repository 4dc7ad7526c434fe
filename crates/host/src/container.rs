//! Disk image formats of other hypervisors: VHD, VHDX, VMDK, VDI and Android sparse images.
//!
//! `obento-containers` decodes them. This module adds decompression and errors that name the file.

use std::path::Path;
use std::sync::Arc;

use flate2::{Decompress, FlushDecompress, Status};
use obento_block::BlockDevice;
pub use obento_containers::{Format, SECTOR, detect, detect_on};
use obento_containers::{OpenFailure, has_wrong_checksum as find_wrong_checksum, open as open_format};

use crate::HostError;

/// Opens the disk of `format` in `file`. `path` appears in messages. The disk is read-only, unless the format
/// stores it without a mapping, as a fixed VHD does.
///
/// # Errors
///
/// Damaged; Unsupported; Stream if a read fails.
pub fn open(
    format: Format,
    file: Arc<dyn BlockDevice>,
    path: &Path,
) -> Result<Arc<dyn BlockDevice>, HostError> {
    open_format(format, file, inflate).map_err(|failure| open_error(failure, path))
}

/// Returns whether `file` contains a checksum of the whole disk of `format` that is wrong. If `file` cannot be read, a later
/// read of the disk reports why.
pub fn has_wrong_checksum(format: Format, file: &dyn BlockDevice) -> bool {
    find_wrong_checksum(format, file).unwrap_or(false)
}

/// Returns the error of the image at `path`.
pub(crate) fn open_error(failure: OpenFailure, path: &Path) -> HostError {
    let path = path.to_owned();
    match failure {
        OpenFailure::Damaged { format, structure, reason } => {
            HostError::Damaged { path, format, reason: format!("{structure}: {reason}") }
        }
        OpenFailure::Unsupported { format, feature } => {
            HostError::Unsupported { path, format, feature: feature.to_owned() }
        }
        OpenFailure::WrongCounts { format } => HostError::WrongCounts { path, format },
        OpenFailure::Device(error) => {
            HostError::Stream { operation: "read", path, reason: error.to_string() }
        }
    }
}

/// Decompresses a zlib stream into `buf` and returns the length of the data, or `None` if the stream is
/// damaged, incomplete, or longer than `buf`.
fn inflate(stream: &[u8], buf: &mut [u8]) -> Option<usize> {
    let mut decoder = Decompress::new(true);
    let status = decoder.decompress(stream, buf, FlushDecompress::Finish).ok()?;
    (status == Status::StreamEnd).then(|| usize::try_from(decoder.total_out()).ok()).flatten()
}
