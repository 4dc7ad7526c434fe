//! The files that a command reads from its first byte to its last: which ones, their bytes, and the work on many of them at once.
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
pub use stream::{Input, Piece, Stream};
