//! Sets owner, mode, attributes and times of a new entry.
//!
//! Invariant: set-user-ID and set-group-ID are only set on a file with the intended owner or group.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use obento_base::{FileKind, Mode, Timestamp};
use rustix::fs::{Gid, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::{Keep, Loss, Report, Shared, Trust};
use crate::handle;
use crate::meta::ACL_ACCESS;
use crate::{Metadata, Xattr};

/// A new entry that is open.
#[derive(Clone, Copy)]
pub(super) enum CreatedTarget<'a> {
    /// A regular file or directory, open for reading or writing.
    File(BorrowedFd<'a>),
    /// A node or symbolic link, open as a handle (`O_PATH`).
    Handle(BorrowedFd<'a>),
}

/// Owner, group and mode of an entry after its creation.
#[derive(Clone, Copy)]
pub(super) struct CreationState {
    pub uid: u32,
    pub gid: u32,
    /// `None` if unknown.
    pub mode: Option<Mode>,
}

/// Whether the entry is a symbolic link, which has no mode of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Permissions {
    Own,
    None,
}

impl CreatedTarget<'_> {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::File(fd) | Self::Handle(fd) => fd.as_fd(),
        }
    }

    /// Fails with EINVAL for the owner or group 2^32 - 1: fchown(2) takes it for "unchanged".
    fn chown(self, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
        if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
            return Err(Errno::INVAL);
        }
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        match self {
            Self::File(fd) => rustix::fs::fchown(fd, uid, gid),
            Self::Handle(fd) => handle::chown(fd, uid, gid),
        }
    }

    fn chmod(self, mode: Mode) -> Result<(), Errno> {
        let mode = rustix::fs::Mode::from_raw_mode(mode.bits().into());
        match self {
            Self::File(fd) => rustix::fs::fchmod(fd, mode),
            Self::Handle(fd) => handle::chmod(fd, mode),
        }
    }

    fn set_xattr(self, xattr: &Xattr) -> Result<(), Errno> {
        let (name, value) = (xattr.name.as_slice(), xattr.value.as_slice());
        match self {
            Self::File(fd) => rustix::fs::fsetxattr(fd, name, value, XattrFlags::empty()),
            Self::Handle(fd) => handle::set_xattr(fd, name, value),
        }
    }

    fn set_times(self, times: &Timestamps) -> Result<(), Errno> {
        match self {
            Self::File(fd) => rustix::fs::futimens(fd, times),
            Self::Handle(fd) => handle::set_times(fd, times),
        }
    }

    /// Removes an ACL that was inherited from the directory, so that the mode alone defines the permissions.
    pub fn remove_acl(self, name: &str) {
        // Without an ACL, or on a file system without ACLs, there is nothing to remove.
        let _ = rustix::fs::fremovexattr(self.fd(), name);
    }
}

pub(super) fn timestamps(meta: &Metadata<'_>) -> Timestamps {
    let spec = |time: Timestamp| Timespec { tv_sec: time.secs(), tv_nsec: time.nanos().into() };
    Timestamps { last_access: spec(meta.atime), last_modification: spec(meta.mtime) }
}

/// Returns the permissions of the owning group in the access control list `value`.
/// Source: Linux `include/uapi/linux/posix_acl_xattr.h`: a version of 4 bytes, then entries of 8.
fn owning_group(value: &[u8]) -> Option<u16> {
    const ACL_GROUP_OBJ: u16 = 0x04;
    let (entries, _) = value.get(4..)?.as_chunks::<8>();
    let words = entries.iter().map(|entry| {
        let [tag_low, tag_high, low, high, ..] = *entry;
        (u16::from_le_bytes([tag_low, tag_high]), u16::from_le_bytes([low, high]))
    });
    words.into_iter().find(|(tag, _)| *tag == ACL_GROUP_OBJ).map(|(_, permissions)| permissions & 7)
}

/// Sets attributes of one entry, and counts those that cannot be kept.
pub(super) struct Applier<'a> {
    pub shared: &'a Shared,
    pub report: &'a mut Report,
    pub path: &'a dyn Fn() -> PathBuf,
    /// The attributes to set.
    pub keep: Keep,
}

impl<'a> Applier<'a> {
    pub fn new(shared: &'a Shared, report: &'a mut Report, path: &'a dyn Fn() -> PathBuf) -> Self {
        Self { shared, report, path, keep: shared.options.keep }
    }

    fn lose(&mut self, loss: Loss, errno: impl Into<Option<Errno>>) {
        self.report.lose(loss, errno.into(), self.path);
    }

    /// Returns the final mode of an entry, before the owner is considered.
    pub fn final_mode(&mut self, meta: &Metadata<'_>, kind: FileKind) -> Mode {
        let options = &self.shared.options;
        if !self.keep.contains(Keep::MODE) {
            let mode = options.new_mode.of(kind, meta.mode);
            return Mode::new(mode.bits() & !self.shared.creator.umask);
        }
        let special = Mode::new(Mode::SET_UID.bits() | Mode::SET_GID.bits());
        if options.trust == Trust::Untrusted && meta.mode.bits() & special.bits() != 0 {
            self.lose(Loss::SpecialBits, None);
            return meta.mode.without(special);
        }
        meta.mode
    }

