//! The user who controls a file.
//!
//! The server of a FUSE mount chooses the owners that stat(2) reports. The user of the mount therefore controls each file
//! in it, whatever its owner is.
//!
//! Source: mount.fuse3(8) `user_id`; proc_pid_mountinfo(5); proc_pid_fdinfo(5) `mnt_id`.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use rustix::fs::Stat;
use rustix::process::geteuid;

/// `FUSE_SUPER_MAGIC` of include/uapi/linux/magic.h.
const FUSE: u64 = 0x6573_5546;
/// Write permission for the group and for other users.
pub(crate) const SHARED: u32 = 0o022;

/// Returns whether only the user of this process can exchange the entries of the directory with this status.
pub(crate) fn is_own(stat: &Stat) -> bool {
    stat.st_uid == geteuid().as_raw() && stat.st_mode & SHARED == 0
}

/// `MSDOS_SUPER_MAGIC` and `EXFAT_SUPER_MAGIC` of include/uapi/linux/magic.h.
const WITHOUT_OWNERS: [u64; 2] = [0x4d44, 0x2011_bab0];

/// Returns whether the file system of `file` stores neither owners nor permissions, so that nothing in it can be protected
/// from the users who may change the directories.
pub(crate) fn stores_no_owners(file: impl AsFd) -> bool {
    system_of(file).is_some_and(|system| WITHOUT_OWNERS.contains(&system))
}

/// Returns the magic number of the file system of `file`. The kernel sets this number, also for a FUSE mount.
pub(crate) fn system_of(file: impl AsFd) -> Option<u64> {
    u64::try_from(rustix::fs::fstatfs(file).ok()?.f_type).ok()
}

/// Returns the user who controls the open file `file`, whose status is `stat`. Returns `None` if the file is in a FUSE
/// mount whose user is unknown, for example because a sandbox does not permit to read the list of mounts.
pub(crate) fn controller(file: impl AsFd, stat: &Stat) -> Option<u32> {
    // The server of a FUSE mount may fail the call.
    if system_of(&file)? != FUSE {
        return Some(stat.st_uid);
    }
    match mount_user(file.as_fd())? {
        // Root trusts the server that it started.
        0 => Some(stat.st_uid),
        user => Some(user),
    }
}

/// Returns whether root or the user of this process controls the file, as for [`controller`].
pub(crate) fn is_trusted(file: impl AsFd, stat: &Stat) -> bool {
    controller(file, stat).is_some_and(|user| user == 0 || user == geteuid().as_raw())
}

/// Returns whether `file` is in a FUSE mount of a user other than root and the user of this process, who can read all
/// bytes that are written there.
pub(crate) fn is_in_foreign_mount(file: impl AsFd) -> bool {
    let is_trusted = |user| user == 0 || user == geteuid().as_raw();
    match system_of(&file) {
        Some(FUSE) => !mount_user(file.as_fd()).is_some_and(is_trusted),
        Some(_) => false,
        None => true,
    }
}

/// Returns the user of the FUSE mount that contains `file`.
fn mount_user(file: BorrowedFd<'_>) -> Option<u32> {
    let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let mount = about.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
    user_of_mount(&std::fs::read("/proc/self/mountinfo").ok()?, mount.as_bytes())
}

/// Returns the user of the mount with the number `mount` in the list `mounts`. The server of a virtiofs mount is the host
/// of the virtual machine, which root must trust in any case.
fn user_of_mount(mounts: &[u8], mount: &[u8]) -> Option<u32> {
    let mut lines = mounts.split(|&byte| byte == b'\n');
    let line = lines.find(|line| line.split(|&byte| byte == b' ').next() == Some(mount))?;
    let mut fields = line.split(|&byte| byte == b' ').skip_while(|field| *field != b"-");
    if fields.nth(1) == Some(b"virtiofs") {
        return Some(0);
    }
    // The options of the file system are the last field. No field contains a space.
    let options = line.rsplit(|&byte| byte == b' ').next()?;
    let user = options.split(|&byte| byte == b',').find_map(|option| option.strip_prefix(b"user_id="))?;
    str::from_utf8(user).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
