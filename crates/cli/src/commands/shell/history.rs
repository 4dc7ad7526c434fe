//! The file with the lines that the user typed.
//!
//! Root may have the variable `HOME` of another user, who could replace the file by a link to a file of root.
//! Invariant: the history is used only if no other user can replace the file or a directory above it, and if the file
//! belongs to root or to the user of this process.
//! Source: XDG base directory specification, `XDG_STATE_HOME`.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use obento::base::Name;
use obento::host::{HostDir, HostError, SystemErrno};

/// The name of the file.
const FILE: &[u8] = b"history";

/// Returns the file of the history, whose directory exists. Returns `None` if it cannot be used safely.
pub fn file() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty()).map(PathBuf::from);
    let state = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")))?;
    within(&state.join("obento"))
}

fn within(directory: &Path) -> Option<PathBuf> {
    let dir = trusted(directory).ok()?;
    // Another user can create files in a sticky directory.
    let is_shared = rustix::fs::fstat(dir.as_fd()).is_ok_and(|stat| stat.st_mode & 0o022 != 0);
    let name = Name::new(FILE).ok().filter(|_| !is_shared)?;
    let is_usable = match dir.open_regular(name) {
        Ok(Some(file)) => {
            let ours = [0, rustix::process::geteuid().as_raw()];
            file.metadata().is_ok_and(|file| ours.contains(&file.uid()))
        }
        Ok(None) => false,
        // The history does not exist at first.
        Err(error) => error.errno() == Some(SystemErrno::NOENT),
    };
    is_usable.then(|| dir.child(name))
}

/// Opens a trusted directory. Missing directories are created with mode 0700, as the specification requires.
fn trusted(path: &Path) -> Result<HostDir, HostError> {
    let error = match HostDir::open_trusted(path) {
        Err(error) if error.errno() == Some(SystemErrno::NOENT) => error,
        opened => return opened,
    };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let name = path.file_name().map(OsStr::as_bytes).and_then(|name| Name::new(name).ok());
    let (Some(parent), Some(name)) = (parent, name) else { return Err(error) };
    trusted(parent)?.make_private(name)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;

    #[test]
    fn missing_directories_of_the_history_are_created_for_the_user_alone() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join(".local/state/obento");
        let file = within(&directory).unwrap();
        assert_eq!(file, directory.canonicalize().unwrap().join("history"));
        assert_eq!(directory.metadata().unwrap().mode() & 0o777, 0o700);
        fs::write(&file, "ls\n").unwrap();
        assert_eq!(within(&directory), Some(file));
    }

    #[test]
    fn a_history_that_another_user_can_replace_is_neither_read_nor_written() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("state/obento");
        let file = within(&directory).unwrap();
        let victim = home.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, &file).unwrap();
        assert_eq!(within(&directory), None, "a link");
        fs::remove_file(&file).unwrap();
        for mode in [0o777, 0o775, 0o1777] {
            fs::set_permissions(&directory, Permissions::from_mode(mode)).unwrap();
            assert_eq!(within(&directory), None, "{mode:o}");
        }
        fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
        if !rustix::process::geteuid().is_root() {
            return;
        }
        fs::write(&file, "ls\n").unwrap();
        for foreign in [&file, &directory, &home.path().join("state")] {
            chown(foreign, Some(1), None).unwrap();
            assert_eq!(within(&directory), None, "{foreign:?}");
            chown(foreign, Some(0), None).unwrap();
        }
        // Nothing is created for another user, either.
        let other = home.path().join("other");
        fs::create_dir(&other).unwrap();
        chown(&other, Some(1), None).unwrap();
        assert_eq!(within(&other.join(".local/state/obento")), None);
        assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
    }
}
