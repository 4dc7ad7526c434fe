//! The server's side of the control socket: reports the status, and passes the mount to another server.
//!
//! A thread accepts connections, one at a time. When another server is ready to take the mount, the thread asks the
//! session to pause. It then leaves the connection to the main thread, and waits for its result.
//! Invariant: while the state is passed on, no thread of this process can write to the image.

use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use obento::Volume;
use obento::image::ImageFile;
use obento::text::volume_id_text;
use obento_fuse::handover::{
    Claim, Connection, ConnectionError, ControlListener, Hello, Kind, Offer, SILENCE, State,
};
use obento_fuse::{Pauser, Server, ServingListener, Session, SessionUse, UnmountListener};

use super::opened::{MountedImage, OpenedMount, SharedDisk};
use super::status::{Status, now};
use super::{history, log};
use crate::report::foreign;

/// The longest time that a new server may take to prepare, and the time that this one may take before it pauses.
pub const PREPARING: Duration = Duration::from_secs(30);

/// The types that store no inode numbers. An earlier version of their driver ignores the numbers of another process.
const WITHOUT_NUMBERS: [&str; 2] = ["vfat", "exfat"];

/// How a mount came to this server.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The arguments after `mount`.
    pub arguments: Vec<std::ffi::OsString>,
    /// When the volume was mounted, in seconds since 1970.
    pub mounted: u64,
    /// The number of servers that passed the mount on.
    pub upgrades: u64,
    /// The number of requests that they answered.
    pub requests: u64,
    /// The number of servers that have failed.
    pub failovers: u64,
}

/// The connection of a new server, which waits for the session to pause.
type Waiting = Arc<Mutex<Option<Connection>>>;

/// What the thread of the control socket knows.
pub struct Desk {
    volume: Volume,
    server: Arc<Server>,
    pauser: Pauser,
    origin: Origin,
    started: u64,
    monitor: Box<dyn Fn() -> SessionUse + Send>,
    /// The reason why the mount can never be passed on.
    obstacle: Option<&'static str>,
}

impl Desk {
    pub fn new(
        opened: &OpenedMount,
        server: &Arc<Server>,
        session: &dyn Session,
        pauser: &Pauser,
        origin: Origin,
    ) -> Self {
        Self {
            volume: opened.volume.clone(),
            server: Arc::clone(server),
            pauser: pauser.clone(),
            started: now(),
            monitor: session.monitor(),
            obstacle: obstacle(opened, session),
            origin,
        }
    }

    /// Starts the thread that accepts connections. Fails with the errors of starting a thread.
    pub fn attend(self, control: ControlListener) -> io::Result<OpenDesk> {
        let waiting = Waiting::default();
        let (result, results) = mpsc::channel();
        let (origin, control) = (self.origin.clone(), Arc::new(control));
        let (for_thread, accepting) = (Arc::clone(&waiting), Arc::clone(&control));
        std::thread::Builder::new().name("control".into()).spawn(move || {
            while let Some(connection) = accepting.accept() {
                if let Err(error) = self.serve(connection, &for_thread, &results) {
                    let error = foreign(&error.to_string());
                    tracing::info!(%error, "a process at the control socket was not served");
                }
            }
        })?;
        Ok(OpenDesk { waiting, result, origin, control })
    }

    fn serve(
        &self,
        connection: Connection,
        waiting: &Waiting,
        results: &Receiver<()>,
    ) -> Result<(), ConnectionError> {
        let message = connection.receive(Some(SILENCE))?;
        match message.kind {
            Kind::Status => connection.send(Kind::Report, &self.status().encode(), &[]),
            Kind::History => history::send(&self.volume, &volume_id(&self.volume), &connection),
            Kind::Hello => match Hello::decode(&message.fields) {
                Ok(hello) => self.offer(&hello, connection, waiting, results),
                Err(error) => {
                    connection.refuse(&error.to_string());
                    Err(error.into())
                }
            },
            kind => Err(ConnectionError::Unexpected(kind)),
        }
    }

