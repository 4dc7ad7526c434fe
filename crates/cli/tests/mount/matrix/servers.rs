//! FUSE servers whose files are changed, with the host cases: servers of Debian, and obento's own one.

use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use obento::driver::{Access, FileSystem, Limits};
use obento_fuse::{Pauser, RingChoice, Server, ServerOptions, SessionOptions, open_session};
use obento_fuse_source::{FuseServer, connect};
use obento_testkit::hosts::{CaseEnd, Library, cases};
use obento_testkit::oracle::{Oracle, program, run};
use obento_testkit::require;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tempfile::TempDir;

use super::volume::{SHAPES, Volume};
use super::{Table, ends};
use crate::support::wait_until;

/// A server of another project.
struct Foreign {
    /// The name of the column.
    name: &'static str,
    /// The command; `@` stands for the folder of the files.
    command: &'static str,
    /// Returns what the server can store.
    limits: fn(Limits) -> Limits,
}

/// Returns the limits of a server of libfuse's high-level interface: each name of a file has an inode number of its own.
fn with_paths(limits: Limits) -> Limits {
    Limits { link_max: 1, ..limits }
}

const FOREIGN: [Foreign; 3] = [
    Foreign { name: "bindfs", command: "bindfs @/files", limits: with_paths },
    Foreign { name: "unionfs-fuse", command: "unionfs @/files=RW", limits: with_paths },
    Foreign {
        name: "fuse-overlayfs",
        command: "fuse-overlayfs -o lowerdir=@/lower,upperdir=@/files/upper,workdir=@/files/work",
        // It creates names with a prefix, and reports the limit without it.
        limits: |limits| Limits { name_max: 0, ..limits },
    },
];

/// A folder with a file system of a known size, in which servers store their files.
struct Lab(TempDir);

impl Lab {
    fn new() -> Self {
        let lab = Self(tempfile::Builder::new().prefix("obento-servers-").tempdir().unwrap());
        let path = lab.path();
        for name in ["files", "lower"] {
            fs::create_dir(path.join(name)).unwrap();
        }
        let tmpfs = ["-t", "tmpfs", "-o", "size=48m,mode=755", "tmpfs", "files"];
        run(program("mount").args(tmpfs).current_dir(path)).unwrap();
        for name in ["files/upper", "files/work"] {
            fs::create_dir(path.join(name)).unwrap();
        }
        lab
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // A server that ends may still have files open.
        let files: PathBuf = self.path().join("files");
        wait_until("the unmount", || program("umount").arg(&files).output().unwrap().status.success());
    }
}

/// Runs the host cases on a server of another project.
fn foreign(server: &Foreign) -> (&'static str, Vec<CaseEnd>) {
    let lab = Lab::new();
    let command: OsString = server.command.replace('@', lab.path().to_str().unwrap()).into();
    let helper = Path::new(env!("CARGO_BIN_EXE_obento"));
    let open = move |access| {
        let started = FuseServer::start(&command, Some(helper), access).unwrap();
        Ok(started.mount(access).unwrap())
    };
    let mut library = Library::new(open).with_limits(server.limits).without_flags();
    let seen = ends(&cases(), &mut library);
    drop(library);
    (server.name, seen)
}

/// The volume of obento's own server.
static VOLUME: LazyLock<Volume> =
    LazyLock::new(|| SHAPES.iter().find(|shape| shape.name == "ext4").expect("a shape of ext4").volume());

/// Returns the limits of the volume, which the protocol does not report.
fn with_those_of_the_volume(limits: Limits) -> Limits {
    let found = VOLUME.open(Access::ReadOnly).unwrap().limits();
    Limits { symlink_max: found.symlink_max, file_size_max: found.file_size_max, ..limits }
}

/// obento's own server of an ext4 volume, over a socket in place of the device of the kernel.
#[derive(Default)]
struct Own(Mutex<Option<JoinHandle<()>>>);

impl Own {
    fn open(&self, access: Access) -> Arc<dyn FileSystem> {
        let mut thread = self.0.lock().unwrap();
        if let Some(earlier) = thread.take() {
            earlier.join().unwrap();
        }
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (kernel, device): (OwnedFd, OwnedFd) = pair.unwrap();
        *thread = Some(std::thread::spawn(move || {
            let vfs = obento::vfs::Vfs::new(VOLUME.open(Access::ReadWrite).unwrap());
            let server = Arc::new(Server::new(vfs.clone(), ServerOptions::default()));
            let options = SessionOptions { io_uring: RingChoice::Off, ..SessionOptions::default() };
            let session = open_session(device, server, options, Pauser::new().unwrap()).unwrap();
            let _ = session.serve().unwrap();
            vfs.close().unwrap();
        }));
        connect(kernel, Duration::from_secs(60), access).unwrap()
    }
}

/// Runs the host cases on obento's own server.
fn own() -> (&'static str, Vec<CaseEnd>) {
    let own = Own::default();
    let mut library = Library::new(move |access| Ok(own.open(access)))
        .with_limits(with_those_of_the_volume)
        .without_flags();
    ("obento", ends(&cases(), &mut library))
}

#[test]
fn programs_see_what_they_should_of_a_fuse_server_as_the_page_says() {
    let programs = ["bindfs", "unionfs", "fuse-overlayfs", "unshare"];
    if !require(&programs.map(Oracle::Program)) || !require(&[Oracle::Root]) {
        return;
    }
    let columns = FOREIGN.iter().map(foreign).chain([own()]).collect();
    let names = cases().iter().map(|case| case.name.to_owned()).collect();
    Table::new("What programs see of a FUSE server", names, columns).is_on_the_page();
}
