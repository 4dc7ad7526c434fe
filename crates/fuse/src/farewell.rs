//! Waiting for the end of a server: the kernel tells it of an unmount and waits for nothing.
//!
//! A server listens on an abstract socket that is named after the device number, the source and the place of its mount: the
//! number alone is given to the next mount while this server still writes. Who unmounts connects before, and reads until the server has closed the volume: a byte 0 and then the end mean that all is
//! durable; text is what went wrong; an end alone means that the server was killed. Nothing lies on any disk, and
//! nothing is left behind.
//! Invariant: only a socket of root or of the mount's owner is believed.
//! Source: unix(7), "Abstract sockets", SO_PEERCRED.

use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;

use crate::mountinfo::MountPoint;

/// How much of a path is part of the name, which may have 107 bytes: its end, by which paths differ.
const TAIL: usize = 36;

fn address(mount: &MountPoint) -> io::Result<SocketAddr> {
    let mut name = format!("obento-mount-{}", mount.device).into_bytes();
    for path in [&mount.source, &mount.path] {
        let path = path.as_os_str().as_bytes();
        name.push(b'-');
        name.extend_from_slice(&path[path.len().saturating_sub(TAIL)..]);
    }
    SocketAddr::from_abstract_name(name)
}

/// The server's side. Who connects waits in the socket's own queue, so there is nothing to do before the end.
#[derive(Debug)]
pub struct Farewell(UnixListener);

impl Farewell {
    /// Listens for those who will wait for the end of `mount`. Errors: those of the socket.
    pub fn listen(mount: &MountPoint) -> io::Result<Self> {
        let listener = UnixListener::bind_addr(&address(mount)?)?;
        listener.set_nonblocking(true)?;
        Ok(Self(listener))
    }

    /// Tells all who wait how it ended. Before anybody hears of it the name is free for the next mount of the same image at
    /// the same place.
    pub fn say(self, problem: Option<&str>) {
        let waiting: Vec<_> = std::iter::from_fn(|| self.0.accept().ok()).collect();
        drop(self);
        for (mut stream, _) in waiting {
            // Whoever no longer waits misses nothing.
            let _ = stream.write_all(problem.map_or(&[0], str::as_bytes));
        }
    }
}

/// How a server ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All is on stable storage, and the volume is clean.
    Durable,
    /// It could not write everything: in its words.
    Failed(String),
    /// It was gone before it could say so.
    Gone,
    /// It has not ended yet.
    Late,
}

/// The side of who waits.
pub struct Waiting(UnixStream);

impl Waiting {
    /// Connects to the server of `mount`; none if nobody listens, or nobody who is to be believed.
    pub fn connect(mount: &MountPoint) -> Option<Self> {
        let stream = UnixStream::connect_addr(&address(mount).ok()?).ok()?;
        let peer = socket_peercred(&stream).ok()?.uid.as_raw();
        (peer == 0 || Some(peer) == mount.owner()).then_some(Self(stream))
    }

    /// Waits until the server has ended, for `longest` at most.
    pub fn finish(mut self, longest: Duration) -> Outcome {
        let _ = self.0.set_read_timeout(Some(longest));
        let mut said = Vec::new();
        match (&mut self.0).take(4096).read_to_end(&mut said) {
            Ok(_) if said.first() == Some(&0) => Outcome::Durable,
            Ok(0) => Outcome::Gone,
            Ok(_) => Outcome::Failed(String::from_utf8_lossy(&said).into_owned()),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                Outcome::Late
            }
            Err(_) => Outcome::Gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(source: &str, path: &str) -> MountPoint {
        MountPoint {
            device: "9999:1".into(),
            path: path.into(),
            fs_type: "fuse.obento".into(),
            source: source.into(),
            options: format!("rw,user_id={}", rustix::process::geteuid().as_raw()),
        }
    }

    #[test]
    fn who_waits_for_a_mount_hears_of_its_end_while_the_one_that_had_its_number_before_still_writes() {
        let long = format!("/{}{}", "long/".repeat(40), std::process::id());
        let before = mount("disk.img", &format!("{long}/a"));
        for after in [mount("disk.img", &format!("{long}/b")), mount("other.img", &format!("{long}/a"))] {
            ends_apart(&before, &after);
        }
    }

    #[test]
    fn who_has_heard_of_the_end_of_a_mount_can_mount_the_same_again() {
        let mount = mount("disk.img", &format!("/again/{}", std::process::id()));
        for _ in 0..3 {
            let server = Farewell::listen(&mount).unwrap();
            let waiting = Waiting::connect(&mount).unwrap();
            let ends = std::thread::spawn(move || {
                server.say(None);
                // As a process that has not ended yet.
                std::thread::park();
            });
            assert_eq!(waiting.finish(Duration::from_secs(60)), Outcome::Durable);
            drop(Farewell::listen(&mount).unwrap());
            ends.thread().unpark();
            ends.join().unwrap();
        }
    }

    fn ends_apart(before: &MountPoint, after: &MountPoint) {
        let writes = Farewell::listen(before).unwrap();
        let ends = Farewell::listen(after).unwrap();
        let waiting = Waiting::connect(after).unwrap();
        ends.say(None);
        assert_eq!(waiting.finish(Duration::from_secs(60)), Outcome::Durable);
        let waiting = Waiting::connect(before).unwrap();
        writes.say(Some("no space"));
        assert_eq!(waiting.finish(Duration::from_secs(60)), Outcome::Failed("no space".into()));
    }
}