    fn status(&self) -> Status {
        let (info, session) = (self.volume.info(), (self.monitor)());
        Status {
            version: env!("CARGO_PKG_VERSION").into(),
            process: std::process::id(),
            mounted: self.origin.mounted,
            started: self.started,
            upgrades: self.origin.upgrades,
            requests: self.origin.requests.saturating_add(session.requests),
            failovers: self.origin.failovers,
            inodes: self.server.nodes_known() as u64,
            fs_type: info.probe.fs_type.into(),
            read_only: self.server.options().read_only,
            has_failed: self.server.has_failed(),
            cache: self.volume.vfs().cache_use(),
            write_cache: Some(session.write_cache),
            obstacle: self.obstacle().unwrap_or_default().into(),
        }
    }

    /// Returns why the mount cannot be passed on now.
    fn obstacle(&self) -> Option<&'static str> {
        self.obstacle.or_else(|| self.server.has_failed().then_some("the volume is read-only after an error"))
    }

    /// Offers the mount to a new server, and has the session pause when that server is ready.
    fn offer(
        &self,
        hello: &Hello,
        connection: Connection,
        waiting: &Waiting,
        results: &Receiver<()>,
    ) -> Result<(), ConnectionError> {
        if let Some(why) = self.obstacle() {
            connection.refuse(why);
            return Ok(());
        }
        let offer = offer(&self.volume, self.server.options().read_only, &self.origin.arguments);
        connection.send(Kind::Offer, &offer.encode(), log::descriptor().as_slice())?;
        connection.expect_within(Kind::Ready, Some(PREPARING))?;
        if hello.is_trial {
            return Ok(());
        }
        // Most of the work, while requests are still served.
        if let Err(error) = self.volume.vfs().prepare_handover() {
            connection.refuse(&format!("its volume cannot be passed on: {error}"));
            return Ok(());
        }
        *lock(waiting) = Some(connection);
        self.pauser.request();
        match results.recv_timeout(SILENCE) {
            Ok(()) => Ok(()),
            Err(_) => {
                self.pauser.withdraw();
                match lock(waiting).take() {
                    Some(connection) => connection.refuse("its requests did not end in time"),
                    // The main thread has paused after all.
                    None => drop(results.recv()),
                }
                Ok(())
            }
        }
    }
}

/// Describes a mount whose server was started with `arguments`.
pub fn offer(volume: &Volume, read_only: bool, arguments: &[std::ffi::OsString]) -> Offer {
    let bytes = std::os::unix::ffi::OsStringExt::into_vec;
    Offer {
        build: env!("CARGO_PKG_VERSION").into(),
        arguments: arguments.iter().cloned().map(bytes).collect(),
        read_only,
        fs_type: volume.info().probe.fs_type.into(),
        volume_id: volume_id(volume),
        requires_state: requires_state(volume),
    }
}

/// Returns whether the inodes of a volume have numbers only in the memory of its driver.
fn requires_state(volume: &Volume) -> bool {
    WITHOUT_NUMBERS.contains(&volume.info().probe.fs_type)
}

fn lock(waiting: &Waiting) -> std::sync::MutexGuard<'_, Option<Connection>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the UUID or the serial number of a volume, or nothing.
pub fn volume_id(volume: &Volume) -> String {
    let probe = volume.info().probe;
    volume_id_text(probe.uuid, probe.serial).or(probe.text_id).unwrap_or_default()
}

/// Returns why a mount cannot be passed on.
fn obstacle(opened: &OpenedMount, session: &dyn Session) -> Option<&'static str> {
    if !session.can_pause() {
        return Some("requests arrive through io_uring; unmount, and mount with -o io_uring=off");
    }
    if opened.ledger.is_some() {
        return Some("the volume was mounted with -o failover");
    }
    volume_obstacle(opened)
}

