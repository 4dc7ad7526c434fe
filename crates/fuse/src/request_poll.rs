//! Polling for the next request instead of sleeping.
//!
//! A reader that sleeps in read(2) must be woken, often on another processor. In a virtual machine a wake-up takes 50
//! µs and more in each direction, but the answer takes only 3 to 5 µs. A reader that polls, and yields the processor
//! between polls, needs no wake-up. If the requesting program is on the same processor, the reader runs as soon as that
//! program waits. Root can also keep idle processors awake ([`Idle`]), which speeds up wake-ups in both directions.
//! Invariant: an idle mount uses no processor time: the reader polls only between requests that follow each other
//! closely.
//! Invariant: other threads that need the processor get it: the reader yields it after each poll. If a yield took long,
//! the reader sleeps in the usual way for some time.
//! Source: docs/decisions/0016-the-server-stays-awake-between-requests.md.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::idle::Idle;
use crate::pauser::Pauser;

/// The longest time to poll.
const LONGEST: Duration = Duration::from_micros(200);
/// The longest time between requests that follow each other closely.
const CLOSE: Duration = Duration::from_millis(1);
/// A yield that takes longer shows that another thread needs the processor.
const LOST: Duration = Duration::from_micros(100);
/// The time without polling after a long yield. It doubles each time, up to [`MOST_DOUBLED`] times.
const PAUSE: Duration = Duration::from_millis(10);
const MOST_DOUBLED: u32 = 7;
/// After this many requests without a long yield, the next long yield counts as the first one.
const CALM: u32 = 1024;
/// The usual value of [`RequestPoll::quiet`].
const QUIET: Duration = Duration::from_millis(20);

/// The behaviour of the reading thread between two requests.
pub(crate) struct RequestPoll {
    device: OwnedFd,
    /// Ends waiting early.
    pauser: Option<Pauser>,
    /// `None` if this process may not change the latency.
    idle: Option<Idle>,
    /// The time for which idle processors stay awake after a request.
    quiet: Duration,
    start: Instant,
    /// The time of the last answer, and the time until which the reader does not poll, in nanoseconds after `start`.
    answered: AtomicU64,
    paused: AtomicU64,
    /// The number of recent long yields, and the number of requests since the last one.
    losses: AtomicU32,
    calm: AtomicU32,
}

impl RequestPoll {
    /// Waits for requests of `device`. Fails if the process can open no more files.
    pub(crate) fn new(device: impl AsFd, idle: Option<Idle>) -> io::Result<Self> {
        Ok(Self {
            device: device.as_fd().try_clone_to_owned()?,
            pauser: None,
            idle,
            quiet: QUIET,
            start: Instant::now(),
            answered: AtomicU64::default(),
            paused: AtomicU64::default(),
            losses: AtomicU32::default(),
            calm: AtomicU32::default(),
        })
    }

    /// Keeps processors awake by writing to `latency`, until no request has arrived for the time `quiet`.
    #[cfg(test)]
    pub(crate) fn kept_awake(self, latency: std::fs::File, quiet: Duration) -> Self {
        let idle = Idle::over(latency).unwrap();
        idle.keep_awake();
        Self { idle: Some(idle), quiet, ..self }
    }

