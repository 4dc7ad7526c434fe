//! The server of a mount: opens the volume, mounts it, serves requests, and writes everything to stable storage at the end.
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
use std::sync::mpsc;

use obento::address::{Address, FileSelector};
use obento::base::Feature;
use obento::block::{Handoff, RedoLog};
use obento::driver::{Access, Replay};
use obento::host::sandbox::Rights;
use obento::host::{HostDir, HostError, IoBackend};
use obento::image::{ImageFile, Recording};
use obento::provenance::{LogOptions, WriteSource};
use obento::vfs::Atime;
use obento::{Error, Image, OpenError, Options, Volume};
use obento_fuse::handover::ControlListener;
use obento_fuse::options::{AccessTimes, MountOptions, ReadWrite};
use obento_fuse::{
    KernelClock, Ledger, MountPlace, MountPoint, Mounted, Pauser, Processes, Served, Server, ServerOptions,
    ServingListener, Session, SessionOptions, UnmountListener, Unmounter, dirty_limit, mount, open_session,
    signals,
};

use super::args::Args;
use super::control::{Desk, Origin, volume_obstacle};
use super::failover::Keeper;
use super::janitor::Janitor;
use super::limits::expect_limits;
use super::status::now;
use super::{log, start};
use crate::context::Context;
use crate::hint::Hinted;
use crate::open::{cannot_open, expect_undamaged, option_refused, report_notices};
use crate::report::{Report, notice};
use crate::shown::{GivenNames as _, in_vain};

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
        Report::on("cannot write the log", path.as_bytes(), error)
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
        report.help("run 'obento check' to list the damage, and 'obento check -y' to repair it")
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

/// A mount with its server, before requests are served.
pub struct Service {
    pub place: MountPlace,
    pub opened: OpenedMount,
    pub server: Arc<Server>,
    pub session: Box<dyn Session>,
    pub pauser: Pauser,
    pub janitor: Janitor,
    pub unmount: Option<UnmountListener>,
    pub control: Option<ControlListener>,
    pub origin: Origin,
    pub keeper: Option<Arc<Keeper>>,
}

impl Service {
    /// Ends a mount that was not served. Otherwise it would stay, and its users would get ENOTCONN.
    pub fn give_up(self) {
        let Self { place, session, mut janitor, keeper, .. } = self;
        // Without a server, the kernel waits for no answer.
        drop(session);
        // This process may have given up the right to unmount.
        if place.unmount(Unmounter { lazy: true, force: false }).is_err()
            && let Err(error) = janitor.unmount_and_wait()
        {
            tracing::error!(%error, "the mount cannot be ended");
        }
        if let Some(keeper) = keeper {
            keeper.end();
        }
    }
}

/// Serves mounts until each is unmounted or another server takes it, and ends the changes.
///
/// # Errors
///
/// The changes were not written to stable storage, or the connection to the kernel failed.
pub fn run(services: Vec<Service>) -> Result<(), String> {
    let (mut mounts, mut ends) = (Vec::new(), Vec::new());
    for service in services {
        let Service { opened, server, session, pauser, janitor, unmount, control, origin, keeper, .. } =
            service;
        ends.push((janitor, opened.volume.clone(), keeper.clone()));
        mounts.push(ServingMount { opened, server, session, pauser, unmount, control, origin, keeper });
    }
    end_on_signal(ends);
    let count = mounts.len();
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for mount in mounts {
            let sender = sender.clone();
            scope.spawn(move || drop(sender.send(mount.serve())));
        }
        drop(sender);
        let mut done = Ok(());
        for (number, served) in (1..).zip(receiver) {
            if number == count {
                // The next process that opens the image sees this, and waits.
                let _ = rustix::thread::set_name(obento::host::ENDING);
            }
            done = done.and(served.and_then(ServedMount::end));
        }
        done
    })
}

/// Unmounts everything at the first signal. The second one does not wait for the users.
fn end_on_signal(mut mounts: Vec<(Janitor, Volume, Option<Arc<Keeper>>)>) {
    std::thread::spawn(move || {
        signals::wait();
        for (janitor, ..) in &mut mounts {
            let _ = janitor.unmount();
        }
        signals::wait();
        let failed = mounts.iter().filter(|(_, volume, _)| volume.sync().is_err()).count();
        mounts.iter().filter_map(|(.., keeper)| keeper.as_ref()).for_each(|keeper| keeper.end());
        std::process::exit(i32::from(failed > 0));
    });
}

/// A mount that is served.
struct ServingMount {
    opened: OpenedMount,
    server: Arc<Server>,
    session: Box<dyn Session>,
    pauser: Pauser,
    unmount: Option<UnmountListener>,
    control: Option<ControlListener>,
    origin: Origin,
    keeper: Option<Arc<Keeper>>,
}

