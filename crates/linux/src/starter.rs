//! A process that starts kernels and programs for a process that dropped its privileges.
//!
//! A process that builds a volume reads hostile files, so it drops its privileges first. The size of the
//! volume is known only afterwards, when a program must create it and a kernel must fill it. So the process
//! forks before, and sends requests to the child. Wire: a request is two numbers, the index of the [`Job`]
//! and the memory. A reply is its length and an error message, which is empty after success.
//! Invariant: the possible jobs are fixed when the process forks. A request selects a job and passes files
//! that are already open for reading and writing. Its result is access to a kernel in its jail: no more
//! rights than the caller had.

use std::fs;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Child;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustix::fs::{OFlags, fcntl_getfl};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::area::Area;
use crate::disk::receive_all;
use crate::installed::kernel_of;
use crate::launch::{Guest, Settings, launch};
use crate::types::Type;

/// Bytes of a request.
const REQUEST: usize = 8;
/// The most bytes of an error message.
const WORDS_MAX: usize = 4096;
/// Files of a message: those of a guest, and its area.
const FILES_MAX: usize = Guest::FILES + 1;

/// Creates an empty volume in a file of zeros. Fails with a description of the failure.
pub type Make = Arc<dyn Fn(BorrowedFd<'_>) -> Result<(), String> + Send + Sync>;

/// A volume that will be created and filled.
pub struct Job {
    /// The type.
    pub kind: &'static Type,
    /// Creates the volume.
    pub make: Make,
}

/// The starter of this process.
static STARTER: OnceLock<Starter> = OnceLock::new();

pub(crate) struct Starter {
    socket: Mutex<UnixStream>,
    kinds: Vec<&'static Type>,
}

/// Forks. From now on the child starts all kernels; it ends with this process. Fails if a starter
/// already exists, if threads run in this process, or with the errors of the system.
pub fn fork(jobs: Vec<Job>) -> io::Result<()> {
    if STARTER.get().is_some() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("other threads are running"));
    }
    let (ours, theirs) = UnixStream::pair()?;
    // SAFETY: this process has one thread, so the child has a consistent copy of its memory.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(ours);
            // A panic must not continue in the code of the parent. The parent detects the end of the child by
            // the closed socket.
            let _ = catch_unwind(AssertUnwindSafe(|| serve(&theirs, &jobs)));
            // SAFETY: the child owns nothing that needs cleanup.
            unsafe { libc::_exit(0) }
        }
        _ => {
            let kinds = jobs.iter().map(|job| job.kind).collect();
            let starter = Starter { socket: Mutex::new(ours), kinds };
            STARTER.set(starter).map_err(|_| io::ErrorKind::AlreadyExists.into())
        }
    }
}

/// Creates the empty volume of job `number` in `file`. Fails with a description of the failure.
pub fn make(number: usize, file: BorrowedFd<'_>) -> Result<(), String> {
    let starter = STARTER.get().ok_or("no starter process exists")?;
    starter.ask(number, 0, &[file]).map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
impl Starter {
    /// Creates a starter with a kernel for volumes of `kind` that already runs and has these `files`.
    pub(crate) fn handing_out(kind: &'static Type, files: [OwnedFd; FILES_MAX]) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            receive_all(&theirs, &mut [0; REQUEST]).unwrap();
            send(&theirs, &0_u32.to_le_bytes(), &files.each_ref().map(OwnedFd::as_fd)).unwrap();
        });
        Self { socket: Mutex::new(ours), kinds: vec![kind] }
    }
}

impl Starter {
    /// Returns the starter of this process, if it has forked.
    pub(crate) fn get() -> Option<&'static Self> {
        STARTER.get()
    }

    /// Starts a kernel for volumes of `kind` with `memory` MiB. Fails if no such job exists, or if the kernel
    /// cannot be started.
    pub(crate) fn launch(&self, kind: &Type, memory: u32) -> io::Result<(Guest, Area)> {
        let number = self.kinds.iter().position(|known| known.names == kind.names);
        let number = number.ok_or_else(|| io::Error::other("the kernel was not prepared for this type"))?;
        let mut files = self.ask(number, memory, &[])?;
        let area = files.pop().ok_or(io::ErrorKind::InvalidData)?;
        let files = files.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
        Ok((Guest::of(files), Area::of(area)?))
    }

    fn ask(&self, number: usize, memory: u32, files: &[BorrowedFd<'_>]) -> io::Result<Vec<OwnedFd>> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let number = u32::try_from(number).map_err(|_| io::ErrorKind::InvalidInput)?;
        send(&socket, &[number, memory].map(u32::to_le_bytes).concat(), files)?;
        let mut len = [0; 4];
        let mut files = receive_all(&socket, &mut len)?;
        let len = usize::try_from(u32::from_le_bytes(len)).unwrap_or(usize::MAX).min(WORDS_MAX);
        let mut words = vec![0; len];
        files.extend(receive_all(&socket, &mut words)?);
        if words.is_empty() {
            return Ok(files);
        }
        Err(io::Error::other(String::from_utf8_lossy(&words).into_owned()))
    }
}

