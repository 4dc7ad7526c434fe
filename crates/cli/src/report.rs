//! Error messages: what failed, on which image and path, why, and what to do next.
//!
//! Example: `obento: cannot list 'disk.img:/etc': directory 12: block 3 is a hole`, with the hint on its own line.

use std::fmt;

use obento::Error;
use obento::Image;
use obento::base::{DeviceError, Quantity};
use obento::driver::{Access, Notice};
use obento::text::uuid_text;

use crate::cause::Cause;
use crate::escape::{NameStyle, escape};

/// An error message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Empty if the cause says what failed.
    what: String,
    cause: String,
    help: Option<String>,
    /// Whether the cause is that the user stopped the work, so that the report may be omitted.
    is_stop: bool,
}

impl Report {
    /// Creates the report that `what` failed because of `cause`. `what` starts with a verb phrase such as `cannot list`,
    /// and names in it are quoted by [`subject`]. A hint at the end of the text of `cause`, such as that of another
    /// process, becomes the hint of the report.
    pub fn new(what: impl Into<String>, cause: impl Cause) -> Self {
        // A cause may contain words of a program that another user controls.
        let text = words(cause.text()).split('\n').map(sentence).collect::<Vec<_>>().join("\n");
        let (text, help) = match text.split_once(HELP) {
            Some((text, help)) => (text.to_owned(), Some(help.replace(HELP, "; "))),
            None => (text, cause.hint()),
        };
        Self { what: what.into(), cause: text, help, is_stop: cause.is_stop() }
    }

    /// Creates the report that standard output cannot be written. It has no hint, since the disk of the image is not
    /// the cause.
    pub fn standard_output(error: impl Cause) -> Self {
        Self { help: None, ..Self::new("cannot write to standard output", error) }
    }

    /// Creates a report from an error whose text names the operation and the object.
    pub fn plain(error: impl Cause) -> Self {
        Self::new("", error)
    }

    /// Creates the report that `action`, such as `cannot list`, failed on `subject`.
    pub fn on(action: &str, subject: impl AsRef<[u8]>, cause: impl Cause) -> Self {
        Self::new(format!("{action} {}", self::subject(subject)), cause)
    }

    /// Marks the report as necessary even if the user stopped the work, because it names something that the user must
    /// know.
    #[must_use]
    pub fn indispensable(self) -> Self {
        Self { is_stop: false, ..self }
    }

    /// Adds `help` to the hint.
    #[must_use]
    pub fn also(mut self, help: &str) -> Self {
        self.help = Some(self.help.map_or_else(|| help.to_owned(), |known| format!("{known}; {help}")));
        self
    }

    /// Replaces the cause.
    #[must_use]
    pub fn because(self, cause: &str) -> Self {
        Self { cause: cause.into(), ..self }
    }

    /// Removes the hint.
    #[must_use]
    pub fn without_help(self) -> Self {
        Self { help: None, ..self }
    }

    /// Replaces the name `from` of a temporary file by the name `to` that the user knows.
    #[must_use]
    pub fn renamed(mut self, from: &[u8], to: &[u8]) -> Self {
        self.what = renamed(&self.what, from, to);
        self.cause = renamed(&self.cause, from, to);
        self
    }

    /// Sets the hint: what the user can do next, without a full stop.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())?;
        match &self.help {
            Some(help) => write!(f, "{HELP}{help}"),
            None => Ok(()),
        }
    }
}

impl Cause for Report {
    fn hint(&self) -> Option<String> {
        self.help.clone()
    }

    fn is_stop(&self) -> bool {
        self.is_stop
    }

    fn text(&self) -> String {
        if self.what.is_empty() { self.cause.clone() } else { format!("{}: {}", self.what, self.cause) }
    }
}

/// The start of a hint in the text of an error.
pub const HELP: &str = "\n  help: ";

/// Returns `text`, which contains the words of a user or of a file, without the start of a hint.
pub fn without_hint(text: &str) -> String {
    text.replace(HELP, "\\n  help: ")
}

