//! The host part of building an image: a file that gets its name when it is complete, and the transfer of
//! bytes to it.

mod access;
mod fresh;
mod gather;
mod mover;
mod reader;
mod remove_on_signal;
mod streamed_image;
mod supply;
mod writeback;

pub use access::{AccessLimit, FolderAccess};
pub use fresh::{FreshFile, Publish};
pub use mover::{Job, Mover};
pub use reader::{Reader, SuppliedFile};
pub use streamed_image::StreamedImage;
pub use supply::{DirId, Spool, Supply, SupplyError};
pub use writeback::Writeback;
