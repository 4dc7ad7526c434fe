//! `--upgrade`: takes a mount from its server, which serves it until this process has everything.
//!
//! Order: everything that can fail without the volume; the old server pauses; the volume is opened without writing; the nodes; the old
//! server leaves the mount; rights are given up; requests are served. See `obento_fuse::handover`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

use clap::Parser as _;

use obento::address::Address;
use obento::block::RedoLog;
use obento::driver::{Access, HandoverState};
use obento::image::ImageFile;
use obento_fuse::handover::{
    Claim, Connection, ConnectionError, ControlListener, Hello, Kind, Offer, SessionState, State,
};
use obento_fuse::options::{MountOptions, ReadWrite};
use obento_fuse::{
    Ledger, MountPlace, MountPoint, Pauser, SessionOptions, UnmountListener, resume_session, signals,
};

use super::args::Args;
use super::control::{Origin, PREPARING, volume_id};
use super::janitor::Janitor;
use super::opened::{MountedImage, OpenedMount, SharedDisk};
use super::opening::{self, volume_options};
use super::server;
use super::serving::{self, Service};
use super::{log, own, start};
use crate::cause::Cause;
use crate::context::Context;
use crate::options::GlobalOptions;
use crate::output::Output;
use crate::report::{LIST_MOUNTS, NOT_A_MOUNT, Report, foreign_with_hint, printable};

fn cannot(directory: &Path, cause: impl Cause) -> Report {
    Report::on("cannot replace the server of the mount at", directory.as_os_str().as_bytes(), cause)
}

/// Returns the mount of this program at `directory`.
fn mount_at(directory: &Path) -> Result<MountPoint, Report> {
    let mount = own::mount_at(directory).map_err(|error| cannot(directory, error))?;
    mount.ok_or_else(|| cannot(directory, NOT_A_MOUNT).help(LIST_MOUNTS))
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
    log: Option<File>,
    mount: OfferedMount,
}

/// Whether files that arguments name are opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Files {
    /// The arguments are those of the user.
    Opened,
    /// The arguments are from a server that decodes an image, and cannot open files itself. The open files of the mount
    /// arrive as descriptors.
    Ignored,
}

impl OfferedMount {
    /// Checks whether this program can serve the mount as the other one does.
    pub fn examine(offer: Offer, files: Files, context: &Context) -> Result<Self, String> {
        let (args, context) = parse(&offer, files, context)?;
        let mut options =
            args.mount_options(context.options().shown()).map_err(|report| report.to_string())?;
        options.access = Some(if offer.read_only { ReadWrite::Read } else { ReadWrite::Write });
        let address = Address::parse(args.image()).map_err(|error| Report::plain(error).to_string())?;
        if context.registry().find(&offer.fs_type).is_none() {
            return Err(format!("this program does not support the type {}", offer.fs_type));
        }
        Ok(Self { offer, args, context, options, address })
    }
}

/// Connects to the server of `mount`, and checks whether this program can serve the mount as that one does.
/// The arguments of the server become those of this process, which therefore trusts no server of another user.
fn ask(mount: &MountPoint, is_trial: bool, context: &Context) -> Result<Offered, String> {
    let user = rustix::process::geteuid().as_raw();
    if let Some(owner) = mount.owner().filter(|owner| *owner != user) {
        return Err(format!("the mount belongs to user {owner}\n  help: run this command as that user"));
    }
    let connection = Connection::to_server(mount).map_err(|error| error.to_string())?;
    let refused =
        |error: ConnectionError| format!("the server refuses: {}", foreign_with_hint(&error.to_string()));
    let hello = Hello { build: env!("CARGO_PKG_VERSION").into(), is_trial };
    connection.send(Kind::Hello, &hello.encode(), &[]).map_err(refused)?;
    let message = connection.expect(Kind::Offer).map_err(refused)?;
    let offer = Offer::decode(&message.fields).map_err(|error| error.to_string());
    let log = message.descriptors.into_iter().next().map(File::from);
    match offer.and_then(|offer| OfferedMount::examine(offer, Files::Ignored, context)) {
        Ok(mount) => Ok(Offered { connection, log, mount }),
        Err(why) => {
            connection.refuse(&why);
            Err(why)
        }
    }
}

/// The arguments of `obento mount`.
#[derive(clap::Parser)]
struct MountLine {
    #[command(flatten)]
    global: GlobalOptions,
    #[command(flatten)]
    args: Args,
}

/// Parses the arguments that the other server was started with.
fn parse(offer: &Offer, files: Files, context: &Context) -> Result<(Args, Context), String> {
    let words = offer.arguments.iter().cloned().map(OsString::from_vec);
    let unknown = |_| "this version does not support the arguments of the old server".to_owned();
    let line = MountLine::try_parse_from([OsString::from("mount")].into_iter().chain(words));
    let MountLine { mut global, mut args } = line.map_err(unknown)?;
    if files == Files::Ignored {
        args.log = None;
        // A mount with other files than the image cannot be passed on.
        global.journal = None;
        global.allow_backing = false;
    }
    Ok((args, Context::new(global, context.registry().clone(), context.table())))
}

/// Reports whether the server of the mount at `directory` could be replaced.
pub fn try_out(directory: &Path, context: &Context) -> Result<(), Report> {
    let mount = mount_at(directory)?;
    let offered = ask(&mount, true, context).map_err(|why| cannot(directory, why))?;
    let _ = offered.connection.send(Kind::Ready, &[], &[]);
    let mut out = Output::stdout();
    let shown = printable(directory.as_os_str().as_bytes());
    let printed = writeln!(out, "{shown}: the server can be replaced").and_then(|()| out.flush());
    printed.map_err(|error| cannot(directory, error))
}

