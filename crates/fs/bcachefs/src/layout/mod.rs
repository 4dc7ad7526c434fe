//! The bytes of the super block and of numbers.

pub mod bytes;
pub mod fields;
pub mod record;
pub mod super_block;