/// A mount whose requests have ended.
struct ServedMount {
    opened: OpenedMount,
    server: Arc<Server>,
    unmount: Option<ServingListener>,
    served: io::Result<()>,
}

impl ServingMount {
    fn serve(self) -> Result<ServedMount, String> {
        let Self { opened, server, session, pauser, unmount, control, origin, keeper } = self;
        let failed = |error: io::Error| error.to_string();
        let mut unmount = unmount.map(UnmountListener::attend).transpose().map_err(failed)?;
        let desk = Desk::new(&opened, &server, &*session, &pauser, origin);
        let desk = control.map(|control| desk.attend(control)).transpose().map_err(failed)?;
        let mut session = session;
        let served = loop {
            match session.serve() {
                Err(error) => break Err(error),
                Ok(Served::Ended) => break Ok(()),
                Ok(Served::Paused(paused)) => {
                    pauser.withdraw();
                    if let Some(desk) = &desk {
                        unmount = desk.pass_on(&opened, &*paused, unmount);
                    }
                    session = paused;
                }
            }
        };
        if let Some(unmount) = &unmount {
            unmount.begin_closing();
        }
        if let Some(keeper) = keeper {
            // If this process fails from here on, the next user of the image replays the journal.
            let _ = opened.volume.sync();
            keeper.end();
        }
        Ok(ServedMount { opened, server, unmount, served })
    }
}

impl ServedMount {
    /// Ends the changes, and reports the result to waiting processes.
    fn end(self) -> Result<(), String> {
        self.server.end();
        let closed = match (self.opened.volume.close(), self.served) {
            (Err(error), _) => Err(error.to_string()),
            (Ok(()), Err(error)) => Err(format!("the connection to the kernel failed: {error}")),
            (Ok(()), Ok(())) => Ok(()),
        };
        if let Some(unmount_listener) = self.unmount {
            unmount_listener.say(closed.as_ref().err().map(String::as_str));
        }
        closed
    }
}

/// Opens the volume: for change if requested, or if possible and not forbidden. Records the choice in `options`.
fn open(
    args: &Args,
    address: &Address,
    options: &mut MountOptions,
    ledger: Option<Arc<Ledger>>,
    context: &Context,
) -> Result<OpenedMount, Report> {
    let shown = args.image().as_bytes();
    if address.server().is_some() {
        let volume = context.volume(address)?;
        expect_limits(options, &volume, shown, context)?;
        options.access = Some(ReadWrite::Read);
        let (processes, ledger, disk) = (None, None, SharedDisk::No);
        return Ok(OpenedMount { image: None, volume: (*volume).clone(), processes, ledger, disk });
    }
    let access = access(args, address, options, context)?;
    // A read-only mount has no failover.
    let is_free = options.access.is_none() && ledger.is_none();
    let processes = processes(options);
    let processes = processes.map_err(|error| Report::on("cannot record the history of", shown, error))?;
    let opened = match volume(address, access, options, processes.clone(), ledger, context) {
        Err(error) if is_free && can_only_be_read(&error) => {
            let opened = volume(address, Access::ReadOnly, options, processes, None, context);
            if opened.is_ok() {
                note_feature(shown, &error, context);
            }
            opened
        }
        opened => opened,
    };
    let opened = opened
        .map_err(|error| option_refused(&error, options.shown).unwrap_or_else(|| cannot_open(error)))?;
    expect_failover(&opened, shown, context)?;
    let access = opened.image.as_ref().map_or(Access::ReadOnly, |mounted| mounted.image.access());
    if options.provenance && access == Access::ReadOnly {
        let report = Report::on("cannot record the history of", shown, "the mount is read-only");
        return Err(report.help("omit the option provenance; 'obento prov' shows a recorded history"));
    }
    if let Some(MountedImage { image, .. }) = &opened.image {
        expect_undamaged("cannot mount", shown, image)?;
        report_notices(shown, image, context.messages());
        let info = opened.volume.info();
        let text = |found| notice(found, access, image, info.probe.fs_type);
        info.notices.iter().for_each(|found| context.note(shown, text(found)));
    }
    expect_limits(options, &opened.volume, shown, context)?;
    if let Some(why) = in_vain(options.shown, &opened.volume) {
        let given = options.shown.names().join(", ");
        return Err(Report::on("cannot mount", shown, why).help(format!("omit {given}")));
    }
    if access == Access::ReadOnly && is_free && !args.detached {
        context.note(shown, "this type is read-only; mounted read-only");
    }
    options.access = Some(match access {
        Access::ReadOnly => ReadWrite::Read,
        Access::ReadWrite => ReadWrite::Write,
    });
    Ok(opened)
}

