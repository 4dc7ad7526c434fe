//! The encodings of structures on disk: byte order, width of addresses, version.

/// A byte order, which is that of the machine that created the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

/// How a volume stores numbers and structures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Encoding {
    /// Byte order.
    pub order: Order,
    /// Whether inode numbers and addresses have 64 bits (LFS64).
    pub is_64: bool,
    /// Version: 1 or 2.
    pub version: u32,
}

impl Encoding {
    /// Returns the 16-bit number at byte `at`, or 0 past the end.
    pub fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let found = bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
        match self.order {
            Order::Little => u16::from_le_bytes(found),
            Order::Big => u16::from_be_bytes(found),
        }
    }

    /// Returns the 32-bit number at byte `at`, or 0 past the end.
    pub fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let found = bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
        match self.order {
            Order::Little => u32::from_le_bytes(found),
            Order::Big => u32::from_be_bytes(found),
        }
    }

    /// Returns the 64-bit number at byte `at`, or 0 past the end.
    pub fn u64(self, bytes: &[u8], at: usize) -> u64 {
        let found = bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
        match self.order {
            Order::Little => u64::from_le_bytes(found),
            Order::Big => u64::from_be_bytes(found),
        }
    }

    /// Returns the signed 32-bit number at byte `at`, or 0 past the end.
    pub fn i32(self, bytes: &[u8], at: usize) -> i32 {
        self.u32(bytes, at).cast_signed()
    }

    /// Returns the unsigned number of the width of an address at byte `at`.
    pub fn word(self, bytes: &[u8], at: usize) -> u64 {
        if self.is_64 { self.u64(bytes, at) } else { self.u32(bytes, at).into() }
    }

    /// Returns the address at byte `at`, which is signed: 0, -1 and -2 mean that there is no block.
    pub fn address(self, bytes: &[u8], at: usize) -> i64 {
        if self.is_64 { self.u64(bytes, at).cast_signed() } else { self.i32(bytes, at).into() }
    }

    fn choose<T>(self, first: T, second: T, wide: T) -> T {
        match (self.is_64, self.version) {
            (true, _) => wide,
            (false, 1) => first,
            (false, _) => second,
        }
    }

    /// Length of an address.
    pub fn word_len(self) -> usize {
        if self.is_64 { 8 } else { 4 }
    }

    /// Length of an inode (`lfs32_dinode`, `lfs64_dinode`).
    pub fn inode_len(self) -> usize {
        if self.is_64 { 256 } else { 128 }
    }

    /// Length of an entry of the index file (`ifile_v1`, `ifile32`, `ifile64`).
    pub fn entry_len(self) -> usize {
        self.choose(12, 20, 32)
    }

    /// Offset of the address in such an entry.
    pub fn entry_address(self) -> usize {
        if self.is_64 { 16 } else { 4 }
    }

    /// Length of an entry of the segment table (`segusage_v1`, `segusage`).
    pub fn usage_len(self) -> usize {
        if self.version == 1 { 16 } else { 24 }
    }

    /// Length of a file of a summary (`finfo32`, `finfo64`), without its block numbers.
    pub fn file_len(self) -> usize {
        if self.is_64 { 24 } else { 16 }
    }

    /// Length of the header of a summary (`segsum_v1`, `segsum32`, `segsum64`).
    pub fn summary_len(self) -> usize {
        self.choose(28, 48, 56)
    }

    /// Length of a directory entry without its name.
    pub fn dirent_len(self) -> usize {
        if self.is_64 { 12 } else { 8 }
    }

    /// Returns the checksum of bytes: the exclusive or of their 16-bit numbers (`lfs_cksum.c`).
    pub fn sum(self, bytes: &[u8]) -> u32 {
        let sum = bytes.chunks_exact(2).fold(0, |sum, pair| sum ^ self.u16(pair, 0));
        sum.into()
    }
}
