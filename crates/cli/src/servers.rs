//! FUSE servers, whose files commands read, and NFS exports, whose files commands also change.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use obento::Volume;
use obento::driver::Access;
use obento_fuse_source::{FuseServer, StartError};
use obento_nfs_source::{AddressError, Export, MountError, NfsAddress};

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
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error(transparent)]
    Address(#[from] AddressError),
}

/// The servers that were started and not asked anything yet.
#[derive(Default)]
pub struct Servers(Vec<(PathBuf, Result<Server, ServerError>)>);

impl Servers {
    /// Starts the server that `image` names, or connects to it, before the process gives up the right to do so.
    pub fn start(&mut self, image: &Path, command: &OsStr) {
        if self.0.iter().all(|(known, _)| known != image) {
            self.0.push((image.to_owned(), started(command)));
        }
    }

    /// Returns the volume of the server that `image` names, and starts the server if it does not run.
    ///
    /// # Errors
    ///
    /// The server cannot be used, or files of a FUSE server are to be changed.
    pub fn volume(&mut self, image: &Path, command: &OsStr, access: Access) -> Result<Volume, Report> {
        let shown = image.as_os_str().as_bytes();
        if access == Access::ReadWrite && !is_export(command) {
            let report = Report::on("cannot change", shown, "files of a FUSE server can only be read");
            return Err(report.help("mount the server and change the files there"));
        }
        self.start(image, command);
        let failed = |error: ServerError| Report::on("cannot open", shown, error);
        let index = self.0.iter().position(|(known, _)| known == image);
        let started = index.map_or(Err(StartError::Empty.into()), |index| self.0.remove(index).1);
        let mounted = started.and_then(|server| match server {
            Server::Fuse(server) => server.mount().map_err(Into::into),
            Server::Nfs(export) => export.mount(access).map_err(Into::into),
        });
        mounted.map(Volume::new).map_err(failed)
    }
}

/// Returns whether the text of a server is the URL of an NFS export.
fn is_export(command: &OsStr) -> bool {
    command.as_bytes().starts_with(b"nfs://")
}

fn started(command: &OsStr) -> Result<Server, ServerError> {
    if is_export(command) {
        Ok(Server::Nfs(Export::open(&NfsAddress::parse(command.as_bytes())?)?))
    } else {
        // This program is the helper, see `helper`.
        let helper = std::env::current_exe().ok();
        Ok(Server::Fuse(FuseServer::start(command, helper.as_deref())?))
    }
}
