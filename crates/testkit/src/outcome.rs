//! The result of a case: it passes, it fails, or it is refused because the format lacks a capability.
//!
//! A refused case is not a passed test. The missing capability is appended to the file in `OBENTO_SKIP_LOG`, so that a
//! test run counts it, and shown on pages with cases.

use std::any::Any;
use std::fmt;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use obento_driver::{Limits, StoredProperties};

/// A missing capability, in words: `no holes`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lacks(pub &'static str);

/// The result of a case that does not panic. Fails with the capability that the case requires and the volume lacks.
pub type Outcome = Result<(), Lacks>;

/// A capability that a case requires, and the words for its absence.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    words: &'static str,
    is_met: fn(&Abilities) -> bool,
}

/// The capabilities of a volume.
#[derive(Clone, Copy, Debug)]
pub struct Abilities {
    /// The limits of its format.
    pub limits: Limits,
    /// The number of free bytes.
    pub free: u64,
    /// Whether files have access control lists.
    pub lists: bool,
    /// Whether a rename can leave a whiteout at the old name.
    pub whiteouts: bool,
    /// Whether changes are present after the volume is opened again.
    pub lasts: bool,
    /// Whether a case must have the same effect in each run.
    pub repeats: bool,
    /// Whether an open file can be used after its last name is removed.
    pub keeps_removed: bool,
    /// Whether files have flags, such as append-only.
    pub flags: bool,
}

impl Need {
    const fn new(words: &'static str, is_met: fn(&Abilities) -> bool) -> Self {
        Self { words, is_met }
    }

    /// Fails with the words if the capability is missing.
    pub fn check(&self, means: &Abilities) -> Outcome {
        if (self.is_met)(means) { Ok(()) } else { Err(Lacks(self.words)) }
    }
}

macro_rules! kept {
    ($($what:ident $words:literal)*) => {
        $(pub(crate) const $what: Need = Need::new($words, |means| means.limits.keeps.contains(StoredProperties::$what));)*
    };
}

kept! {
    MODES "no permission bits"
    OWNERS "no owners"
    SYMLINKS "no symbolic links"
    SPECIAL "no pipes"
    HOLES "no holes"
    NAMES "no names with arbitrary bytes"
    CTIME "no change times"
    SUBDIRECTORIES "no counts of subdirectories"
    DIRECTORIES "no directories"
}

pub(crate) const HARD_LINKS: Need = Need::new("no hard links", |means| means.limits.link_max > 1);
pub(crate) const LISTS: Need = Need::new("no access control lists", |means| means.lists);
pub(crate) const WHITEOUTS: Need = Need::new("no whiteouts", |means| means.whiteouts);
pub(crate) const LARGE_FILES: Need =
    Need::new("no files past 4 GiB", |means| means.limits.file_size_max > 5 << 30);
pub(crate) const LARGE_ROOM: Need = Need::new("no holes, and no space for 4 GiB", |means| {
    means.limits.keeps.contains(StoredProperties::HOLES) || means.free > 5 << 30
});
pub(crate) const LITTLE_ROOM: Need =
    Need::new("no volume small enough to fill", |means| means.free < 1 << 30);
pub(crate) const THREADS: Need =
    Need::new("threads, which do another thing in each run", |means| !means.repeats);
pub(crate) const REMOVED: Need = Need::new("no use of removed files", |means| means.keeps_removed);
pub(crate) const NAME_LIMIT: Need = Need::new("no known limit of names", |means| means.limits.name_max > 0);
pub(crate) const FLAGS: Need = Need::new("no file flags", |means| means.flags);
pub(crate) const LASTING: Need = Need::new("no data after a close", |means| means.lasts);

/// The end of a case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CaseEnd {
    /// The case passed.
    Passed,
    /// The case was refused, because the volume lacks a capability.
    Refused(Lacks),
    /// The case failed, for this reason.
    Failed(String),
}

impl CaseEnd {
    /// Runs `case`, and catches a panic.
    pub fn of(case: impl FnOnce() -> Outcome) -> Self {
        match catch_unwind(AssertUnwindSafe(case)) {
            Ok(Ok(())) => Self::Passed,
            Ok(Err(lacks)) => Self::Refused(lacks),
            Err(panic) => Self::Failed(words(&*panic)),
        }
    }
}

/// Returns the message of a panic on one line.
pub(crate) fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").replace('\n', " ")
}

impl fmt::Display for CaseEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Refused(Lacks(words)) => write!(f, "refused: {words}"),
            Self::Failed(why) => write!(f, "FAILED: {why}"),
        }
    }
}

/// Prints that the case of a test was refused, if it was.
pub fn report(case: &str, outcome: Outcome) {
    let Err(Lacks(words)) = outcome else { return };
    println!("{case}: refused: {words}");
    if let Some(log) = std::env::var_os("OBENTO_SKIP_LOG") {
        let log = OpenOptions::new().append(true).create(true).open(log);
        log.and_then(|mut log| log.write_all(format!("refused: {words}\n").as_bytes()))
            .expect("the log can be written");
    }
}
