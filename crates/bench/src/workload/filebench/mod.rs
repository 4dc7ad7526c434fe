//! Filebench's workloads: reads and writes of one large file, creation and deletion of files, and three servers.
//!
//! The parameters are those of Filebench's `.f` files. Two things differ on purpose. The clock counts nanoseconds;
//! Filebench checks for the end of a run once a second, so that different speeds can give the same figure. The time of
//! the preparation is never part of the figure.

mod flow;
mod large_file;
mod small_files;

pub use flow::{FILE_SERVER, Personality, VAR_MAIL, WEB_SERVER};
pub use large_file::{LargeFile, Pattern};
pub use small_files::{CreateFiles, DeleteFiles};
