//! Messages in the kernel log, damage, panics, and the clock.

use core::ffi::c_void;
use core::fmt::{self, Write as _};

use obento_base::{Error, Timestamp};
use obento_env::Clock;

use crate::abi::{Bytes, lend};

unsafe extern "C" {
    fn ob_print(text: Bytes);
    fn ob_damage(sb: *mut c_void, text: Bytes);
    // Does not return. The declaration leaves that out, so that an instruction follows each call: objtool requires it.
    #[cfg(obento_env = "kernel")]
    fn ob_bug();
    fn ob_now(secs: *mut i64, nanos: *mut u32);
}

/// A line of the kernel log. It is on the stack, since memory may be short; the end of a long line is cut off.
struct Line {
    text: [u8; 240],
    len: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.text.get_mut(self.len..).unwrap_or_default();
        room.iter_mut().zip(text.as_bytes()).for_each(|(to, from)| *to = *from);
        self.len = self.len.saturating_add(text.len()).min(self.text.len());
        Ok(())
    }
}

impl Line {
    fn of(text: fmt::Arguments<'_>) -> Self {
        let mut line = Self { text: [0; 240], len: 0 };
        let _ = line.write_fmt(text);
        line
    }

    fn bytes(&self) -> Bytes {
        lend(self.text.get(..self.len).unwrap_or_default())
    }
}

/// Prints a message.
#[inline(never)]
pub(crate) fn print(text: fmt::Arguments<'_>) {
    // SAFETY: the bytes live until the end of the call.
    unsafe { ob_print(Line::of(text).bytes()) }
}

/// Prints an error that the disk or the device caused, and lets the mount option `errors=` decide what follows.
#[inline(never)]
fn damage(sb: *mut c_void, error: &Error) {
    // SAFETY: the super block outlives the volume.
    unsafe { ob_damage(sb, Line::of(format_args!("{error}")).bytes()) }
}

/// Returns the error number of `error`, and reports damage.
pub(crate) fn errno(sb: *mut c_void, error: &Error) -> i32 {
    if matches!(error, Error::Corrupt(_) | Error::Device(_)) {
        damage(sb, error);
    }
    error.errno().0.saturating_neg()
}

#[cfg(obento_env = "kernel")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    print(format_args!("{info}"));
    loop {
        // SAFETY: the thread ends here.
        unsafe { ob_bug() }
    }
}

/// The clock of the kernel, at the resolution of its inode timestamps.
pub(crate) struct KernelClock;

impl Clock for KernelClock {
    fn now(&self) -> Timestamp {
        let (mut secs, mut nanos) = (0, 0);
        // SAFETY: both references are valid for writing.
        unsafe { ob_now(&mut secs, &mut nanos) };
        Timestamp::new(secs, nanos)
    }
}
