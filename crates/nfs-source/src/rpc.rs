//! Remote calls (RFC 5531) over a connection: several calls are under way at a time.
//!
//! Invariant: a reply counts only with the number of a call that waits for it. A late reply is therefore never taken
//! for another one.
//! Locking: the lock of the connection is held from the first call of a group to its last reply.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use obento_base::{Error, Result};

use crate::error::{ENDED, HUNG, NONSENSE, REJECTED};
use crate::socket;
use crate::xdr::{Reader, Writer};

/// The most bytes of a reply: data of a read, and its header.
const REPLY_MAX: usize = (1 << 20) + 4096;
/// How often calls are sent again after the connection ended.
const TRIES: u32 = 10;
/// How long to wait before a connection is opened again.
const PAUSE: Duration = Duration::from_millis(300);
/// The end of the records of a message.
const LAST: u32 = 1 << 31;

/// A program and its version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Program(pub u32, pub u32);

/// A connection to a server.
pub struct Connection {
    address: SocketAddr,
    program: Program,
    socket: Mutex<Option<OwnedFd>>,
    next: AtomicU32,
    /// Whether the server gets no further calls.
    is_broken: AtomicBool,
    deadline: Duration,
    /// User and group of the process when it connected.
    user: [u32; 2],
}

/// Why a group of calls failed.
enum Failure {
    /// The connection ended; calls can be sent again.
    Ended,
    Final(Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        tracing::debug!(%error, "an NFS connection fails");
        if error.kind() == io::ErrorKind::TimedOut { Self::Final(HUNG) } else { Self::Ended }
    }
}

impl Connection {
    /// Connects to a server. Calls fail after `deadline`.
    ///
    /// # Errors
    ///
    /// Those of connecting.
    pub fn open(address: SocketAddr, program: Program, deadline: Duration) -> io::Result<Self> {
        let socket = socket::open(address, Instant::now() + deadline)?;
        // Numbers differ between processes, as servers remember calls by them.
        let first = std::process::id().wrapping_mul(0x9e37_79b9) ^ u32::from(address.port());
        Ok(Self {
            address,
            program,
            socket: Mutex::new(Some(socket)),
            next: AtomicU32::new(first),
            is_broken: AtomicBool::new(false),
            deadline,
            user: [rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()],
        })
    }

    /// Calls a procedure, and passes its results to `f`.
    ///
    /// # Errors
    ///
    /// `Device`: the server cannot be reached, did not answer in time, or sent nonsense; now or earlier.
    pub fn call<T>(
        &self,
        procedure: u32,
        arguments: Writer,
        f: impl FnOnce(Reader<'_>) -> Option<T>,
    ) -> Result<T> {
        let replies = self.calls(procedure, &[arguments])?;
        replies.first().and_then(|reply| f(Reader(reply))).ok_or_else(|| self.broken(NONSENSE))
    }

    /// Calls a procedure several times at once. The results are in the order of the calls.
    ///
    /// # Errors
    ///
    /// As for [`Connection::call`].
    pub fn calls(&self, procedure: u32, arguments: &[Writer]) -> Result<Vec<Vec<u8>>> {
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_broken.load(Ordering::Relaxed) {
            return Err(ENDED);
        }
        let until = Instant::now() + self.deadline;
        let count = u32::try_from(arguments.len()).unwrap_or(u32::MAX);
        let first = self.next.fetch_add(count, Ordering::Relaxed);
        let mut replies = vec![None; arguments.len()];
        for _ in 0..TRIES {
            match self.exchange(&mut socket, procedure, arguments, first, &mut replies, until) {
                Ok(()) => return Ok(replies.into_iter().flatten().collect()),
                Err(Failure::Final(error)) => return Err(self.broken(error)),
                Err(Failure::Ended) => {
                    *socket = None;
                    if Instant::now() + PAUSE > until {
                        break;
                    }
                    socket::pause(PAUSE);
                }
            }
        }
        Err(self.broken(ENDED))
    }

    /// Records that the server gets no further calls.
    fn broken(&self, error: Error) -> Error {
        self.is_broken.store(true, Ordering::Relaxed);
        error
    }

    /// Sends the calls that have no reply yet, and receives replies until each call has one.
    fn exchange(
        &self,
        slot: &mut Option<OwnedFd>,
        procedure: u32,
        arguments: &[Writer],
        first: u32,
        replies: &mut [Option<Vec<u8>>],
        until: Instant,
    ) -> Result<(), Failure> {
        let socket = match slot {
            Some(socket) => socket,
            None => slot.insert(socket::open(self.address, until)?),
        };
        let mut message = Vec::new();
        let mut number = first;
        for (arguments, reply) in arguments.iter().zip(&*replies) {
            if reply.is_none() {
                let call = self.header(number, procedure).fixed(&arguments.0).0;
                message.extend((LAST | u32::try_from(call.len()).unwrap_or(0)).to_be_bytes());
                message.extend(call);
            }
            number = number.wrapping_add(1);
        }
        socket::write_all(socket, &message, until)?;
        while replies.iter().any(Option::is_none) {
            let message = receive(socket, until)?;
            let mut reader = Reader(&message);
            let number = reader.u32().ok_or(Failure::Final(NONSENSE))?;
            let index = usize::try_from(number.wrapping_sub(first)).unwrap_or(usize::MAX);
            // A late reply to an earlier call is ignored.
            if let Some(reply @ None) = replies.get_mut(index) {
                *reply = Some(results(reader).map_err(Failure::Final)?.to_vec());
            }
        }
        Ok(())
    }

    /// Returns the header of a call with the credentials of the user (`AUTH_SYS`).
    fn header(&self, number: u32, procedure: u32) -> Writer {
        let [uid, gid] = self.user;
        let credentials = Writer::default().u32(0).bytes(b"obento").u32(uid).u32(gid).u32(0);
        let Program(program, version) = self.program;
        let call = Writer::default().u32(number).u32(0).u32(2).u32(program).u32(version).u32(procedure);
        call.u32(1).bytes(&credentials.0).u32(0).u32(0)
    }
}

/// Receives a message, which may have several records.
fn receive(socket: &OwnedFd, until: Instant) -> Result<Vec<u8>, Failure> {
    let mut message = Vec::new();
    loop {
        let mut mark = [0; 4];
        socket::read_exact(socket, &mut mark, until)?;
        let mark = u32::from_be_bytes(mark);
        let len = usize::try_from(mark & !LAST).unwrap_or(usize::MAX);
        let start = message.len();
        // A record without bytes that is not the last one could go on for ever.
        if len > REPLY_MAX - start || (len == 0 && mark & LAST == 0) {
            return Err(Failure::Final(NONSENSE));
        }
        message.resize(start + len, 0);
        socket::read_exact(socket, &mut message[start..], until)?;
        if mark & LAST != 0 {
            return Ok(message);
        }
    }
}

/// Returns the results of an accepted call.
fn results(mut reader: Reader<'_>) -> Result<&[u8]> {
    let mut take = || reader.u32().ok_or(NONSENSE);
    if take()? != 1 {
        return Err(NONSENSE);
    }
    if take()? != 0 {
        return Err(REJECTED);
    }
    take()?;
    reader.bytes(400).ok_or(NONSENSE)?;
    match reader.u32().ok_or(NONSENSE)? {
        0 => Ok(reader.0),
        _ => Err(REJECTED),
    }
}
