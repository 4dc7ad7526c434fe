//! `obento umount`: ends a mount, and returns when everything is on stable storage.

use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use obento::host::{HostError, sandbox};
use obento_fuse::{
    Folders, MountError, MountPlace, MountPoint, NoServer, Outcome as Ending, ServerWait, Unmounted,
    Unmounter, mounts_of_same,
};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::mount::own::{self, FS_TYPE};
use crate::cause::Cause;
use crate::context::Context;
use crate::help::page::Page;
use crate::messages::print_error;
use crate::output::Outcome;
use crate::report::{LIST_MOUNTS, Report, foreign, foreign_with_hint, printable, shell_word, subject};

/// The time for which a server may write its changes: longer than any disk needs.
const LONGEST: Duration = Duration::from_secs(30 * 60);

/// The time for which a server may send no sign. It sends one every five seconds.
const SILENCE: Duration = Duration::from_secs(60);

/// The time for which a mount that is in use may become free.
const MOMENT: Duration = Duration::from_millis(400);

/// The time that a forced unmount gives the server to receive written data from the cache of the kernel.
const FLUSH: Duration = Duration::from_secs(5);

/// The time after which a note says that the command waits.
const UNNOTED: Duration = Duration::from_secs(7);

/// The page of `umount`.
pub const PAGE: Page = Page::new(&[("obento umount mnt", "Unmount, and wait until all changes are written")])
    .see_also(&["umount(8)"]);

/// Unmount a volume, and wait until all changes are written
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The mount points, or the directories of `mount --all`
    #[arg(required = true, value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// Detach the mount now, and end it when it is no longer used; do not wait
    #[arg(short, long)]
    lazy: bool,
    /// Unmount even if the server does not respond or programs use the mount: calls of these programs fail. Data that was
    /// not synced is lost if the server does not respond within five seconds
    #[arg(short, long)]
    force: bool,
    /// For a server that gave up the right to unmount: wait for a byte on standard input, and unmount the mount with this
    /// number. DIR is its name in the working directory
    #[arg(long, hide = true, value_name = "ID")]
    on_request: Option<u64>,
    /// For a forced unmount: pass written data from the cache of the kernel to the server of the mount with this number.
    /// DIR is its name in the working directory
    #[arg(long, hide = true, value_name = "ID", conflicts_with = "on_request")]
    flush: Option<u64>,
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    for directory in &args.directories {
        let failed = |report: Report| context.warn(&report);
        if let Some(id) = args.on_request {
            serve_to_the_end(directory, id).unwrap_or_else(failed);
            continue;
        }
        if let Some(id) = args.flush {
            let flushed = in_working_directory(directory, id)
                .and_then(|place| place.sync().map_err(|error| cannot(directory, error)));
            flushed.unwrap_or_else(failed);
            continue;
        }
        for directory in mounted(directory) {
            end(&directory, args, context).unwrap_or_else(failed);
        }
    }
    Ok(())
}

/// Returns the mount points that an argument names: those of `mount --all` below it, or itself.
fn mounted(directory: &Path) -> Vec<PathBuf> {
    let below = match own::find(directory) {
        Ok(None) => own::mounts_below(directory).unwrap_or_default(),
        _ => Vec::new(),
    };
    match below.is_empty() {
        true => vec![directory.to_owned()],
        false => below.into_iter().map(|mount| mount.path).collect(),
    }
}

fn cannot(directory: &Path, cause: impl Cause) -> Report {
    Report::on("cannot unmount", directory.as_os_str().as_bytes(), cause)
}

