//! A server with a keeper (`-o failover`): what it sends to the keeper, and how it continues after another server has
//! failed.
//!
//! The keeper is connected to the standard input of the server, or is systemd. See `obento_fuse::handover::Guard`.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use obento::host::sandbox::Rights;
use obento::image::ImageFile;
use obento_fuse::handover::{Connection, Guard, Kind, Offer, ServiceManager, State};
use obento_fuse::{Ledger, MountError, MountPlace, Pauser, UnmountListener, signals};

use super::control::offer;
use super::janitor::Janitor;
use super::serving::{self, Service};
use super::upgrade::{Files, OfferedMount, lost, open};
use super::{log, own, start, stored};
use crate::cause::Cause;
use crate::context::Context;
use crate::report::Report;

/// The keeper of a server. If the keeper has ended, the messages have no effect.
#[derive(Debug)]
pub enum Keeper {
    /// A process of this program.
    Process(Connection),
    /// systemd, which stores descriptors of the service.
    Service(ServiceManager),
}

impl Keeper {
    /// Takes the connection from the standard input, so that no started program inherits it.
    pub fn at_stdin() -> io::Result<Self> {
        let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        rustix::stdio::dup2_stdin(start::null()?)?;
        Ok(Self::Process(Connection::new(socket)))
    }

    /// Passes to the keeper everything that another server needs. No request has been read.
    pub fn guard(&self, service: &Service) -> io::Result<()> {
        let Service { place, opened, session, control, unmount, origin, .. } = service;
        let other = |error: &dyn std::fmt::Display| io::Error::other(error.to_string());
        let (Some(ledger), Some(control)) = (&opened.ledger, control) else {
            return Err(io::Error::other("the sockets of the mount cannot be created"));
        };
        let driver = opened.volume.vfs().prepare_handover().map_err(|error| other(&error))?;
        let image = opened.image.as_ref().ok_or_else(|| io::Error::other("the mount has no image"))?;
        let image = ImageFile::file_of(&**image.image.device())?;
        let state = State {
            session: session.export().encode(),
            driver,
            mounted: origin.mounted,
            upgrades: origin.upgrades,
            requests: origin.requests,
            has_unmount_socket: unmount.is_some(),
        };
        let guard = Guard {
            offer: offer(&opened.volume, false, &origin.arguments).encode(),
            state: state.encode(),
            path: place.mount().path.as_os_str().as_bytes().to_vec(),
            device: place.mount().device.clone(),
            failovers: 0,
        };
        let mut descriptors = vec![ledger.as_fd(), session.device(), image.as_fd(), control.as_fd()];
        if let Some((listener, waiting)) = unmount.as_ref().map(UnmountListener::descriptors) {
            descriptors.push(listener);
            descriptors.extend(waiting);
        }
        match self {
            Self::Process(keeper) => {
                keeper.send(Kind::Guard, &guard.encode(), &descriptors).map_err(|error| other(&error))
            }
            // Descriptors that systemd keeps would lock the image.
            Self::Service(manager) => {
                stored::store(manager, &guard, &descriptors).inspect_err(|_| stored::remove_all(manager))
            }
        }
    }

    /// Reports that the mount ends, and waits until the keeper has closed the image.
    pub fn end(&self) {
        match self {
            Self::Process(keeper) => {
                if keeper.send(Kind::Ended, &[], &[]).is_ok() {
                    let _ = keeper.expect(Kind::Go);
                }
            }
            Self::Service(manager) => stored::remove_all(manager),
        }
    }
}

/// Continues after another server has failed, and serves until the end.
pub fn revive(context: &Context) -> Result<(), Report> {
    let failed = |cause: &dyn Cause| Report::new("cannot continue after a failure of the server", cause);
    signals::hold().map_err(|error| failed(&error))?;
    obento::env::thread::hold_back();
    let keeper = Keeper::at_stdin().map_err(|error| failed(&error))?;
    let Keeper::Process(connection) = &keeper else { return Ok(()) };
    let prepared = connection.expect(Kind::Guard).map_err(|error| error.to_string());
    let prepared = prepared.and_then(|message| prepare(&message.fields, message.descriptors, context));
    let (mount, service) = prepared.map_err(|why| {
        connection.refuse(&why);
        failed(&why)
    })?;
    start::detach().map_err(|error| failed(&error))?;
    go_on(&mount, service, keeper, context)
}

/// Serves a mount whose server has failed until the end.
pub fn go_on(
    mount: &OfferedMount,
    mut service: Service,
    keeper: Keeper,
    context: &Context,
) -> Result<(), Report> {
    service.keeper = Some(Arc::new(keeper));
    if let Some(unmount) = &service.unmount {
        unmount.take_over();
    }
    // From here on, the input is from the image and from the users of the mount.
    context.confine(Rights::Serve);
    tracing::warn!("this server continues after a failure of another one");
    serving::run(vec![service]).map_err(|error| lost(mount, error))
}

/// Opens the place of the mount. A directory above it may have been renamed, and the volume may be bound elsewhere too.
pub fn find(guard: &Guard) -> Result<MountPlace, MountError> {
    let mut mounts = own::mounts();
    mounts.retain(|mount| mount.device == guard.device);
    mounts.sort_by_key(|mount| mount.path.as_os_str().as_bytes() != guard.path);
    MountPlace::open(mounts.into_iter().next().ok_or(MountError::Moved)?)
}

/// Opens the volume for a server that continues. `fields` and `descriptors` are those of [`Kind::Guard`].
pub fn prepare(
    fields: &[u8],
    mut descriptors: Vec<OwnedFd>,
    context: &Context,
) -> Result<(OfferedMount, Service), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let guard = Guard::decode(fields).map_err(|error| text(&error))?;
    let state = State::decode(&guard.state).map_err(|error| text(&error))?;
    let offer = Offer::decode(&guard.offer).map_err(|error| text(&error))?;
    // The keeper got the guard before the first server decoded a request.
    let mount = OfferedMount::examine(offer, Files::Opened, context)?;
    log::start(mount.args.log.as_deref()).map_err(|error| text(&error))?;
    let pauser = Pauser::new().map_err(|error| text(&error))?;
    let place = find(&guard).map_err(|error| text(&error))?;
    let janitor = Janitor::start(&place).map_err(|error| text(&error))?;
    if descriptors.is_empty() {
        return Err("a descriptor is missing".into());
    }
    let ledger = Ledger::open(descriptors.remove(0)).map_err(|error| text(&error))?;
    let mut service = open(&mount, place, state, descriptors, Some(Arc::new(ledger)), (pauser, janitor))?;
    service.origin.failovers = guard.failovers;
    Ok((mount, service))
}
