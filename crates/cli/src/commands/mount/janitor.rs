//! The process that unmounts for a server which was told to end: the server itself gave that right up.
//!
//! It is this program once more, `obento umount --when-told`, and waits for a byte on its standard input. When the server
//! is gone without one, it ends and leaves the mount as it is.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Who unmounts for us.
pub struct Janitor(Child);

impl Janitor {
    /// Starts it, for what is mounted at `path`.
    pub fn start(path: &Path) -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("obento").args(["umount", "--when-told", "--"]).arg(path);
        // In a group of its own, or Ctrl-C would end it before it could do its work.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Self)
    }

    /// Has it unmount: in good order, or else out of sight, until nobody uses it any more.
    pub fn unmount(&mut self) -> io::Result<()> {
        match &mut self.0.stdin {
            Some(stdin) => stdin.write_all(b"u"),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}