/// Returns the text of an error, in which the messages of the standard library are in lower case and without the error
/// number.
pub fn words(error: impl fmt::Display) -> String {
    let mut text = error.to_string();
    while let Some(start) = text.find(" (os error ") {
        let end = text[start..].find(')').map_or(text.len(), |end| start + end + 1);
        text.replace_range(start..end, "");
        let message = text[..start].rfind(": ").map_or(0, |at| at + 2);
        if let Some(first) = text.get_mut(message..message + 1) {
            first.make_ascii_lowercase();
        }
    }
    text
}

/// The hints for a disk of the host without free space: that of the image, and that of another file.
pub const IMAGE_IS_FULL: &str = "free space on the disk of the image, or move the image to another disk";
pub const HOST_IS_FULL: &str = "free space on the disk of the file, or choose another disk";
/// The cause and the hint for a directory that is no mount of this program.
pub const NOT_A_MOUNT: &str = "it is not a mount of obento";
pub const LIST_MOUNTS: &str = "run 'obento mount --status' to list the mounts of obento";
/// The hint for a volume without free space.
pub const VOLUME_IS_FULL: &str =
    "the volume has too few free blocks: remove files, or enlarge the volume with 'obento resize IMAGE SIZE'";

/// Returns the hint of an error that is known only by its text, because another process reports it.
pub fn hint_of_text(cause: &str) -> Option<&'static str> {
    let cause = words(cause);
    // The errors of devices (`obento::base::Errno`), those of the host (strerror(3)), and `Error::NoSpace`.
    let hints = [
        ("no space left on the disk of the image", IMAGE_IS_FULL),
        ("disk quota exceeded on the file system of the image", IMAGE_IS_FULL),
        ("no space left on device", HOST_IS_FULL),
        ("no space left", VOLUME_IS_FULL),
    ];
    hints.into_iter().find(|(text, _)| cause.contains(text)).map(|(_, hint)| hint)
}

/// The state of an image whose changes were not written.
const AFTER: &str = "the image is in the same state as after a power failure";

/// Returns the hint for changes that were not written because of `error`.
pub fn to_close(error: &Error) -> String {
    match (error, error.hint()) {
        (_, Some(hint)) => format!("{hint}; {AFTER}"),
        // The end of a server says nothing about the disk.
        (Error::Device(DeviceError::Engine(_) | DeviceError::Server(_) | DeviceError::Nfs(_)), None) => {
            AFTER.to_owned()
        }
        (_, None) => format!("check the disk of the image; {AFTER}"),
    }
}

/// Returns the hint for changes that were not written for the reason that a server reports as a text.
pub fn to_close_because(cause: &str) -> String {
    match hint_of_text(cause) {
        Some(hint) => format!("{hint}; {AFTER}"),
        None if cause.contains("kernel engine") => AFTER.to_owned(),
        None => format!("check the disk of the image; {AFTER}"),
    }
}

/// Returns `text` with the name `from` of a temporary file replaced by the name `to` that the user knows.
pub fn renamed(text: &str, from: &[u8], to: &[u8]) -> String {
    let from = printable(from.strip_prefix(b"./").unwrap_or(from));
    let to = printable(to);
    text.replace(&format!("'./{from}"), &format!("'{to}")).replace(&from, &to)
}

/// Returns `'name'`, with control characters escaped.
pub fn subject(name: impl AsRef<[u8]>) -> String {
    format!("'{}'", printable(name.as_ref()))
}

/// Returns `name` with control characters escaped.
pub fn printable(name: &[u8]) -> String {
    String::from_utf8_lossy(&escape(name, NameStyle::Backslash)).into_owned()
}

/// The most characters of a text of another process.
const FOREIGN_MAX: usize = 1000;

/// Returns the text of another process as one line of limited length, with control characters escaped as by [`sentence`]. The
/// process may belong to another user, or may be a server that its image controls.
pub fn foreign(text: &str) -> String {
    match text.char_indices().nth(FOREIGN_MAX) {
        Some((end, _)) => format!("{}...", sentence(text.get(..end).unwrap_or_default())),
        None => sentence(text),
    }
}

