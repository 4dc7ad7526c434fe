//! `--upgrade`: takes a mount from its server, which serves it until this process has everything.
//!
//! Order: everything that can fail without the volume; the old server pauses; the volume is opened without writing; the nodes; the old
//! server leaves the mount; rights are given up; requests are served. See `obento_fuse::handover`.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

use obento::driver::HandoverState;
use obento::sandbox::Rights;
use obento::{Access, Address, ImageFile, RedoLog};
use obento_fuse::handover::{
    Connection, ConnectionError, ControlListener, Hello, Kind, Offer, SessionState, State,
};
use obento_fuse::options::{MountOptions, ReadWrite};
use obento_fuse::{
    Ledger, MountPoint, Pauser, Server, SessionOptions, UnmountListener, find_mount, resume_session, signals,
};

use super::control::{Origin, PREPARING, volume_id};
use super::janitor::Janitor;
use super::server::{self, OpenedMount, Service, SharedDisk, server_options, volume_options};
use super::{Args, FS_TYPE, log, start};
use crate::commands::Command;
use crate::context::Context;
use crate::report::Report;

fn cannot(directory: &Path, cause: impl std::fmt::Display) -> Report {
    Report::on("cannot replace the server of the mount at", directory.as_os_str().as_bytes(), cause)
}

/// Returns the mount of this program at `directory`.
fn mount_at(directory: &Path) -> Result<MountPoint, Report> {
    let path = directory.canonicalize().map_err(|error| cannot(directory, error))?;
    let mount = find_mount(&path).filter(|mount| mount.fs_type == FS_TYPE);
    mount.ok_or_else(|| cannot(directory, "it is not a mount of obento"))
}

/// A mount that another server offers, and how it serves the mount.
pub struct OfferedMount {
    offer: Offer,
    pub args: Args,
    context: Context,
    options: MountOptions,
    address: Address,
}

/// A server that offers its mount.
struct Offered {
    connection: Connection,
    mount: OfferedMount,
}

impl OfferedMount {
    /// Checks whether this program can serve the mount as the other one does.
    pub fn examine(offer: Offer, context: &Context) -> Result<Self, String> {
        let (args, context) = parse(&offer, context)?;
        let mut options =
            args.mount_options(context.options().shown()).map_err(|report| report.to_string())?;
        options.access = Some(if offer.read_only { ReadWrite::Read } else { ReadWrite::Write });
        let address = Address::parse(args.image()).map_err(|error| error.to_string())?;
        if context.registry().find(&offer.fs_type).is_none() {
            return Err(format!("this program does not support the type {}", offer.fs_type));
        }
        Ok(Self { offer, args, context, options, address })
    }
}

/// Connects to the server of `mount`, and checks whether this program can serve the mount as that one does.
fn ask(mount: &MountPoint, is_trial: bool, context: &Context) -> Result<Offered, String> {
    let connection = Connection::to_server(mount).map_err(|error| error.to_string())?;
    let refused = |error: ConnectionError| format!("its server refuses: {error}");
    let hello = Hello { build: env!("CARGO_PKG_VERSION").into(), is_trial };
    connection.send(Kind::Hello, &hello.encode(), &[]).map_err(refused)?;
    let message = connection.expect(Kind::Offer).map_err(refused)?;
    let offer = Offer::decode(&message.fields).map_err(|error| error.to_string());
    match offer.and_then(|offer| OfferedMount::examine(offer, context)) {
        Ok(mount) => Ok(Offered { connection, mount }),
        Err(why) => {
            connection.refuse(&why);
            Err(why)
        }
    }
}

/// Parses the arguments that the other server was started with.
fn parse(offer: &Offer, context: &Context) -> Result<(Args, Context), String> {
    let words = offer.arguments.iter().cloned().map(OsString::from_vec);
    let words = ["obento".into(), "mount".into()].into_iter().chain(words);
    let unknown = |_| "its arguments are not known to this version".to_owned();
    let (global, command) = crate::cli::parse(words).map_err(unknown)?.into_parts();
    match command {
        Command::Mount(args) => Ok((args, Context::new(global, context.registry().clone()))),
        _ => Err("its arguments are not those of a mount".into()),
    }
}

/// Reports whether the server of the mount at `directory` could be replaced.
pub fn try_out(directory: &Path, context: &Context) -> Result<(), Report> {
    let mount = mount_at(directory)?;
    let offered = ask(&mount, true, context).map_err(|why| cannot(directory, why))?;
    let _ = offered.connection.send(Kind::Ready, &[], &[]);
    Ok(())
}

