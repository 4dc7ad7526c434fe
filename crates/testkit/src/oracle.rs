//! Second opinions: programs and kernel mounts that a machine may lack.
//!
//! A test that needs one asks [`require`] first. Where it is missing the test prints `skipped: no NAME` and ends; the
//! line is also appended to the file that `OBENTO_SKIP_LOG` names, so that a run can count them. With
//! `OBENTO_REQUIRE_ORACLES=1`, as in CI, a missing oracle fails the test.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

/// Something outside obento that can judge it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Oracle {
    /// A program, found in `PATH` or the system's `sbin`s.
    Program(&'static str),
    /// Mounting an image through a loop device, which takes root and `/dev/loop-control`.
    LoopMount,
    /// Mounting through FUSE: `/dev/fuse`, as root or with `fusermount3`.
    Fuse,
    /// Being root: device nodes, owners, trusted attributes.
    Root,
    /// A folder of damaged images named by `OBENTO_CORPUS`: `cargo xtask test` fetches those of e2fsprogs.
    Corpus,
}

impl Oracle {
    fn name(self) -> &'static str {
        match self {
            Self::Program(name) => name,
            Self::LoopMount => "loop mount",
            Self::Fuse => "FUSE",
            Self::Root => "root",
            Self::Corpus => "OBENTO_CORPUS",
        }
    }

    fn is_present(self) -> bool {
        match self {
            Self::Program(name) => find_program(name).is_some(),
            Self::LoopMount => {
                rustix::process::geteuid().is_root() && Path::new("/dev/loop-control").exists()
            }
            Self::Fuse => {
                let may = rustix::process::geteuid().is_root() || find_program("fusermount3").is_some();
                may && Path::new("/dev/fuse").exists()
            }
            Self::Root => rustix::process::geteuid().is_root(),
            Self::Corpus => corpus().is_some(),
        }
    }
}

/// Whether all of `oracles` are here. If not, says which is missing; in CI that is a failure.
#[must_use]
pub fn require(oracles: &[Oracle]) -> bool {
    let Some(missing) = oracles.iter().find(|oracle| !oracle.is_present()) else { return true };
    let line = format!("skipped: no {}\n", missing.name());
    let strict = std::env::var_os("OBENTO_REQUIRE_ORACLES").is_some_and(|value| value != "0");
    assert!(!strict, "{} is missing, and OBENTO_REQUIRE_ORACLES forbids to go on without it", missing.name());
    // Straight to the stream: a passing test's captured output is thrown away.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(log) = std::env::var_os("OBENTO_SKIP_LOG") {
        let log = fs::OpenOptions::new().append(true).create(true).open(log);
        log.and_then(|mut log| log.write_all(line.as_bytes())).expect("the skip log can be written");
    }
    false
}

/// The folder of damaged images, if `OBENTO_CORPUS` names one.
pub fn corpus() -> Option<PathBuf> {
    std::env::var_os("OBENTO_CORPUS").map(PathBuf::from).filter(|folder| folder.is_dir())
}

fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(sbin).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// By which directories of images sort their names. A random one, as `mke2fs` takes it, would make each run another test.
const HASH_SEED: &str = "hash_seed=00112233-4455-6677-8899-aabbccddeeff";

/// A command for an oracle program, with a fixed environment: English, UTC; `mke2fs` takes a fixed seed, unless it is
/// given a `-E` of its own.
pub fn program(name: &str) -> Command {
    let mut command = Command::new(find_program(name).unwrap_or_else(|| name.into()));
    if name == "mke2fs" {
        command.args(["-E", HASH_SEED]);
    }
    command.env("LC_ALL", "C.UTF-8").env("TZ", "UTC").env("MKE2FS_SKIP_CHECK_MSG", "1");
    command
}

/// Runs `command`; fails with its output unless it exits 0.
pub fn run(command: &mut Command) -> Result<Output> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output)
}

/// Runs a line of the shell in `folder`, which is the home of what it starts; programs that make file systems are in its path.
pub fn shell(folder: &Path, line: &str) -> Result<Output> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    run(program("sh").args(["-c", line]).current_dir(folder).env("HOME", folder).env("PATH", path))
}

/// [`program`] and [`run`] in one: runs oracle `name` with `args`.
pub fn call<A: AsRef<OsStr>>(name: &str, args: impl IntoIterator<Item = A>) -> Result<Output> {
    run(program(name).args(args))
}

/// An image mounted by the kernel through a loop device; unmounted on drop.
#[derive(Debug)]
pub struct LoopMount {
    _folder: TempDir,
    /// In it, since what is mounted goes by this name: programs that look at names see nothing random.
    path: PathBuf,
}

impl LoopMount {
    /// Mounts `image` with `options` of mount(8), for example `ro,noload`.
    pub fn new(image: &Path, options: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("volume");
        fs::create_dir(&path)?;
        let options = if options.is_empty() { "loop".to_owned() } else { format!("loop,{options}") };
        call("mount", [OsStr::new("-o"), options.as_ref(), image.as_ref(), path.as_ref()])?;
        Ok(Self { _folder: folder, path })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Unmounts, so that nothing more is written to the image, and says so if that fails.
    pub fn unmount(self) -> Result<()> {
        let backing = self.backing_file();
        let before = backing.as_ref().and_then(|file| fs::read(file).ok());
        let mut result = Ok(());
        // While another thread starts a program, that holds what is open here until it runs.
        until(|| {
            result = call("umount", [&self.path]).map(drop);
            !matches!(&result, Err(error) if error.to_string().contains("busy"))
        });
        result?;
        // And a process that begins a mount name space has it mounted for a moment more.
        let is_free =
            until(|| backing.as_ref().and_then(|file| fs::read(file).ok()) != before || before.is_none());
        ensure!(is_free, "{} is unmounted, and its loop device is still in use", self.path.display());
        Ok(())
    }

    /// Where the kernel tells which file its loop device is of, as long as that is in use.
    fn backing_file(&self) -> Option<PathBuf> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let path = self.path.to_str()?;
        let line = mounts.lines().find(|line| line.split(' ').nth(4) == Some(path))?;
        let device = line.split(" - ").nth(1)?.split(' ').nth(1)?;
        Some(format!("/sys/block/{}/loop/backing_file", device.strip_prefix("/dev/")?).into())
    }
}

/// Tries `is_done` for up to ten seconds. Whether it was.
fn until(mut is_done: impl FnMut() -> bool) -> bool {
    (0..1000).any(|_| {
        let done = is_done();
        if !done {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        done
    })
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        // Lazy: a failing test may still hold a file open, and the folder must not be removed from under the mount.
        let _ = program("umount").arg("-l").arg(&self.path).output();
    }
}
