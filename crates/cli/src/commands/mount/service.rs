//! A server that systemd restarts after a failure (`-o failover=systemd`).
//!
//! The server stores its descriptors with systemd before it serves the first request. After a failure, the next process
//! of the service receives them, and continues.

use std::os::unix::fs::FileExt as _;

use obento::address::Address;
use obento_fuse::handover::ServiceManager;
use obento_fuse::options::MountOptions;
use obento_fuse::{Unmounter, signals};

use super::args::Args;
use super::failover::{self, Keeper};
use super::server::{self, cannot_serve};
use super::stored::{NAMES, Received, remove_all};
use crate::context::Context;
use crate::report::Report;

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
            }
            server::begin(args)?;
            server::serve_with(args, address, options, Some(Keeper::Service(manager)), context)
        }
    }
}

fn as_bytes(args: &Args) -> &[u8] {
    std::os::unix::ffi::OsStrExt::as_bytes(args.image())
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
