//! An expression asked of one file after another.

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::Path;

use obento::{Attr, Error, FileKind, Ino, Timestamp};

use crate::escape::{Style, escape};

use super::exec::{CopyFailure, Runner};
use super::expression::{Action, Expr, Output, Owner, Reference, Stamp, Test};
use super::ls::Columns;
use super::stamp::Zone;

/// A file as the tests see it.
pub trait File {
    /// What the directory says it is, or else the inode.
    fn kind(&self) -> Result<FileKind, Error>;
    /// The attributes.
    fn attr(&self) -> Result<Attr, Error>;
    /// The attributes of what a link leads to at last, or of the file itself; none if it leads nowhere.
    fn target_attr(&self) -> Result<Option<Attr>, Error>;
    /// What `-xtype` asks for: the kind of what a link leads to, or where links are followed that of the link itself.
    fn other_kind(&self) -> Result<FileKind, Error> {
        Ok(self.target_kind()?.unwrap_or(FileKind::Symlink))
    }
    /// The target of a link; none if this is no link.
    fn link_target(&self) -> Result<Option<Vec<u8>>, Error>;
    /// Whether a directory has no entries.
    fn is_empty_dir(&self) -> Result<bool, Error>;
    /// The SELinux context, if there is one.
    fn context(&self) -> Result<Option<Vec<u8>>, Error>;
    /// Name of a user in the image's passwd.
    fn user_name(&self, uid: u32) -> Option<&[u8]>;
    /// Name of a group in the image's group file.
    fn group_name(&self, gid: u32) -> Option<&[u8]>;
    /// Number of a user or group by its name in the image.
    fn owner_id(&self, owner: Owner, name: &[u8]) -> Option<u32>;
    /// `ext4` and the like.
    fn fs_type(&self) -> &str;
    /// Returns a number that identifies the volume, as [`Reference::volume`] does.
    fn volume(&self) -> usize;
    /// Writes the file as a line of JSON.
    fn write_json(&self, address: &[u8], name: &[u8], out: &mut dyn Write) -> Result<(), Trouble>;
    /// Writes the contents to the new host file `to` and answers their size.
    fn copy_out(&self, to: &Path) -> Result<u64, CopyFailure>;

    /// The kind of [`target_attr`](Self::target_attr).
    fn target_kind(&self) -> Result<Option<FileKind>, Error> {
        match self.kind()? {
            FileKind::Symlink => Ok(self.target_attr()?.map(|attr| attr.kind)),
            kind => Ok(Some(kind)),
        }
    }
}

/// A file and where the walk met it.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    /// What an address has before the path: `disk.img:`, `disk.img@2:`.
    pub prefix: &'a [u8],
    /// Path inside the image, from its start point as it was given.
    pub path: &'a [u8],
    /// The start point as it was given.
    pub start: &'a [u8],
    /// How much of `path` is the start point's.
    pub start_len: usize,
    /// Levels below the start point.
    pub depth: usize,
    /// The file.
    pub file: &'a dyn File,
}

impl Entry<'_> {
    /// What `-print` prints, and every obento command takes as an operand.
    pub fn address(&self) -> Vec<u8> {
        [self.prefix, self.path].concat()
    }

    /// The last component; `/` for the root.
    pub fn name(&self) -> &[u8] {
        let end = self.path.iter().rposition(|&b| b != b'/').map_or(1, |last| last + 1);
        let path = &self.path[..end.min(self.path.len())];
        match path.iter().rposition(|&b| b == b'/') {
            Some(slash) if path.len() > 1 => &path[slash + 1..],
            _ => path,
        }
    }

    /// The address without the last component.
    pub fn directory(&self) -> Vec<u8> {
        let end = self.path.iter().rposition(|&b| b == b'/').unwrap_or_default();
        [self.prefix, &self.path[..end]].concat()
    }

    /// The path below the start point.
    pub fn relative(&self) -> &[u8] {
        let below = self.path.get(self.start_len..).unwrap_or_default();
        below.strip_prefix(b"/").unwrap_or(below)
    }

    /// A time of the file, if the format stores it.
    pub fn time(&self, stamp: Stamp) -> Result<Option<Timestamp>, Error> {
        Ok(time_of(&self.file.attr()?, stamp))
    }
}

/// The time that `stamp` names.
pub fn time_of(attr: &Attr, stamp: Stamp) -> Option<Timestamp> {
    match stamp {
        Stamp::Access => Some(attr.atime),
        Stamp::Birth => attr.btime,
        Stamp::Change => Some(attr.ctime),
        Stamp::Modify => Some(attr.mtime),
    }
}

/// What an expression says of one file beyond its truth.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    /// Do not descend.
    pub prune: bool,
    /// Stop the search.
    pub quit: bool,
}