    /// Sets all of `meta`, in an order in which no step resets an earlier one.
    pub fn apply(
        &mut self,
        target: CreatedTarget<'_>,
        made: CreationState,
        meta: &Metadata<'_>,
        mode: Mode,
        kind: Permissions,
    ) {
        let keep = self.keep;
        let owner = if keep.contains(Keep::OWNER) { self.set_owner(target, made, meta) } else { made };
        self.set_xattrs(target, meta, |name| name.starts_with(b"user."));
        if kind == Permissions::Own {
            self.set_mode(target, owner, meta, mode);
        }
        self.set_xattrs(target, meta, |name| !name.starts_with(b"user."));
        if keep.contains(Keep::TIMES) {
            self.set_times(target, meta);
        }
    }

    /// Sets the owner of the entry as far as permitted. Returns the resulting owner, group and mode.
    fn set_owner(
        &mut self,
        target: CreatedTarget<'_>,
        made: CreationState,
        meta: &Metadata<'_>,
    ) -> CreationState {
        let CreationState { uid, gid, .. } = made;
        if (uid, gid) == (meta.uid, meta.gid) {
            return made;
        }
        let mut refusal = Errno::PERM;
        if self.shared.may_chown.load(Ordering::Relaxed) {
            match target.chown(Some(meta.uid), Some(meta.gid)) {
                // A change of owner may clear special bits and capabilities, so the mode is unknown
                // afterwards.
                Ok(()) => return CreationState { uid: meta.uid, gid: meta.gid, mode: None },
                Err(Errno::PERM) => self.shared.may_chown.store(false, Ordering::Relaxed),
                Err(errno) => refusal = errno,
            }
        }
        let group = gid != meta.gid
            && self.shared.creator.is_in_group(meta.gid)
            && target.chown(None, Some(meta.gid)).is_ok();
        let gid = if group { meta.gid } else { gid };
        if (uid, gid) != (meta.uid, meta.gid) {
            self.lose(Loss::Owner, refusal);
        }
        CreationState { uid, gid, mode: made.mode.filter(|_| !group) }
    }

    fn set_mode(
        &mut self,
        target: CreatedTarget<'_>,
        owner: CreationState,
        meta: &Metadata<'_>,
        mut mode: Mode,
    ) {
        let mut unearned = 0;
        if owner.uid != meta.uid {
            unearned |= mode.bits() & Mode::SET_UID.bits();
        }
        if owner.gid != meta.gid {
            unearned |= mode.bits() & Mode::SET_GID.bits();
        }
        if unearned != 0 {
            mode = mode.without(Mode::new(unearned));
            self.lose(Loss::SpecialBits, None);
        }
        if owner.mode == Some(mode) {
            return;
        }
        if let Err(errno) = target.chmod(mode) {
            self.lose(Loss::Mode, errno);
        }
    }

    fn set_xattrs(&mut self, target: CreatedTarget<'_>, meta: &Metadata<'_>, which: impl Fn(&[u8]) -> bool) {
        for xattr in meta.xattrs.iter().filter(|xattr| which(&xattr.name)) {
            if !self.keep.includes(xattr) {
                continue;
            }
            let loss = if xattr.is_acl() { Loss::Acl } else { Loss::Xattr };
            if !self.shared.options.sets(xattr, self.keep) {
                self.lose(loss, None);
            } else if let Err(errno) = target.set_xattr(xattr) {
                self.lose(loss, errno);
                if xattr.name == ACL_ACCESS.as_bytes() {
                    self.narrow_mode(target, &xattr.value);
                }
            }
        }
    }

    /// Removes from the group the permissions that only the mask of the lost list `value` allowed.
    fn narrow_mode(&mut self, target: CreatedTarget<'_>, value: &[u8]) {
        let stat = rustix::fs::fstat(target.fd()).map_err(|errno| self.lose(Loss::Mode, errno));
        let (Ok(stat), Some(group)) = (stat, owning_group(value)) else { return };
        let bits = u16::try_from(stat.st_mode & 0o7777).unwrap_or(0);
        if let Err(errno) = target.chmod(Mode::new(bits & (0o7707 | group << 3))) {
            self.lose(Loss::Mode, errno);
        }
    }

    pub fn set_times(&mut self, target: CreatedTarget<'_>, meta: &Metadata<'_>) {
        if let Err(errno) = target.set_times(&timestamps(meta)) {
            return self.lose(Loss::Times, errno);
        }
        // A file system replaces a time that it cannot store by the nearest one. All file systems store
        // 31-bit times.
        let is_unusual = |time: Timestamp| i32::try_from(time.secs()).is_err() || time.secs() < 0;
        if is_unusual(meta.mtime)
            && rustix::fs::fstat(target.fd()).is_ok_and(|stat| stat.st_mtime != meta.mtime.secs())
        {
            self.lose(Loss::Times, Errno::RANGE);
        }
    }
}
