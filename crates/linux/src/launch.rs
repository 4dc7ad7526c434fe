//! Starts the kernel.
//!
//! All its resources are open files: the initial archive, the shared memory, the serial line, the disk's socket, and
//! the pipe that ends the kernel. None of them has a name on the host, so no cleanup is necessary, whichever process is
//! killed. The socket is in a file system without a mount point.
//!
//! Exception: if the host permits this user no mounts, not even in a user namespace, the socket is in a private folder,
//! which is removed before the kernel runs. A process that is killed before that leaves the folder.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use obento_env::{Random as _, SystemRandom};
use obento_host::PrivateDir;
use obento_linux_wire::registers;
use rustix::fs::{
    AtFlags, CWD, FileType, MemfdFlags, Mode, OFlags, Uid, chmodat, chownat, fstat, memfd_create, openat,
};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::process::geteuid;

use crate::area::Area;
use crate::disk::receive_all;
use crate::initrd::Initrd;
use crate::kernel::Kernel;

/// The agent, which is the guest's `init` and the warden of the kernel. The build script builds it.
static AGENT: &[u8] = include_bytes!(env!("OBENTO_LINUX_AGENT"));

/// The loops in a hundredth of a second, which the kernel would otherwise measure for a tenth of a second. A
/// longer delay does no harm, and no driver in the guest needs one.
const LOOPS_PER_JIFFY: &str = "lpj=20000000";

/// Initialisation that is skipped: access to the host's files, and slow steps that are not needed. The last
/// one takes 0.8 s to choose the RAID6 implementation, which needs three disks of a Btrfs volume, and the
/// guest has one.
const BLACKLIST: &str = "initcall_blacklist=init_hostfs,strp_dev_init,init_zswap,raid6_select_algo";

/// The user that the warden becomes if root starts it, and root may not become a user of a higher number, for example in
/// a user namespace. Other processes may run as this user.
const NOBODY: u32 = 65534;
/// The first number of users that no process of the host has. Source: systemd, docs/UIDS-GIDS.md: numbers from 2^31 on
/// are not used.
const UNUSED: u32 = 1 << 31;

/// The name of the disk's socket in its folder.
const SOCKET: &str = "disk";
/// The module that drives the disk.
const DISK_MODULE: &str = "virtio_blk";

/// The settings of a guest.
pub struct Settings<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// The modules to load.
    pub modules: &'a [&'a str],
    /// The memory in MiB.
    pub memory: u32,
}

/// A running kernel.
pub struct Guest {
    /// Ends the kernel when it is dropped.
    warden: Warden,
    /// The serial line.
    pub bell: UnixStream,
    /// The socket on which the kernel requests its disk once.
    pub disk: UnixListener,
    /// The output of the kernel.
    pub console: File,
}

impl Guest {
    /// Ends the kernel.
    pub fn end(&mut self) {
        drop(self.warden.lifeline.take());
    }

    /// The number of open files of a guest.
    pub const FILES: usize = 4;

    /// Returns its files, and the process to wait for. The owner of the files owns the guest.
    pub fn into_files(self) -> (Option<Child>, Vec<OwnedFd>) {
        let Self { mut warden, bell, disk, console } = self;
        let files = [bell.into(), disk.into(), console.into()];
        (warden.process.take(), warden.lifeline.take().into_iter().chain(files).collect())
    }

    /// Returns the guest with these files, in the order of [`into_files`](Self::into_files).
    pub fn of([lifeline, bell, disk, console]: [OwnedFd; Self::FILES]) -> Self {
        let warden = Warden { process: None, lifeline: Some(lifeline) };
        Self { warden, bell: bell.into(), disk: disk.into(), console: console.into() }
    }
}

/// The process that ends the kernel when its lifeline is cut.
struct Warden {
    process: Option<Child>,
    lifeline: Option<OwnedFd>,
}

impl Drop for Warden {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        let Some(mut process) = self.process.take() else { return };
        // A separate thread waits for the process, so that a long-lived caller does not collect zombies.
        let waiting = thread::Builder::new().name("obento-warden".to_owned());
        // Without a thread, or the right to wait, the zombie stays until this process ends.
        let _ = waiting.spawn(move || process.wait());
    }
}

