//! The keeper of a mount (`-o failover`): starts the server, and another one when a server fails.
//!
//! The keeper reads nothing from the image and nothing from the users of the mount. It has the connection to the kernel,
//! the image with its lock, and the ledger open, so that all of them survive a server.
//! It has no capabilities if the servers of root can regain them: without `no_new_privs`
//! (`drop_capabilities_until_exec`).
//!
//! Invariant: a server is started only after the process of the one before has ended, so that never two servers write.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use obento::host::sandbox::drop_capabilities_until_exec;
use obento_fuse::handover::{Connection, Guard, Kind, Message};
use obento_fuse::{refuse_all, signals};

use super::args::Args;
use super::janitor::Janitor;
use super::recipient::Recipient;
use super::{failover, log, start};
use crate::context::Context;
use crate::report::{HELP, Report, foreign_with_hint};

/// The time within which failures of servers are counted.
const WITHIN: Duration = Duration::from_secs(10);

/// The program of a server.
const PROGRAM: &str = "/proc/self/exe";

/// The place of the connection to the kernel among the descriptors of a guard.
const DEVICE: usize = 1;

/// A running server.
struct Running {
    child: Child,
    connection: Connection,
}

impl Running {
    /// Starts `obento mount --kept` with `arguments`.
    fn start(arguments: Vec<OsString>) -> io::Result<Self> {
        let (own, other) = UnixStream::pair()?;
        let mut command = Command::new(PROGRAM);
        // Messages about an image in use show this name.
        command.arg0("obento").args(["mount", "--kept"]).args(arguments).stdin(OwnedFd::from(other));
        let child = command.spawn()?;
        // The other end of the connection is open in the server only.
        drop(command);
        Ok(Self { child, connection: Connection::of_stream(own)? })
    }

    /// Waits for the end of the process, after its connection has ended.
    fn wait(&mut self) -> io::Result<ExitStatus> {
        // Usually, the process has ended. If it has only closed its connection, it must not write any more.
        let _ = self.child.kill();
        self.child.wait()
    }
}

/// Why a server does not serve any more.
enum End {
    /// The mount ends.
    Orderly,
    /// The server has failed.
    Failed,
    /// No server can continue, for this reason: one line, and a hint if there is one.
    Hopeless(String),
}

fn watch(connection: &Connection) -> End {
    match connection.receive(None) {
        Ok(Message { kind: Kind::Ended, .. }) => End::Orderly,
        Ok(Message { kind: Kind::Cannot, fields, .. }) => {
            End::Hopeless(foreign_with_hint(&String::from_utf8_lossy(&fields)))
        }
        Ok(_) | Err(_) => End::Failed,
    }
}

/// The times of recent failures, and the number that is too high.
struct Failures {
    recent: VecDeque<Instant>,
    most: usize,
}

impl Failures {
    /// Adds a failure. Returns whether there were too many.
    fn add(&mut self, now: Instant) -> bool {
        self.recent.push_back(now);
        while self.recent.front().is_some_and(|first| now.duration_since(*first) > WITHIN) {
            self.recent.pop_front();
        }
        self.recent.len() >= self.most
    }
}

/// Starts a server for `args`, and keeps its mount until the end, or until the number of failures within a short time is
/// `most`.
pub fn run(args: &Args, most: u32, context: &Context) -> Result<(), Report> {
    let image = args.image().as_bytes();
    let failed = |error: io::Error| Report::on("cannot keep a server for", image, error);
    signals::hold().map_err(failed)?;
    log::start(args.log.as_deref()).map_err(failed)?;
    let mut arguments: Vec<OsString> = Vec::new();
    arguments.push(if args.detached { "--detached" } else { "--foreground" }.into());
    arguments.extend(start::arguments(args, context));
    let mut server = Running::start(arguments).map_err(failed)?;
    let recipient = Recipient::new(&server.child).map_err(failed)?;
    let Ok(message) = server.connection.expect_at_last(Kind::Guard) else {
        // The server has reported the reason.
        let status = server.child.wait().map_err(failed)?;
        context.raise(exit_code(status));
        return Ok(());
    };
    if args.detached {
        start::detach().map_err(failed)?;
        let null = start::null().map_err(failed)?;
        rustix::stdio::dup2_stdout(&null)
            .and_then(|()| rustix::stdio::dup2_stderr(&null))
            .map_err(|e| failed(e.into()))?;
    }
    // From here on, the keeper only passes descriptors on and starts servers, which regain the capabilities.
    let capabilities = drop_capabilities_until_exec(Path::new(PROGRAM));
    tracing::debug!(?capabilities, "the keeper dropped its capabilities");
    recipient.pass_signals_on().map_err(failed)?;
    let failures = Failures { recent: VecDeque::new(), most: usize::try_from(most).unwrap_or(usize::MAX) };
    keep(server, message, failures, &recipient, context)
        .map_err(|why| Report::on("cannot restart the server of", image, why))
}

