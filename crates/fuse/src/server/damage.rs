//! The log of damage. Each damaged structure is logged once, however many requests find it.
//!
//! A request that fails because of damage logs it. A lookup succeeds if the name can be decoded although its block is
//! damaged: the driver then adds a notice, which is logged at the next lookup, but at most once a second, and when the
//! mount ends.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use obento_base::Error;
use obento_driver::Notice;
use obento_vfs::Vfs;

/// The maximum number of remembered problems. Further damage is not logged.
const MOST: usize = 256;
/// The time between two looks at the notices, which take longer than a lookup.
const PAUSE: Duration = Duration::from_secs(1);

/// The damage that this process has logged.
static LOGGED: Mutex<Vec<Error>> = Mutex::new(Vec::new());

/// Logs an error of a request, unless it is a refusal. Logs each damaged structure once.
pub(super) fn log(error: &Error, what: &'static str) {
    match error {
        Error::Refused(_) => {}
        Error::Corrupt(_) if !is_new(error) => {}
        Error::Corrupt(_) => tracing::error!(%error, "{what}; 'obento check' repairs an unmounted volume"),
        _ => tracing::warn!(%error, "{what}"),
    }
}

fn is_new(error: &Error) -> bool {
    let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_new = logged.len() < MOST && !logged.contains(error);
    if is_new {
        logged.push(*error);
    }
    is_new
}

/// The notices of a volume.
#[derive(Debug)]
pub(super) struct Notices {
    /// The number of notices that the mount has reported when it opened the volume.
    first: usize,
    /// The time of the last look.
    last: Mutex<Option<Instant>>,
}

impl Notices {
    /// Starts after the present notices of `vfs`.
    pub(super) fn new(vfs: &Vfs) -> Self {
        Self { first: vfs.info().notices.len(), last: Mutex::new(None) }
    }

    /// Logs new notices of damage, unless they were examined within the last second.
    pub(super) fn log_sometimes(&self, vfs: &Vfs) {
        let now = Instant::now();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|last| now.duration_since(last) >= PAUSE) {
            *last = Some(now);
            drop(last);
            self.log_all(vfs);
        }
    }

    /// Logs new notices of damage.
    pub(super) fn log_all(&self, vfs: &Vfs) {
        for notice in vfs.info().notices.iter().skip(self.first) {
            if let Notice::Damaged(error) = notice {
                log(error, "a part of the volume is damaged");
            }
        }
    }
}
