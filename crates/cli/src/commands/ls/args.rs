//! The flags of `ls`. Of flags that exclude each other the last one counts.

use std::ffi::OsString;

use clap::ValueEnum;

/// List directories and files
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The time zone is that of TZ, colours come from LS_COLORS, TIME_STYLE and QUOTING_STYLE work as in GNU ls."
)]
pub struct Args {
    /// Images, and directories and files in them; patterns ('disk.img:/etc/*.conf') are matched inside the image
    #[arg(required = true, value_name = "IMAGE[:PATH]")]
    pub paths: Vec<OsString>,
    /// Show names that begin with a dot, `.` and `..` too
    #[arg(short, long, overrides_with = "almost_all")]
    pub all: bool,
    /// Show names that begin with a dot, but not `.` and `..`
    #[arg(short = 'A', long, overrides_with = "all")]
    pub almost_all: bool,
    /// Long format: type, mode, links, owner, group, size, time, name
    #[arg(short, overrides_with_all = ["one", "columns", "across", "commas", "format"])]
    pub long: bool,
    /// One name a line
    #[arg(short = '1', overrides_with_all = ["columns", "across", "commas", "format"])]
    pub one: bool,
    /// Columns, sorted downwards
    #[arg(short = 'C', overrides_with_all = ["long", "one", "across", "commas", "format"])]
    pub columns: bool,
    /// Columns, sorted across
    #[arg(short = 'x', overrides_with_all = ["long", "one", "columns", "commas", "format"])]
    pub across: bool,
    /// Names one after the other with commas between them
    #[arg(short = 'm', overrides_with_all = ["long", "one", "columns", "across", "format"])]
    pub commas: bool,
    /// How to lay out: long, single-column, vertical, across, commas
    #[arg(long, value_name = "WORD", overrides_with_all = ["long", "one", "columns", "across", "commas"])]
    pub format: Option<Format>,
    /// List directories recursively
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Directories themselves, not what is in them
    #[arg(short, long)]
    pub directory: bool,
    /// Show what symbolic links lead to
    #[arg(short = 'L', long, overrides_with_all = ["dereference_command_line", "dereference_command_line_symlink_to_dir"])]
    pub dereference: bool,
    /// Show what symbolic links lead to that are named on the command line
    #[arg(short = 'H', long, overrides_with_all = ["dereference", "dereference_command_line_symlink_to_dir"])]
    pub dereference_command_line: bool,
    /// The same for those that lead to a directory only
    #[arg(long, overrides_with_all = ["dereference", "dereference_command_line"])]
    pub dereference_command_line_symlink_to_dir: bool,
    /// Leave out names that match PATTERN
    #[arg(short = 'I', long, value_name = "PATTERN")]
    pub ignore: Vec<OsString>,
    /// Leave out names that match PATTERN, unless -a or -A is given
    #[arg(long, value_name = "PATTERN")]
    pub hide: Vec<OsString>,
    /// Leave out names that end in ~
    #[arg(short = 'B', long)]
    pub ignore_backups: bool,
    /// Append one of */=>@| to names, by type
    #[arg(short = 'F', long, overrides_with_all = ["slash", "file_type", "indicator_style"])]
    pub classify: bool,
    /// Append / to directories
    #[arg(short = 'p', overrides_with_all = ["classify", "file_type", "indicator_style"])]
    pub slash: bool,
    /// Append one of /=>@| to names, by type
    #[arg(long, overrides_with_all = ["classify", "slash", "indicator_style"])]
    pub file_type: bool,
    /// What to append to names: none, slash, file-type, classify
    #[arg(long, value_name = "WORD", overrides_with_all = ["classify", "slash", "file_type"])]
    pub indicator_style: Option<Marks>,
    /// Sizes as 1K 234M 2G
    #[arg(short = 'h', long, overrides_with_all = ["si", "kibibytes"])]
    pub human_readable: bool,
    /// Sizes in powers of 1000
    #[arg(long, overrides_with_all = ["human_readable", "kibibytes"])]
    pub si: bool,
    /// Blocks of 1024 bytes, which is the default
    #[arg(short = 'k', long)]
    pub kibibytes: bool,
    /// Show inode numbers
    #[arg(short, long)]
    pub inode: bool,
    /// Show the space taken, in blocks
    #[arg(short, long)]
    pub size: bool,
    /// Long format with numbers for owner and group
    #[arg(short, long)]
    pub numeric_uid_gid: bool,
    /// Long format without the owner
    #[arg(short = 'g')]
    pub no_owner: bool,
    /// Long format without the group
    #[arg(short = 'o')]
    pub no_group_long: bool,
    /// Without the group, in long format
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
    /// Do not sort: the order of the directory
    #[arg(short = 'U', overrides_with_all = ["by_time", "by_size", "by_extension", "by_version", "sort"])]
    pub unsorted: bool,
    /// Sort numbers in names by their value
    #[arg(short = 'v', overrides_with_all = ["by_time", "by_size", "by_extension", "unsorted", "sort"])]
    pub by_version: bool,
    /// By what to sort: name, none, size, time, version, extension, width
    #[arg(long, value_name = "WORD", overrides_with_all = ["by_time", "by_size", "by_extension", "unsorted", "by_version"])]
    pub sort: Option<Sort>,
    /// Do not sort, show all
    #[arg(short = 'f')]
    pub raw: bool,
    /// Reverse the order
    #[arg(short, long)]
    pub reverse: bool,
    /// Directories first
    #[arg(long)]
    pub group_directories_first: bool,
    /// Use the time of the last change of the inode
    #[arg(short = 'c', overrides_with = "access")]
    pub change: bool,
    /// Use the time of the last access
    #[arg(short = 'u', overrides_with = "change")]
    pub access: bool,
    /// Which time: atime, ctime, mtime, birth
    #[arg(long, value_name = "WORD")]
    pub time: Option<String>,
    /// Long format with the whole time
    #[arg(long)]
    pub full_time: bool,
    /// How times look: full-iso, long-iso, iso, locale, +FORMAT
    #[arg(long, value_name = "STYLE")]
    pub time_style: Option<String>,
    /// Names between double quotes
    #[arg(short = 'Q', long, overrides_with_all = ["escape", "literal", "quoting_style"])]
    pub quote_name: bool,
    /// C escapes for what cannot be printed
    #[arg(short = 'b', long, overrides_with_all = ["quote_name", "literal", "quoting_style"])]
    pub escape: bool,
    /// Names as they are
    #[arg(short = 'N', long, overrides_with_all = ["quote_name", "escape", "quoting_style"])]
    pub literal: bool,
    /// How names are quoted: literal, shell-escape, c, escape
    #[arg(long, value_name = "WORD", overrides_with_all = ["quote_name", "escape", "literal"])]
    pub quoting_style: Option<String>,
    /// ? for what cannot be printed
    #[arg(short = 'q', long, overrides_with = "show_control_chars")]
    pub hide_control_chars: bool,
    /// What cannot be printed as it is, on a terminal too
    #[arg(long, overrides_with = "hide_control_chars")]
    pub show_control_chars: bool,
    /// Length of a line; 0 is no limit
    #[arg(short, long, value_name = "COLS")]
    pub width: Option<usize>,
    /// Columns between the stops of tabs; 0 is no tabs
    #[arg(short = 'T', long, value_name = "COLS")]
    pub tabsize: Option<usize>,
    /// End each line with a NUL
    #[arg(long)]
    pub zero: bool,
}

/// What `--format` takes.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
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

/// What `--sort` takes.
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

/// What `--indicator-style` takes.
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
