//! What the kernel engine's two sides say to each other, and the memory they say it in.
//!
//! One file of [`AREA`] bytes is mapped by both: a page of control words, a request, a reply, and bulk data. The host fills
//! the request and rings; the guest answers in place and rings back. A turn belongs to one side only, so nobody reads
//! what the other writes. The bell is a byte on a serial line; it says nothing but "look".
//!
//! Invariant: neither side trusts a length. Whoever reads copies a message out of the area once, and decodes the copy;
//! decoding takes no byte that is not there and allocates no more than the message is long.
//! Invariant: both sides are built from this file, and the first control word says by which [`VERSION`].

mod codec;
mod message;

pub use codec::{Wire, decode, encode};
pub use message::{
    Answer, Entry, Envelope, Fill, Moment, NewFile, Node, Piece, Place, Request, Run, Shift, Space, Stat,
    Step, Times, Usage,
};

/// Grows with every change of what is below.
pub const VERSION: u32 = 6;
/// Tells the area from any other memory: `obn` and the version.
pub const MAGIC: u32 = 0x6f62_6e00 | VERSION;

/// The line that the guest has its kernel print before a volume is mounted: what is printed after it tells why it is not.
pub const MOUNTING: &str = "obento: the volume is mounted from here on";

/// How many bytes each checksum of [`Answer::Proved`] proves.
pub const PROVED: u64 = 4096;

/// Bytes of the control page.
pub const CONTROL: usize = 4096;
/// The most bytes of a request, without its data.
pub const REQUEST_MAX: usize = 256 << 10;
/// The most bytes of a reply, without its data.
pub const REPLY_MAX: usize = 1 << 20;
/// The most bytes of data of one request or reply.
pub const DATA_MAX: usize = 4 << 20;

/// Where the request starts.
pub const REQUEST_AT: usize = CONTROL;
/// Where the reply starts.
pub const REPLY_AT: usize = REQUEST_AT + REQUEST_MAX;
/// Where the data starts.
pub const DATA_AT: usize = REPLY_AT + REPLY_MAX;
/// Bytes of the whole area.
pub const AREA: usize = DATA_AT + DATA_MAX;

/// The control words, each a little-endian `u32` at four times its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Word {
    /// [`MAGIC`], by the host before the guest starts.
    Magic = 0,
    /// Length of the request in bytes, by the host.
    RequestLen = 1,
    /// Number of the request, by the host: counts up from 1. The guest has work while this is not `Answered`.
    Asked = 2,
    /// Length of the reply in bytes, by the guest.
    ReplyLen = 3,
    /// Number of the request that was answered last, by the guest.
    Answered = 4,
}

impl Word {
    /// Its byte offset in the area.
    pub const fn at(self) -> usize {
        // A discriminant is small and not negative.
        self as usize * 4
    }
}
