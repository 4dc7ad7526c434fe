//! Drops privileges after an image is open, to limit the effect of a bug in a decoder.
//!
//! Four measures, each as far as the kernel supports it:
//! - no started program gains privileges (`no_new_privs`);
//! - no privileges of root (capabilities), except those for files that are still read or written;
//! - no files outside the target (Landlock);
//! - no system calls outside a list, and no path in a call that changes metadata, which Landlock does not restrict
//!   (seccomp).
//!
//! Open files stay open. A process that works on open files only cannot resolve paths, either.
//! Invariant: no thread can undo the measures.
//!
//! Capabilities, and Landlock before Linux 7.0, only bind the calling thread and the threads that it starts
//! later: call [`enter`] before threads are started. seccomp binds all threads in any case.

mod deep;
mod metadata;
mod syscalls;
mod truncation;

use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, RestrictSelfAttr, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

/// The newest Landlock version that is requested. An older kernel applies the rights that it supports.
const LANDLOCK: ABI = ABI::V6;

/// The rights that the process still needs.
#[derive(Clone, Copy, Debug)]
pub enum Rights<'a> {
    /// Reads and writes open files, and starts threads.
    Read,
    /// Also accepts connections on an open socket, and waits for signals.
    Serve,
    /// The same, and opens files below this directory for reading: `/proc`, to identify the processes that use a mount.
    ServeProcesses(BorrowedFd<'a>),
    /// Also opens files below some directories for reading, and lists the directories.
    ReadBeneath {
        /// The directories.
        folders: &'a [BorrowedFd<'a>],
        /// The directories below `folders` that are read with all their contents.
        trees: &'a [BorrowedFd<'a>],
    },
    /// Also creates, changes and removes files below these directories.
    WriteBeneath(&'a [BorrowedFd<'a>]),
    /// Also reads these files and the files below these directories, and creates and removes files in others.
    Build {
        /// The files and directories that are read.
        read: &'a [BorrowedFd<'a>],
        /// The directories in which files are created.
        write: &'a [BorrowedFd<'a>],
    },
}

/// The result of one measure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Measure {
    /// In force.
    Applied,
    /// In force as far as this kernel supports it.
    Partly,
    /// Not in force, with the reason.
    Missing(String),
}

/// The measures in force after [`enter`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied {
    /// No started program gains privileges.
    pub no_new_privs: Measure,
    /// No privileges of root except those that the work needs.
    pub capabilities: Measure,
    /// Landlock: no other files, no network.
    pub landlock: Measure,
    /// seccomp: no other system calls.
    pub seccomp: Measure,
}

/// Drops all privileges but `rights`, permanently. A forbidden system call returns ENOSYS, for which
/// libraries have fallbacks. A measure that fails is reported and is not an error: the measures are a second
/// protection around decoders that are safe by themselves.
pub fn enter(rights: Rights<'_>) -> Applied {
    let missing = |reason: String| Measure::Missing(reason);
    crate::tree::before_sandbox();
    let no_new_privs = match rustix::thread::set_no_new_privs(true) {
        Ok(()) => Measure::Applied,
        Err(errno) => missing(errno.to_string()),
    };
    let capabilities = match drop_capabilities(needed(rights)) {
        Ok(()) => Measure::Applied,
        Err(errno) => missing(errno.to_string()),
    };
    let landlock = restrict_files(rights).unwrap_or_else(|error| missing(error.to_string()));
    // The last measure, because its list excludes the calls above.
    let seccomp = restrict_calls(rights).unwrap_or_else(missing);
    Applied { no_new_privs, capabilities, landlock, seccomp }
}

/// Returns the capabilities that `rights` need. Source: capabilities(7).
fn needed(rights: Rights<'_>) -> CapabilitySet {
    // SYS_ADMIN for attributes `trusted.*`.
    let reading = CapabilitySet::DAC_READ_SEARCH | CapabilitySet::DAC_OVERRIDE | CapabilitySet::SYS_ADMIN;
    match rights {
        Rights::Read | Rights::Serve | Rights::ServeProcesses(_) => CapabilitySet::empty(),
        Rights::ReadBeneath { .. } | Rights::Build { .. } => reading,
        Rights::WriteBeneath(_) => {
            reading
                | CapabilitySet::CHOWN
                | CapabilitySet::FOWNER
                | CapabilitySet::FSETID
                | CapabilitySet::MKNOD
                | CapabilitySet::SETFCAP
        }
    }
}

/// Drops all capabilities of this thread, and of threads that it starts later, except `kept`.
fn drop_capabilities(kept: CapabilitySet) -> Result<(), Errno> {
    let now = capabilities(None)?;
    let (effective, permitted) = (now.effective & kept, now.permitted & kept);
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() })
}

