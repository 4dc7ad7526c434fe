//! The kernel engine: the file systems of Linux, unmodified, in a process without rights, behind the contract of every
//! driver.
//!
//! A volume of a type that obento has no driver of its own for is opened by a Linux kernel that runs as an ordinary process
//! (`linux.uml` of Debian's package `user-mode-linux`). This crate starts it ([`launch`](crate)), is its disk, and speaks with the
//! agent in it, which is its `init`: by batches, through memory that both have mapped. A bug of that kernel hits a process that may
//! do nothing but run.
//!
//! - `kernel`, `initrd`, `launch`: what is started, and with what.
//! - `engine`, `area`: asking, under a watchdog. The other side of the wire is `agent/`; the wire itself is `wire/`.
//! - `disk`: a vhost-user block device over any [`BlockDevice`](obento_block::BlockDevice); `padded`: one of whole sectors; `scratch`: the one of a volume that is only read.
//! - `types`, `probe`: what there is, and by which signature it is known.
//! - `tools`: the programs of a type's own that make and check it.
//! - `nodes`, `volume`, `contract`, `writable`: the driver; `ahead`, `bulk`: many small files in one request; `stream`, `proofs`: long ones.
//!
//! This crate may contain `unsafe`: it maps memory that it shares with other processes, and starts one.

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
mod kernel;
mod launch;
mod list;
mod nodes;
mod padded;
mod probe;
mod proofs;
mod scratch;
pub mod starter;
mod stream;
pub mod tools;
pub mod types;
mod volume;
mod writable;

pub use driver::{Instead, LinuxDriver, ONLY_READS, Start, Use, kernel_of};
pub use kernel::{Config, INSTALL, Kernel};
pub use probe::first_bytes;
