//! A process that starts kernels and programs for one that has given up its rights to.
//!
//! Whoever builds a volume reads what others wrote, and gives up its rights before. Only then it knows how large the volume must be,
//! which a program makes and a kernel fills. So it forks before, and asks the other process.
//! Wire: a request is two numbers, which [`Job`] and how much memory; a reply is its length and the words of an error, none of them
//! if it went well.
//! Invariant: what is started is settled when the process forks. Whoever asks chooses among the jobs, hands over files that are open
//! for reading and writing already, and gets what talks to a kernel in its jail: no more than it had.

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
use crate::driver::kernel_of;
use crate::launch::{Guest, Settings, launch};
use crate::types::Type;

/// Bytes of a request.
const REQUEST: usize = 8;
/// The most words of an error, in bytes.
const WORDS_MAX: usize = 4096;
/// Files of a message: those of a guest, and its area.
const FILES_MAX: usize = Guest::FILES + 1;

/// What makes an empty volume in a file of zeros. Errors: what went wrong.
pub type Make = Arc<dyn Fn(BorrowedFd<'_>) -> Result<(), String> + Send + Sync>;

/// A volume that will be made and filled.
pub struct Job {
    /// Its type.
    pub kind: &'static Type,
    /// What makes it.
    pub make: Make,
}

/// The process of this one.
static STARTER: OnceLock<Starter> = OnceLock::new();

pub(crate) struct Starter {
    socket: Mutex<UnixStream>,
    kinds: Vec<&'static Type>,
}

/// Forks. From now on kernels are started by the other process, which ends with this one. Errors: there is one already; threads run
/// in this process; those of the system.
pub fn fork(jobs: Vec<Job>) -> io::Result<()> {
    if STARTER.get().is_some() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("threads run already"));
    }
    let (ours, theirs) = UnixStream::pair()?;
    // SAFETY: there is one thread, so the child finds everything as it is here.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(ours);
            // Nothing of this is to come back into what the parent does; who asks learns by the end of the line.
            let _ = catch_unwind(AssertUnwindSafe(|| serve(&theirs, &jobs)));
            // SAFETY: nothing is left to be cleaned up that is not the parent's.
            unsafe { libc::_exit(0) }
        }
        _ => {
            let kinds = jobs.iter().map(|job| job.kind).collect();
            let starter = Starter { socket: Mutex::new(ours), kinds };
            STARTER.set(starter).map_err(|_| io::ErrorKind::AlreadyExists.into())
        }
    }
}

/// Has the empty volume of job `number` made in `file`. Errors: what went wrong.
pub fn make(number: usize, file: BorrowedFd<'_>) -> Result<(), String> {
    let starter = STARTER.get().ok_or("nothing was forked")?;
    starter.ask(number, 0, &[file]).map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
impl Starter {
    /// One that has started a kernel for volumes of `kind` already: it hands out `files`.
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
    /// That of this process, if it has forked.
    pub(crate) fn get() -> Option<&'static Self> {
        STARTER.get()
    }

    /// Starts a kernel for volumes of `kind`, with so many MiB. Errors: there is no such job; those of starting one.
    pub(crate) fn launch(&self, kind: &Type, memory: u32) -> io::Result<(Guest, Area)> {
        let number = self.kinds.iter().position(|known| known.names == kind.names);
        let number = number.ok_or_else(|| io::Error::other("it is no type that was to be filled"))?;
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

/// The other process: does what it is asked until nobody is there to ask.
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
        // The entries of those that ended go.
        wardens.retain_mut(|warden: &mut Child| !matches!(warden.try_wait(), Ok(Some(_))));
    }
}

/// Does what `request` says. Answers the files of a guest and its area, if it was to start one.
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
        // The program opens it anew; what can only be read is not to be written to in that way.
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
    // A process that ended is an error and no signal. It is short: the socket takes all of it.
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

    /// What the other process says to a request for job `number`, with `file` beside it.
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
    fn a_program_is_run_on_what_can_be_written_to_already_and_on_nothing_else() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = |write| File::options().read(true).write(write).open(file.path()).unwrap();
        assert_eq!(asked(0, open(true)).unwrap_err(), "was asked to");
        assert_eq!(asked(0, open(false)).unwrap_err(), "the file is not open for reading and writing");
        assert_eq!(asked(1, open(true)).unwrap_err(), "there is no such job");
    }

    #[test]
    fn files_and_words_come_over_the_line_whole() {
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
