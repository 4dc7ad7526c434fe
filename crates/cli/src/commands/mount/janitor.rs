//! The process that unmounts for a server that was asked to end: the server has given up this right.
//!
//! It is this program again, `obento umount --on-request`, and waits for a byte on its standard input. If the server ends without
//! writing one, it leaves the mount as it is.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The process that unmounts.
pub struct Janitor(Child);

impl Janitor {
    /// Starts it for the mount point `path`.
    pub fn start(path: &Path) -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("obento").args(["umount", "--on-request", "--"]).arg(path);
        // In its own process group, or Ctrl-C would end it before its work.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Self)
    }

    /// Requests to unmount, or to detach the mount if it is in use.
    pub fn unmount(&mut self) -> io::Result<()> {
        match &mut self.0.stdin {
            Some(stdin) => stdin.write_all(b"u"),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}
