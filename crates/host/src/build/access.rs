//! The permissions of a file that gets the contents of other files.

use std::path::Path;

use rustix::fs::{Mode, Stat};

/// The attribute of a file with an access control list. The group bits of such a file are the mask of the list.
const ACL: &str = "system.posix_acl_access";
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

    /// Returns the limit of the files with these paths. A path without a file sets no limit.
    pub fn of<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Self {
        let gid = rustix::process::getegid().as_raw();
        paths.into_iter().fold(Self::NONE, |limit, path| match rustix::fs::stat(path) {
            Ok(stat) => limit.with(&stat, has_acl(path), gid),
            Err(_) => limit,
        })
    }

    /// Adds the limit of a file. `gid` is the group of the new file.
    fn with(self, stat: &Stat, has_acl: bool, gid: u32) -> Self {
        let is_same_group = stat.st_gid == gid && !has_acl;
        let mode = if is_same_group { stat.st_mode } else { for_other_groups(stat.st_mode) };
        Self { mode: self.mode & (mode | 0o600), gid: Some(gid) }
    }

    /// Returns the mode with which a file is created.
    pub(super) fn mode(self) -> Mode {
        Mode::from_raw_mode(self.mode)
    }

    /// Returns the mode of a new file whose group is another one than that of the process, or `None` if it need not
    /// change. A directory with the set-group-ID bit passes its group to new files.
    pub(super) fn for_group_of(self, stat: &Stat) -> Option<Mode> {
        self.gid.filter(|gid| *gid != stat.st_gid)?;
        Some(Mode::from_raw_mode(for_other_groups(stat.st_mode & ALL)))
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
