//! The kernel engine: the unmodified file systems of Linux, in a process without privileges, behind the
//! driver interface.
//!
//! A Linux kernel opens a volume of a type without a native driver. It runs as an ordinary process (`linux.uml` of
//! Debian's package `user-mode-linux`). This crate starts the kernel ([`launch`](crate)), serves its disk, and sends
//! requests to the agent, which is its `init`, in batches through shared memory. A bug of that kernel affects a process
//! that has no rights.
//!
//! - `kernel`, `initrd`, `launch`: the kernel, its modules, and how they are started.
//! - `engine`, `area`: requests, with a watchdog. The other side is `agent/`; the protocol is `wire/`.
//! - `disk`: a vhost-user block device over any [`BlockDevice`](obento_block::BlockDevice); `padded`: a
//!   device of whole sectors; `scratch`: the device of a volume that is only read.
//! - `types`, `probe`: the supported types and their signatures.
//! - `tools`: the programs that create, check and tune volumes of a type; `resize`: growing volumes.
//! - `nodes`, `volume`, `contract`, `writable`: the driver; `ahead`, `bulk`: many small files in one request;
//!   `stream`, `proofs`: long files.
//!
//! This crate may contain `unsafe`: it maps memory that it shares with other processes, and starts a process.

// These macros panic if the output is closed.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod ahead;
mod area;
mod bulk;
mod console;
mod contract;
mod disk;
mod driver;
mod engine;
mod error;
#[cfg(test)]
mod fake;
mod initrd;
mod installed;
mod kernel;
mod launch;
mod list;
mod nodes;
mod padded;
mod probe;
mod proofs;
mod resize;
mod scratch;
pub mod starter;
mod stream;
pub mod tools;
pub mod types;
mod volume;
mod writable;

pub use driver::{KernelOpened, KernelStart, KernelUse, LinuxDriver};
pub use installed::kernel_of;
pub use kernel::{Config, INSTALL, Kernel};
pub use probe::first_bytes;
