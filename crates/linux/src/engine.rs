//! One running kernel, asked by one request after the other.
//!
//! Invariant: every request ends: with the answer, with the end of the kernel, or by the watchdog, which ends it. After that
//! all requests fail at once.

use std::io::{self, Read, Seek};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use obento_base::{DeviceError, Error};
use obento_block::BlockDevice;
use obento_linux_wire::{Answer, Envelope, Request, decode, encode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::area::Area;
use crate::disk::Disk;
use crate::launch::{Guest, Settings, launch};
use crate::starter::Starter;
use crate::types::Type;

/// How long a request may take. The slowest that is right is to sync a whole device cache.
const WATCHDOG: Duration = Duration::from_secs(60);
/// How long a request may take once the device has failed to write: XFS tries for ever to write what it cannot.
const GRACE: Duration = Duration::from_secs(5);
/// How long the kernel may take to start and ask for its disk.
const START: Duration = Duration::from_secs(20);

/// Numbers of Linux.
const EIO: u32 = 5;
const EROFS: u32 = 30;

/// Why there is no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// The guest says so, by a number of Linux.
    Errno(u32),
    /// The guest failed because the device below it did.
    Device(Error),
    /// The kernel could not be started.
    NotStarted(String),
    /// The kernel ended.
    Ended,
    /// The watchdog ended it.
    Hung,
    /// The guest's answer makes no sense.
    Nonsense,
    /// The request is larger than there is room.
    TooLarge,
}

/// A kernel and the way to talk to it.
pub struct Engine {
    guest: Guest,
    area: Area,
    dead: Option<Trouble>,
    /// What was asked before it is needed, and its number.
    early: Option<(u32, Request)>,
    /// The first error of the device.
    failure: Arc<OnceLock<Error>>,
    /// The process that asked for the disk.
    kernel: Option<Pid>,
}

/// An [`Engine`] that several threads ask.
pub struct Shared(Mutex<Engine>);

impl Shared {
    /// Starts a kernel with `device` as its disk.
    pub fn start(settings: &Settings<'_>, device: Arc<dyn BlockDevice>) -> Result<Self, Trouble> {
        let started = Area::new().and_then(|area| Ok((launch(settings, &area)?, area)));
        Self::serve(started, device)
    }

    /// Has `starter` start one for volumes of `kind`, with so many MiB.
    pub fn start_by(
        starter: &Starter,
        (kind, memory): (&Type, u32),
        device: Arc<dyn BlockDevice>,
    ) -> Result<Self, Trouble> {
        Self::serve(starter.launch(kind, memory), device)
    }

    fn serve(started: io::Result<(Guest, Area)>, device: Arc<dyn BlockDevice>) -> Result<Self, Trouble> {
        let (guest, area) = started.map_err(|error| Trouble::NotStarted(error.to_string()))?;
        let mut engine =
            Engine { guest, area, dead: None, early: None, failure: Arc::default(), kernel: None };
        engine.connect(device)?;
        Ok(Self(Mutex::new(engine)))
    }

    /// Whoever holds this asks alone.
    pub fn turn(&self) -> MutexGuard<'_, Engine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// Waits for the kernel to ask for its disk, and serves it in a thread.
    fn connect(&mut self, device: Arc<dyn BlockDevice>) -> Result<(), Trouble> {
        // Nothing comes over the line before it is asked; it is cut where the kernel ends.
        let [asks, is_cut] = ready([self.guest.disk.as_fd(), self.guest.bell.as_fd()], START);
        if !asks {
            let why = if is_cut { "it ended at once" } else { "it does not start" };
            return Err(self.give_up(Trouble::NotStarted(why.to_owned())));
        }
        let socket = self.guest.disk.accept();
        let served = socket.and_then(|(socket, _)| {
            self.kernel = socket_peercred(&socket).ok().map(|peer| peer.pid);
            let disk = Disk::new(device, socket, Arc::clone(&self.failure));
            thread::Builder::new().name("obento-disk".to_owned()).spawn(move || disk.serve())
        });
        served.map(drop).map_err(|error| self.give_up(Trouble::NotStarted(error.to_string())))
    }

    /// Asks, with `data` beside the request.
    pub fn ask(&mut self, envelope: &Envelope, data: &[u8]) -> Result<Answer, Trouble> {
        if let Some((number, _)) = self.early.take() {
            self.wait(number)?;
        }
        let number = self.send(envelope, data)?;
        self.answer(number)
    }

    /// Asks what is likely to be asked next, and does not wait: the guest works meanwhile. What goes wrong is told to whoever asks for it.
    pub fn ask_early(&mut self, request: Request) {
        let envelope = Envelope { request: Some(request.clone()), ..Envelope::default() };
        self.early = self.send(&envelope, &[]).ok().map(|number| (number, request));
    }

