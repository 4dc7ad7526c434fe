//! Catches panics of decoders of other crates, which process bytes that an attacker chose.
//!
//! A panic of such a decoder is an error of the image for the user. It becomes an error value, and no panic message is
//! printed. A decoder whose state may be inconsistent afterwards is not used again, and it is safe Rust, so memory
//! stays valid.
//! Invariant: panics of other code and of other threads are reported as usual.

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// The nesting depth of guarded calls in this thread.
    static WITHIN: Cell<u32> = const { Cell::new(0) };
}

static QUIET: Once = Once::new();

/// Runs `decode`. Fails with the errors of the function, and with `InvalidData` if the function panics.
pub(crate) fn guard<T>(decode: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    QUIET.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if WITHIN.try_with(Cell::get).unwrap_or(0) == 0 {
                before(panic);
            }
        }));
    });
    WITHIN.set(WITHIN.get() + 1);
    let decoded = catch_unwind(AssertUnwindSafe(decode));
    WITHIN.set(WITHIN.get() - 1);
    decoded.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::InvalidData, "its decoder failed")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_within_the_border_is_an_error_and_the_next_call_is_answered() {
        let failed = guard(|| if true { panic!("a decoder") } else { Ok(()) });
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(guard(|| guard(|| Ok(7))).unwrap(), 7);
        assert_eq!(WITHIN.get(), 0);
        assert!(catch_unwind(|| panic!("outside")).is_err());
    }
}
