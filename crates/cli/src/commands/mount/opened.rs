//! An open volume that is to be mounted.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use obento::block::Handoff;
use obento::host::sandbox::Rights;
use obento::{Image, Volume};
use obento_fuse::options::{MountOptions, ReadWrite};
use obento_fuse::{Ledger, Processes, Server, ServerOptions};

/// An open volume, and what another process needs to open it.
pub struct OpenedMount {
    /// The image; `None` for the files of a file server.
    pub image: Option<MountedImage>,
    pub volume: Volume,
    /// The processes that use the mount, if the history of the volume is recorded.
    pub processes: Option<Arc<Processes>>,
    /// Whether this process has mounted other volumes of the disk.
    pub disk: SharedDisk,
    /// The state that survives a failure of this process.
    pub ledger: Option<Arc<Ledger>>,
}

impl OpenedMount {
    /// Returns the rights that serving the mount needs.
    pub fn rights(&self) -> Rights<'_> {
        match &self.processes {
            Some(processes) => Rights::ServeProcesses(processes.as_fd()),
            None => Rights::Serve,
        }
    }

    /// Returns a server for the volume.
    pub fn server(&self, options: &MountOptions) -> Arc<Server> {
        let server = Server::new(self.volume.vfs().clone(), server_options(options));
        let server = match self.volume.recorded().cloned().zip(self.processes.clone()) {
            Some((recorded, processes)) => server.with_recorder(recorded, processes),
            None => server,
        };
        Arc::new(match &self.ledger {
            Some(ledger) => server.with_ledger(Arc::clone(ledger)),
            None => server,
        })
    }
}

/// An image whose file another process can take over.
pub struct MountedImage {
    pub image: Image,
    pub handoff: Arc<Handoff>,
}

/// Whether a process serves several volumes of one disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharedDisk {
    No,
    Yes,
}

/// Returns the options of a server whose access is known.
fn server_options(options: &MountOptions) -> ServerOptions {
    let read_only = options.access == Some(ReadWrite::Read);
    ServerOptions {
        read_only,
        sync: options.sync,
        atime: options.atime,
        fakeroot: options.fakeroot,
        has_limits: !options.limits.is_empty(),
    }
}
