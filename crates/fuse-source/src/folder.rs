//! Servers that accept no `/dev/fd/N` as their mount point: their command, and a folder with an empty mount point, the
//! helper under the names of `fusermount`, and a socket.
//!
//! A server of Go looks for `fusermount` in `PATH`. libfuse 2 tries the path that it was compiled with first, so such a
//! server runs in a mount namespace in which the helper has this path. The namespace needs no root: the server then
//! also has a user namespace, in which it keeps its user.
//! Source: libfuse 2.9, lib/mount.c (`exec_fusermount`, `fuse_mount_sys`: with `auto_unmount`, libfuse always runs
//! `fusermount`).

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use memchr::memmem;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

/// The name of the socket in the folder.
pub const SOCKET: &str = "socket";
/// The name of the mount point in the folder.
const MOUNT_POINT: &str = "mount";
/// The names under which servers run the helper.
const NAMES: [&str; 2] = ["fusermount", "fusermount3"];

/// Removes the folder `$1` when the rest of the arguments, a command, has ended. The command must end when its parent
/// ends: a signal ends this script, and the kernel then ends the command. The script does not send signals itself,
/// because the number of a process that has ended may belong to another process. Only the command prints messages,
/// since obento may have ended and closed their pipe.
const SUPERVISE: &str = r#"
folder=$1; shift
clean() {
    rm -f -- "$folder"/socket "$folder"/fusermount "$folder"/fusermount3 "$folder"/mount/.go-fuse-epoll-hack
    rmdir -- "$folder"/mount "$folder"
}
trap 'clean; exit 143' HUP INT TERM
"$@" &
exec 2>/dev/null
wait $!
status=$?
trap '' HUP INT TERM
clean
exit $status
"#;

/// Runs the rest of the arguments, a command, with `$1` at the paths that libfuse 2 may be compiled with.
const REPLACE: &str = r#"
helper=$1; shift
for path in /bin/fusermount /usr/bin/fusermount /usr/local/bin/fusermount; do
    if [ -e "$path" ]; then mount --bind -- "$helper" "$path" || exit; fi
done
exec "$@"
"#;

/// How a server gets its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// As `/dev/fd/0`.
    Descriptor,
    /// From `fusermount` in `PATH`.
    SearchedHelper,
    /// From `fusermount` in a mount namespace.
    FixedHelper,
}

impl Route {
    /// Returns the route of a program, by the library that it is linked with.
    pub fn of(program: &Path) -> io::Result<Self> {
        let bytes = fs::read(program)?;
        let has = |text: &[u8]| memmem::find(&bytes, text).is_some();
        Ok(if has(b"libfuse.so.2") {
            Self::FixedHelper
        } else if has(b"\xff Go buildinf:") && has(b"fusermount") {
            Self::SearchedHelper
        } else {
            Self::Descriptor
        })
    }
}

/// A folder for one server.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Whether another process removes it.
    is_passed: bool,
}

impl Folder {
    /// Creates a folder that only this user can access, with `helper` under the names of `fusermount`.
    pub fn new(helper: &Path) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let path = loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("obento-fuse-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1000 => {}
                created => break created.map(|()| path)?,
            }
        };
        let folder = Self { path, is_passed: false };
        fs::create_dir(folder.mount_point())?;
        for name in NAMES {
            symlink(helper, folder.path.join(name))?;
        }
        Ok(folder)
    }

    /// Returns the mount point.
    pub fn mount_point(&self) -> PathBuf {
        self.path.join(MOUNT_POINT)
    }

    /// Listens for the helper.
    pub fn listen(&self) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        bind(&socket, &SocketAddrUnix::new(self.path.join(SOCKET))?)?;
        listen(&socket, 1)?;
        Ok(socket)
    }

    /// Returns a command that runs `program` so that it finds the helper, and removes the folder afterwards. Arguments
    /// of the program can be added.
    pub fn command(&self, route: Route, program: &OsStr) -> io::Result<Command> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "--", "sh", "-c", SUPERVISE, "obento"]).arg(&self.path);
        if route == Route::FixedHelper {
            command.arg("unshare");
            let is_root = rustix::process::geteuid().is_root();
            if !is_root {
                command.args(["--user", "--map-current-user", "--keep-caps"]);
            }
            command.args(["--mount", "--", "sh", "-c", REPLACE, "obento"]).arg(self.path.join(NAMES[0]));
            command.args(["setpriv", "--pdeathsig", "KILL"]);
            if !is_root {
                // Those of the user namespace were needed for the mount only.
                command.args(["--inh-caps", "-all", "--ambient-caps", "-all"]);
            }
        } else {
            command.args(["setpriv", "--pdeathsig", "KILL"]);
        }
        command.arg("--").arg(program);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let paths = [self.path.clone()].into_iter().chain(std::env::split_paths(&path));
        command.env("PATH", std::env::join_paths(paths).map_err(io::Error::other)?);
        Ok(command)
    }

    /// Records that the command removes the folder.
    pub fn pass(mut self) {
        self.is_passed = true;
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.is_passed {
            for name in NAMES.into_iter().chain([SOCKET]) {
                let _ = fs::remove_file(self.path.join(name));
            }
            let _ = fs::remove_dir(self.mount_point());
            let _ = fs::remove_dir(&self.path);
        }
    }
}
