//! Converts the errors of the engine to those of the driver interface.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use obento_base::{DeviceError, Error, Refusal};

use crate::engine::EngineError;

/// The most reasons that are stored.
const KEPT_MAX: usize = 64;

/// The reason for a guest that the watchdog ended.
pub(crate) const HUNG: &str =
    "did not respond in time and was stopped (if it had too little memory, use a larger --engine-memory)";

impl From<EngineError> for Error {
    fn from(trouble: EngineError) -> Self {
        let what = match trouble {
            EngineError::Errno(errno) => return of_errno(errno),
            EngineError::Device(error) => return error,
            EngineError::NotStarted(reason) => kept("did not start", &reason),
            EngineError::NotMounted(errno, said) => match of_errno(errno) {
                Self::Device(DeviceError::Engine(what)) => kept(what, &said),
                other => kept("cannot mount it", &format!("{other} ({said})")),
            },
            EngineError::Ended(Some(reason)) => kept("ended unexpectedly", &reason),
            EngineError::Ended(None) => "ended unexpectedly",
            EngineError::Hung => HUNG,
            EngineError::Nonsense => "sent an invalid reply and was stopped",
            EngineError::TooLarge => return Self::OutOfRange,
        };
        DeviceError::Engine(what).into()
    }
}

/// Stores `what` and its reason permanently, each text once: errors are copied and own no memory. Some
/// reasons come from hostile images, so only the first ones are stored.
fn kept(what: &'static str, reason: &str) -> &'static str {
    static KEPT: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut all = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let words = format!("{what}: {reason}");
    match all.get(words.as_str()) {
        Some(known) => known,
        None if all.len() < KEPT_MAX => {
            let words: &'static str = words.leak();
            all.insert(words);
            words
        }
        None => what,
    }
}

/// Returns the error with this number: the inverse of [`Error::errno`].
fn of_errno(errno: u32) -> Error {
    let reason = match errno {
        7 => return Error::OutOfRange,
        // ENOTTY, for an ioctl that the type does not support.
        25 => return Error::NotSupported,
        // EUCLEAN and EBADMSG, which file systems of Linux return for damage and wrong checksums.
        117 | 74 => "reports damage on the volume",
        5 => "reports an input/output error",
        _ => match i32::try_from(errno).ok().and_then(Refusal::of_errno) {
            Some(refusal) => return Error::Refused(refusal),
            None => {
                tracing::debug!(errno, "unknown error number of the guest");
                "reports an unknown error"
            }
        },
    };
    DeviceError::Engine(reason).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_error_numbers_map_to_the_errors_with_these_numbers() {
        for errno in (1..134).filter(|errno| !matches!(errno, 5 | 7 | 25 | 74 | 117)) {
            if let Error::Refused(refusal) = of_errno(errno) {
                assert_eq!(Error::Refused(refusal).errno().0.unsigned_abs(), errno);
            }
        }
    }
}
