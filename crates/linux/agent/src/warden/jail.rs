//! The rights of the kernel on the host: it may only run.
//!
//! Three measures, if the host supports them:
//! - no program that the kernel starts gains rights;
//! - no files except its program, its libraries and the folder of its memory (Landlock);
//! - no system calls except those that Linux as a process needs (seccomp).
//!
//! The kernel executes the system calls of the guest's programs, which never reach the host.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, path_beneath_rules,
};
use obento_linux_wire::registers;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit};

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::root::own_place;
use super::{exec, fix_addresses};

/// The files that may be read and executed: the libraries, and files with properties of the host.
pub const READ: [&str; 5] = ["/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/proc"];

/// The permitted system calls: for open files and files that Landlock permits, memory, its processes, signals, timers.
/// Observed with Linux 6.1 from start to power-off, or used by other C libraries for the same purposes.
#[rustfmt::skip]
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_read, libc::SYS_readv, libc::SYS_pread64, libc::SYS_preadv, libc::SYS_write, libc::SYS_writev, libc::SYS_pwrite64,
    libc::SYS_pwritev, libc::SYS_lseek, libc::SYS_close, libc::SYS_fstat, libc::SYS_stat, libc::SYS_lstat, libc::SYS_newfstatat,
    libc::SYS_statx, libc::SYS_access, libc::SYS_faccessat, libc::SYS_faccessat2, libc::SYS_readlink, libc::SYS_readlinkat,
    libc::SYS_statfs, libc::SYS_fstatfs, libc::SYS_getcwd, libc::SYS_getdents64, libc::SYS_unlink,
    // The kernel requests a folder that is denied. It continues without the folder only after an error.
    libc::SYS_mkdir, libc::SYS_fchmod, libc::SYS_umask, libc::SYS_fsync,
    libc::SYS_fdatasync, libc::SYS_fcntl, libc::SYS_ioctl, libc::SYS_dup, libc::SYS_dup2, libc::SYS_dup3,
    libc::SYS_pipe, libc::SYS_pipe2, libc::SYS_poll, libc::SYS_ppoll, libc::SYS_epoll_create, libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl, libc::SYS_epoll_wait, libc::SYS_epoll_pwait, libc::SYS_eventfd2,
    libc::SYS_connect, libc::SYS_socketpair, libc::SYS_sendmsg, libc::SYS_recvmsg, libc::SYS_sendto, libc::SYS_recvfrom,
    libc::SYS_shutdown,
    libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_mprotect, libc::SYS_madvise, libc::SYS_brk,
    libc::SYS_memfd_create,
    libc::SYS_execve, libc::SYS_exit, libc::SYS_exit_group, libc::SYS_wait4, libc::SYS_waitid, libc::SYS_kill, libc::SYS_tkill,
    libc::SYS_tgkill, libc::SYS_ptrace, libc::SYS_prctl, libc::SYS_arch_prctl, libc::SYS_personality, libc::SYS_seccomp,
    // Each address space of the guest has its own segments.
    libc::SYS_modify_ldt,
    libc::SYS_getpid, libc::SYS_getppid, libc::SYS_gettid, libc::SYS_getpgrp, libc::SYS_setpgid, libc::SYS_setsid,
    libc::SYS_getuid, libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getegid,
    libc::SYS_set_tid_address, libc::SYS_set_robust_list, libc::SYS_rseq, libc::SYS_futex, libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity, libc::SYS_membarrier, libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn, libc::SYS_rt_sigpending,
    libc::SYS_rt_sigtimedwait, libc::SYS_rt_sigsuspend, libc::SYS_sigaltstack, libc::SYS_pause, libc::SYS_alarm,
    libc::SYS_timer_create, libc::SYS_timer_settime, libc::SYS_timer_gettime, libc::SYS_timer_getoverrun,
    libc::SYS_timer_delete, libc::SYS_getitimer, libc::SYS_setitimer, libc::SYS_clock_gettime, libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep, libc::SYS_nanosleep, libc::SYS_gettimeofday, libc::SYS_time, libc::SYS_times,
    libc::SYS_uname, libc::SYS_sysinfo, libc::SYS_getrandom, libc::SYS_getrusage, libc::SYS_getrlimit, libc::SYS_setrlimit,
    libc::SYS_prlimit64,
];

/// The permitted modes of `fallocate`: none that moves or removes bytes of a file.
const ALLOCATING: i32 = libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE;

/// The flags for new name spaces, in which a process has the rights of root. Source: include/uapi/linux/sched.h.
const NAME_SPACES: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWCGROUP;

/// The folders for the kernel's memory, the best first: its file has no name there.
pub const FOLDERS: [&str; 4] = ["/dev/shm", "/run/shm", "/tmp", "/var/tmp"];

/// The additional length that a file of the kernel may have beyond its memory, in bytes.
const SPARE: u64 = 16 << 20;

