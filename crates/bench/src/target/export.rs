//! A directory of an NFS export or of a FUSE server, used by the client of obento in this process.

use std::path::Path;

use obento::Volume;
use obento::driver::Access;
use obento_fuse_source::FuseServer;
use obento_host::HostDir;
use obento_nfs_source::{Export, NfsAddress};

use crate::{BenchError, Result};

/// A directory that a run created.
pub struct ExportFolder {
    address: String,
    /// The path of the directory on the server.
    path: String,
    volume: Volume,
}

fn failed(address: &str, error: &dyn std::fmt::Display) -> BenchError {
    BenchError::Program { program: format!("using {address}"), message: error.to_string() }
}

/// Returns the volume of a server.
pub fn connected(address: &str, access: Access) -> Result<Volume> {
    let failed = |error: &dyn std::fmt::Display| failed(address, error);
    if let Some(command) = address.strip_prefix("fuse:") {
        // As for addresses on the command line of `obento`: a pattern of the shell can produce the name of a file.
        let is_open = HostDir::open(Path::new(".")).and_then(|dir| dir.is_open_to_others());
        if is_open.unwrap_or(true) {
            return Err(failed(&"another user can create files in the current directory"));
        }
        // This program is also the helper that some servers run.
        let helper = std::env::current_exe().ok();
        let server = FuseServer::start(command.as_ref(), helper.as_deref(), access);
        let mounted = server.and_then(|server| server.mount(access));
        return mounted.map(Volume::new).map_err(|error| failed(&error));
    }
    let parsed = NfsAddress::parse(address.as_bytes()).map_err(|error| failed(&error))?;
    let export = Export::open(&parsed).map_err(|error| failed(&error))?;
    export.mount(access).map(Volume::new).map_err(|error| failed(&error))
}

impl ExportFolder {
    /// Creates a directory of this name.
    pub fn create(address: &str, name: &str) -> Result<Self> {
        let volume = connected(address, Access::ReadWrite)?;
        let path = format!("/{name}");
        volume.create_dir(&path).map_err(|error| failed(address, &error))?;
        Ok(Self { address: address.to_owned(), path, volume })
    }

    /// Returns the volume and the path of the directory.
    pub fn files(&self) -> (Volume, &str) {
        (self.volume.clone(), &self.path)
    }

    /// Writes all changes and connects again, without any cached data.
    pub fn reopen(&mut self) -> Result<()> {
        self.volume.close().map_err(|error| failed(&self.address, &error))?;
        self.volume = connected(&self.address, Access::ReadWrite)?;
        Ok(())
    }

    /// Removes the directory of this name, if it exists.
    pub fn remove(address: &str, name: &str) -> Result<()> {
        let volume = connected(address, Access::ReadWrite)?;
        let path = format!("/{name}");
        if volume.exists(&path).is_ok_and(|exists| exists) {
            volume.remove_dir_all(&path).map_err(|error| failed(address, &error))?;
        }
        volume.close().map_err(|error| failed(address, &error))
    }
}

impl Drop for ExportFolder {
    fn drop(&mut self) {
        // The next run with this folder removes what is left.
        let _ = self.volume.remove_dir_all(&self.path).map(|()| self.volume.close());
    }
}
