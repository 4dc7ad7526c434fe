//! A server that systemd restarts after a failure (`-o failover=systemd`).
//!
//! The server stores its descriptors with systemd before it serves the first request. After a failure, the next process
//! of the service receives them, and continues.

use std::os::unix::fs::FileExt as _;

use obento::address::Address;
use obento_fuse::handover::ServiceManager;
use obento_fuse::options::MountOptions;
use obento_fuse::{MountPlace, Unmounter, signals};
use rustix::io::Errno;

use super::args::Args;
use super::failover::{self, Keeper};
use super::own;
use super::server::{self, cannot_serve};
use super::stored::{NAMES, Received, remove_all};
use crate::cause::Cause;
use crate::context::Context;
use crate::report::Report;

/// Detaches a mount that no process serves.
const LAZY: Unmounter = Unmounter { lazy: true, force: false };

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
    let is_first = received.is_empty();
    match Received::among(received) {
        Some(received) => go_on(received, manager, context),
        None => {
            if !is_first {
                // A process failed before it had stored everything. What systemd keeps would lock the image.
                remove_all(&manager);
                detach_dead(args);
            }
            server::begin(args)?;
            server::serve_with(args, address, options, Some(Keeper::Service(manager)), context)
        }
    }
}

/// Detaches the mount of an earlier process of the service, whose connection is closed.
fn detach_dead(args: &Args) {
    let is_dead = rustix::fs::stat(args.directory()).is_err_and(|errno| errno == Errno::NOTCONN);
    if is_dead
        && let Ok(Some(mount)) = own::mount_at(args.directory())
        && let Err(error) = MountPlace::open(mount).and_then(|place| place.unmount(LAZY))
    {
        tracing::error!(%error, "the earlier mount cannot be detached");
    }
}

fn as_bytes(args: &Args) -> &[u8] {
    std::os::unix::ffi::OsStrExt::as_bytes(args.image())
}

/// Continues after another process of the service has failed, and serves until the end.
fn go_on(received: Received, manager: ServiceManager, context: &Context) -> Result<(), Report> {
    let failed = |cause: &dyn Cause| Report::new("cannot continue after a failure of the server", cause);
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
            let _ = place.unmount(LAZY);
        }
        failed(&why)
    })?;
    manager.report_ready().map_err(|error| failed(&error))?;
    failover::go_on(&mount, service, Keeper::Service(manager), context)
}
