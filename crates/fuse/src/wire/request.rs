//! Decoding of requests. Nothing in a request is trusted: one that is too short fails with EIO, which the kernel passes
//! to the requesting process.

use obento_base::Errno;
use zerocopy::FromBytes;

use super::abi::InHeader;
use crate::server::Reply;

/// A received request.
#[derive(Clone, Copy)]
pub(super) struct Request<'b> {
    pub header: InHeader,
    pub body: RequestBody<'b>,
}

impl<'b> Request<'b> {
    /// Splits a request. Returns `None` if the length in the header is not that of `bytes`.
    pub fn parse(bytes: &'b [u8]) -> Option<Self> {
        let (header, body) = InHeader::read_from_prefix(bytes).ok()?;
        let is_whole = usize::try_from(header.len).is_ok_and(|len| len == bytes.len());
        is_whole.then_some(Self { header, body: RequestBody::new(body) })
    }

    /// Joins a request whose header, first structure and rest are in separate buffers. `first` may be longer than the
    /// structure, whose length follows from the header. Returns `None` if the lengths contradict each other.
    pub fn join(header: &[u8], first: &'b [u8], rest: &'b [u8]) -> Option<Self> {
        let (header, _) = InHeader::read_from_prefix(header).ok()?;
        let body = usize::try_from(header.len).ok()?.checked_sub(size_of::<InHeader>())?;
        let first = first.get(..body.checked_sub(rest.len())?)?;
        Some(Self { header, body: RequestBody { first, rest } })
    }
}

/// The part of a request that is not decoded yet, in one or two buffers. No value is in both.
#[derive(Clone, Copy)]
pub(super) struct RequestBody<'b> {
    first: &'b [u8],
    rest: &'b [u8],
}

impl<'b> RequestBody<'b> {
    /// Returns a body in one buffer.
    pub fn new(bytes: &'b [u8]) -> Self {
        Self { first: bytes, rest: &[] }
    }

    /// Returns a copy of the bytes.
    pub fn to_vec(self) -> Vec<u8> {
        [self.first, self.rest].concat()
    }

    /// Returns the buffer that contains the next value.
    fn next(&mut self) -> &'b [u8] {
        if self.first.is_empty() {
            self.first = std::mem::take(&mut self.rest);
        }
        self.first
    }

    /// Returns the next structure.
    pub fn take<T: FromBytes>(&mut self) -> Reply<T> {
        let (value, rest) = T::read_from_prefix(self.next()).map_err(|_| malformed())?;
        self.first = rest;
        Ok(value)
    }

    /// Returns the next `len` bytes.
    pub fn bytes(&mut self, len: u32) -> Reply<&'b [u8]> {
        let len = usize::try_from(len).map_err(|_| malformed())?;
        let (bytes, rest) = self.next().split_at_checked(len).ok_or_else(malformed)?;
        self.first = rest;
        Ok(bytes)
    }

    /// Returns the bytes up to the next NUL.
    pub fn name(&mut self) -> Reply<&'b [u8]> {
        let len = self.next().iter().position(|&byte| byte == 0).ok_or_else(malformed)?;
        let (name, rest) = self.next().split_at_checked(len).ok_or_else(malformed)?;
        self.first = rest.get(1..).unwrap_or_default();
        Ok(name)
    }
}

fn malformed() -> Errno {
    Errno(libc::EIO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::abi::{MkdirIn, opcode};

    fn request(len: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(len.to_ne_bytes());
        bytes.extend(opcode::MKDIR.to_ne_bytes());
        bytes.extend([0; 32]);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn a_request_is_a_header_structures_and_names() {
        let bytes = request(54, &[1, 0, 0, 0, 2, 0, 0, 0, b'a', b'b', 0, b'c', 0, 9]);
        let Request { header, mut body } = Request::parse(&bytes).unwrap();
        assert_eq!(header.opcode, opcode::MKDIR);
        assert_eq!(body.take::<MkdirIn>().unwrap().umask.to_ne_bytes()[0], 2);
        assert_eq!(body.name().unwrap(), b"ab");
        assert_eq!(body.name().unwrap(), b"c");
        assert_eq!(body.name(), Err(malformed()));
        assert_eq!(body.bytes(1).unwrap(), [9]);
        assert_eq!(body.bytes(1), Err(malformed()));
    }

    #[test]
    fn truncated_values_and_values_with_a_wrong_length_are_invalid() {
        let whole = request(41, b"x");
        assert!(Request::parse(&whole).is_some());
        assert!((0..whole.len()).all(|len| Request::parse(&whole[..len]).is_none()));
        assert!(Request::parse(&request(42, b"x")).is_none());
        assert!(RequestBody::new(&[1, 2, 3]).take::<MkdirIn>().is_err());
    }

    #[test]
    fn a_request_in_separate_buffers_is_read_like_one_in_a_single_buffer() {
        let whole = request(49, &[1, 0, 0, 0, 2, 0, 0, 0, b'a']);
        let first = [1, 0, 0, 0, 2, 0, 0, 0, 9, 9];
        let Request { mut body, .. } = Request::join(&whole, &first, b"a").unwrap();
        assert_eq!(body.to_vec(), whole[40..]);
        assert_eq!(body.take::<MkdirIn>().unwrap().umask.to_ne_bytes()[0], 2);
        assert_eq!(body.bytes(1).unwrap(), b"a");
        assert_eq!(body.bytes(1), Err(malformed()));
        // A request without a first structure.
        let whole = request(42, b"");
        let Request { mut body, .. } = Request::join(&whole, &first, b"a\0").unwrap();
        assert_eq!(body.name().unwrap(), b"a");
        // Lengths that contradict each other.
        assert!(Request::join(&whole, &first, b"abc").is_none());
        assert!(Request::join(&request(60, b""), &first, b"a\0").is_none());
        assert!(Request::join(&whole[..39], &first, b"a\0").is_none());
        assert!(Request::join(&request(39, b""), &first, b"").is_none());
    }
}
