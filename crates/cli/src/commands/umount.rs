//! `obento umount`: ends a mount, and returns once everything is on stable storage.

use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use obento_fuse::{
    Folders, MountError, MountPoint, NoServer, Outcome as Ending, Unmounter, Waiting, find_mount, unmount,
};

use crate::context::Context;
use crate::output::Outcome;
use crate::report::Report;

/// How long a server may take to write what it has: longer than any disk.
const LONGEST: Duration = Duration::from_secs(30 * 60);

/// The type of mounts that `obento mount` makes.
const FS_TYPE: &str = "fuse.obento";

/// Unmount what `obento mount` mounted, and wait until all is on stable storage
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Where it is mounted
    #[arg(required = true, value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// Take it out of sight now, and end when nobody uses it any more; waits for nothing
    #[arg(short, long)]
    lazy: bool,
    /// Unmount even if the server does not answer
    #[arg(short, long)]
    force: bool,
    /// For a server that gave up the right to unmount: wait for a byte on standard input
    #[arg(long, hide = true)]
    when_told: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    for directory in &args.directories {
        let done = match args.when_told {
            true => serve_to_the_end(directory),
            false => end(directory, args),
        };
        if let Err(report) = done {
            context.warn(&report);
        }
    }
    Ok(())
}

fn cannot(directory: &Path, cause: impl std::fmt::Display) -> Report {
    Report::on("cannot unmount", directory.as_os_str().as_bytes(), cause)
}

fn end(directory: &Path, args: &Args) -> Result<(), Report> {
    let mount = mount_at(directory)?;
    let waiting = Waiting::connect(&mount);
    let how = Unmounter { lazy: args.lazy, force: args.force };
    unmount(&mount.path, how).map_err(|error| match error {
        MountError::Busy => {
            cannot(directory, error).help("close what uses it (`fuser -vm DIR` names it), or use --lazy")
        }
        error => cannot(directory, error),
    })?;
    if args.lazy {
        return Ok(());
    }
    let what = "the changes were not brought to stable storage";
    let waiting = match waiting {
        Ok(waiting) => waiting,
        // Servers of other programs tell nobody how they end.
        Err(NoServer::Nobody) if mount.fs_type != FS_TYPE => return Ok(()),
        Err(error) => {
            let report = Report::on("unmounted", directory.as_os_str().as_bytes(), error);
            return Err(report.help("changes since the last sync may be lost: check the image"));
        }
    };
    match waiting.finish(LONGEST) {
        Ending::Durable => Ok(()),
        Ending::Failed(why) => {
            let advice = crate::report::to_close(&why);
            Err(Report::on("unmounted, but lost changes of", mount.source.as_os_str().as_bytes(), why)
                .help(advice))
        }
        Ending::Gone => {
            Err(Report::on("unmounted", directory.as_os_str().as_bytes(), "its server was killed")
                .help(format!("{what} at its end; what was synced is there")))
        }
        Ending::Late => {
            Err(Report::on("unmounted", directory.as_os_str().as_bytes(), "its server is still writing"))
        }
    }
}

/// The mount at `directory`, which a server that is gone no longer answers for.
fn mount_at(directory: &Path) -> Result<MountPoint, Report> {
    let by_parent = || {
        let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
        Ok(parent.unwrap_or(Path::new(".")).canonicalize()?.join(directory.file_name().unwrap_or_default()))
    };
    let path = directory.canonicalize().or_else(|_| by_parent());
    let path = path.map_err(|error: std::io::Error| cannot(directory, error))?;
    let mount = find_mount(&path).ok_or_else(|| cannot(directory, "nothing is mounted there"))?;
    if !mount.is_fuse() {
        let cause = format!("it is a mount of the kernel's, of type {}", mount.fs_type);
        return Err(cannot(directory, cause).help("use umount(8)"));
    }
    Ok(mount)
}

/// Unmounts when told; what is in use is taken out of sight. Without a word the server is gone, and so is our task.
fn when_told(directory: &Path) -> Result<(), Report> {
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

/// Waits for a word of the server, and after its end removes the socket that it could not remove itself.
fn serve_to_the_end(directory: &Path) -> Result<(), Report> {
    let done = when_told(directory);
    // Nothing more is said: this is the end of the server.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Folders::of(rustix::process::geteuid().as_raw()).sweep();
    done
}