/// Starts a guest that shares `area`.
pub fn launch(settings: &Settings<'_>, area: &Area) -> io::Result<Guest> {
    let agent = in_memory(c"obento-agent", AGENT)?;
    let initrd = in_memory(c"obento-initrd", &archive(settings)?)?;
    let console = File::from(memfd_create(c"obento-console", MemfdFlags::CLOEXEC)?);
    let (bell, line) = UnixStream::pair()?;
    bell.set_nonblocking(true)?;
    let (disk, socket, user) = unnamed_listener(agent.as_fd())?;
    let (cut, lifeline) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let passed = [
        agent.as_raw_fd(),
        initrd.as_raw_fd(),
        area.file().as_raw_fd(),
        line.as_raw_fd(),
        socket.as_raw_fd(),
        cut.as_raw_fd(),
    ];
    let [agent_fd, initrd_fd, area_fd, line_fd, socket_fd, cut_fd] = passed;
    let mut command = Command::new(format!("/proc/self/fd/{agent_fd}"));
    command.arg0("obento-warden").arg("warden").arg(cut_fd.to_string()).arg(user.to_string());
    command.arg(&settings.kernel.program);
    command.args(words(settings, initrd_fd, area_fd, line_fd, socket_fd));
    command.stdin(Stdio::null()).stdout(console.try_clone()?).stderr(console.try_clone()?);
    // A signal to the process group of this terminal must not end the kernel of a shell that continues.
    command.process_group(0);
    inherit(&mut command, passed);
    let warden = command.spawn()?;
    let warden = Warden { process: Some(warden), lifeline: Some(lifeline) };
    Ok(Guest { warden, bell, disk, console })
}

/// Returns the kernel's command line.
fn words(settings: &Settings<'_>, initrd: RawFd, area: RawFd, line: RawFd, socket: RawFd) -> Vec<OsString> {
    let memory = settings.memory;
    let words = [
        format!("mem={memory}M"),
        // The kernel wants a folder for its process number, and works without it.
        "uml_dir=/dev/null/".to_owned(),
        format!("initrd=/proc/self/fd/{initrd}"),
        format!("iomem=mmapper,/proc/self/fd/{area}"),
        format!("virtio_uml.device=/proc/self/fd/{socket}:2"),
        "con=null".to_owned(),
        "con0=null,fd:1".to_owned(),
        "ssl=null".to_owned(),
        format!("ssl0=fd:{line}"),
        BLACKLIST.to_owned(),
        LOOPS_PER_JIFFY.to_owned(),
    ];
    let fixed = ["quiet", "pty.legacy_count=0", "lsm=", "panic=-1", "rdinit=/init"];
    // The kernel passes variables on to its first program.
    let variable = registers::exceed_kernel().then(|| registers::BASELINE.to_owned());
    words.into_iter().chain(fixed.map(str::to_owned)).chain(variable).map(OsString::from).collect()
}

/// Returns the archive with the agent and its modules, numbered in load order.
fn archive(settings: &Settings<'_>) -> io::Result<Vec<u8>> {
    let mut archive = Initrd::new();
    archive.file("init", AGENT);
    archive.folder("modules");
    let mut paths: Vec<PathBuf> = Vec::new();
    for module in [&DISK_MODULE].into_iter().chain(settings.modules) {
        paths.extend(settings.kernel.modules_for(module)?);
    }
    let mut seen = std::collections::HashSet::new();
    paths.retain(|path| seen.insert(path.clone()));
    for (number, path) in paths.iter().enumerate() {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("module.ko");
        archive.file(&format!("modules/{number:03}-{name}"), &fs::read(path)?);
    }
    Ok(archive.finish())
}

fn in_memory(name: &std::ffi::CStr, bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file.into())
}

/// Returns a listening socket without a name, a descriptor of it to connect to through `/proc/self/fd`, and the user that
/// the warden becomes if root starts it.
fn unnamed_listener(agent: BorrowedFd<'_>) -> io::Result<(UnixListener, OwnedFd, u32)> {
    let unmounted = match geteuid().is_root() {
        true => unmounted_folder().and_then(|folder| listener_of(&folder)),
        false => listener_of_agent(agent),
    };
    match unmounted {
        Err(error) if !is_of_descriptors(&error) => named_listener(),
        result => result,
    }
}

