//! The server of a mount: opens the volume ([`opening`](super::opening)), mounts it, serves requests
//! ([`serving`](super::serving)), and writes everything to stable storage at the end.
//!
//! Order: signals are blocked before any thread starts. The volume is opened before anything is mounted, so that its errors are reported
//! at no cost. The kernel has answered, and rights have been given up, before the caller learns that the mount exists and before the first
//! request is served.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use obento::Volume;
use obento::address::Address;
use obento::host::sandbox::Rights;
use obento::host::{HostDir, HostError};
use obento_fuse::handover::ControlListener;
use obento_fuse::options::{MountOptions, ReadWrite};
use obento_fuse::{
    Ledger, MountPlace, MountPoint, Mounted, Pauser, Server, Session, SessionOptions, UnmountListener,
    Unmounter, dirty_limit, mount, open_session, signals,
};
use rustix::io::Errno;

use super::args::Args;
use super::control::Origin;
use super::failover::Keeper;
use super::janitor::Janitor;
use super::opened::OpenedMount;
use super::opening::open;
use super::serving::{Service, run};
use super::status::now;
use super::{log, start};
use crate::cause::Cause;
use crate::context::Context;
use crate::output::of_output;
use crate::report::{Report, shell_word};

/// The image and the directory of a mount, as messages show them.
pub struct Site<'a> {
    pub image: &'a OsStr,
    pub directory: &'a HostDir,
}

/// Mounts and serves until the end.
pub fn serve(args: &Args, address: &Address, options: MountOptions, context: &Context) -> Result<(), Report> {
    begin(args)?;
    let keeper = args.kept.then(Keeper::at_stdin).transpose();
    serve_with(args, address, options, keeper.map_err(|error| cannot_serve(args.image(), error))?, context)
}

/// Like [`serve`], after [`begin`], with a keeper or without one.
pub fn serve_with(
    args: &Args,
    address: &Address,
    mut options: MountOptions,
    keeper: Option<Keeper>,
    context: &Context,
) -> Result<(), Report> {
    let failed = |error: io::Error| cannot_serve(args.image(), error);
    let ledger = keeper.as_ref().map(|_| Ledger::new()).transpose().map_err(failed)?.map(Arc::new);
    // A mount point that does not exist must not leave a volume that was not unmounted.
    let directory = open_directory(args)?;
    let opened = open(args, address, &mut options, ledger, context)?;
    let volume = opened.volume.clone();
    let mounted = || {
        let site = Site { image: args.image(), directory: &directory };
        let service = service(args, &site, opened, &options, context)?;
        drop(directory);
        settle(args, vec![service], keeper, context)
    };
    let services = close_after_failure(&[volume], mounted())?;
    run(services).map_err(|error| lost(args.image(), error))
}

/// Passes the mount to the keeper, gives up all rights except serving the mounts, and reports to the caller that they
/// exist. Ends all mounts if that fails. A keeper has one mount.
pub fn settle(
    args: &Args,
    mut services: Vec<Service>,
    keeper: Option<Keeper>,
    context: &Context,
) -> Result<Vec<Service>, Report> {
    match prepare_to_serve(args, &mut services, keeper, context) {
        Ok(()) => Ok(services),
        Err(error) => {
            services.into_iter().for_each(Service::give_up);
            Err(cannot_serve(args.image(), error))
        }
    }
}

fn prepare_to_serve(
    args: &Args,
    services: &mut [Service],
    keeper: Option<Keeper>,
    context: &Context,
) -> io::Result<()> {
    if let Some((service, keeper)) = services.first_mut().zip(keeper) {
        keeper.guard(service)?;
        service.keeper = Some(Arc::new(keeper));
    }
    let null = start::null()?;
    if args.detached {
        start::detach()?;
    }
    // From here on, the input is from the image and from the users of the mounts.
    context.confine(services.first().map_or(Rights::Serve, |service| service.opened.rights()));
    if args.detached {
        start::say_ready(&null)?;
    }
    Ok(())
}

/// Closes the volumes if they could not be mounted, since an open volume is marked as one that needs a check or
/// recovery.
pub fn close_after_failure<T>(volumes: &[Volume], mounted: Result<T, Report>) -> Result<T, Report> {
    if mounted.is_err() {
        for volume in volumes {
            if let Err(error) = volume.close() {
                tracing::error!(%error, "the volume cannot be closed");
            }
        }
    }
    mounted
}

/// Blocks the signals that end a server, holds back threads until rights are given up, and starts the log.
pub fn begin(args: &Args) -> Result<(), Report> {
    obento::env::thread::hold_back();
    signals::hold().map_err(|error| cannot_serve(args.image(), error))?;
    log::start(args.log.as_deref()).map_err(|error| {
        let path = args.log.as_deref().unwrap_or(Path::new("")).as_os_str();
        let errno = error.raw_os_error().map(Errno::from_raw_os_error);
        let report = Report::on("cannot write the log", path.as_bytes(), error);
        match errno {
            Some(errno) => of_output(report, Path::new(path), errno),
            None => report,
        }
    })
}

