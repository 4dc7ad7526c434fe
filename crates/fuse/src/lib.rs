//! The FUSE host: serves any driver at a Linux mount point.
//!
//! - `server` answers the kernel's requests from the `vfs`. It depends on no file system and on no wire format.
//! - `wire` decodes requests and encodes replies.
//! - `session` reads requests from `/dev/fuse` and writes replies to it.
//! - `rings` does both through `io_uring` if the kernel permits that.
//! - `mount` mounts and unmounts, as root directly and as another user through `fusermount3`.
//! - `mountinfo` lists mounted file systems.
//! - `unmount_listener` lets the unmounting process wait until all changes are durable.
//! - `ledger` stores the state that survives a failure of the server.
//! - `refuse` answers the requests of a mount that has no server any more.
//! - `handover` passes a mount to another process: the state, its encoding and the messages.
//! - `options` parses the mount options of `-o`.
//! - `processes` identifies the processes that send requests, for a volume whose history is recorded.
//!
//! The kernel checks permissions, and caches pages, names and attributes. The caches stay valid for a day, because the
//! server is the only user of the image. The kernel therefore sends few requests twice.
//!
//! `unsafe` code exists only in `signals`, `rings::ring` and `handover::service`, which takes descriptors by number.

// These macros panic if the output is closed.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod attr;
mod clock;
mod copies;
mod dirty;
mod fusermount;
pub mod handover;
mod idle;
mod ledger;
mod mount;
mod mountinfo;
mod nodes;
pub mod options;
mod pauser;
mod pool;
mod processes;
mod receive;
mod refuse;
mod request_poll;
mod rings;
mod server;
mod session;
mod session_options;
pub mod signals;
mod unmount_listener;
mod wire;

pub use clock::KernelClock;
pub use copies::Copies;
pub use dirty::dirty_limit;
pub use ledger::Ledger;
pub use mount::{MountError, MountPlace, MountRoot, Mounted, Unmounted, Unmounter, mount};
pub use mountinfo::{MountPoint, find_mount, mount_id, mount_of, mounts_of_same, mounts_of_type};
pub use pauser::Pauser;
pub use processes::Processes;
pub use refuse::refuse_all;
pub use server::{Server, ServerOptions};
pub use session::{Served, Session, open_session, resume_session};
pub use session_options::{RingChoice, SessionOptions, SessionUse, WriteCache};
pub use unmount_listener::{Folders, NoServer, Outcome, ServerWait, ServingListener, UnmountListener};
