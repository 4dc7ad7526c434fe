//! The parts of an expression.

use std::ffi::OsString;

use obento::base::{FileKind, Timestamp};
use obento::pattern::Pattern;

use super::compare::{Compare, SizeTest, TimeTest};
use super::format::PrintfFormat;
use super::perm::PermTest;

/// An expression: operators over tests and actions. Chains are flat, so that a long one does not nest.
#[derive(Debug)]
pub enum Expr {
    /// `a -a b -a c`: true if all are true; evaluation stops at the first one that is false.
    All(Vec<Expr>),
    /// `a -o b -o c`: true if one is true; evaluation stops there.
    Any(Vec<Expr>),
    /// `a , b , c`: all are evaluated, and the result is that of the last one.
    Sequence(Vec<Expr>),
    /// `! a`.
    Not(Box<Expr>),
    /// A test.
    Test(Test),
    /// An action.
    Act(Action),
}

/// A test of a file.
#[derive(Debug)]
pub enum Test {
    /// `-true`, `-false`, and options, which are true.
    Always(bool),
    /// `-name`, `-iname`: the last component.
    Name(Pattern),
    /// `-path`, `-ipath`: the whole path inside the image.
    Path(Pattern),
    /// `-lname`, `-ilname`: the target of a symbolic link.
    LinkName(Pattern),
    /// `-regex`, `-iregex`: the whole path inside the image.
    Regex(regex::bytes::Regex),
    /// `-type`.
    Type(Vec<FileKind>),
    /// `-xtype`: the type of the target of a link.
    TargetType(Vec<FileKind>),
    /// `-size`.
    Size(SizeTest),
    /// `-inum`.
    Inode(Compare),
    /// `-links`.
    Links(Compare),
    /// `-uid`, and `-user` with a number.
    UserId(Compare),
    /// `-gid`, and `-group` with a number.
    GroupId(Compare),
    /// `-user` or `-group` with a name that the image defines.
    OwnedBy(Owner, Vec<u8>),
    /// `-nouser`.
    NoUser,
    /// `-nogroup`.
    NoGroup,
    /// `-empty`.
    Empty,
    /// `-perm`.
    Permission(PermTest),
    /// `-mtime`, `-amin`, ...
    Time(TimeField, TimeTest),
    /// `-newer`, `-anewer`, `-newerXY`: later than this time.
    Newer(TimeField, Timestamp),
    /// `-samefile`.
    SameFile(Reference),
    /// `-executable`: the owner of the image may execute or enter the file.
    Executable,
    /// `-fstype`.
    FsType(Vec<u8>),
}

/// An action on a file. Every action is also a test.
#[derive(Debug)]
pub enum Action {
    /// `-print`, `-fprint`.
    Print(OutputIndex),
    /// `-print0`, `-fprint0`.
    Print0(OutputIndex),
    /// `-printf`, `-fprintf`.
    Printf(OutputIndex, PrintfFormat),
    /// `-ls`, `-fls`.
    Ls(OutputIndex),
    /// `-exec` and similar actions: the position in [`Parsed::commands`](super::Parsed).
    Exec(usize),
    /// `-prune`: do not descend.
    Prune,
    /// `-quit`: stop at once.
    Quit,
}

/// The output of an action: the position in [`Parsed::outputs`](super::Parsed), whose first is standard
/// output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutputIndex(pub usize);

/// One `-exec`, `-execdir`, `-ok` or `-okdir`.
#[derive(PartialEq, Eq, Debug)]
pub struct ExecCommand {
    /// The program and its arguments; `{}` in them stands for the file.
    pub words: Vec<OsString>,
    /// `+`: as many files as fit, instead of one.
    pub batched: bool,
    /// Whether the user is asked first.
    pub consent: Consent,
    /// The working directory of the command.
    pub place: RunIn,
}

/// Whether the user is asked before a command runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Consent {
    Given,
    /// `-ok`, `-okdir`: after the user agrees.
    Asked,
}

/// The working directory of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunIn {
    /// That of obento.
    Here,
    /// `-execdir`, `-okdir`: in the temporary directory of the copy, which is then called `./NAME`.
    Directory,
}

/// A list of names in an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// `/etc/passwd`.
    User,
    /// `/etc/group`.
    Group,
}

/// One of the times of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeField {
    /// Last access.
    Access,
    /// Creation.
    Birth,
    /// Last change of data or attributes.
    Change,
    /// Last change of the data.
    Modify,
}

/// A file that an argument names, for comparisons with others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reference {
    /// A number that identifies the volume.
    pub volume: usize,
    /// The inode.
    pub ino: obento::base::Ino,
}

/// The settings of the whole search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Evaluate nothing above this depth; start points have depth 0.
    pub min_depth: usize,
    /// Do not descend below this depth.
    pub max_depth: usize,
    /// `-follow`: the same as `-L` before the start points.
    pub follow: bool,
    /// The contents of a directory before or after the directory.
    pub order: DirectoryOrder,
    /// `--json` within the expression.
    pub json: bool,
}

/// The position of a directory in the order of the search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirectoryOrder {
    /// Before its contents.
    Pre,
    /// After its contents: `-depth`.
    Post,
}

impl Default for Options {
    fn default() -> Self {
        Self { min_depth: 0, max_depth: usize::MAX, follow: false, order: DirectoryOrder::Pre, json: false }
    }
}