/// Takes the mount at `directory`, and serves it until the end.
pub fn take(this: &Args, directory: &Path, context: &Context) -> Result<(), Report> {
    let failed = |error: io::Error| cannot(directory, error);
    signals::hold().map_err(failed)?;
    let mount = mount_at(directory)?;
    let offered = ask(&mount, false, context).map_err(|why| cannot(directory, why))?;
    log::start(offered.mount.args.log.as_deref()).map_err(failed)?;
    let pauser = Pauser::new().map_err(failed)?;
    let janitor = Janitor::start(&mount.path).map_err(failed)?;
    let null = start::null().map_err(failed)?;
    let refused = |error: ConnectionError| cannot(directory, format!("its server keeps it: {error}"));
    let connection = &offered.connection;
    connection.send(Kind::Ready, &[], &[]).map_err(refused)?;
    let message = connection.expect_within(Kind::State, Some(PREPARING)).map_err(refused)?;
    let state = State::decode(&message.fields).map_err(|error| error.to_string());
    let opened = state.and_then(|state| {
        open(&offered.mount, &mount.path, state, message.descriptors, None, (pauser, janitor))
    });
    let service = opened.map_err(|why| {
        connection.refuse(&why);
        cannot(directory, why)
    })?;
    connection.send(Kind::Taken, &[], &[]).map_err(refused)?;
    connection.expect(Kind::Go).map_err(refused)?;
    if this.detached {
        start::detach().and_then(|()| start::say_ready_over(&null)).map_err(failed)?;
    }
    // From here on, the input is from the image and from the users of the mount.
    context.confine(Rights::Serve);
    // If the other process has ended meanwhile, this one is the only server.
    let _ = connection.send(Kind::Started, &[], &[]);
    let lost = |error| lost(&offered.mount, error);
    service.opened.handoff.release().map_err(|error| lost(error.to_string()))?;
    server::run(vec![service]).map_err(lost)
}

/// Reports an error of a server that has taken a mount.
pub fn lost(mount: &OfferedMount, error: String) -> Report {
    server::lost(mount.args.image(), error)
}

/// Opens the volume, and prepares to serve the kernel, without reading a request. Writes nothing, unless the other
/// server has failed: then `ledger` contains its changes.
pub fn open(
    mount: &OfferedMount,
    path: &Path,
    state: State,
    descriptors: Vec<OwnedFd>,
    ledger: Option<Arc<Ledger>>,
    (pauser, janitor): (Pauser, Janitor),
) -> Result<Service, String> {
    let OfferedMount { offer, args, context, options, address } = mount;
    let mut session_state = SessionState::decode(&state.session).map_err(|error| error.to_string())?;
    if let Some(ledger) = &ledger {
        session_state.nodes = ledger.nodes();
    }
    let mut descriptors = descriptors.into_iter();
    let mut next = || descriptors.next().ok_or("a descriptor is missing");
    let (device, image, control): (OwnedFd, OwnedFd, OwnedFd) = (next()?, next()?, next()?);
    let unmount = if state.has_unmount_socket { Some(next()?) } else { None };
    let unmount = unmount.map(|listener| UnmountListener::adopt(listener, descriptors.collect()));
    let unmount = unmount.transpose().map_err(|error| error.to_string())?;
    // A node ID is an inode number, except for that of the root, which stands for the inode 1.
    let nodes = session_state.nodes.iter().map(|node| node.id);
    let mut inodes: Vec<_> = nodes.chain([1]).map(obento::Ino).collect();
    inodes.sort_unstable();
    let access = if offer.read_only { Access::ReadOnly } else { Access::ReadWrite };
    let adoption = HandoverState { inodes, state: state.driver };
    let mut volume_options = volume_options(access, options, context);
    volume_options.adopt = Some(Arc::new(adoption));
    volume_options.fs_type = Some(offer.fs_type.clone());
    volume_options.redo = ledger.clone().map(|ledger| -> Arc<dyn RedoLog> { ledger });
    let unopened = |error: obento::OpenError| error.to_string();
    let (file, handoff) = ImageFile::adopt(image, &address.image, &volume_options).map_err(unopened)?;
    if ledger.is_some() {
        // This is the only server.
        handoff.release().map_err(|error| error.to_string())?;
    }
    let image = file.decode(context.registry()).map_err(unopened)?;
    let volume = image.volume(address.part.as_ref()).map_err(unopened)?;
    if volume_id(&volume) != offer.volume_id {
        return Err("the image contains another volume".into());
    }
    let server = Server::new(&volume, server_options(options));
    let server = Arc::new(match &ledger {
        Some(ledger) => server.with_ledger(Arc::clone(ledger)),
        None => server,
    });
    let threads = options.threads.unwrap_or(SessionOptions::default().threads);
    let session = SessionOptions { threads, ..SessionOptions::default() };
    let session = resume_session(device, Arc::clone(&server), session, pauser.clone(), &session_state);
    let session = session.map_err(|error| error.to_string())?;
    let arguments = start::arguments(args, context);
    let State { mounted, upgrades, requests, .. } = state;
    let origin = Origin { arguments, mounted, upgrades, requests, failovers: 0 };
    Ok(Service {
        path: path.to_owned(),
        opened: OpenedMount { image, volume, handoff, processes: None, ledger, disk: SharedDisk::No },
        server,
        session,
        pauser,
        janitor,
        unmount,
        control: Some(ControlListener::adopt(control)),
        origin,
        keeper: None,
    })
}
