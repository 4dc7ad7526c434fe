//! Kinds of records, as bits.

/// A name was given or removed.
pub(crate) const NAMES: u8 = 1;
/// A version may begin.
pub(crate) const WRITES: u8 = 2;
/// A version was used.
pub(crate) const USES: u8 = 4;
/// A file was closed.
pub(crate) const CLOSES: u8 = 8;
/// The number of an actor was defined.
pub(crate) const DEFINES: u8 = 16;
/// Other records.
pub(crate) const OTHERS: u8 = 32;
/// All records.
pub(crate) const ALL: u8 = 0xff;
