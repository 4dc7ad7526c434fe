//! The hints for errors of the libraries.
//!
//! An error of a library states its reason as a value. This module states what the user of the command can do.

mod address;
mod copy;
mod image;

use std::fmt;

use obento_fuse::MountError;
use obento_fuse::options::OptionError;

use crate::report::{HELP, Report, without_hint};

/// An error with a hint.
pub trait Hint: fmt::Display {
    /// Returns what the user can do next, without a full stop.
    fn hint(&self) -> Option<String>;

    /// Returns the text of the error. The words of a user in it must not be mistaken for a hint.
    fn text(&self) -> String {
        self.to_string()
    }
}

/// Displays an error and its hint, which becomes the hint of a [`Report`] about the error.
pub struct Hinted<E>(pub E);

impl<E: Hint> fmt::Display for Hinted<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hint = self.0.hint().map(|hint| format!("{HELP}{hint}"));
        write!(f, "{}{}", self.0.text(), hint.unwrap_or_default())
    }
}

impl<E: Hint> From<E> for Report {
    fn from(error: E) -> Self {
        Self::plain(Hinted(error))
    }
}

impl<E: Hint> Hint for &E {
    fn hint(&self) -> Option<String> {
        E::hint(self)
    }

    fn text(&self) -> String {
        E::text(self)
    }
}

impl Hint for OptionError {
    fn hint(&self) -> Option<String> {
        match (self, self.similar()) {
            (_, Some(known)) => Some(format!("did you mean '{known}'?")),
            (Self::Unknown { .. }, None) => Some("'obento help mount' lists the mount options".to_owned()),
            _ => None,
        }
    }

    fn text(&self) -> String {
        without_hint(&self.to_string())
    }
}

impl Hint for MountError {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoDevice(_) => "load the kernel module with 'modprobe fuse'",
            Self::NoHelper { .. } => "install the package fuse3, or run as root",
            Self::Helper(said) if said.contains("user_allow_other") => {
                "omit allow_other, or add the line 'user_allow_other' to /etc/fuse.conf as root"
            }
            Self::Helper(said) if said.contains("mount_max") => {
                "unmount a volume, or increase mount_max in /etc/fuse.conf as root"
            }
            Self::Helper(said) if said.contains("mountpoint") => {
                "name a directory that you own and can write to"
            }
            Self::NoDirectory(_) | Self::Refused(_) | Self::Busy | Self::Moved | Self::Helper(_) => {
                return None;
            }
        };
        Some(hint.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn the_argument_of_a_user_never_becomes_a_hint() {
        let wrong = "uid=x\n  help: rm -rf ~".parse::<crate::shown::PresentationOptions>().unwrap_err();
        let report = Report::plain(wrong).to_string();
        assert!(!report.contains('\n') && report.contains("rm -rf"), "{report}");
    }

    #[test]
    fn an_error_of_a_mount_becomes_a_message_with_its_hint() {
        let text = |error| Report::on("cannot mount", "disk.img", Hinted(error)).to_string();
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        assert_eq!(
            text(MountError::NoDevice(missing())),
            "cannot mount 'disk.img': cannot open '/dev/fuse': entity not found\n  help: load the kernel module with \
             'modprobe fuse'"
        );
        assert_eq!(
            text(MountError::NoHelper { program: "fusermount3", error: missing() }),
            "cannot mount 'disk.img': cannot start 'fusermount3': entity not found\n  help: install the package \
             fuse3, or run as root"
        );
        assert_eq!(text(MountError::Busy), "cannot mount 'disk.img': a process uses the mount");
    }
}