/// Takes the mount at `directory`, and serves it until the end.
pub fn take(this: &Args, directory: &Path, context: &Context) -> Result<(), Report> {
    let failed = |error: io::Error| cannot(directory, error);
    signals::hold().map_err(failed)?;
    obento::env::thread::hold_back();
    let mount = mount_at(directory)?;
    let offered = ask(&mount, false, context).map_err(|why| cannot(directory, why))?;
    log::start_in(offered.log).map_err(failed)?;
    let pauser = Pauser::new().map_err(failed)?;
    let place = MountPlace::open(mount).map_err(|error| cannot(directory, error))?;
    let janitor = Janitor::start(&place).map_err(failed)?;
    let null = start::null().map_err(failed)?;
    let claim = Claim::new().map_err(failed)?;
    let refused = |error: ConnectionError| {
        cannot(directory, format!("the old server continues: {}", foreign_with_hint(&error.to_string())))
    };
    let connection = &offered.connection;
    connection.send(Kind::Ready, &[], &[]).map_err(refused)?;
    let message = connection.expect_within(Kind::State, Some(PREPARING)).map_err(refused)?;
    let state = State::decode(&message.fields).map_err(|error| error.to_string());
    let opened = state
        .and_then(|state| open(&offered.mount, place, state, message.descriptors, None, (pauser, janitor)));
    let service = opened.map_err(|why| {
        connection.refuse(&why);
        cannot(directory, why)
    })?;
    connection.send(Kind::Taken, &[], &[claim.as_fd()]).map_err(refused)?;
    connection.expect(Kind::Go).map_err(refused)?;
    if !claim.take() {
        return Err(refused(ConnectionError::Claimed));
    }
    if this.detached {
        start::detach().map_err(failed)?;
    }
    if let Some(unmount) = &service.unmount {
        unmount.take_over();
    }
    // From here on, the input is from the image and from the users of the mount.
    context.confine(service.opened.rights());
    if this.detached {
        start::say_ready(&null).map_err(failed)?;
    }
    // If the other process has ended meanwhile, this one is the only server.
    let _ = connection.send(Kind::Started, &[], &[]);
    let lost = |error| lost(&offered.mount, error);
    if let Some(mounted) = &service.opened.image {
        mounted.handoff.release().map_err(|error| lost(error.to_string()))?;
    }
    serving::run(vec![service]).map_err(lost)
}

/// Reports an error of a server that has taken a mount.
pub fn lost(mount: &OfferedMount, error: String) -> Report {
    server::lost(mount.args.image(), error)
}

/// Opens the volume, and prepares to serve the kernel, without reading a request. Writes nothing, unless the other
/// server has failed: then `ledger` contains its changes.
pub fn open(
    mount: &OfferedMount,
    place: MountPlace,
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
    let mut inodes: Vec<_> = nodes.chain([1]).map(obento::base::Ino).collect();
    inodes.sort_unstable();
    let access = if offer.read_only { Access::ReadOnly } else { Access::ReadWrite };
    let adoption = HandoverState { inodes, state: state.driver };
    let mut volume_options = volume_options(access, options, context);
    volume_options.adopt = Some(Arc::new(adoption));
    volume_options.fs_type = Some(offer.fs_type.clone());
    let processes = opening::processes(options).map_err(|error| error.to_string())?;
    volume_options.recording = opening::recording(processes.clone(), options);
    volume_options.redo = ledger.clone().map(|ledger| -> Arc<dyn RedoLog> { ledger });
    let unopened = |error: obento::OpenError| Report::plain(error).to_string();
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
    if !volume.vfs().can_be_passed_on() {
        return Err(format!("this program cannot continue to use an open {} volume", offer.fs_type));
    }
    let image = Some(MountedImage { image, handoff });
    let opened = OpenedMount { image, volume, processes, ledger, disk: SharedDisk::No };
    let server = opened.server(options);
    let threads = options.threads.unwrap_or(SessionOptions::default().threads);
    let session = SessionOptions { threads, ..SessionOptions::default() };
    let session = resume_session(device, Arc::clone(&server), session, pauser.clone(), &session_state);
    let session = session.map_err(|error| error.to_string())?;
    let arguments = start::arguments(args, context);
    let State { mounted, upgrades, requests, .. } = state;
    let origin = Origin { arguments, mounted, upgrades, requests, failovers: 0 };
    Ok(Service {
        place,
        opened,
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

#[cfg(test)]
mod tests {
    use obento::Registry;

    use super::*;

    #[test]
    fn files_that_the_arguments_of_a_confined_server_name_are_not_opened() {
        let words = ["--log", "/log", "--journal", "/journal", "--allow-backing", "--", "/disk.img", "/mnt"];
        let offer = Offer {
            build: String::new(),
            arguments: words.map(|word| word.as_bytes().to_vec()).to_vec(),
            read_only: false,
            fs_type: "ext4".into(),
            volume_id: String::new(),
            requires_state: false,
        };
        let context = Context::new(GlobalOptions::default(), Registry::empty(), crate::cli::TABLE);
        let parsed = |files| {
            let (args, context) = parse(&offer, files, &context).unwrap();
            let options = context.options();
            (args.log.is_some(), options.journal.is_some(), options.allow_backing)
        };
        assert_eq!(parsed(Files::Opened), (true, true, true));
        assert_eq!(parsed(Files::Ignored), (false, false, false));
    }
}
