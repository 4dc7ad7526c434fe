//! The contract: opening, names, attributes, data.

mod contract;
mod info;
mod list;
mod number;
pub mod open;
pub mod volume;
mod xattrs;
