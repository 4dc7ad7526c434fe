//! The words of an error: what failed, on which image and path, why, and what to do.
//!
//! `obento: cannot list 'disk.img:/etc': directory 12: block 3 is a hole`, and on a line of its own what to do.

use std::fmt;

use obento::{Access, Errno, Image, Notice, uuid_text};

use crate::escape::{Style, escape};

/// An error as a person reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Empty where the cause says it all.
    what: String,
    cause: String,
    help: Option<String>,
}

impl Report {
    /// `what` failed because of `cause`. `what` begins with `cannot`; names in it go through [`subject`]. Where the host's
    /// disk is full it says so.
    pub fn new(what: impl Into<String>, cause: impl fmt::Display) -> Self {
        let cause = words(cause);
        let help = room(&cause).map(str::to_owned);
        Self { what: what.into(), cause, help }
    }

    /// An error whose own words say what failed on what.
    pub fn plain(error: impl fmt::Display) -> Self {
        Self::new("", error)
    }

    /// `action`, as in `cannot list`, failed on what `subject` names.
    pub fn on(action: &str, subject: impl AsRef<[u8]>, cause: impl fmt::Display) -> Self {
        Self::new(format!("{action} {}", self::subject(subject)), cause)
    }

    /// Adds what the person can do about it: a sentence without a full stop.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.what.is_empty() {
            write!(f, "{}: ", self.what)?;
        }
        f.write_str(&self.cause)?;
        match &self.help {
            Some(help) => write!(f, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}

/// The words of an error, without the number that the standard library puts behind those of the system.
pub fn words(error: impl fmt::Display) -> String {
    let mut text = error.to_string();
    while let Some(start) = text.find(" (os error ") {
        let end = text[start..].find(')').map_or(text.len(), |end| start + end + 1);
        text.replace_range(start..end, "");
    }
    text
}

/// What to do if `cause` is that the disk below an image is full.
pub fn room(cause: &str) -> Option<&'static str> {
    let is_full = [NO_SPACE, NO_QUOTA].iter().any(|errno| cause.contains(&errno.to_string()))
        || HOST_IS_FULL.iter().any(|words| cause.contains(words));
    is_full.then_some("make room on the disk that the image lies on, or move the image to another")
}

/// What to do if `cause` kept the changes from stable storage.
pub fn to_close(cause: &str) -> String {
    const AFTER: &str = "the image is as after a power cut";
    match room(cause) {
        Some(room) => format!("{room}; {AFTER}"),
        // What became of the engine's kernel says nothing of the disk.
        None if cause.contains("kernel engine") => AFTER.to_owned(),
        None => format!("check the disk that the image lies on; {AFTER}"),
    }
}

/// ENOSPC and EDQUOT.
const NO_SPACE: Errno = Errno(28);
const NO_QUOTA: Errno = Errno(122);
/// The same in the words of strerror(3), which errors of the host have.
const HOST_IS_FULL: [&str; 2] = ["No space left on device", "Disk quota exceeded"];

/// `'name'`, with what a terminal would act on escaped.
pub fn subject(name: impl AsRef<[u8]>) -> String {
    format!("'{}'", printable(name.as_ref()))
}

/// `name` with what a terminal would act on escaped.
pub fn printable(name: &[u8]) -> String {
    String::from_utf8_lossy(&escape(name, Style::Backslash)).into_owned()
}

/// A sentence whose names were escaped by who wrote it: the rest that a terminal would act on escaped, and no backslash twice.
pub fn sentence(text: &str) -> String {
    text.split('\\').map(|part| printable(part.as_bytes())).collect::<Vec<_>>().join("\\")
}

/// Describes a notice of a volume that was opened with `access` from `image`, and what follows from it.
pub fn notice(notice: &Notice, access: Access, image: &Image) -> String {
    match notice {
        Notice::Damaged(error) => format!("damaged: {error}; the rest is shown"),
        Notice::BackupSuperBlock { block } => {
            format!("the primary super block is damaged; the copy at block {block} is used")
        }
        Notice::Truncated { expected, found } => {
            let len = image.device().len();
            let is_partition = image.partitions().iter().any(|part| part.len == *found && part.end() <= len);
            let what = if is_partition { "the partition ends too early" } else { "the image is cut short" };
            format!("{what}: the volume has {expected} bytes, {found} are there; files beyond cannot be read")
        }
        Notice::Replayed { transactions } => {
            let s = if *transactions == 1 { "" } else { "s" };
            let how = match access {
                Access::ReadOnly => "replayed in memory (--no-replay shows the state before)",
                Access::ReadWrite => "replayed",
            };
            format!("not unmounted cleanly: {transactions} transaction{s} of the journal {how}")
        }
        Notice::NotReplayed => "not unmounted cleanly: this is the state before the journal".to_owned(),
        Notice::ReplayFailed(error) => {
            format!("not unmounted cleanly, and the journal cannot be replayed: {error}; shown without it")
        }
        Notice::JournalMissing { uuid } => format!(
            "not unmounted cleanly, and the journal is on another device, {}; name it with --journal FILE",
            uuid_text(*uuid)
        ),
        Notice::MarkedWithErrors => "marked as having errors by whoever used it last".to_owned(),
        Notice::Hidden { what, option } => {
            format!("its {what} cannot be read: the kernel engine's Linux was built without {option}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_system_is_told_without_its_number() {
        let error = std::io::Error::from_raw_os_error(2);
        assert_eq!(
            words(format!("a: {error}; b: {error}")),
            "a: No such file or directory; b: No such file or directory"
        );
        assert_eq!(Report::plain(error).to_string(), "No such file or directory");
    }

    #[test]
    fn what_is_escaped_in_a_sentence_is_not_escaped_once_more() {
        assert_eq!(sentence("'q\\xff' twice: q\x1b[2J"), "'q\\xff' twice: q\\033[2J");
    }

    #[test]
    fn a_hostile_name_cannot_speak_to_the_terminal_through_an_error() {
        let report =
            Report::on("cannot list", b"disk.img:/a\x1b[2J\n\xff", "not a directory").help("use cat");
        assert_eq!(
            report.to_string(),
            "cannot list 'disk.img:/a\\033[2J\\n\\377': not a directory\n  help: use cat"
        );
    }
}
