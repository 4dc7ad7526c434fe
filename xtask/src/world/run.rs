//! Programs, and the volume that judges unpack into.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};

/// Bytes of the volume: it is sparse.
const SIZE: u64 = 8 << 30;

/// Describes `program` with `args`, in English and UTC; programs of the administrator are in its path.
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

/// Runs a program to its end, however that is.
pub fn ran(program: impl AsRef<OsStr>, args: &[&OsStr]) -> Result<Output> {
    let shown = program.as_ref().to_owned();
    command(program, args).output().with_context(|| format!("cannot start {}", shown.display()))
}

/// Seconds of processor time that a judge may take: some archives are made to take all that there is.
const JUDGED: &str = "--cpu=3";

/// Runs a judge, which is ended after [`JUDGED`].
pub fn judged(program: &str, args: &[&OsStr]) -> Result<Output> {
    ran("prlimit", &[&[JUDGED.as_ref(), "--".as_ref(), program.as_ref()], args].concat())
}

/// Runs a program that must succeed.
pub fn output(program: impl AsRef<OsStr>, args: &[&OsStr]) -> Result<Output> {
    let output = ran(&program, args)?;
    ensure!(output.status.success(), "{} {args:?}: {}", program.as_ref().display(), last_line(&output));
    Ok(output)
}

/// Returns what a program prints that must succeed.
pub fn text(program: impl AsRef<OsStr>, args: &[&OsStr]) -> Result<String> {
    Ok(String::from_utf8_lossy(&output(program, args)?.stdout).trim_end().to_owned())
}

/// Returns the last line that a program printed as an error, or how it ended.
pub fn last_line(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().rfind(|line| !line.trim().is_empty() && !line.starts_with("  help"));
    line.map_or_else(|| output.status.to_string(), |line| line.trim().replace('|', "/"))
}

/// A mount that ends with this.
pub struct Mount(PathBuf);

impl Mount {
    /// Mounts `image`, which is a copy, at `at` with the further arguments `args`. The kernel can replay a log even for reading, since it may write to
    /// the device.
    pub fn new(image: &Path, at: &Path, args: &[&str]) -> Result<Self> {
        fs::create_dir_all(at)?;
        let device = text("losetup", &["--show".as_ref(), "-f".as_ref(), image.as_os_str()])?;
        let args: Vec<&OsStr> =
            args.iter().map(AsRef::as_ref).chain([device.as_ref(), at.as_os_str()]).collect();
        let mounted = output("mount", &args);
        // The device is free when the mount ends.
        output("losetup", &["-d".as_ref(), device.as_ref()])?;
        mounted.map(|_| Self(at.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = ran("umount", &[self.0.as_os_str()]);
    }
}

/// A folder for what one item needs, on an ext4 volume of its own, which stores whatever a tree may have.
pub struct Ground {
    /// The command obento.
    obento: PathBuf,
    folder: PathBuf,
    _mount: Mount,
    _image: Removed,
}

/// A folder that is removed when this is dropped.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Ground {
    /// Makes the volume and mounts it.
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

    /// Returns an empty folder of this name.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.path(name)?;
        fs::create_dir(&folder)?;
        Ok(folder)
    }

    /// Returns the path of `name`, at which nothing is.
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
