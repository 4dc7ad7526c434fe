//! Images to change, on a disk and on a tmpfs of the host, and their checks.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use obento_testkit::oracle::{program, run};
use obento_testkit::scratch::memory_folder;
use obento_testkit::{Oracle, require};
use tempfile::TempDir;

/// The oracles of these tests.
pub const ORACLES: [Oracle; 2] = [Oracle::Program("mke2fs"), Oracle::Program("e2fsck")];

/// A folder with an empty ext4 image, `disk.img`. When it is dropped, e2fsck checks the image.
pub struct Disk {
    folder: TempDir,
}

impl Disk {
    /// Creates an image of `size` by mke2fs with `options`; `None` if an oracle is missing.
    pub fn new(size: &str, options: &[&str]) -> Option<Self> {
        Self::within(None, size, options)
    }

    /// Creates an image on the host's tmpfs, if it has one.
    pub fn on_tmpfs(size: &str) -> Option<Self> {
        Self::within(Some(&memory_folder()), size, &[])
    }

    fn within(parent: Option<&Path>, size: &str, options: &[&str]) -> Option<Self> {
        if !require(&ORACLES) {
            return None;
        }
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix("obento-change-");
        let folder = parent.map_or_else(|| builder.tempdir(), |parent| builder.tempdir_in(parent)).unwrap();
        let disk = Self { folder };
        run(program("mke2fs").args(["-q", "-F", "-t", "ext4"]).args(options).arg(disk.image()).arg(size))
            .unwrap();
        Some(disk)
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn image(&self) -> PathBuf {
        self.folder.path().join("disk.img")
    }

    pub fn command(&self, args: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        command.current_dir(self.folder()).args(args).env_clear().env("TZ", "UTC0").stdin(Stdio::null());
        command
    }

    pub fn obento(&self, args: &[impl AsRef<OsStr>]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs a command with `input`.
    pub fn obento_with(&self, args: &[impl AsRef<OsStr>], input: &[u8]) -> Output {
        let mut command = self.command(args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A program that does not read everything may close the pipe.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    /// Runs each of `lines`, words separated by spaces, and expects success without output.
    #[track_caller]
    pub fn quietly(&self, lines: &[&str]) {
        for line in lines {
            let words: Vec<_> = line.split(' ').collect();
            let output = self.obento(&words);
            let said = (text(&output.stdout), text(&output.stderr));
            assert_eq!((output.status.code(), said), (Some(0), Default::default()), "{line}");
        }
    }

    /// Runs a line, words separated by spaces, and expects this code, output and errors.
    #[track_caller]
    pub fn check(&self, line: &str, code: i32, stdout: &str, stderr: &str) {
        let output = self.obento(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(text(&output.stderr), stderr, "{line}");
        assert_eq!(text(&output.stdout), stdout, "{line}");
        assert_eq!(output.status.code(), Some(code), "{line}");
    }

    /// Returns the output of a reading command.
    #[track_caller]
    pub fn read(&self, line: &str) -> String {
        let output = self.obento(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(text(&output.stderr), "", "{line}");
        text(&output.stdout)
    }

    #[track_caller]
    pub fn fsck(&self) {
        let checked = run(program("e2fsck").args(["-f", "-n"]).arg(self.image()));
        assert!(checked.is_ok(), "{checked:?}");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.fsck();
        }
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
