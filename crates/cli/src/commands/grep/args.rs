//! The options of `grep`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use clap::ValueEnum;

use crate::input;
use crate::report::Report;

/// Print the lines of files that match patterns
///
/// The options are those of GNU grep. With -r, all partitions of an image without @PART are searched. Text is UTF-8.
/// Back-references and lines of more than 64 MiB are not supported.
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "obento grep [OPTIONS] <PATTERNS> <IMAGE[:PATH]>...\n       obento grep [OPTIONS] -e <PATTERNS> <IMAGE[:PATH]>...\n       obento grep [OPTIONS] -f <FILE> <IMAGE[:PATH]>..."
)]
pub struct Args {
    /// Patterns, separated by newlines, and then files in images; only files if -e or -f is given. - is
    /// standard input
    #[arg(value_name = "PATTERNS|IMAGE[:PATH]", required = true)]
    words: Vec<OsString>,
    /// Search for PATTERNS; can be repeated
    #[arg(short = 'e', long = "regexp", value_name = "PATTERNS", allow_hyphen_values = true, help_heading = PATTERNS)]
    regexp: Vec<OsString>,
    /// Take patterns from FILE of the host, one per line; can be repeated
    #[arg(short = 'f', long = "file", value_name = "FILE", help_heading = PATTERNS)]
    file: Vec<OsString>,
    /// Patterns are extended regular expressions
    #[arg(short = 'E', long, overrides_with_all = ["basic_regexp", "fixed_strings"], help_heading = PATTERNS)]
    pub extended_regexp: bool,
    /// Patterns are strings
    #[arg(short = 'F', long, overrides_with_all = ["basic_regexp", "extended_regexp"], help_heading = PATTERNS)]
    pub fixed_strings: bool,
    /// Patterns are basic regular expressions (default)
    #[arg(short = 'G', long, overrides_with_all = ["fixed_strings", "extended_regexp"], help_heading = PATTERNS)]
    basic_regexp: bool,
    /// Perl expressions are not supported
    #[arg(short = 'P', long, hide = true)]
    pub perl_regexp: bool,
    /// Ignore case
    #[arg(short = 'i', long, help_heading = PATTERNS)]
    pub ignore_case: bool,
    /// Match whole words
    #[arg(short = 'w', long, help_heading = PATTERNS)]
    pub word_regexp: bool,
    /// Match whole lines
    #[arg(short = 'x', long, help_heading = PATTERNS)]
    pub line_regexp: bool,
    /// Select the lines that do not match
    #[arg(short = 'v', long)]
    pub invert_match: bool,
    /// Print the number of selected lines of each file
    #[arg(short = 'c', long)]
    pub count: bool,
    /// Print the names of files with selected lines
    #[arg(short = 'l', long, overrides_with = "files_without_match")]
    pub files_with_matches: bool,
    /// Print the names of files without selected lines
    #[arg(short = 'L', long, overrides_with = "files_with_matches")]
    pub files_without_match: bool,
    /// Print nothing, and exit with status 0 at the first selected line
    #[arg(short = 'q', long, visible_alias = "silent")]
    pub quiet: bool,
    /// Print no messages about files that cannot be read
    #[arg(short = 's', long)]
    pub no_messages: bool,
    /// Stop after NUM selected lines of each file
    #[arg(short = 'm', long, value_name = "NUM")]
    pub max_count: Option<u64>,
    /// Print only the parts of lines that match
    #[arg(short = 'o', long)]
    pub only_matching: bool,
    /// Print the offset in bytes of each line or part
    #[arg(short = 'b', long)]
    pub byte_offset: bool,
    /// Print the number of each line
    #[arg(short = 'n', long)]
    pub line_number: bool,
    /// Print the name of the file with each line
    #[arg(short = 'H', long, overrides_with = "no_filename")]
    pub with_filename: bool,
    /// Never print names of files
    #[arg(short = 'h', long, overrides_with = "with_filename")]
    pub no_filename: bool,
    /// Print NUL after names
    #[arg(short = 'Z', long)]
    pub null: bool,
    /// Print NUM lines after each selected line
    #[arg(short = 'A', long, value_name = "NUM")]
    after_context: Option<u64>,
    /// Print NUM lines before each selected line
    #[arg(short = 'B', long, value_name = "NUM")]
    before_context: Option<u64>,
    /// Print NUM lines before and after each selected line; -2 is short for -C 2
    #[arg(short = 'C', long, value_name = "NUM")]
    context: Option<u64>,
    /// Search all files below directories; symbolic links are followed only if an operand names them
    #[arg(short = 'r', long)]
    pub recursive: bool,
    /// Search all files below directories, and follow all symbolic links
    #[arg(short = 'R', long)]
    pub dereference_recursive: bool,
    /// Search only files whose name matches GLOB; can be repeated
    #[arg(long, value_name = "GLOB")]
    pub include: Vec<OsString>,
    /// Skip files whose name matches GLOB; can be repeated
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<OsString>,
    /// Skip directories whose name matches GLOB; can be repeated
    #[arg(long, value_name = "GLOB")]
    pub exclude_dir: Vec<OsString>,
    /// Handle files with NUL or invalid UTF-8 as TYPE
    #[arg(long, value_name = "TYPE", default_value = "binary", overrides_with_all = ["text", "skip_binary"])]
    binary_files: BinaryFiles,
    /// Search binary files as text
    #[arg(short = 'a', long, overrides_with_all = ["binary_files", "skip_binary"])]
    text: bool,
    /// Skip binary files
    #[arg(short = 'I', overrides_with_all = ["binary_files", "text"])]
    skip_binary: bool,
}

