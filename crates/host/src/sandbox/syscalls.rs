//! The allowed system calls.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition as Condition, SeccompRule};

use super::{Measure, Rights};

/// The allowed calls. Each is allowed unconditionally, or under one of several conditions.
pub(super) type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// For all rights: bytes of open files, memory, threads, time.
#[rustfmt::skip]
const ALWAYS: &[c_long] = &[
    libc::SYS_read, libc::SYS_readv, libc::SYS_pread64, libc::SYS_preadv, libc::SYS_preadv2,
    libc::SYS_write, libc::SYS_writev, libc::SYS_pwrite64, libc::SYS_pwritev, libc::SYS_pwritev2,
    libc::SYS_lseek, libc::SYS_close, libc::SYS_fstat, libc::SYS_fstatfs,
    libc::SYS_copy_file_range, libc::SYS_sendfile, libc::SYS_splice, libc::SYS_fadvise64, libc::SYS_ftruncate,
    libc::SYS_fallocate, libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_dup, libc::SYS_dup3,
    libc::SYS_pipe2, libc::SYS_ppoll, libc::SYS_pselect6,
    libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_mprotect, libc::SYS_madvise, libc::SYS_brk,
    libc::SYS_membarrier, libc::SYS_futex, libc::SYS_set_robust_list, libc::SYS_rseq, libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity, libc::SYS_gettid, libc::SYS_set_tid_address, libc::SYS_exit, libc::SYS_exit_group,
    libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn, libc::SYS_sigaltstack,
    libc::SYS_restart_syscall, libc::SYS_clock_gettime, libc::SYS_clock_getres, libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep, libc::SYS_gettimeofday, libc::SYS_getrandom, libc::SYS_getpid, libc::SYS_getuid,
    libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getegid, libc::SYS_getgroups, libc::SYS_uname, libc::SYS_getrusage,
    libc::SYS_getcwd, libc::SYS_umask,
    // For the open connections to FUSE and NFS servers: only send(2) can suppress SIGPIPE.
    libc::SYS_sendto,
    // The timer by which a signal interrupts calls that wait.
    libc::SYS_setitimer,
    // For rings that were set up before, which can only read and write.
    libc::SYS_io_uring_enter,
];

/// Calls that only older architectures have.
#[cfg(target_arch = "x86_64")]
const OLD: &[c_long] =
    &[libc::SYS_poll, libc::SYS_select, libc::SYS_time, libc::SYS_getrlimit, libc::SYS_alarm, libc::SYS_dup2];
/// Calls that only older architectures have, for reading a tree.
#[cfg(target_arch = "x86_64")]
const OLD_READING: &[c_long] = &[libc::SYS_open, libc::SYS_readlink];
/// Calls that only older architectures have, for creating a file.
#[cfg(target_arch = "x86_64")]
const OLD_BUILDING: &[c_long] = &[libc::SYS_open, libc::SYS_readlink, libc::SYS_unlink, libc::SYS_rename];
#[cfg(not(target_arch = "x86_64"))]
const OLD_READING: &[c_long] = &[];
#[cfg(not(target_arch = "x86_64"))]
const OLD_BUILDING: &[c_long] = &[];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[c_long] = &[];

/// For reading a tree.
#[rustfmt::skip]
const READING: &[c_long] = &[
    libc::SYS_newfstatat, libc::SYS_statx, libc::SYS_openat, libc::SYS_openat2, libc::SYS_readlinkat, libc::SYS_getdents64, libc::SYS_faccessat2,
    libc::SYS_lgetxattr, libc::SYS_llistxattr, libc::SYS_fgetxattr, libc::SYS_flistxattr,
    // For the target of a symbolic link that is followed.
    libc::SYS_getxattr, libc::SYS_listxattr,
    libc::SYS_sendmsg, libc::SYS_recvmsg, libc::SYS_accept4,
];

/// For writing a tree. [`metadata`](super::metadata) adds conditional ones.
#[rustfmt::skip]
const WRITING: &[c_long] = &[
    libc::SYS_newfstatat, libc::SYS_statx, libc::SYS_openat, libc::SYS_mkdirat, libc::SYS_unlinkat, libc::SYS_symlinkat, libc::SYS_linkat,
    libc::SYS_mknodat, libc::SYS_renameat2, libc::SYS_readlinkat, libc::SYS_getdents64, libc::SYS_faccessat2,
    libc::SYS_fchmod, libc::SYS_fchown, libc::SYS_fsetxattr, libc::SYS_fgetxattr, libc::SYS_getxattr, libc::SYS_fremovexattr,
    libc::SYS_flistxattr, libc::SYS_lgetxattr, libc::SYS_llistxattr, libc::SYS_syncfs,
    libc::SYS_sendmsg, libc::SYS_recvmsg, libc::SYS_accept4,
];

