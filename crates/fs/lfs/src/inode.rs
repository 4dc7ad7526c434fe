//! Inodes (`lfs32_dinode`, `lfs64_dinode`), which are those of UFS1 and UFS2 with their own number.

use obento_base::{DeviceNumber, FileFlags, FileKind, Timestamp};

use crate::raw::Encoding;

/// Number of direct addresses.
pub const DIRECT: usize = 12;

/// An inode.
#[derive(Clone, Debug)]
pub struct Inode {
    pub mode: u16,
    pub links: u16,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub btime: Option<Timestamp>,
    pub flags: u32,
    /// Units that the file takes.
    pub blocks: u64,
    pub generation: u32,
    /// Addresses of blocks, then those of indirect blocks of one, two and three levels.
    pub addresses: [i64; DIRECT + 3],
    /// The bytes of these addresses: the target of a short link, or a device number.
    pub area: [u8; (DIRECT + 3) * 8],
    /// The first block for which the addresses do not count, since the file was cut after the checkpoint.
    pub cut: u64,
    /// Position on the volume in bytes.
    pub at: u64,
}

fn time(secs: i64, nanos: u32) -> Timestamp {
    Timestamp::new(secs, if nanos < 1_000_000_000 { nanos } else { 0 })
}

impl Inode {
    /// Returns the number in the bytes of an inode.
    pub fn number_in(encoding: Encoding, bytes: &[u8]) -> u64 {
        if encoding.is_64 { encoding.u64(bytes, 240) } else { encoding.u32(bytes, 4).into() }
    }

    /// Decodes the inode at byte `at` of the volume.
    pub fn decode(encoding: Encoding, bytes: &[u8], at: u64) -> Self {
        let is_64 = encoding.is_64;
        let stamp = |narrow: usize, wide: usize, nanos: usize| {
            if is_64 {
                time(encoding.u64(bytes, wide).cast_signed(), encoding.u32(bytes, nanos))
            } else {
                time(encoding.i32(bytes, narrow).into(), encoding.u32(bytes, narrow.saturating_add(4)))
            }
        };
        let word = |narrow, wide| encoding.u32(bytes, if is_64 { wide } else { narrow });
        let base: usize = if is_64 { 112 } else { 40 };
        let mut addresses = [0; DIRECT + 3];
        for (index, address) in addresses.iter_mut().enumerate() {
            let place = base.saturating_add(index.saturating_mul(encoding.word_len()));
            *address = encoding.address(bytes, place);
        }
        let mut area = [0; (DIRECT + 3) * 8];
        let stored = bytes.get(base..).unwrap_or_default();
        let len = encoding.word_len().saturating_mul(DIRECT + 3);
        for (to, from) in area.iter_mut().zip(stored.iter().take(len)) {
            *to = *from;
        }
        Self {
            mode: encoding.u16(bytes, 0),
            links: encoding.u16(bytes, 2),
            uid: word(112, 4),
            gid: word(116, 8),
            size: encoding.u64(bytes, if is_64 { 16 } else { 8 }),
            atime: stamp(16, 32, 68),
            mtime: stamp(24, 40, 64),
            ctime: stamp(32, 48, 72),
            btime: is_64.then(|| stamp(0, 56, 76)),
            flags: word(100, 88),
            blocks: if is_64 { encoding.u64(bytes, 24) } else { encoding.u32(bytes, 104).into() },
            generation: word(108, 80),
            addresses,
            area,
            cut: u64::MAX,
            at,
        }
    }

    /// Returns the type.
    pub fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(self.mode)
    }

    /// Returns the device number (NetBSD `sys/types.h`).
    pub fn device(&self, encoding: Encoding) -> DeviceNumber {
        let number = if encoding.is_64 {
            u32::try_from(encoding.u64(&self.area, 0) & 0xffff_ffff).unwrap_or(0)
        } else {
            encoding.u32(&self.area, 0)
        };
        DeviceNumber {
            major: (number & 0x000f_ff00) >> 8,
            minor: ((number & 0xfff0_0000) >> 12) | (number & 0xff),
        }
    }

    /// Returns the flags that Linux has, too (NetBSD `sys/stat.h`).
    pub fn file_flags(&self) -> FileFlags {
        let mut flags = FileFlags::empty();
        for (mask, flag) in
            [(0x1, FileFlags::NO_DUMP), (0x0002_0002, FileFlags::IMMUTABLE), (0x0004_0004, FileFlags::APPEND)]
        {
            if self.flags & mask != 0 {
                flags |= flag;
            }
        }
        flags
    }
}
