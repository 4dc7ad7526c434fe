//! The operations of the contract: each plans, begins a transaction, takes what it will change, and changes it.

mod create;
mod names;
mod remove;
mod rename;

pub(crate) use rename::End;