/// For reading trees and creating a file.
#[rustfmt::skip]
const BUILDING: &[c_long] = &[
    libc::SYS_newfstatat, libc::SYS_statx, libc::SYS_openat, libc::SYS_openat2, libc::SYS_readlinkat, libc::SYS_getdents64, libc::SYS_faccessat,
    libc::SYS_faccessat2, libc::SYS_lgetxattr, libc::SYS_llistxattr, libc::SYS_fgetxattr, libc::SYS_flistxattr,
    libc::SYS_getxattr, libc::SYS_listxattr, libc::SYS_sync_file_range, libc::SYS_flock, libc::SYS_linkat, libc::SYS_unlinkat, libc::SYS_renameat, libc::SYS_renameat2,
    // For open sockets: asking another process to start programs, and serving the disk of a kernel.
    libc::SYS_sendmsg, libc::SYS_recvmsg, libc::SYS_accept4,
];

/// For asking the process that starts kernels, through an open socket, and for serving the disk of a kernel.
const ASKING: &[c_long] = &[libc::SYS_sendmsg, libc::SYS_recvmsg, libc::SYS_accept4];

/// For serving: waiting for the end, and signalling it; passing the mount to another process.
const SERVING: &[c_long] = &[
    libc::SYS_accept4,
    libc::SYS_getsockopt,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_shutdown,
    libc::SYS_rt_sigtimedwait,
];

/// The same, and opening files of `/proc`.
const SERVING_PROCESSES: &[c_long] = &[
    libc::SYS_openat,
    libc::SYS_accept4,
    libc::SYS_getsockopt,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_shutdown,
    libc::SYS_rt_sigtimedwait,
];

/// The allowed requests of `fcntl`: flags, copies and locks of open files. The receiver of signals
/// (`F_SETOWN`) cannot be set.
const CONTROLS: [libc::c_int; 8] = [
    libc::F_DUPFD,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_SETFL,
    libc::F_DUPFD_CLOEXEC,
    libc::F_OFD_GETLK,
    libc::F_OFD_SETLK,
];

/// Terminal requests: the size, and whether a descriptor is a terminal (include/uapi/asm-generic/ioctls.h).
#[allow(clippy::unnecessary_cast, reason = "the type differs between C libraries")]
const TERMINAL: [u64; 3] = [libc::TIOCGWINSZ as u64, libc::TCGETS as u64, TCGETS2];
/// `_IOR('T', 0x2A, struct termios2)`.
const TCGETS2: u64 = 0x802c_542a;

/// Returns the rules for `rights`, and whether this kernel supports all of them.
pub(super) fn allowed(rights: Rights<'_>) -> Result<(Rules, Measure), String> {
    let mut rules = unconditional(rights).map_err(|error| error.to_string())?;
    let measure = match rights {
        Rights::WriteBeneath(_) => super::metadata::restrict(&mut rules)?,
        _ => Measure::Applied,
    };
    Ok((rules, measure))
}

fn unconditional(rights: Rights<'_>) -> Result<Rules, BackendError> {
    let (more, old) = match rights {
        Rights::Read => (ASKING, &[][..]),
        Rights::Serve => (SERVING, &[][..]),
        Rights::ServeProcesses(_) => (SERVING_PROCESSES, &[][..]),
        Rights::ReadBeneath { .. } => (READING, OLD_READING),
        Rights::WriteBeneath(_) => (WRITING, &[][..]),
        Rights::Build { .. } => (BUILDING, OLD_BUILDING),
    };
    let plain = [ALWAYS, OLD, more, old].concat();
    let mut rules: Rules = plain.into_iter().map(|call| (call, Vec::new())).collect();
    let terminal = TERMINAL.map(|request| only_if(1, SeccompCmpOp::Eq, request));
    rules.insert(libc::SYS_ioctl, terminal.into_iter().collect::<Result<_, _>>()?);
    // Threads but no processes. `clone3` passes its flags in memory, so it is refused, and the C library
    // falls back to `clone`.
    let thread = libc::CLONE_THREAD as u64;
    rules.insert(libc::SYS_clone, vec![only_if(0, SeccompCmpOp::MaskedEq(thread), thread)?]);
    let controls = CONTROLS.map(|control| only_if(1, SeccompCmpOp::Eq, u64::from(control.cast_unsigned())));
    rules.insert(libc::SYS_fcntl, controls.into_iter().collect::<Result<_, _>>()?);
    // The processors of the calling thread, and the limits of this process: 0 means the caller.
    for call in [libc::SYS_sched_setaffinity, libc::SYS_prlimit64] {
        rules.insert(call, vec![only_if(0, SeccompCmpOp::Eq, 0)?]);
    }
    // Signals to threads of this process, as for abort(3).
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, vec![only_if(0, SeccompCmpOp::Eq, own)?]);
    // The name of a thread.
    rules.insert(libc::SYS_prctl, vec![only_if(0, SeccompCmpOp::Eq, libc::PR_SET_NAME as u64)?]);
    Ok(rules)
}

fn only_if(argument: u8, compare: SeccompCmpOp, value: u64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![Condition::new(argument, SeccompCmpArgLen::Dword, compare, value)?])
}
