//! The processes that send requests.
//!
//! A request contains a thread ID, and no name of a program. Both are completed from `/proc`, which is opened before the
//! server gives up its rights. Source: Linux fs/fuse/dev.c `fuse_get_req`; proc_pid_stat(5); proc_pid_status(5).
//!
//! Invariant: no request waits for `/proc/PID/stat` for longer than [`PATIENCE`]. A process in execve(2) holds a lock for
//! which this file waits, and can meanwhile wait for a reply of this server. Source: `exec_update_lock` in Linux fs/exec.c
//! `begin_new_exec` and fs/proc/array.c `do_task_stat`.
//! Invariant: an open file `/proc/TID/comm` never shows another thread that gets the same ID later: reading it fails then.
//! Source: Linux fs/proc/base.c `comm_show` (`get_proc_task`).
//!
//! The process of the request that a thread answers is a variable of the thread. The layers between the server and the
//! recorder have no parameter for the process.

use std::cell::Cell;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender, SyncSender};
use std::time::{Duration, Instant};

use obento_driver::history::{Actor, Who};
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};

/// The time for which the properties of a process are not read again. In this time, a process ID is not used again, but a
/// process can execute another program.
const FRESH: Duration = Duration::from_millis(20);
/// The longest time that a request waits for the start time of its process.
const PATIENCE: Duration = Duration::from_millis(250);
/// The most threads that are remembered.
const MOST: usize = 1024;
/// The most threads whose names are kept open.
const OPEN_NAMES: usize = 128;
/// Enough for `/proc/PID/stat`, and for the lines of `/proc/PID/status` up to `Tgid`.
const LONGEST: usize = 1024;

thread_local! {
    /// The process of the request that this thread answers.
    static CURRENT: Cell<Option<Actor>> = const { Cell::new(None) };
}

/// Identifies processes by their thread IDs.
#[derive(Debug)]
pub struct Processes {
    proc: Arc<OwnedFd>,
    known: Mutex<HashMap<u32, Known>>,
    /// The thread that reads `/proc/PID/stat`, once it is needed.
    reader: Mutex<Option<Sender<Question>>>,
}

/// A process ID, and where to send what `/proc/PID/stat` contains.
type Question = (u32, SyncSender<Option<Actor>>);

/// A thread that sent a request.
#[derive(Clone, Debug)]
struct Known {
    process: Actor,
    read: Instant,
    names: Option<Arc<OpenNames>>,
}

/// The open files with the names of a thread and of its process, which is absent if the thread is its first one.
#[derive(Debug)]
struct OpenNames {
    thread: OwnedFd,
    process: Option<OwnedFd>,
}

impl OpenNames {
    fn open(proc: &OwnedFd, tid: u32, pid: u32) -> Option<Self> {
        let name = |id: u32| open(proc, &format!("{id}/comm"));
        Some(Self { thread: name(tid)?, process: if tid == pid { None } else { Some(name(pid)?) } })
    }

    /// Returns the name of the process, if the thread still exists.
    fn read(&self) -> Option<Vec<u8>> {
        let thread = name_of(&self.thread)?;
        self.process.as_ref().map_or(Some(thread), name_of)
    }
}