pub fn cannot_serve(image: &OsStr, error: io::Error) -> Report {
    Report::on("cannot serve", image.as_bytes(), error)
}

/// Returns the report that the changes of a mount are lost.
pub fn lost(image: &OsStr, error: String) -> Report {
    let advice = crate::report::to_close_because(&error);
    Report::on("cannot write the changes to stable storage in", image.as_bytes(), error).help(advice)
}

/// Mounts an open volume, and prepares to serve it.
pub fn service(
    args: &Args,
    site: &Site<'_>,
    opened: OpenedMount,
    options: &MountOptions,
    context: &Context,
) -> Result<Service, Report> {
    let failed = |error: io::Error| cannot_serve(site.image, error);
    // The kernel could not unmount a volume whose root is not a directory.
    opened.volume.vfs().expect_root().map_err(|error| {
        let report = cannot_mount(site.image, site.directory.path(), &error);
        let image = shell_word(site.image.as_bytes());
        report.help(format!(
            "run 'obento check {image}' to list the damage, and 'obento check -y {image}' to repair it"
        ))
    })?;
    let arguments = start::arguments(args, context);
    let pauser = Pauser::new().map_err(failed)?;
    let Greeted { place, session, server } = greet(site, &opened, options, &pauser)?;
    let janitor = Janitor::start(&place).map_err(|error| {
        let _ = place.unmount(Unmounter { lazy: true, force: false });
        failed(error)
    })?;
    let listening =
        |mount: &MountPoint| Ok((UnmountListener::listen(mount)?, ControlListener::listen(mount)?));
    let (unmount, control) = match listening(place.mount()) {
        Ok((unmount, control)) => (Some(unmount), Some(control)),
        Err(error) => {
            let error: io::Error = error;
            context.note(
                site.image.as_bytes(),
                format!("'obento umount' cannot wait until the changes are written: {error}"),
            );
            (None, None)
        }
    };
    let origin = Origin { arguments, mounted: now(), upgrades: 0, requests: 0, failovers: 0 };
    Ok(Service { place, opened, server, session, pauser, janitor, unmount, control, origin, keeper: None })
}

/// A mount whose requests wait to be served.
struct Greeted {
    place: MountPlace,
    session: Box<dyn Session>,
    server: Arc<Server>,
}

/// Opens the directory of a mount. It is not found by its path again, which other users may be able to change.
pub fn open_directory(args: &Args) -> Result<HostDir, Report> {
    HostDir::open(args.directory()).map_err(|error| match error {
        HostError::System { errno, .. } => {
            let directory = args.directory().as_os_str().as_bytes();
            let shown = shell_word(directory);
            Report::on("cannot mount at", directory, io::Error::from(errno)).help(match errno {
                Errno::NOENT => format!("create the directory first: mkdir -p {shown}"),
                Errno::ACCESS => {
                    format!("choose another directory: 'ls -ld {shown}' shows its owner and mode")
                }
                Errno::NOTCONN => {
                    let why = "the server of an earlier mount has ended";
                    format!("{why}; end that mount first: obento umount {shown}")
                }
                _ => "name an existing directory".to_owned(),
            })
        }
        error => Report::plain(error),
    })
}

fn cannot_mount(image: &OsStr, directory: &Path, error: &dyn Cause) -> Report {
    let [image, directory] =
        [image, directory.as_os_str()].map(|name| crate::report::subject(name.as_bytes()));
    Report::new(format!("cannot mount {image} at {directory}"), error)
}

/// Mounts, and negotiates the protocol with the kernel.
fn greet(
    site: &Site<'_>,
    opened: &OpenedMount,
    options: &MountOptions,
    pauser: &Pauser,
) -> Result<Greeted, Report> {
    let failed = |error: &dyn Cause| cannot_mount(site.image, site.directory.path(), error);
    let read_only = options.access == Some(ReadWrite::Read);
    let server = opened.server(options);
    let source = options.fs_name.clone().unwrap_or_else(|| start::absolute_image(site.image));
    let mounted = mount(site.directory.as_fd(), &source, options);
    let mounted = mounted.map_err(|error| failed(&error))?;
    let defaults = SessionOptions::default();
    let Mounted { device, place } = mounted;
    let session = SessionOptions {
        threads: options.threads.unwrap_or(defaults.threads),
        writeback: options.writeback && !read_only,
        dirty_limit: dirty_limit(&place.mount().device),
        io_uring: options.io_uring,
    };
    let session = open_session(device, Arc::clone(&server), session, pauser.clone()).map_err(|error| {
        let _ = place.unmount(Unmounter { lazy: true, force: false });
        failed(&error)
    })?;
    Ok(Greeted { place, session, server })
}
