//! Filebench's workloads: reads and writes of one large file, files created and deleted, and three servers.
//!
//! Parameters are those of Filebench's own `.f` files. Two things differ on purpose: the clock counts nanoseconds, while
//! Filebench looks for the end of a run once a second, which makes figures of different file systems equal that are not; and
//! times of preparing are never part of the figure.

mod flow;
mod large_file;
mod small_files;

pub use flow::{FILE_SERVER, Personality, VAR_MAIL, WEB_SERVER};
pub use large_file::{LargeFile, Pattern};
pub use small_files::{CreateFiles, DeleteFiles};
