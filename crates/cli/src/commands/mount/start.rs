//! Starting a server and waiting until its mount is there.

use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use super::Args;
use crate::context::Context;
use crate::report::Report;

/// What a server says when its mount is there.
const READY: u8 = b'+';

/// Starts a server for what `args` ask; it tells what goes wrong itself, and its exit code becomes ours.
pub fn start(args: &Args, context: &Context) -> Result<(), Report> {
    let failed = |error: io::Error| Report::on("cannot start a server for", args.image.as_bytes(), error);
    let mut command = Command::new("/proc/self/exe");
    // Who finds the image in use is told this name.
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
            Some(0) | None => return Err(failed(io::Error::other(format!("it ended early: {status}")))),
            // It has said why.
            Some(code) => context.raise(u8::try_from(code).unwrap_or(1)),
        }
    }
    Ok(())
}

/// Leaves the terminal and the folder of who started this server.
pub fn detach() -> io::Result<()> {
    // Fails for who leads a group already, and then nothing is lost.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/")
}

/// Says to who started this server that the mount is there, and speaks to nobody from then on.
pub fn say_ready() -> io::Result<()> {
    rustix::io::write(rustix::stdio::stdout(), &[READY])?;
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}
