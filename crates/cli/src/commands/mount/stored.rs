//! The descriptors of a mount that systemd stores while its server runs (`-o failover=systemd`).
//!
//! Invariant: the descriptor of the guard is stored last: without it, nothing that was stored is complete.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use obento_fuse::handover::{Guard, ServiceManager, StoredDescriptor};
use rustix::fs::{MemfdFlags, memfd_create};

/// The names of the descriptors of a guard, in their order. Only the last one may be absent.
pub const NAMES: [&str; 5] =
    ["obento-ledger", "obento-device", "obento-image", "obento-control", "obento-unmount"];
/// The name of the descriptor of a file in memory with the fields of the guard.
const GUARD: &str = "obento-guard";

/// Stores everything that another process needs, and reports that the service has started.
pub fn store(manager: &ServiceManager, guard: &Guard, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut file = File::from(memfd_create(c"obento-guard", MemfdFlags::CLOEXEC)?);
    file.write_all(&guard.encode())?;
    for (name, descriptor) in NAMES.iter().zip(descriptors) {
        manager.store(name, *descriptor)?;
    }
    manager.store(GUARD, file.as_fd())?;
    manager.wait()?;
    manager.report_ready()
}

/// Removes the stored descriptors, so that the connection to the kernel and the image are closed.
pub fn remove_all(manager: &ServiceManager) {
    let removed = [GUARD].iter().chain(&NAMES).try_for_each(|name| manager.remove(name));
    if let Err(error) = removed.and_then(|()| manager.wait()) {
        tracing::error!(%error, "systemd did not close the descriptors of the mount");
    }
}

/// What an earlier process of the service stored.
pub struct Received {
    /// The file with the fields of the guard.
    pub file: File,
    pub guard: Guard,
    pub descriptors: Vec<OwnedFd>,
}

impl Received {
    /// Returns `None` if the descriptors are not complete.
    pub fn among(mut stored: Vec<StoredDescriptor>) -> Option<Self> {
        let mut take = |name: &str| {
            let at = stored.iter().position(|stored| stored.name == name)?;
            Some(stored.swap_remove(at).descriptor)
        };
        let mut file = File::from(take(GUARD)?);
        let descriptors: Vec<_> = NAMES.iter().map_while(|name| take(name)).collect();
        let mut fields = Vec::new();
        // The earlier process has moved the position of the file.
        io::Seek::rewind(&mut file).and_then(|()| file.read_to_end(&mut fields)).ok()?;
        let guard = Guard::decode(&fields).ok()?;
        (descriptors.len() + 1 >= NAMES.len()).then_some(Self { file, guard, descriptors })
    }
}
