//! Giving up rights once an image is open, so that a bug in a decoder finds little to use.
//!
//! Four measures, each as far as the kernel has it: no program that is started gains rights (`no_new_privs`), no rights of root
//! (capabilities) but those for files that are still read or written, no files but those beneath the target (Landlock), no system calls but
//! those in a list (seccomp). What is open stays open. A process that works on open files only cannot look at paths, either.
//! Invariant: there is no way back, for no thread.
//!
//! Capabilities, and Landlock before Linux 7.0, only bind the thread that calls and those it starts later: call [`enter`] before
//! threads are started. seccomp binds all of them in any case.

mod syscalls;

use std::os::fd::BorrowedFd;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, RestrictSelfAttr, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

/// The newest Landlock whose rights are asked for; an older kernel gives what it has.
const LANDLOCK: ABI = ABI::V6;

/// What the process still needs to do.
#[derive(Clone, Copy, Debug)]
pub enum Rights<'a> {
    /// Read what is open, write to what is open, start threads.
    Read,
    /// Also take connections that come to a socket which is open, and wait for signals.
    Serve,
    /// Also open for reading, and list, what lies beneath these directories.
    ReadBeneath(&'a [BorrowedFd<'a>]),
    /// Also create, change and remove files beneath these directories.
    WriteBeneath(&'a [BorrowedFd<'a>]),
    /// Also read these files and what lies beneath these directories, and make a file in another directory.
    Build {
        /// What is read.
        read: &'a [BorrowedFd<'a>],
        /// Where something is made.
        write: BorrowedFd<'a>,
    },
}

/// What became of one measure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Measure {
    /// In force.
    Applied,
    /// In force as far as this kernel can.
    Partly,
    /// This kernel cannot, or something forbids it: why.
    Missing(String),
}

/// What is in force after [`enter`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied {
    /// No program that is started gains rights.
    pub no_new_privs: Measure,
    /// No rights of root but those that the work needs.
    pub capabilities: Measure,
    /// Landlock: no other files, no network.
    pub landlock: Measure,
    /// seccomp: no other system calls.
    pub seccomp: Measure,
}

/// Gives up all rights but `rights`, for good. A call that is no longer allowed answers ENOSYS, for which libraries
/// have ways around where they can do without. What cannot be done is told and no error: the rights are a net below
/// decoders that are safe by themselves.
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
    // Last, because its list has none of the calls above.
    let seccomp = restrict_calls(rights).map_or_else(missing, |()| Measure::Applied);
    Applied { no_new_privs, capabilities, landlock, seccomp }
}

/// The capabilities that `rights` need. Source: capabilities(7).
fn needed(rights: Rights<'_>) -> CapabilitySet {
    // SYS_ADMIN for attributes `trusted.*`.
    let reading = CapabilitySet::DAC_READ_SEARCH | CapabilitySet::DAC_OVERRIDE | CapabilitySet::SYS_ADMIN;
    match rights {
        Rights::Read | Rights::Serve => CapabilitySet::empty(),
        Rights::ReadBeneath(_) | Rights::Build { .. } => reading,
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

/// Drops all capabilities of this thread, and of those that it starts later, but `kept`.
fn drop_capabilities(kept: CapabilitySet) -> Result<(), Errno> {
    let now = capabilities(None)?;
    let (effective, permitted) = (now.effective & kept, now.permitted & kept);
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() })
}

fn restrict_files(rights: Rights<'_>) -> Result<Measure, RulesetError> {
    let all = AccessFs::from_all(LANDLOCK);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .handle_access(AccessNet::from_all(LANDLOCK))?
        .scope(Scope::from_all(LANDLOCK))?
        .create()?;
    let writing = all & !AccessFs::Execute;
    let (read, write) = match &rights {
        Rights::Read | Rights::Serve => (&[][..], &[][..]),
        Rights::ReadBeneath(folders) => (*folders, &[][..]),
        Rights::WriteBeneath(folders) => (&[][..], *folders),
        Rights::Build { read, write } => (*read, std::slice::from_ref(write)),
    };
    for (folders, granted) in [(read, AccessFs::ReadFile | AccessFs::ReadDir), (write, writing)] {
        for folder in folders {
            rules = rules.add_rule(PathBeneath::new(folder, granted))?;
        }
    }
    let status = rules.all_threads(true)?.restrict_self()?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => Measure::Applied,
        RulesetStatus::PartiallyEnforced => Measure::Partly,
        RulesetStatus::NotEnforced => Measure::Missing("the kernel has no Landlock, or it is off".into()),
    })
}

fn restrict_calls(rights: Rights<'_>) -> Result<(), String> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
    let otherwise = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let rules = syscalls::allowed(rights).map_err(|error| error.to_string())?;
    let filter = SeccompFilter::new(rules, otherwise, SeccompAction::Allow, arch);
    let program: BpfProgram =
        filter.and_then(TryInto::try_into).map_err(|error: seccompiler::BackendError| error.to_string())?;
    seccompiler::apply_filter_all_threads(&program).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
