//! The evaluation of an expression for one file after another.

use std::borrow::Cow;
use std::io::{self, Write};

use obento::Error;
use obento::base::{Attr, FileKind, Ino, Timestamp};

use crate::escape::{NameStyle, escape};
use crate::report::Report;

use super::exec::{CopyFailure, Runner};
use super::expression::{Action, Expr, OutputIndex, Owner, Reference, Test, TimeField};
use super::ls::Columns;
use super::stamp::Zone;

/// A file as the tests see it.
pub trait File {
    /// Returns the kind that the directory entry names, or that of the inode.
    fn kind(&self) -> Result<FileKind, Error>;
    /// Returns the attributes.
    fn attr(&self) -> Result<Attr, Error>;
    /// Returns the attributes of the final target of a link, or of the file itself; `None` if the target
    /// does not exist.
    fn target_attr(&self) -> Result<Option<Attr>, Error>;
    /// Returns the kind for `-xtype`: that of the target of a link, or that of the link itself if links
    /// are followed.
    fn other_kind(&self) -> Result<FileKind, Error> {
        Ok(self.target_kind()?.unwrap_or(FileKind::Symlink))
    }
    /// Returns the target of a link; `None` for other files.
    fn link_target(&self) -> Result<Option<Vec<u8>>, Error>;
    /// Returns whether a directory is empty.
    fn is_empty_dir(&self) -> Result<bool, Error>;
    /// Returns the SELinux context, if it exists.
    fn context(&self) -> Result<Option<Vec<u8>>, Error>;
    /// Returns the name of a user from the passwd file of the image.
    fn user_name(&self, uid: u32) -> Option<&[u8]>;
    /// Returns the name of a group from the group file of the image.
    fn group_name(&self, gid: u32) -> Option<&[u8]>;
    /// Returns the number of a user or group with this name in the image.
    fn owner_id(&self, owner: Owner, name: &[u8]) -> Option<u32>;
    /// Returns the type of the file system, such as `ext4`.
    fn fs_type(&self) -> &str;
    /// Returns a number that identifies the volume, as [`Reference::volume`] does.
    fn volume(&self) -> usize;
    /// Writes the file as a line of JSON.
    fn write_json(&self, address: &[u8], name: &[u8], out: &mut dyn Write) -> Result<(), EvaluationError>;
    /// Writes the contents to the new host file `to`. Returns their length.
    fn copy_out(&self, to: std::fs::File) -> Result<u64, CopyFailure>;

    /// Returns the kind of [`target_attr`](Self::target_attr).
    fn target_kind(&self) -> Result<Option<FileKind>, Error> {
        match self.kind()? {
            FileKind::Symlink => Ok(self.target_attr()?.map(|attr| attr.kind)),
            kind => Ok(Some(kind)),
        }
    }
}

/// A file and its position in the walk.
#[derive(Clone, Copy)]
pub struct VisitedEntry<'a> {
    /// The address up to the path: `disk.img:`, `disk.img@2:`.
    pub prefix: &'a [u8],
    /// The path inside the image, with the start point as the user wrote it.
    pub path: &'a [u8],
    /// The start point as the user wrote it.
    pub start: &'a [u8],
    /// The length of the start point in `path`.
    pub start_len: usize,
    /// The number of levels below the start point.
    pub depth: usize,
    /// The file.
    pub file: &'a dyn File,
}

impl VisitedEntry<'_> {
    /// Returns the output of `-print`, which every obento command accepts as an operand.
    pub fn address(&self) -> Vec<u8> {
        [self.prefix, self.path].concat()
    }

    /// Returns the last component; `/` for the root.
    pub fn name(&self) -> &[u8] {
        let end = self.path.iter().rposition(|&b| b != b'/').map_or(1, |last| last + 1);
        let path = &self.path[..end.min(self.path.len())];
        match path.iter().rposition(|&b| b == b'/') {
            Some(slash) if path.len() > 1 => &path[slash + 1..],
            _ => path,
        }
    }

    /// Returns the address without the last component.
    pub fn directory(&self) -> Vec<u8> {
        let end = self.path.iter().rposition(|&b| b == b'/').unwrap_or_default();
        [self.prefix, &self.path[..end]].concat()
    }

    /// Returns the path below the start point.
    pub fn relative(&self) -> &[u8] {
        let below = self.path.get(self.start_len..).unwrap_or_default();
        below.strip_prefix(b"/").unwrap_or(below)
    }

    /// Returns a time of the file, if the format stores it.
    pub fn time(&self, stamp: TimeField) -> Result<Option<Timestamp>, Error> {
        Ok(time_of(&self.file.attr()?, stamp))
    }
}

