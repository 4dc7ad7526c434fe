//! The causes of failures, as reports show them.
//!
//! An error of a library states its reason as a value. This module states what the user of the command can do.

/// Implements [`Cause`] for types that state a reason without a hint.
macro_rules! plain {
    ($($type:ty),* $(,)?) => {
        $(impl Cause for $type {})*
    };
}

/// Implements [`Cause`] for errors some of whose variants contain another cause.
macro_rules! containing {
    ($($type:ty { $($variant:pat => $cause:expr),* $(,)? })*) => { $(
        impl $crate::cause::Cause for $type {
            fn inner(&self) -> Option<&dyn $crate::cause::Cause> {
                match self {
                    $($variant => Some($cause),)*
                    _ => None,
                }
            }
        }
    )* };
}

pub(crate) use containing;

mod address;
mod build;
mod copy;
mod host;
pub mod image;
mod volume;

use std::borrow::Cow;
use std::fmt;

use obento::image::ImageNotice;
use obento::provenance::Damage;
use obento_bench::BenchError;
use obento_fuse::MountError;
use obento_fuse::options::OptionError;
use rustyline::error::ReadlineError;

use crate::report::{Report, without_hint};

/// The cause of a failure.
pub trait Cause: fmt::Display {
    /// Returns the cause that this one contains, if it has one.
    fn inner(&self) -> Option<&dyn Cause> {
        None
    }

    /// Returns what the user can do next, without a full stop.
    fn hint(&self) -> Option<String> {
        self.inner()?.hint()
    }

    /// Returns whether the user stopped the work.
    fn is_stop(&self) -> bool {
        self.inner().is_some_and(Cause::is_stop)
    }

    /// Returns the text of the cause. The words of a user in it must not be mistaken for a hint.
    fn text(&self) -> String {
        self.to_string()
    }
}

/// A cause whose text names the operation and the object, so that `?` converts it to a report.
pub trait Complete: Cause {}

impl<E: Complete> From<E> for Report {
    fn from(error: E) -> Self {
        Self::plain(error)
    }
}

impl<C: Cause + ?Sized> Cause for &C {
    fn inner(&self) -> Option<&dyn Cause> {
        C::inner(self)
    }

    fn hint(&self) -> Option<String> {
        C::hint(self)
    }

    fn is_stop(&self) -> bool {
        C::is_stop(self)
    }

    fn text(&self) -> String {
        C::text(self)
    }
}

impl<C: Complete> Complete for &C {}

plain!(str, String, Cow<'_, str>, fmt::Arguments<'_>);
plain!(Damage, ImageNotice, ReadlineError, serde_json::Error);
containing! { BenchError { Self::Io { source, .. } => source } }

/// A cause in other words.
pub struct Worded<'a> {
    pub text: String,
    pub cause: &'a dyn Cause,
}

impl fmt::Display for Worded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Cause for Worded<'_> {
    fn inner(&self) -> Option<&dyn Cause> {
        Some(self.cause)
    }
}

impl Cause for OptionError {
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

impl Cause for MountError {
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
        let text = |error: MountError| Report::on("cannot mount", "disk.img", error).to_string();
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
