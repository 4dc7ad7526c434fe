//! FUSE servers and NFS exports, whose files commands read and change.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use obento::Volume;
use obento::driver::Access;
use obento::host::HostDir;
use obento_fuse_source::{FuseServer, StartError};
use obento_nfs_source::{AddressError, Export, MountError, NfsAddress};

use crate::cause::Cause;
use crate::report::Report;

/// A server that was started or connected, and not asked anything yet.
enum Server {
    Fuse(FuseServer),
    Nfs(Export),
}

/// The reason why a server cannot be used.
#[derive(Debug, thiserror::Error)]
enum ServerError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(
        "another user can create files in the current directory, and a pattern of the shell can have produced the address \
         from their names"
    )]
    Directory,
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error(transparent)]
    Address(#[from] AddressError),
}

impl Cause for ServerError {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Start(StartError::Empty) => "write an address such as fuse:sshfs host:/dir:/",
            Self::Start(StartError::Program { .. }) => {
                "check the name of the program, and that it is installed"
            }
            Self::Start(StartError::Folder { .. }) => "set TMPDIR to another directory",
            Self::Start(StartError::Refused(_)) => {
                "check the messages of the server; it must accept /dev/fd/N as its mount point, as servers with \
                 libfuse 3.3 or later do"
            }
            Self::Start(StartError::Unconnected(_)) => {
                "check the messages of the server; a server with libfuse 2 requires a mount namespace, as unshare(1) \
                 creates"
            }
            Self::Directory => "run the command in a directory in which only you can create files, such as /",
            Self::Mount(MountError::Host { .. }) => "check the name of the host",
            Self::Mount(MountError::Connect { .. }) => {
                "check that the server runs and that no firewall blocks the port"
            }
            Self::Mount(MountError::NoServer(_)) => {
                "start the server, or name its port with ?port=N or ?mountport=N"
            }
            Self::Mount(MountError::Refused(_)) => "list the exports of the host with 'showmount -e HOST'",
            Self::Address(AddressError::Form) => "write an address such as nfs://server/srv/data",
            Self::Address(AddressError::Port(_)) => "use a number from 1 to 65535",
            Self::Address(AddressError::Entries(_)) => "use a number of at least 1",
            Self::Address(AddressError::Option(_)) => "the options are port=N, mountport=N and maxentries=N",
            Self::Start(StartError::Quote) | Self::Mount(MountError::Credentials | MountError::Failed(_)) => {
                return None;
            }
        };
        Some(hint.to_owned())
    }
}

/// A server that `image` names.
struct Started {
    image: PathBuf,
    access: Access,
    server: Result<Server, ServerError>,
}

/// The servers that were started and not asked anything yet.
#[derive(Default)]
pub struct Servers(Vec<Started>);

impl Servers {
    /// Starts the server that `image` names, or connects to it, before the process gives up the right to do so.
    pub fn start(&mut self, image: &Path, command: &OsStr, access: Access) {
        // A server that was started for reading may be unable to change files.
        let suffices = |known: &Started| known.access == access || access == Access::ReadOnly;
        if self.0.iter().any(|known| known.image == image && suffices(known)) {
            return;
        }
        self.0.retain(|known| known.image != image);
        self.0.push(Started { image: image.to_owned(), access, server: started(command, access) });
    }

    /// Returns the volume of the server that `image` names, and starts the server if it does not run.
    ///
    /// # Errors
    ///
    /// The server cannot be used.
    pub fn volume(&mut self, image: &Path, command: &OsStr, access: Access) -> Result<Volume, Report> {
        let shown = image.as_os_str().as_bytes();
        self.start(image, command, access);
        let failed = |error: ServerError| Report::on("cannot open", shown, error);
        let index = self.0.iter().position(|known| known.image == image);
        let started = index.map_or(Err(StartError::Empty.into()), |index| self.0.remove(index).server);
        let mounted = started.and_then(|server| match server {
            Server::Fuse(server) => server.mount(access).map_err(Into::into),
            Server::Nfs(export) => export.mount(access).map_err(Into::into),
        });
        mounted.map(Volume::new).map_err(failed)
    }
}

/// Returns whether the text of a server is the URL of an NFS export.
fn is_export(command: &OsStr) -> bool {
    command.as_bytes().starts_with(b"nfs://")
}

/// Fails if a pattern of the shell in the current directory can have produced the command line of a server, so that it
/// runs the command of another user. The first component of such a text is the name of a file in this directory.
/// While only the user can rename that file, the parser of addresses finds it.
fn expect_own_directory() -> Result<(), ServerError> {
    let is_open = HostDir::open(Path::new(".")).and_then(|dir| dir.is_open_to_others());
    if is_open.unwrap_or(true) { Err(ServerError::Directory) } else { Ok(()) }
}

fn started(command: &OsStr, access: Access) -> Result<Server, ServerError> {
    if is_export(command) {
        Ok(Server::Nfs(Export::open(&NfsAddress::parse(command.as_bytes())?)?))
    } else {
        expect_own_directory()?;
        // This program is the helper, see `helper`.
        let helper = std::env::current_exe().ok();
        Ok(Server::Fuse(FuseServer::start(command, helper.as_deref(), access)?))
    }
}
