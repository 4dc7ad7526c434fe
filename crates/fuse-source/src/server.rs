//! The process of a server.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use obento_base::Error;
use obento_driver::{Access, FileSystem};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, accept_with, socketpair};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::connection::Connection;
use crate::contract::{Mounted, START};
use crate::error::{ENDED, HUNG};
use crate::folder::{Folder, Route};
use crate::helper::BUFFER;

/// How long a request may take. A network behind the server may be slow.
const DEADLINE: Duration = Duration::from_secs(60);
/// The bytes of a message that are printed.
const LINE_MAX: u64 = 4 << 10;
/// The bytes of all messages of a server that are printed.
const MESSAGES_MAX: usize = 1 << 20;
/// The mount point: standard input, which is the socket.
const MOUNT_POINT: &str = "/dev/fd/0";

/// The reason why a server was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address contains no program.
    #[error("the address names no program")]
    Empty,
    /// A quotation mark has no counterpart.
    #[error("a quotation mark is not closed")]
    Quote,
    /// The program did not start.
    #[error("cannot start '{program}': {error}")]
    Program {
        /// Name of the program.
        program: String,
        /// The error of the host.
        error: std::io::Error,
    },
    /// No folder for the server can be created.
    #[error("cannot create a directory for '{program}': {error}")]
    Folder {
        /// Name of the program.
        program: String,
        /// The error of the host.
        error: std::io::Error,
    },
    /// The server refused the connection.
    #[error("{0}")]
    Refused(Error),
    /// The server did not connect through the helper.
    #[error("{0}")]
    Unconnected(Error),
}

/// A running server, whose messages are printed until it is dropped.
pub struct FuseServer {
    process: OwnedFd,
    connection: Arc<Connection>,
    is_closing: Arc<AtomicBool>,
    /// Ends the child. A child that supervises its server ends it and removes its folder.
    signal: Signal,
}

impl FuseServer {
    /// Starts the server with this command line, without asking it anything. The words are separated by blanks;
    /// quotation marks and backslashes work as in a shell.
    ///
    /// `helper` is a program that calls [`mount_helper`](crate::mount_helper) if its name is `fusermount` or
    /// `fusermount3`. Without it, only servers can be used that accept `/dev/fd/N` as their mount point. A server that was
    /// started for reading may refuse all changes.
    ///
    /// # Errors
    ///
    /// [`StartError`].
    pub fn start(command: &OsStr, helper: Option<&Path>, access: Access) -> Result<Self, StartError> {
        let words = words(command.as_bytes())?;
        let (program, arguments) = words.split_first().ok_or(StartError::Empty)?;
        let path = found(program).ok_or_else(|| missing(program))?;
        match (helper, Route::of(&path).map_err(|error| failed_start(program, error))?) {
            (None, _) | (_, Route::Descriptor) => Self::start_with(program, arguments, DEADLINE),
            (Some(helper), route) => Self::start_helped(program, arguments, helper, route, access),
        }
    }

