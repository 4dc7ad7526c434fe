//! The settings that follow from the options, the environment and the terminal.

use std::io::{IsTerminal, stdout};
use std::os::unix::ffi::OsStrExt;

use obento::base::{Attr, Timestamp};
use obento::pattern::{Case, Pattern};

use super::args::Args;
use super::args::{ListFormat, Marks, Sort};
use crate::context::Context;
use crate::escape::NameStyle;
use crate::format::columns::ColumnOrder;
use crate::format::size::Unit;
use crate::format::time;
use crate::report::Report;

/// The layout of the entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    Long,
    One,
    Columns(ColumnOrder),
    Commas,
    Json,
}

/// The treatment of symbolic links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dereference {
    Never,
    /// Follow operands that are links to directories.
    OperandsToDirectories,
    /// Follow operands.
    Operands,
    Always,
}

/// Which names are omitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hide {
    Dotted,
    Dots,
    Nothing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SortBy {
    Name,
    Time,
    Size,
    Extension,
    Version,
    Width,
    Nothing,
}

/// Which time of an inode is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhichTime {
    Modified,
    Changed,
    Accessed,
    Born,
}

impl WhichTime {
    /// Returns that time; `None` if the format does not store the time of creation.
    pub fn of(self, attr: &Attr) -> Option<Timestamp> {
        match self {
            Self::Modified => Some(attr.mtime),
            Self::Changed => Some(attr.ctime),
            Self::Accessed => Some(attr.atime),
            Self::Born => attr.btime,
        }
    }
}

/// What is appended to names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Indicator {
    Nothing,
    Slash,
    /// By type, but without `*` for executable files.
    Type,
    All,
}

/// The settings of a listing.
pub struct Settings {
    pub shape: Shape,
    pub hide: Hide,
    /// Patterns of names that are omitted.
    pub ignored: Vec<Pattern>,
    pub sort: SortBy,
    pub reverse: bool,
    pub directories_first: bool,
    pub directories_as_files: bool,
    pub recursive: bool,
    pub dereference: Dereference,
    pub indicator: Indicator,
    pub inode: bool,
    pub blocks: bool,
    pub numeric: bool,
    pub owner: bool,
    pub group: bool,
    pub size_unit: Unit,
    pub block_unit: Unit,
    pub time: WhichTime,
    pub time_style: time::TimeStyle,
    pub quoting: NameStyle,
    /// Whether unquoted names are indented by a blank if other names have quotes.
    pub align_quotes: bool,
    pub width: usize,
    pub tab: usize,
    pub end: u8,
    pub targets: bool,
}

impl Settings {
    pub fn new(args: &Args, context: &Context) -> Result<Self, Report> {
        let terminal = stdout().is_terminal();
        let shape = shape(args, context, terminal);
        let columns = matches!(shape, Shape::Columns(_));
        let hide = match (args.all || args.raw, args.almost_all) {
            (true, _) => Hide::Nothing,
            (_, true) => Hide::Dots,
            _ => Hide::Dotted,
        };
        let human = match (args.human_readable, args.si) {
            (true, _) => Some(Unit::Human),
            (_, true) => Some(Unit::Si),
            _ => None,
        };
        let quoting = quoting(args, terminal)?;
        let width = args.width.unwrap_or_else(crate::terminal::width);
        Ok(Self {
            shape,
            hide,
            ignored: ignored(args, hide),
            sort: sort(args, shape),
            reverse: args.reverse,
            directories_first: args.group_directories_first,
            directories_as_files: args.directory,
            recursive: args.recursive && !args.directory,
            dereference: dereference(args, shape),
            indicator: indicator(args),
            inode: args.inode,
            blocks: args.size,
            numeric: args.numeric_uid_gid,
            owner: !args.no_owner,
            group: !args.no_group && !args.no_group_long,
            size_unit: human.unwrap_or(Unit::Blocks(1)),
            block_unit: human.unwrap_or(Unit::Blocks(1024)),
            time: which_time(args)?,
            time_style: time_style(args)?,
            quoting,
            align_quotes: quoting == NameStyle::Shell && (shape == Shape::Long || (columns && width != 0)),
            width,
            // A tab would lose the background colour, and a line of unlimited width has no tab stops.
            tab: if context.colors() || width == 0 { 0 } else { args.tabsize.unwrap_or(8) },
            end: if args.zero { 0 } else { b'\n' },
            targets: matches!(shape, Shape::Long | Shape::Json),
        })
    }

    /// Returns whether `name` is omitted. Only a dot matches a leading dot.
    pub fn ignores(&self, name: &[u8]) -> bool {
        self.ignored.iter().any(|pattern| pattern.matches_in_shell(name))
    }

    /// Returns whether the attributes of entries are needed.
    pub fn wants_attr(&self, colors: bool) -> bool {
        matches!(self.shape, Shape::Long | Shape::Json)
            || self.blocks
            || colors
            || self.dereference == Dereference::Always
            || matches!(self.indicator, Indicator::All | Indicator::Type)
            || matches!(self.sort, SortBy::Time | SortBy::Size)
    }
}

