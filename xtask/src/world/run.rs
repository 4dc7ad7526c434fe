//! Programs, and the volume into which judges unpack.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};

/// The size of the sparse volume.
const SIZE: u64 = 8 << 30;

/// Returns a command of `program` with `args`, in English and UTC, with the administrator's folders in its path.
pub fn command(program: impl AsRef<OsStr>, args: &[&OsStr]) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .args(args)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .env("LC_ALL", "C.UTF-8")
        .env("TZ", "UTC");
    command.stdin(std::process::Stdio::null());
    command
}

/// Runs a program, and returns its output even if it fails.
pub fn ran(program: impl AsRef<OsStr>, args: &[&OsStr]) -> Result<Output> {
    let shown = program.as_ref().to_owned();
    command(program, args).output().with_context(|| format!("cannot start {}", shown.display()))
}

/// The processor time limit of a judge in seconds, because some archives are created to use all resources.
const JUDGED: &str = "--cpu=3";

/// Runs a judge, which is killed after [`JUDGED`].
pub fn judged(program: &str, args: &[&OsStr]) -> Result<Output> {
    ran("prlimit", &[&[JUDGED.as_ref(), "--".as_ref(), program.as_ref()], args].concat())
}

/// Runs a program that must succeed.
pub fn output(program: impl AsRef<OsStr>, args: &[&OsStr]) -> Result<Output> {
    let output = ran(&program, args)?;
    ensure!(output.status.success(), "{} {args:?}: {}", program.as_ref().display(), last_line(&output));
    Ok(output)
}

/// Returns the output of a program that must succeed.
pub fn text(program: impl AsRef<OsStr>, args: &[&OsStr]) -> Result<String> {
    Ok(String::from_utf8_lossy(&output(program, args)?.stdout).trim_end().to_owned())
}

/// Returns the last error line of a program, or its exit status.
pub fn last_line(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().rfind(|line| !line.trim().is_empty() && !line.starts_with("  help"));
    line.map_or_else(|| output.status.to_string(), |line| line.trim().replace('|', "/"))
}

/// A mount, which ends on drop.
pub struct Mount(PathBuf);

impl Mount {
    /// Mounts `image`, which is a copy, at `at` with the further arguments `args`. The kernel may replay a log even for
    /// a read-only mount, because it may write to the device.
    pub fn new(image: &Path, at: &Path, args: &[&str]) -> Result<Self> {
        fs::create_dir_all(at)?;
        let device = text("losetup", &["--show".as_ref(), "-f".as_ref(), image.as_os_str()])?;
        let args: Vec<&OsStr> =
            args.iter().map(AsRef::as_ref).chain([device.as_ref(), at.as_os_str()]).collect();
        let mounted = output("mount", &args);
        // The device is freed when the mount ends.
        output("losetup", &["-d".as_ref(), device.as_ref()])?;
        mounted.map(|_| Self(at.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = ran("umount", &[self.0.as_os_str()]);
    }
}

/// A folder for the files of one item, on a private ext4 volume, which stores all attributes.
pub struct ItemFolder {
    /// The obento program.
    obento: PathBuf,
    folder: PathBuf,
    _mount: Mount,
    _image: Removed,
}

/// A folder that is removed on drop.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl ItemFolder {
    /// Creates the volume and mounts it.
    pub fn new(obento: PathBuf) -> Result<Self> {
        let outside =
            PathBuf::from(text("mktemp", &["-d".as_ref(), "-t".as_ref(), "obento-world-XXXXXX".as_ref()])?);
        let (image, folder) = (outside.join("ground"), outside.join("mnt"));
        let removed = Removed(outside);
        fs::File::create(&image)?.set_len(SIZE)?;
        output("mke2fs", &["-q".as_ref(), "-t".as_ref(), "ext4".as_ref(), image.as_os_str()])?;
        let mount = Mount::new(&image, &folder, &["-t", "ext4"])?;
        Ok(Self { obento, folder, _mount: mount, _image: removed })
    }

    /// Returns an empty folder with this name.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.path(name)?;
        fs::create_dir(&folder)?;
        Ok(folder)
    }

    /// Returns the path `name`, at which nothing exists.
    pub fn path(&self, name: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        match path.symlink_metadata() {
            Ok(meta) if meta.is_dir() => fs::remove_dir_all(&path)?,
            Ok(_) => fs::remove_file(&path)?,
            Err(_) => {}
        }
        Ok(path)
    }

    /// Runs obento.
    pub fn obento(&self, args: &[&OsStr]) -> Result<Output> {
        ran(&self.obento, args)
    }
}