    /// Starts a program with arguments. Requests fail after `deadline`.
    pub fn start_with(
        program: &OsStr,
        arguments: &[OsString],
        deadline: Duration,
    ) -> Result<Self, StartError> {
        let failed = |error: std::io::Error| failed_start(program, error);
        if found(program).is_none() {
            return Err(missing(program));
        }
        let flags = SocketFlags::CLOEXEC;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (ours, theirs) = pair.map_err(|errno| failed(errno.into()))?;
        for socket in [&ours, &theirs] {
            let _ = rustix::net::sockopt::set_socket_send_buffer_size(socket, BUFFER);
        }
        rustix::io::ioctl_fionbio(&ours, true).map_err(|errno| failed(errno.into()))?;
        let mut command = command_for(program);
        command.args(arguments).arg(MOUNT_POINT);
        if !arguments.iter().any(|argument| argument == "-f" || argument == "--foreground")
            && knows_f(program)
        {
            command.arg("-f");
        }
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null());
        let (process, is_closing) = spawned(command, program)?;
        let connection = Arc::new(Connection::new(ours, deadline));
        Ok(Self { process, connection, is_closing, signal: Signal::KILL })
    }

    /// Starts a program that gets its connection from the helper.
    fn start_helped(
        program: &OsStr,
        arguments: &[OsString],
        helper: &Path,
        route: Route,
        access: Access,
    ) -> Result<Self, StartError> {
        let failed = |error: std::io::Error| failed_start(program, error);
        let folder = Folder::new(helper)
            .map_err(|error| StartError::Folder { program: program.to_string_lossy().into_owned(), error })?;
        let listener = folder.listen().map_err(failed)?;
        let mut command = folder.command(route, program).map_err(failed)?;
        command.args(arguments).arg(folder.mount_point());
        if route == Route::FixedHelper {
            // Some servers change their files only without `ro`.
            let options = if access == Access::ReadOnly { "ro,auto_unmount" } else { "auto_unmount" };
            command.args(["-f", "-o", options]);
        } else if is_named(program, "gocryptfs") {
            command.arg("-f");
        }
        let (process, is_closing) = spawned(command, program)?;
        folder.pass();
        let connected = accepted(&listener, &process).map_err(StartError::Unconnected);
        let ours = connected.inspect_err(|_| end(&process, Signal::TERM))?;
        let connection = Arc::new(Connection::new(ours, DEADLINE));
        Ok(Self { process, connection, is_closing, signal: Signal::TERM })
    }

    /// Agrees with the server on the protocol, and returns its file system. The file system keeps the server running.
    ///
    /// # Errors
    ///
    /// - [`StartError::Refused`]: the server ended, or speaks another protocol.
    pub fn mount(self, access: Access) -> Result<Arc<dyn FileSystem>, StartError> {
        let connection = self.connection.clone();
        mounted(connection, Some(self), access)
    }
}

fn failed_start(program: &OsStr, error: std::io::Error) -> StartError {
    StartError::Program { program: program.to_string_lossy().into_owned(), error }
}

fn missing(program: &OsStr) -> StartError {
    failed_start(program, rustix::io::Errno::NOENT.into())
}

/// Starts a command, prints its messages until the flag is set, and reaps its process when it ends. The descriptor
/// refers to this process even if its number belongs to another process later.
fn spawned(mut command: Command, program: &OsStr) -> Result<(OwnedFd, Arc<AtomicBool>), StartError> {
    let failed = |error: std::io::Error| failed_start(program, error);
    let mut child = command.stderr(Stdio::piped()).spawn().map_err(failed)?;
    let is_closing = Arc::new(AtomicBool::new(false));
    let messages = child.stderr.take();
    let opened = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
    let process = match opened {
        Ok(process) => process,
        Err(errno) => {
            // It was not reaped, so that its number is its own.
            let _ = child.kill();
            let _ = child.wait();
            return Err(failed(errno.into()));
        }
    };
    let name = |text: &str| std::thread::Builder::new().name(text.into());
    let is_set = is_closing.clone();
    let threads = name("fuse server").spawn(move || drop(child.wait())).and_then(|_| match messages {
        Some(messages) => name("fuse messages").spawn(move || forward(messages, &is_set)).map(drop),
        None => Ok(()),
    });
    threads.inspect_err(|_| end(&process, Signal::KILL)).map_err(failed)?;
    Ok((process, is_closing))
}

/// Returns the connection of the helper that the server runs.
fn accepted(listener: &OwnedFd, process: &OwnedFd) -> Result<OwnedFd, Error> {
    let until = Instant::now() + START;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(HUNG);
        }
        let timeout = Timespec::try_from(left).map_err(|_| HUNG)?;
        let mut ready = [listener, process].map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN));
        match poll(&mut ready, Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(_) => return Err(ENDED),
        }
        match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => {
                let _ = rustix::net::sockopt::set_socket_send_buffer_size(&socket, BUFFER);
                return Ok(socket);
            }
            Err(Errno::AGAIN) if ready[1].revents().is_empty() => {}
            Err(_) => return Err(ENDED),
        }
    }
}

