//! The FUSE host: any driver behind a mount point of Linux.
//!
//! `server` answers what the kernel asks, by numbers and bytes, from the `vfs`; it knows no file system and no wire
//! format. `wire` takes the kernel's requests apart and puts replies together; `session` carries them, today over
//! `/dev/fuse`. `mount` puts a connection at a mount point, as root or through `fusermount3`; `mountinfo` tells what is
//! mounted; `farewell` lets who unmounts wait until all is durable; `options` are the words after `-o`.
//!
//! The kernel keeps permissions, page cache, names and attributes itself, because the image is ours alone: it is told to
//! remember them for long, and nothing is asked of the server twice.
//!
//! `unsafe` stands where signals are waited for, and nowhere else.

mod attr;
mod clock;
mod farewell;
mod fusermount;
mod idle;
mod linger;
mod mount;
mod mountinfo;
mod nodes;
pub mod options;
mod pool;
mod server;
mod session;
pub mod signals;
mod wire;

pub use clock::KernelClock;
pub use farewell::{Attended, Farewell, Folders, NoServer, Outcome, Waiting};
pub use mount::{MountError, Mounted, Unmounter, mount, unmount};
pub use mountinfo::{MountPoint, find_mount};
pub use server::{Server, ServerOptions};
pub use session::{Session, SessionOptions, open_session};