    /// The answer to `request`, if it was asked early and nothing has been since.
    pub fn take_early(&mut self, request: &Request) -> Option<Result<Answer, Trouble>> {
        let (number, _) = self.early.take_if(|(_, early)| early == request)?;
        let _apart = self.kernel.and_then(Apart::from_process);
        Some(self.answer(number))
    }

    fn send(&mut self, envelope: &Envelope, data: &[u8]) -> Result<u32, Trouble> {
        if let Some(dead) = &self.dead {
            return Err(dead.clone());
        }
        let number = self.area.ask(&encode(envelope), data).ok_or(Trouble::TooLarge)?;
        // By `write` and `read`, which are left to a process that has given up its rights. A line that is full is one that
        // the guest takes nothing from.
        if rustix::io::write(&self.guest.bell, b".").is_err() {
            return Err(self.give_up(Trouble::Ended));
        }
        Ok(number)
    }

    fn answer(&mut self, number: u32) -> Result<Answer, Trouble> {
        let reply = self.wait(number)?;
        match decode(&reply) {
            Some(Answer::Failed { errno }) => Err(self.trouble(errno)),
            Some(answer) => Ok(answer),
            None => Err(self.give_up(Trouble::Nonsense)),
        }
    }

    /// What the guest's error number means: a device that failed is told as EIO, and from then on, or by types that stop, as EROFS.
    pub fn trouble(&self, errno: u32) -> Trouble {
        match self.device_failure().filter(|_| matches!(errno, EIO | EROFS)) {
            Some(error) => Trouble::Device(error),
            None => Trouble::Errno(errno),
        }
    }

    /// The first error of the device.
    pub fn device_failure(&self) -> Option<Error> {
        self.failure.get().copied()
    }

    /// The data beside the last answer, from byte `skip` on.
    pub fn data(&self, skip: usize, into: &mut [u8]) {
        self.area.data(skip, into);
    }

    fn wait(&mut self, number: u32) -> Result<Vec<u8>, Trouble> {
        let end = Instant::now() + WATCHDOG;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let why = self.device_failure().map_or(Trouble::Hung, Trouble::Device);
                return Err(self.give_up(why));
            }
            // Reads are another matter: a disk that takes long over each bad sector is one to be rescued.
            let failed_to_write = self.device_failure().filter(is_of_writing);
            if ready([self.guest.bell.as_fd()], left.min(GRACE)) == [false] {
                match failed_to_write {
                    Some(error) => return Err(self.give_up(Trouble::Device(error))),
                    None => continue,
                }
            }
            // What the bytes are does not matter. All are taken, so that the line is never full of them.
            match rustix::io::read(&self.guest.bell, &mut [0; 64]) {
                Ok(1..) | Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                _ => return Err(self.give_up(Trouble::Ended)),
            }
            if let Some(reply) = self.area.reply(number) {
                return Ok(reply);
            }
        }
    }

    /// Ends the kernel for `why`, which is what every request is told from now on.
    fn give_up(&mut self, why: Trouble) -> Trouble {
        let console = self.console();
        tracing::debug!(?why, console, "the kernel engine is given up");
        let why = match why {
            Trouble::NotStarted(_) if !console.trim().is_empty() => Trouble::NotStarted(last_line(&console)),
            other => other,
        };
        self.dead = Some(why.clone());
        why
    }

    /// What the kernel printed.
    fn console(&mut self) -> String {
        let mut text = Vec::new();
        let read = self.guest.console.rewind().and_then(|()| self.guest.console.read_to_end(&mut text));
        read.map(|_| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default()
    }
}

/// Keeps this thread off the processor of the guest, while it lasts: the guest's answer wakes it on the guest's own, where both would take
/// turns, though the guest works on.
struct Apart(CpuSet);

impl Apart {
    /// `None` where there is no other processor.
    fn from_process(guest: Pid) -> Option<Self> {
        let (own, taken) = (sched_getaffinity(None).ok()?, sched_getaffinity(Some(guest)).ok()?);
        let mut others = own;
        (0..CpuSet::MAX_CPU).filter(|cpu| taken.is_set(*cpu)).for_each(|cpu| others.unset(cpu));
        (others.count() > 0 && sched_setaffinity(None, &others).is_ok()).then_some(Self(own))
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.0);
    }
}

fn is_of_writing(error: &Error) -> bool {
    matches!(error, Error::Device(DeviceError::Write { .. } | DeviceError::Flush { .. }))
}

/// Which of `sources` have something or are cut, as soon as one of them is; none after `time`.
fn ready<const N: usize>(sources: [BorrowedFd<'_>; N], time: Duration) -> [bool; N] {
    let end = Instant::now() + time;
    loop {
        let mut waited = sources.map(|source| PollFd::from_borrowed_fd(source, PollFlags::IN));
        let Ok(left) = Timespec::try_from(end.saturating_duration_since(Instant::now())) else {
            return [false; N];
        };
        match poll(&mut waited, Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return [false; N],
            Ok(_) => return waited.map(|waited| !waited.revents().is_empty()),
        }
    }
}

fn last_line(text: &str) -> String {
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned()
}
