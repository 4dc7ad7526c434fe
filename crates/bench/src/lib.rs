//! Benchmarks of file systems: well-known workloads on any file system, with statistics that include the uncertainty.
//!
//! A *cell* is one workload on one target. It is run several times, each time in a process of its own and on a fresh
//! file system. The runs rotate over the targets (A B C A B C), so that changes in the speed of the machine affect all
//! targets alike.
//!
//! - [`Target`] is the file system to measure. It is a directory, a driver of obento (in this process or mounted), a
//!   file system of the kernel, or a command that mounts something.
//! - [`workload`] contains the workloads under their usual names. They use the operations of [`files`], which are
//!   system calls for a target with a path, and library calls for the others.
//! - [`cell`] measures one run. [`lab`] runs cells until the figures are precise enough or a limit is reached.
//! - [`statistics`] calculates medians, standard errors and confidence intervals of ratios.
//! - [`results`] is the results file. [`report`] formats it as a page, a table or lines, and compares two results
//!   files.

// These macros panic if the output is closed.
#![warn(clippy::print_stdout, clippy::print_stderr)]

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