/// Returns the text of another process of this program like [`foreign`], with its hint as the hint.
pub fn foreign_with_hint(text: &str) -> String {
    match text.split_once(HELP) {
        Some((cause, hint)) => format!("{}{HELP}{}", foreign(cause), foreign(hint)),
        None => foreign(text),
    }
}

/// Returns the path or address `name` as a word of a command that the user can copy to a shell: with quotes if the shell
/// would change the name, and with `./` if the command would read the name as an option.
pub fn shell_word(name: impl AsRef<[u8]>) -> String {
    let name = name.as_ref();
    let is_dashed = name.len() > 1 && name.starts_with(b"-");
    let prefix: &[u8] = if is_dashed { b"./" } else { b"" };
    String::from_utf8_lossy(&escape(&[prefix, name].concat(), NameStyle::Shell)).into_owned()
}

/// Returns `text`, whose names are escaped already, with the remaining control characters escaped. No backslash is
/// escaped twice.
pub fn sentence(text: &str) -> String {
    text.split('\\').map(|part| printable(part.as_bytes())).collect::<Vec<_>>().join("\\")
}

/// Returns the name of the structure at the start of a volume of the type `fs_type`.
pub fn first_structure(fs_type: &str) -> &'static str {
    if has_boot_sector(fs_type) { "boot sector" } else { "primary super block" }
}

fn has_boot_sector(fs_type: &str) -> bool {
    matches!(fs_type, "vfat" | "exfat" | "ntfs")
}

/// Returns whether `error` is damage of the super block or the boot sector of a volume.
pub fn is_of_super_block(error: &Error) -> bool {
    let Error::Corrupt(corrupt) = error else { return false };
    let text = corrupt.to_string();
    ["super block:", "boot sector:"].iter().any(|structure| text.starts_with(structure))
}

/// Describes a notice about a volume of the type `fs_type` that was opened with `access` from `image`.
pub fn notice(notice: &Notice, access: Access, image: &Image, fs_type: &str) -> String {
    match notice {
        Notice::Damaged(error) => format!("damaged: {error}; the undamaged rest is shown"),
        Notice::BackupSuperBlock { block } if image.super_block().is_some() => {
            format!("the super block at block {block} is used, as requested")
        }
        Notice::BackupSuperBlock { block } => {
            let place = if has_boot_sector(fs_type) { "in sector" } else { "at block" };
            format!("the {} is damaged; the copy {place} {block} is used", first_structure(fs_type))
        }
        Notice::BackupTable { damaged, used } => {
            let number = |table: &u8| u16::from(*table) + 1;
            let (damaged, used) = (number(damaged), number(used));
            format!("file allocation table {damaged} is damaged; table {used} has fewer errors")
        }
        Notice::Truncated { expected, found } => {
            let len = image.device().len();
            let is_partition = image.partitions().iter().any(|part| part.len == *found && part.end() <= len);
            let what = if is_partition { "the partition is too short" } else { "the image is truncated" };
            format!(
                "{what}: the volume has {expected} bytes, of which {found} {} present; the data after these bytes cannot be read",
                if *found == 1 { "is" } else { "are" }
            )
        }
        Notice::Replayed { transactions } => {
            let how = match access {
                Access::ReadOnly => "replayed in memory (use --no-replay to show the state before)",
                Access::ReadWrite => "replayed",
            };
            format!("not unmounted cleanly: {} {how}", Quantity::new(*transactions, "journal transaction"))
        }
        Notice::NotReplayed => "not unmounted cleanly: the journal is not replayed".to_owned(),
        Notice::ReplayFailed(error) => {
            format!(
                "not unmounted cleanly, and the journal cannot be replayed: {error}; the volume is shown without the changes in the journal"
            )
        }
        Notice::JournalMissing { uuid } => format!(
            "not unmounted cleanly, and its journal is on another device with the UUID {}; name it with --journal FILE",
            uuid_text(*uuid)
        ),
        Notice::MarkedWithErrors => "the volume is marked as having errors".to_owned(),
        Notice::Hidden { what, option } => {
            format!("its {what} cannot be read: the kernel of the kernel engine was built without {option}")
        }
    }
}