fn end(directory: &Path, args: &Args, context: &Context) -> Result<(), Report> {
    let mount = mount_at(directory)?;
    let place = MountPlace::open(mount.clone()).map_err(|error| cannot(directory, error))?;
    let waiting = ServerWait::connect(&mount);
    let process = waiting.as_ref().ok().and_then(ServerWait::process);
    let server = process.map_or_else(String::new, |process| format!(" (process {process})"));
    let way_out =
        process.map(|process| format!("; if the server is stopped, 'kill -CONT {process}' continues it"));
    let note = format!(
        "waiting for the server of the mount{server} to write the changes{}",
        way_out.unwrap_or_default()
    );
    let _reminder = (!args.force && !args.lazy).then(|| Reminder::start(directory, &note));
    let how = Unmounter { lazy: args.lazy, force: args.force };
    // A server sends a sign every five seconds. One that did not respond may have sent a sign just before.
    let silence = match args.force && !args.lazy {
        true => {
            flush(&place);
            FLUSH * 2
        }
        false => SILENCE,
    };
    // Servers of other programs may not survive an abort without a loss.
    let mut copies = if mount.fs_type == FS_TYPE && !args.lazy { place.copies() } else { None };
    copies.iter_mut().for_each(|copies| copies.prepare(&place));
    let unmounted = patiently(|| place.unmount(how)).map_err(|error| match error {
        MountError::Busy => {
            let shown = shell_word(directory.as_os_str().as_bytes());
            cannot(directory, error).help(format!(
                "close the files that are in use ('fuser -vm {shown}' lists the processes), or use --lazy"
            ))
        }
        error => cannot(directory, error),
    })?;
    if unmounted == Unmounted::Detached {
        return Ok(());
    }
    if let Some(other) = mounts_of_same(&mount).first().filter(|_| !args.force) {
        let place = subject(other.path.as_os_str().as_bytes());
        context.note(directory.as_os_str().as_bytes(), format!("the volume is still mounted at {place}"));
        return Ok(());
    }
    if let Some(copies) = copies {
        copies.end(if args.force { FLUSH } else { LONGEST });
    }
    let what = "the changes were not written to stable storage";
    let image = shell_word(mount.source.as_os_str().as_bytes());
    let waiting = match waiting {
        Ok(waiting) => waiting,
        // Servers of other programs do not report how they end.
        Err(NoServer::Ended) if mount.fs_type != FS_TYPE => return Ok(()),
        Err(error) => {
            let cause = format!("{error}; changes since the last sync may be lost");
            return Err(Report::on("unmounted", directory.as_os_str().as_bytes(), cause)
                .help(format!("run 'obento check {image}'")));
        }
    };
    match waiting.finish(LONGEST, silence) {
        Ending::Durable => Ok(()),
        Ending::Failed(why) => {
            let advice = crate::report::to_close_because(&why);
            let is_own = mount.owner() == Some(rustix::process::geteuid().as_raw());
            // The text of another user has no hint.
            let why = if is_own { foreign_with_hint(&why) } else { foreign(&why) };
            Err(Report::on("unmounted, but changes are lost on", mount.source.as_os_str().as_bytes(), why)
                .help(advice))
        }
        Ending::Gone => Err(Report::on(
            "unmounted",
            directory.as_os_str().as_bytes(),
            format!("the server of the mount was killed, and {what}"),
        )
        .help(format!("run 'obento check {image}'; the changes before the last sync are present"))),
        Ending::Late => Err(Report::on(
            "unmounted",
            directory.as_os_str().as_bytes(),
            format!("the server of the mount{server} is still writing"),
        )
        .help("wait until the server ends; if you end the server, changes since the last sync are lost")),
        Ending::Silent => Err(Report::on(
            "unmounted",
            directory.as_os_str().as_bytes(),
            format!("the server of the mount{server} has not responded for {} seconds", silence.as_secs()),
        )
        .help(
            "if the server is stopped, continue it with 'kill -CONT'; if you end it, changes since the last sync are lost",
        )),
    }
}

/// Passes written data from the cache of the kernel to the server, if this process can end the wait for a server that does
/// not respond. Another process waits, because the kernel does not end a request that a stopped server has received.
fn flush(place: &MountPlace) {
    if !place.can_abort() {
        return;
    }
    let (parent, name) = place.entry();
    let mut command = Command::new("/proc/self/exe");
    command.arg0("obento").args(["umount", "--flush", &place.mount().id.to_string(), "--"]).arg(name);
    command.current_dir(format!("/proc/self/fd/{}", parent.as_raw_fd()));
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut process) = command.spawn() else { return };
    let (sender, receiver) = mpsc::channel();
    let output = process.stdout.take();
    let wait = move || {
        // The end of the output is the end of the process.
        let read = output.map(|mut output| output.read_to_end(&mut Vec::new()));
        let reaped = process.wait();
        tracing::debug!(?read, ?reaped, "the kernel has passed written data to the server");
        let _ = sender.send(());
    };
    if std::thread::Builder::new().name("flush".into()).spawn(wait).is_ok() {
        // The unmount follows in any case.
        let _ = receiver.recv_timeout(FLUSH);
    }
}

/// Prints a note after some seconds, unless it is dropped before. The kernel may wait for a server without a limit.
struct Reminder {
    /// The end of the channel is the message to the thread.
    _sender: mpsc::Sender<()>,
}

