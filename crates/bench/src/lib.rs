//! The file-system laboratory: known workloads on any file system, with honest statistics.
//!
//! A *cell* is one workload on one target. It is run several times, each time in a process of its own and on a fresh file system,
//! in rotation with the other targets (A B C A B C), so that drift of the machine hits all alike.
//!
//! - [`Target`] is what is measured: a directory, obento's driver in process or mounted, a file system of the kernel, any
//!   command that mounts something.
//! - [`workload`] has the workloads by the names that the field knows; they are made of the operations of [`files`], which
//!   are system calls for what has a path and calls of the library for what has none.
//! - [`cell`] measures one run, [`lab`] runs suites of cells, until the figures are sure or a limit is reached.
//! - [`statistics`] has medians, standard errors, and intervals for ratios.
//! - [`results`] is the file that a run leaves; [`report`] makes a page, a table or lines of it, and compares two.

mod age;
pub mod cell;
mod error;
pub mod files;
pub mod lab;
pub mod machine;
mod random;
pub mod report;
pub mod results;
pub mod statistics;
pub mod suite;
pub mod target;
pub mod workload;

pub use error::{BenchError, Result};
pub use target::Target;
