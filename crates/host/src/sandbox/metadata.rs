//! Conditions of the calls that change metadata, which Landlock does not restrict.
//!
//! A process that writes a tree changes metadata only of open files. It opens a handle (`O_PATH`), for which Landlock
//! requires no right, only of a file below a directory that is open. Invariant: no allowed call changes the metadata of
//! a file by its path, and none changes the bytes at the addresses that are compared ([`handle`]).

use libc::c_long;
use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition as Condition, SeccompRule};

use super::Measure;
use super::syscalls::Rules;
use crate::handle::{self, FixedPages};

/// The access mode in the flags of open(2). Linux opens a file with the mode 3 for neither reading nor writing, and
/// Landlock requires no right for that. Source: open(2), "File access mode".
const ACCESS: libc::c_int = libc::O_WRONLY | libc::O_RDWR;

/// One condition of a call, or the reason why the filter cannot have it.
type Checked = Result<Condition, BackendError>;

/// Adds the calls for changing the metadata of open files to `rules`, and restricts those that could extend them.
/// Returns whether this kernel supports the restrictions.
pub(super) fn restrict(rules: &mut Rules) -> Result<Measure, String> {
    let addresses = handle::addresses().map_err(|errno| errno.to_string())?;
    let [empty, taken] = [addresses.empty, addresses.taken].map(|address| address as u64);
    let by_descriptor = || vec![no_current_directory(), word(1, SeccompCmpOp::Eq, empty)];
    let open_file = vec![word(1, SeccompCmpOp::Eq, 0)];
    allow(rules, libc::SYS_fchownat, [by_descriptor()])?;
    allow(rules, libc::SYS_utimensat, [by_descriptor(), open_file])?;
    allow(rules, libc::SYS_fchmodat, [vec![word(1, SeccompCmpOp::Eq, taken)]])?;
    allow(rules, libc::SYS_setxattr, [vec![word(0, SeccompCmpOp::Eq, taken)]])?;
    let has_handles = !addresses.how.is_empty();
    // Without openat2(2), this call opens handles, too.
    let refused = if has_handles { libc::O_PATH } else { 0 };
    let opens = [libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR];
    allow(rules, libc::SYS_openat, opens.map(|access| vec![flags(2, refused | ACCESS, access)]))?;
    if has_handles {
        let open = |&how: &usize| vec![no_current_directory(), word(2, SeccompCmpOp::Eq, how as u64)];
        allow(rules, libc::SYS_openat2, addresses.how.iter().map(open))?;
    }
    let Some(pages) = addresses.pages else { return Ok(Measure::Partly) };
    for call in [libc::SYS_munmap, libc::SYS_mprotect, libc::SYS_madvise] {
        allow(rules, call, elsewhere(pages))?;
    }
    // The kernel chooses an unused address.
    let chosen = vec![word(0, SeccompCmpOp::Eq, 0), flags(3, libc::MAP_FIXED, 0)];
    allow(rules, libc::SYS_mmap, elsewhere(pages).into_iter().chain([chosen]))?;
    let moved =
        elsewhere(pages).map(|range| range.into_iter().chain([flags(3, libc::MREMAP_FIXED, 0)]).collect());
    allow(rules, libc::SYS_mremap, moved)?;
    Ok(if has_handles { Measure::Applied } else { Measure::Partly })
}

/// Allows `call` if all conditions of one of `alternatives` hold.
fn allow(
    rules: &mut Rules,
    call: c_long,
    alternatives: impl IntoIterator<Item = Vec<Checked>>,
) -> Result<(), String> {
    let rule = |all: Vec<Checked>| SeccompRule::new(all.into_iter().collect::<Result<_, _>>()?);
    let any: Result<Vec<_>, _> = alternatives.into_iter().map(rule).collect();
    rules.insert(call, any.map_err(|error: BackendError| error.to_string())?);
    Ok(())
}

/// Ranges, as an address and a length in the first two arguments, that do not overlap `pages`.
fn elsewhere(pages: FixedPages) -> [Vec<Checked>; 2] {
    [
        vec![word(0, SeccompCmpOp::Ge, pages.end)],
        vec![word(0, SeccompCmpOp::Lt, pages.below), word(1, SeccompCmpOp::Le, pages.below)],
    ]
}

/// The descriptor in the first argument is not the current directory, which may be outside of the target.
fn no_current_directory() -> Checked {
    let current = libc::AT_FDCWD.cast_unsigned().into();
    Condition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, current)
}

/// Those of the flags in `argument` that are in `mask` are exactly `value`.
fn flags(argument: u8, mask: libc::c_int, value: libc::c_int) -> Checked {
    let [mask, value] = [mask, value].map(|flags| u64::from(flags.cast_unsigned()));
    Condition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(mask), value)
}

/// A condition of an address or a length.
fn word(argument: u8, compare: SeccompCmpOp, value: u64) -> Checked {
    Condition::new(argument, SeccompCmpArgLen::Qword, compare, value)
}
