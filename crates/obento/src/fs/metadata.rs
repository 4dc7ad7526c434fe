//! What is known of a file.

use std::time::{Duration, SystemTime};

use obento_base::{Attr, DeviceNumber, FileKind, Ino, Mode, Timestamp};

/// What is known of a file: [`Attr`] under the names that `std::fs::Metadata` has.
///
/// ```
/// use obento::{FileKind, Volume};
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
    /// All of it, as the drivers have it: flags, change counter, project.
    pub fn attr(&self) -> &Attr {
        &self.0
    }

    /// What kind of file it is.
    pub fn file_type(&self) -> FileKind {
        self.0.kind
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.0.kind == FileKind::Regular
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.0.is_dir()
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.0.kind == FileKind::Symlink
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.size == 0
    }

    /// Permission bits.
    pub fn permissions(&self) -> Mode {
        self.0.mode
    }

    /// Kind and permission bits as in a POSIX `st_mode`.
    pub fn mode(&self) -> u32 {
        self.0.st_mode().into()
    }

    /// Inode number.
    pub fn ino(&self) -> Ino {
        self.0.ino
    }

    /// How many names it has.
    pub fn nlink(&self) -> u32 {
        self.0.nlink
    }

    /// Owner.
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// Group.
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    /// The number of a device node.
    pub fn rdev(&self) -> DeviceNumber {
        self.0.rdev
    }

    /// Space that it takes, in units of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.0.blocks
    }

    /// Last change of the data.
    pub fn modified(&self) -> SystemTime {
        system_time(self.0.mtime)
    }

    /// Last access.
    pub fn accessed(&self) -> SystemTime {
        system_time(self.0.atime)
    }

    /// Last change of data or attributes.
    pub fn changed(&self) -> SystemTime {
        system_time(self.0.ctime)
    }

    /// Creation, if the format keeps it.
    pub fn created(&self) -> Option<SystemTime> {
        self.0.btime.map(system_time)
    }
}

/// The same moment; one that the host cannot count to is the host's first or last.
fn system_time(time: Timestamp) -> SystemTime {
    let whole = Duration::from_secs(time.secs().unsigned_abs());
    let moment = match time.secs() {
        0.. => SystemTime::UNIX_EPOCH.checked_add(whole),
        _ => SystemTime::UNIX_EPOCH.checked_sub(whole),
    };
    let moment = moment.and_then(|moment| moment.checked_add(Duration::from_nanos(time.nanos().into())));
    moment.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The same moment as the drivers count.
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
}