    /// Also wakes up when `pauser` requests a pause.
    pub(crate) fn with_pauser(self, pauser: &Pauser) -> Self {
        Self { pauser: Some(pauser.clone()), ..self }
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Calls `attempt` after an answer until it returns a request or the time to poll is over. `attempt` does not
    /// block. Then lets idle processors sleep.
    pub(crate) fn wait<T>(&self, attempt: impl FnMut() -> Option<T>) -> Option<T> {
        let got = self.poll(attempt);
        if got.is_none() {
            self.sleep_lightly();
        }
        got
    }

    /// Calls `attempt` after an answer until it returns a request or the time to poll is over. `attempt` does not
    /// block.
    pub(crate) fn poll<T>(&self, attempt: impl FnMut() -> Option<T>) -> Option<T> {
        let begin = self.elapsed();
        let before = Duration::from_nanos(self.answered.swap(nanos(begin), Ordering::Relaxed));
        let is_close = begin.saturating_sub(before) <= CLOSE;
        let is_paused = begin < Duration::from_nanos(self.paused.load(Ordering::Relaxed));
        if let Some(idle) = self.idle.as_ref().filter(|_| is_close) {
            idle.keep_awake();
        }
        if is_close && !is_paused { self.stay_awake(begin, attempt) } else { None }
    }

    /// Returns whether idle processors are kept awake.
    pub(crate) fn keeps_awake(&self) -> bool {
        self.idle.as_ref().is_some_and(Idle::is_awake)
    }

    /// Lets idle processors sleep if they are kept awake and no request arrives within `quiet`.
    pub(crate) fn sleep_lightly(&self) {
        if let Some(idle) = self.idle.as_ref().filter(|idle| idle.is_awake())
            && !self.is_ready(self.quiet)
        {
            idle.let_sleep();
        }
    }

    /// Polls until a request arrives, the time is over, or another thread needs the processor.
    fn stay_awake<T>(&self, begin: Duration, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
        let mut last = begin;
        let got = loop {
            if let Some(got) = attempt() {
                break got;
            }
            rustix::thread::sched_yield();
            let now = self.elapsed();
            if now.saturating_sub(last) > LOST {
                self.pause(now);
                return None;
            }
            if now.saturating_sub(begin) > LONGEST {
                return None;
            }
            last = now;
        };
        if self.calm.fetch_add(1, Ordering::Relaxed) == CALM {
            self.losses.store(0, Ordering::Relaxed);
        }
        Some(got)
    }

    /// Stops polling for some time, because another thread needs the processor.
    fn pause(&self, now: Duration) {
        self.calm.store(0, Ordering::Relaxed);
        let losses = self.losses.fetch_add(1, Ordering::Relaxed).min(MOST_DOUBLED);
        let until = now.saturating_add(PAUSE.saturating_mul(1 << losses));
        self.paused.store(nanos(until), Ordering::Relaxed);
    }

    /// Sleeps until a request, the end of the connection or a request to pause arrives.
    pub(crate) fn sleep(&self) {
        self.wait_for_any(None);
    }

    /// Returns whether a request, the end of the connection or a request to pause arrives within `most`.
    pub(crate) fn is_ready(&self, most: Duration) -> bool {
        self.wait_for_any(Some(most))
    }

    fn wait_for_any(&self, most: Option<Duration>) -> bool {
        let device = PollFd::from_borrowed_fd(self.device.as_fd(), PollFlags::IN);
        let timespec = |most: Duration| Timespec {
            tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: most.subsec_nanos().into(),
        };
        let most = most.map(timespec);
        // The reader of a session that is about to pause continues to read.
        let ready = match self.pauser.as_ref().filter(|pauser| !pauser.is_requested()) {
            None => poll(&mut [device], most.as_ref()),
            Some(pauser) => {
                let pauser = PollFd::from_borrowed_fd(pauser.as_fd(), PollFlags::IN);
                poll(&mut [device, pauser], most.as_ref())
            }
        };
        !matches!(ready, Ok(0))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek};

    fn request_poll() -> (RequestPoll, OwnedFd) {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        (RequestPoll::new(&reader, None).unwrap(), writer)
    }

    #[test]
    fn a_pending_request_is_read_without_waiting() {
        let (request_poll, writer) = request_poll();
        rustix::io::write(&writer, b"x").unwrap();
        request_poll.sleep();
        // Requests follow each other closely unless this thread has to wait for a processor.
        assert!((0..1000).any(|_| request_poll.wait(|| Some(())).is_some()));
    }

    #[test]
    fn the_end_of_the_connection_is_not_waited_for() {
        let (request_poll, writer) = request_poll();
        assert!(!request_poll.is_ready(Duration::ZERO));
        drop(writer);
        request_poll.sleep();
        assert!(request_poll.is_ready(Duration::ZERO));
    }

    #[test]
    fn each_loss_doubles_the_pause() {
        let (request_poll, _writer) = request_poll();
        let paused = |request_poll: &RequestPoll| {
            request_poll.pause(Duration::ZERO);
            Duration::from_nanos(request_poll.paused.load(Ordering::Relaxed))
        };
        let pauses: Vec<_> = (0..9).map(|_| paused(&request_poll).as_millis()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1280, 1280]);
    }

    #[test]
    fn no_thread_stays_awake_for_long() {
        let (request_poll, _writer) = request_poll();
        (0..10).for_each(|_| assert_eq!(request_poll.wait(|| None::<()>), None));
        assert!(!request_poll.is_ready(Duration::ZERO));
    }

    #[test]
    fn processors_stay_awake_until_no_request_has_come_for_some_time() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut asked = tempfile::tempfile().unwrap();
        let idle = Idle::over(asked.try_clone().unwrap());
        let request_poll = RequestPoll::new(&reader, idle).unwrap();
        let mut seen = || {
            let mut bytes = Vec::new();
            asked.rewind().unwrap();
            asked.read_to_end(&mut bytes).unwrap();
            let numbers = bytes.chunks_exact(4).map(|number| i32::from_ne_bytes(number.try_into().unwrap()));
            numbers.collect::<Vec<_>>()
        };
        rustix::io::write(&writer, b"x").unwrap();
        request_poll.idle.as_ref().unwrap().keep_awake();
        request_poll.sleep_lightly();
        assert_eq!(seen(), [2_000_000_000, 0]);
        rustix::io::read(&reader, &mut [0; 1]).unwrap();
        // This request does not follow closely, but the processors may sleep again all the same.
        request_poll.wait(|| None::<()>);
        assert_eq!(seen(), [2_000_000_000, 0, 2_000_000_000]);
    }
}
