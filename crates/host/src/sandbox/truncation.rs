//! Refuses to truncate files that are not open, by seccomp instead of Landlock.

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::syscalls::Rules;

/// Calls that truncate a file by its path, or may do so: openat2(2) receives its flags in memory.
#[cfg(target_arch = "x86_64")]
const REFUSED: &[c_long] = &[libc::SYS_truncate, libc::SYS_creat, libc::SYS_openat2];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED: &[c_long] = &[libc::SYS_truncate, libc::SYS_openat2];

/// Calls that open files, and the argument with their flags.
#[cfg(target_arch = "x86_64")]
const OPENING: &[(c_long, u8)] = &[(libc::SYS_openat, 2), (libc::SYS_open, 1)];
#[cfg(not(target_arch = "x86_64"))]
const OPENING: &[(c_long, u8)] = &[(libc::SYS_openat, 2)];

/// Refuses these calls to all threads. Later filters can only refuse more. Fails if the kernel or the container does
/// not permit filters.
pub(super) fn refuse() -> Result<(), String> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
    let refused = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let program = rules().and_then(|rules| {
        SeccompFilter::new(rules, SeccompAction::Allow, refused, arch)
            .and_then(TryInto::<BpfProgram>::try_into)
    });
    let program = program.map_err(|error: BackendError| error.to_string())?;
    seccompiler::apply_filter_all_threads(&program).map_err(|error| error.to_string())
}

fn rules() -> Result<Rules, BackendError> {
    let truncates = u64::from(libc::O_TRUNC.cast_unsigned());
    let mut rules: Rules = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    for &(call, flags) in OPENING {
        let is_set = SeccompCmpOp::MaskedEq(truncates);
        let condition = SeccompCondition::new(flags, SeccompCmpArgLen::Dword, is_set, truncates)?;
        rules.insert(call, vec![SeccompRule::new(vec![condition])?]);
    }
    Ok(rules)
}
