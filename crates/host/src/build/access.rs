//! The permissions of a file that gets the contents of other files.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{Mode, Stat};
use rustix::io::Errno;

/// The attribute of a file with an access control list. The group bits of such a file are the mask of the list.
const ACL: &str = "system.posix_acl_access";
/// The attribute of a directory with a list that new files in it get. The mask of the process does not apply to them.
const DEFAULT_ACL: &str = "system.posix_acl_default";
/// The maximum length of an attribute. Source: Linux `include/uapi/linux/limits.h`.
const ATTRIBUTE_MAX: usize = 65536;
/// The permissions of a new file without a limit. The process's mask applies.
const ALL: u32 = 0o666;

/// A limit to the permissions of a new file, so that only users who may read other files may read their contents.
///
/// The owner of the new file may always read and write it. Its group gets the permissions of the group of the other
/// file, if both files have the same group and the other file has no access control list. Otherwise its group and all
/// other users get only the permissions that both the group and all other users have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessLimit {
    mode: u32,
    /// The group for which the limit is valid. `None` for every group.
    gid: Option<u32>,
}

impl AccessLimit {
    /// No limit.
    pub const NONE: Self = Self { mode: ALL, gid: None };

    /// Returns the strictest limit: only the owner may read and write a copy.
    pub fn strictest() -> Self {
        Self { mode: 0o600, gid: Some(rustix::process::getegid().as_raw()) }
    }

    /// Returns the limit of the files with these paths. A path without a file sets no limit.
    pub fn of<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Self {
        let gid = rustix::process::getegid().as_raw();
        paths.into_iter().fold(Self::NONE, |limit, path| match rustix::fs::stat(path) {
            Ok(stat) => limit.with(&stat, has_acl(path), gid),
            Err(_) => limit,
        })
    }

    /// Returns the limit of an open file. The limit of a file that cannot be examined is that of mode 0600.
    pub fn of_file(file: impl AsFd) -> Self {
        let (file, gid) = (file.as_fd(), rustix::process::getegid().as_raw());
        match rustix::fs::fstat(file) {
            Ok(stat) => Self::NONE.with(&stat, attribute(file, ACL).is_some(), gid),
            Err(_) => Self::strictest(),
        }
    }

    /// Returns the limit of the files of both limits.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { mode: self.mode & other.mode, gid: self.gid.or(other.gid) }
    }

    /// Adds the limit of a file. `gid` is the group of the new file.
    fn with(self, stat: &Stat, has_acl: bool, gid: u32) -> Self {
        let is_same_group = stat.st_gid == gid && !has_acl;
        let mode = if is_same_group { stat.st_mode } else { for_other_groups(stat.st_mode) };
        Self { mode: self.mode & (mode | 0o600), gid: Some(gid) }
    }

    /// Returns the mode with which a new file in `folder` is created so that it meets the limit at once.
    pub fn mode_in(self, folder: &FolderAccess) -> u16 {
        let limit = match (self.gid, folder) {
            (None, _) => ALL,
            (_, FolderAccess { has_acl: true, .. }) => 0o600,
            (Some(own), FolderAccess { gid: Some(gid), .. }) if own != *gid => for_other_groups(self.mode),
            _ => self.mode,
        };
        u16::try_from(limit & ALL).unwrap_or(0o600)
    }

    /// Returns the mode with which a file is created.
    pub(super) fn mode(self) -> Mode {
        Mode::from_raw_mode(self.mode)
    }

    /// Applies the limit to a new file that was created with [`mode`](Self::mode). A directory with the set-group-ID bit
    /// passes its group to new files, and one with a default list passes an access control list.
    pub(super) fn apply(self, file: impl AsFd) -> Result<(), Errno> {
        let file = file.as_fd();
        if self.gid.is_none() {
            return Ok(());
        }
        let stat = rustix::fs::fstat(file)?;
        if let Some(mode) = self.for_group_of(&stat) {
            rustix::fs::fchmod(file, mode)?;
        }
        let Some(acl) = attribute(file, ACL) else { return Ok(()) };
        let limit = self.mode_in_group(&stat);
        let acl = NewAcl::parse(&acl);
        if acl.as_ref().is_some_and(|acl| acl.for_named() & !(limit >> 3 & limit) == 0) {
            return Ok(());
        }
        // The group bits of the mode are the mask of the list, and would become the permissions of the group.
        rustix::fs::fchmod(file, Mode::from_raw_mode(0o600))?;
        rustix::fs::fremovexattr(file, ACL)?;
        let mode = acl.map_or(0, |acl| acl.without_named()) & limit | 0o600;
        rustix::fs::fchmod(file, Mode::from_raw_mode(mode))
    }

    /// Gives the final permissions to a new file that was created in `folder` with mode 0600. The file keeps this mode if the
    /// directory has a default list, or if the file system does not store modes.
    pub(super) fn widen(self, file: impl AsFd, folder: impl AsFd) -> Result<(), Errno> {
        if attribute(folder.as_fd(), DEFAULT_ACL).is_some() {
            return Ok(());
        }
        let limit = self.mode_in_group(&rustix::fs::fstat(&file)?);
        let _ = rustix::fs::fchmod(&file, Mode::from_raw_mode(limit & !u32::from(crate::tree::umask())));
        Ok(())
    }

    /// Returns the permissions that a file with this status may have.
    fn mode_in_group(self, stat: &Stat) -> u32 {
        match self.gid {
            Some(gid) if gid != stat.st_gid => for_other_groups(self.mode),
            _ => self.mode,
        }
    }

    /// Returns the mode of a new file whose group is another one than that of the process, or `None` if it need not
    /// change.
    fn for_group_of(self, stat: &Stat) -> Option<Mode> {
        self.gid.filter(|gid| *gid != stat.st_gid)?;
        Some(Mode::from_raw_mode(for_other_groups(stat.st_mode & ALL)))
    }
}

