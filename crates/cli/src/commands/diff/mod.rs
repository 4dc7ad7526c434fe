//! `obento diff`: compares two trees, each on the host or in an image.

mod bytes;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::ArgAction;
use obento::address::Operand;
use obento::base::{DeviceNumber, FileKind, Timestamp};
use obento::copy::{Problem, ProblemReason};
use obento::diff::{Change, DiffOptions, DiffSide, Difference, diff};
use obento::driver::Access;
use obento::host::sandbox::Rights;
use obento::vfs::Symlinks;
use rustix::fs::{Mode, OFlags};

use super::cp;
use crate::context::Context;
use crate::format::mode::kind_word;
use crate::format::time::{Clock, TimeStyle};
use crate::help::page::{Page, TZ};
use crate::json::{Line, hex};
use crate::open::{self, Location, join};
use crate::output::{Outcome, Output};
use crate::report::{Report, subject};

/// The page of `diff`.
pub const PAGE: Page = Page::new(&[
    ("obento diff -r one.img other.img", "Compare the files of two volumes"),
    ("obento diff -rm disk.img:/etc /etc", "Compare a directory with one of the host, including attributes"),
    ("obento diff --bytes one.img other.img", "Name the structure of the first different byte"),
])
.exit(&[
    ("0", "The operands are the same."),
    ("1", "The operands differ."),
    ("2", "Wrong usage, a part could not be compared, or the output could not be written."),
])
.unwritten(2)
.environment(&[TZ])
.see_also(&["diff(1)", "cmp(1)"]);

/// Compare two trees, each on the host or in an image
///
/// With -r, 'obento diff -r one.img other.img' compares the files in the images. Without -r, the images themselves are compared.
///
/// With --bytes, two images are compared byte by byte; the output names the structure of the first difference and counts the
/// differences.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Compare directories recursively
    #[arg(short, long)]
    recursive: bool,
    /// Ignored, for compatibility: a difference is always reported without the contents of the files
    #[arg(short = 'q', long)]
    brief: bool,
    /// Also compare permissions, owners, extended attributes, and times of modification except those of directories
    #[arg(short, long)]
    metadata: bool,
    /// Compare two images byte by byte, and name the structure of the first difference
    #[arg(long, conflicts_with_all = ["recursive", "brief", "metadata"])]
    bytes: bool,
    /// Host paths or addresses
    #[arg(value_names = ["PATH1", "PATH2"], num_args = 2, required = true, action = ArgAction::Set)]
    sides: Vec<OsString>,
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    if args.bytes {
        return bytes::run(&args.sides, context);
    }
    let is_prepared = prepare(args, context)?;
    let as_trees = args.recursive && holds_trees(&args.sides, context)?;
    if args.recursive && !as_trees {
        expect_no_host_files(&args.sides, context)?;
    }
    // It reads the time zone, a file.
    let clock = Clock::system();
    let open = |side| if as_trees { open_tree(side, context) } else { open_side(side, context) };
    let opened = args.sides.iter().map(|side| open(side)).collect::<Result<Vec<_>, _>>()?;
    if !is_prepared {
        confine(opened.iter().filter_map(Side::host), args.recursive, context);
    }
    let mut sides = opened.into_iter().map(Side::find);
    let (Some(left), Some(right)) = (sides.next(), sides.next()) else { return Ok(()) };
    let (left, right) = (left?, right?);
    if !args.recursive {
        refuse_directories(&[&left, &right])?;
    }
    let mut printer = DifferencePrinter {
        context,
        left: left.path().to_vec(),
        right: right.path().to_vec(),
        out: Output::stdout(),
        clock,
    };
    let options = if args.metadata { DiffOptions::ALL } else { DiffOptions::CONTENT };
    let mut written = Ok(());
    let report = diff(&left, &right, &options, &mut |found| {
        written = printer.report(found);
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    if report.differences > 0 || written.is_err() {
        context.raise(1);
    }
    written?;
    // A part that cannot be read was not compared.
    context.report_hidden_attributes(|report| context.fail(report));
    context.report_damage(|report| context.fail(report));
    printer.out.finish()
}

/// Opens the files of images, and gives up rights before a byte of them is decoded. This requires that every side is
/// recognised as an image or a file of the host without decoding. Returns whether it did.
fn prepare(args: &Args, context: &Context) -> Result<bool, Report> {
    let mut hosts = Vec::new();
    for side in &args.sides {
        match open::operand(side, context)? {
            Operand::Image(_) => {}
            // Whether a file is an image shows when it is decoded.
            Operand::Host(path) if path.is_dir() || !args.recursive => hosts.push(path),
            _ => return Ok(false),
        }
    }
    let prepared = open::prepare(&args.sides, open::BareOperand::HostFile, Access::ReadOnly, context);
    if prepared {
        confine(hosts.iter().map(PathBuf::as_path), args.recursive, context);
    }
    Ok(prepared)
}

/// Gives up all rights except reading below the operands that are on the host. An operand that cannot be opened is reported by the
/// comparison. If no image is read, nothing is decoded and the rights stay.
fn confine<'p>(hosts: impl Iterator<Item = &'p Path>, is_recursive: bool, context: &Context) {
    const SIDES: usize = 2;
    let hosts: Vec<_> = hosts.collect();
    if hosts.is_empty() {
        context.seal();
    } else if hosts.len() < SIDES {
        let folders: Option<Vec<_>> = hosts.into_iter().map(folder).collect();
        if let Some(folders) = folders {
            let folders: Vec<_> = folders.iter().map(AsFd::as_fd).collect();
            let trees = if is_recursive { &*folders } else { &[] };
            context.confine(Rights::ReadBeneath { folders: &folders, trees });
        }
    }
}

