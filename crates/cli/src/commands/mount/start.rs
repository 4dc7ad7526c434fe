//! Starting a server, and waiting until its mount exists.

use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use super::Args;
use crate::context::Context;
use crate::report::Report;

/// The byte that a server writes when its mount exists.
const READY: u8 = b'+';

/// Starts a server for `args`. The server reports its own errors, and its exit code becomes ours.
pub fn start(args: &Args, context: &Context) -> Result<(), Report> {
    let failed = |error: io::Error| Report::on("cannot start a server for", args.image.as_bytes(), error);
    let mut command = Command::new("/proc/self/exe");
    // Messages about an image in use show this name.
    command.arg0("obento").arg("mount").args(context.options().opening_arguments()).arg("--detached");
    for list in &args.options {
        command.arg("-o").arg(list);
    }
    command.args(args.sloppy.then_some("--sloppy"));
    if let Some(log) = &args.log {
        command.arg("--log").arg(log);
    }
    if args.read_only {
        command.arg("-r");
    }
    command.arg("--").arg(&args.image).arg(&args.directory);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut said = [0];
    let ready = match child.stdout.take() {
        Some(mut stdout) => stdout.read_exact(&mut said).is_ok() && said == [READY],
        None => false,
    };
    if !ready {
        let status = child.wait().map_err(failed)?;
        match status.code() {
            Some(0) | None => {
                return Err(failed(io::Error::other(format!("the server ended early: {status}"))));
            }
            // The server has reported the reason.
            Some(code) => context.raise(u8::try_from(code).unwrap_or(1)),
        }
    }
    Ok(())
}

/// Detaches from the terminal and the working directory of the caller.
pub fn detach() -> io::Result<()> {
    // Fails for the leader of a process group, which does no harm.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/")
}

/// Reports to the caller that the mount exists, and closes the output.
pub fn say_ready() -> io::Result<()> {
    rustix::io::write(rustix::stdio::stdout(), &[READY])?;
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}
