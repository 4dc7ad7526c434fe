//! The operations of the contract. Each one plans, begins a transaction, takes the blocks to change, and changes
//! them.

mod create;
mod names;
mod remove;
mod rename;

pub(crate) use rename::{OldName, RenameEnd};
