//! A separate root directory for the kernel: its program, its libraries, a `/proc` with its own processes, and a folder for its memory.
//!
//! A new mount name space contains all mounts of the host. If they stayed there, a file system that the host unmounts
//! would remain mounted while the kernel runs, with its disk in use. The sockets of the host's services would also be
//! reachable. So they are unmounted, as containers do. Source: mount_namespaces(7), pivot_root(2).
//!
//! Trap: mounts that were copied into the name space of a user are locked, and can only be removed as a whole. A folder with
//! mounts below it is shown with all of them or not at all.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change, unmount,
};
use rustix::process::{Pid, chdir, getpid, pivot_root};
use rustix::thread::UnshareFlags;

use super::jail::{FOLDERS, READ, holds_programs};

/// The folder of the processes.
const PROCESSES: &str = "/proc";
/// An empty folder.
const NOTHING: &str = "/dev/null";
/// The folder with the shell of a program that is a script; usually a link to `/usr/bin`.
const SHELLS: &str = "/bin";
/// The folder of its memory; no program is below a folder with this name.
const MEMORY: &str = "/.obento-memory";
/// The folder with the sockets of the host's services.
const SERVICES: &str = "/run";

const FLAGS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

/// Returns whether mounts from here on are visible to this process only. Otherwise nothing may be mounted.
pub fn own_mounts() -> bool {
    // SAFETY: the process has one thread, and no descriptors are unshared.
    let apart = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) };
    // An unmount by the host takes effect here too, if the host propagates it.
    let below = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    apart.is_ok() && mount_change(c"/", below).is_ok() && chdir("/").is_ok()
}

/// Creates the root for the kernel at `program`, and returns the folder for files of `size` bytes, which is invisible
/// to other processes. If the host does not permit a new root, only that folder is mounted, and the services are
/// hidden. An example is a current root that is not a mount. Returns `None` if neither is possible. Fails if the
/// process has left the host's root and cannot continue.
pub fn own_place(program: &Path, size: u64) -> io::Result<Option<PathBuf>> {
    let Ok(program) = program.canonicalize() else { return Ok(None) };
    // Some are links to others.
    let mut folders = FOLDERS.iter().filter_map(|folder| fs::canonicalize(folder).ok());
    let Some(place) = folders.find(|folder| folder.is_dir() && !program.starts_with(folder)) else {
        return Ok(None);
    };
    if make_root(&place, &program, size).is_err() {
        return Ok(own_folder(place, &program, size).ok());
    }
    // From here on the new root covers the host's root at the same place.
    unmount(".", UnmountFlags::DETACH)?;
    chdir("/")?;
    Ok(Some(MEMORY.into()))
}

/// After an error, nothing was changed.
fn make_root(place: &Path, program: &Path, size: u64) -> io::Result<()> {
    mount(c"none", place, c"tmpfs", FLAGS, c"mode=0755,size=64k")?;
    fill(place, program, size).inspect_err(|_| {
        let _ = chdir("/");
        let _ = unmount(place, UnmountFlags::DETACH);
    })
}

fn fill(place: &Path, program: &Path, size: u64) -> io::Result<()> {
    for path in READ.into_iter().chain([SHELLS, NOTHING]) {
        if path != PROCESSES || show_processes(place).is_err() {
            show(path.as_ref(), place)?;
        }
    }
    fs::symlink_metadata(program)?;
    show(program, place)?;
    let memory = within(place, MEMORY.as_ref())?;
    fs::create_dir(&memory)?;
    mount_memory(&memory, size)?;
    chdir(place)?;
    Ok(pivot_root(".", ".")?)
}

/// Mounts `place` as the folder, without a separate root.
fn own_folder(place: PathBuf, program: &Path, size: u64) -> io::Result<PathBuf> {
    mount_memory(&place, size)?;
    if !program.starts_with(SERVICES) && !place.starts_with(SERVICES) {
        // If this is not possible, Landlock and the rights of the user remain.
        let _ = mount(c"none", SERVICES, c"tmpfs", FLAGS, c"mode=0555,size=4096");
    }
    Ok(place)
}

/// Mounts a `/proc` of the process name space whose first process this is, so that the kernel sees no process of the host.
/// No `/proc` is mounted after these errors. The name space does not exist, or the host hides parts of its own `/proc`,
/// which a new one would show.
fn show_processes(place: &Path) -> io::Result<()> {
    if getpid() != Pid::INIT {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let inner = within(place, PROCESSES.as_ref())?;
    fs::create_dir(&inner)?;
    mount(c"proc", &inner, c"proc", FLAGS | MountFlags::NOEXEC, c"").inspect_err(|_| {
        let _ = fs::remove_dir(&inner);
    })?;
    Ok(())
}

fn mount_memory(folder: &Path, size: u64) -> io::Result<()> {
    let options = CString::new(format!("mode=0700,size={size}"))?;
    mount(c"none", folder, c"tmpfs", FLAGS, options.as_c_str())?;
    if holds_programs(folder) { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Shows `path` in the new root at `place`.
fn show(path: &Path, place: &Path) -> io::Result<()> {
    let inner = within(place, path)?;
    let found = match fs::symlink_metadata(path) {
        // The host has no such path.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if fs::symlink_metadata(&inner).is_ok() {
        // The path is below one that is shown already.
        return Ok(());
    }
    fs::create_dir_all(inner.parent().unwrap_or(place))?;
    if found.is_symlink() {
        return symlink(fs::read_link(path)?, inner);
    }
    if found.is_dir() {
        fs::create_dir(&inner)?;
    } else {
        File::create(&inner)?;
    }
    Ok(mount_bind_recursive(path, inner)?)
}

/// Returns the path of `path` in the root at `place`. Fails if `path` is not absolute.
fn within(place: &Path, path: &Path) -> io::Result<PathBuf> {
    path.strip_prefix("/").map(|path| place.join(path)).map_err(|_| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_at_the_same_place_in_the_new_root() {
        assert_eq!(within("/new".as_ref(), "/usr/bin".as_ref()).unwrap(), Path::new("/new/usr/bin"));
        assert!(within("/new".as_ref(), "bin".as_ref()).is_err());
    }

    #[test]
    fn a_link_is_shown_as_a_link_and_paths_that_the_host_lacks_are_omitted() {
        let folder = tempfile::tempdir().unwrap();
        let (host, place) = (folder.path().join("host"), folder.path().join("new"));
        fs::create_dir(&host).unwrap();
        symlink("usr/lib", host.join("lib")).unwrap();
        for name in ["lib", "lib", "none"] {
            show(&host.join(name), &place).unwrap();
        }
        let shown = within(&place, &host.join("lib")).unwrap();
        assert_eq!(fs::read_link(shown).unwrap(), Path::new("usr/lib"));
        assert!(fs::symlink_metadata(within(&place, &host.join("none")).unwrap()).is_err());
    }
}
