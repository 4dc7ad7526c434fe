//! The server of a mount: opens the volume, mounts it, serves requests, and writes everything to stable storage at the end.
//!
//! Order: signals are blocked before any thread starts. The volume is opened before anything is mounted, so that its errors are reported
//! at no cost. The kernel has answered before the caller learns that the mount exists. Rights are given up before the first request is
//! served.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;

use obento::provenance::{LogOptions, WriteSource};
use obento::sandbox::Rights;
use obento::{
    Access, Address, Atime, Error, Feature, Handoff, Image, ImageFile, IoBackend, OpenError, Options,
    Recording, RedoLog, Replay, Volume,
};
use obento_fuse::handover::ControlListener;
use obento_fuse::options::{AccessTimes, MountOptions, ReadWrite};
use obento_fuse::{
    KernelClock, Ledger, MountPoint, Mounted, Pauser, Processes, Served, Server, ServerOptions,
    ServingListener, Session, SessionOptions, UnmountListener, dirty_limit, find_mount, mount, open_session,
    signals,
};

use super::control::{Desk, Origin, volume_obstacle};
use super::failover::Keeper;
use super::janitor::Janitor;
use super::{Args, log, start};
use crate::context::Context;
use crate::open::{cannot_open, options};
use crate::report::{Report, notice};
use crate::shown::{WORDS, in_vain};

/// The image and the directory of a mount, as messages show them.
pub struct Site<'a> {
    pub image: &'a OsStr,
    pub directory: &'a Path,
}

/// Mounts and serves until the end.
pub fn serve(
    args: &Args,
    address: &Address,
    mut options: MountOptions,
    context: &Context,
) -> Result<(), Report> {
    begin(args)?;
    let failed = |error: io::Error| cannot_serve(args.image(), error);
    let keeper = args.kept.then(Keeper::at_stdin).transpose().map_err(failed)?;
    let ledger = keeper.as_ref().map(|_| Ledger::new()).transpose().map_err(failed)?.map(Arc::new);
    let opened = open(args, address, &mut options, ledger, context)?;
    let site = Site { image: args.image(), directory: args.directory() };
    let mut service = service(args, &site, opened, &options, context)?;
    if let Some(keeper) = keeper {
        keeper.guard(&service).map_err(failed)?;
        service.keeper = Some(Arc::new(keeper));
    }
    if args.detached {
        start::detach().and_then(|()| start::say_ready()).map_err(failed)?;
    }
    // From here on, the input is from the image and from the users of the mount.
    context.confine(match &service.opened.processes {
        Some(processes) => Rights::ServeProcesses(processes.as_fd()),
        None => Rights::Serve,
    });
    run(vec![service]).map_err(|error| lost(args.image(), error))
}

/// Blocks the signals that end a server, and starts the log.
pub fn begin(args: &Args) -> Result<(), Report> {
    signals::hold().map_err(|error| cannot_serve(args.image(), error))?;
    log::start(args.log.as_deref()).map_err(|error| {
        let path = args.log.as_deref().unwrap_or(Path::new("")).as_os_str();
        Report::on("cannot write the log", path.as_bytes(), error)
    })
}

fn cannot_serve(image: &OsStr, error: io::Error) -> Report {
    Report::on("cannot serve", image.as_bytes(), error)
}

/// Returns the report that the changes of a mount are lost.
pub fn lost(image: &OsStr, error: String) -> Report {
    let advice = crate::report::to_close(&error);
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
    let arguments = start::arguments(args, context);
    let pauser = Pauser::new().map_err(failed)?;
    let Greeted { path, session, server } = greet(site, &opened, options, &pauser)?;
    let janitor = Janitor::start(&path).map_err(failed)?;
    let listening =
        |mount: &MountPoint| Ok((UnmountListener::listen(mount)?, ControlListener::listen(mount)?));
    let (unmount, control) = match find_mount(&path).map(|mount| listening(&mount)).transpose() {
        Ok(listeners) => listeners.unzip(),
        Err(error) => {
            let error: io::Error = error;
            context.note(site.image.as_bytes(), format!("umount cannot wait for its end: {error}"));
            (None, None)
        }
    };
    let origin = Origin { arguments, mounted: now(), upgrades: 0, requests: 0, failovers: 0 };
    Ok(Service { path, opened, server, session, pauser, janitor, unmount, control, origin, keeper: None })
}

/// Returns the seconds since 1970.
pub fn now() -> u64 {
    std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs())
}

/// An open volume, and what another process needs to open it.
pub struct OpenedMount {
    pub image: Image,
    pub volume: Volume,
    pub handoff: Arc<Handoff>,
    /// The processes that use the mount, if the history of the volume is recorded.
    pub processes: Option<Arc<Processes>>,
    /// Whether this process has mounted other volumes of the disk.
    pub disk: SharedDisk,
    /// The state that survives a failure of this process.
    pub ledger: Option<Arc<Ledger>>,
}

/// Whether a process serves several volumes of one disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharedDisk {
    No,
    Yes,
}

