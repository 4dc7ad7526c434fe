//! Starting a server, and waiting until its mount exists.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::args::Args;
use crate::context::Context;
use crate::report::Report;

/// The byte that a server writes when its mount exists.
const READY: u8 = b'+';

/// Starts a server for `args`. The server reports its own errors, and its exit code becomes ours.
pub fn start(args: &Args, context: &Context) -> Result<(), Report> {
    let failed = |error: io::Error| {
        let subject = args.upgrade.as_ref().map_or(args.image(), |directory| directory.as_os_str());
        Report::on("cannot start a server for", subject.as_bytes(), error)
    };
    let mut command = Command::new("/proc/self/exe");
    // Messages about an image in use show this name.
    command.arg0("obento").arg("mount").arg("--detached");
    match &args.upgrade {
        Some(directory) => command.arg("--upgrade").arg(directory),
        None => command.args(arguments(args, context)),
    };

    // Those of the caller, such as a pipe or a lock of a shell, would stay open as long as the server runs.
    obento::host::close_on_exec().map_err(|errno| failed(errno.into()))?;
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

/// Returns the arguments after `mount` of a server for `args`.
pub fn arguments(args: &Args, context: &Context) -> Vec<OsString> {
    let mut words = context.options().opening_arguments();
    words.extend(args.options.iter().flat_map(|list| ["-o".into(), list.into()]));
    words.extend(args.sloppy.then(|| "--sloppy".into()));
    words.extend(args.log.iter().flat_map(|log| ["--log".into(), absolute(log.as_os_str())]));
    words.extend(args.read_only.then(|| "-r".into()));
    words.extend(args.all.then(|| "--all".into()));
    let operands = [absolute_image(args.image()), absolute(args.directory().as_os_str())];
    words.push("--".into());
    words.extend(operands);
    words
}

/// Returns the address of an image or of a file server, so that it does not depend on the working directory.
pub fn absolute_image(image: &OsStr) -> OsString {
    if obento::address::server_of(Path::new(image)).is_some() { image.into() } else { absolute(image) }
}

/// Returns a path that does not depend on the working directory.
fn absolute(path: &OsStr) -> OsString {
    std::path::absolute(path).map_or_else(|_| path.into(), Into::into)
}

/// Detaches from the terminal and the working directory of the caller.
pub fn detach() -> io::Result<()> {
    // Fails for the leader of a process group, which does no harm.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/")
}

/// Opens the output of a server that has started.
pub fn null() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/null")
}

/// Reports to the caller that the mount is served, and replaces the output by `null`. Works without rights.
pub fn say_ready(null: &File) -> io::Result<()> {
    rustix::io::write(rustix::stdio::stdout(), &[READY])?;
    rustix::stdio::dup2_stdout(null)?;
    rustix::stdio::dup2_stderr(null)?;
    Ok(())
}
