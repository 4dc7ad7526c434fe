//! The sizes of requests.

/// The most bytes of a read or write.
pub(crate) const MAX_IO: u32 = 1 << 20;
/// The size of the buffer for a request: the longest write, and `FUSE_MIN_READ_BUFFER` bytes for the headers.
pub(crate) const LONGEST_REQUEST: usize = MAX_IO as usize + 8192;