/// Returns the folder of a new file system in memory without a mount point, which ends with its last open file.
fn unmounted_folder() -> io::Result<OwnedFd> {
    let context = fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

/// Makes the agent create the listener in a user namespace. The owner of the socket is the user of this process.
fn listener_of_agent(agent: BorrowedFd<'_>) -> io::Result<(UnixListener, OwnedFd, u32)> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new(format!("/proc/self/fd/{}", agent.as_raw_fd()));
    command.arg0("obento-listener").arg("listener").env_clear().process_group(0);
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
    inherit(&mut command, []);
    let mut process = command.spawn()?;
    // The other end of the socket is open in the agent only.
    drop(command);
    let received = receive_all(&ours, &mut [0]);
    process.wait()?;
    let files: [OwnedFd; 2] = received?.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
    let [listener, socket] = files;
    Ok((listener.into(), socket, 0))
}

/// Returns a listening socket as [`unnamed_listener`] does, which has a name until this function returns.
fn named_listener() -> io::Result<(UnixListener, OwnedFd, u32)> {
    let folders = [std::env::temp_dir(), "/dev/shm".into(), "/tmp".into()];
    let mut failed = io::Error::from(io::ErrorKind::NotFound);
    for folder in folders {
        match listener_in(&folder) {
            Ok(listener) => return Ok(listener),
            // Another folder does not help.
            Err(error) if is_of_descriptors(&error) => return Err(error),
            Err(error) => failed = error,
        }
    }
    let why = format!("no directory can contain a socket ({failed}): set TMPDIR to a writable directory");
    Err(io::Error::other(why))
}

/// Returns whether no more files can be opened, by this process or on this machine.
pub fn is_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Returns a random user that no process of the host has: a process of the same user could read the memory of the
/// guest.
fn unused_user() -> u32 {
    let [a, b, c, ..] = SystemRandom.uuid();
    UNUSED + u32::from_le_bytes([a, b, c, 0])
}

fn listener_in(folder: &Path) -> io::Result<(UnixListener, OwnedFd, u32)> {
    let private = PrivateDir::within(folder, ".obento-")?;
    let listening = listener_of(private.dir());
    let removed = private.remove();
    let listening = listening?;
    removed?;
    Ok(listening)
}

/// Listens in `dir`, in which no other user can replace the socket.
fn listener_of(dir: &impl AsFd) -> io::Result<(UnixListener, OwnedFd, u32)> {
    // The path of a socket is limited to about a hundred bytes.
    let listener = UnixListener::bind(format!("/proc/self/fd/{}/{SOCKET}", dir.as_fd().as_raw_fd()))?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let socket = openat(dir, SOCKET, flags, Mode::empty())?;
    let stat = fstat(&socket)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket || stat.st_uid != geteuid().as_raw() {
        return Err(io::Error::other("another process replaced the socket"));
    }
    let mut user = 0;
    if geteuid().is_root() {
        // The user that the warden becomes. If that is not possible, or if that user could not start the
        // kernel, the warden stays root. In its own name space, it then has only the group's rights to files
        // of that user.
        let owned = |user| chownat(&socket, "", Some(Uid::from_raw(user)), None, AtFlags::EMPTY_PATH);
        // Root without the right to change owners stays root.
        if let Some(found) = [unused_user(), NOBODY].into_iter().find(|user| owned(*user).is_ok()) {
            user = found;
            // A handle (`O_PATH`) has no other path to its own file.
            let path = format!("/proc/self/fd/{}", socket.as_raw_fd());
            chmodat(CWD, path, Mode::RWXU | Mode::RWXG, AtFlags::empty())?;
        }
    }
    Ok((listener, socket, user))
}

/// Makes the program that `command` starts inherit `passed` under their present numbers, and no other
/// descriptor of this process.
fn inherit<const N: usize>(command: &mut Command, passed: [RawFd; N]) {
    let keep = move || {
        // SAFETY: the call closes nothing now; descriptors of this process are closed in the child when it
        // executes the program.
        let marked =
            unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
        // Linux before 5.11 has no such call: descriptors without the close-on-exec flag stay open.
        debug_assert!(marked == 0 || marked == -1);
        for fd in passed {
            // SAFETY: open in the caller until the program is started, and the child has a copy of the
            // descriptors.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            fcntl_setfd(fd, FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec, the closure only makes system calls.
    unsafe { command.pre_exec(keep) };
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    /// Connects to `socket`, and checks that no directory of the host contains it.
    fn expect_nameless((listener, socket, _): &(UnixListener, OwnedFd, u32)) {
        let path = format!("/proc/self/fd/{}", socket.as_raw_fd());
        // A file system of the host would add the path of its mount point.
        assert_eq!(fs::read_link(&path).unwrap(), Path::new("/").join(SOCKET));
        let mut connection = UnixStream::connect(path).unwrap();
        listener.accept().unwrap().0.write_all(b"hello").unwrap();
        let mut text = String::new();
        connection.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
    }

    #[test]
    fn a_socket_in_a_file_system_without_a_mount_point_accepts_connections() {
        // Only root may create such a file system, and not in every container.
        if let Ok(folder) = unmounted_folder() {
            expect_nameless(&listener_of(&folder).unwrap());
        }
    }

    #[test]
    fn the_agent_creates_a_socket_without_a_mount_point_for_a_user() {
        let agent = in_memory(c"obento-agent", AGENT).unwrap();
        // Not every host permits user namespaces.
        if let Ok(listener) = listener_of_agent(agent.as_fd()) {
            expect_nameless(&listener);
        }
    }

    #[test]
    fn a_host_without_user_namespaces_has_a_socket_too() {
        let (listener, socket, _) = named_listener().unwrap();
        let _connection = UnixStream::connect(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap();
        listener.accept().unwrap();
    }
}
