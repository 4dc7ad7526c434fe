//! A folder for copies of files of an image that other users cannot enter and that does not outlive this process.
//!
//! Invariant: the folder has mode 0700 from its creation on. No other user can open a file in it, whatever the mode of
//! the file.
//! Invariant: the folder is removed however the process ends, even by `SIGKILL`. A keeper, which is a shell, waits for the end of a
//! pipe that only this process has open. If the pipe ends without a line, the folder is left over and the keeper removes it.
//! Invariant: only the folder that was created is emptied. Both processes have it open, since another user may be able to
//! give its name to another directory.
//! Source: sh(1p) `cd`, `pwd`, `read`, `trap`; pipe(7); proc_pid_fd(5); proc_pid_mountinfo(5).

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use obento::base::Name;
use obento::host::{HostDir, PrivateDir};

use crate::report::{subject, words};

/// Removes the folder `$0`, its working directory, if the input ends without a line. The directory that contains it is the
/// standard output. If the program mounted a file system in the folder, only files go. The list of mounts escapes bytes of
/// the path, but not of the name, unless the user renamed the folder. The names can be too many for one command. The
/// program can outlive the process and still create files, so that several attempts follow. Signals of the terminal are
/// meant for the process that it watches.
const KEEPER: &str = r#"trap '' HUP INT QUIT TERM
read -r line && exit
for pause in 1 1 2 6 0; do
here=$(pwd -P) how=-rf
here=${here##*/}
case $here in ''|*[[:space:]\\]*) how=-f ;; esac
while read -r id above device root point rest; do case $point in */"$here"/*) how=-f ;; esac; done < /proc/self/mountinfo
printf '%s\0' ./* ./.[!.]* ./..?* | xargs -0 rm $how -- || rm $how -- ./* ./.[!.]* ./..?*
(cd /proc/self/fd/1 && rmdir -- "$0") && exit
sleep $pause
done"#;

/// A folder that is removed with everything in it.
pub struct PrivateFolder {
    folder: PrivateDir,
    path: PathBuf,
    is_kept: bool,
    keeper: Option<Child>,
}

impl PrivateFolder {
    /// Creates a folder in the directory for temporary files. Fails if another user can replace files in this directory,
    /// or in one above it.
    pub fn new() -> io::Result<Self> {
        Self::within(&std::env::temp_dir())
    }

    fn within(directory: &Path) -> io::Result<Self> {
        let folder = PrivateDir::within(directory, "obento-");
        let folder = folder.map_err(|error| match error.errno() {
            Some(errno) => no_room(directory, errno.into()),
            None => no_room(directory, io::Error::other(error)),
        })?;
        // Without a shell, the folder is still removed when this value is dropped.
        let keeper = start_keeper(folder.parent(), folder.name(), folder.dir()).ok();
        Ok(Self { path: folder.path(), folder, is_kept: false, keeper })
    }

    /// Returns the path of the folder, for programs.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the open folder. What has its path by now may be another directory.
    pub fn dir(&self) -> &HostDir {
        self.folder.dir()
    }

    /// Keeps the folder and its files after the process.
    pub fn keep(mut self) {
        self.is_kept = true;
    }

    /// Creates the file `name` in the folder, which only the user can read. Returns also its path, for programs.
    pub fn create(&self, name: impl AsRef<OsStr>) -> io::Result<(File, PathBuf)> {
        let name = name.as_ref();
        let file = self.dir().create_private(Name::new(name.as_bytes()).map_err(io::Error::other)?)?;
        Ok((file, self.path.join(name)))
    }

    /// Opens the file `name` of the folder after a program had it, or returns `None` if it is not a regular file.
    pub fn open(&self, name: impl AsRef<OsStr>) -> io::Result<Option<File>> {
        let name = Name::new(name.as_ref().as_bytes()).map_err(io::Error::other)?;
        Ok(self.dir().open_regular(name)?)
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        // The program may have mounted a file system there; what cannot be removed stays.
        let is_done = self.is_kept || self.folder.remove().is_ok();
        if let Some(mut keeper) = self.keeper.take() {
            // The line signals the keeper that nothing is left to remove. Without it, the keeper tries the same.
            let pipe = keeper.stdin.take();
            if is_done {
                let _ = pipe.map(|mut pipe| pipe.write_all(b"\n"));
                let _ = keeper.wait();
            }
        }
    }
}

/// Explains why no file can be created in `directory` for a program to work on.
pub fn no_room(directory: &Path, error: io::Error) -> io::Error {
    let why = format!(
        "cannot create a file in {}: {}\n  help: set TMPDIR to another directory",
        subject(directory.as_os_str().as_bytes()),
        words(&error)
    );
    io::Error::new(error.kind(), why)
}

fn start_keeper(parent: &HostDir, name: &Name, folder: &HostDir) -> io::Result<Child> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", KEEPER]).arg(OsStr::from_bytes(name.as_bytes()));
    command.current_dir(format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd()));
    // The keeper needs neither the caller's variables nor its terminal. Its own process group keeps Ctrl-C away.
    command.env_clear().env("PATH", "/usr/bin:/bin").process_group(0);
    command.stdin(Stdio::piped()).stdout(parent.as_fd().try_clone_to_owned()?).stderr(Stdio::null()).spawn()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

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

    /// Waits until the keeper of `folder`, whose process was killed, has done its work.
    fn after_a_kill(mut folder: PrivateFolder) {
        let mut keeper = folder.keeper.take().unwrap();
        drop(keeper.stdin.take());
        keeper.wait().unwrap();
        folder.keep();
    }

    #[test]
    fn the_keeper_removes_the_folder_and_its_hidden_files() {
        let outer = tempfile::tempdir().unwrap();
        let folder = PrivateFolder::within(outer.path()).unwrap();
        for name in ["f", ".hidden", "..odd", "-rf", "a b"] {
            folder.create(name).unwrap();
        }
        std::fs::create_dir_all(folder.path().join("d/e")).unwrap();
        after_a_kill(folder);
        assert_eq!(std::fs::read_dir(outer.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_keeper_removes_folders_in_a_directory_with_any_name() {
        for name in ["a b", "a\\b", "a\nb", "*"] {
            let outer = tempfile::tempdir().unwrap();
            let directory = outer.path().join(name);
            std::fs::create_dir(&directory).unwrap();
            let folder = PrivateFolder::within(&directory).unwrap();
            std::fs::create_dir_all(folder.path().join("d/e")).unwrap();
            after_a_kill(folder);
            assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0, "{name:?}");
        }
    }

    #[test]
    fn the_keeper_removes_more_names_than_one_command_can_have() {
        let outer = tempfile::tempdir().unwrap();
        let folder = PrivateFolder::within(outer.path()).unwrap();
        // The limit is a quarter of that of the stack: usually 2 MiB.
        for number in 0..10_000 {
            folder.create(format!("{number:0240}")).unwrap();
        }
        after_a_kill(folder);
        assert_eq!(std::fs::read_dir(outer.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_keeper_removes_files_that_a_program_creates_after_the_end_of_the_process() {
        let outer = tempfile::tempdir().unwrap();
        let folder = PrivateFolder::within(outer.path()).unwrap();
        let at = folder.path().to_owned();
        std::thread::scope(|threads| {
            // A program that is still writing while the keeper works.
            threads.spawn(|| {
                (0..300).for_each(|number| drop(std::fs::write(at.join(format!("f{number}")), "x")));
            });
            after_a_kill(folder);
        });
        assert_eq!(std::fs::read_dir(outer.path()).unwrap().count(), 0);
    }

    #[test]
    fn only_the_folder_itself_is_removed_if_another_directory_has_its_name() {
        for is_killed in [false, true] {
            let outer = tempfile::tempdir().unwrap();
            let victim = outer.path().join("victim");
            std::fs::create_dir(&victim).unwrap();
            std::fs::write(victim.join("file"), "precious").unwrap();
            let folder = PrivateFolder::within(outer.path()).unwrap();
            folder.create("shadow").unwrap();
            let moved = outer.path().join("moved");
            std::fs::rename(folder.path(), &moved).unwrap();
            std::os::unix::fs::symlink(&victim, folder.path()).unwrap();
            if is_killed {
                after_a_kill(folder);
            } else {
                drop(folder);
            }
            assert_eq!(std::fs::read(victim.join("file")).unwrap(), b"precious");
            assert_eq!(std::fs::read_dir(&moved).unwrap().count(), 0, "the copy stays");
        }
    }

    #[test]
    fn no_folder_is_created_where_another_user_can_replace_it() {
        let outer = tempfile::tempdir().unwrap();
        for mode in [0o777, 0o775] {
            std::fs::set_permissions(outer.path(), Permissions::from_mode(mode)).unwrap();
            let error = PrivateFolder::within(outer.path()).err().unwrap().to_string();
            assert!(error.contains("another user can replace files in '"), "{error}");
        }
        std::fs::set_permissions(outer.path(), Permissions::from_mode(0o1777)).unwrap();
        assert!(PrivateFolder::within(outer.path()).is_ok());
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
