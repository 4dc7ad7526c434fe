//! Reading a TOML file key by key: errors name the line and the key, and unknown keys are errors.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::cause::{Cause, Worded};
use crate::parse::similar::similar;
use crate::report::{Report, without_hint};

/// A file to read.
pub struct Source<'a> {
    path: &'a Path,
    text: &'a str,
}

impl<'a> Source<'a> {
    /// Creates the file with the contents `text` and the path `path`.
    pub fn new(path: &'a Path, text: &'a str) -> Self {
        Self { path, text }
    }

    /// Returns the root table of the file. Fails if the text is not valid TOML.
    pub fn parse(&self) -> Result<Spanned<DeTable<'a>>, Report> {
        DeTable::parse(self.text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            let why = plain(error.message().lines().next().unwrap_or_default());
            self.wrong(&span, why).help("'obento help layout' describes the format")
        })
    }

    /// Returns the error at a position of the file.
    pub fn wrong(&self, span: &Range<usize>, why: impl Cause) -> Report {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
        if self.path == Path::new("-") {
            return Report::new(format!("cannot use line {line} of standard input"), why);
        }
        let place = format!("{}:{line}", self.path.display());
        Report::on("cannot use", place.as_bytes(), why)
    }
}

/// Returns a message of the TOML parser in the words of this program.
fn plain(message: &str) -> String {
    match message.split_once(", expected ") {
        Some(("invalid basic string", "`\"`")) => "a string has no closing '\"'".to_owned(),
        Some(("invalid literal string", "`'`")) => "a string has no closing quote".to_owned(),
        Some(("string values must be quoted", _)) => "a text must be in quotes, such as \"ext4\"".to_owned(),
        Some((what, expected)) => format!("{what}: {} is missing", expected.replace('`', "'")),
        None => message.replace('`', "'"),
    }
}

/// A table of a file, and the keys that were read.
pub struct Keys<'f, 'a> {
    source: &'f Source<'a>,
    span: Range<usize>,
    table: &'f DeTable<'a>,
    asked: RefCell<BTreeSet<&'static str>>,
}

impl<'f, 'a> Keys<'f, 'a> {
    /// Creates the table that begins at `span`.
    pub fn new(source: &'f Source<'a>, span: Range<usize>, table: &'f DeTable<'a>) -> Self {
        Self { source, span, table, asked: RefCell::default() }
    }

    fn find(&self, key: &'static str) -> Option<&'f Spanned<DeValue<'a>>> {
        self.asked.borrow_mut().insert(key);
        self.table.iter().find(|(known, _)| known.get_ref() == key).map(|(_, value)| value)
    }

    /// Returns the error of the value of `key`, or of the table if it does not have the key.
    pub fn wrong(&self, key: &str, why: impl Cause) -> Report {
        let held = self.table.iter().find(|(known, _)| known.get_ref() == key);
        let span = held.map_or(self.span.clone(), |(known, _)| known.span());
        let text = format!("{}: {}", without_hint(key), why.text());
        self.source.wrong(&span, Worded { text, cause: &why })
    }

    /// Returns the text or number of `key`, as text.
    pub fn text(&self, key: &'static str) -> Result<Option<String>, Report> {
        let Some(value) = self.find(key) else { return Ok(None) };
        self.scalar(key, value.get_ref()).map(Some)
    }

    fn scalar(&self, key: &str, value: &DeValue<'a>) -> Result<String, Report> {
        match value {
            DeValue::String(text) => Ok(text.to_string()),
            DeValue::Integer(number) => Ok(number.to_string()),
            _ => Err(self.wrong(key, "not a string")),
        }
    }

    /// Returns the text of `key`, which is required.
    pub fn required(&self, key: &'static str) -> Result<String, Report> {
        self.text(key)?.ok_or_else(|| self.wrong(key, "this key is required"))
    }

    /// Returns the texts of `key`: a list, or one text.
    pub fn texts(&self, key: &'static str) -> Result<Vec<String>, Report> {
        match self.find(key).map(Spanned::get_ref) {
            None => Ok(Vec::new()),
            Some(DeValue::Array(list)) => {
                list.iter().map(|value| self.scalar(key, value.get_ref())).collect()
            }
            Some(value) => Ok(vec![self.scalar(key, value)?]),
        }
    }

    /// The same for names of files.
    pub fn names(&self, key: &'static str) -> Result<Vec<OsString>, Report> {
        Ok(self.texts(key)?.into_iter().map(OsString::from).collect())
    }

    /// Returns whether `key` is set.
    pub fn is_set(&self, key: &'static str) -> Result<bool, Report> {
        match self.find(key).map(Spanned::get_ref) {
            None => Ok(false),
            Some(DeValue::Boolean(set)) => Ok(*set),
            Some(_) => Err(self.wrong(key, "not true or false")),
        }
    }

    /// Returns the table `key`.
    pub fn table(&self, key: &'static str) -> Result<Option<Keys<'f, 'a>>, Report> {
        match self.find(key).map(|value| (value.span(), value.get_ref())) {
            None => Ok(None),
            Some((span, DeValue::Table(table))) => Ok(Some(Keys::new(self.source, span, table))),
            Some(_) => Err(self.wrong(key, format!("not a table; write [{key}]"))),
        }
    }

    /// Returns the tables `key`.
    pub fn tables(&self, key: &'static str) -> Result<Vec<Keys<'f, 'a>>, Report> {
        let wrong = || self.wrong(key, format!("not a list of tables; write [[{key}]]"));
        let Some(value) = self.find(key) else { return Ok(Vec::new()) };
        let DeValue::Array(list) = value.get_ref() else { return Err(wrong()) };
        let tables = list.iter().map(|value| match value.get_ref() {
            DeValue::Table(table) => Ok(Keys::new(self.source, value.span(), table)),
            _ => Err(wrong()),
        });
        tables.collect()
    }

    /// Returns whether the table has `key`, without counting the key as read.
    pub fn has(&self, key: &str) -> bool {
        self.table.keys().any(|known| known.get_ref() == key)
    }

    /// Fails for the first key that is not in `known`, in the order of the file. A misspelled key is reported before the
    /// errors that follow from it.
    pub fn expect_known(&self, known: &[&str]) -> Result<(), Report> {
        self.refuse_others(&known.iter().copied().collect())
    }

    /// Fails for the first key that was not read, in the order of the file.
    pub fn finish(&self) -> Result<(), Report> {
        self.refuse_others(&self.asked.borrow())
    }

    fn refuse_others(&self, asked: &BTreeSet<&str>) -> Result<(), Report> {
        let unknown = self.table.keys().filter(|key| !asked.contains(&**key.get_ref()));
        match unknown.min_by_key(|key| key.span().start) {
            None => Ok(()),
            Some(key) => {
                let name = key.get_ref();
                let list = "'obento help layout' lists the keys";
                Err(self.wrong(name, "unknown key").help(match similar(name, asked.iter().copied()) {
                    Some(known) => format!("did you mean '{known}'? {list}"),
                    None => list.to_owned(),
                }))
            }
        }
    }
}