impl Processes {
    /// Opens `/proc`.
    ///
    /// # Errors
    ///
    /// The errors of open(2).
    pub fn open() -> std::io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = rustix::fs::open("/proc", flags, Mode::empty())?;
        Ok(Self { proc: Arc::new(proc), known: Mutex::default(), reader: Mutex::default() })
    }

    /// Returns the user `uid` and `gid` in the process that the thread `tid` belongs to. Returns `None` if the kernel
    /// sent the request on behalf of no process.
    pub(crate) fn actor(&self, tid: u32, uid: u32, gid: u32) -> Option<Actor> {
        if tid == 0 {
            return None;
        }
        let known = self.known.lock().get(&tid).cloned();
        let process = match known {
            Some(known) if known.read.elapsed() < FRESH => known.process,
            known => {
                let known = known.and_then(read_name).unwrap_or_else(|| self.identify(tid));
                let process = known.process;
                self.remember(tid, known);
                process
            }
        };
        Some(Actor { uid, gid, ..process })
    }

    fn remember(&self, tid: u32, known: Known) {
        let mut all = self.known.lock();
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(tid, known);
    }

    /// Reads everything about a thread.
    fn identify(&self, tid: u32) -> Known {
        let status = file(&self.proc, &format!("{tid}/status"));
        let pid = status.as_deref().and_then(process_of);
        // Opened first: if the ID is used again before `stat` is read, these are the names of a thread that has ended,
        // and cannot be read.
        let names = pid.filter(|_| self.known.lock().len() < OPEN_NAMES);
        let names = names.and_then(|pid| OpenNames::open(&self.proc, tid, pid));
        let process = pid.and_then(|pid| self.read(pid)).unwrap_or(Actor { pid: tid, ..Actor::default() });
        // An unknown start time is read again.
        let names = names.filter(|_| process.start > 0).map(Arc::new);
        Known { process, read: Instant::now(), names }
    }

    /// Returns the process `pid`.
    fn read(&self, pid: u32) -> Option<Actor> {
        self.stat(pid).or_else(|| {
            let comm = file(&self.proc, &format!("{pid}/comm"))?;
            // The start time of a process does not change when it executes another program.
            let start = self.known.lock().get(&pid).map_or(0, |known| known.process.start);
            Some(Actor { pid, start, ..Actor::default() }.with_comm(without_newline(&comm)))
        })
    }

    /// Returns what `/proc/PID/stat` contains, unless reading it takes too long.
    fn stat(&self, pid: u32) -> Option<Actor> {
        let (reply, answer) = mpsc::sync_channel(1);
        {
            let mut reader = self.reader.lock();
            if reader.is_none() {
                *reader = Some(self.start_reader().ok()?);
            }
            reader.as_ref()?.send((pid, reply)).ok()?;
        }
        answer.recv_timeout(PATIENCE).ok().flatten()
    }

    /// Starts the thread that reads `/proc/PID/stat`. The thread ends with the last use of the sender.
    fn start_reader(&self) -> std::io::Result<Sender<Question>> {
        let (sender, questions) = mpsc::channel::<Question>();
        let proc = Arc::clone(&self.proc);
        std::thread::Builder::new().name("processes".into()).spawn(move || {
            for (pid, reply) in questions {
                let line = file(&proc, &format!("{pid}/stat"));
                // The request may have stopped waiting.
                let _ = reply.send(line.and_then(|line| stat(pid, &line)));
            }
        })?;
        Ok(sender)
    }
}

/// Reads the name of a known process again. Nothing else changes when a process executes another program.
fn read_name(known: Known) -> Option<Known> {
    let comm = known.names.as_ref()?.read()?;
    Some(Known { process: known.process.with_comm(&comm), read: Instant::now(), ..known })
}

