//! The format behind the contract.

mod contract;
mod info;
mod inspect;
pub mod log;
mod node;
pub mod open;
pub mod options;
mod stream_number;
pub mod streams;
pub mod volume;
mod xattrs;
