//! One running kernel, which executes one request after the other.
//!
//! Invariant: every request ends: with the answer, with the end of the kernel, or with the watchdog, which ends the kernel.
//! After that all requests fail at once.

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

/// The time limit of a request. The slowest correct request is a sync of a whole device cache.
const WATCHDOG: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 60 });
/// The time limit of a request after a failed write of the device: XFS retries such a write for ever.
const GRACE: Duration = Duration::from_secs(5);
/// The time limit from the start of the kernel until it asks for its disk.
const START: Duration = Duration::from_secs(20);

/// The most files that a kernel and its host have open.
const DESCRIPTORS: u64 = 64;

/// Error numbers of Linux.
const ENOENT: u32 = 2;
const EIO: u32 = 5;
const ENOMEM: u32 = 12;
const ENOSPC: u32 = 28;
const EROFS: u32 = 30;

/// The remedy if the kernel has too little memory for a volume.
const NO_MEMORY: &str = "use a larger --engine-memory";

/// The missing resource if a kernel cannot be started.
const NO_DESCRIPTORS: &str = "no more files can be opened (`ulimit -n` shows the limit)";

/// The reason why a request has no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EngineError {
    /// The guest reports this error number of Linux.
    Errno(u32),
    /// The guest failed because its device failed.
    Device(Error),
    /// The kernel could not be started.
    NotStarted(String),
    /// The kernel does not mount the volume: an error number of Linux, and the messages that the kernel printed during
    /// the mount.
    NotMounted(u32, String),
    /// The kernel ended, with the reason if it printed one.
    Ended(Option<String>),
    /// The watchdog ended the kernel.
    Hung,
    /// The guest's answer is invalid.
    Nonsense,
    /// The request is larger than the shared memory.
    TooLarge,
}

impl EngineError {
    /// The reason why the kernel could not be started.
    pub fn not_started(error: &io::Error) -> Self {
        Self::NotStarted(if is_of_descriptors(error) { NO_DESCRIPTORS.to_owned() } else { error.to_string() })
    }
}

/// A running kernel and the connection to it.
pub struct Engine {
    /// The disk of the kernel.
    disk: Option<Serving>,
    guest: Guest,
    area: Area,
    dead: Option<EngineError>,
    /// The request that was sent before its result is needed, and its number.
    early: Option<(u32, Request)>,
    /// The first error of the device.
    failure: Arc<OnceLock<Error>>,
    /// The process that requested the disk.
    kernel: Option<Pid>,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.disk.iter_mut().for_each(Serving::stop);
        // The thread of the disk may wait for the rest of a message. Dropping the fields waits for that thread.
        self.guest.end();
    }
}

/// An [`Engine`] that several threads use.
pub struct Shared(Mutex<Engine>);

impl Shared {
    /// Starts a kernel with `device` as its disk.
    pub fn start(settings: &Settings<'_>, device: Arc<dyn BlockDevice>) -> Result<Self, EngineError> {
        let started = Area::new().and_then(|area| Ok((launch(settings, &area)?, area)));
        Self::serve(started, device)
    }

    /// Lets `starter` start a kernel for volumes of `kind`, with `memory` MiB.
    pub fn start_by(
        starter: &Starter,
        (kind, memory): (&Type, u32),
        device: Arc<dyn BlockDevice>,
    ) -> Result<Self, EngineError> {
        Self::serve(starter.launch(kind, memory), device)
    }

