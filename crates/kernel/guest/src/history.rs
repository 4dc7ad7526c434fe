//! Changes by several processes on a volume whose history is recorded. The command reads the history from the image later.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use rustix::fs::XattrFlags;
use rustix::mount::MountFlags;

use crate::machine::{Machine, umount};
use crate::model;

/// A process: the name of its program, its user, and what it does.
type Process = (&'static str, u32, fn() -> Result<()>);

const PROCESSES: &[Process] = &[("writer", 1000, write), ("copier", 1001, copy), ("mover", 0, change)];

/// Runs each process, and prints its process ID.
pub fn run(machine: &Machine) -> Result<()> {
    machine.mount(0, "/m", MountFlags::empty(), "provenance")?;
    ensure!(fs::read_to_string("/proc/mounts")?.contains(",provenance"), "the option is not shown");
    fs::set_permissions("/m", Permissions::from_mode(0o777))?;
    for &(name, user, act) in PROCESSES {
        let pid = in_process(name, user, act).with_context(|| name)?;
        println!("history: {name} {pid} {user}");
    }
    hidden()?;
    umount("/m")?;
    machine.mount(0, "/m", MountFlags::empty(), "show_provenance")?;
    shown()?;
    umount("/m")
}

/// Runs `act` in a process of its own.
fn in_process(name: &str, user: u32, act: fn() -> Result<()>) -> Result<i32> {
    // SAFETY: this program has one thread, so the child may do anything.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()).context("fork"),
        0 => {
            let outcome = become_process(name, user).and_then(|()| act());
            if let Err(error) = &outcome {
                println!("{name}: {error:#}");
            }
            std::process::exit(outcome.is_err().into());
        }
        child => {
            let mut status = 0;
            // SAFETY: the reference is valid for writing.
            let got = unsafe { libc::waitpid(child, &mut status, 0) };
            ensure!(got == child && status == 0, "the process failed");
            Ok(child)
        }
    }
}

fn become_process(name: &str, user: u32) -> Result<()> {
    fs::write("/proc/self/comm", name)?;
    // SAFETY: the calls have no pointers.
    let set = unsafe { libc::setresgid(user, user, user) | libc::setresuid(user, user, user) };
    ensure!(set == 0, "setresuid: {}", std::io::Error::last_os_error());
    Ok(())
}

fn write() -> Result<()> {
    let mut file = File::create("/m/source")?;
    file.write_all(&[1; 6000])?;
    file.write_all(&[2; 4000])?;
    Ok(file.sync_all()?)
}

/// Copies by read(2) and write(2), and then the first page again through a mapping.
fn copy() -> Result<()> {
    let mut bytes = Vec::new();
    File::open("/m/source")?.read_to_end(&mut bytes)?;
    let to = OpenOptions::new().read(true).write(true).create_new(true).open("/m/copy")?;
    to.write_all_at(&bytes, 0)?;
    to.sync_all()?;
    model::store(&to, bytes.len(), 100, &[3; 100])
}

fn change() -> Result<()> {
    fs::rename("/m/copy", "/m/moved")?;
    fs::set_permissions("/m/moved", Permissions::from_mode(0o600))?;
    rustix::fs::setxattr("/m/moved", "user.note", b"secret", XattrFlags::CREATE)?;
    fs::write("/m/brief", "")?;
    fs::remove_file("/m/brief")?;
    File::options().write(true).open("/m/source")?.set_len(5000)?;
    Ok(())
}

fn hidden() -> Result<()> {
    ensure!(!Path::new("/m/.obento-prov").exists(), "the directory of the log is visible");
    let mut names = fs::read_dir("/m")?.map(|entry| Ok(entry?.file_name())).collect::<Result<Vec<_>>>()?;
    names.sort();
    ensure!(names == ["lost+found", "moved", "source"], "listed: {names:?}");
    let error = fs::create_dir("/m/.obento-prov").map_err(|error| error.raw_os_error());
    ensure!(error == Err(Some(libc::EEXIST)), "a user created the directory of the log: {error:?}");
    Ok(())
}

fn shown() -> Result<()> {
    let names =
        fs::read_dir("/m/.obento-prov")?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let first = names.first().context("the log has no files")?;
    ensure!(fs::read(first)?.len() > 4096, "the log is empty");
    let error = fs::remove_file(first).map_err(|error| error.raw_os_error());
    ensure!(error == Err(Some(libc::EPERM)), "a user removed the log: {error:?}");
    Ok(())
}

/// Makes as many changes as the log has room for, and half as many more: old parts are removed, and nothing fails.
pub fn long(machine: &Machine) -> Result<()> {
    machine.mount(0, "/m", MountFlags::empty(), "provenance")?;
    let name = |number: u32| format!("/m/{number:0200}");
    fs::write(name(0), "")?;
    for number in 0..16_000 {
        fs::rename(name(number), name(number + 1))?;
        if number % 2000 == 0 {
            rustix::fs::sync();
        }
    }
    umount("/m")
}
