//! The process that unmounts for a server that was asked to end: the server has given up this right.
//!
//! It is this program again, `obento umount --on-request`, and waits for a byte on its standard input. If the server ends without
//! writing one, it leaves the mount as it is.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use obento_fuse::MountPlace;

/// The process that unmounts.
pub struct Janitor {
    process: Child,
    /// Its output, which ends with the process.
    output: Option<ChildStdout>,
}

impl Janitor {
    /// Starts it for the mount at `place`, and waits until it has found the mount. It gets the directory of the mount
    /// point as its working directory: the path can lead to another mount by now.
    pub fn start(place: &MountPlace) -> io::Result<Self> {
        let (parent, name) = place.entry();
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("obento")
            .args(["umount", "--on-request", &place.mount().id.to_string(), "--"])
            .arg(name);
        command.current_dir(format!("/proc/self/fd/{}", parent.as_raw_fd()));
        // In its own process group, or Ctrl-C would end it before its work.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn()?;
        let mut output = process.stdout.take();
        if let Some(ready) = &mut output {
            ready.read_exact(&mut [0])?;
        }
        Ok(Self { process, output })
    }

    /// Requests to unmount, or to detach the mount if it is in use.
    pub fn unmount(&mut self) -> io::Result<()> {
        match &mut self.process.stdin {
            Some(stdin) => stdin.write_all(b"u"),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Like [`unmount`](Self::unmount), and waits for the end of the process. Works without rights.
    pub fn unmount_and_wait(&mut self) -> io::Result<()> {
        self.unmount()?;
        // The process ends after this server, of which this pipe is the sign.
        drop(self.process.stdin.take());
        self.output.take().map_or(Ok(0), |mut output| output.read_to_end(&mut Vec::new())).map(drop)
    }
}
