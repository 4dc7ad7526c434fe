//! What an expression is made of.

use std::ffi::OsString;

use obento::{FileKind, Timestamp};

use super::compare::{Compare, SizeTest, TimeTest};
use super::format::Format;
use super::pattern::Pattern;
use super::perm::PermTest;

/// An expression: operators over tests and actions. Chains are flat, so that a long one does not nest.
#[derive(Debug)]
pub enum Expr {
    /// `a -a b -a c`: true if all are; stops at the first that is not.
    All(Vec<Expr>),
    /// `a -o b -o c`: true if one is; stops there.
    Any(Vec<Expr>),
    /// `a , b , c`: all are asked, the last one's answer counts.
    Sequence(Vec<Expr>),
    /// `! a`.
    Not(Box<Expr>),
    /// A test.
    Test(Test),
    /// An action.
    Act(Action),
}

/// A question about one file.
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
    /// `-xtype`: the type of what a link leads to.
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
    /// `-user` or `-group` with a name that the image knows.
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
    Time(Stamp, TimeTest),
    /// `-newer`, `-anewer`, `-newerXY`: younger than this moment.
    Newer(Stamp, Timestamp),
    /// `-samefile`.
    SameFile(Reference),
    /// `-executable`: the image's owner may execute or enter it.
    Executable,
    /// `-fstype`.
    FsType(Vec<u8>),
}

/// Something done to one file. Every action is also a test.
#[derive(Debug)]
pub enum Action {
    /// `-print`, `-fprint`.
    Print(Output),
    /// `-print0`, `-fprint0`.
    Print0(Output),
    /// `-printf`, `-fprintf`.
    Printf(Output, Format),
    /// `-ls`, `-fls`.
    Ls(Output),
    /// `-exec` and its like: the position in [`Parsed::commands`](super::Parsed).
    Exec(usize),
    /// `-prune`: do not descend.
    Prune,
    /// `-quit`: stop at once.
    Quit,
}

/// Where an action writes: the position in [`Parsed::outputs`](super::Parsed), whose first is standard output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Output(pub usize);

/// One `-exec`, `-execdir`, `-ok` or `-okdir`.
#[derive(PartialEq, Eq, Debug)]
pub struct Command {
    /// Program and arguments; `{}` in them stands for the file.
    pub words: Vec<OsString>,
    /// `+`: as many files as fit in place of one.
    pub batched: bool,
    /// Whether it runs at once.
    pub consent: Consent,
    /// Where it runs.
    pub place: RunIn,
}

/// Whether a command runs at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Consent {
    Given,
    /// `-ok`, `-okdir`: a person is asked first.
    Asked,
}

/// Where a command runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunIn {
    /// Where obento was started.
    Here,
    /// `-execdir`, `-okdir`: in the temporary directory of the copy, which is then called `./NAME`.
    Directory,
}

/// Of whom an image has a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// `/etc/passwd`.
    User,
    /// `/etc/group`.
    Group,
}

/// One of the times of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stamp {
    /// Last access.
    Access,
    /// Creation.
    Birth,
    /// Last change of data or attributes.
    Change,
    /// Last change of the data.
    Modify,
}

/// A file that an argument names, to compare others with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reference {
    /// A number that identifies the volume.
    pub volume: usize,
    /// The inode.
    pub ino: obento::Ino,
}

/// What holds for the whole search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Apply nothing above this depth; start points have depth 0.
    pub min_depth: usize,
    /// Do not descend below this depth.
    pub max_depth: usize,
    /// `-follow`: as `-L` before the start points.
    pub follow: bool,
    /// Contents of a directory before or after it.
    pub order: Order,
    /// `--json` within the expression.
    pub json: bool,
}

/// When a directory itself has its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Before its contents.
    Pre,
    /// After them: `-depth`.
    Post,
}

impl Default for Options {
    fn default() -> Self {
        Self { min_depth: 0, max_depth: usize::MAX, follow: false, order: Order::Pre, json: false }
    }
}