    fn serve(started: io::Result<(Guest, Area)>, device: Arc<dyn BlockDevice>) -> Result<Self, EngineError> {
        let (guest, area) = started.map_err(|error| EngineError::not_started(&error))?;
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

    /// Only the owner of this guard sends requests.
    pub fn turn(&self) -> MutexGuard<'_, Engine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// Waits for the kernel to ask for its disk, and serves it in a thread.
    fn connect(&mut self, device: Arc<dyn BlockDevice>) -> Result<(), EngineError> {
        // The socket is silent until a request was sent; it is closed when the kernel ends.
        let [asks, is_cut] = ready([self.guest.disk.as_fd(), self.guest.bell.as_fd()], START);
        if !asks {
            let why = if is_cut { "the kernel ended immediately" } else { "the kernel does not start" };
            return Err(self.give_up(EngineError::NotStarted(why.to_owned())));
        }
        let socket = self.guest.disk.accept();
        let served = socket.and_then(|(socket, _)| {
            self.kernel = socket_peercred(&socket).ok().map(|peer| peer.pid);
            Serving::start(Disk::new(device, socket, Arc::clone(&self.failure)))
        });
        self.disk = Some(served.map_err(|error| self.give_up(EngineError::not_started(&error)))?);
        Ok(())
    }

    /// Sends a request, with `data` beside it.
    pub fn ask(&mut self, envelope: &Envelope, data: &[u8]) -> Result<Answer, EngineError> {
        if let Some((number, _)) = self.early.take() {
            self.wait(number)?;
        }
        let number = self.send(envelope, data)?;
        self.answer(number)
    }

    /// Requests the mount of the volume. Many error numbers can be the result of a device error. The device's error is
    /// therefore returned instead, together with the messages that the kernel printed meanwhile.
    pub fn mount(&mut self, envelope: &Envelope) -> Result<Answer, EngineError> {
        let answer = self.ask(envelope, &[]);
        answer.map_err(|trouble| match (self.device_failure(), trouble) {
            (Some(error), _) => EngineError::Device(error),
            (None, EngineError::Errno(ENOENT)) if !self.has_found_its_disk() => {
                self.give_up(EngineError::NotStarted("the kernel found no disk".to_owned()))
            }
            (None, EngineError::Errno(ENOMEM)) => EngineError::NotMounted(ENOMEM, NO_MEMORY.to_owned()),
            (None, EngineError::Errno(errno)) => {
                let said = console::of_mount(&console::text(&self.guest.console));
                said.map_or(EngineError::Errno(errno), |said| EngineError::NotMounted(errno, said))
            }
            (None, other) => other,
        })
    }

    /// Sends the probable next request and does not wait: the guest works meanwhile. The caller that needs the result gets the error.
    pub fn ask_early(&mut self, request: Request) {
        let envelope = Envelope { request: Some(request.clone()), ..Envelope::default() };
        self.early = self.send(&envelope, &[]).ok().map(|number| (number, request));
    }

    /// Returns the answer to `request` if it was sent early and no other request was sent since.
    pub fn take_early(&mut self, request: &Request) -> Option<Result<Answer, EngineError>> {
        let (number, _) = self.early.take_if(|(_, early)| early == request)?;
        let _apart = self.kernel.and_then(ProcessorGuard::from_process);
        Some(self.answer(number))
    }

    fn send(&mut self, envelope: &Envelope, data: &[u8]) -> Result<u32, EngineError> {
        if let Some(dead) = &self.dead {
            return Err(dead.clone());
        }
        let number = self.area.ask(&encode(envelope), data).ok_or(EngineError::TooLarge)?;
        // Uses `write` and `read`, which are allowed after the process has given up its rights. A full socket means that the guest
        // takes nothing from it.
        if rustix::io::write(&self.guest.bell, b".").is_err() {
            return Err(self.give_up(EngineError::Ended(None)));
        }
        Ok(number)
    }

    fn answer(&mut self, number: u32) -> Result<Answer, EngineError> {
        let reply = self.wait(number)?;
        match decode(&reply) {
            Some(Answer::Failed { errno }) => Err(self.trouble(errno)),
            Some(answer) => Ok(answer),
            None => Err(self.give_up(EngineError::Nonsense)),
        }
    }

    /// Returns the meaning of the guest's error number. A failed device is reported as EIO, and later, or by types that stop, as
    /// EROFS. NILFS reports ENOSPC if it cannot write.
    pub fn trouble(&self, errno: u32) -> EngineError {
        let is_reported_as =
            |error: &Error| matches!(errno, EIO | EROFS) || errno == ENOSPC && is_of_writing(error);
        match self.device_failure().filter(is_reported_as) {
            Some(error) => EngineError::Device(error),
            None => EngineError::Errno(errno),
        }
    }

    /// Returns the first error of the device.
    pub fn device_failure(&self) -> Option<Error> {
        self.failure.get().copied()
    }

    /// Returns the number of read requests of the kernel that failed at the device, and the reason of the last failure.
    pub fn failed_reads(&self) -> (u64, Option<Error>) {
        self.disk.as_ref().map_or((0, None), |disk| disk.watch().failed_reads())
    }

    fn has_found_its_disk(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.watch().was_asked())
    }

    /// Returns the time since the device started its current request of the guest.
    fn device_busy_for(&self) -> Option<Duration> {
        self.disk.as_ref().and_then(|disk| disk.watch().busy_for())
    }

    /// Copies the data beside the last answer, from byte `skip` on.
    pub fn data(&self, skip: usize, into: &mut [u8]) {
        self.area.data(skip, into);
    }