/// # Errors
///
/// An option is not for the files of a file server.
pub fn expect_servable(args: &Args, address: &Address, options: &MountOptions) -> Result<(), Report> {
    let wrong = |why: &str| Report::on("cannot mount", args.image().as_bytes(), why);
    if address.place.as_ref().is_some_and(|place| *place != FileSelector::Path(b"/".to_vec())) {
        return Err(wrong("this is a path on a server").help("mount the root of the server"));
    }
    for (is_given, option, why) in [
        (options.access == Some(ReadWrite::Write), "rw", "the files of a server are mounted read-only"),
        (args.all, "--all", "the files of a server have no partitions"),
        (
            options.provenance || options.show_provenance,
            "provenance",
            "the history of a server is not recorded",
        ),
        (options.failover.is_some(), "failover", "only images support failover"),
    ] {
        if is_given {
            return Err(wrong(why).help(format!("omit the option {option}")));
        }
    }
    Ok(())
}

/// Returns the requested access: for change if requested, or if possible and not forbidden.
pub fn access(
    args: &Args,
    address: &Address,
    options: &MountOptions,
    context: &Context,
) -> Result<Access, Report> {
    let shown = args.image().as_bytes();
    let allowed = context.expect_changes_allowed(shown);
    let ignores_checksums = context.options().ignore_checksums;
    Ok(match options.access {
        Some(ReadWrite::Read) => Access::ReadOnly,
        Some(ReadWrite::Write) => {
            allowed?;
            if ignores_checksums {
                let cause = "--ignore-checksums is for reading only";
                return Err(Report::on("cannot change", shown, cause).help("omit this option"));
            }
            Access::ReadWrite
        }
        None if allowed.is_err() || ignores_checksums || !is_writable(address) => Access::ReadOnly,
        None => Access::ReadWrite,
    })
}

/// Fails if the mount must survive a failure of the server, and the volume does not support that.
fn expect_failover(opened: &OpenedMount, shown: &[u8], context: &Context) -> Result<(), Report> {
    if opened.ledger.is_none() {
        return Ok(());
    }
    let unsupported =
        (!opened.volume.vfs().has_failover()).then_some("only ext4 with a journal supports failover");
    // The kernel may perform a write of a ring after the process has ended.
    let late = (context.options().image_options().io == IoBackend::Uring)
        .then_some("with --io=uring, a write can reach the image after the server has died");
    match unsupported.or(late).or_else(|| volume_obstacle(opened)) {
        None => Ok(()),
        Some(why) => Err(Report::on("cannot mount", shown, why).help("omit the option failover")),
    }
}

/// Returns whether the container or the driver may support reading only. If the driver does not support a feature, it
/// may still support reading such a volume.
pub fn can_only_be_read(error: &OpenError) -> bool {
    match error {
        OpenError::Packed { .. } => true,
        OpenError::Volume { error, .. } => match **error {
            Error::ReadOnly | Error::Unsupported(Feature::Writing) => true,
            _ => feature(error).is_some(),
        },
        _ => false,
    }
}

/// Returns the feature of a volume that a driver does not support.
fn feature(error: &Error) -> Option<Feature> {
    match error {
        Error::Unsupported(feature @ (Feature::Named(_) | Feature::Bits { .. })) => Some(*feature),
        _ => None,
    }
}

/// Prints the feature because of which the volume was opened for reading only.
pub fn note_feature(shown: &[u8], error: &OpenError, context: &Context) {
    if let OpenError::Volume { error, .. } = error
        && let Some(feature) = feature(error)
    {
        context.note(shown, format!("{feature} is not supported; mounted read-only"));
    }
}

fn volume(
    address: &Address,
    access: Access,
    mount: &MountOptions,
    processes: Option<Arc<Processes>>,
    ledger: Option<Arc<Ledger>>,
    context: &Context,
) -> Result<OpenedMount, OpenError> {
    let recording = recording(processes.clone(), mount);
    let redo = ledger.clone().map(|ledger| -> Arc<dyn RedoLog> { ledger });
    let options = Options { recording, redo, ..volume_options(access, mount, context) };
    let (file, handoff) = ImageFile::open(&address.image, &options)?.for_handoff();
    let image = file.decode(context.registry())?;
    let volume = image.volume(address.part.as_ref())?;
    let image = Some(MountedImage { image, handoff });
    Ok(OpenedMount { image, volume, processes, ledger, disk: SharedDisk::No })
}

