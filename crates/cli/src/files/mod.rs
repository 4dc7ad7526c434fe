//! The files that a command reads completely: the list of files, their bytes, and the parallel work on many files.
//!
//! `select` turns operands into tasks, `stream` reads the bytes of a task, `lines` finds its
//! last lines, and `pool` works on tasks in parallel and hands the results
//! over in order.

pub mod lines;
pub mod pool;
pub mod select;
pub mod stream;

pub use pool::{Results, Said, in_order};
pub use select::{Below, Task, Tasks, open_all};
pub use stream::{Input, Piece, Stream, StreamError};
