//! Passing a mount from one server to another, such as a new version of this program.
//!
//! The new server connects to the old one, and both exchange [`Message`]s:
//!
//! | from | message | meaning |
//! |---|---|---|
//! | new | `Hello` | its version |
//! | old | `Offer`, or `Cannot` | its version, how it was started, the volume |
//! | new | `Ready`, or the end | it can serve such a mount |
//! | old | `State`, or `Cannot` | it has paused: the state, with descriptors of the connection to the kernel, the image and the sockets |
//! | new | `Taken`, or the end | the volume is open and all nodes are present; with a [`Claim`] |
//! | old | `Go`, or the end | the new server may take the claim |
//! | new | `Started` | from now on, the new server reads requests and writes to the image |
//!
//! Invariant: until the new server has the claim and has sent `Started`, it has read no request and written no byte.
//! After `Go`, the old server continues only if the connection ends before `Started`, which shows that the new server
//! has ended, or if it takes the claim itself. So never two servers write.
//! A server with a keeper also exchanges the messages of [`Guard`] with it.
//!
//! Invariant: each side waits [`SILENCE`] for the other. The old server then tries to take the claim. It has ended if the
//! new one has the claim.
//! Invariant: state is encoded as tagged fields of numbers and bytes, never as pointers or layouts of this compiler.
//! Decoders never panic, and an unknown field that is marked as critical is an error.
//! Decision: docs/decisions/0067-a-new-server-takes-over-a-mount.md.

mod claim;
mod connection;
mod control;
mod guard;
mod history;
mod message;
mod service;
mod state;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use claim::Claim;
pub use connection::{Connection, ConnectionError};
pub use control::ControlListener;
pub use guard::Guard;
pub use history::{HandleState, HistoryState};
pub use message::{FrameError, Hello, Kind, Message, Offer, State};
pub use obento_base::fields::{Fields, Need, Parsed, StateError};
pub use service::{ServiceManager, StoredDescriptor};
pub use state::{GateState, NodeState, SessionState};

/// The version of the messages and of the state. A server refuses another major version. A field of a later minor
/// version is ignored unless it is critical.
pub const VERSION: (u16, u16) = (1, 0);

/// The longest time that a server waits for the next message of the other one.
pub const SILENCE: Duration = Duration::from_secs(2);