/// Drops the capabilities of a thread that only starts `program`, and of threads that it starts later. A
/// program that root starts regains the capabilities. They are therefore kept in these cases:
///
/// - The user is not root, or the secure bits disable the rule.
/// - `no_new_privs` is set: no program gains capabilities.
/// - Root without capabilities could not start `program`.
///
/// Source: capabilities(7), "Capabilities and execution of programs by root"; PR_SET_NO_NEW_PRIVS(2const).
pub fn drop_capabilities_until_exec(program: &Path) -> Measure {
    use std::os::unix::fs::MetadataExt as _;

    let keeps_root = rustix::thread::capabilities_secure_bits().is_ok_and(|bits| bits.is_empty())
        && rustix::thread::no_new_privs().is_ok_and(|is_set| !is_set);
    let is_executable = std::fs::metadata(program)
        .is_ok_and(|meta| meta.mode() & 0o001 != 0 || meta.uid() == 0 && meta.mode() & 0o100 != 0);
    if !rustix::process::geteuid().is_root() || !keeps_root || !is_executable {
        return Measure::Missing("the program that is started later would not regain them".into());
    }
    match drop_capabilities(CapabilitySet::empty()) {
        Ok(()) => Measure::Applied,
        Err(errno) => Measure::Missing(errno.to_string()),
    }
}

/// Drops the capabilities of this thread, and of threads that it starts later, except those for unmounting. No started
/// program gains privileges. Does nothing for a user who is not root, who unmounts through a program that is
/// set-user-ID root.
///
/// Landlock is not used: a restricted process cannot unmount. Source: Linux security/landlock/fs.c
/// `hook_sb_umount`.
pub fn keep_unmounting() -> Measure {
    if !rustix::process::geteuid().is_root() {
        return Measure::Missing("the user is not root".into());
    }
    // The mount point can be below a directory that only another user can enter.
    let kept = CapabilitySet::SYS_ADMIN | CapabilitySet::DAC_READ_SEARCH;
    match rustix::thread::set_no_new_privs(true).and_then(|()| drop_capabilities(kept)) {
        Ok(()) => Measure::Applied,
        Err(errno) => Measure::Missing(errno.to_string()),
    }
}

fn restrict_files(rights: Rights<'_>) -> Result<Measure, RulesetError> {
    let all = AccessFs::from_all(LANDLOCK);
    // If Landlock restricts truncation, each open file is checked for this right, which no rule grants to a reader, so
    // that the walk ends at the root.
    let is_deep = matches!(rights, Rights::ReadBeneath { .. }) && truncation::refuse().is_ok();
    let handled = if is_deep { all & !AccessFs::Truncate } else { all };
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(handled)?
        .handle_access(AccessNet::from_all(LANDLOCK))?
        .scope(Scope::from_all(LANDLOCK))?
        .create()?;
    let writing = all & !AccessFs::Execute;
    let (read, write) = match &rights {
        Rights::Read | Rights::Serve => (&[][..], &[][..]),
        Rights::ServeProcesses(folder) => (std::slice::from_ref(folder), &[][..]),
        Rights::ReadBeneath { folders, .. } => (*folders, &[][..]),
        Rights::WriteBeneath(folders) => (&[][..], *folders),
        Rights::Build { read, write } => (*read, *write),
    };
    let reading = AccessFs::ReadFile | AccessFs::ReadDir;
    for (folders, granted) in [(read, reading), (write, writing)] {
        for folder in folders {
            rules = rules.add_rule(PathBeneath::new(folder, granted))?;
        }
    }
    if let Rights::ReadBeneath { trees, .. } = rights
        && is_deep
    {
        let mut left = deep::FOUND_MAX;
        for tree in trees {
            // Without these rules, access to deep directories is only slower.
            let _ = deep::each(tree.as_fd(), &mut left, |dir| {
                (&mut rules).add_rule(PathBeneath::new(dir, reading)).map(drop)
            });
        }
    }
    let status = rules.all_threads(true)?.restrict_self()?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => Measure::Applied,
        RulesetStatus::PartiallyEnforced => Measure::Partly,
        RulesetStatus::NotEnforced => Measure::Missing("the kernel has no Landlock, or it is off".into()),
    })
}

fn restrict_calls(rights: Rights<'_>) -> Result<Measure, String> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
    let otherwise = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let (rules, measure) = syscalls::allowed(rights)?;
    let filter = SeccompFilter::new(rules, otherwise, SeccompAction::Allow, arch);
    let program: BpfProgram =
        filter.and_then(TryInto::try_into).map_err(|error: seccompiler::BackendError| error.to_string())?;
    seccompiler::apply_filter_all_threads(&program).map_err(|error| error.to_string())?;
    Ok(measure)
}

#[cfg(test)]
mod tests;
