//! The format behind the contract.

mod contract;
mod info;
mod inspect;
pub mod log;
mod node;
pub mod open;
pub mod options;
pub mod streams;
pub mod volume;
mod xattrs;
