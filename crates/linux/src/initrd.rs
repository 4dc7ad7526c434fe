//! The file system that the guest starts from: an archive in memory.
//!
//! Source: Documentation/driver-api/early-userspace/buffer-format.rst of Linux, the format `newc`.

/// An archive that grows.
#[derive(Default)]
pub struct Initrd {
    bytes: Vec<u8>,
    inodes: u32,
}

/// `S_IFREG` and `S_IFDIR` with permissions for everybody.
const FILE: u32 = 0o100_755;
const FOLDER: u32 = 0o040_755;
/// `S_IFCHR`.
const CONSOLE: u32 = 0o020_600;

impl Initrd {
    /// Holds `/dev/console`, which the kernel opens for `init`.
    pub fn new() -> Self {
        let mut archive = Self::default();
        archive.folder("dev");
        archive.member("dev/console", CONSOLE, (5, 1), &[]);
        archive
    }

    /// Adds a folder.
    pub fn folder(&mut self, name: &str) {
        self.member(name, FOLDER, (0, 0), &[]);
    }

    /// Adds a file.
    pub fn file(&mut self, name: &str, bytes: &[u8]) {
        self.member(name, FILE, (0, 0), bytes);
    }

    /// All of it.
    pub fn finish(mut self) -> Vec<u8> {
        self.member("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn member(&mut self, name: &str, mode: u32, device: (u32, u32), bytes: &[u8]) {
        self.inodes += 1;
        let len = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        // ino, mode, uid, gid, nlink, mtime, size, device, rdev, length of the name with its NUL, checksum.
        let fields = [
            self.inodes,
            mode,
            0,
            0,
            1,
            0,
            len(bytes.len()),
            0,
            0,
            device.0,
            device.1,
            len(name.len() + 1),
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        fields.iter().for_each(|field| self.bytes.extend_from_slice(format!("{field:08x}").as_bytes()));
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(bytes);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_start_at_multiples_of_four_and_say_how_long_they_are() {
        let mut archive = Initrd::default();
        archive.file("ab", b"12345");
        let bytes = archive.finish();
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(&bytes[6 + 6 * 8..6 + 7 * 8], b"00000005");
        assert_eq!(&bytes[110..113], b"ab\0");
        assert_eq!(&bytes[116..121], b"12345");
        assert_eq!(&bytes[124..130], b"070701");
        assert_eq!(bytes.len() % 4, 0);
    }
}