/// Returns the time of the kind `stamp`.
pub fn time_of(attr: &Attr, stamp: TimeField) -> Option<Timestamp> {
    match stamp {
        TimeField::Access => Some(attr.atime),
        TimeField::Birth => attr.btime,
        TimeField::Change => Some(attr.ctime),
        TimeField::Modify => Some(attr.mtime),
    }
}

/// The effects of an expression on the search.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    /// Do not descend.
    pub prune: bool,
    /// Stop the search.
    pub quit: bool,
}

/// The reason why an expression cannot be evaluated for a file.
#[derive(Debug)]
pub enum EvaluationError {
    /// The image cannot be read.
    File(Error),
    /// An output cannot be written.
    Output(io::Error),
    /// A command could not be run, for this reason.
    Command(Report),
}

impl From<Error> for EvaluationError {
    fn from(error: Error) -> Self {
        Self::File(error)
    }
}

impl From<io::Error> for EvaluationError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// The output of an action, and the format of names in it.
pub struct Sink<'a> {
    /// The stream.
    pub out: Box<dyn Write + 'a>,
    /// The format of names of `-print` and `-printf`: unchanged, or with `?` on a terminal.
    pub style: NameStyle,
}

/// An expression and the state of its actions.
pub struct Evaluator<'a> {
    /// The expression.
    pub expr: &'a Expr,
    /// The zone of printed times.
    pub zone: Zone,
    /// The start time of the search.
    pub now: Timestamp,
    /// The outputs, by [`OutputIndex`].
    pub sinks: Vec<Sink<'a>>,
    /// The runner of the commands of `-exec`.
    pub runner: Runner<'a>,
    /// `--json`: `-print` writes JSON.
    pub json: bool,
    /// The widths of the columns of `-ls`.
    pub columns: Columns,
}

impl Evaluator<'_> {
    /// Evaluates the expression for `entry`.
    pub fn evaluate(&mut self, entry: &VisitedEntry<'_>) -> Result<Verdict, EvaluationError> {
        let mut verdict = Verdict::default();
        self.ask(self.expr, entry, &mut verdict)?;
        Ok(verdict)
    }

    /// Runs the commands that wait for more files, and flushes the outputs.
    pub fn finish(&mut self) -> Result<(), EvaluationError> {
        self.flush()?;
        let ran = self.runner.finish();
        self.flush()?;
        ran
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sinks.iter_mut().try_for_each(|sink| sink.out.flush())
    }

    fn ask(
        &mut self,
        expr: &Expr,
        entry: &VisitedEntry<'_>,
        verdict: &mut Verdict,
    ) -> Result<bool, EvaluationError> {
        match expr {
            Expr::Test(test) => Ok(ask_test(test, entry)?),
            Expr::Act(action) => self.act(action, entry, verdict),
            Expr::Not(inner) => Ok(!self.ask(inner, entry, verdict)? && !verdict.quit),
            Expr::All(parts) => self.until(parts, entry, verdict, |answer| !answer, true),
            Expr::Any(parts) => self.until(parts, entry, verdict, |answer| answer, false),
            Expr::Sequence(parts) => self.until(parts, entry, verdict, |_| false, true),
        }
    }

    /// Evaluates `parts` in turn until a result `ends` the chain. Returns the last result. After `-quit`,
    /// evaluates nothing more.
    fn until(
        &mut self,
        parts: &[Expr],
        entry: &VisitedEntry<'_>,
        verdict: &mut Verdict,
        ends: fn(bool) -> bool,
        empty: bool,
    ) -> Result<bool, EvaluationError> {
        let mut answer = empty;
        for part in parts {
            answer = self.ask(part, entry, verdict)?;
            if ends(answer) || verdict.quit {
                break;
            }
        }
        Ok(answer)
    }

    fn act(
        &mut self,
        action: &Action,
        entry: &VisitedEntry<'_>,
        verdict: &mut Verdict,
    ) -> Result<bool, EvaluationError> {
        match action {
            Action::Print(OutputIndex(0)) if self.json => {
                entry.file.write_json(&entry.address(), entry.name(), &mut *self.sinks[0].out)?;
            }
            Action::Print(output) => self.print(*output, entry, b"\n")?,
            Action::Print0(OutputIndex(index)) => {
                let out = &mut self.sinks[*index].out;
                out.write_all(&entry.address())?;
                out.write_all(b"\0")?;
            }
            Action::Printf(OutputIndex(index), format) => {
                let sink = &mut self.sinks[*index];
                let style = sink.style;
                let mut text = Vec::new();
                let show = |name: &[u8]| escape(name, style).into_owned();
                let rendered = format.render(entry, &self.zone, &show, &mut text);
                sink.out.write_all(&text)?;
                rendered?;
            }
            Action::Ls(output) => self.ls(*output, entry)?,
            Action::Exec(command) => {
                // Output before the command must not appear after the output of the command.
                self.flush()?;
                return self.runner.run(*command, entry);
            }
            Action::Prune => verdict.prune = true,
            Action::Quit => verdict.quit = true,
        }
        Ok(true)
    }

    fn print(
        &mut self,
        OutputIndex(index): OutputIndex,
        entry: &VisitedEntry<'_>,
        end: &[u8],
    ) -> io::Result<()> {
        let sink = &mut self.sinks[index];
        let mut line = escape(&entry.address(), sink.style).into_owned();
        line.extend_from_slice(end);
        sink.out.write_all(&line)
    }

    fn ls(
        &mut self,
        OutputIndex(index): OutputIndex,
        entry: &VisitedEntry<'_>,
    ) -> Result<(), EvaluationError> {
        let attr = entry.file.attr()?;
        let name = |id: u32, name: Option<&[u8]>| match name {
            Some(name) => Cow::Owned(String::from_utf8_lossy(&escape(name, NameStyle::Escape)).into_owned()),
            None => Cow::<str>::Owned(id.to_string()),
        };
        let user = name(attr.uid, entry.file.user_name(attr.uid));
        let group = name(attr.gid, entry.file.group_name(attr.gid));
        let mut line = self.columns.line(&attr, &user, &group, self.now, &self.zone).into_bytes();
        line.extend_from_slice(&escape(&entry.address(), NameStyle::Escape));
        if let Some(target) = entry.file.link_target()? {
            line.extend_from_slice(b" -> ");
            line.extend_from_slice(&escape(&target, NameStyle::Escape));
        }
        line.push(b'\n');
        Ok(self.sinks[index].out.write_all(&line)?)
    }
}