#[cfg(test)]
mod tests {
    use obento::host::interrupt;

    use super::*;

    #[test]
    fn only_a_report_of_stopped_work_needs_no_message() {
        let stopped = || Report::on("cannot write back", "a", interrupt::stopped());
        assert!(stopped().is_stop());
        assert!(!Report::on("cannot copy", "a", "stopped").is_stop());
        assert!(!stopped().help("the changed copy is 'b'").indispensable().is_stop());
    }

    #[test]
    fn the_text_of_another_process_is_one_line_of_limited_length() {
        assert_eq!(foreign(r"it failed: 'a\033b'"), r"it failed: 'a\033b'");
        assert_eq!(
            foreign("\u{1b}[31mred\nobento: \u{9b}\u{202e}"),
            r"\033[31mred\nobento: \302\233\342\200\256"
        );
        assert_eq!(foreign_with_hint("a\nb\n  help: c\nd"), "a\\nb\n  help: c\\nd");
        let long = foreign(&"\n".repeat(65_536));
        assert_eq!(long, format!("{}...", r"\n".repeat(1000)));
    }

    #[test]
    fn a_system_error_is_shown_without_its_number() {
        let error = std::io::Error::from_raw_os_error(2);
        assert_eq!(
            words(format!("a: {error}; b: {error}")),
            "a: no such file or directory; b: no such file or directory"
        );
        assert_eq!(Report::plain(error).to_string(), "no such file or directory");
    }

    #[test]
    fn the_hint_for_the_text_of_another_process_is_that_for_the_error() {
        let write = DeviceError::Write { offset: 0, len: 512, errno: 28 };
        for error in [Error::NoSpace, Error::from(write), Error::from(DeviceError::Flush { errno: 122 })] {
            assert_eq!(hint_of_text(&error.to_string()).map(str::to_owned), error.hint());
        }
        let host = std::io::Error::from_raw_os_error(28);
        assert_eq!(hint_of_text(&host.to_string()).map(str::to_owned), host.hint());
        assert_eq!(hint_of_text("input/output error"), None);
    }

    #[test]
    fn a_hint_in_the_cause_becomes_the_hint_of_the_report() {
        let report = Report::new("cannot check", "in use\n  help: wait").also("or copy the image");
        assert_eq!(report.to_string(), "cannot check: in use\n  help: wait; or copy the image");
        let nested = Report::plain("in use\n  help: wait\n  help: stop the process");
        assert_eq!(nested.to_string(), "in use\n  help: wait; stop the process");
    }

    #[test]
    fn a_word_of_a_command_has_quotes_only_if_the_shell_would_change_the_name() {
        assert_eq!(shell_word("disk.img@2:/a/b"), "disk.img@2:/a/b");
        assert_eq!(shell_word("fuse:bindfs /tmp/x:/a"), "'fuse:bindfs /tmp/x:/a'");
        assert_eq!(shell_word("a\x1b$b"), "'a'$'\\033''$b'");
        assert_eq!(shell_word("it's"), "\"it's\"");
    }

    #[test]
    fn a_word_of_a_command_is_never_an_option() {
        assert_eq!(shell_word("-f.img@1"), "./-f.img@1");
        assert_eq!(shell_word("-a b.img:/c"), "'./-a b.img:/c'");
        assert_eq!(shell_word("-"), "-");
    }

    #[test]
    fn an_escaped_name_in_a_sentence_is_not_escaped_again() {
        assert_eq!(sentence("'q\\xff' twice: q\x1b[2J"), "'q\\xff' twice: q\\033[2J");
    }

    #[test]
    fn a_hostile_name_cannot_control_the_terminal_through_an_error() {
        let report =
            Report::on("cannot list", b"disk.img:/a\x1b[2J\n\xff", "not a directory").help("use cat");
        assert_eq!(
            report.to_string(),
            "cannot list 'disk.img:/a\\033[2J\\n\\377': not a directory\n  help: use cat"
        );
    }
}
