//! Staying awake for the next request.
//!
//! A reader that sleeps in read(2) has to be woken, often on another processor. In a virtual machine that costs more
//! than the answer: 50 µs and more each way, where a request takes 3 to 5. A reader that looks again and again, and lets
//! others run in between, is not asleep when the next request comes: nobody has to wake it, and if the program that
//! asks is on the same processor, it runs at once. Root can do better: it also has idle processors stay awake ([`Idle`]),
//! which makes waking cheap both ways.
//! Invariant: an idle mount costs nothing: it stays awake only between requests that follow each other closely.
//! Invariant: whoever needs the processor gets it: it is given up at each look, and when that took long the reader
//! sleeps as others do, for some time.
//! Source: docs/decisions/0016-the-reader-stays-awake.md.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::idle::Idle;

/// How long to stay awake.
const LONGEST: Duration = Duration::from_micros(200);
/// Requests that are further apart do not follow each other closely.
const CLOSE: Duration = Duration::from_millis(1);
/// Who gives the processor up for longer has lost it to somebody with work of his own.
const LOST: Duration = Duration::from_micros(100);
/// For how long to sleep as others do after that; twice as long each time, up to [`MOST_DOUBLED`] times.
const PAUSE: Duration = Duration::from_millis(10);
const MOST_DOUBLED: u32 = 7;
/// After so many requests without a loss the next one counts as the first.
const CALM: u32 = 1024;
/// For how long idle processors stay awake after a request.
const QUIET: Duration = Duration::from_millis(20);

/// What the thread that reads requests does between two of them.
pub(crate) struct Linger {
    device: OwnedFd,
    /// Where one may ask for it.
    idle: Option<Idle>,
    start: Instant,
    /// When the last request was answered, and until when to sleep as others do: nanoseconds after `start`.
    answered: AtomicU64,
    paused: AtomicU64,
    /// Losses not long ago, and requests since the last.
    losses: AtomicU32,
    calm: AtomicU32,
}

impl Linger {
    /// For the requests of `device`. Errors: no more open files.
    pub(crate) fn new(device: &OwnedFd, idle: Option<Idle>) -> io::Result<Self> {
        Ok(Self {
            device: device.try_clone()?,
            idle,
            start: Instant::now(),
            answered: AtomicU64::default(),
            paused: AtomicU64::default(),
            losses: AtomicU32::default(),
            calm: AtomicU32::default(),
        })
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Stays awake after an answer until `attempt` gets a request, or it is time to sleep. Reading says at once that none is
    /// there, so nobody asks before.
    pub(crate) fn wait<T>(&self, attempt: impl FnMut() -> Option<T>) -> Option<T> {
        let begin = self.elapsed();
        let before = Duration::from_nanos(self.answered.swap(nanos(begin), Ordering::Relaxed));
        let is_close = begin.saturating_sub(before) <= CLOSE;
        let is_paused = begin < Duration::from_nanos(self.paused.load(Ordering::Relaxed));
        if let Some(idle) = self.idle.as_ref().filter(|_| is_close) {
            idle.keep_awake();
        }
        if is_close
            && !is_paused
            && let Some(got) = self.stay_awake(begin, attempt)
        {
            return Some(got);
        }
        self.sleep_lightly();
        None
    }

    /// Sleeps until a request is there; if processors are awake, with them, for as long as requests come.
    pub(crate) fn sleep_lightly(&self) {
        if let Some(idle) = self.idle.as_ref().filter(|idle| idle.is_awake())
            && !self.is_ready(QUIET)
        {
            idle.let_sleep();
        }
    }

    /// Tries again and again.
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

    /// Somebody else needs the processor: it is his for some time.
    fn pause(&self, now: Duration) {
        self.calm.store(0, Ordering::Relaxed);
        let losses = self.losses.fetch_add(1, Ordering::Relaxed).min(MOST_DOUBLED);
        let until = now.saturating_add(PAUSE.saturating_mul(1 << losses));
        self.paused.store(nanos(until), Ordering::Relaxed);
    }

    /// Sleeps until a request is there, or an end.
    pub(crate) fn sleep(&self) {
        let _ = poll(&mut [PollFd::from_borrowed_fd(self.device.as_fd(), PollFlags::IN)], None);
    }

    /// Whether a request is there, or an end, before `most` has passed.
    fn is_ready(&self, most: Duration) -> bool {
        let mut look = [PollFd::from_borrowed_fd(self.device.as_fd(), PollFlags::IN)];
        let most = Timespec { tv_sec: 0, tv_nsec: most.subsec_nanos().into() };
        !matches!(poll(&mut look, Some(&most)), Ok(0))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek};

    fn linger() -> (Linger, OwnedFd) {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        (Linger::new(&reader, None).unwrap(), writer)
    }

    #[test]
    fn a_request_that_is_there_is_not_waited_for() {
        let (linger, writer) = linger();
        rustix::io::write(&writer, b"x").unwrap();
        linger.sleep();
        // Requests are close to each other unless this thread has to wait for a processor.
        assert!((0..1000).any(|_| linger.wait(|| Some(())).is_some()));
    }

    #[test]
    fn the_end_of_the_connection_is_not_waited_for() {
        let (linger, writer) = linger();
        assert!(!linger.is_ready(Duration::ZERO));
        drop(writer);
        linger.sleep();
        assert!(linger.is_ready(Duration::ZERO));
    }

    #[test]
    fn a_loss_pauses_for_twice_as_long_as_the_one_before() {
        let (linger, _writer) = linger();
        let paused = |linger: &Linger| {
            linger.pause(Duration::ZERO);
            Duration::from_nanos(linger.paused.load(Ordering::Relaxed))
        };
        let pauses: Vec<_> = (0..9).map(|_| paused(&linger).as_millis()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1280, 1280]);
    }

    #[test]
    fn nobody_stays_awake_for_long() {
        let (linger, _writer) = linger();
        (0..10).for_each(|_| assert_eq!(linger.wait(|| None::<()>), None));
        assert!(!linger.is_ready(Duration::ZERO));
    }

    #[test]
    fn processors_stay_awake_until_no_request_has_come_for_some_time() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut asked = tempfile::tempfile().unwrap();
        let idle = Idle::over(asked.try_clone().unwrap());
        let linger = Linger::new(&reader, idle).unwrap();
        let mut seen = || {
            let mut bytes = Vec::new();
            asked.rewind().unwrap();
            asked.read_to_end(&mut bytes).unwrap();
            let numbers = bytes.chunks_exact(4).map(|number| i32::from_ne_bytes(number.try_into().unwrap()));
            numbers.collect::<Vec<_>>()
        };
        rustix::io::write(&writer, b"x").unwrap();
        linger.idle.as_ref().unwrap().keep_awake();
        linger.sleep_lightly();
        assert_eq!(seen(), [2_000_000_000, 0]);
        rustix::io::read(&reader, &mut [0; 1]).unwrap();
        // Not a close one, and all the same the processors are let go.
        linger.wait(|| None::<()>);
        assert_eq!(seen(), [2_000_000_000, 0, 2_000_000_000]);
    }
}