/// The preparations that are possible before the process of the kernel exists.
pub struct Jail {
    /// The folder of its memory.
    folder: PathBuf,
    program: PathBuf,
    /// The maximum length of its files.
    file_max: u64,
}

impl Jail {
    /// Prepares the jail of the kernel at `program`, with `memory` bytes of memory. `has_mounts`: its root, or the
    /// folder of its memory, is visible only to it. Fails if no folder for its memory exists, or no file may be as
    /// long.
    pub fn prepare(program: &OsStr, memory: u64, has_mounts: bool) -> io::Result<Self> {
        let file_max = memory.saturating_add(SPARE);
        if let Some(most) = getrlimit(Resource::Fsize).maximum.filter(|most| *most < file_max) {
            let (least, most) = (file_max >> 20, most >> 20);
            return Err(io::Error::other(format!(
                "its memory is a file of {least} MiB, but a file may have only {most} MiB: raise `ulimit -f`, or use a smaller --engine-memory"
            )));
        }
        let private = if has_mounts { own_place(program.as_ref(), file_max)? } else { None };
        // The process changed its root since the path was set.
        let own = std::env::var_os("TMPDIR").map(PathBuf::from).filter(|folder| folder.is_absolute());
        let mut folders = own.into_iter().chain(FOLDERS.iter().map(PathBuf::from));
        let folder =
            private.or_else(|| folders.find(|folder| holds_programs(folder) && has_room(folder, memory)));
        let folder = folder.ok_or_else(|| {
            let mib = memory >> 20;
            io::Error::other(format!(
                "no folder has space for {mib} MiB of executable memory: set TMPDIR to a folder that has space and is not mounted noexec, or use a smaller --engine-memory"
            ))
        })?;
        Ok(Self { folder, program: program.into(), file_max })
    }

    /// Executes the kernel in this process. Returns only after an error.
    pub fn exec(&self, program: &[OsString]) -> io::Error {
        match self.enter() {
            Ok(()) => {
                let mut folder = b"TMPDIR=".to_vec();
                folder.extend(self.folder.as_os_str().as_bytes());
                let variables: Vec<_> = CString::new(folder).into_iter().collect();
                exec(program, &variables)
            }
            Err(error) => error,
        }
    }

    fn enter(&self) -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        let limit = |bytes| Rlimit { current: Some(bytes), maximum: Some(bytes) };
        setrlimit(Resource::Core, limit(0))?;
        // Its output is a file too.
        setrlimit(Resource::Fsize, limit(self.file_max))?;
        drop_capabilities();
        // The kernel is linked to a fixed address, and would restart itself to get it.
        fix_addresses()?;
        rustix::thread::set_no_new_privs(true)?;
        // A host without one of these measures is accepted, since each measure only adds protection.
        let _ = self.restrict_files();
        let _ = restrict_calls();
        // A host without filters has no such processors, either: they are newer.
        let _ = registers::limit();
        Ok(())
    }

    fn restrict_files(&self) -> Result<(), RulesetError> {
        let (abi, all) = (ABI::V4, AccessFs::from_all(ABI::V4));
        let own = AccessFs::from_file(abi) | AccessFs::MakeReg | AccessFs::ReadDir;
        let rules = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(all)?
            .handle_access(AccessNet::from_all(abi))?
            .create()?
            .add_rules(path_beneath_rules(READ, AccessFs::from_read(abi)))?
            .add_rules(path_beneath_rules([&self.program], AccessFs::from_read(abi)))?
            .add_rules(path_beneath_rules(["/dev/null"], AccessFs::ReadFile | AccessFs::WriteFile))?
            .add_rules(path_beneath_rules([&self.folder], own))?;
        rules.restrict_self().map(drop)
    }
}

fn restrict_calls() -> Result<(), BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    let without = |flags: i32| {
        let flags = u64::from(flags.cast_unsigned());
        move |argument| {
            SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(flags), 0)
        }
    };
    // At most sockets to processes of this host: the socket of the disk.
    let local = libc::AF_UNIX.unsigned_abs().into();
    let is_local = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, local)?;
    // Shortening the file of its memory would end the process that serves its disk from that memory.
    let (keeps_length, within) = (without(libc::O_TRUNC), without(NAME_SPACES));
    let conditions = [
        (libc::SYS_socket, is_local),
        (libc::SYS_open, keeps_length(1)?),
        (libc::SYS_openat, keeps_length(2)?),
        (libc::SYS_fallocate, without(!ALLOCATING)(1)?),
        (libc::SYS_clone, within(0)?),
    ];
    for (call, condition) in conditions {
        rules.insert(call, vec![SeccompRule::new(vec![condition])?]);
    }
    // The arguments of clone3 are in memory, which a filter cannot read; the C library continues without clone3.
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(rules, refuse, SeccompAction::Allow, TargetArch::x86_64)?;
    let program: BpfProgram = filter.try_into()?;
    // The kernel reports unsupported filters by an error, which is ignored.
    let _ = seccompiler::apply_filter(&program);
    Ok(())
}

