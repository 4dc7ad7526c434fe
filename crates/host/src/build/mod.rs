//! What building an image asks of the host: a file that appears when it is whole, and bytes moved to where they belong.

mod fresh;
mod mover;
mod supply;

pub use fresh::{FreshFile, Publish};
pub use mover::{Job, Mover};
pub use supply::{DirId, Spool, Supply, SupplyError};