const PATTERNS: &str = "Patterns";

/// The handling of files that are not text.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum BinaryFiles {
    /// Report that the file matches, without its lines
    Binary,
    /// Print the lines
    Text,
    /// Treat the file as a file that does not match
    WithoutMatch,
}

/// Lines of context, before and after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Around {
    pub before: u64,
    pub after: u64,
    /// Whether an option requests context, of 0 lines too.
    pub is_requested: bool,
}

impl Args {
    /// Returns the patterns and the operands.
    ///
    /// # Errors
    ///
    /// No operand is left, or a file of patterns cannot be read.
    pub fn split(&self) -> Result<(Vec<Vec<u8>>, Vec<OsString>), Report> {
        let mut patterns = Vec::new();
        for text in &self.regexp {
            patterns.extend(text.as_bytes().split(|&byte| byte == b'\n').map(<[u8]>::to_vec));
        }
        for path in &self.file {
            let bytes = input::read("cannot read", path)?;
            let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
            if !bytes.is_empty() {
                patterns.extend(text.split(|&byte| byte == b'\n').map(<[u8]>::to_vec));
            }
        }
        let mut paths = self.words.as_slice();
        if self.regexp.is_empty() && self.file.is_empty() {
            let Some((first, rest)) = paths.split_first() else { return Err(no_operand()) };
            patterns.extend(first.as_bytes().split(|&byte| byte == b'\n').map(<[u8]>::to_vec));
            paths = rest;
        }
        if paths.is_empty() {
            return Err(no_operand());
        }
        Ok((patterns, paths.to_vec()))
    }

    pub fn binary(&self) -> BinaryFiles {
        match self {
            Self { text: true, .. } => BinaryFiles::Text,
            Self { skip_binary: true, .. } => BinaryFiles::WithoutMatch,
            _ => self.binary_files,
        }
    }

    pub fn around(&self) -> Around {
        let of = |own: Option<u64>| own.or(self.context);
        let (before, after) = (of(self.before_context), of(self.after_context));
        let is_requested = before.is_some() || after.is_some();
        Around { before: before.unwrap_or(0), after: after.unwrap_or(0), is_requested }
    }
}

fn no_operand() -> Report {
    let report = Report::new("cannot search", "missing operand");
    report.help("name an image after the pattern: obento grep -r root disk.img:/etc")
}
