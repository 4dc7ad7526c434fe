//! What building an image asks of the host: a file that appears when it is whole, and bytes moved to where they belong.

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
