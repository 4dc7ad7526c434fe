//! The side of the process that waits for the end of a server.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;

use super::folders::{Folders, NoServer};
use super::{SAID_MAX, SIGN};
use crate::mountinfo::MountPoint;

/// The end of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All changes are on stable storage, and the volume is clean.
    Durable,
    /// The server could not write all changes. The text is its message.
    Failed(String),
    /// The server ended without a result.
    Gone,
    /// The server has not ended within the time limit, but is still writing.
    Late,
    /// The server has sent no sign for the time limit of signs.
    Silent,
}

/// The connection of a waiting process to the server.
#[derive(Debug)]
pub struct ServerWait(pub(super) UnixStream);

impl ServerWait {
    /// Connects to the server of `mount`.
    pub fn connect(mount: &MountPoint) -> Result<Self, NoServer> {
        let owner = mount.owner().unwrap_or_else(|| rustix::process::geteuid().as_raw());
        Self::connect_in(&Folders::of(owner), mount)
    }

    pub(super) fn connect_in(folders: &Folders, mount: &MountPoint) -> Result<Self, NoServer> {
        folders.connect(mount, "").map(Self)
    }

    /// Returns the process that had the mount when this one connected; `None` if it is not visible from here.
    pub fn process(&self) -> Option<i32> {
        socket_peercred(&self.0).ok().map(|peer| peer.pid.as_raw_nonzero().get())
    }

    /// Waits until the server has ended, for at most `longest`, and for at most `silence` without a sign of it.
    pub fn finish(mut self, longest: Duration, silence: Duration) -> Outcome {
        let end = Instant::now() + longest;
        let mut last_sign = Instant::now();
        let (mut said, mut buffer) = (Vec::new(), [0; SAID_MAX as usize]);
        while said.len() < buffer.len() {
            let now = Instant::now();
            let (left, quiet) =
                (end.saturating_duration_since(now), (last_sign + silence).saturating_duration_since(now));
            if left.is_zero() {
                return Outcome::Late;
            }
            if quiet.is_zero() || self.0.set_read_timeout(Some(left.min(quiet))).is_err() {
                return Outcome::Silent;
            }
            match self.0.read(&mut buffer) {
                Ok(0) => break,
                Ok(len) => {
                    let text = &buffer[..len];
                    let signs = if said.is_empty() {
                        text.iter().take_while(|&&byte| byte == SIGN).count()
                    } else {
                        0
                    };
                    said.extend_from_slice(&text[signs..]);
                    last_sign = Instant::now();
                }
                // The limits are checked again.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) => {}
                Err(_) => break,
            }
        }
        match said.first() {
            None => Outcome::Gone,
            Some(0) => Outcome::Durable,
            Some(_) => Outcome::Failed(String::from_utf8_lossy(&said).into_owned()),
        }
    }
}