fn open(proc: &OwnedFd, path: &str) -> Option<OwnedFd> {
    rustix::fs::openat(proc, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Returns the name in an open file `comm`.
fn name_of(file: &OwnedFd) -> Option<Vec<u8>> {
    let mut bytes = [0; 64];
    let len = rustix::io::pread(file, &mut bytes[..], 0).ok()?;
    Some(without_newline(bytes.get(..len)?).to_vec())
}

fn without_newline(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

/// Returns the first bytes of a file of `/proc`.
fn file(proc: &OwnedFd, path: &str) -> Option<Vec<u8>> {
    let file = open(proc, path)?;
    let mut bytes = vec![0; LONGEST];
    let len = rustix::io::read(&file, &mut bytes[..]).ok()?;
    bytes.truncate(len);
    Some(bytes)
}

impl AsFd for Processes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.proc.as_fd()
    }
}

impl Who for Processes {
    fn now(&self) -> Option<Actor> {
        CURRENT.get()
    }
}

/// The time in which this thread works for a process.
pub(crate) struct Acting(());

impl Acting {
    /// Begins to work for `actor`.
    pub(crate) fn begin(actor: Option<Actor>) -> Self {
        CURRENT.set(actor);
        Self(())
    }

    /// Returns the process that this thread works for.
    pub(crate) fn current() -> Option<Actor> {
        CURRENT.get()
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

/// Returns the process ID from `/proc/TID/status`.
fn process_of(status: &[u8]) -> Option<u32> {
    let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"Tgid:"))?;
    str::from_utf8(line).ok()?.trim().parse().ok()
}

/// Decodes `/proc/PID/stat`: the name of the program in parentheses is the second field, and may contain any byte. The
/// start time is field 22.
fn stat(pid: u32, stat: &[u8]) -> Option<Actor> {
    let start = stat.iter().position(|&byte| byte == b'(')?;
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    let fields = str::from_utf8(stat.get(end + 1..)?).ok()?;
    let start_time = fields.split_ascii_whitespace().nth(19)?.parse().ok()?;
    Some(Actor { pid, start: start_time, ..Actor::default() }.with_comm(stat.get(start + 1..end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_program_may_contain_parentheses() {
        let line = b"7 (a) (b ) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 9876 1 2 3";
        let actor = stat(7, line).unwrap();
        assert_eq!((actor.pid, actor.start, actor.comm()), (7, 9876, &b"a) (b "[..]));
        assert_eq!(stat(7, b"7 (a S 1"), None);
        assert_eq!(process_of(b"Name:\tx\nTgid:\t42\nPid:\t43\n"), Some(42));
        assert_eq!(process_of(b"Name:\tx\n"), None);
    }

    #[test]
    fn a_thread_is_identified_by_its_process() {
        let processes = Processes::open().unwrap();
        let of_thread = std::thread::spawn(move || {
            let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
            (processes.actor(tid, 1, 2).unwrap(), processes.actor(std::process::id(), 1, 2).unwrap())
        });
        let (thread, process) = of_thread.join().unwrap();
        assert_eq!(thread, process);
        assert_eq!((thread.pid, thread.uid, thread.gid), (std::process::id(), 1, 2));
        assert!(thread.start > 0);
    }

    #[test]
    fn a_thread_works_for_a_process_until_the_request_is_answered() {
        let actor = Actor { pid: 5, ..Actor::default() };
        let acting = Acting::begin(Some(actor));
        assert_eq!(Acting::current(), Some(actor));
        drop(acting);
        assert_eq!(Acting::current(), None);
    }

    /// Returns the process as it is after `FRESH`.
    fn later(processes: &Processes, tid: u32) -> Actor {
        let before = Instant::now();
        while before.elapsed() <= FRESH {
            std::thread::yield_now();
        }
        processes.actor(tid, 1, 2).unwrap()
    }

    #[test]
    fn a_process_that_executes_another_program_gets_its_name_and_keeps_its_start_time() {
        use std::io::{BufRead as _, BufReader, Write as _};
        use std::process::{Command, Stdio};

        let processes = Processes::open().unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", "read go; exec cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let (pid, mut input) = (shell.id(), shell.stdin.take().unwrap());
        let mut line = String::new();
        // The child of this process has its name until it executes the shell.
        while processes.actor(pid, 1, 2).unwrap().comm() != b"sh" {
            std::thread::yield_now();
        }
        let first = later(&processes, pid);
        input.write_all(b"go\nit runs\n").unwrap();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!((line.as_str(), first.comm()), ("it runs\n", &b"sh"[..]));
        assert_eq!(later(&processes, pid), first.with_comm(b"cat"));
        drop(input);
        shell.wait().unwrap();
        assert_eq!(later(&processes, pid), Actor { pid, uid: 1, gid: 2, ..Actor::default() });
    }
}
