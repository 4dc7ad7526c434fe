//! A server that systemd restarts after a failure (`-o failover=systemd`).
//!
//! The server stores its descriptors with systemd before it serves the first request. After a failure, the next process
//! of the service receives them, and continues. The descriptor of the guard is stored last: without it, nothing that
//! was stored is complete.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use obento::address::Address;
use obento_fuse::handover::{Guard, ServiceManager, StoredDescriptor};
use obento_fuse::options::MountOptions;
use obento_fuse::{Unmounter, signals};
use rustix::fs::{MemfdFlags, memfd_create};

use super::args::Args;
use super::failover::{self, Keeper};
use super::server::{self, cannot_serve};
use crate::context::Context;
use crate::report::Report;

/// The names of the descriptors of a guard, in their order. Only the last one may be absent.
const NAMES: [&str; 5] =
    ["obento-ledger", "obento-device", "obento-image", "obento-control", "obento-unmount"];
/// The name of the descriptor of a file in memory with the fields of the guard.
const GUARD: &str = "obento-guard";

/// Serves a mount as a service of systemd. Continues if an earlier process of the service has failed.
pub fn serve(args: &Args, address: &Address, options: MountOptions, context: &Context) -> Result<(), Report> {
    if !args.foreground {
        let report =
            Report::on("cannot mount", as_bytes(args), "failover=systemd is for a service of systemd");
        return Err(report.help("add --foreground, or use failover without systemd"));
    }
    let received = ServiceManager::received();
    let manager = ServiceManager::connect(NAMES.len() + 1).map_err(|error| {
        let help = "start this command as a service of systemd: Type=notify, FileDescriptorStoreMax=8";
        cannot_serve(args.image(), error).help(help)
    })?;
    match Received::among(received) {
        Some(received) => go_on(received, manager, context),
        None => {
            server::begin(args)?;
            server::serve_with(args, address, options, Some(Keeper::Service(manager)), context)
        }
    }
}

fn as_bytes(args: &Args) -> &[u8] {
    std::os::unix::ffi::OsStrExt::as_bytes(args.image())
}

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
struct Received {
    /// The file with the fields of the guard.
    file: File,
    guard: Guard,
    descriptors: Vec<OwnedFd>,
}

impl Received {
    /// Returns `None` if the descriptors are not complete.
    fn among(mut stored: Vec<StoredDescriptor>) -> Option<Self> {
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

/// Continues after another process of the service has failed, and serves until the end.
fn go_on(received: Received, manager: ServiceManager, context: &Context) -> Result<(), Report> {
    let failed =
        |cause: &dyn std::fmt::Display| Report::new("cannot continue after a failure of the server", cause);
    signals::hold().map_err(|error| failed(&error))?;
    obento::env::thread::hold_back();
    let Received { file, mut guard, descriptors } = received;
    guard.failovers += 1;
    let fields = guard.encode();
    // The next process counts this failure too. The length of the fields does not change.
    let counted = file.write_all_at(&fields, 0).map_err(|error| error.to_string());
    let prepared = counted.and_then(|()| failover::prepare(&fields, descriptors, context));
    let (mount, service) = prepared.map_err(|why| {
        // No other process can continue either. The next one mounts the volume again.
        remove_all(&manager);
        if let Ok(place) = failover::find(&guard) {
            let _ = place.unmount(Unmounter { lazy: true, force: false });
        }
        failed(&why)
    })?;
    manager.report_ready().map_err(|error| failed(&error))?;
    failover::go_on(&mount, service, Keeper::Service(manager), context)
}
