//! How a case ends: it is so, it is not so, or the format lacks what it is about, which it then says.
//!
//! A case that is refused is no test that passed: its words are appended to the file that `OBENTO_SKIP_LOG` names, so that a
//! run of tests counts them, and the pages that show cases show them.

use std::any::Any;
use std::fmt;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use obento_driver::{Keeps, Limits};

/// What a volume lacks, in words: `no holes`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lacks(pub &'static str);

/// What a case comes to unless it panics. Errors: what the volume lacks that the case is about.
pub type Outcome = Result<(), Lacks>;

/// A capability that a case needs, and what it is called where it is missing.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    words: &'static str,
    is_met: fn(&Means) -> bool,
}

/// What a volume has for a case.
#[derive(Clone, Copy, Debug)]
pub struct Means {
    /// What its format can hold.
    pub limits: Limits,
    /// Bytes that are free.
    pub free: u64,
    /// Whether files have access control lists.
    pub lists: bool,
    /// Whether what is in it is there when it is opened again.
    pub lasts: bool,
    /// Whether a case must do the same in each run.
    pub repeats: bool,
}

impl Need {
    const fn new(words: &'static str, is_met: fn(&Means) -> bool) -> Self {
        Self { words, is_met }
    }

    /// Errors: its words where it is missing.
    pub fn check(&self, means: &Means) -> Outcome {
        if (self.is_met)(means) { Ok(()) } else { Err(Lacks(self.words)) }
    }
}

macro_rules! kept {
    ($($what:ident $words:literal)*) => {
        $(pub(crate) const $what: Need = Need::new($words, |means| means.limits.keeps.contains(Keeps::$what));)*
    };
}

kept! {
    MODES "no permission bits"
    OWNERS "no owners"
    SYMLINKS "no symbolic links"
    SPECIAL "no pipes"
    HOLES "no holes"
    NAMES "no names of any bytes"
    CTIME "no times of change"
    SUBDIRECTORIES "no counts of subdirectories"
    DIRECTORIES "no directories"
}

pub(crate) const HARD_LINKS: Need = Need::new("no hard links", |means| means.limits.link_max > 1);
pub(crate) const LISTS: Need = Need::new("no access control lists", |means| means.lists);
pub(crate) const LARGE_FILES: Need =
    Need::new("no files past 4 GiB", |means| means.limits.file_size_max > 5 << 30);
pub(crate) const LARGE_ROOM: Need = Need::new("no holes, and no room for 4 GiB without", |means| {
    means.limits.keeps.contains(Keeps::HOLES) || means.free > 5 << 30
});
pub(crate) const LITTLE_ROOM: Need = Need::new("more room than a case fills", |means| means.free < 1 << 30);
pub(crate) const THREADS: Need =
    Need::new("threads, which do another thing in each run", |means| !means.repeats);
pub(crate) const LASTING: Need = Need::new("nothing that outlasts a close", |means| means.lasts);

/// How a case ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// It is so.
    Passed,
    /// The volume lacks what it is about.
    Refused(Lacks),
    /// It is not so, and why.
    Failed(String),
}

impl End {
    /// That of `case`, whose panic is caught.
    pub fn of(case: impl FnOnce() -> Outcome) -> Self {
        match catch_unwind(AssertUnwindSafe(case)) {
            Ok(Ok(())) => Self::Passed,
            Ok(Err(lacks)) => Self::Refused(lacks),
            Err(panic) => Self::Failed(words(&*panic)),
        }
    }
}

/// What a panic said, in a line.
pub(crate) fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").replace('\n', " ")
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Refused(Lacks(words)) => write!(f, "refused: {words}"),
            Self::Failed(why) => write!(f, "FAILED: {why}"),
        }
    }
}

/// Says of a test that its case was refused, if it was.
pub fn tell(case: &str, outcome: Outcome) {
    let Err(Lacks(words)) = outcome else { return };
    println!("{case}: refused: {words}");
    if let Some(log) = std::env::var_os("OBENTO_SKIP_LOG") {
        let log = OpenOptions::new().append(true).create(true).open(log);
        log.and_then(|mut log| log.write_all(format!("refused: {words}\n").as_bytes()))
            .expect("the log can be written");
    }
}
