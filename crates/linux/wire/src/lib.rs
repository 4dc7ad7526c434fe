//! The protocol between the two sides of the kernel engine, and the memory that they share.
//!
//! Both map one file of [`AREA`] bytes: a page of control words, a request, a reply, and bulk data. The host writes the
//! request and notifies the guest; the guest answers in place and notifies the host. Only the side whose turn it is uses the
//! memory, so no side reads while the other writes. A notification is a byte on a serial line, whose value has no meaning.
//!
//! Invariant: neither side trusts a length. A reader copies a message out of the area once, and decodes the copy.
//! Decoding reads no byte past the end and allocates at most the length of the message.
//! Invariant: both sides are built from this file, and the first control word contains the [`VERSION`].

mod codec;
mod message;
pub mod registers;

pub use codec::{Wire, decode, encode};
pub use message::{
    Answer, Entry, Envelope, Fill, Moment, NewFile, Node, Piece, Place, Request, Run, Shift, Space, Stat,
    Step, Times, Usage,
};

/// Increases with every change of the definitions below.
pub const VERSION: u32 = 6;
/// Identifies the area: `obn` and the version.
pub const MAGIC: u32 = 0x6f62_6e00 | VERSION;

/// The line that the guest lets its kernel print before a mount: later output contains the reason of a failed mount.
pub const MOUNTING: &str = "obento: the volume is mounted from here on";

/// The number of bytes that each checksum of [`Answer::Proved`] verifies.
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
    /// [`MAGIC`], written by the host before the guest starts.
    Magic = 0,
    /// Length of the request in bytes, written by the host.
    RequestLen = 1,
    /// Number of the request, written by the host: counts up from 1. The guest has work while this differs from `Answered`.
    Asked = 2,
    /// Length of the reply in bytes, written by the guest.
    ReplyLen = 3,
    /// Number of the last answered request, written by the guest.
    Answered = 4,
}

impl Word {
    /// The byte offset in the area.
    pub const fn at(self) -> usize {
        // A discriminant is small and not negative.
        self as usize * 4
    }
}
