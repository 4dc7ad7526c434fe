//! The mounts that this program serves.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use obento::host::{HostDir, HostError, path_of_open};
use obento_fuse::{MountPoint, mount_id, mount_of, mounts_of_type};
use rustix::fs::{Mode, OFlags};

/// The type of mounts that `obento mount` creates.
pub const FS_TYPE: &str = "fuse.obento";

/// Returns all mounts of `obento mount`.
pub fn mounts() -> Vec<MountPoint> {
    mounts_of_type(FS_TYPE)
}

/// Returns the mount at `directory`, whatever its type and even if its server does not respond. Links of other users are not
/// followed, as for each path that a command changes.
///
/// # Errors
///
/// The directory cannot be opened, or a link of another user is on its path.
pub fn find(directory: &Path) -> Result<Option<MountPoint>, HostError> {
    // Without a dot at the end, which would be looked up in the mount.
    let directory = &directory.components().collect::<PathBuf>();
    let failed = |errno| HostError::system("open", directory, errno);
    let open = |at: BorrowedFd<'_>, name: &[u8]| {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(at, name, flags, Mode::empty()).map_err(failed)
    };
    let mounted = |root: OwnedFd, above: BorrowedFd<'_>| {
        // The list of mounts may lack that of the directory, for example in a chroot.
        let is_root = mount_id(&root).ok()? != mount_id(above).ok()?;
        mount_of(root).ok().filter(|_| is_root)
    };
    if let Ok((parent, name)) = HostDir::open_parent(directory)
        && let Some(mount) = mounted(open(parent.as_fd(), name.as_bytes())?, parent.as_fd())
    {
        return Ok(Some(mount));
    }
    // The last name is a link, or not a name, or nothing is mounted.
    let root = HostDir::open(directory)?;
    let above = open(root.as_fd(), b"..")?;
    Ok(mounted(open(root.as_fd(), b".")?, above.as_fd()))
}

/// Returns the mount of `obento mount` at `directory`, if there is one. Fails as [`find`] does.
pub fn mount_at(directory: &Path) -> Result<Option<MountPoint>, HostError> {
    Ok(find(directory)?.filter(|mount| mount.fs_type == FS_TYPE))
}

/// Returns the mounts that `mount --all` created below `directory`: those of `IMAGE@N` at the folder `N`. Fails as
/// [`find`] does.
pub fn mounts_below(directory: &Path) -> Result<Vec<MountPoint>, HostError> {
    let opened = HostDir::open(directory)?;
    let path = path_of_open(opened.as_fd()).read_link();
    let directory = path.map_err(|error| HostError::of_io("find", directory, &error))?;
    let mut mounts = mounts();
    mounts.retain(|mount| {
        let name = mount.path.file_name().unwrap_or_default();
        let end = [b"@", name.as_bytes()].concat();
        mount.path.parent() == Some(directory.as_path())
            && name.as_bytes().iter().all(u8::is_ascii_digit)
            && mount.source.as_os_str().as_bytes().ends_with(&end)
    });
    mounts.sort_by_key(|mount| mount.path.clone());
    Ok(mounts)
}