/// The loop of the child: serves requests until the socket is closed.
fn serve(socket: &UnixStream, jobs: &[Job]) {
    let (mut request, mut wardens) = ([0; REQUEST], Vec::new());
    while let Ok(files) = receive_all(socket, &mut request) {
        let done = start(request, files, jobs, &mut wardens);
        let (words, files) = done.map_or_else(|words| (words, Vec::new()), |files| (String::new(), files));
        let words = words.as_bytes().get(..words.len().min(WORDS_MAX)).unwrap_or_default();
        let len = u32::try_from(words.len()).unwrap_or(0).to_le_bytes();
        let files: Vec<_> = files.iter().map(OwnedFd::as_fd).collect();
        if send(socket, &[&len, words].concat(), &files).is_err() {
            return;
        }
        // Removes the zombies of ended processes.
        wardens.retain_mut(|warden: &mut Child| !matches!(warden.try_wait(), Ok(Some(_))));
    }
}

/// Serves `request`. Returns the files of a guest and its area if the request started one.
fn start(
    request: [u8; REQUEST],
    files: Vec<OwnedFd>,
    jobs: &[Job],
    wardens: &mut Vec<Child>,
) -> Result<Vec<OwnedFd>, String> {
    let [a, b, c, d, e, f, g, h] = request;
    let (number, memory) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
    let job =
        usize::try_from(number).ok().and_then(|number| jobs.get(number)).ok_or("there is no such job")?;
    let words = |error: io::Error| error.to_string();
    if memory == 0 {
        let file = files.into_iter().next().ok_or("there is no file")?;
        // The program reopens the file, which must not make a read-only file writable.
        let flags = fcntl_getfl(&file).map_err(|errno| errno.to_string())?;
        if flags & OFlags::RWMODE != OFlags::RDWR {
            return Err("the file is not open for reading and writing".into());
        }
        return (job.make)(file.as_fd()).map(|()| Vec::new());
    }
    let kernel = kernel_of(job.kind).map_err(|error| error.to_string())?;
    let settings = Settings { kernel: &kernel, modules: job.kind.modules, memory };
    let area = Area::new().map_err(words)?;
    let (warden, files) = launch(&settings, &area).map_err(words)?.into_files();
    wardens.extend(warden);
    let area = area.file().try_clone().map_err(words)?;
    Ok(files.into_iter().chain([area]).collect())
}

fn send(socket: &UnixStream, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // A closed socket is an error and not a signal. The message is short enough for a single send.
    let sent = sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::types::TYPES;

    fn job() -> Job {
        Job { kind: &TYPES[0], make: Arc::new(|_| Err("was asked to".into())) }
    }

    /// Returns the child's reply to a request for job `number` with `file`.
    fn asked(number: u32, file: File) -> Result<Vec<OwnedFd>, String> {
        let mut request = [0; REQUEST];
        request[..4].copy_from_slice(&number.to_le_bytes());
        start(request, vec![file.into()], &[job()], &mut Vec::new())
    }

    #[test]
    fn a_process_with_threads_does_not_fork() {
        assert!(fork(vec![job()]).is_err());
        assert!(Starter::get().is_none());
    }

    #[test]
    fn a_program_runs_only_on_files_that_are_already_writable() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = |write| File::options().read(true).write(write).open(file.path()).unwrap();
        assert_eq!(asked(0, open(true)).unwrap_err(), "was asked to");
        assert_eq!(asked(0, open(false)).unwrap_err(), "the file is not open for reading and writing");
        assert_eq!(asked(1, open(true)).unwrap_err(), "there is no such job");
    }

    #[test]
    fn files_and_messages_are_transferred_completely() {
        let (here, there) = UnixStream::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        send(&here, b"words", &[file.as_fd(), file.as_fd()]).unwrap();
        let mut words = [0; 5];
        assert_eq!(receive_all(&there, &mut words).unwrap().len(), 2);
        assert_eq!(&words, b"words");
        drop(here);
        assert!(receive_all(&there, &mut words).is_err());
    }
}
