//! A request, taken apart. Nothing in it is believed: what is too short is EIO, which the kernel hands to who asked.

use obento::Errno;
use zerocopy::FromBytes;

use super::abi::InHeader;
use crate::server::Reply;

/// A request as it came.
#[derive(Clone, Copy)]
pub(super) struct Request<'b> {
    pub header: InHeader,
    pub body: Body<'b>,
}

impl<'b> Request<'b> {
    /// None for what is no request.
    pub fn parse(bytes: &'b [u8]) -> Option<Self> {
        let (header, body) = InHeader::read_from_prefix(bytes).ok()?;
        let is_whole = usize::try_from(header.len).is_ok_and(|len| len == bytes.len());
        is_whole.then_some(Self { header, body: Body(body) })
    }
}

/// What is left of a request.
#[derive(Clone, Copy)]
pub(super) struct Body<'b>(pub &'b [u8]);

impl<'b> Body<'b> {
    /// The next structure.
    pub fn take<T: FromBytes>(&mut self) -> Reply<T> {
        let (value, rest) = T::read_from_prefix(self.0).map_err(|_| malformed())?;
        self.0 = rest;
        Ok(value)
    }

    /// The next `len` bytes.
    pub fn bytes(&mut self, len: u32) -> Reply<&'b [u8]> {
        let len = usize::try_from(len).map_err(|_| malformed())?;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or_else(malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// The bytes up to the next NUL.
    pub fn name(&mut self) -> Reply<&'b [u8]> {
        let len = self.0.iter().position(|&byte| byte == 0).ok_or_else(malformed)?;
        let (name, rest) = self.0.split_at_checked(len).ok_or_else(malformed)?;
        self.0 = rest.get(1..).unwrap_or_default();
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
    fn what_is_cut_short_or_lies_about_its_length_is_none() {
        let whole = request(41, b"x");
        assert!(Request::parse(&whole).is_some());
        assert!((0..whole.len()).all(|len| Request::parse(&whole[..len]).is_none()));
        assert!(Request::parse(&request(42, b"x")).is_none());
        assert!(Body(&[1, 2, 3]).take::<MkdirIn>().is_err());
    }
}
