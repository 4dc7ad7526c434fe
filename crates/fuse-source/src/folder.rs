//! Servers that accept no `/dev/fd/N` as their mount point: their command, and a folder with an empty mount point, the
//! helper under the names of `fusermount`, and a socket.
//!
//! A server of Go looks for `fusermount` in `PATH`. libfuse 2 tries the path that it was compiled with first, so such a
//! server runs in a mount namespace in which the helper has this path. The namespace needs no root: the server then
//! also has a user namespace, in which it keeps its user.
//! Source: libfuse 2.9, lib/mount.c (`exec_fusermount`, `fuse_mount_sys`: with `auto_unmount`, libfuse always runs
//! `fusermount`).

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use memchr::memmem;
use obento_base::Name;
use obento_host::PrivateDir;
use rustix::fs::symlinkat;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

/// The name of the socket in the folder.
pub const SOCKET: &str = "socket";
/// The name of the mount point in the folder.
const MOUNT_POINT: &str = "mount";
/// The names under which servers run the helper.
const NAMES: [&str; 2] = ["fusermount", "fusermount3"];

/// Removes the folder `$0` when the arguments, a command, have ended. The folder is the standard input, and the directory
/// that contains it the standard output. The command must end when its parent ends: a signal ends this script, and the
/// kernel then ends the command. The script does not send signals itself, because the number of a process that has ended
/// may belong to another process. Only the command prints messages, since obento may have ended and closed their pipe.
const SUPERVISE: &str = r#"
clean() {
    cd /proc/self/fd/0 && rm -f -- socket fusermount fusermount3 mount/.go-fuse-epoll-hack && rmdir -- mount
    cd /proc/self/fd/1 && rmdir -- "$0"
}
trap 'clean; exit 143' HUP INT TERM
"$@" </dev/null >/dev/null &
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

/// The directories of the programs that start and supervise a server. Those of `PATH` are for the server only: its
/// first one is the folder, and the supervisor may have more rights than the server.
const SYSTEM: [&str; 5] = ["/usr/bin", "/bin", "/usr/sbin", "/sbin", "/run/current-system/sw/bin"];

/// Returns the path of a program of the system. Fails if it is not installed.
fn system_program(name: &str) -> io::Result<PathBuf> {
    let found = SYSTEM.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.exists());
    let missing = || io::Error::new(io::ErrorKind::NotFound, format!("the program {name} is not installed"));
    found.ok_or_else(missing)
}

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
    folder: PrivateDir,
    /// Whether another process removes it.
    is_passed: bool,
}

impl Folder {
    /// Creates a folder that only this user can access, with `helper` under the names of `fusermount`. Fails if another
    /// user can replace files in the directory for temporary files.
    pub fn new(helper: &Path) -> io::Result<Self> {
        Self::within(&std::env::temp_dir(), helper)
    }

    fn within(directory: &Path, helper: &Path) -> io::Result<Self> {
        let folder = Self { folder: PrivateDir::within(directory, "obento-fuse-")?, is_passed: false };
        let dir = folder.folder.dir();
        dir.make_private(Name::new(MOUNT_POINT.as_bytes()).map_err(io::Error::other)?)?;
        for name in NAMES {
            symlinkat(helper, dir, name)?;
        }
        Ok(folder)
    }

    fn path(&self) -> PathBuf {
        self.folder.path()
    }

    /// Returns the mount point.
    pub fn mount_point(&self) -> PathBuf {
        self.path().join(MOUNT_POINT)
    }

    /// Listens for the helper.
    pub fn listen(&self) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let path = format!("/proc/self/fd/{}/{SOCKET}", self.folder.dir().as_fd().as_raw_fd());
        bind(&socket, &SocketAddrUnix::new(path)?)?;
        listen(&socket, 1)?;
        Ok(socket)
    }

    /// Returns a command that runs `program` so that it finds the helper, and removes the folder afterwards. Arguments
    /// of the program can be added. Its standard input and output must stay as they are.
    pub fn command(&self, route: Route, program: &OsStr) -> io::Result<Command> {
        let (setpriv, shell) = (system_program("setpriv")?, system_program("sh")?);
        let mut command = Command::new(&setpriv);
        command.args(["--pdeathsig", "TERM", "--"]).arg(&shell).args(["-c", SUPERVISE]);
        command.arg(OsStr::from_bytes(self.folder.name().as_bytes()));
        let is_root = rustix::process::geteuid().is_root();
        if route == Route::FixedHelper {
            command.arg(system_program("unshare")?);
            if !is_root {
                command.args(["--user", "--map-current-user", "--keep-caps"]);
            }
            command.args(["--mount", "--"]).arg(&shell).args(["-c", REPLACE, "obento"]);
            command.arg(self.path().join(NAMES[0]));
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let paths = [self.path()].into_iter().chain(std::env::split_paths(&path));
        let mut variable = OsString::from("PATH=");
        variable.push(std::env::join_paths(paths).map_err(io::Error::other)?);
        command.arg(system_program("env")?).arg(variable).arg(&setpriv).args(["--pdeathsig", "KILL"]);
        if route == Route::FixedHelper && !is_root {
            // Those of the user namespace were needed for the mount only.
            command.args(["--inh-caps", "-all", "--ambient-caps", "-all"]);
        }
        command.arg("--").arg(program);
        command.env("PATH", SYSTEM.join(":"));
        command.stdin(self.folder.dir().as_fd().try_clone_to_owned()?);
        command.stdout(self.folder.parent().as_fd().try_clone_to_owned()?);
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
            let _ = self.folder.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn no_folder_is_created_where_another_user_can_replace_it() {
        let outer = tempfile::tempdir().unwrap();
        fs::create_dir(outer.path().join("tmp")).unwrap();
        for mode in [0o777, 0o775] {
            fs::set_permissions(outer.path(), Permissions::from_mode(mode)).unwrap();
            let error = Folder::within(&outer.path().join("tmp"), Path::new("/bin/true")).unwrap_err();
            assert!(error.to_string().contains("another user can replace files in"), "{error}");
        }
        fs::set_permissions(outer.path(), Permissions::from_mode(0o755)).unwrap();
        drop(Folder::within(&outer.path().join("tmp"), Path::new("/bin/true")).unwrap());
        assert_eq!(fs::read_dir(outer.path().join("tmp")).unwrap().count(), 0);
    }

    #[test]
    fn only_the_server_finds_the_programs_of_the_folder() {
        let outer = tempfile::tempdir().unwrap();
        let folder = Folder::within(outer.path(), Path::new("/bin/true")).unwrap();
        // What another user would put there.
        let marks = outer.path().join("marks");
        fs::create_dir(&marks).unwrap();
        for name in ["setpriv", "sh", "env", "kill", "rm", "rmdir", "unshare"] {
            let text = format!("#!/bin/sh\n: > '{}/{name}'\n", marks.display());
            fs::write(folder.path().join(name), text).unwrap();
            fs::set_permissions(folder.path().join(name), Permissions::from_mode(0o755)).unwrap();
        }
        let mut command = folder.command(Route::SearchedHelper, OsStr::new("sh")).unwrap();
        let status = command.status().unwrap();
        let found: Vec<_> = fs::read_dir(&marks).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(found, ["sh"], "{status}");
        let mut command = folder.command(Route::SearchedHelper, OsStr::new("/bin/true")).unwrap();
        assert!(command.status().unwrap().success());
        assert!(!folder.mount_point().exists(), "the supervisor removes the folder's own entries");
    }
}
