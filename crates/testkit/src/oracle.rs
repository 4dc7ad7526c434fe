//! Oracles: programs and kernel mounts that a machine may lack.
//!
//! A test that requires one calls [`require`] first. If it is missing, the test prints `skipped: no NAME` and ends. The
//! line is also appended to the file in `OBENTO_SKIP_LOG`, so that a run can count them. With
//! `OBENTO_REQUIRE_ORACLES=1`, as in CI, a missing oracle fails the test.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

/// Something outside of obento that can verify its results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Oracle {
    /// A program in `PATH` or in the `sbin` folders of the system.
    Program(&'static str),
    /// Mounting an image through a loop device, which requires root and `/dev/loop-control`.
    LoopMount,
    /// Mounting through FUSE: `/dev/fuse`, as root or with `fusermount3`.
    Fuse,
    /// Running as root: device nodes, owners, trusted attributes.
    Root,
    /// A module of Python; `cargo xtask test` installs the packages.
    PythonModule(&'static str),
    /// A folder of damaged images in `OBENTO_CORPUS`; `cargo xtask test` downloads those of e2fsprogs.
    Corpus,
}

impl Oracle {
    fn name(self) -> &'static str {
        match self {
            Self::Program(name) | Self::PythonModule(name) => name,
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
            Self::PythonModule(name) => {
                find_program("python3").is_some()
                    && run(python().args(["-c", &format!("import {name}")])).is_ok()
            }
            Self::Corpus => corpus().is_some(),
        }
    }
}

/// Returns whether all of `oracles` are available. Otherwise reports the missing one, and fails the test in CI.
#[must_use]
pub fn require(oracles: &[Oracle]) -> bool {
    let Some(missing) = oracles.iter().find(|oracle| !oracle.is_present()) else { return true };
    report_missing(missing.name());
    false
}

/// Reports that a test ends because the kernel or machine lacks `name`. Fails the test in CI.
pub fn report_missing(name: &str) {
    let line = format!("skipped: no {name}\n");
    let strict = std::env::var_os("OBENTO_REQUIRE_ORACLES").is_some_and(|value| value != "0");
    assert!(!strict, "{name} is missing, but OBENTO_REQUIRE_ORACLES requires it");
    // The line is written directly to the stream, because the captured output of a passing test is discarded.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(log) = std::env::var_os("OBENTO_SKIP_LOG") {
        let log = fs::OpenOptions::new().append(true).create(true).open(log);
        log.and_then(|mut log| log.write_all(line.as_bytes())).expect("the skip log can be written");
    }
}

/// Returns the folder of damaged images in `OBENTO_CORPUS`, if it is set.
pub fn corpus() -> Option<PathBuf> {
    std::env::var_os("OBENTO_CORPUS").map(PathBuf::from).filter(|folder| folder.is_dir())
}

fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(sbin).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// The hash seed of directories in images. With the random seed of `mke2fs`, each run would be a different test.
const HASH_SEED: &str = "hash_seed=00112233-4455-6677-8899-aabbccddeeff";

/// Returns a command for an oracle program with a fixed environment: English, UTC, and a fixed seed for `mke2fs` unless
/// it has its own `-E`.
pub fn program(name: &str) -> Command {
    let mut command = Command::new(find_program(name).unwrap_or_else(|| name.into()));
    if name == "mke2fs" {
        command.args(["-E", HASH_SEED]);
    }
    command.env("LC_ALL", "C.UTF-8").env("TZ", "UTC").env("MKE2FS_SKIP_CHECK_MSG", "1");
    command
}

/// Returns a command for Python with the packages in the folder `OBENTO_PYTHON_PACKAGES`, if it is set.
pub fn python() -> Command {
    let mut command = program("python3");
    if let Some(folder) = std::env::var_os("OBENTO_PYTHON_PACKAGES") {
        command.env("PYTHONPATH", folder);
    }
    command
}

/// Runs `command`. Fails with its output unless it exits with 0.
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

/// Runs a shell command line in `folder`, which is also the home. Programs that create file systems are in its path.
pub fn shell(folder: &Path, line: &str) -> Result<Output> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    run(program("sh").args(["-c", line]).current_dir(folder).env("HOME", folder).env("PATH", path))
}

/// Runs the oracle `name` with `args`, by [`program`] and [`run`].
pub fn call<A: AsRef<OsStr>>(name: &str, args: impl IntoIterator<Item = A>) -> Result<Output> {
    run(program(name).args(args))
}

/// An image that the kernel has mounted through a loop device. It is unmounted on drop.
#[derive(Debug)]
pub struct LoopMount {
    _folder: TempDir,
    /// A path inside it is the mount point, whose name is fixed, so that programs see no random names.
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

    /// Returns the mount point.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Unmounts, after which the image is no longer written to. Fails if the unmount fails.
    pub fn unmount(self) -> Result<()> {
        let backing = self.backing_file();
        let before = backing.as_ref().and_then(|file| fs::read(file).ok());
        let mut result = Ok(());
        // While another thread starts a program, that program has the open files of this process until it runs.
        until(|| {
            result = call("umount", [&self.path]).map(drop);
            !matches!(&result, Err(error) if error.to_string().contains("busy"))
        });
        result?;
        // A process that creates a mount name space also has the mount for a moment.
        let is_free =
            until(|| backing.as_ref().and_then(|file| fs::read(file).ok()) != before || before.is_none());
        ensure!(is_free, "{} is unmounted, and its loop device is still in use", self.path.display());
        Ok(())
    }

    /// Returns the path of the kernel file that names the loop device's file while the device is in use.
    fn backing_file(&self) -> Option<PathBuf> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let path = self.path.to_str()?;
        let line = mounts.lines().find(|line| line.split(' ').nth(4) == Some(path))?;
        let device = line.split(" - ").nth(1)?.split(' ').nth(1)?;
        Some(format!("/sys/block/{}/loop/backing_file", device.strip_prefix("/dev/")?).into())
    }
}

/// Calls `is_done` for up to ten seconds. Returns whether it returned `true`.
pub fn until(mut is_done: impl FnMut() -> bool) -> bool {
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
        // The unmount is lazy, because a failing test may still have a file open, and the folder must not be removed
        // under the mount.
        let _ = program("umount").arg("-l").arg(&self.path).output();
    }
}
