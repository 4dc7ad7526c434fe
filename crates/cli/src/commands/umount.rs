//! `obento umount`: ends a mount, and returns when everything is on stable storage.

use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use obento_fuse::{
    Folders, MountError, MountPoint, NoServer, Outcome as Ending, ServerWait, Unmounter, find_mount, unmount,
};

use super::mount::mounts_below;
use crate::context::Context;
use crate::output::Outcome;
use crate::report::Report;

/// The time for which a server may write its changes: longer than any disk needs.
const LONGEST: Duration = Duration::from_secs(30 * 60);

/// The time for which a mount that is in use may become free.
const MOMENT: Duration = Duration::from_millis(400);

/// The type of mounts that `obento mount` creates.
const FS_TYPE: &str = "fuse.obento";

/// Unmount a volume, and wait until all changes are written
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The mount points, or the directories of `mount --all`
    #[arg(required = true, value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// Detach the mount now, and end it when it is no longer used; do not wait
    #[arg(short, long)]
    lazy: bool,
    /// Unmount even if the server does not respond
    #[arg(short, long)]
    force: bool,
    /// For a server that gave up the right to unmount: wait for a byte on standard input
    #[arg(long, hide = true)]
    on_request: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    for directory in &args.directories {
        let failed = |report: Report| context.warn(&report);
        if args.on_request {
            serve_to_the_end(directory).unwrap_or_else(failed);
            continue;
        }
        for directory in mounted(directory) {
            end(&directory, args).unwrap_or_else(failed);
        }
    }
    Ok(())
}

/// Returns the mount points that an argument names: those of `mount --all` below it, or itself.
fn mounted(directory: &Path) -> Vec<PathBuf> {
    let below = match directory.canonicalize() {
        Ok(path) if find_mount(&path).is_none() => mounts_below(&path),
        _ => Vec::new(),
    };
    match below.is_empty() {
        true => vec![directory.to_owned()],
        false => below.into_iter().map(|mount| mount.path).collect(),
    }
}

fn cannot(directory: &Path, cause: impl std::fmt::Display) -> Report {
    Report::on("cannot unmount", directory.as_os_str().as_bytes(), cause)
}

fn end(directory: &Path, args: &Args) -> Result<(), Report> {
    let mount = mount_at(directory)?;
    let waiting = ServerWait::connect(&mount);
    let how = Unmounter { lazy: args.lazy, force: args.force };
    patiently(|| unmount(&mount.path, how)).map_err(|error| match error {
        MountError::Busy => cannot(directory, error).help(
            "close the files that are in use (run 'fuser -vm DIR' to list the processes), or use --lazy",
        ),
        error => cannot(directory, error),
    })?;
    if args.lazy {
        return Ok(());
    }
    let what = "the changes were not written to stable storage";
    let waiting = match waiting {
        Ok(waiting) => waiting,
        // Servers of other programs do not report how they end.
        Err(NoServer::Nobody) if mount.fs_type != FS_TYPE => return Ok(()),
        Err(error) => {
            let report = Report::on("unmounted", directory.as_os_str().as_bytes(), error);
            return Err(report.help("changes since the last sync may be lost; check the image"));
        }
    };
    match waiting.finish(LONGEST) {
        Ending::Durable => Ok(()),
        Ending::Failed(why) => {
            let advice = crate::report::to_close(&why);
            Err(Report::on("unmounted, but changes are lost on", mount.source.as_os_str().as_bytes(), why)
                .help(advice))
        }
        Ending::Gone => Err(Report::on(
            "unmounted",
            directory.as_os_str().as_bytes(),
            "the server of the mount was killed",
        )
        .help(format!("{what} when it ended; synced changes are present"))),
        Ending::Late => Err(Report::on(
            "unmounted",
            directory.as_os_str().as_bytes(),
            "the server of the mount is still writing",
        )),
    }
}

/// Tries again for a moment while the mount is in use. A process that is starting a program has its parent's files open
/// until the program runs. io_uring closes files after their process has ended.
fn patiently(unmount: impl Fn() -> Result<(), MountError>) -> Result<(), MountError> {
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
    let by_parent = || {
        let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
        Ok(parent.unwrap_or(Path::new(".")).canonicalize()?.join(directory.file_name().unwrap_or_default()))
    };
    let path = directory.canonicalize().or_else(|_| by_parent());
    let path = path.map_err(|error: std::io::Error| cannot(directory, error))?;
    let mount = find_mount(&path).ok_or_else(|| cannot(directory, "not mounted"))?;
    if !mount.is_fuse() {
        let cause = format!("it is a kernel mount of type {}", mount.fs_type);
        return Err(cannot(directory, cause).help("use umount(8)"));
    }
    Ok(mount)
}

/// Waits for the command to unmount; a mount that is in use is detached. If the input ends without the command, the server has ended.
fn on_request(directory: &Path) -> Result<(), Report> {
    let mut byte = [0];
    if std::io::stdin().read_exact(&mut byte).is_err() {
        return Ok(());
    }
    let failed = |error| cannot(directory, error);
    match unmount(directory, Unmounter::default()) {
        Err(MountError::Busy) => unmount(directory, Unmounter { lazy: true, force: false }).map_err(failed),
        done => done.map_err(failed),
    }
}

/// Waits for the command of the server, and removes its socket after it ended.
fn serve_to_the_end(directory: &Path) -> Result<(), Report> {
    let done = on_request(directory);
    // Nothing more is said: this is the end of the server.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Folders::of(rustix::process::geteuid().as_raw()).sweep();
    done
}
