//! The bytes of a volume under construction: written at any position, with numbers in the byte order of the type.

use std::fmt::Debug;

/// A byte order.
#[derive(Clone, Copy)]
pub(super) enum Order {
    Little,
    Big,
}

/// The bytes. Unwritten bytes are zero.
pub(super) struct Bytes {
    bytes: Vec<u8>,
    order: Order,
}

impl Bytes {
    pub(super) fn new(order: Order) -> Self {
        Self { bytes: Vec::new(), order }
    }

    /// Returns `len` bytes.
    pub(super) fn of(len: usize, order: Order) -> Self {
        Self { bytes: vec![0; len], order }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Extends the bytes to at least `len`.
    pub(super) fn extend_to(&mut self, len: usize) {
        if self.bytes.len() < len {
            self.bytes.resize(len, 0);
        }
    }

    pub(super) fn put(&mut self, at: usize, bytes: &[u8]) {
        self.extend_to(at + bytes.len());
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Appends `bytes` at the next multiple of `unit`, and extends to a multiple of `unit`. Returns the number of units
    /// before them.
    pub(super) fn append(&mut self, bytes: &[u8], unit: usize) -> usize {
        let at = self.len().next_multiple_of(unit);
        self.put(at, bytes);
        self.extend_to((at + bytes.len()).next_multiple_of(unit));
        at / unit
    }

    pub(super) fn get(&self, at: usize, len: usize) -> &[u8] {
        &self.bytes[at..at + len]
    }

    pub(super) fn u8<T: TryInto<u8, Error: Debug>>(&mut self, at: usize, value: T) {
        self.put(at, &[value.try_into().expect("a byte")]);
    }

    pub(super) fn u16<T: TryInto<u16, Error: Debug>>(&mut self, at: usize, value: T) {
        let value: u16 = value.try_into().expect("16 bits");
        self.number(at, &value.to_be_bytes());
    }

    pub(super) fn u32<T: TryInto<u32, Error: Debug>>(&mut self, at: usize, value: T) {
        let value: u32 = value.try_into().expect("32 bits");
        self.number(at, &value.to_be_bytes());
    }

    pub(super) fn u64<T: TryInto<u64, Error: Debug>>(&mut self, at: usize, value: T) {
        let value: u64 = value.try_into().expect("64 bits");
        self.number(at, &value.to_be_bytes());
    }

    /// Writes a number whose first byte is the highest.
    fn number(&mut self, at: usize, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        if matches!(self.order, Order::Little) {
            bytes.reverse();
        }
        self.put(at, &bytes);
    }

    pub(super) fn into_vec(self) -> Vec<u8> {
        self.bytes
    }
}
