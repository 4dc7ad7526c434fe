//! The copies of a mount in other mount namespaces.
//!
//! A new mount namespace contains a copy of each mount. Any user can create one (user_namespaces(7)), also if the user
//! cannot enter the mount. A copy that does not receive unmounts keeps the connection to the server after the mount is
//! gone. The owner of the mount cannot find such a copy. `umount` must not depend on it, so it ends the connection.
//! Invariant: the file that aborts a connection is opened while the mount exists. The number of the connection can belong
//! to another mount later, but the open file has no effect then.
//! Source: mount_namespaces(7); open_tree(2); fs/fuse/control.c `fuse_conn_abort_write`, `fuse_ctl_remove_conn`.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags, fsconfig_create, fsmount, fsopen, open_tree,
};

use crate::mount::{CONNECTIONS, MountPlace};

/// The time for which the server may take to open the root directory.
const RESPONSE: Duration = Duration::from_secs(5);

/// The means to end the copies of a mount after it was unmounted.
#[derive(Debug)]
pub struct Copies {
    /// The file that aborts the connection to the server.
    abort: File,
    /// A mount of the same file system without a path. Only root can create it. It keeps the file system alive.
    tree: Option<OwnedFd>,
}

impl Copies {
    /// Opens the connection of the mounted device `device`. Returns `None` if this process cannot abort connections.
    pub(crate) fn of(device: &str) -> Option<Self> {
        let number = device.strip_prefix("0:")?;
        let abort = open_abort(number).inspect_err(|error| {
            tracing::debug!(%error, "copies of the mount in other mount namespaces cannot be ended");
        });
        Some(Self { abort: abort.ok()?, tree: None })
    }

    /// Prepares to pass on the data in the cache of the kernel after the unmount of `place`. From then on, the file system
    /// cannot end before this value is dropped.
    pub fn prepare(&mut self, place: &MountPlace) {
        let flags =
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
        self.tree = place.root().ok().and_then(|root| open_tree(&root, "", flags).ok());
    }

    /// Ends the connection to the server, if the mount was unmounted and copies of it exist. Before, the kernel passes the
    /// data in its cache to the server, which may take `longest`. Programs that use a copy then get ENOTCONN.
    pub fn end(mut self, longest: Duration) {
        if let Some(tree) = self.tree.take() {
            flush(tree, longest);
        }
        let aborted = self.abort.write_all(b"1");
        tracing::debug!(?aborted, "no copy of the mount is connected to the server");
    }
}

/// Opens the file that aborts a connection. Its owner is the user who mounted the file system.
fn open_abort(number: &str) -> io::Result<File> {
    let path: PathBuf = [CONNECTIONS, number, "abort"].iter().collect();
    File::options().write(true).open(path).or_else(|_| {
        // A container may lack the control file system. Root can mount it without a path.
        let system = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&system)?;
        let root = fsmount(&system, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(root, format!("{number}/abort"), flags, Mode::empty())?.into())
    })
}

/// Passes written data from the cache of the kernel to the server, as the end of the last mount would do.
fn flush(tree: OwnedFd, longest: Duration) {
    let (sender, receiver) = mpsc::channel();
    let flush = move || {
        // The descriptor of a mount cannot be synced.
        let opened = File::open(format!("/proc/self/fd/{}", tree.as_raw_fd()));
        drop(tree);
        let _ = sender.send(());
        let flushed = opened.map(|root| rustix::fs::syncfs(&root));
        tracing::debug!(?flushed, "the kernel has passed written data to the server");
    };
    if std::thread::Builder::new().name("flush".into()).spawn(flush).is_ok() {
        // A server that was stopped does not respond. The end of the thread is the second message.
        if receiver.recv_timeout(RESPONSE).is_ok() {
            let _ = receiver.recv_timeout(longest);
        }
    }
}
