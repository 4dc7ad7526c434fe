//! The warden: starts the kernel on the host, and ends it.
//!
//! Invariant: no part of the kernel outlives the process that uses it, whichever process is killed. The user process holds the
//! other end of a pipe, the lifeline, which is closed when that process ends in any way. The warden is two processes. The inner
//! one is the parent of the kernel, and waits for the end of the kernel, of the lifeline, or of the outer process. If the host
//! allows user name spaces, the inner one is the first process of a process name space, which ends with it. Otherwise both
//! adopt orphans and kill them, so that either of the two may be killed.

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Mode;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    DumpableBehavior, Gid, Pid, PidfdFlags, Signal, Uid, WaitOptions, geteuid, getgid, getpid, getuid,
    kill_process, pidfd_open, set_child_subreaper, set_dumpable_behavior, umask, waitpid,
};
use rustix::thread::{
    CpuSet, UnshareFlags, sched_getcpu, sched_setaffinity, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

use jail::Jail;
use root::own_mounts;

mod jail;
mod root;

/// `LIFELINE USER PROGRAM ARGUMENT...`: the number of the pipe's descriptor, the user that replaces root, and the program. Exits with the status of the program.
pub fn run(command: &[OsString]) -> ExitCode {
    match start(command) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(io::stderr(), "obento: the kernel cannot be started: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start(command: &[OsString]) -> io::Result<ExitCode> {
    let [lifeline, user, program @ ..] = command else { return Err(io::ErrorKind::InvalidInput.into()) };
    let user = user.to_str().and_then(|number| number.parse().ok()).ok_or(io::ErrorKind::InvalidInput)?;
    let lifeline = lifeline.to_str().and_then(|number| number.parse().ok());
    // SAFETY: the process that starts a warden leaves it this descriptor, and no other code of the warden owns it.
    let lifeline = unsafe { OwnedFd::from_raw_fd(lifeline.ok_or(io::ErrorKind::InvalidInput)?) };
    // The user that the kernel gets must be able to enter the folders that are created here.
    umask(Mode::from_raw_mode(0o022));
    give_up_root(user, program.first().map(Path::new));
    set_child_subreaper(Pid::from_raw(1))?;
    isolate();
    let has_mounts = own_mounts();
    let (outer, held) = pipe_with(PipeFlags::CLOEXEC)?;
    match fork()? {
        None => {
            drop(held);
            set_child_subreaper(Pid::from_raw(1))?;
            watch([lifeline.as_fd(), outer.as_fd()], program, has_mounts)
        }
        Some(inner) => {
            drop((lifeline, outer));
            let code = wait(inner);
            end_orphans();
            Ok(code)
        }
    }
}

/// Changes from root to `user`, so that the kernel has no access to files of root. The process stays root if the change
/// is not permitted, or if that user cannot execute `program`.
fn give_up_root(user: u32, program: Option<&Path>) {
    if user == 0 || !geteuid().is_root() || !program.is_some_and(is_everybodys) {
        return;
    }
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(user));
    let _ = set_thread_groups(&[]);
    // The process has one thread.
    if set_thread_res_gid(group, group, group).is_ok() && set_thread_res_uid(user, user, user).is_ok() {
        // Otherwise its entries in `/proc` belong to root, and the mapping of the name space is written there.
        let _ = set_dumpable_behavior(DumpableBehavior::Dumpable);
    }
}

/// Returns whether every user may execute the program at `path`.
fn is_everybodys(path: &Path) -> bool {
    let executes = |path: &Path| fs::metadata(path).is_ok_and(|found| found.mode() & 0o001 != 0);
    path.canonicalize().is_ok_and(|path| path.ancestors().all(executes))
}

/// Enters name spaces without network and with separate processes, if this user may. The rest works without them.
fn isolate() {
    let own = user();
    let flags = UnshareFlags::NEWUSER | UnshareFlags::NEWPID | UnshareFlags::NEWNET | UnshareFlags::NEWIPC;
    // SAFETY: the process has one thread, and no descriptors are unshared.
    if unsafe { rustix::thread::unshare_unsafe(flags) }.is_err() {
        return;
    }
    keep_user(own);
}

/// Returns the numbers of the user and the group of this process.
pub fn user() -> (u32, u32) {
    (getuid().as_raw(), getgid().as_raw())
}

/// Maps the user and the group of this process to the same numbers in its new user namespace.
pub fn keep_user((uid, gid): (u32, u32)) {
    // Without a mapping, all files belong to the overflow user, which affects only files that the kernel creates.
    let _ = fs::write("/proc/self/setgroups", "deny");
    let _ = fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"));
    let _ = fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"));
}

/// The inner warden starts the kernel, and returns when the kernel ended or one of the `lines` is closed. A closed line
/// shows that the kernel has no user, or no outer warden.
fn watch(lines: [BorrowedFd<'_>; 2], program: &[OsString], has_mounts: bool) -> io::Result<ExitCode> {
    let jail =
        Jail::prepare(program.first().map_or(OsStr::new(""), |path| path), memory(program), has_mounts)?;
    let kernel = match fork()? {
        None => {
            stay_here();
            return Err(jail.exec(program));
        }
        Some(kernel) => kernel,
    };
    let ended = pidfd_open(kernel, PidfdFlags::empty())?;
    if is_cut_first(lines, ended.as_fd())? {
        let _ = kill_process(kernel, Signal::KILL);
    }
    let code = wait(kernel);
    end_orphans();
    Ok(code)
}

/// Keeps the kernel on its current processor. Only one of its threads runs at a time. But if its processes are on two
/// processors, each system call waits until one has notified the other. This made a mount take ten times as long.
fn stay_here() {
    let mut here = CpuSet::new();
    here.set(sched_getcpu());
    // Without permission, the kernel is slower.
    let _ = sched_setaffinity(None, &here);
}

/// Returns the memory of the kernel in bytes: the word `mem=` of its command line, in MiB.
fn memory(words: &[OsString]) -> u64 {
    let mib =
        words.iter().find_map(|word| word.to_str()?.strip_prefix("mem=")?.strip_suffix('M')?.parse().ok());
    mib.map_or(u64::MAX >> 1, |mib: u32| u64::from(mib) << 20)
}

/// Waits until one of the lines is closed, or the process ended; returns whether a line was closed.
fn is_cut_first([one, other]: [BorrowedFd<'_>; 2], ended: BorrowedFd<'_>) -> io::Result<bool> {
    let mut all = [one, other, ended].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    loop {
        match poll(&mut all, None) {
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
            Ok(_) => return Ok(all[2].revents().is_empty()),
        }
    }
}

/// Returns the result of a child: its exit code, or 128 plus the signal.
fn wait(child: Pid) -> ExitCode {
    let status = loop {
        match waitpid(Some(child), WaitOptions::empty()) {
            Ok(Some((_, status))) => break status,
            Err(rustix::io::Errno::INTR) | Ok(None) => {}
            Err(_) => return ExitCode::FAILURE,
        }
    };
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Ends all children, and their children, which become children of this process. Not needed for the first process of a name
/// space, which ends with that process, and whose `/proc` shows the numbers of the host.
fn end_orphans() {
    if getpid() == Pid::INIT {
        return;
    }
    loop {
        for child in children() {
            // The child may have ended meanwhile.
            let _ = kill_process(child, Signal::KILL);
        }
        // In any process group: the kernel has its own.
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

fn children() -> Vec<Pid> {
    let list = fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).filter_map(Pid::from_raw).collect()
}

/// `fork(2)`: returns the number of the child, or `None` in the child.
fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: a warden has one thread, so the child has a consistent copy of its memory.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// `execv(2)`: returns only after an error.
fn exec(program: &[OsString], environment: &[CString]) -> io::Error {
    let words: Result<Vec<_>, _> = program.iter().map(|word| CString::new(word.as_bytes())).collect();
    let Ok(words) = words else { return io::ErrorKind::InvalidInput.into() };
    let pointers = |words: &[CString]| {
        let all = words.iter().map(|word| word.as_ptr());
        all.chain([std::ptr::null()]).collect::<Vec<_>>()
    };
    let (arguments, variables) = (pointers(&words), pointers(environment));
    // SAFETY: both lists end with a null pointer, and the lists and their strings outlive the call.
    unsafe { libc::execve(arguments[0], arguments.as_ptr(), variables.as_ptr()) };
    io::Error::last_os_error()
}

/// `personality(2)`.
fn fix_addresses() -> io::Result<()> {
    // SAFETY: it changes only the address of the next program.
    match unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