    fn wait(&mut self, number: u32) -> Result<Vec<u8>, EngineError> {
        let mut left = WATCHDOG;
        loop {
            if left.is_zero() {
                let why = self.device_failure().map_or(EngineError::Hung, EngineError::Device);
                return Err(self.give_up(why));
            }
            // Failed reads are different: a disk that needs long for each bad sector is a disk to be rescued.
            let failed_to_write = self.device_failure().filter(is_of_writing);
            let (since, turn) = (Instant::now(), left.min(GRACE));
            let has_rung = ready([self.guest.bell.as_fd()], turn) == [true];
            left = left.saturating_sub(of_the_guest(since.elapsed(), self.device_busy_for()));
            if !has_rung {
                match failed_to_write {
                    Some(error) => return Err(self.give_up(EngineError::Device(error))),
                    None => continue,
                }
            }
            // The values of the bytes have no meaning. All bytes are read, so that the socket is never full.
            match rustix::io::read(&self.guest.bell, &mut [0; 64]) {
                Ok(1..) | Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                _ => return Err(self.give_up(EngineError::Ended(None))),
            }
            if let Some(reply) = self.area.reply(number) {
                return Ok(reply);
            }
        }
    }

    /// Ends the kernel for the reason `why`. Every later request fails with this reason.
    fn give_up(&mut self, why: EngineError) -> EngineError {
        let said = console::text(&self.guest.console);
        tracing::debug!(?why, said, "the kernel engine was stopped");
        let why = match why {
            EngineError::NotStarted(words) => EngineError::NotStarted(why_not_started(words, &said)),
            EngineError::Ended(_) => EngineError::Ended(console::of_end(&said)),
            other => other,
        };
        self.dead = Some(why.clone());
        why
    }
}

/// Returns the reason why a kernel that printed `said` did not start: the kernel's own message, else `words`. The
/// kernel's last message is not the reason if the process can open no more files. The kernel has the same limit.
fn why_not_started(words: String, said: &str) -> String {
    let few_files = matches!(getrlimit(Resource::Nofile).current, Some(0..DESCRIPTORS));
    let lack = (few_files || words == NO_DESCRIPTORS).then(|| NO_DESCRIPTORS.to_owned());
    lack.or_else(|| console::of_start(said)).unwrap_or(words)
}

/// Returns the part of the time `waited` that counts against the guest. The time that the device of the host needs for one
/// request does not count, for example a flush of a slow disk. The time of many requests in sequence counts.
fn of_the_guest(waited: Duration, device_busy_for: Option<Duration>) -> Duration {
    if device_busy_for.is_some_and(|busy| busy >= waited) { Duration::ZERO } else { waited }
}

/// Keeps this thread off the processor of the guest while this value exists. The guest's answer wakes the thread on the guest's
/// processor, where the two would alternate although the guest still works.
struct ProcessorGuard(CpuSet);

impl ProcessorGuard {
    /// Returns `None` if the machine has no other processor.
    fn from_process(guest: Pid) -> Option<Self> {
        let (own, taken) = (sched_getaffinity(None).ok()?, sched_getaffinity(Some(guest)).ok()?);
        let mut others = own;
        (0..CpuSet::MAX_CPU).filter(|cpu| taken.is_set(*cpu)).for_each(|cpu| others.unset(cpu));
        (others.count() > 0 && sched_setaffinity(None, &others).is_ok()).then_some(Self(own))
    }
}

impl Drop for ProcessorGuard {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.0);
    }
}

fn is_of_writing(error: &Error) -> bool {
    matches!(error, Error::Device(DeviceError::Write { .. } | DeviceError::Flush { .. }))
}

/// Returns which of `sources` have data or are closed, as soon as one of them does; none after `time`.
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
    fn a_lack_of_descriptors_is_reported_whatever_the_kernel_printed_before() {
        let said = "Failed to initialize ubd device 0 :Couldn't determine size of device's file\n";
        let lack = EngineError::not_started(&rustix::io::Errno::MFILE.into());
        assert_eq!(lack, EngineError::NotStarted(NO_DESCRIPTORS.to_owned()));
        assert_eq!(why_not_started(NO_DESCRIPTORS.to_owned(), said), NO_DESCRIPTORS);
        assert_eq!(why_not_started("it ended at once".to_owned(), said), said.trim_end());
        assert_eq!(why_not_started("it ended at once".to_owned(), ""), "it ended at once");
    }

    #[test]
    fn the_time_limit_of_a_guest_excludes_a_long_request_of_its_disk() {
        let (long, short) = (Duration::from_secs(5), Duration::from_secs(1));
        assert_eq!(of_the_guest(long, None), long);
        assert_eq!(of_the_guest(long, Some(short)), long, "it has begun another meanwhile");
        assert_eq!(of_the_guest(short, Some(long)), Duration::ZERO);
    }
}