fn exit_code(status: ExitStatus) -> u8 {
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Restarts servers until the mount ends. Fails if it gives up, after the mount has ended.
fn keep(
    mut server: Running,
    message: Message,
    mut failures: Failures,
    recipient: &Recipient,
    context: &Context,
) -> Result<(), String> {
    let Message { fields, descriptors, .. } = message;
    let mut guard = Guard::decode(&fields).map_err(|error| error.to_string())?;
    loop {
        let why = match watch(&server.connection) {
            End::Orderly => {
                drop(descriptors);
                let _ = server.connection.send(Kind::Go, &[], &[]);
                let status = server.child.wait().map_err(|error| error.to_string())?;
                context.raise(exit_code(status));
                return Ok(());
            }
            End::Failed => {
                let status = server.wait().map_err(|error| error.to_string())?;
                let is_too_often = failures.add(Instant::now());
                tracing::error!(%status, "the server has failed");
                let (most, seconds) = (failures.most, WITHIN.as_secs());
                is_too_often.then(|| format!("it failed {most} times within {seconds} seconds"))
            }
            End::Hopeless(why) => {
                server.wait().map_err(|error| error.to_string())?;
                Some(why)
            }
        };
        if let Some(why) = why {
            recipient.give_up(janitor(&guard));
            return Err(give_up(descriptors, why));
        }
        guard.failovers += 1;
        let next = Running::start(vec!["--revived".into()]);
        server = match next.and_then(|next| recipient.replace(&next.child).map(|()| next)) {
            Ok(server) => server,
            Err(error) => {
                recipient.give_up(janitor(&guard));
                return Err(give_up(descriptors, format!("no process can be started: {error}")));
            }
        };
        let borrowed: Vec<_> = descriptors.iter().map(|descriptor| descriptor.as_fd()).collect();
        // If the new server has failed, its connection has ended.
        let _ = server.connection.send(Kind::Guard, &guard.encode(), &borrowed);
    }
}

/// Starts the process that unmounts the mount of the server that has failed, if the mount is found.
fn janitor(guard: &Guard) -> Option<Janitor> {
    Janitor::start(&failover::find(guard).ok()?).ok()
}

/// Makes all requests fail until the mount ends. Returns `why`.
fn give_up(descriptors: Vec<OwnedFd>, why: String) -> String {
    let cause = why.split(HELP).next().unwrap_or_default();
    tracing::error!(why = %cause, "no further server is started: requests fail, and data that was not synced is lost");
    // Processes that unmount do not wait for a server, and others can open the image.
    let device = descriptors.into_iter().nth(DEVICE);
    if let Some(Err(error)) = device.map(refuse_all) {
        tracing::error!(%error, "the connection to the kernel failed");
    }
    why
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_server_is_one_line_without_terminal_controls() {
        let (own, other) = UnixStream::pair().unwrap();
        let (own, other) = (Connection::of_stream(own).unwrap(), Connection::of_stream(other).unwrap());
        let text = format!("\u{1b}]0;title\u{7}\nobento: false{}", "A".repeat(60_000));
        other.send(Kind::Cannot, text.as_bytes(), &[]).unwrap();
        let End::Hopeless(why) = watch(&own) else { panic!("the server cannot continue") };
        assert!(why.starts_with(r"\033]0;title\a\nobento: falseAAA") && why.len() < 1100, "{why}");
    }

    #[test]
    fn the_hint_of_a_server_is_the_hint_of_the_keeper() {
        let (own, other) = UnixStream::pair().unwrap();
        let (own, other) = (Connection::of_stream(own).unwrap(), Connection::of_stream(other).unwrap());
        other.send(Kind::Cannot, b"no such file\n  help: check the name", &[]).unwrap();
        let End::Hopeless(why) = watch(&own) else { panic!("the server cannot continue") };
        let report = Report::on("cannot restart the server of", "a.img", why);
        assert_eq!(
            report.to_string(),
            "cannot restart the server of 'a.img': no such file\n  help: check the name"
        );
    }

    #[test]
    fn only_failures_in_a_short_time_are_too_many() {
        let begin = Instant::now();
        let mut failures = Failures { recent: VecDeque::new(), most: 3 };
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert!(![0, 9, 11, 20, 31].map(|seconds| failures.add(at(seconds))).contains(&true));
        assert!(!failures.add(at(36)));
        assert!(failures.add(at(40)));
    }
}