fn shape(args: &Args, context: &Context, terminal: bool) -> Shape {
    let long = args.numeric_uid_gid || args.no_owner || args.no_group_long || args.full_time;
    let asked = args.columns || args.across || args.commas || args.format.is_some();
    match () {
        () if context.json() => Shape::Json,
        () if args.long || (long && !asked) || args.format == Some(ListFormat::Long) => Shape::Long,
        () if args.across || args.format == Some(ListFormat::Across) => {
            Shape::Columns(ColumnOrder::Horizontal)
        }
        () if args.commas || args.format == Some(ListFormat::Commas) => Shape::Commas,
        () if args.columns || args.format == Some(ListFormat::Vertical) => {
            Shape::Columns(ColumnOrder::Vertical)
        }
        () if terminal && !args.one && !args.zero && !asked => Shape::Columns(ColumnOrder::Vertical),
        () => Shape::One,
    }
}

fn dereference(args: &Args, shape: Shape) -> Dereference {
    match () {
        () if args.dereference => Dereference::Always,
        () if args.dereference_command_line => Dereference::Operands,
        () if args.dereference_command_line_symlink_to_dir => Dereference::OperandsToDirectories,
        () if args.directory || indicator(args) == Indicator::All || shape == Shape::Long => {
            Dereference::Never
        }
        () => Dereference::OperandsToDirectories,
    }
}

fn indicator(args: &Args) -> Indicator {
    match args.indicator_style {
        Some(Marks::None) => Indicator::Nothing,
        Some(Marks::Slash) => Indicator::Slash,
        Some(Marks::FileType) => Indicator::Type,
        Some(Marks::Classify) => Indicator::All,
        None if args.classify => Indicator::All,
        None if args.file_type => Indicator::Type,
        None if args.slash => Indicator::Slash,
        None => Indicator::Nothing,
    }
}

/// Returns the patterns of names that are omitted.
fn ignored(args: &Args, hide: Hide) -> Vec<Pattern> {
    let hidden = if hide == Hide::Dotted { args.hide.as_slice() } else { &[] };
    let backups: &[&[u8]] = if args.ignore_backups { &[b"*~", b".*~"] } else { &[] };
    let named = args.ignore.iter().chain(hidden).map(|pattern| pattern.as_bytes());
    named.chain(backups.iter().copied()).map(|pattern| Pattern::new(pattern, Case::Sensitive)).collect()
}

fn sort(args: &Args, shape: Shape) -> SortBy {
    let by_word = args.sort.map(|word| match word {
        Sort::Name => SortBy::Name,
        Sort::None => SortBy::Nothing,
        Sort::Size => SortBy::Size,
        Sort::Time => SortBy::Time,
        Sort::Version => SortBy::Version,
        Sort::Extension => SortBy::Extension,
        Sort::Width => SortBy::Width,
    });
    match () {
        () if args.by_time => SortBy::Time,
        () if args.by_size => SortBy::Size,
        () if args.by_extension => SortBy::Extension,
        () if args.by_version => SortBy::Version,
        () if args.unsorted || args.raw => SortBy::Nothing,
        () if by_word.is_some() => by_word.unwrap_or(SortBy::Name),
        // Without -l, -c and -u also sort by their time.
        () if (args.change || args.access || args.time.is_some()) && shape != Shape::Long => SortBy::Time,
        () => SortBy::Name,
    }
}

fn which_time(args: &Args) -> Result<WhichTime, Report> {
    Ok(match args.time.as_deref() {
        Some("atime" | "access" | "use") => WhichTime::Accessed,
        Some("ctime" | "status") => WhichTime::Changed,
        Some("mtime" | "modification") => WhichTime::Modified,
        Some("birth" | "creation") => WhichTime::Born,
        Some(word) => {
            let help = "use atime, ctime, mtime or birth";
            return Err(Report::plain(format!("invalid value '{word}' for --time")).help(help));
        }
        None if args.change => WhichTime::Changed,
        None if args.access => WhichTime::Accessed,
        None => WhichTime::Modified,
    })
}

fn time_style(args: &Args) -> Result<time::TimeStyle, Report> {
    if args.full_time {
        return Ok(time::TimeStyle::FullIso);
    }
    let from_env = || std::env::var("TIME_STYLE").ok().filter(|s| !s.is_empty());
    match (&args.time_style, from_env()) {
        (Some(style), _) => time::TimeStyle::parse(style).map_err(Report::plain),
        // As in GNU, an invalid variable does not stop a listing.
        (None, Some(style)) => Ok(time::TimeStyle::parse(&style).unwrap_or(time::TimeStyle::Locale)),
        (None, None) => Ok(time::TimeStyle::Locale),
    }
}

fn quoting(args: &Args, terminal: bool) -> Result<NameStyle, Report> {
    let named = |word: &str| match word {
        "literal" => Some(NameStyle::Literal),
        "shell" | "shell-escape" => Some(NameStyle::Shell),
        "c" => Some(NameStyle::C),
        "escape" => Some(NameStyle::Escape),
        _ => None,
    };
    let style = match () {
        () if args.quote_name => NameStyle::C,
        () if args.escape => NameStyle::Escape,
        () if args.literal => NameStyle::Literal,
        () => match &args.quoting_style {
            Some(word) => named(word).ok_or_else(|| {
                Report::plain(format!("invalid quoting style '{word}'"))
                    .help("use literal, shell-escape, c or escape")
            })?,
            None => {
                let from_env = std::env::var("QUOTING_STYLE").ok();
                let default = if terminal { NameStyle::Shell } else { NameStyle::Literal };
                from_env.and_then(|word| named(&word)).unwrap_or(default)
            }
        },
    };
    let hide = args.hide_control_chars || (terminal && !args.show_control_chars);
    Ok(if style == NameStyle::Literal && hide { NameStyle::Question } else { style })
}
