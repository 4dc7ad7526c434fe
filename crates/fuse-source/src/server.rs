//! The process of a server.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use obento_base::Error;
use obento_driver::FileSystem;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::connection::Connection;
use crate::contract::Mounted;
use crate::wire::opcode;

/// How long a request may take. A network behind the server may be slow.
const DEADLINE: Duration = Duration::from_secs(60);
/// How long a server may take to end.
const FAREWELL: Duration = Duration::from_secs(2);
/// The mount point: standard input, which is the socket.
const MOUNT_POINT: &str = "/dev/fd/0";

/// The reason why a server was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address contains no program.
    #[error("the address names no program\n  help: write an address such as fuse:sshfs host:/dir")]
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
    /// The server refused the connection.
    #[error("{0}\n  help: not every server accepts a connection without a mount (docs/fuse-servers.md)")]
    Refused(Error),
}

/// A running server, whose messages are printed until it is dropped.
pub struct FuseServer {
    child: Child,
    connection: Arc<Connection>,
    is_closing: Arc<AtomicBool>,
}

impl FuseServer {
    /// Starts the server with this command line, without asking it anything. The words are separated by blanks; quotation marks
    /// and backslashes work as in a shell.
    ///
    /// # Errors
    ///
    /// [`StartError`].
    pub fn start(command: &OsStr) -> Result<Self, StartError> {
        let words = words(command.as_bytes())?;
        let (program, arguments) = words.split_first().ok_or(StartError::Empty)?;
        Self::start_with(program, arguments, DEADLINE)
    }

    /// Starts a program with arguments. Requests fail after `deadline`.
    pub fn start_with(
        program: &OsStr,
        arguments: &[OsString],
        deadline: Duration,
    ) -> Result<Self, StartError> {
        let failed = |error: std::io::Error| StartError::Program {
            program: program.to_string_lossy().into_owned(),
            error,
        };
        if !exists(program) {
            return Err(failed(rustix::io::Errno::NOENT.into()));
        }
        let flags = SocketFlags::CLOEXEC;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (ours, theirs) = pair.map_err(|errno| failed(errno.into()))?;
        for socket in [&ours, &theirs] {
            // Room for the longest reply. The kernel may grant less, which still suffices.
            let _ = rustix::net::sockopt::set_socket_send_buffer_size(socket, 512 << 10);
        }
        rustix::io::ioctl_fionbio(&ours, true).map_err(|errno| failed(errno.into()))?;
        let mut command = command_for(program);
        command.args(arguments).arg(MOUNT_POINT);
        if !arguments.iter().any(|argument| argument == "-f" || argument == "--foreground")
            && knows_f(program)
        {
            command.arg("-f");
        }
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let is_closing = Arc::new(AtomicBool::new(false));
        if let Some(messages) = child.stderr.take() {
            let is_closing = is_closing.clone();
            std::thread::Builder::new()
                .name("fuse messages".into())
                .spawn(move || forward(messages, &is_closing))
                .map_err(failed)?;
        }
        Ok(Self { child, connection: Arc::new(Connection::new(ours, deadline)), is_closing })
    }

    /// Agrees with the server on the protocol, and returns its file system. The file system keeps the server running.
    ///
    /// # Errors
    ///
    /// - [`StartError::Refused`]: the server ended, or speaks another protocol.
    pub fn mount(self) -> Result<Arc<dyn FileSystem>, StartError> {
        let connection = self.connection.clone();
        Mounted::new(connection, self).map(|mounted| Arc::new(mounted) as _).map_err(StartError::Refused)
    }
}

impl Drop for FuseServer {
    fn drop(&mut self) {
        self.is_closing.store(true, Ordering::Relaxed);
        // A server that answers has nothing left to do. In a sandbox the calls after this one fail, and the server ends
        // when the socket is closed or by the signal of its starter.
        let _ = self.connection.exchange(opcode::DESTROY, 0, &[], FAREWELL, |_| Some(()));
        let _ = self.child.kill();
        let _ = self.child.try_wait();
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

/// Returns whether a program exists, as its starter would find it.
fn exists(program: &OsStr) -> bool {
    if program.as_bytes().contains(&b'/') {
        return Path::new(program).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}

/// Returns whether a program stays in the foreground with `-f`, as those of libfuse do. Programs of go-fuse do not know it
/// or stay there anyway.
fn knows_f(program: &OsStr) -> bool {
    let name = Path::new(program).file_name().unwrap_or(program);
    !["rclone", "gocryptfs"].iter().any(|known| name == *known)
}

/// Prints the messages of the server, until it is being closed.
fn forward(messages: ChildStderr, is_closing: &AtomicBool) {
    for line in BufReader::new(messages).split(b'\n').map_while(Result::ok) {
        if !is_closing.load(Ordering::Relaxed) {
            // Only printable characters: a message may come from the other end of a network.
            let text: String =
                String::from_utf8_lossy(&line).chars().filter(|&c| obento_base::is_printable(c)).collect();
            eprintln!("{text}");
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
    fn a_command_line_is_split_as_a_shell_splits_it() {
        let split = |text: &str| words(text.as_bytes()).unwrap();
        assert_eq!(split("sshfs host:/dir"), ["sshfs", "host:/dir"]);
        assert_eq!(split(r#" a  'b c' "d \" e" f\ g '' "#), ["a", "b c", "d \" e", "f g", ""]);
        assert!(words(b"a 'b").is_err() && words(b"a\\").is_err());
    }
}