/// Opens the directory at `path`, or the directory of the file `path`.
fn folder(path: &Path) -> Option<OwnedFd> {
    let path = path.canonicalize().ok()?;
    let directory = if path.is_dir() { &path } else { path.parent()? };
    rustix::fs::open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// An operand whose image is open.
enum Side {
    Host(DiffSide),
    Image(Location),
}

/// Returns whether each of `sides` is a tree: a directory, a place in an image, or an image.
fn holds_trees(sides: &[OsString], context: &Context) -> Result<bool, Report> {
    for side in sides {
        let holds = match open::operand(side, context)? {
            Operand::Host(path) => path.is_dir() || names_partition(&path) || cp::is_image(&path, context)?,
            Operand::Image(_) => true,
            Operand::Stdio => false,
        };
        if !holds {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether `path` does not exist, but begins with an existing file, which `@` separates from the rest.
fn names_partition(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    let image = bytes.iter().rposition(|&byte| byte == b'@').and_then(|at| bytes.get(..at));
    image.is_some_and(|image| !path.exists() && Path::new(OsStr::from_bytes(image)).is_file())
}

/// # Errors
///
/// Both sides are files of the host, and the comparison is one of trees.
fn expect_no_host_files(sides: &[OsString], context: &Context) -> Result<(), Report> {
    let mut other = None;
    for side in sides {
        match open::operand(side, context)? {
            Operand::Host(path) if path.is_file() => {
                if !cp::is_image(&path, context)? {
                    other.get_or_insert(side);
                }
            }
            _ => return Ok(()),
        }
    }
    let Some(other) = other else { return Ok(()) };
    let report =
        Report::on("cannot compare", other.as_bytes(), "not a directory or an image with a file system");
    Err(report.help("omit -r to compare the bytes of two files"))
}

/// Opens an operand that is a tree; an image stands for its root.
fn open_tree(side: &OsStr, context: &Context) -> Result<Side, Report> {
    match open::operand(side, context)? {
        Operand::Host(path) if path.is_dir() => Ok(Side::Host(DiffSide::Host(path))),
        _ => open::open(side, context).map(Side::Image),
    }
}

fn open_side(side: &OsStr, context: &Context) -> Result<Side, Report> {
    match open::operand(side, context)? {
        Operand::Host(path) => Ok(Side::Host(DiffSide::Host(path))),
        Operand::Image(_) => open::open(side, context).map(Side::Image),
        Operand::Stdio => {
            Err(Report::new("cannot compare standard input", "it has no name and no attributes"))
        }
    }
}

impl Side {
    fn host(&self) -> Option<&Path> {
        match self {
            Self::Host(DiffSide::Host(path)) => Some(path),
            _ => None,
        }
    }

    fn find(self) -> Result<DiffSide, Report> {
        let location = match self {
            Self::Host(side) => return Ok(side),
            Self::Image(location) => location,
        };
        let shown = location.shown();
        let mut found = location.find(Symlinks::Follow, "cannot compare")?;
        let first = found.pop().filter(|_| found.is_empty());
        let found =
            first.ok_or_else(|| Report::on("cannot compare", &shown, "the pattern matches several files"))?;
        Ok(DiffSide::Image { path: found.shown(), node: found.node })
    }
}

fn refuse_directories(sides: &[&DiffSide]) -> Result<(), Report> {
    for side in sides {
        let is_dir = match side {
            DiffSide::Host(path) => path.is_dir(),
            DiffSide::Image { node, .. } => node.kind() == Ok(FileKind::Directory),
        };
        if is_dir {
            let report = Report::on("cannot compare", side.path(), "is a directory");
            return Err(report.help("use -r to compare directories"));
        }
    }
    Ok(())
}

/// Writes the differences.
struct DifferencePrinter<'c> {
    context: &'c Context,
    left: Vec<u8>,
    right: Vec<u8>,
    out: Output,
    clock: Clock,
}

impl DifferencePrinter<'_> {
    fn report(&mut self, found: Result<Difference, Problem>) -> io::Result<()> {
        match found {
            Err(problem) => {
                // An error of the host names the operation and the file.
                let report = match &problem.trouble {
                    ProblemReason::Host(error) => Report::plain(error),
                    ProblemReason::Xattr { name, error } => {
                        let action = format!("cannot compare attribute {} of", subject(name));
                        Report::on(&action, &problem.path, error)
                    }
                    ProblemReason::Xattrs(error) => {
                        Report::on("cannot compare the attributes of", &problem.path, error)
                    }
                    reason => Report::on("cannot compare", &problem.path, reason),
                };
                self.context.fail(&report);
                Ok(())
            }
            Ok(found) if self.context.json() => self.json(&found),
            Ok(found) => self.text(&found),
        }
    }

    fn path(base: &[u8], below: &[u8]) -> Vec<u8> {
        if below.is_empty() { base.to_vec() } else { join(base, below) }
    }

    /// Returns a line in the format of `diff -rq`.
    fn text(&mut self, found: &Difference) -> io::Result<()> {
        let (left, right) = (Self::path(&self.left, &found.path), Self::path(&self.right, &found.path));
        let (left, right) = (self.shown(&left), self.shown(&right));
        let line = match &found.change {
            Change::OnlyLeft(_) => self.only(&self.left, &found.path),
            Change::OnlyRight(_) => self.only(&self.right, &found.path),
            Change::Kind(a, b) => {
                let (a, b) = (article(*a), article(*b));
                [b"File ", &left[..], b" is ", a, b" while file ", &right, b" is ", b].concat()
            }
            Change::Size(..) | Change::Content(_) => {
                [b"Files ", &left[..], b" and ", &right, b" differ"].concat()
            }
            Change::Target(..) => [b"Symbolic links ", &left[..], b" and ", &right, b" differ"].concat(),
            other => {
                let (what, a, b) = self.attribute(other);
                let tail = format!(" differ in {what}: {a} and {b}");
                [b"Files ", &left[..], b" and ", &right, tail.as_bytes()].concat()
            }
        };
        self.out.write_all(&line)?;
        self.out.write_all(b"\n")
    }

    /// `Only in DIRECTORY: NAME`.
    fn only(&self, base: &[u8], below: &[u8]) -> Vec<u8> {
        let slash = below.iter().rposition(|&b| b == b'/');
        let (directory, name) = match slash {
            Some(slash) => (Self::path(base, &below[..slash]), &below[slash + 1..]),
            None => (base.to_vec(), below),
        };
        [b"Only in ", &self.shown(&directory)[..], b": ", &self.shown(name)].concat()
    }

    /// Returns a name as it is written: escaped on a terminal.
    fn shown(&self, name: &[u8]) -> Vec<u8> {
        self.out.shown(name).into_owned()
    }

    /// Returns the attribute that differs, and both values as text.
    fn attribute(&mut self, change: &Change) -> (String, String, String) {
        match change {
            Change::Mode(a, b) => {
                let octal = |mode: &obento::base::Mode| format!("{:04o}", mode.bits());
                ("mode".into(), octal(a), octal(b))
            }
            Change::Owner(a, b) => {
                let pair = |(uid, gid): &(u32, u32)| format!("{uid}:{gid}");
                ("owner".into(), pair(a), pair(b))
            }
            Change::Modified(a, b) => ("time of modification".into(), self.time(*a), self.time(*b)),
            Change::Device(a, b) => {
                let pair = |number: &DeviceNumber| format!("{}, {}", number.major, number.minor);
                ("device number".into(), pair(a), pair(b))
            }
            Change::Xattr(name, a, b) => {
                let value = |value: &Option<Vec<u8>>| match value {
                    Some(value) => value_text(value),
                    None => "none".into(),
                };
                (format!("attribute {}", subject(name)), value(a), value(b))
            }
            _ => (String::new(), String::new(), String::new()),
        }
    }

    fn time(&mut self, time: Timestamp) -> String {
        self.clock.text(&TimeStyle::FullIso, time)
    }

    fn json(&mut self, found: &Difference) -> io::Result<()> {
        let (left, right) = (Self::path(&self.left, &found.path), Self::path(&self.right, &found.path));
        let line = |what: &str| Line::new("difference").field("what", what);
        let both = |line: Line| line.bytes("left", &left).bytes("right", &right);
        let line = match &found.change {
            Change::OnlyLeft(kind) => {
                line("only_left").bytes("left", &left).field("left_type", kind_word(*kind))
            }
            Change::OnlyRight(kind) => {
                line("only_right").bytes("right", &right).field("right_type", kind_word(*kind))
            }
            Change::Kind(a, b) => {
                both(line("type")).field("left_type", kind_word(*a)).field("right_type", kind_word(*b))
            }
            Change::Size(a, b) => both(line("size")).field("left_size", a).field("right_size", b),
            Change::Content(at) => both(line("content")).field("offset", at),
            Change::Target(a, b) => both(line("target")).bytes("left_target", a).bytes("right_target", b),
            Change::Modified(a, b) => both(line("mtime")).time("left_mtime", *a).time("right_mtime", *b),
            Change::Xattr(name, a, b) => {
                let value = |value: &Option<Vec<u8>>| value.as_deref().map(hex);
                both(line("xattr"))
                    .bytes("name", name)
                    .field("left_hex", value(a))
                    .field("right_hex", value(b))
            }
            other => {
                let (what, a, b) = self.attribute(other);
                both(line(&what.replace(' ', "_"))).field("left_value", a).field("right_value", b)
            }
        };
        line.write(&mut self.out)
    }
}

/// Returns the words of diff(1).
fn article(kind: FileKind) -> &'static [u8] {
    match kind {
        FileKind::Regular => b"a regular file",
        FileKind::Directory => b"a directory",
        FileKind::Symlink => b"a symbolic link",
        FileKind::CharDevice => b"a character special file",
        FileKind::BlockDevice => b"a block special file",
        FileKind::Fifo => b"a fifo",
        FileKind::Socket => b"a socket",
    }
}

/// Returns text if the bytes are printable, and otherwise hexadecimal; a long value is truncated.
fn value_text(value: &[u8]) -> String {
    const SHOWN: usize = 32;
    let start = &value[..value.len().min(SHOWN)];
    let more = if value.len() > SHOWN { "..." } else { "" };
    match std::str::from_utf8(start) {
        Ok(text) if !text.chars().any(char::is_control) => format!("\"{text}\"{more}"),
        _ => format!("0x{}{more}", hex(start)),
    }
}
