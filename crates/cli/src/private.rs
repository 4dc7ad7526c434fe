//! A folder for copies of files of an image that other users cannot enter and that does not outlive this process.
//!
//! Invariant: the folder has mode 0700 from its creation on. No other user can open a file in it, whatever the mode of
//! the file.
//! Invariant: the folder is removed however the process ends, even by `SIGKILL`. A keeper, which is a shell, waits for the end of a
//! pipe that only this process has open. If the pipe ends without a line, the folder is left over and the keeper removes it.
//! Source: sh(1p) `read`, `trap`; pipe(7).

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::report::words;

/// Only the owner can enter the folder.
const FOLDER_MODE: u32 = 0o700;
/// Only the owner can read and write a copy.
const FILE_MODE: u32 = 0o600;

/// Removes the folder `$0` if the input ends without a line. Signals of the terminal are meant for the process that it watches.
const KEEPER: &str = r#"trap '' HUP INT QUIT TERM; cd /; read -r line || rm -rf -- "$0""#;

/// A folder that is removed with everything in it.
pub struct PrivateFolder {
    /// `None` after [`PrivateFolder::keep`].
    folder: Option<TempDir>,
    keeper: Option<Child>,
}

impl PrivateFolder {
    /// Creates a folder in the directory for temporary files.
    pub fn new() -> io::Result<Self> {
        let permissions = Permissions::from_mode(FOLDER_MODE);
        let folder = tempfile::Builder::new().prefix("obento-").permissions(permissions).tempdir();
        let folder = folder.map_err(no_room)?;
        // Without a shell, the folder is still removed when this value is dropped.
        let keeper = start_keeper(folder.path()).ok();
        Ok(Self { folder: Some(folder), keeper })
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        self.folder.as_ref().map_or(Path::new(""), TempDir::path)
    }

    /// Keeps the folder and its files after the process.
    pub fn keep(mut self) {
        let _ = self.folder.take().map(TempDir::keep);
    }

    /// Creates the file `name` in the folder, which only the user can read.
    pub fn create(&self, name: impl AsRef<Path>) -> io::Result<(File, PathBuf)> {
        let path = self.path().join(name);
        create_private(&path).map(|file| (file, path))
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        // The program may have mounted a file system there; what cannot be removed stays.
        drop(self.folder.take());
        // The line signals the keeper that nothing is left to remove: another process may soon use the name.
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
        "cannot create a file in {} ({}): set TMPDIR to another directory",
        folder.display(),
        words(&error)
    );
    io::Error::new(error.kind(), why)
}

fn start_keeper(folder: &Path) -> io::Result<Child> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", KEEPER]).arg(std::path::absolute(folder)?);
    // The keeper needs neither the caller's variables nor its terminal. Its own process group keeps Ctrl-C away.
    command.env_clear().env("PATH", "/usr/bin:/bin").process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_private_folder_and_its_files_are_closed_to_other_users_and_removed_together() {
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
