//! The limit of the data that a command copies from a volume.
//!
//! A file of a hostile image may map the same blocks many times, so that an image of a few MiB has files that fill any
//! disk. Volumes with reflinks or compression contain more data than bytes, too, but far less.

use obento::Volume;
use obento::host::{HostFile, UnpackError, UnpackLimits};

/// A limit of bytes of data, without holes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataLimit(u64);

impl DataLimit {
    /// Returns the limit for `volume`: that of unpacking an image with the length of the volume.
    pub fn of(volume: &Volume, limits: UnpackLimits) -> Self {
        Self(limits.bytes_for(stored(volume)))
    }

    /// Returns the number of bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }

    /// Checks that `bytes` may be copied. Fails with the words for the user.
    pub fn check(self, bytes: u64) -> Result<(), UnpackError> {
        if bytes <= self.0 { Ok(()) } else { Err(UnpackError::Bytes { limit: self.0 }) }
    }
}

/// Returns how many bytes the volume has on the host. Those of holes of a file do not count. A server reports the number.
fn stored(volume: &Volume) -> u64 {
    let file_system = volume.flushed_file_system();
    let Some(device) = file_system.device() else {
        let used = file_system.statfs();
        return used.map_or(0, |used| used.blocks.saturating_mul(used.block_size.into()));
    };
    let backing = device.backing(0..device.len());
    let stat = backing.as_ref().and_then(HostFile::of).and_then(|file| rustix::fs::fstat(file).ok());
    // A block device has no blocks of its own.
    let blocks = stat.and_then(|stat| u64::try_from(stat.st_blocks).ok()).filter(|&blocks| blocks > 0);
    blocks.map_or(device.len(), |blocks| device.len().min(blocks.saturating_mul(512)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_grows_with_the_size_of_the_volume_and_an_option_replaces_it() {
        let volume = Volume::in_memory();
        let default = DataLimit::of(&volume, UnpackLimits::default());
        assert!(default.bytes() >= 1 << 30);
        let given = DataLimit::of(&volume, UnpackLimits { bytes: Some(5), ..UnpackLimits::default() });
        assert_eq!((given.check(5), given.check(6)), (Ok(()), Err(UnpackError::Bytes { limit: 5 })));
    }
}