/// What a directory changes about the permissions of new files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FolderAccess {
    /// Whether new files get an access control list.
    has_acl: bool,
    /// The group that new files get instead of that of the process.
    gid: Option<u32>,
}

impl FolderAccess {
    /// Examines an open directory. A directory that cannot be examined counts as one with a list.
    pub fn of(folder: impl AsFd) -> Self {
        let folder = folder.as_fd();
        match rustix::fs::fstat(folder) {
            Ok(stat) => Self {
                has_acl: attribute(folder, DEFAULT_ACL).is_some(),
                gid: (stat.st_mode & Mode::SGID.as_raw_mode() != 0).then_some(stat.st_gid),
            },
            Err(_) => Self { has_acl: true, gid: None },
        }
    }
}

/// The permissions in an access control list: those of the owner, the group, the mask and all other users, and those that any
/// named user or group has. Source: Linux `include/uapi/linux/posix_acl_xattr.h`.
struct NewAcl {
    owner: u32,
    group: u32,
    mask: u32,
    other: u32,
    named: u32,
}

impl NewAcl {
    /// Returns `None` if the list is not valid.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (version, entries) = bytes.split_first_chunk::<4>()?;
        let mut this = Self { owner: 0, group: 0, mask: 0o7, other: 0, named: 0 };
        for entry in entries.chunks(8) {
            let &[tag, 0, permissions, 0, _, _, _, _] = entry else { return None };
            let permissions = u32::from(permissions);
            match tag {
                0x01 => this.owner = permissions,
                0x02 | 0x08 => this.named |= permissions,
                0x04 => this.group = permissions,
                0x10 => this.mask = permissions,
                0x20 => this.other = permissions,
                _ => return None,
            }
        }
        (u32::from_le_bytes(*version) == 2).then_some(this)
    }

    /// Returns the permissions that named users and groups have.
    fn for_named(&self) -> u32 {
        self.named & self.mask
    }

    /// Returns the mode of the file without named users and groups.
    fn without_named(&self) -> u32 {
        self.owner << 6 | (self.group & self.mask) << 3 | self.other
    }
}

/// Returns `mode` with the permissions for group and others that both have.
fn for_other_groups(mode: u32) -> u32 {
    let both = mode >> 3 & mode & 0o7;
    mode & 0o700 | both << 3 | both
}

fn has_acl(path: &Path) -> bool {
    let mut value = [0; 0];
    rustix::fs::getxattr(path, ACL, &mut value[..]).is_ok_and(|len| len > 0)
}

/// Returns an attribute of an open file, or `None` if the file has none of this name.
fn attribute(file: BorrowedFd<'_>, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; ATTRIBUTE_MAX];
    let len = rustix::fs::fgetxattr(file, name, &mut value[..]).ok()?;
    value.truncate(len);
    Some(value)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn nobody_gets_a_permission_that_a_file_does_not_give() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "").unwrap();
        let limit = |mode, has_acl, is_same_group| {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let stat = rustix::fs::stat(&path).unwrap();
            let gid = if is_same_group { stat.st_gid } else { stat.st_gid + 1 };
            AccessLimit::NONE.with(&stat, has_acl, gid).mode
        };
        assert_eq!(limit(0o600, false, true), 0o600);
        assert_eq!(limit(0o640, false, true), 0o640);
        assert_eq!(limit(0o640, false, false), 0o600);
        assert_eq!(limit(0o640, true, true), 0o600);
        assert_eq!(limit(0o604, false, false), 0o600);
        assert_eq!(limit(0o664, false, false), 0o644);
        assert_eq!(limit(0o444, false, true), 0o644);
        assert_eq!(limit(0o7777, false, true), 0o666);
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let stat = rustix::fs::stat(&path).unwrap();
        let (same, other) = (AccessLimit::NONE.with(&stat, false, stat.st_gid), stat.st_gid + 1);
        assert_eq!(same.for_group_of(&stat), None);
        let other = AccessLimit::NONE.with(&stat, false, other);
        assert_eq!(other.for_group_of(&stat), Some(Mode::from_raw_mode(0o600)));
        assert_eq!(AccessLimit::of([&*dir.path().join("none")]), AccessLimit::NONE);
    }
}
