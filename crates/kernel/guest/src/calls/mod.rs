//! The results of calls on two volumes, one of the type under test and one of the kernel's own ext4, in the same boot.
//!
//! Each call adds a line with its result to a log. Both logs must be equal. Results that legitimately differ, such as
//! the position of blocks, are not part of the log.

mod names;
mod owners;
mod space;

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::thread;

use anyhow::{Result, ensure};
use rustix::mount::MountFlags;

use crate::machine::{Machine, mount_as, umount};

/// A user who owns some of the files, a group of that user, and another group.
const USER: u32 = 1000;
const GROUP: u32 = 2000;
const OTHER: u32 = 3000;

/// Runs all calls on disk 0 and on disk 1.
pub fn equal_the_kernels_own(machine: &Machine) -> Result<()> {
    machine.mount(0, "/m", MountFlags::empty(), "")?;
    mount_as("ext4", 1, "/n", MountFlags::empty(), "")?;
    // SAFETY: the call has no memory.
    unsafe { libc::umask(0) };
    let logs = ["/m", "/n"].map(|root| {
        let mut log = Log { root: root.into(), lines: Vec::new() };
        owners::all(&mut log).map(|()| {
            names::all(&mut log);
            space::all(&mut log);
            log.lines
        })
    });
    umount("/m")?;
    umount("/n")?;
    let [ours, theirs] = logs;
    compare(&ours?, &theirs?)
}

/// Fails if the results differ.
pub fn compare(ours: &[String], theirs: &[String]) -> Result<()> {
    println!("{} results", theirs.len());
    let differences: Vec<String> = (ours.iter().zip(theirs))
        .filter(|(ours, theirs)| ours != theirs)
        .map(|(ours, theirs)| format!("{ours}; the kernel's own ext4: {theirs}"))
        .collect();
    differences.iter().for_each(|line| println!("DIFFERENT {line}"));
    ensure!(ours.len() == theirs.len(), "{} results, and {} of the kernel's own", ours.len(), theirs.len());
    ensure!(differences.is_empty(), "{} results differ", differences.len());
    Ok(())
}

/// The results of calls below a folder.
pub struct Log {
    pub root: PathBuf,
    pub lines: Vec<String>,
}

impl Log {
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn c_path(&self, name: &str) -> CString {
        let path = self.path(name).into_os_string().into_encoded_bytes();
        CString::new(path).expect("a name without NUL")
    }

    pub fn add(&mut self, what: &str, result: impl std::fmt::Display) {
        self.lines.push(format!("{what}: {result}"));
    }

    /// Adds the result of a call of libc.
    fn call(&mut self, what: &str, result: i64) {
        let shown = if result < 0 { error(&io::Error::last_os_error()) } else { "ok".into() };
        self.add(what, shown);
    }

    /// Adds the result of a call of std.
    pub fn result<T>(&mut self, what: &str, result: io::Result<T>) {
        let shown = result.map_or_else(|failed| error(&failed), |_| "ok".into());
        self.add(what, shown);
    }

    /// Adds the type, the mode, the owner and the device of a file.
    fn attributes(&mut self, name: &str) {
        let shown = match fs::symlink_metadata(self.path(name)) {
            Ok(stat) => format!(
                "{:o} {}:{} links {} device {:x} size {}",
                stat.mode(),
                stat.uid(),
                stat.gid(),
                stat.nlink(),
                stat.rdev(),
                if stat.is_dir() { 0 } else { stat.size() }
            ),
            Err(failed) => error(&failed),
        };
        self.add(name, shown);
    }

    fn chmod(&mut self, name: &str, mode: u32) {
        let path = self.c_path(name);
        // SAFETY: the path ends with NUL.
        let result = unsafe { libc::chmod(path.as_ptr(), mode) };
        self.call(&format!("chmod {mode:o} {name}"), result.into());
        self.attributes(name);
    }

    fn chown(&mut self, name: &str, uid: u32, gid: u32) {
        let path = self.c_path(name);
        // SAFETY: the path ends with NUL.
        let result = unsafe { libc::lchown(path.as_ptr(), uid, gid) };
        self.call(&format!("lchown {uid}:{gid} {name}"), result.into());
        self.attributes(name);
    }

    fn mknod(&mut self, name: &str, mode: u32, device: u64) {
        let path = self.c_path(name);
        // SAFETY: the path ends with NUL.
        let result = unsafe { libc::mknod(path.as_ptr(), mode, device) };
        self.call(&format!("mknod {name} {mode:o} {device:x}"), result.into());
        self.attributes(name);
    }

    fn utimes(&mut self, name: &str, times: [(i64, i64); 2]) {
        let path = self.c_path(name);
        let values = times.map(|(tv_sec, tv_nsec)| libc::timespec { tv_sec, tv_nsec });
        // SAFETY: the path ends with NUL, and there are two times.
        let result = unsafe {
            libc::utimensat(libc::AT_FDCWD, path.as_ptr(), values.as_ptr(), libc::AT_SYMLINK_NOFOLLOW)
        };
        self.call(&format!("utimensat {times:?} {name}"), result.into());
    }

    /// Adds the times of a file.
    fn times(&mut self, name: &str) {
        let shown = match fs::symlink_metadata(self.path(name)) {
            Ok(stat) => {
                format!("{}.{} {}.{}", stat.atime(), stat.atime_nsec(), stat.mtime(), stat.mtime_nsec())
            }
            Err(failed) => error(&failed),
        };
        self.add(&format!("times of {name}"), shown);
    }
}

/// The name of an error number of the kernel.
fn error(error: &io::Error) -> String {
    format!("error {}", error.raw_os_error().unwrap_or(0))
}

/// Runs `act` as another user, who is in the group [`GROUP`] only. Linux has the IDs of each thread.
fn as_user(uid: u32, act: impl FnOnce() + Send) -> Result<()> {
    thread::scope(|scope| {
        let done = scope.spawn(|| {
            let (user, group) = (i64::from(uid), i64::from(GROUP));
            // SAFETY: the calls affect this thread only.
            let changed = unsafe {
                libc::syscall(libc::SYS_setgroups, 0_i64, 0_i64) == 0
                    && libc::syscall(libc::SYS_setresgid, group, group, group) == 0
                    && libc::syscall(libc::SYS_setresuid, user, user, user) == 0
            };
            if changed {
                act();
            }
            changed
        });
        ensure!(done.join().is_ok_and(|changed| changed), "the thread cannot become user {uid}");
        Ok(())
    })
}
