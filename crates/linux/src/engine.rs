//! One running kernel, asked by one request after the other.
//!
//! Invariant: every request ends: with the answer, with the end of the kernel, or by the watchdog, which ends it. After that
//! all requests fail at once.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use obento_base::{DeviceError, Error};
use obento_block::BlockDevice;
use obento_linux_wire::{Answer, Envelope, Request, decode, encode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, Resource, getrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::area::Area;
use crate::console;
use crate::disk::{Disk, Serving};
use crate::launch::{Guest, Settings, is_of_descriptors, launch};
use crate::starter::Starter;
use crate::types::Type;

/// How long a request may take. The slowest that is right is to sync a whole device cache.
const WATCHDOG: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 60 });
/// How long a request may take once the device has failed to write: XFS tries for ever to write what it cannot.
const GRACE: Duration = Duration::from_secs(5);
/// How long the kernel may take to start and ask for its disk.
const START: Duration = Duration::from_secs(20);

/// A kernel and its host have fewer files than this open.
const DESCRIPTORS: u64 = 64;

/// Numbers of Linux.
const ENOENT: u32 = 2;
const EIO: u32 = 5;
const ENOMEM: u32 = 12;
const ENOSPC: u32 = 28;
const EROFS: u32 = 30;

/// What helps where the kernel cannot hold what a volume needs.
const NO_MEMORY: &str = "--engine-memory gives it more";

/// What a kernel that is started needs.
const NO_DESCRIPTORS: &str = "no more files can be opened (`ulimit -n` says how many)";

/// Why there is no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// The guest says so, by a number of Linux.
    Errno(u32),
    /// The guest failed because the device below it did.
    Device(Error),
    /// The kernel could not be started.
    NotStarted(String),
    /// The kernel does not mount the volume, by a number of Linux and what it printed meanwhile.
    NotMounted(u32, String),
    /// The kernel ended, and said why if it had the time.
    Ended(Option<String>),
    /// The watchdog ended it.
    Hung,
    /// The guest's answer makes no sense.
    Nonsense,
    /// The request is larger than there is room.
    TooLarge,
}

impl Trouble {
    /// What kept a kernel from being started.
    pub fn not_started(error: &io::Error) -> Self {
        Self::NotStarted(if is_of_descriptors(error) { NO_DESCRIPTORS.to_owned() } else { error.to_string() })
    }
}