impl Reminder {
    fn start(directory: &Path, note: &str) -> Self {
        let (sender, receiver) = mpsc::channel();
        let bytes = directory.as_os_str().as_bytes();
        let text = format!("obento: {}: note: {note}\n", printable(bytes));
        let remind = move || {
            if receiver.recv_timeout(UNNOTED) == Err(mpsc::RecvTimeoutError::Timeout) {
                print_error(text);
            }
        };
        // The note is not essential.
        let _ = std::thread::Builder::new().name("reminder".into()).spawn(remind);
        Self { _sender: sender }
    }
}

/// Tries again for a moment while the mount is in use. A process that is starting a program has its parent's files open
/// until the program runs. io_uring closes files after their process has ended.
fn patiently(unmount: impl Fn() -> Result<Unmounted, MountError>) -> Result<Unmounted, MountError> {
    let begin = Instant::now();
    loop {
        match unmount() {
            Err(MountError::Busy) if begin.elapsed() < MOMENT => std::thread::sleep(MOMENT / 20),
            done => return done,
        }
    }
}

/// Returns the mount at `directory`, even if its server has ended.
fn mount_at(directory: &Path) -> Result<MountPoint, Report> {
    let mount = own::find(directory).map_err(|error| match (&error, error.errno()) {
        // The message names the directory already.
        (HostError::System { path, .. }, Some(Errno::NOENT)) if path == directory => {
            cannot(directory, "the directory does not exist")
        }
        (HostError::System { path, .. }, Some(errno)) if path == directory => {
            cannot(directory, std::io::Error::from(errno))
        }
        _ => cannot(directory, error),
    })?;
    let mount = mount.ok_or_else(|| cannot(directory, "not mounted").help(LIST_MOUNTS))?;
    if !mount.is_fuse() {
        let cause = format!("it is a kernel mount of type {}", mount.fs_type);
        return Err(cannot(directory, cause).help("use umount(8)"));
    }
    Ok(mount)
}

/// Waits for the command to unmount; a mount that is in use is detached. If the input ends without the command, the server has ended.
fn on_request(place: &MountPlace, directory: &Path) -> Result<(), Report> {
    let failed = |error| cannot(directory, error);
    let mut copies = place.copies();
    let capabilities = sandbox::keep_unmounting();
    tracing::debug!(?capabilities, "the process only unmounts");
    // The server goes on when this process has found the mount.
    let mut byte = [0];
    if std::io::stdout().write_all(&byte).and_then(|()| std::io::stdout().flush()).is_err() {
        return Ok(());
    }
    if std::io::stdin().read_exact(&mut byte).is_err() {
        return Ok(());
    }
    copies.iter_mut().for_each(|copies| copies.prepare(place));
    match place.unmount(Unmounter::default()) {
        Err(MountError::Busy) => place.unmount(Unmounter { lazy: true, force: false }).map(drop),
        Ok(_) if mounts_of_same(place.mount()).is_empty() => {
            copies.into_iter().for_each(|copies| copies.end(LONGEST));
            Ok(())
        }
        done => done.map(drop),
    }
    .map_err(failed)
}

/// Returns the mount with the number `id` at `directory`, a name in the working directory.
fn in_working_directory(directory: &Path, id: u64) -> Result<MountPlace, Report> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = rustix::fs::open(".", flags, Mode::empty());
    let parent = parent.map_err(|errno| cannot(directory, std::io::Error::from(errno)))?;
    MountPlace::in_directory(parent, directory.as_os_str(), id).map_err(|error| cannot(directory, error))
}

/// Waits for the command of the server, and removes its socket after it ended. Ends at once if the mount does not exist.
fn serve_to_the_end(directory: &Path, id: u64) -> Result<(), Report> {
    let done = on_request(&in_working_directory(directory, id)?, directory);
    // Nothing more is said: this is the end of the server.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Folders::of(rustix::process::geteuid().as_raw()).sweep();
    done
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Returns a mount that `users` attempts find in use.
    fn used(users: u32) -> impl Fn() -> Result<Unmounted, MountError> {
        let left = Cell::new(users);
        move || match left.get() {
            0 => Ok(Unmounted::Ended),
            more => {
                left.set(more - 1);
                Err(MountError::Busy)
            }
        }
    }

    #[test]
    fn a_mount_whose_last_user_has_just_ended_is_unmounted() {
        assert!(matches!(patiently(used(0)), Ok(Unmounted::Ended)));
        assert!(matches!(patiently(used(3)), Ok(Unmounted::Ended)));
    }

    #[test]
    fn a_mount_that_stays_in_use_is_reported() {
        assert!(matches!(patiently(used(u32::MAX)), Err(MountError::Busy)));
    }
}
