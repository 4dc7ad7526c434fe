//! The attributes of a file.

use std::time::{Duration, SystemTime};

use obento_base::{Attr, DeviceNumber, FileKind, Ino, Mode, Timestamp};

/// The attributes of a file: [`Attr`] with the function names of `std::fs::Metadata`.
///
/// ```
/// use obento::Volume;
/// use obento::base::FileKind;
///
/// let volume = Volume::in_memory();
/// volume.write("/hello", "world")?;
/// let metadata = volume.metadata("/hello")?;
/// assert!(metadata.is_file() && metadata.len() == 5);
/// assert_eq!((metadata.permissions().bits(), metadata.uid(), metadata.nlink()), (0o644, 0, 1));
/// assert!(metadata.modified().elapsed().is_ok());
/// assert_eq!(volume.metadata("/")?.file_type(), FileKind::Directory);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metadata(Attr);

impl From<Attr> for Metadata {
    fn from(attr: Attr) -> Self {
        Self(attr)
    }
}

impl Metadata {
    /// Returns all attributes in the form that drivers use. They include flags, change counter and project ID.
    pub fn attr(&self) -> &Attr {
        &self.0
    }

    /// Returns the kind of the file.
    pub fn file_type(&self) -> FileKind {
        self.0.kind
    }

    /// Returns whether the file is a regular file.
    pub fn is_file(&self) -> bool {
        self.0.kind == FileKind::Regular
    }

    /// Returns whether the file is a directory.
    pub fn is_dir(&self) -> bool {
        self.0.is_dir()
    }

    /// Returns whether the file is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.0.kind == FileKind::Symlink
    }

    /// Returns the size in bytes.
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// Returns whether the size is 0.
    pub fn is_empty(&self) -> bool {
        self.0.size == 0
    }

    /// Returns the permission bits.
    pub fn permissions(&self) -> Mode {
        self.0.mode
    }

    /// Returns the kind and the permission bits as in a POSIX `st_mode`.
    pub fn mode(&self) -> u32 {
        self.0.st_mode().into()
    }

    /// Returns the inode number.
    pub fn ino(&self) -> Ino {
        self.0.ino
    }

    /// Returns the link count.
    pub fn nlink(&self) -> u32 {
        self.0.nlink
    }

    /// Returns the user ID of the owner.
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// Returns the group ID.
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    /// Returns the device number of a device node.
    pub fn rdev(&self) -> DeviceNumber {
        self.0.rdev
    }

    /// Returns the allocated space in units of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.0.blocks
    }

    /// Returns the modification time: the time of the last change of the data.
    pub fn modified(&self) -> SystemTime {
        system_time(self.0.mtime)
    }

    /// Returns the access time.
    pub fn accessed(&self) -> SystemTime {
        system_time(self.0.atime)
    }

    /// Returns the change time: the time of the last change of the data or the attributes.
    pub fn changed(&self) -> SystemTime {
        system_time(self.0.ctime)
    }

    /// Returns the birth time, if the format stores it.
    pub fn created(&self) -> Option<SystemTime> {
        self.0.btime.map(system_time)
    }
}

/// Converts a timestamp. A time outside the range of the host becomes the first or the last whole second of this
/// range.
fn system_time(time: Timestamp) -> SystemTime {
    let step = match time.secs() {
        0.. => SystemTime::checked_add,
        _ => SystemTime::checked_sub,
    };
    let moment = step(&SystemTime::UNIX_EPOCH, Duration::from_secs(time.secs().unsigned_abs()));
    let moment = moment.and_then(|moment| moment.checked_add(Duration::from_nanos(time.nanos().into())));
    moment.unwrap_or_else(|| farthest(step))
}

/// Returns the time that is the largest number of whole seconds from 1970 which `step` reaches.
fn farthest(step: impl Fn(&SystemTime, Duration) -> Option<SystemTime>) -> SystemTime {
    let seconds = (0..u64::BITS).rev().map(|bit| Duration::from_secs(1 << bit));
    seconds.fold(SystemTime::UNIX_EPOCH, |moment, seconds| step(&moment, seconds).unwrap_or(moment))
}

/// Converts a time of the host to a timestamp of the drivers.
pub(super) fn timestamp(time: SystemTime) -> Timestamp {
    let signed = |secs: u64| i64::try_from(secs).unwrap_or(i64::MAX);
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => Timestamp::new(signed(since.as_secs()), since.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            let nanos = before.subsec_nanos();
            let borrowed = i64::from(nanos > 0);
            let nanos = if nanos > 0 { 1_000_000_000 - nanos } else { 0 };
            Timestamp::new(-signed(before.as_secs()) - borrowed, nanos)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_the_same_there_and_back_also_before_1970() {
        for (secs, nanos) in [(0, 0), (1, 5), (-1, 0), (-1, 999_999_999), (-7, 1), (1 << 33, 123)] {
            let time = Timestamp::new(secs, nanos);
            assert_eq!(timestamp(system_time(time)), time);
        }
    }

    #[test]
    fn time_outside_of_the_range_of_a_host_becomes_the_nearest_time_of_this_range() {
        let epoch = SystemTime::UNIX_EPOCH;
        let last = epoch + Duration::from_secs(1_000_003);
        assert_eq!(farthest(|time, step| time.checked_add(step).filter(|sum| *sum <= last)), last);
        let first = epoch - Duration::from_secs(77);
        assert_eq!(farthest(|time, step| time.checked_sub(step).filter(|sum| *sum >= first)), first);
        assert_eq!(farthest(SystemTime::checked_add).checked_add(Duration::from_secs(1)), None);
    }
}
