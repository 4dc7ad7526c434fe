//! Mounts that end on drop, and the device counters of a mount.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::{Mount, Target};
use crate::error::{IoContext as _, command_of, run};
use crate::{BenchError, Result};

/// The longest time for which an unmount may fail because a process still uses the mount.
const PATIENCE: Duration = Duration::from_secs(30);

/// A mount. It is unmounted on drop.
pub struct Mounted {
    at: PathBuf,
    /// The obento program, if it created the mount.
    by: Option<PathBuf>,
    /// The process IDs of the servers in user space, whose memory and processor time are counted.
    pub servers: Vec<u32>,
    ended: bool,
}

/// A command that mounts a file system.
#[derive(Debug)]
pub struct MountCommand {
    /// The program.
    pub program: PathBuf,
    /// The arguments, which include the mount point.
    pub arguments: Vec<String>,
    /// The obento program, if it creates the mount.
    pub by: Option<PathBuf>,
}

impl MountCommand {
    /// Returns the command that mounts a fresh `image` at the folder `at` as `target` requires, with the further
    /// options `own` for a mount of obento. `obento` is the obento program.
    pub fn fresh(target: &Target, image: &Path, (at, own): (&Path, &str), obento: &Path) -> Result<Self> {
        let mut by = None;
        let (program, mut arguments): (PathBuf, Vec<String>) = match target {
            Target::Kernel(Mount { kind, options }) => {
                needs_root(target)?;
                // A disk needs no loop device.
                let own = if image.is_file() { "loop" } else { "rw" };
                let options = if options.is_empty() { own.to_owned() } else { format!("{own},{options}") };
                ("mount".into(), ["-t", kind, "-o", &options].map(str::to_owned).into())
            }
            Target::Fuse(mount) => {
                by = Some(obento.to_owned());
                let all = [mount.options.as_str(), own, for_others()]
                    .into_iter()
                    .filter(|options| !options.is_empty());
                let options = all.collect::<Vec<_>>().join(",");
                let options = (!options.is_empty()).then(|| ["-o".to_owned(), options]);
                let first = ["mount".to_owned(), "--fs-type".to_owned(), mount.kind.clone()];
                (obento.to_owned(), first.into_iter().chain(options.into_iter().flatten()).collect())
            }
            Target::Fuse2fs => {
                let options = ["fakeroot", for_others()].join(",");
                ("fuse2fs".into(), ["-o", options.trim_end_matches(',')].map(str::to_owned).into())
            }
            Target::Command(command) => ("sh".into(), ["-c", command, "sh"].map(str::to_owned).into()),
            Target::Path(_) | Target::Image(_) | Target::Export(_) | Target::Stored(_) => {
                return Err(BenchError::Absent(format!("{target} is not mounted")));
            }
        };
        if let Target::Command(_) = target {
            arguments.extend([at, image.parent().unwrap_or(image)].map(|path| path.display().to_string()));
        } else {
            arguments.extend([image, at].map(|path| path.display().to_string()));
        }
        Ok(Self { program, arguments, by })
    }
}

impl Mounted {
    /// Runs `command`, which mounts `target` at the folder `at`.
    pub fn new(command: MountCommand, target: &Target, at: &Path) -> Result<Self> {
        fs::create_dir_all(at).during("create", at)?;
        let before = servers();
        run(command_of(&command.program).args(&command.arguments))?;
        let servers = servers().into_iter().filter(|pid| !before.contains(pid)).collect();
        let mounted = Self { at: at.to_owned(), by: command.by, servers, ended: false };
        if is_mount_point(at)? {
            return Ok(mounted);
        }
        Err(BenchError::Absent(format!("{target} mounted nothing at {}", at.display())))
    }

    /// Unmounts, after which the image contains all changes.
    pub fn end(mut self) -> Result<()> {
        self.unmount()
    }

    fn unmount(&mut self) -> Result<()> {
        self.ended = true;
        let begin = Instant::now();
        loop {
            let mut command = match &self.by {
                Some(obento) => Command::new(obento),
                None => command_of("umount"),
            };
            command.args(self.by.as_ref().map(|_| "umount")).arg(&self.at);
            match run(&mut command) {
                Ok(_) => break,
                Err(_) if begin.elapsed() < PATIENCE && is_mount_point(&self.at).unwrap_or(false) => pause(),
                Err(error) => return Err(error),
            }
        }
        // A server that does not report its end uses the image until it has exited.
        while begin.elapsed() < PATIENCE && self.servers.iter().any(|pid| alive(*pid)) {
            pause();
        }
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.ended && self.unmount().is_err() {
            // A lazy unmount takes effect when no process uses the mount any more.
            let _ = run(command_of("umount").arg("-l").arg(&self.at));
        }
    }
}

fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

/// Returns the mount option by which servers of databases, which do not run as root, may use the mount. A kernel mount
/// needs none.
pub(super) fn for_others() -> &'static str {
    if rustix::process::geteuid().is_root() { "allow_other" } else { "" }
}

/// Fails with `Absent` for a user who cannot mount `target`.
pub(super) fn needs_root(target: &dyn std::fmt::Display) -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(BenchError::Absent(format!("{target} requires root, to mount it")))
}

/// Returns whether a file system is mounted at this folder: its device differs from that of its parent.
pub fn is_mount_point(at: &Path) -> Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    let device = |path: &Path| fs::metadata(path).during("look at", path).map(|metadata| metadata.dev());
    Ok(device(at)? != device(at.parent().unwrap_or(at))?)
}

/// Returns the processes that have `/dev/fuse` open.
fn servers() -> Vec<u32> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|pid| serves(*pid)).collect()
}

fn serves(pid: u32) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    open.into_iter().any(|entry| fs::read_link(entry.path()).is_ok_and(|to| to == Path::new("/dev/fuse")))
}

/// Returns whether the process is running; a zombie is not.
fn alive(pid: u32) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat"));
    state.is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with('Z')))
}
