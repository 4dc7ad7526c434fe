//! The host part of building an image: a file that gets its name when it is complete, and the transfer of
//! bytes to it.

mod debris;
mod fresh;
mod gather;
mod inflow;
mod mover;
mod reader;
mod supply;
mod writeback;

pub use fresh::{FreshFile, Publish};
pub use inflow::Inflow;
pub use mover::{Job, Mover};
pub use reader::{Bytes, Reader};
pub use supply::{DirId, Spool, Supply, SupplyError};
pub use writeback::Writeback;