/// Removes the capabilities of root in a name space, if the kernel runs as that root: no program regains them.
fn drop_capabilities() {
    for capability in 0..64 {
        // SAFETY: changes a set of bits of this process. Missing permission and unknown numbers result in an error.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    }
}

/// Returns whether `folder` has space for `bytes` bytes.
fn has_room(folder: &Path, bytes: u64) -> bool {
    rustix::fs::statvfs(folder)
        .is_ok_and(|reported| reported.f_bavail.saturating_mul(reported.f_frsize) >= bytes)
}

/// `FUSE_SUPER_MAGIC` of include/uapi/linux/magic.h.
const FUSE: u64 = 0x6573_5546;

/// Returns whether the server of a FUSE mount stores the files of `folder`. Another user may run it and read them.
fn is_served(folder: &Path) -> bool {
    rustix::fs::statfs(folder).is_ok_and(|system| u64::try_from(system.f_type) == Ok(FUSE))
}

/// Returns whether a file in `folder` can be mapped as executable, and no FUSE server stores it.
pub fn holds_programs(folder: &Path) -> bool {
    if is_served(folder) {
        return false;
    }
    let mut options = OpenOptions::new();
    let Ok(file) = options.read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(folder)
    else {
        return false;
    };
    file.set_len(4096).is_ok() && can_execute(&file)
}

fn can_execute(file: &File) -> bool {
    // SAFETY: a new mapping at an address of the kernel's choice, removed before any use.
    unsafe {
        let mapped = mmap(null_mut(), 4096, ProtFlags::READ | ProtFlags::EXEC, MapFlags::PRIVATE, file, 0);
        mapped.is_ok_and(|at| munmap(at, 4096).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::FallocateFlags;

    use super::*;

    /// The filter applies to the thread of the test.
    #[test]
    fn a_confined_process_cannot_truncate_create_or_rename_files() {
        let path = std::env::temp_dir().join(format!("obento-jail-{}", std::process::id()));
        std::fs::write(&path, [1; 100]).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        confine();
        let refused = |error: io::Error| assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        refused(file.set_len(10).unwrap_err());
        refused(File::create(&path).unwrap_err());
        refused(std::fs::remove_dir(path.with_extension("d")).unwrap_err());
        refused(std::fs::rename(&path, path.with_extension("other")).unwrap_err());
        assert_eq!(rustix::fs::ftruncate(&file, 200).unwrap_err(), rustix::io::Errno::PERM);
        let collapsed = rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 50);
        assert_eq!(collapsed.unwrap_err(), rustix::io::Errno::PERM);
        assert_eq!(File::open(&path).unwrap().metadata().unwrap().len(), 100);
        assert!(OpenOptions::new().append(true).open(&path).is_ok());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn no_socket_reaches_another_machine_and_no_rights_come_from_name_spaces() {
        confine();
        let refused = |error: io::Error| assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(std::os::unix::net::UnixDatagram::unbound().is_ok());
        refused(std::net::UdpSocket::bind("127.0.0.1:0").unwrap_err());
        let made = |flags: i32| {
            // SAFETY: the child ends at once, and accesses nothing.
            match unsafe { libc::syscall(libc::SYS_clone, flags | libc::SIGCHLD, 0, 0, 0, 0) } {
                // SAFETY: as above.
                0 => unsafe { libc::_exit(0) },
                -1 => Err(io::Error::last_os_error()),
                child => Ok(child),
            }
        };
        assert!(made(0).is_ok());
        refused(made(libc::CLONE_NEWUSER).unwrap_err());
        // Calls that no rule names are refused too.
        // SAFETY: the call only returns a value.
        assert_eq!(unsafe { libc::syscall(libc::SYS_getpriority, 0, 0) }, -1);
    }

    #[test]
    fn only_the_complete_set_of_registers_is_refused() {
        // Sources: include/uapi/linux/ptrace.h, include/uapi/linux/elf.h.
        let error = |set: usize| {
            // SAFETY: no process has number 0, so that nothing is read or written.
            assert_eq!(unsafe { libc::ptrace(0x4204, 0, set, 0) }, -1);
            io::Error::last_os_error().raw_os_error()
        };
        let (complete, general) = (0x202, 1);
        assert_eq!(error(complete), Some(libc::ESRCH));
        registers::refuse_complete_sets().unwrap();
        assert_eq!(error(complete), Some(libc::ENODEV));
        assert_eq!(error(general), Some(libc::ESRCH));
    }

    fn confine() {
        rustix::thread::set_no_new_privs(true).unwrap();
        restrict_calls().unwrap();
    }
}
