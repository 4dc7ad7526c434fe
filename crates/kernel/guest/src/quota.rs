//! Changes of the usage of users, groups and projects on a volume with quota files. `e2fsck` compares the quota files
//! with the inodes afterwards.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{OpenOptionsExt as _, chown, symlink};
use std::path::Path;
use std::thread;

use anyhow::{Context as _, Result, ensure};
use rustix::fs::XattrFlags;
use rustix::mount::MountFlags;

use crate::machine::{Machine, umount};

/// Number of owners that get their first file.
const OWNERS: u32 = 300;
/// Number of threads that change files at once.
const THREADS: u32 = 4;

/// Gives files to many owners, and changes and removes some of them. Linux reports that limits are not enforced.
pub fn run(machine: &Machine) -> Result<()> {
    machine.mount(0, "/m", MountFlags::empty(), machine.value("options"))?;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|number| scope.spawn(move || owners(number))).collect();
        threads
            .into_iter()
            .try_for_each(|one| one.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?)
    })?;
    // The entries of these owners are found again after the next mount.
    umount("/m")?;
    machine.mount(0, "/m", MountFlags::empty(), machine.value("options"))?;
    chown("/m/0/moved", Some(OWNERS), Some(7))?;
    ensure!(!is_enforced()?, "quotactl(2) reports that limits are enforced");
    umount("/m")?;
    let refused = machine.mount(0, "/m", MountFlags::empty(), "usrquota");
    ensure!(refused.is_err(), "an option for limits was accepted");
    Ok(())
}

fn owners(number: u32) -> Result<()> {
    let root = Path::new("/m").join(number.to_string());
    fs::create_dir(&root)?;
    for owner in (number..OWNERS).step_by(THREADS as usize) {
        let path = root.join(format!("file-{owner}"));
        fs::write(&path, vec![1; 700 * owner as usize])?;
        chown(&path, Some(owner * 1000), Some(owner))?;
        set_project(&path, owner / 3)?;
        match owner % 8 {
            0 => fs::remove_file(&path)?,
            1 => OpenOptions::new().write(true).open(&path)?.set_len(100)?,
            2 => rustix::fs::setxattr(&path, "user.large", &[1; 600], XattrFlags::empty())?,
            3 => symlink("t".repeat(200), root.join(format!("symlink-{owner}")))?,
            4 => fs::rename(&path, root.join("moved"))?,
            5 => fs::hard_link(&path, root.join(format!("again-{owner}")))?,
            6 => fs::create_dir(root.join(format!("dir-{owner}")))?,
            _ => OpenOptions::new().append(true).open(&path)?.write_all(&[2; 50_000])?,
        }
    }
    let mut nameless = OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(&root)?;
    nameless.write_all(&[3; 100_000])?;
    std::os::unix::fs::fchown(&nameless, Some(55), Some(66))?;
    rustix::fs::sync();
    Ok(())
}

/// Sets the project of a file. Source: include/uapi/linux/fs.h, `struct fsxattr`, whose fourth word is the project.
fn set_project(path: &Path, project: u32) -> Result<()> {
    let file = File::open(path)?;
    let mut attributes = [0_u32; 7];
    // SAFETY: FS_IOC_FSGETXATTR writes 28 bytes, and FS_IOC_FSSETXATTR reads as many.
    let done = unsafe {
        let got = libc::ioctl(file.as_raw_fd(), 0x801c_581f, attributes.as_mut_ptr());
        attributes[3] = project;
        got | libc::ioctl(file.as_raw_fd(), 0x401c_5820, attributes.as_mut_ptr())
    };
    ensure!(done == 0, "the project of {}: {}", path.display(), std::io::Error::last_os_error());
    Ok(())
}

/// Returns whether quotactl(2) reports limits of users.
fn is_enforced() -> Result<bool> {
    /// `QCMD(Q_GETFMT, USRQUOTA)`.
    const GET_FORMAT: libc::c_int = 0x0080_0004 << 8;
    let device = std::ffi::CString::new(crate::machine::disk(0)).context("a NUL")?;
    let mut format = 0_u32;
    // SAFETY: the call writes four bytes.
    let got = unsafe { libc::quotactl(GET_FORMAT, device.as_ptr(), 0, (&raw mut format).cast()) };
    Ok(got == 0)
}
