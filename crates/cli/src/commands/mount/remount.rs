//! `-o remount`: changes the options of a mount that exists.
//!
//! The kernel changes what it enforces itself (`ro`, `nosuid`, `nodev`, `noexec`), and the server is asked to change when it updates
//! access times.

use std::os::unix::ffi::OsStrExt;

use obento_fuse::options::{AccessTimes, MountOptions, OptionError, ReadWrite};
use obento_fuse::{MountError, MountPlace, MountPoint};
use rustix::io::Errno;

use super::args::Args;
use super::own::mount_at;
use crate::cause::Cause;
use crate::report::{LIST_MOUNTS, NOT_A_MOUNT, Report};

const ONLY_ROOT: &str = "only root can change the options of a mount";

/// Changes the options of a mount.
pub fn run(args: &Args) -> Result<(), Report> {
    let cannot = |cause: &dyn Cause| {
        Report::on(
            "cannot change the options of the mount at",
            args.directory().as_os_str().as_bytes(),
            cause,
        )
    };
    let mount = mount_at(args.directory()).map_err(|error| cannot(&error))?;
    let mount = mount.ok_or_else(|| cannot(&NOT_A_MOUNT).help(LIST_MOUNTS))?;
    // The flags of a mount of another user protect this user from the programs on it.
    if let Some(owner) = mount.owner().filter(|owner| *owner != rustix::process::getuid().as_raw()) {
        return Err(cannot(&format!("the mount belongs to user {owner}")));
    }
    let mut new = options(args, &mount).map_err(|error| cannot(&error))?;
    // From here on, everything refers to this mount, whatever is at its path.
    let root =
        MountPlace::open(mount.clone()).and_then(|place| place.root()).map_err(|error| cannot(&error))?;
    let readable = root.to_readable().map_err(|error| cannot(&error))?;
    let set_times = |atime: Option<AccessTimes>| match atime.map(|atime| root.set_access_times(atime)) {
        None | Some(Ok(())) => Ok(()),
        Some(Err(Errno::INVAL)) => {
            Err(cannot(&"the server cannot change to these access times").help("unmount and mount again"))
        }
        Some(Err(Errno::PERM)) => Err(cannot(&ONLY_ROOT)),
        Some(Err(error)) => Err(cannot(&std::io::Error::from(error))),
    };
    // While the mount is writable: a read-only one accepts no attribute, and updates no times.
    let is_writable = !mount.options.split(',').any(|option| option == "ro");
    set_times(new.chosen_atime.filter(|_| is_writable))?;
    root.remount(&new).map_err(|error| match error {
        MountError::Refused(Errno::PERM) => cannot(&ONLY_ROOT),
        MountError::Busy => cannot(&"files are open for writing").help("close these files first"),
        error => cannot(&error),
    })?;
    match new.access {
        Some(ReadWrite::Read) => readable.sync_all().map_err(|error| cannot(&error)),
        _ if root.can_be_written() => set_times(new.chosen_atime.filter(|_| !is_writable)),
        _ => {
            // The kernel would accept writes that the server refuses.
            new.access = Some(ReadWrite::Read);
            let _ = root.remount(&new);
            Err(cannot(&"its server has opened the image read-only").help("unmount and mount again"))
        }
    }
}

/// Returns the options of the mount, with those of the command line applied.
fn options(args: &Args, mount: &MountPoint) -> Result<MountOptions, OptionError> {
    let mut options = MountOptions::default();
    options.take_known(&format!("remount,{},{}", mount.flags, mount.options))?;
    options.chosen_atime = None;
    args.options
        .iter()
        .try_for_each(|list| if args.sloppy { options.take_known(list) } else { options.take(list) })?;
    if args.read_only {
        options.access = Some(ReadWrite::Read);
    }
    Ok(options)
}