/// Sends a signal to a process. In a sandbox this fails.
fn end(process: &OwnedFd, signal: Signal) {
    let _ = pidfd_send_signal(process, signal);
}

fn mounted(
    connection: Arc<Connection>,
    server: Option<FuseServer>,
    access: Access,
) -> Result<Arc<dyn FileSystem>, StartError> {
    Mounted::new(connection, server, access)
        .map(|mounted| Arc::new(mounted) as _)
        .map_err(StartError::Refused)
}

/// Returns the file system of a server that the caller started. `socket` is the kernel's end of the connection, and
/// keeps the bounds of messages (`SOCK_SEQPACKET`). Requests fail after `deadline`.
///
/// # Errors
///
/// - [`StartError::Refused`]: the server ended, or speaks another protocol.
pub fn connect(
    socket: OwnedFd,
    deadline: Duration,
    access: Access,
) -> Result<Arc<dyn FileSystem>, StartError> {
    let blocking = rustix::io::ioctl_fionbio(&socket, true);
    blocking.map_err(|_| StartError::Refused(Error::Invalid))?;
    mounted(Arc::new(Connection::new(socket, deadline)), None, access)
}

impl Drop for FuseServer {
    fn drop(&mut self) {
        self.is_closing.store(true, Ordering::Relaxed);
        // A server that answers has nothing left to do. In a sandbox the calls after this one fail, and the server ends
        // when the socket is closed or by the signal of its starter.
        self.connection.destroy();
        end(&self.process, self.signal);
    }
}

