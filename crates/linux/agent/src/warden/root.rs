//! A root of the kernel's own: its program, its libraries, a `/proc` with its own processes and a folder for its memory.
//!
//! A name space of mounts begins with all of the host's. Left there, a file system that the host unmounts would stay mounted in it for as long as the
//! kernel runs, with its disk in use; and services of the host would have sockets there. So they are let go of, in the way of containers.
//! Source: mount_namespaces(7), pivot_root(2).
//!
//! Trap: what a user's own name space copied is locked, and can be left as a whole only; a folder with mounts below it is shown with them or not at all.

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

/// Where processes are seen.
const PROCESSES: &str = "/proc";
/// Where nothing is.
const NOTHING: &str = "/dev/null";
/// Where a program that is a script has its shell; a link to `/usr/bin` mostly.
const SHELLS: &str = "/bin";
/// Where its memory lies then; below a folder of this name lies no program.
const MEMORY: &str = "/.obento-memory";
/// Where services of the host listen.
const SERVICES: &str = "/run";

const FLAGS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

/// Whether what is mounted from here on is seen here alone. Nothing may be mounted otherwise.
pub fn own_mounts() -> bool {
    // SAFETY: there is one thread, and no descriptors are unshared.
    let apart = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) };
    // What the host unmounts goes here, too, where the host has it so.
    let below = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    apart.is_ok() && mount_change(c"/", below).is_ok() && chdir("/").is_ok()
}

/// Makes the root, for the kernel at `program`, and answers the folder for files of `size` bytes, which nobody else sees. Where the host
/// does not let there be a root, such as in one that is no mount, it has that folder alone, and no services; `None` where it has neither.
/// Errors: the process has left the host's root and cannot go on.
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
    // From here on the process sees nothing else: the host's root lies over its own, at the same place.
    unmount(".", UnmountFlags::DETACH)?;
    chdir("/")?;
    Ok(Some(MEMORY.into()))
}

/// Errors: everything is where it was.
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

/// `place` as the folder, where there is no root of its own.
fn own_folder(place: PathBuf, program: &Path, size: u64) -> io::Result<PathBuf> {
    mount_memory(&place, size)?;
    if !program.starts_with(SERVICES) && !place.starts_with(SERVICES) {
        // Where it cannot be, Landlock and the rights of the user are left.
        let _ = mount(c"none", SERVICES, c"tmpfs", FLAGS, c"mode=0555,size=4096");
    }
    Ok(place)
}

/// Mounts a `/proc` of the name space of processes that this is the first of, so that the kernel sees none of the host's. Errors: there is no such
/// name space, or the host hides parts of its own `/proc`, which a new one would show; then nothing is there.
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

/// Has `path` in the new root at `place` what it is here.
fn show(path: &Path, place: &Path) -> io::Result<()> {
    let inner = within(place, path)?;
    let found = match fs::symlink_metadata(path) {
        // The host does without.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if fs::symlink_metadata(&inner).is_ok() {
        // Below one that was shown.
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

/// Where `path` is in the root at `place`. Errors: it is not absolute.
fn within(place: &Path, path: &Path) -> io::Result<PathBuf> {
    path.strip_prefix("/").map(|path| place.join(path)).map_err(|_| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_lies_in_the_new_root_where_it_lay_in_the_old_one() {
        assert_eq!(within("/new".as_ref(), "/usr/bin".as_ref()).unwrap(), Path::new("/new/usr/bin"));
        assert!(within("/new".as_ref(), "bin".as_ref()).is_err());
    }

    #[test]
    fn a_link_is_shown_as_one_and_what_the_host_lacks_is_left_out() {
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
