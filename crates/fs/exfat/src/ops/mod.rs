//! The operations on names. Each is looked up, then tested, then done.

mod names;
mod rename;