/// Returns a command that ends with this process, however this process ends, if `setpriv` of util-linux is installed.
fn command_for(program: &OsStr) -> Command {
    if !Path::new("/usr/bin/setpriv").exists() {
        return Command::new(program);
    }
    let mut command = Command::new("/usr/bin/setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Returns the file of a program, as its starter would find it.
fn found(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(|file| file.exists());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.exists())
}

fn is_named(program: &OsStr, name: &str) -> bool {
    Path::new(program).file_name() == Some(OsStr::new(name))
}

/// Returns whether a program stays in the foreground with `-f`, as those of libfuse do. Programs of go-fuse do not know
/// it or stay there anyway.
fn knows_f(program: &OsStr) -> bool {
    !["rclone", "gocryptfs"].iter().any(|name| is_named(program, name))
}

/// Prints the messages of the server, until it is being closed.
fn forward(messages: ChildStderr, is_closing: &AtomicBool) {
    each_message(&mut BufReader::new(messages), |text| {
        if !is_closing.load(Ordering::Relaxed) {
            // The output of the server is read to its end even if standard error is closed.
            let _ = writeln!(io::stderr().lock(), "{text}");
        }
    });
}

/// Passes each line of `messages` to `print`, until their end or an error. A long line is cut, and ends with a note. After
/// [`MESSAGES_MAX`] bytes, the rest is read and not passed, so that the server does not wait for a reader.
fn each_message(messages: &mut impl BufRead, mut print: impl FnMut(&str)) {
    let (mut line, mut printed) = (Vec::new(), 0);
    loop {
        if printed >= MESSAGES_MAX {
            print("further messages of the FUSE server are not printed");
            let _ = io::copy(messages, &mut io::sink());
            return;
        }
        line.clear();
        match messages.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let is_cut = line.pop_if(|last| *last == b'\n').is_none() && line.len() as u64 == LINE_MAX;
        // Only printable characters: a message may come from the other end of a network.
        let mut text: String =
            String::from_utf8_lossy(&line).chars().filter(|&c| obento_base::is_printable(c)).collect();
        let rest = if is_cut { skip_line(messages) } else { Ok(0) };
        match rest {
            Ok(0) => print(&text),
            Ok(count) => {
                let _ = write!(text, "... ({count} more bytes)");
                print(&text);
            }
            Err(_) => return print(&text),
        }
        printed += text.len() + 1;
    }
}

/// Reads up to the end of the line without storing it. Returns the number of bytes before the end.
fn skip_line(messages: &mut impl BufRead) -> std::io::Result<u64> {
    let mut count = 0;
    loop {
        let buffer = match messages.fill_buf() {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            buffer => buffer?,
        };
        let end = memchr::memchr(b'\n', buffer);
        let len = end.unwrap_or(buffer.len());
        let is_over = end.is_some() || buffer.is_empty();
        messages.consume(len + usize::from(end.is_some()));
        count += len as u64;
        if is_over {
            return Ok(count);
        }
    }
}

/// Splits a command line as a shell does, without variables and patterns.
fn words(text: &[u8]) -> Result<Vec<OsString>, StartError> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<Vec<u8>>, None);
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match (quote, byte) {
            (Some(mark), byte) if mark == byte => quote = None,
            (Some(b'\''), byte) => word.get_or_insert_default().push(byte),
            (_, b'\\') => word.get_or_insert_default().push(bytes.next().ok_or(StartError::Quote)?),
            (Some(_), byte) => word.get_or_insert_default().push(byte),
            (None, b'\'' | b'"') => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (None, b' ' | b'\t') => words.extend(word.take()),
            (None, byte) => word.get_or_insert_default().push(byte),
        }
    }
    if quote.is_some() {
        return Err(StartError::Quote);
    }
    words.extend(word);
    Ok(words.into_iter().map(OsString::from_vec).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_without_an_end_is_cut_and_not_stored() {
        let said = |text: &mut dyn std::io::Read| {
            let mut lines = Vec::new();
            each_message(&mut BufReader::new(text), |line| lines.push(line.to_owned()));
            lines
        };
        let cut = "A".repeat(4096) + "... (268435456 more bytes)";
        // Of a line of 256 MiB, only the start may be in memory.
        let endless = std::io::repeat(b'A').take((256 << 20) + 4096);
        assert_eq!(said(&mut endless.chain(&b"\nnext\n"[..])), [cut.as_str(), "next"]);
        let fits = "B".repeat(4096);
        assert_eq!(said(&mut format!("{fits}\n\nlast").as_bytes()), [fits.as_str(), "", "last"]);
        assert_eq!(said(&mut format!("{fits}\r").as_bytes()), [format!("{fits}... (1 more bytes)")]);
    }

    #[test]
    fn messages_without_an_end_are_printed_up_to_a_limit_and_read_to_their_end() {
        let mut source = BufReader::new(io::repeat(b'\n').take(3 << 20));
        let (mut count, mut last) = (0, String::new());
        each_message(&mut source, |line| (count, last) = (count + 1, line.to_owned()));
        assert_eq!(
            (count, &*last),
            (MESSAGES_MAX + 1, "further messages of the FUSE server are not printed")
        );
        assert_eq!(source.get_ref().limit(), 0);
        let mut source = BufReader::new(io::repeat(b'A').take(3 << 30 >> 8));
        let mut bytes = 0;
        each_message(&mut source, |line| bytes += line.len());
        assert!(bytes < MESSAGES_MAX + (8 << 10), "{bytes}");
    }

    #[test]
    fn a_command_line_is_split_as_a_shell_splits_it() {
        let split = |text: &str| words(text.as_bytes()).unwrap();
        assert_eq!(split("sshfs host:/dir"), ["sshfs", "host:/dir"]);
        assert_eq!(split(r#" a  'b c' "d \" e" f\ g '' "#), ["a", "b c", "d \" e", "f g", ""]);
        assert!(words(b"a 'b").is_err() && words(b"a\\").is_err());
    }
}