fn ask_test(test: &Test, entry: &VisitedEntry<'_>) -> Result<bool, Error> {
    let file = entry.file;
    Ok(match test {
        Test::Always(answer) => *answer,
        Test::Name(pattern) => pattern.matches(entry.name()),
        Test::Path(pattern) => pattern.matches(entry.path),
        Test::Regex(regex) => regex.is_match(entry.path),
        Test::LinkName(pattern) => file.link_target()?.is_some_and(|target| pattern.matches(&target)),
        Test::Type(kinds) => kinds.contains(&file.kind()?),
        Test::TargetType(kinds) => kinds.contains(&file.other_kind()?),
        Test::Size(size) => size.matches(file.attr()?.size),
        Test::Inode(number) => number.matches(file.attr()?.ino.0),
        Test::Links(number) => number.matches(file.attr()?.nlink.into()),
        Test::UserId(number) => number.matches(file.attr()?.uid.into()),
        Test::GroupId(number) => number.matches(file.attr()?.gid.into()),
        Test::OwnedBy(Owner::User, name) => file.owner_id(Owner::User, name) == Some(file.attr()?.uid),
        Test::OwnedBy(Owner::Group, name) => file.owner_id(Owner::Group, name) == Some(file.attr()?.gid),
        Test::NoUser => file.user_name(file.attr()?.uid).is_none(),
        Test::NoGroup => file.group_name(file.attr()?.gid).is_none(),
        Test::Empty => match file.kind()? {
            FileKind::Regular => file.attr()?.size == 0,
            FileKind::Directory => file.is_empty_dir()?,
            _ => false,
        },
        Test::Permission(perm) => {
            let attr = file.attr()?;
            perm.matches(attr.mode, attr.is_dir())
        }
        Test::Time(stamp, test) => entry.time(*stamp)?.is_some_and(|time| test.matches(time)),
        Test::Newer(stamp, than) => entry.time(*stamp)?.is_some_and(|time| time > *than),
        Test::SameFile(Reference { volume, ino }) => file.volume() == *volume && same(file, *ino)?,
        Test::Executable => match file.target_attr() {
            Ok(attr) => attr.is_some_and(|attr| attr.is_dir() || attr.mode.bits() & 0o111 != 0),
            Err(Error::Loop) => false,
            Err(error) => return Err(error),
        },
        Test::FsType(name) => file.fs_type().as_bytes() == name,
    })
}

fn same(file: &dyn File, ino: Ino) -> Result<bool, Error> {
    Ok(file.attr()?.ino == ino)
}