/// A kernel and the way to talk to it.
pub struct Engine {
    /// Its disk.
    disk: Option<Serving>,
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

impl Drop for Engine {
    fn drop(&mut self) {
        self.disk.iter_mut().for_each(Serving::stop);
        // Its disk's thread may wait for the rest of a message. That thread is waited for with the fields.
        self.guest.end();
    }
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
        let (guest, area) = started.map_err(|error| Trouble::not_started(&error))?;
        let mut engine = Engine {
            disk: None,
            guest,
            area,
            dead: None,
            early: None,
            failure: Arc::default(),
            kernel: None,
        };
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
            Serving::start(Disk::new(device, socket, Arc::clone(&self.failure)))
        });
        self.disk = Some(served.map_err(|error| self.give_up(Trouble::not_started(&error)))?);
        Ok(())
    }

    /// Asks, with `data` beside the request.
    pub fn ask(&mut self, envelope: &Envelope, data: &[u8]) -> Result<Answer, Trouble> {
        if let Some((number, _)) = self.early.take() {
            self.wait(number)?;
        }
        let number = self.send(envelope, data)?;
        self.answer(number)
    }

    /// Asks for the volume to be mounted. What makes that fail is told by many numbers, so what the device said is told instead, and what
    /// the kernel printed meanwhile besides.
    pub fn mount(&mut self, envelope: &Envelope) -> Result<Answer, Trouble> {
        let answer = self.ask(envelope, &[]);
        answer.map_err(|trouble| match (self.device_failure(), trouble) {
            (Some(error), _) => Trouble::Device(error),
            (None, Trouble::Errno(ENOENT)) if !self.has_found_its_disk() => {
                self.give_up(Trouble::NotStarted("the kernel found no disk".to_owned()))
            }
            (None, Trouble::Errno(ENOMEM)) => Trouble::NotMounted(ENOMEM, NO_MEMORY.to_owned()),
            (None, Trouble::Errno(errno)) => {
                let said = console::of_mount(&console::text(&self.guest.console));
                said.map_or(Trouble::Errno(errno), |said| Trouble::NotMounted(errno, said))
            }
            (None, other) => other,
        })
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
            return Err(self.give_up(Trouble::Ended(None)));
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

    /// What the guest's error number means: a device that failed is told as EIO, and from then on, or by types that stop, as EROFS. NILFS
    /// finds no room where it cannot write.
    pub fn trouble(&self, errno: u32) -> Trouble {
        let is_told_as =
            |error: &Error| matches!(errno, EIO | EROFS) || errno == ENOSPC && is_of_writing(error);
        match self.device_failure().filter(is_told_as) {
            Some(error) => Trouble::Device(error),
            None => Trouble::Errno(errno),
        }
    }

    /// The first error of the device.
    pub fn device_failure(&self) -> Option<Error> {
        self.failure.get().copied()
    }

    /// How many requests of the kernel to read have failed at the device, and why the last.
    pub fn failed_reads(&self) -> (u64, Option<Error>) {
        self.disk.as_ref().map_or((0, None), |disk| disk.watch().failed_reads())
    }

    fn has_found_its_disk(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.watch().was_asked())
    }

    /// For how long the device has been at one request of the guest.
    fn device_busy_for(&self) -> Option<Duration> {
        self.disk.as_ref().and_then(|disk| disk.watch().busy_for())
    }

    /// The data beside the last answer, from byte `skip` on.
    pub fn data(&self, skip: usize, into: &mut [u8]) {
        self.area.data(skip, into);
    }

    fn wait(&mut self, number: u32) -> Result<Vec<u8>, Trouble> {
        let mut left = WATCHDOG;
        loop {
            if left.is_zero() {
                let why = self.device_failure().map_or(Trouble::Hung, Trouble::Device);
                return Err(self.give_up(why));
            }
            // Reads are another matter: a disk that takes long over each bad sector is one to be rescued.
            let failed_to_write = self.device_failure().filter(is_of_writing);
            let (since, turn) = (Instant::now(), left.min(GRACE));
            let has_rung = ready([self.guest.bell.as_fd()], turn) == [true];
            left = left.saturating_sub(of_the_guest(since.elapsed(), self.device_busy_for()));
            if !has_rung {
                match failed_to_write {
                    Some(error) => return Err(self.give_up(Trouble::Device(error))),
                    None => continue,
                }
            }
            // What the bytes are does not matter. All are taken, so that the line is never full of them.
            match rustix::io::read(&self.guest.bell, &mut [0; 64]) {
                Ok(1..) | Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                _ => return Err(self.give_up(Trouble::Ended(None))),
            }
            if let Some(reply) = self.area.reply(number) {
                return Ok(reply);
            }
        }
    }

    /// Ends the kernel for `why`, which is what every request is told from now on.
    fn give_up(&mut self, why: Trouble) -> Trouble {
        let said = console::text(&self.guest.console);
        tracing::debug!(?why, said, "the kernel engine is given up");
        let why = match why {
            Trouble::NotStarted(words) => Trouble::NotStarted(why_not_started(words, &said)),
            Trouble::Ended(_) => Trouble::Ended(console::of_end(&said)),
            other => other,
        };
        self.dead = Some(why.clone());
        why
    }
}

/// Why a kernel that printed `said` did not start: its own words, else `words`. Where no more files can be opened, here or by the kernel,
/// which may open as few, what it printed last is no reason.
fn why_not_started(words: String, said: &str) -> String {
    let few_files = matches!(getrlimit(Resource::Nofile).current, Some(0..DESCRIPTORS));
    let lack = (few_files || words == NO_DESCRIPTORS).then(|| NO_DESCRIPTORS.to_owned());
    lack.or_else(|| console::of_start(said)).unwrap_or(words)
}

/// What of the time `waited` the guest is to answer for: not what the host's device has taken for one request, such as to flush what a slow
/// disk has waiting. Many requests, one after the other, are the guest's own.
fn of_the_guest(waited: Duration, device_busy_for: Option<Duration>) -> Duration {
    if device_busy_for.is_some_and(|busy| busy >= waited) { Duration::ZERO } else { waited }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_files_is_told_whatever_the_kernel_printed_before_it_met_it() {
        let said = "Failed to initialize ubd device 0 :Couldn't determine size of device's file\n";
        let lack = Trouble::not_started(&rustix::io::Errno::MFILE.into());
        assert_eq!(lack, Trouble::NotStarted(NO_DESCRIPTORS.to_owned()));
        assert_eq!(why_not_started(NO_DESCRIPTORS.to_owned(), said), NO_DESCRIPTORS);
        assert_eq!(why_not_started("it ended at once".to_owned(), said), said.trim_end());
        assert_eq!(why_not_started("it ended at once".to_owned(), ""), "it ended at once");
    }

    #[test]
    fn a_guest_answers_for_its_own_time_and_not_for_that_of_one_long_request_of_its_disk() {
        let (long, short) = (Duration::from_secs(5), Duration::from_secs(1));
        assert_eq!(of_the_guest(long, None), long);
        assert_eq!(of_the_guest(long, Some(short)), long, "it has begun another meanwhile");
        assert_eq!(of_the_guest(short, Some(long)), Duration::ZERO);
    }
}
