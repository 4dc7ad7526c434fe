//! Waiting for the end of a server. umount(2) returns before the server has written its last changes.
//!
//! A server listens on a socket in a folder that only its user can enter. The name of the socket is derived
//! from the device number, the source and the mount point. The device number alone is not enough: the kernel
//! reuses it for the next mount while the old server is still writing. The path of the mount point changes if a
//! directory above it is renamed, and it differs in other mount namespaces. If no socket has the present path in its
//! name, the newest socket of the file system is that of the mount. The unmounting process connects before
//! it unmounts, and reads until the server has closed the volume. From the end of the mount on, a server
//! sends a byte 1 every few seconds. The waiting process can thus distinguish a slow server from a stopped
//! one. A byte 0 followed by the end of the stream means that all changes are durable. Any other text is an
//! error message. An end without a byte 0 or a text means that the server was killed.
//! Invariant: no other user can create the socket or fill its queue: the folder belongs to the user of the mount and
//! has mode 0700.
//! Invariant: a process trusts only a server of root or of the mount's owner, and a server answers only these two
//! users.
//! Invariant: a process connects to no server of another file system. It follows no link in the folder, requires that the
//! socket belongs to the user of the folder, and compares the name that the server bound with the mount.
//! Invariant: no process waits without a time limit for a process of another user.
//! Locking: a process that replaces or removes a socket holds a lock (flock) on the folder.
//! Source: unix(7), SO_PEERCRED; getpeername(2); connect(2), SO_SNDTIMEO; file-hierarchy(7), `/run/user/UID`.

mod folders;
mod server;
#[cfg(test)]
mod tests;
mod wait;

pub(crate) use folders::name;
pub use folders::{Folders, NoServer};
pub use server::{ServingListener, UnmountListener};
pub use wait::{Outcome, ServerWait};

/// The sign that a server is still writing. No text contains it.
const SIGN: u8 = 1;
/// The longest message of a server, in bytes.
const SAID_MAX: u64 = 4096;
