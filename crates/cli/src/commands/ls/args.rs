//! The options of `ls`. Of options that exclude each other, the last one counts.

use std::ffi::OsString;

use clap::ValueEnum;

/// List files and directories
#[derive(clap::Args, Debug)]
#[command(
    after_help = "TZ sets the time zone, and LS_COLORS the colours. TIME_STYLE and QUOTING_STYLE have the same \
                  effect as in GNU ls."
)]
pub struct Args {
    /// Images, and files and directories in them; patterns ('disk.img:/etc/*.conf') match inside the image
    #[arg(required = true, value_name = "IMAGE[:PATH]")]
    pub paths: Vec<OsString>,
    /// Also show names that start with a dot, including . and ..
    #[arg(short, long, overrides_with = "almost_all")]
    pub all: bool,
    /// Also show names that start with a dot, except . and ..
    #[arg(short = 'A', long, overrides_with = "all")]
    pub almost_all: bool,
    /// Use the long format: type, mode, links, owner, group, size, time, name
    #[arg(short, overrides_with_all = ["one", "columns", "across", "commas", "format"])]
    pub long: bool,
    /// Print one name per line
    #[arg(short = '1', overrides_with_all = ["columns", "across", "commas", "format"])]
    pub one: bool,
    /// Print columns, sorted downwards
    #[arg(short = 'C', overrides_with_all = ["long", "one", "across", "commas", "format"])]
    pub columns: bool,
    /// Print columns, sorted across
    #[arg(short = 'x', overrides_with_all = ["long", "one", "columns", "commas", "format"])]
    pub across: bool,
    /// Print names separated by commas
    #[arg(short = 'm', overrides_with_all = ["long", "one", "columns", "across", "format"])]
    pub commas: bool,
    /// Set the layout: long, single-column, vertical, across, commas
    #[arg(long, value_name = "WORD", overrides_with_all = ["long", "one", "columns", "across", "commas"])]
    pub format: Option<ListFormat>,
    /// List directories recursively
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// List directories themselves, not their contents
    #[arg(short, long)]
    pub directory: bool,
    /// Follow symbolic links: show the attributes of their targets
    #[arg(short = 'L', long, overrides_with_all = ["dereference_command_line", "dereference_command_line_symlink_to_dir"])]
    pub dereference: bool,
    /// Follow symbolic links that are operands
    #[arg(short = 'H', long, overrides_with_all = ["dereference", "dereference_command_line_symlink_to_dir"])]
    pub dereference_command_line: bool,
    /// Show the targets of operands that are symbolic links to directories
    #[arg(long, overrides_with_all = ["dereference", "dereference_command_line"])]
    pub dereference_command_line_symlink_to_dir: bool,
    /// Omit names that match PATTERN
    #[arg(short = 'I', long, value_name = "PATTERN")]
    pub ignore: Vec<OsString>,
    /// Omit names that match PATTERN, unless -a or -A is given
    #[arg(long, value_name = "PATTERN")]
    pub hide: Vec<OsString>,
    /// Omit names that end with ~
    #[arg(short = 'B', long)]
    pub ignore_backups: bool,
    /// Append one of */=>@| to names, by type
    #[arg(short = 'F', long, overrides_with_all = ["slash", "file_type", "indicator_style"])]
    pub classify: bool,
    /// Append / to the names of directories
    #[arg(short = 'p', overrides_with_all = ["classify", "file_type", "indicator_style"])]
    pub slash: bool,
    /// Append one of /=>@| to names, by type
    #[arg(long, overrides_with_all = ["classify", "slash", "indicator_style"])]
    pub file_type: bool,
    /// Set the style of appended characters: none, slash, file-type, classify
    #[arg(long, value_name = "WORD", overrides_with_all = ["classify", "slash", "file_type"])]
    pub indicator_style: Option<Marks>,
    /// Print sizes such as 1K, 234M or 2G
    #[arg(short = 'h', long, overrides_with_all = ["si", "kibibytes"])]
    pub human_readable: bool,
    /// Print sizes with powers of 1000
    #[arg(long, overrides_with_all = ["human_readable", "kibibytes"])]
    pub si: bool,
    /// Print allocated sizes in blocks of 1024 bytes (default)
    #[arg(short = 'k', long)]
    pub kibibytes: bool,
    /// Print inode numbers
    #[arg(short, long)]
    pub inode: bool,
    /// Print the allocated size in blocks
    #[arg(short, long)]
    pub size: bool,
    /// Use the long format with numeric owners and groups
    #[arg(short, long)]
    pub numeric_uid_gid: bool,
    /// Use the long format without owners
    #[arg(short = 'g')]
    pub no_owner: bool,
    /// Use the long format without groups
    #[arg(short = 'o')]
    pub no_group_long: bool,
    /// Omit groups from the long format
    #[arg(short = 'G', long)]
    pub no_group: bool,
    /// Sort by time, newest first
    #[arg(short = 't', overrides_with_all = ["by_size", "by_extension", "unsorted", "by_version", "sort"])]
    pub by_time: bool,
    /// Sort by size, largest first
    #[arg(short = 'S', overrides_with_all = ["by_time", "by_extension", "unsorted", "by_version", "sort"])]
    pub by_size: bool,
    /// Sort by extension
    #[arg(short = 'X', overrides_with_all = ["by_time", "by_size", "unsorted", "by_version", "sort"])]
    pub by_extension: bool,
    /// Do not sort; keep the order of the directory
    #[arg(short = 'U', overrides_with_all = ["by_time", "by_size", "by_extension", "by_version", "sort"])]
    pub unsorted: bool,
    /// Sort numbers in names by value
    #[arg(short = 'v', overrides_with_all = ["by_time", "by_size", "by_extension", "unsorted", "sort"])]
    pub by_version: bool,
    /// Set the sort key: name, none, size, time, version, extension, width
    #[arg(long, value_name = "WORD", overrides_with_all = ["by_time", "by_size", "by_extension", "unsorted", "by_version"])]
    pub sort: Option<Sort>,
    /// Do not sort, and show all names
    #[arg(short = 'f')]
    pub raw: bool,
    /// Reverse the order
    #[arg(short, long)]
    pub reverse: bool,
    /// List directories before files
    #[arg(long)]
    pub group_directories_first: bool,
    /// Show and sort by the time of the last change of the inode
    #[arg(short = 'c', overrides_with = "access")]
    pub change: bool,
    /// Show and sort by the time of the last access
    #[arg(short = 'u', overrides_with = "change")]
    pub access: bool,
    /// Select the time: atime, ctime, mtime, birth
    #[arg(long, value_name = "WORD")]
    pub time: Option<String>,
    /// Use the long format with full times
    #[arg(long)]
    pub full_time: bool,
    /// Set the format of times: full-iso, long-iso, iso, locale, +FORMAT
    #[arg(long, value_name = "STYLE")]
    pub time_style: Option<String>,
    /// Quote names with double quotes
    #[arg(short = 'Q', long, overrides_with_all = ["escape", "literal", "quoting_style"])]
    pub quote_name: bool,
    /// Print C escapes for unprintable characters
    #[arg(short = 'b', long, overrides_with_all = ["quote_name", "literal", "quoting_style"])]
    pub escape: bool,
    /// Print names without quotes
    #[arg(short = 'N', long, overrides_with_all = ["quote_name", "escape", "quoting_style"])]
    pub literal: bool,
    /// Set the quoting style: literal, shell-escape, c, escape
    #[arg(long, value_name = "WORD", overrides_with_all = ["quote_name", "escape", "literal"])]
    pub quoting_style: Option<String>,
    /// Print ? for unprintable characters
    #[arg(short = 'q', long, overrides_with = "show_control_chars")]
    pub hide_control_chars: bool,
    /// Print unprintable characters unchanged, also on a terminal
    #[arg(long, overrides_with = "hide_control_chars")]
    pub show_control_chars: bool,
    /// Set the line width; 0 means no limit
    #[arg(short, long, value_name = "COLS")]
    pub width: Option<usize>,
    /// Set the distance of tab stops; 0 means no tabs
    #[arg(short = 'T', long, value_name = "COLS")]
    pub tabsize: Option<usize>,
    /// End each line with NUL
    #[arg(long)]
    pub zero: bool,
}

/// The values of `--format`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListFormat {
    /// `-l`.
    #[value(alias = "verbose")]
    Long,
    /// `-1`.
    SingleColumn,
    /// `-C`.
    Vertical,
    /// `-x`.
    #[value(alias = "horizontal")]
    Across,
    /// `-m`.
    Commas,
}

/// The values of `--sort`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sort {
    /// The default.
    Name,
    /// `-U`.
    None,
    /// `-S`.
    Size,
    /// `-t`.
    Time,
    /// `-v`.
    Version,
    /// `-X`.
    Extension,
    /// By the width of names.
    Width,
}

/// The values of `--indicator-style`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Marks {
    /// The default.
    None,
    /// `-p`.
    Slash,
    /// `--file-type`.
    FileType,
    /// `-F`.
    Classify,
}