/// Returns why no other process can continue to use an open volume.
pub fn volume_obstacle(opened: &OpenedMount) -> Option<&'static str> {
    let Some(MountedImage { image, .. }) = &opened.image else {
        return Some("the files are on a server");
    };
    if !image.layers().is_empty() {
        return Some("the image is compressed or in a container such as qcow2");
    }
    if image.journal().is_some() {
        return Some("the journal of the volume is on another device");
    }
    if opened.disk == SharedDisk::Yes {
        return Some("its server serves other partitions of the disk, too");
    }
    if !opened.volume.vfs().can_be_passed_on() {
        return Some("the kernel engine, or another driver without this capability, has the volume open");
    }
    ImageFile::file_of(&**image.device()).is_err().then_some("the image is not a file or a device")
}

/// The main thread's side of the desk.
pub struct OpenDesk {
    waiting: Waiting,
    result: Sender<()>,
    origin: Origin,
    control: Arc<ControlListener>,
}

impl OpenDesk {
    /// Passes the mount of a session that has paused to the server that waits for it, and ends this process. Returns if that server has
    /// failed: then it has done nothing, and this one continues.
    pub fn pass_on(
        &self,
        opened: &OpenedMount,
        session: &dyn Session,
        unmount: Option<ServingListener>,
    ) -> Option<ServingListener> {
        let Some(connection) = lock(&self.waiting).take() else { return unmount };
        let unmount = unmount.map(ServingListener::pause);
        match self.transfer(&connection, opened, session, unmount.as_ref()) {
            // The new server serves now. The volume must not be closed, nor dropped, which would free files in use.
            Ok(()) => std::process::exit(0),
            Err(error) => {
                let error = foreign(&error.to_string());
                tracing::warn!(%error, "the mount stays with this server, because the other one failed")
            }
        }
        // Before the other thread accepts the next server.
        drop(connection);
        let unmount = unmount.map(UnmountListener::attend).transpose();
        let _ = self.result.send(());
        unmount.unwrap_or_else(|error| {
            tracing::error!(%error, "umount cannot wait for the end");
            None
        })
    }

    fn transfer(
        &self,
        connection: &Connection,
        opened: &OpenedMount,
        session: &dyn Session,
        unmount: Option<&UnmountListener>,
    ) -> Result<(), ConnectionError> {
        let refused = |error: String| {
            connection.refuse(&error);
            ConnectionError::Refused(error)
        };
        let driver = opened.volume.vfs().prepare_handover();
        let driver = driver.map_err(|error| refused(format!("its volume cannot be passed on: {error}")))?;
        let Some(MountedImage { image, handoff }) = &opened.image else {
            return Err(refused("the files are on a server".into()));
        };
        let image = ImageFile::file_of(&**image.device());
        let image = image.map_err(|error| refused(format!("its image cannot be passed on: {error}")))?;
        let state = State {
            session: session.export().encode(),
            driver,
            mounted: self.origin.mounted,
            upgrades: self.origin.upgrades.saturating_add(1),
            requests: self.origin.requests.saturating_add(session.monitor()().requests),
            has_unmount_socket: unmount.is_some(),
        };
        let mut descriptors = vec![session.device(), image.as_fd(), self.control.as_fd()];
        if let Some((listener, waiting)) = unmount.map(UnmountListener::descriptors) {
            descriptors.push(listener);
            descriptors.extend(waiting);
        }
        let _frozen = handoff.freeze();
        connection.send(Kind::State, &state.encode(), &descriptors)?;
        let claim = Claim::among(connection.expect(Kind::Taken)?.descriptors)?;
        connection.send(Kind::Go, &[], &[])?;
        match connection.expect(Kind::Started) {
            // The other process has ended, and never started.
            Err(ConnectionError::Ended) => Err(ConnectionError::Ended),
            // A process that is killed may wait for this server before its connection ends.
            Err(error) if claim.take() => Err(error),
            _ => Ok(()),
        }
    }
}
