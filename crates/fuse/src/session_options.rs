//! The options and the use of a connection to the kernel.

/// Whether requests arrive through `io_uring`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RingChoice {
    /// If the kernel offers it.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// The options of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionOptions {
    /// The number of requests that may wait for the disk at the same time.
    pub threads: usize,
    /// The kernel caches writes in its page cache, if the volume is large enough.
    pub writeback: bool,
    /// Number of bytes that the kernel gathers at most: [`dirty_limit`](crate::dirty_limit).
    pub dirty_limit: u64,
    /// Whether requests arrive through `io_uring`.
    pub io_uring: RingChoice,
}

impl Default for SessionOptions {
    /// Sixteen threads, each of which may wait for one disk access; the kernel caches writes.
    fn default() -> Self {
        Self { threads: 16, writeback: true, dirty_limit: 0, io_uring: RingChoice::Auto }
    }
}

/// The use of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SessionUse {
    /// The number of requests that were read.
    pub requests: u64,
    /// How the kernel caches written data.
    pub write_cache: WriteCache,
}

/// How the kernel caches written data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WriteCache {
    /// The kernel sends each write to the server.
    #[default]
    Off,
    /// The kernel gathers written data.
    On,
    /// The kernel gathers written data, and asks the server for space before each write, since the volume is nearly full.
    Asking,
}
