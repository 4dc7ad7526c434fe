//! The format behind the contract.

mod contract;
mod info;
mod inspect;
pub mod log;
mod node;
pub mod open;
pub mod options;
mod stream_number;
mod stream_table;
pub mod streams;
pub mod volume;
mod xattrs;
