//! Temporary names of files that will replace other files.
//!
//! A temporary name contains a checksum of the inode number of the directory and of the final name. A user does not
//! choose such a name by accident. If a file with this name exists, a killed operation on the same file has therefore
//! left it, and the next such operation removes it. If the removal is not permitted, the file stays, and the operation
//! uses another temporary name.

use obento_base::crc::crc32c;
use obento_base::{Error, FileKind, Name, NameBuf, Result};
use obento_vfs::{Caller, Node};

/// The prefix of all temporary names.
pub(crate) const PREFIX: &str = ".obento-unfinished-";

/// Returns the temporary name in `dir` for a file that will replace `name`. The temporary name may be in use.
pub fn unfinished_name(dir: &Node, name: &Name) -> Result<NameBuf> {
    nth(dir, name, 0)
}

/// Returns a free name in `dir` for a file that will replace `name`. Removes the file that a killed operation
/// has left, unless this file is a directory or `is_own` returns `true` for its name.
///
/// # Errors
///
/// - The errors of looking up a name and of removing the file. Exception: if the removal fails with `NotPermitted`, the
///   call uses another name.
/// - `Exists`: all 65,536 candidate names are in use.
///
/// ```
/// use std::sync::Arc;
/// use obento::{Volume, tmpfs};
/// use obento::base::Name;
/// use obento::env::SystemClock;
/// use obento::host::{free_name, unfinished_name};
///
/// let volume = Volume::new(Arc::new(tmpfs::Tmpfs::new(tmpfs::Options::new(Arc::new(SystemClock)))));
/// let (root, name) = (volume.root(), Name::new(b"file").unwrap());
/// assert_eq!(free_name(&root, name, |_| false)?, unfinished_name(&root, name)?);
/// # Ok::<(), obento::Error>(())
/// ```
pub fn free_name(dir: &Node, name: &Name, is_own: impl Fn(&Name) -> bool) -> Result<NameBuf> {
    for attempt in 0..=u32::from(u16::MAX) {
        let candidate = nth(dir, name, attempt)?;
        let kind = match dir.lookup(&candidate) {
            Err(Error::NotFound) => return Ok(candidate),
            found => found?.kind()?,
        };
        if attempt > 0 || kind == FileKind::Directory || is_own(&candidate) {
            continue;
        }
        match dir.vfs().unlink(&Caller::Owner, dir, &candidate) {
            Ok(()) => return Ok(candidate),
            // The file may not be removed.
            Err(Error::NotPermitted) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::Exists)
}

fn nth(dir: &Node, name: &Name, attempt: u32) -> Result<NameBuf> {
    let sum = crc32c(crc32c(!0, &dir.ino().0.to_le_bytes()), name.as_bytes());
    let text = match attempt {
        0 => format!("{PREFIX}{sum:08x}"),
        _ => format!("{PREFIX}{sum:08x}-{attempt}"),
    };
    Name::new(text.as_bytes()).map(Name::to_buf).map_err(|_| Error::Invalid)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use obento_base::Mode;
    use obento_driver::NewNode;
    use obento_env::SystemClock;

    use super::*;
    use obento_open::Volume;
    use obento_tmpfs as tmpfs;

    fn make(dir: &Node, name: &Name, kind: FileKind) {
        let new =
            NewNode { kind, mode: Mode::new(0o755), uid: 0, gid: 0, rdev: Default::default(), target: b"" };
        dir.vfs().create(&Caller::Owner, dir, name, &new).unwrap();
    }

    #[test]
    fn leftovers_of_a_killed_command_are_removed_and_files_of_the_user_stay() {
        let volume = Volume::new(Arc::new(tmpfs::Tmpfs::new(tmpfs::Options::new(Arc::new(SystemClock)))));
        let root = volume.root();
        let name = |text: &str| Name::new(text.as_bytes()).unwrap().to_buf();
        let (one, other) = (name("one"), name("other"));
        let left = unfinished_name(&root, &one).unwrap();
        assert_ne!(left, unfinished_name(&root, &other).unwrap());
        make(&root, &left, FileKind::Regular);
        make(&root, &unfinished_name(&root, &other).unwrap(), FileKind::Directory);
        make(&root, &name(".obento-unfinished-copy"), FileKind::Regular);
        let own = free_name(&root, &one, |name| *name == *left).unwrap();
        assert_eq!(own.as_bytes(), [left.as_bytes(), b"-1"].concat());
        assert!(root.lookup(&left).is_ok());
        assert_eq!(free_name(&root, &one, |_| false).unwrap(), left);
        assert_eq!(root.lookup(&left).unwrap_err(), Error::NotFound);
        assert!(free_name(&root, &other, |_| false).unwrap().as_bytes().ends_with(b"-1"));
        assert!(root.lookup(&name(".obento-unfinished-copy")).is_ok());
    }
}
