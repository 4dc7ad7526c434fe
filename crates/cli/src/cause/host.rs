//! The hints for errors of the host.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use obento::fs::FsError;
use obento::host::{HostError, SelectionError, SystemErrno, UnpackError, User, interrupt};

use super::Cause;
use crate::report::{HOST_IS_FULL, shell_word};

impl Cause for io::Error {
    fn inner(&self) -> Option<&dyn Cause> {
        let inner = self.get_ref()?;
        let host = inner.downcast_ref::<HostError>().map(|error| error as &dyn Cause);
        let limit = || inner.downcast_ref::<UnpackError>().map(|error| error as &dyn Cause);
        let volume = || inner.downcast_ref::<FsError>().map(|error| error as &dyn Cause);
        host.or_else(limit).or_else(volume)
    }

    fn hint(&self) -> Option<String> {
        match (self.inner(), self.kind()) {
            (Some(error), _) => error.hint(),
            (None, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                Some(HOST_IS_FULL.to_owned())
            }
            (None, _) => None,
        }
    }

    fn is_stop(&self) -> bool {
        let is_signal = self.kind() == io::ErrorKind::Interrupted || interrupt::is_stop(self);
        is_signal || self.inner().is_some_and(Cause::is_stop)
    }
}

impl Cause for HostError {
    fn inner(&self) -> Option<&dyn Cause> {
        match self {
            Self::Unpack { error, .. } => Some(error),
            _ => None,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::System { errno, .. } => return io::Error::from(*errno).hint(),
            Self::NoBackend { .. } => "use --io buffered, which every host supports",
            Self::InUse { user, .. } => return Some(end_of_use(user)),
            Self::IsSource { .. } => "name another target",
            Self::ForeignLink { .. } => "name the target of the link",
            Self::ForeignFifo { .. } => "name another file, or use a pipe",
            Self::ForeignDevice { .. } => "name another file",
            Self::Packed { .. } => "unpack the file first",
            Self::Unselected { reason, .. } => return selection(reason),
            _ => return self.inner()?.hint(),
        };
        Some(hint.to_owned())
    }

    fn is_stop(&self) -> bool {
        matches!(self, Self::Stopped | Self::System { errno: SystemErrno::INTR, .. })
    }
}

impl Cause for UnpackError {
    fn hint(&self) -> Option<String> {
        let option = match self {
            Self::Bytes { .. } => "--max-unpacked",
            Self::Memory { .. } => "--unpack-memory",
        };
        Some(format!("use {option} SIZE to allow more"))
    }
}

/// Returns how to end the use of an image.
fn end_of_use(user: &User) -> String {
    let word = |path: &Path| shell_word(path.as_os_str().as_bytes());
    match user {
        User::Loop { device, mount: None } => format!("detach it: losetup -d {}", word(device)),
        User::Loop { device, mount: Some(mount) } => {
            format!("unmount it: umount {}; losetup -d {}", word(mount), word(device))
        }
        User::Mount(mount) => format!("unmount it: umount {}", word(mount)),
        User::Device(_) => "stop that device first".to_owned(),
        User::Ourselves => "close the image first".to_owned(),
        User::Process { name, .. } if name == "obento mount" => {
            "unmount the volume: obento umount DIR ('obento mount --status' lists the mounts)".to_owned()
        }
        User::Process { .. } | User::Unknown => "try again after that process ends".to_owned(),
    }
}

fn selection(reason: &SelectionError) -> Option<String> {
    match reason {
        SelectionError::NotALayout => {
            Some("omit 'oci:' to store the directory, or the files of the archive".to_owned())
        }
        SelectionError::NoImage => None,
        SelectionError::SeveralImages { names, .. } => {
            Some(format!("select an image with --image NAME; the names are {}", names.join(", ")))
        }
        SelectionError::NoSuchImage { names, .. } if names.is_empty() => Some("omit --image".to_owned()),
        SelectionError::NoSuchImage { names, .. } => Some(format!("use one of {}", names.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_for_an_image_in_use_ends_the_use() {
        let loop_device =
            |mount: Option<&str>| User::Loop { device: "/dev/loop7".into(), mount: mount.map(Into::into) };
        assert_eq!(end_of_use(&loop_device(None)), "detach it: losetup -d /dev/loop7");
        assert_eq!(
            end_of_use(&loop_device(Some("/mnt/a b"))),
            "unmount it: umount '/mnt/a b'; losetup -d /dev/loop7"
        );
        let process = |name: &str| User::Process { pid: 7, name: name.into() };
        assert!(end_of_use(&process("obento mount")).contains("obento umount DIR"));
        assert_eq!(end_of_use(&process("qemu")), "try again after that process ends");
    }

    #[test]
    fn an_error_inside_an_error_of_the_standard_library_keeps_its_hint() {
        let limit = io::Error::from(UnpackError::Bytes { limit: 1 });
        assert_eq!(limit.hint().unwrap(), "use --max-unpacked SIZE to allow more");
        let link = io::Error::from(HostError::ForeignLink { path: "a".into() });
        assert_eq!(link.hint().unwrap(), "name the target of the link");
        let full = io::Error::from(FsError::new("write", "/a", obento::Error::NoSpace));
        assert!(full.hint().unwrap().contains("obento resize"));
    }

    #[test]
    fn a_signal_is_recognised_in_every_error_of_the_host() {
        assert!(interrupt::stopped().is_stop());
        assert!(HostError::system("read", "a", SystemErrno::INTR).is_stop());
        assert!(io::Error::from(HostError::system("read", "a", SystemErrno::INTR)).is_stop());
        assert!(io::Error::from(HostError::Stopped).is_stop());
        assert!(!io::Error::other("the server stopped working").is_stop());
    }
}
