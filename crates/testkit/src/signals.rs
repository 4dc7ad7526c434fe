//! Tests that no call raises `SIGPIPE`.

use std::io::pipe;
use std::process::Command;

/// The variable that marks the process in which the signal is blocked.
const INSIDE: &str = "OBENTO_TEST_SIGPIPE_IS_BLOCKED";
/// The bit of `SIGPIPE` in the masks of `/proc`: signal 13.
const SIGPIPE: u64 = 1 << 12;

/// Runs `calls` in a process that blocks `SIGPIPE`, so that a raised signal stays pending, and fails if one is. `test` is the
/// path of the calling test in its program.
///
/// The signal is invisible otherwise: a program of Rust ignores it, and other programs end.
///
/// # Panics
///
/// `calls` raise the signal, or fail.
pub fn expect_no_sigpipe(test: &str, calls: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_none() {
        let mut command = Command::new("env");
        command.arg("--block-signal=PIPE").arg(std::env::current_exe().expect("a path"));
        let output = command.args(["--exact", test]).env(INSIDE, "1").output().expect("env starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    calls();
    assert!(!is_pending(), "a call raised SIGPIPE");
    // The state of the process shows the signal if there is one.
    let (reader, writer) = pipe().expect("a pipe");
    drop(reader);
    rustix::io::write(&writer, b"x").expect_err("no process reads from the pipe");
    assert!(is_pending(), "SIGPIPE is not blocked");
}

/// Returns whether the signal is pending for this thread.
fn is_pending() -> bool {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("the state of the thread");
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:")).expect("pending signals");
    u64::from_str_radix(pending.trim(), 16).expect("a mask") & SIGPIPE != 0
}
