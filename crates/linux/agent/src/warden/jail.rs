//! What the kernel may do on the host: run.
//!
//! Three measures, each as far as the host has it: no program that it starts gains rights, no files but its own program, its
//! libraries and the folder of its memory (Landlock), and none of the system calls that change the host or reach beyond the
//! process (seccomp). The system calls of the guest's own programs never come that far: the kernel answers them itself.

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
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::mount::{MountFlags, mount};
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::{exec, fix_addresses};

/// What is read and executed: the libraries, and what the kernel asks about its host.
const READ: [&str; 5] = ["/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/proc"];

/// What is refused: changes of the host, other processes, and interfaces of the host's kernel that a guest has no use for.
#[rustfmt::skip]
const REFUSED: &[libc::c_long] = &[
    libc::SYS_mount, libc::SYS_umount2, libc::SYS_pivot_root, libc::SYS_chroot, libc::SYS_fsopen, libc::SYS_fsmount,
    libc::SYS_move_mount, libc::SYS_open_tree, libc::SYS_mount_setattr, libc::SYS_setns, libc::SYS_unshare,
    libc::SYS_open_by_handle_at, libc::SYS_name_to_handle_at, libc::SYS_init_module, libc::SYS_finit_module,
    libc::SYS_delete_module, libc::SYS_kexec_load, libc::SYS_kexec_file_load, libc::SYS_reboot, libc::SYS_swapon,
    libc::SYS_swapoff, libc::SYS_acct, libc::SYS_quotactl, libc::SYS_settimeofday, libc::SYS_clock_settime,
    libc::SYS_adjtimex, libc::SYS_clock_adjtime, libc::SYS_sethostname, libc::SYS_setdomainname, libc::SYS_bpf,
    libc::SYS_perf_event_open, libc::SYS_userfaultfd, libc::SYS_io_uring_setup, libc::SYS_keyctl, libc::SYS_add_key,
    libc::SYS_request_key, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev, libc::SYS_pidfd_getfd,
    libc::SYS_fanotify_init, libc::SYS_syslog, libc::SYS_setuid, libc::SYS_setgid, libc::SYS_setgroups,
    // A file of its memory that became shorter would end whoever serves its disk from there.
    libc::SYS_truncate, libc::SYS_ftruncate, libc::SYS_creat, libc::SYS_openat2,
];

/// Where the kernel may put its memory, best first: its file has no name there.
const FOLDERS: [&str; 4] = ["/dev/shm", "/run/shm", "/tmp", "/var/tmp"];

/// All that can be prepared before the kernel's process is there.
pub struct Jail {
    memory: PathBuf,
    program: PathBuf,
}

impl Jail {
    /// For the kernel at `program`; with `has_mounts` its folder is one that nobody else sees. Errors: there is no folder for its memory.
    pub fn prepare(program: &OsStr, has_mounts: bool) -> io::Result<Self> {
        let private = if has_mounts { private_folder(program.as_ref()) } else { None };
        if let Some(memory) = private {
            return Ok(Self { memory, program: program.into() });
        }
        let own = std::env::var_os("TMPDIR").map(PathBuf::from);
        let folders = own.into_iter().chain(FOLDERS.iter().map(PathBuf::from));
        let memory = folders.into_iter().find(|folder| holds_programs(folder));
        let memory = memory.ok_or_else(|| {
            io::Error::other(
                "no folder takes memory that can be executed: set TMPDIR to one that is not mounted noexec",
            )
        })?;
        Ok(Self { memory, program: program.into() })
    }

    /// Becomes the kernel. Comes back only with an error.
    pub fn exec(&self, program: &[OsString]) -> io::Error {
        match self.enter() {
            Ok(()) => {
                let mut folder = b"TMPDIR=".to_vec();
                folder.extend(self.memory.as_os_str().as_bytes());
                let variables: Vec<_> = CString::new(folder).into_iter().collect();
                exec(program, &variables)
            }
            Err(error) => error,
        }
    }

    fn enter(&self) -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
        // The kernel puts itself at a fixed address, and would start once more to have it.
        fix_addresses()?;
        rustix::thread::set_no_new_privs(true)?;
        // A host that lacks one of these is no reason to refuse: each is a net below the others.
        let _ = self.restrict_files();
        let _ = restrict_calls();
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
            .add_rules(path_beneath_rules([&self.memory], own))?;
        rules.restrict_self().map(drop)
    }
}

fn restrict_calls() -> Result<(), BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    // Sockets of the host's own processes at most: that of the disk.
    let local = libc::AF_UNIX.unsigned_abs().into();
    let foreign = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, local)?;
    rules.insert(libc::SYS_socket, vec![SeccompRule::new(vec![foreign])?]);
    let truncate = libc::O_TRUNC.unsigned_abs().into();
    for (call, flags) in [(libc::SYS_open, 1), (libc::SYS_openat, 2)] {
        let masked = SeccompCmpOp::MaskedEq(truncate);
        let shortens = SeccompCondition::new(flags, SeccompCmpArgLen::Dword, masked, truncate)?;
        rules.insert(call, vec![SeccompRule::new(vec![shortens])?]);
    }
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, TargetArch::x86_64)?;
    let program: BpfProgram = filter.try_into()?;
    // What it does not take, it says by an error; there is nothing else to be done then.
    let _ = seccompiler::apply_filter(&program);
    Ok(())
}

/// A folder in memory, mounted where nothing of the kernel's own lies.
fn private_folder(program: &Path) -> Option<PathBuf> {
    let program = program.canonicalize().ok()?;
    let folder =
        FOLDERS.into_iter().map(Path::new).find(|folder| folder.is_dir() && !program.starts_with(folder))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount(c"none", folder, c"tmpfs", flags, c"mode=0700").ok()?;
    holds_programs(folder).then(|| folder.into())
}

/// Whether a file in `folder` can be mapped to be executed.
fn holds_programs(folder: &Path) -> bool {
    let mut options = OpenOptions::new();
    let Ok(file) = options.read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(folder)
    else {
        return false;
    };
    file.set_len(4096).is_ok() && can_execute(&file)
}

fn can_execute(file: &File) -> bool {
    // SAFETY: a new mapping at an address of the kernel's choice, given back before anything used it.
    unsafe {
        let mapped = mmap(null_mut(), 4096, ProtFlags::READ | ProtFlags::EXEC, MapFlags::PRIVATE, file, 0);
        mapped.is_ok_and(|at| munmap(at, 4096).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The filter holds for the thread that the test is.
    #[test]
    fn no_file_is_shortened_and_others_are_opened_as_ever() {
        let path = std::env::temp_dir().join(format!("obento-jail-{}", std::process::id()));
        std::fs::write(&path, [1; 100]).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        rustix::thread::set_no_new_privs(true).unwrap();
        restrict_calls().unwrap();
        let refused = io::ErrorKind::PermissionDenied;
        assert_eq!(file.set_len(10).unwrap_err().kind(), refused);
        assert_eq!(File::create(&path).unwrap_err().kind(), refused);
        assert_eq!(rustix::fs::ftruncate(&file, 200).unwrap_err(), rustix::io::Errno::PERM);
        assert_eq!(File::open(&path).unwrap().metadata().unwrap().len(), 100);
        assert!(OpenOptions::new().append(true).open(&path).is_ok());
        std::fs::remove_file(&path).unwrap();
    }
}
