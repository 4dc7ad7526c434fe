//! A folder for copies of files of an image, which other users cannot enter and which does not outlive this process.
//!
//! Invariant: the folder has mode 0700 from its creation on, so that no other user opens a file in it, whatever the mode of that file.
//! Invariant: the folder is removed however the process ends, `SIGKILL` included. A keeper, a shell, waits for the end of a pipe
//! that only this process holds. A pipe that ends without a line means that the folder is left over.
//! Source: sh(1p) `read`, `trap`; pipe(7).

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::report::words;

/// Only the owner enters the folder.
const FOLDER_MODE: u32 = 0o700;
/// Only the owner reads and writes a copy.
const FILE_MODE: u32 = 0o600;

/// Removes the folder `$0` when its input ends without a line. Signals of the terminal are meant for the process that it watches.
const KEEPER: &str = r#"trap '' HUP INT QUIT TERM; cd /; read -r line || rm -rf -- "$0""#;

/// A folder that is removed with everything in it.
pub struct PrivateFolder {
    /// None once it is to be kept.
    folder: Option<TempDir>,
    keeper: Option<Child>,
}

impl PrivateFolder {
    /// Creates a folder in the directory for temporary files. Errors: those of creating it, with advice.
    pub fn new() -> io::Result<Self> {
        let permissions = Permissions::from_mode(FOLDER_MODE);
        let folder = tempfile::Builder::new().prefix("obento-").permissions(permissions).tempdir();
        let folder = folder.map_err(no_room)?;
        // Without a shell the folder still goes when this value is dropped.
        let keeper = start_keeper(folder.path()).ok();
        Ok(Self { folder: Some(folder), keeper })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.folder.as_ref().map_or(Path::new(""), TempDir::path)
    }

    /// Leaves the folder and its files in place.
    pub fn keep(mut self) {
        let _ = self.folder.take().map(TempDir::keep);
    }

    /// Creates the file `name` in it, which only the user can read.
    pub fn create(&self, name: impl AsRef<Path>) -> io::Result<(File, PathBuf)> {
        let path = self.path().join(name);
        create_private(&path).map(|file| (file, path))
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        // What cannot be removed, such as a file system that a program mounted there, is not this program's.
        drop(self.folder.take());
        // A line tells the keeper that nothing is left to remove: the name may soon belong to another process.
        if let Some(mut keeper) = self.keeper.take() {
            let _ = keeper.stdin.take().map(|mut pipe| pipe.write_all(b"\n"));
            let _ = keeper.wait();
        }
    }
}

/// Creates the file `path`, which only the user can read.
pub fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(FILE_MODE).open(path)
}

/// Explains why no file can be created for a program to work on.
pub fn no_room(error: io::Error) -> io::Error {
    let folder = std::env::temp_dir();
    let why = format!(
        "no file can be made in {} ({}): set TMPDIR to another folder",
        folder.display(),
        words(&error)
    );
    io::Error::new(error.kind(), why)
}

fn start_keeper(folder: &Path) -> io::Result<Child> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", KEEPER]).arg(std::path::absolute(folder)?);
    // Neither the caller's variables nor its terminal concern it. A group of its own keeps Ctrl-C away.
    command.env_clear().env("PATH", "/usr/bin:/bin").process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_private_folder_and_its_files_are_closed_to_other_users_and_go_together() {
        let folder = PrivateFolder::new().unwrap();
        let (_, path) = folder.create("shadow").unwrap();
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o7777;
        assert_eq!((mode(folder.path()), mode(&path)), (0o700, 0o600));
        drop(folder);
        assert!(!path.parent().unwrap().exists());
    }

    #[test]
    fn a_kept_folder_stays_and_its_keeper_ends() {
        let folder = PrivateFolder::new().unwrap();
        let (_, path) = folder.create("work").unwrap();
        folder.keep();
        assert!(path.exists());
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }
}
