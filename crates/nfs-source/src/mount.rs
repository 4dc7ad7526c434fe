//! Finding an export: the port mapper (RFC 1833) and the MOUNT protocol (RFC 1813, appendix I).

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use obento_base::Error;
use obento_driver::{Access, FileSystem};
use obento_remote_nodes::COUNT_MAX;

use crate::address::NfsAddress;
use crate::contract::{ENTRIES, Maxima, Mounted, VALID};
use crate::error::of_status;
use crate::protocol::{Handle, NFS};
use crate::rpc::{Connection, Program};
use crate::xdr::{Reader, Writer};

const MAPPER: Program = Program(100_000, 2);
const MOUNT: Program = Program(100_005, 3);
/// The port of the port mapper.
const MAPPER_PORT: u16 = 111;
/// The longest time for which attributes are used after they were received.
const VALID_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a call may take.
const DEADLINE: Duration = Duration::from_secs(60);
/// `AUTH_SYS`.
const AUTH_SYS: u32 = 1;

/// Returns the reason of an error of the resolver, without the text that the standard library adds.
fn resolver(error: &io::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(": ").map_or(text.clone(), |(_, reason)| reason.to_lowercase())
}

/// The reason why an export cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The host is unknown.
    #[error("cannot find the host '{host}': {}", resolver(error))]
    Host {
        /// The host.
        host: String,
        /// The reason.
        error: io::Error,
    },
    /// The host does not accept connections.
    #[error("cannot connect to {what} at {address}: {error}")]
    Connect {
        /// The server.
        what: &'static str,
        /// Its address.
        address: SocketAddr,
        /// The reason.
        error: io::Error,
    },
    /// The port mapper knows no such server.
    #[error("the host runs no {0} for version 3 over TCP")]
    NoServer(&'static str),
    /// The server refuses the export.
    #[error("the server refuses access to the export: {0}")]
    Refused(Error),
    /// The export requires other credentials.
    #[error("the export requires credentials other than AUTH_SYS")]
    Credentials,
    /// The server failed.
    #[error(transparent)]
    Failed(#[from] Error),
}

/// An export that was found, and the connection to its server.
pub struct Export {
    connection: Connection,
    root: Handle,
    /// How long attributes and data that was read ahead are used.
    valid: Duration,
    /// The most entries of a directory.
    entries_max: u64,
    /// The most files that are known at a time.
    files_max: usize,
}

/// Returns the port of a program over TCP.
fn port_of(
    host: SocketAddr,
    program: Program,
    what: &'static str,
    deadline: Duration,
) -> Result<u16, MountError> {
    let mapper = open(SocketAddr::new(host.ip(), MAPPER_PORT), MAPPER, "the port mapper", deadline)?;
    let Program(number, version) = program;
    // 6 is TCP.
    let call = Writer::default().u32(number).u32(version).u32(6).u32(0);
    let port = mapper.call(3, call, |mut reply| reply.u32())?;
    u16::try_from(port).ok().filter(|&port| port != 0).ok_or(MountError::NoServer(what))
}

fn open(
    address: SocketAddr,
    program: Program,
    what: &'static str,
    deadline: Duration,
) -> Result<Connection, MountError> {
    Connection::open(address, program, deadline).map_err(|error| MountError::Connect { what, address, error })
}

/// Takes the results of `MOUNTPROC3_MNT`.
fn root_of(mut reply: Reader<'_>) -> Option<Result<(Handle, bool), u32>> {
    match reply.u32()? {
        0 => {
            let handle = Handle::new(reply.bytes(64)?);
            let count = reply.u32()?.min(64);
            let mut accepts = count == 0;
            for _ in 0..count {
                accepts |= reply.u32()? == AUTH_SYS;
            }
            Some(Ok((handle, accepts)))
        }
        status => Some(Err(status)),
    }
}

impl Export {
    /// Finds an export and connects to its server.
    ///
    /// # Errors
    ///
    /// The host, the server or the export cannot be reached or used.
    pub fn open(address: &NfsAddress) -> Result<Self, MountError> {
        Self::open_with(address, DEADLINE)
    }

    /// As [`open`](Self::open), with the time that a call may take.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    pub fn open_with(address: &NfsAddress, deadline: Duration) -> Result<Self, MountError> {
        let named = |error| MountError::Host { host: address.host.clone(), error };
        let mut hosts = (address.host.as_str(), 0).to_socket_addrs().map_err(named)?;
        let host = hosts.next().ok_or_else(|| named(io::ErrorKind::NotFound.into()))?;
        let port = |known: Option<u16>, program, what| match known {
            Some(port) => Ok(SocketAddr::new(host.ip(), port)),
            None => port_of(host, program, what, deadline).map(|port| SocketAddr::new(host.ip(), port)),
        };
        let mount = port(address.mount_port, MOUNT, "MOUNT server")?;
        let mount = open(mount, MOUNT, "the MOUNT server", deadline)?;
        let found = mount.call(1, Writer::default().bytes(&address.export), root_of)?;
        let (root, accepts) = found.map_err(|status| MountError::Refused(of_status(status)))?;
        if !accepts {
            return Err(MountError::Credentials);
        }
        let server = port(address.port, NFS, "NFS server")?;
        let connection = open(server, NFS, "the NFS server", deadline)?;
        let entries_max = address.entries_max.unwrap_or(ENTRIES);
        Ok(Self { connection, root, valid: VALID, entries_max, files_max: COUNT_MAX })
    }

    /// Uses an open stream socket to an NFS server, and the handle of a directory, without the MOUNT protocol. If the
    /// connection ends, it is not opened again. A call may take as long as `deadline`.
    ///
    /// # Errors
    ///
    /// The socket cannot be used, or the handle is longer than 64 bytes.
    pub fn over(socket: OwnedFd, root: &[u8], deadline: Duration) -> Result<Self, MountError> {
        if root.len() > 64 || rustix::io::ioctl_fionbio(&socket, true).is_err() {
            return Err(MountError::Failed(Error::Invalid));
        }
        let connection = Connection::over(socket, None, NFS, deadline);
        let root = Handle::new(root);
        Ok(Self { connection, root, valid: VALID, entries_max: ENTRIES, files_max: COUNT_MAX })
    }

    /// Sets how long attributes and data that was read ahead are used after they were received. The default is three
    /// seconds, and the maximum a day.
    #[must_use]
    pub fn valid_for(self, valid: Duration) -> Self {
        Self { valid: valid.min(VALID_MAX), ..self }
    }

    /// Sets how many files are known at a time. The default and the maximum is 1,048,576. When seven eighths are known, files
    /// that are out of use are forgotten, but no directories.
    #[must_use]
    pub fn files_max(self, files_max: usize) -> Self {
        Self { files_max: files_max.min(COUNT_MAX), ..self }
    }

    /// Returns the file system of the export, for reading or also for changes.
    ///
    /// # Errors
    ///
    /// `Device`: the server failed.
    pub fn mount(self, access: Access) -> Result<Arc<dyn FileSystem>, MountError> {
        let Self { connection, root, valid, entries_max, files_max } = self;
        let limits = Maxima { entries: entries_max, files: files_max };
        Ok(Arc::new(Mounted::new(connection, root, access, valid, limits)?))
    }
}