/// Why an expression has no answer for one file.
#[derive(Debug)]
pub enum Trouble {
    /// The image cannot be read.
    File(Error),
    /// An output cannot be written.
    Output(io::Error),
    /// A command could not be run on it: why.
    Command(String),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::File(error)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Where an action writes, and how names look there.
pub struct Sink<'a> {
    /// The stream.
    pub out: Box<dyn Write + 'a>,
    /// For `-print` and names in `-printf`: as they are, or with `?` on a terminal.
    pub style: Style,
}

/// An expression with what its actions need.
pub struct Evaluator<'a> {
    /// The expression.
    pub expr: &'a Expr,
    /// In which times are printed.
    pub zone: Zone,
    /// When the search began.
    pub now: Timestamp,
    /// The places to write to, by [`Output`].
    pub sinks: Vec<Sink<'a>>,
    /// Runs the commands of `-exec`.
    pub runner: Runner<'a>,
    /// `--json`: `-print` writes JSON.
    pub json: bool,
    /// Widths of `-ls`.
    pub columns: Columns,
}

impl Evaluator<'_> {
    /// Asks the expression of `entry`.
    pub fn evaluate(&mut self, entry: &Entry<'_>) -> Result<Verdict, Trouble> {
        let mut verdict = Verdict::default();
        self.ask(self.expr, entry, &mut verdict)?;
        Ok(verdict)
    }

    /// Runs what waits for more files, and writes out what is buffered.
    pub fn finish(&mut self) -> Result<(), Trouble> {
        self.flush()?;
        let ran = self.runner.finish();
        self.flush()?;
        ran
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sinks.iter_mut().try_for_each(|sink| sink.out.flush())
    }

    fn ask(&mut self, expr: &Expr, entry: &Entry<'_>, verdict: &mut Verdict) -> Result<bool, Trouble> {
        match expr {
            Expr::Test(test) => Ok(ask_test(test, entry)?),
            Expr::Act(action) => self.act(action, entry, verdict),
            Expr::Not(inner) => Ok(!self.ask(inner, entry, verdict)? && !verdict.quit),
            Expr::All(parts) => self.until(parts, entry, verdict, |answer| !answer, true),
            Expr::Any(parts) => self.until(parts, entry, verdict, |answer| answer, false),
            Expr::Sequence(parts) => self.until(parts, entry, verdict, |_| false, true),
        }
    }

    /// Asks `parts` in turn until an answer `ends` it, and gives the last one. After `-quit` nothing more is asked.
    fn until(
        &mut self,
        parts: &[Expr],
        entry: &Entry<'_>,
        verdict: &mut Verdict,
        ends: fn(bool) -> bool,
        empty: bool,
    ) -> Result<bool, Trouble> {
        let mut answer = empty;
        for part in parts {
            answer = self.ask(part, entry, verdict)?;
            if ends(answer) || verdict.quit {
                break;
            }
        }
        Ok(answer)
    }

    fn act(&mut self, action: &Action, entry: &Entry<'_>, verdict: &mut Verdict) -> Result<bool, Trouble> {
        match action {
            Action::Print(Output(0)) if self.json => {
                entry.file.write_json(&entry.address(), entry.name(), &mut *self.sinks[0].out)?;
            }
            Action::Print(output) => self.print(*output, entry, b"\n")?,
            Action::Print0(Output(index)) => {
                let out = &mut self.sinks[*index].out;
                out.write_all(&entry.address())?;
                out.write_all(b"\0")?;
            }
            Action::Printf(Output(index), format) => {
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
                // What was printed before the command must not appear after what it prints.
                self.flush()?;
                return self.runner.run(*command, entry);
            }
            Action::Prune => verdict.prune = true,
            Action::Quit => verdict.quit = true,
        }
        Ok(true)
    }

    fn print(&mut self, Output(index): Output, entry: &Entry<'_>, end: &[u8]) -> io::Result<()> {
        let sink = &mut self.sinks[index];
        let mut line = escape(&entry.address(), sink.style).into_owned();
        line.extend_from_slice(end);
        sink.out.write_all(&line)
    }

    fn ls(&mut self, Output(index): Output, entry: &Entry<'_>) -> Result<(), Trouble> {
        let attr = entry.file.attr()?;
        let name = |id: u32, name: Option<&[u8]>| match name {
            Some(name) => Cow::Owned(String::from_utf8_lossy(&escape(name, Style::Escape)).into_owned()),
            None => Cow::<str>::Owned(id.to_string()),
        };
        let user = name(attr.uid, entry.file.user_name(attr.uid));
        let group = name(attr.gid, entry.file.group_name(attr.gid));
        let mut line = self.columns.line(&attr, &user, &group, self.now, &self.zone).into_bytes();
        line.extend_from_slice(&escape(&entry.address(), Style::Escape));
        if let Some(target) = entry.file.link_target()? {
            line.extend_from_slice(b" -> ");
            line.extend_from_slice(&escape(&target, Style::Escape));
        }
        line.push(b'\n');
        Ok(self.sinks[index].out.write_all(&line)?)
    }
}

fn ask_test(test: &Test, entry: &Entry<'_>) -> Result<bool, Error> {
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
