//! A server with a keeper (`-o failover`): what it sends to the keeper, and how it continues after another server has
//! failed.
//!
//! The keeper is connected to the standard input of the server. See `obento_fuse::handover::Guard`.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

use obento::ImageFile;
use obento::sandbox::Rights;
use obento_fuse::handover::{Connection, Guard, Kind, Offer, State};
use obento_fuse::{Ledger, Pauser, UnmountListener, signals};

use super::control::offer;
use super::janitor::Janitor;
use super::server::{self, Service};
use super::upgrade::{OfferedMount, lost, open};
use super::{log, start};
use crate::context::Context;
use crate::report::Report;

/// The connection of a server to its keeper. If the keeper has ended, the messages have no effect.
#[derive(Debug)]
pub struct Keeper(Connection);

impl Keeper {
    /// Takes the connection from the standard input, so that no started program inherits it.
    pub fn at_stdin() -> io::Result<Self> {
        let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        rustix::stdio::dup2_stdin(start::null()?)?;
        Ok(Self(Connection::new(socket)))
    }

    /// Passes to the keeper everything that another server needs. No request has been read.
    pub fn guard(&self, service: &Service) -> io::Result<()> {
        let Service { path, opened, session, control, unmount, origin, .. } = service;
        let other = |error: &dyn std::fmt::Display| io::Error::other(error.to_string());
        let (Some(ledger), Some(control)) = (&opened.ledger, control) else {
            return Err(io::Error::other("the sockets of the mount cannot be created"));
        };
        let driver = opened.volume.vfs().prepare_handover().map_err(|error| other(&error))?;
        let image = ImageFile::file_of(&**opened.image.device())?;
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
            path: path.as_os_str().as_bytes().to_vec(),
            failovers: 0,
        };
        let mut descriptors = vec![ledger.as_fd(), session.device(), image.as_fd(), control.as_fd()];
        if let Some((listener, waiting)) = unmount.as_ref().map(UnmountListener::descriptors) {
            descriptors.push(listener);
            descriptors.extend(waiting);
        }
        self.0.send(Kind::Guard, &guard.encode(), &descriptors).map_err(|error| other(&error))
    }

    /// Reports that the mount ends, and waits until the keeper has closed the image.
    pub fn end(&self) {
        if self.0.send(Kind::Ended, &[], &[]).is_ok() {
            let _ = self.0.expect(Kind::Go);
        }
    }
}

/// Continues after another server has failed, and serves until the end.
pub fn revive(context: &Context) -> Result<(), Report> {
    let failed =
        |cause: &dyn std::fmt::Display| Report::new("cannot continue after a failure of the server", cause);
    signals::hold().map_err(|error| failed(&error))?;
    let keeper = Keeper::at_stdin().map_err(|error| failed(&error))?;
    let (mount, mut service) = prepare(&keeper.0, context).map_err(|why| {
        keeper.0.refuse(&why);
        failed(&why)
    })?;
    service.keeper = Some(Arc::new(keeper));
    start::detach().map_err(|error| failed(&error))?;
    // From here on, the input is from the image and from the users of the mount.
    context.confine(Rights::Serve);
    tracing::warn!("this server continues after a failure of another one");
    server::run(vec![service]).map_err(|error| lost(&mount, error))
}

fn prepare(keeper: &Connection, context: &Context) -> Result<(OfferedMount, Service), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let message = keeper.expect(Kind::Guard).map_err(|error| text(&error))?;
    let guard = Guard::decode(&message.fields).map_err(|error| text(&error))?;
    let state = State::decode(&guard.state).map_err(|error| text(&error))?;
    let offer = Offer::decode(&guard.offer).map_err(|error| text(&error))?;
    let mount = OfferedMount::examine(offer, context)?;
    log::start(mount.args.log.as_deref()).map_err(|error| text(&error))?;
    let pauser = Pauser::new().map_err(|error| text(&error))?;
    let path = PathBuf::from(std::ffi::OsString::from_vec(guard.path));
    let janitor = Janitor::start(&path).map_err(|error| text(&error))?;
    let mut descriptors = message.descriptors;
    if descriptors.is_empty() {
        return Err("a descriptor is missing".into());
    }
    let ledger = Ledger::open(descriptors.remove(0)).map_err(|error| text(&error))?;
    let mut service = open(&mount, &path, state, descriptors, Some(Arc::new(ledger)), (pauser, janitor))?;
    service.origin.failovers = guard.failovers;
    Ok((mount, service))
}
