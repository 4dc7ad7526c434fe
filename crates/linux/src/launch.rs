//! Starting the kernel.
//!
//! Everything it gets is an open file: the archive it starts from, the memory it shares with us, its serial line, the socket of
//! its disk and the pipe that tells it to end. Nothing of it has a name on the host but the socket, which loses its own before
//! the kernel runs; so there is nothing to clean up, whatever is killed.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use obento_env::{Random as _, SystemRandom};
use rustix::fs::{
    AtFlags, CWD, MemfdFlags, Mode, OFlags, Uid, chmodat, chownat, memfd_create, openat, unlinkat,
};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::geteuid;

use crate::area::Area;
use crate::initrd::Initrd;
use crate::kernel::Kernel;

/// The agent, which is the guest's `init` and the warden of the kernel: built by the build script.
static AGENT: &[u8] = include_bytes!(env!("OBENTO_LINUX_AGENT"));

/// Loops that pass in a hundredth of a second, as the kernel would measure in a tenth of one: a delay that is too long hurts
/// nobody, and nothing here asks for any.
const LOOPS_PER_JIFFY: &str = "lpj=20000000";

/// What is left out of the start: a way into the host's files, and things that take time and that nobody uses. The last takes 0.8 s
/// to find out how RAID6 is done best, which takes three disks of a Btrfs, and there is one.
const BLACKLIST: &str = "initcall_blacklist=init_hostfs,strp_dev_init,init_zswap,raid6_select_algo";

/// The user whom a warden becomes that root starts (`warden.rs` of the agent).
const NOBODY: u32 = 65534;

/// What finds the disk.
const DISK_MODULE: &str = "virtio_blk";

/// What a guest is started with.
pub struct Settings<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// The modules it loads.
    pub modules: &'a [&'a str],
    /// Its memory in MiB.
    pub memory: u32,
}

/// A kernel that runs.
pub struct Guest {
    /// What ends it.
    warden: Warden,
    /// Its serial line.
    pub bell: UnixStream,
    /// The socket where it will ask for its disk, once.
    pub disk: UnixListener,
    /// What it prints.
    pub console: File,
}

impl Guest {
    /// Ends it.
    pub fn end(&mut self) {
        drop(self.warden.lifeline.take());
    }

    /// How many files it is.
    pub const FILES: usize = 4;

    /// Its files, and the process to wait for: whoever has them has the guest.
    pub fn into_files(self) -> (Option<Child>, Vec<OwnedFd>) {
        let Self { mut warden, bell, disk, console } = self;
        let files = [bell.into(), disk.into(), console.into()];
        (warden.process.take(), warden.lifeline.take().into_iter().chain(files).collect())
    }

    /// The guest that has these files, in the order of [`into_files`](Self::into_files).
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
        // Aside, because nobody has to wait for that: a process that lives on is not to keep the entries of those that ended.
        let waiting = thread::Builder::new().name("obento-warden".to_owned());
        // Without a thread, or the right to wait, the entry stays until this process ends.
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
    let (disk, socket) = unnamed_listener()?;
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
    command.arg0("obento-warden").arg("warden").arg(cut_fd.to_string()).arg(&settings.kernel.program);
    command.args(words(settings, initrd_fd, area_fd, line_fd, socket_fd));
    command.stdin(Stdio::null()).stdout(console.try_clone()?).stderr(console.try_clone()?);
    // What ends a program of this terminal is not for the kernel of a shell that goes on.
    command.process_group(0);
    inherit(&mut command, passed);
    let warden = command.spawn()?;
    let warden = Warden { process: Some(warden), lifeline: Some(lifeline) };
    Ok(Guest { warden, bell, disk, console })
}

/// The kernel's command line.
fn words(settings: &Settings<'_>, initrd: RawFd, area: RawFd, line: RawFd, socket: RawFd) -> Vec<OsString> {
    let memory = settings.memory;
    let words = [
        format!("mem={memory}M"),
        // It wants a folder for its process number, which it need not get.
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
    words.into_iter().chain(fixed.map(str::to_owned)).map(OsString::from).collect()
}

/// The archive with the agent and its modules, numbered in their order.
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

/// A socket that listens and has no name, and a descriptor of it to connect to by `/proc/self/fd`.
fn unnamed_listener() -> io::Result<(UnixListener, OwnedFd)> {
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
    let why = format!("no folder takes a socket ({failed}): set TMPDIR to one that can be written");
    Err(io::Error::other(why))
}

/// Whether no more files can be opened, by this process or on this machine.
pub fn is_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

fn listener_in(folder: &Path) -> io::Result<(UnixListener, OwnedFd)> {
    let path = OFlags::PATH | OFlags::CLOEXEC;
    let folder = openat(CWD, folder, path | OFlags::DIRECTORY, Mode::empty())?;
    // A name that nobody has; what was killed before it took its own away may have left one.
    let name: String = SystemRandom.uuid().iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!(".obento-{name}");
    // Of the whole path a socket takes some hundred bytes.
    let listener = UnixListener::bind(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))?;
    let place = openat(&folder, &name, path, Mode::empty());
    if geteuid().is_root() {
        // Whom the warden becomes then. Where that cannot be, or nobody could not start the kernel, it stays root, which in a name space of
        // its own has no more rights to what is nobody's than its group has.
        let user = Some(Uid::from_raw(NOBODY));
        if chownat(&folder, &name, user, None, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            chmodat(&folder, &name, Mode::RWXU | Mode::RWXG, AtFlags::empty())?;
        }
    }
    unlinkat(&folder, &name, AtFlags::empty())?;
    Ok((listener, place?))
}

/// Has the program that `command` starts keep `passed` open, under the numbers they have here, and nothing else that this process has, or
/// was given by whoever started it.
fn inherit<const N: usize>(command: &mut Command, passed: [RawFd; N]) {
    let keep = move || {
        // SAFETY: it closes nothing now; what belongs to this process is closed in the copy that becomes the program.
        let marked =
            unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
        // Linux before 5.11 has no such call: what was opened without its mark stays.
        debug_assert!(marked == 0 || marked == -1);
        for fd in passed {
            // SAFETY: open in the caller until the program is started, and this is a copy of its descriptors.
            let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
            fcntl_setfd(fd, FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec this only makes system calls.
    unsafe { command.pre_exec(keep) };
}
