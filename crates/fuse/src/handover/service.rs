//! The service manager systemd as the keeper of a mount (`-o failover=systemd`).
//!
//! systemd stores descriptors for a service, and passes them to the next process of the service after a failure. Each
//! message is a datagram of lines. Descriptors accompany the datagram.
//!
//! | lines | descriptor | meaning |
//! |---|---|---|
//! | `FDSTORE=1`, `FDNAME=`name, `FDPOLL=0` | yes | store the descriptor under this name |
//! | `FDSTOREREMOVE=1`, `FDNAME=`name | no | close the stored descriptor |
//! | `BARRIER=1` | a pipe | close the pipe after all earlier messages |
//! | `READY=1` | no | the service has started |
//!
//! Invariant: systemd starts a process of a service only after all processes of the service have ended, so that never two
//! servers write.
//! Source: sd_notify(3), `sd_listen_fds(3)`, systemd.service(5).

use std::env;
use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::pipe::{PipeFlags, pipe_with};

/// The first descriptor that a service receives (`SD_LISTEN_FDS_START`).
const FIRST: RawFd = 3;
/// The longest time that systemd may take to process messages.
const PROCESSING: Duration = Duration::from_secs(30);

/// A descriptor that the service manager stored for an earlier process of this service.
#[derive(Debug)]
pub struct StoredDescriptor {
    /// Its name.
    pub name: String,
    /// The descriptor.
    pub descriptor: OwnedFd,
}

/// The connection of this process to the service manager.
#[derive(Debug)]
pub struct ServiceManager(UnixDatagram);

impl ServiceManager {
    /// Connects to the service manager that started this process. `count` is the number of descriptors that it must be
    /// able to store.
    ///
    /// # Errors
    ///
    /// - `NotFound`: no service manager waits for messages of this process.
    /// - `InvalidInput`: the service manager stores fewer descriptors.
    /// - The errors of connecting a socket.
    pub fn connect(count: usize) -> io::Result<Self> {
        let Some(path) = env::var_os("NOTIFY_SOCKET") else {
            let why = "no service manager waits for messages of this process (NOTIFY_SOCKET is not set)";
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        };
        // Set since systemd 254. Earlier versions ignore descriptors that they do not store.
        let most = env::var("FDSTORE").ok().and_then(|most| most.parse::<usize>().ok());
        if let Some(most) = most.filter(|most| *most < count) {
            let why = format!("the service manager stores {most} of {count} descriptors");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address(&path)?)?;
        Ok(Self(socket))
    }

    /// Returns the descriptors that were stored for an earlier process of this service. Call it once, at the start.
    pub fn received() -> Vec<StoredDescriptor> {
        let number = |name| env::var(name).ok().and_then(|number| number.parse::<u32>().ok());
        if number("LISTEN_PID") != Some(std::process::id()) {
            return Vec::new();
        }
        let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
        let numbers = (FIRST..).take(number("LISTEN_FDS").unwrap_or(0) as usize);
        // Only descriptors that are open are taken.
        let open = numbers.zip(names.split(':')).filter(|(number, _)| is_open(*number));
        open.map(|(number, name)| {
            // SAFETY: the service manager opened this descriptor for this process, which uses it nowhere else.
            let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
            // Programs that this process starts do not inherit it.
            let _ = fcntl_setfd(&descriptor, FdFlags::CLOEXEC);
            StoredDescriptor { name: name.to_owned(), descriptor }
        })
        .collect()
    }

    /// Stores a descriptor under a name.
    pub fn store(&self, name: &str, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        // The connection to the kernel stays stored when the mount has ended.
        self.send(&format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0"), Some(descriptor))
    }

    /// Closes the stored descriptors with a name.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        self.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), None)
    }

    /// Reports that the service has started.
    pub fn report_ready(&self) -> io::Result<()> {
        self.send("READY=1", None)
    }

    /// Waits until the service manager has processed all messages. Fails with `TimedOut` after half a minute.
    pub fn wait(&self) -> io::Result<()> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        self.send("BARRIER=1", Some(writer.as_fd()))?;
        drop(writer);
        let longest = Timespec { tv_sec: PROCESSING.as_secs().cast_signed(), tv_nsec: 0 };
        loop {
            match poll(&mut [PollFd::new(&reader, PollFlags::IN)], Some(&longest)) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn send(&self, lines: &str, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<_> = descriptor.into_iter().collect();
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(Errno::MSGSIZE.into());
        }
        loop {
            let bytes = [IoSlice::new(lines.as_bytes())];
            match sendmsg(&self.0, &bytes, &mut ancillary, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// Returns the address of the socket of the service manager: a path, or `@` and an abstract name.
fn address(path: &OsStr) -> io::Result<SocketAddr> {
    match path.as_bytes().split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(path),
    }
}

fn is_open(number: RawFd) -> bool {
    // SAFETY: fcntl(2) with F_GETFD reads a flag of a descriptor, and fails if the descriptor is not open.
    unsafe { libc::fcntl(number, libc::F_GETFD) != -1 }
}
