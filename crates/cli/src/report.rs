//! The words of an error: what failed, on which image and path, why, and what to do.
//!
//! `obento: cannot list 'disk.img:/etc': directory 12: block 3 is a hole`, and on a line of its own what to do.

use std::fmt;

use crate::escape::{Style, escape};

/// An error as a person reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    what: String,
    cause: String,
    help: Option<String>,
}

impl Report {
    /// `what` failed because of `cause`. `what` begins with `cannot`; names in it go through [`subject`].
    pub fn new(what: impl Into<String>, cause: impl fmt::Display) -> Self {
        Self { what: what.into(), cause: cause.to_string(), help: None }
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
        write!(f, "{}: {}", self.what, self.cause)?;
        match &self.help {
            Some(help) => write!(f, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}

/// `'name'`, with what a terminal would act on escaped.
pub fn subject(name: impl AsRef<[u8]>) -> String {
    format!("'{}'", String::from_utf8_lossy(&escape(name.as_ref(), Style::Backslash)))
}

#[cfg(test)]
mod tests {
    use super::*;

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