/// A mount with its server, before requests are served.
pub struct Service {
    /// The mount point.
    pub path: PathBuf,
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
                let _ = rustix::thread::set_name(obento::ENDING);
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
    let access = access(args, address, options, context)?;
    let is_free = options.access.is_none();
    let processes = options.provenance.then(Processes::open).transpose();
    let processes = processes.map_err(|error| Report::on("cannot record the history of", shown, error))?;
    let processes = processes.map(Arc::new);
    let opened = match volume(address, access, options, processes.clone(), ledger, context) {
        Err(error) if is_free && can_only_be_read(&error) => {
            volume(address, Access::ReadOnly, options, processes, None, context)
        }
        opened => opened,
    };
    let opened = opened.map_err(cannot_open)?;
    expect_failover(&opened, shown, context)?;
    let OpenedMount { image, volume, handoff, processes, ledger, disk } = opened;
    let access = image.access();
    image.notices().iter().for_each(|notice| context.note(shown, notice));
    volume.info().notices.iter().for_each(|found| context.note(shown, notice(found, access, &image)));
    if let Some(why) = in_vain(options.shown, &volume) {
        return Err(Report::on("cannot mount", shown, why).help(format!("omit {WORDS}")));
    }
    if access == Access::ReadOnly && is_free && !args.detached {
        context.note(shown, "this type is read-only; mounted read-only");
    }
    options.access = Some(match access {
        Access::ReadOnly => ReadWrite::Read,
        Access::ReadWrite => ReadWrite::Write,
    });
    Ok(OpenedMount { image, volume, handoff, processes, ledger, disk })
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
    let late = (options(context.options()).io == IoBackend::Uring)
        .then_some("with --io=uring, a write can reach the image after the server has died");
    match unsupported.or(late).or_else(|| volume_obstacle(opened)) {
        None => Ok(()),
        Some(why) => Err(Report::on("cannot mount", shown, why).help("omit the option failover")),
    }
}

/// Returns whether the container or the driver does not support writing.
pub fn can_only_be_read(error: &OpenError) -> bool {
    match error {
        OpenError::Packed { .. } => true,
        OpenError::Volume { error, .. } => {
            matches!(**error, Error::ReadOnly | Error::Unsupported(Feature::Writing))
        }
        _ => false,
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
    let recording = processes.clone().map(|who| Recording { who, log: log_options(mount) });
    let redo = ledger.clone().map(|ledger| -> Arc<dyn RedoLog> { ledger });
    let options = Options { recording, redo, ..volume_options(access, mount, context) };
    let (file, handoff) = ImageFile::open(&address.image, &options)?.for_handoff();
    let image = file.decode(context.registry())?;
    let volume = image.volume(address.part.as_ref())?;
    Ok(OpenedMount { image, volume, handoff, processes, ledger, disk: SharedDisk::No })
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
    let general = options(context.options());
    Options {
        access,
        journalling: mount.journalling,
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
pub fn server_options(options: &MountOptions) -> ServerOptions {
    let read_only = options.access == Some(ReadWrite::Read);
    ServerOptions { read_only, sync: options.sync, atime: options.atime }
}

/// A mount whose requests wait to be served.
struct Greeted {
    path: PathBuf,
    session: Box<dyn Session>,
    server: Arc<Server>,
}

/// Mounts, and negotiates the protocol with the kernel.
fn greet(
    site: &Site<'_>,
    opened: &OpenedMount,
    options: &MountOptions,
    pauser: &Pauser,
) -> Result<Greeted, Report> {
    let failed = |error: &dyn std::fmt::Display| {
        let what = crate::report::subject(site.directory.as_os_str().as_bytes());
        Report::new(
            format!("cannot mount {} at {what}", crate::report::subject(site.image.as_bytes())),
            error,
        )
    };
    let read_only = options.access == Some(ReadWrite::Read);
    let server = Server::new(&opened.volume, server_options(options));
    let recorder = opened.volume.recorded().cloned().zip(opened.processes.clone());
    let server = match recorder {
        Some((recorded, processes)) => server.with_recorder(recorded, processes),
        None => server,
    };
    let server = Arc::new(match &opened.ledger {
        Some(ledger) => server.with_ledger(Arc::clone(ledger)),
        None => server,
    });
    let image = std::path::absolute(site.image).unwrap_or_else(|_| site.image.into());
    let source = options.fs_name.clone().unwrap_or_else(|| image.into_os_string());
    let mounted = mount(site.directory, &source, options).map_err(|error| failed(&error))?;
    let defaults = SessionOptions::default();
    let Mounted { device, path } = mounted;
    let session = SessionOptions {
        threads: options.threads.unwrap_or(defaults.threads),
        writeback: options.writeback && !read_only,
        dirty_limit: dirty_limit(&path),
        io_uring: options.io_uring,
    };
    let session = open_session(device, Arc::clone(&server), session, pauser.clone()).map_err(|error| {
        let _ = obento_fuse::unmount(&path, obento_fuse::Unmounter { lazy: true, force: false });
        failed(&error)
    })?;
    Ok(Greeted { path, session, server })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use obento::driver::{Driver, FileSystem, OpenOptions, Probe};
    use obento::{BlockDevice, Registry};
    use obento_testkit::null::{MAGIC, NullDriver};

    use super::*;
    use crate::cli::GlobalOptions;

    /// A driver that does not write.
    struct Reader;

    impl Driver for Reader {
        fn names(&self) -> &'static [&'static str] {
            NullDriver.names()
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
        let context = Context::new(GlobalOptions::default(), Registry::empty().with(Reader));
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