/// Opens the list of processes, if the history of the volume is to be recorded. Fails with the errors of open(2).
pub fn processes(mount: &MountOptions) -> io::Result<Option<Arc<Processes>>> {
    Ok(mount.provenance.then(Processes::open).transpose()?.map(Arc::new))
}

/// Returns how the history of a volume is recorded that `processes` use.
pub fn recording(processes: Option<Arc<Processes>>, mount: &MountOptions) -> Option<Recording> {
    processes.map(|who| Recording { who, log: log_options(mount) })
}

/// Returns the options of the log of a mount.
fn log_options(mount: &MountOptions) -> LogOptions {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = boot.chars().filter(char::is_ascii_hexdigit).collect();
    let boot = u128::from_str_radix(&digits, 16).unwrap_or_default().to_be_bytes();
    let (shown, writes) = (mount.show_provenance, WriteSource::Host);
    LogOptions { boot, shown, writes, ..LogOptions::default() }
}

/// Returns the options of opening a volume that is to be mounted.
pub fn volume_options(access: Access, mount: &MountOptions, context: &Context) -> Options {
    let general = context.options().image_options();
    // A server runs for a long time, and would keep pages of the image in its own memory.
    let io = if general.io == IoBackend::Auto { IoBackend::Buffered } else { general.io };
    Options {
        access,
        io,
        journalling: mount.journalling,
        limits: mount.limits,
        replay: if mount.no_replay { Replay::Skip } else { general.replay },
        super_block: mount.super_block.or(general.super_block),
        shown: mount.shown,
        atime: match mount.atime {
            AccessTimes::Never => Atime::Never,
            AccessTimes::Relative => Atime::Relative,
            AccessTimes::Always => Atime::Always,
        },
        clock: Arc::new(KernelClock),
        ..general
    }
}

/// Returns whether the file of the image is writable.
fn is_writable(address: &Address) -> bool {
    rustix::fs::access(&address.image, rustix::fs::Access::WRITE_OK).is_ok()
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
            Report::on("cannot mount at", directory, io::Error::from(errno))
                .help("name an existing directory")
        }
        error => Report::plain(error),
    })
}

fn cannot_mount(image: &OsStr, directory: &Path, error: &dyn std::fmt::Display) -> Report {
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
    let failed = |error: &dyn std::fmt::Display| cannot_mount(site.image, site.directory.path(), error);
    let read_only = options.access == Some(ReadWrite::Read);
    let server = opened.server(options);
    let source = options.fs_name.clone().unwrap_or_else(|| start::absolute_image(site.image));
    let mounted = mount(site.directory.as_fd(), &source, options);
    let mounted = mounted.map_err(|error| failed(&Hinted(error)))?;
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

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use obento::Registry;
    use obento::block::BlockDevice;
    use obento::driver::{Driver, FileSystem, OpenOptions, Probe};
    use obento_testkit::null::{MAGIC, NullDriver};

    use super::*;
    use crate::options::GlobalOptions;

    /// A driver that does not write.
    struct Reader;

    impl Driver for Reader {
        fn names(&self) -> &'static [&'static str] {
            NullDriver.names()
        }
        fn access(&self) -> Access {
            Access::ReadOnly
        }
        fn probe(&self, device: &dyn BlockDevice) -> obento::Result<Option<Probe>> {
            NullDriver.probe(device)
        }
        fn open(
            &self,
            device: Arc<dyn BlockDevice>,
            options: &OpenOptions,
        ) -> obento::Result<Arc<dyn FileSystem>> {
            match options.access {
                Access::ReadOnly => NullDriver.open(device, options),
                Access::ReadWrite => Err(obento::Error::ReadOnly),
            }
        }
    }

    /// The arguments alone.
    #[derive(clap::Parser)]
    struct Mount {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn a_type_without_writing_is_opened_read_only_unless_changes_are_requested() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("null.img");
        std::fs::write(&image, MAGIC).unwrap();
        let context =
            Context::new(GlobalOptions::default(), Registry::empty().with(Reader), crate::cli::TABLE);
        let opened = |access| {
            let mut options = MountOptions { access, ..MountOptions::default() };
            let Mount { args } = Mount::parse_from(["mount".as_ref(), image.as_os_str(), "mnt".as_ref()]);
            let volume =
                open(&args, &Address::parse(image.as_os_str()).unwrap(), &mut options, None, &context);
            volume.map(|_| options.access).map_err(|report| report.to_string())
        };
        assert_eq!(opened(None), Ok(Some(ReadWrite::Read)));
        assert_eq!(opened(Some(ReadWrite::Read)), Ok(Some(ReadWrite::Read)));
        let refused = opened(Some(ReadWrite::Write)).unwrap_err();
        assert!(refused.contains("read-only"), "{refused}");
    }
}
