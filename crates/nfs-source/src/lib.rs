//! NFS exports as file systems: a client of NFSv3 over TCP, without a mount and without root.
//!
//! `address` parses `nfs://HOST[:PORT]/EXPORT`, and `socket` connects. `rpc` sends calls and matches replies, `xdr`
//! encodes, and `mount` finds the export. `protocol` has the structures, `nodes` the known files, and `contract`
//! implements the contract for reading, `change` for changing.
//! `ahead` reads data before the caller needs it, and `unstable` stores written data until it is on stable storage.
//!
//! The server is not trusted: lengths are bounded, every call has a deadline, and a server that misses one gets no
//! further calls. A connection that ends is opened again, and calls without a reply are sent again. The server may have
//! performed such a call before: `change` lists how each call is checked then. Sources of the protocol: RFC 1813 (NFS 3
//! and MOUNT 3), RFC 5531 (RPC), RFC 4506 (XDR), RFC 1833 (port mapper).

// These macros panic if the output is closed.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod address;
mod ahead;
mod change;
mod contract;
mod error;
mod mount;
mod nodes;
mod protocol;
mod rpc;
mod socket;
mod unstable;
mod xdr;

pub use address::{AddressError, NfsAddress};
pub use mount::{Export, MountError};
