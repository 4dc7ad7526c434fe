//! From operands to tasks: the files that operands name, and with `-r` the files below them.

use std::collections::VecDeque;
use std::ffi::OsString;

use obento::Node;
use obento::address::Operand;
use obento::base::{Attr, FileKind};
use obento::driver::Access;
use obento::vfs::{Caller, Symlinks};
use obento::walk::{Order, Step, Walk};

use super::stream::Input;
use crate::cause::Cause;
use crate::context::Context;
use crate::open::{
    BareOperand, Found, Opened, is_image_name, join, open_each, open_file, operand, seal_before_decoding,
};
use crate::report::{Report, shell_word};

/// A file to work on.
pub struct Task {
    /// The address, for output and messages.
    pub shown: Vec<u8>,
    pub input: Input,
    /// The size, or 0 if it is not known.
    pub size: u64,
    /// The index of the operand that led to the file.
    pub index: usize,
    /// Whether the operand names this file alone, and not a directory or a pattern that matches several files.
    pub is_alone: bool,
}

/// The meaning of an operand that is a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Below {
    /// An error.
    Refuse,
    /// An error, whose hint names `-r`.
    RefuseWithoutOption,
    /// The files below it are read. Symbolic links among them are skipped (`Keep`), or followed.
    Read(Symlinks),
}

/// Opens all of `arguments` and gives up rights. If directories are read, an argument without a path is the root of an image, or the
/// roots of all file systems of a disk. Otherwise it is an error.
pub fn open_all(arguments: &[OsString], below: Below, context: &Context) -> Vec<Result<Opened, Report>> {
    let is_read = matches!(below, Below::Read(_));
    let bare = if is_read { BareOperand::Image } else { BareOperand::HostFile };
    seal_before_decoding(arguments, bare, Access::ReadOnly, context);
    let open_one = |argument: &OsString| {
        open_file(argument, context).map_err(|report| match operand(argument, context) {
            Ok(Operand::Host(_))
                if below == Below::RefuseWithoutOption && is_image_name(argument, context) =>
            {
                report.also("or use -r to read all files of the image")
            }
            _ => report,
        })
    };
    let mut opened = Vec::new();
    for argument in arguments {
        match is_read && argument != "-" {
            true => {
                let each = open_each(argument, context).into_iter();
                opened.extend(each.map(|location| location.map(Opened::Image)));
            }
            false => opened.push(open_one(argument)),
        }
    }
    context.seal();
    opened
}

/// Decides whether the walk returns a file, or enters a directory. The flag says whether an operand names the entry.
pub type Filter<'a> = dyn Fn(&[u8], &Attr, bool) -> bool + 'a;

fn all(_name: &[u8], _attr: &Attr, _is_operand: bool) -> bool {
    true
}

/// An iterator over the tasks of operands.
pub struct Tasks<'a> {
    operands: VecDeque<(usize, Result<Opened, Report>)>,
    /// Files that the last operand matched.
    found: VecDeque<Found>,
    index: usize,
    /// Whether the last operand matched one file.
    is_alone: bool,
    /// The path and the file of an operand, and the walk below it.
    walk: Option<(Vec<u8>, Node, Walk)>,
    below: Below,
    /// Whether files that are not regular are tasks, too.
    every_kind: bool,
    /// How symbolic links that are operands are treated.
    symlinks: Symlinks,
    filter: &'a Filter<'a>,
}

impl<'a> Tasks<'a> {
    /// Creates the tasks of operands that [`open_all`] opened.
    pub fn new(opened: Vec<Result<Opened, Report>>, below: Below) -> Self {
        Self {
            operands: opened.into_iter().enumerate().collect(),
            found: VecDeque::new(),
            index: 0,
            is_alone: false,
            walk: None,
            below,
            every_kind: false,
            symlinks: Symlinks::Follow,
            filter: &all,
        }
    }

    /// Leaves out the files, and the directories with everything below them, for which `filter` returns false.
    #[must_use]
    pub fn filter(self, filter: &'a Filter<'a>) -> Self {
        Self { filter, ..self }
    }

    /// Returns files of every type, and directories that are not walked. Symbolic links that are operands are followed or not.
    #[must_use]
    pub fn every_kind(self, symlinks: Symlinks) -> Self {
        Self { every_kind: true, symlinks, ..self }
    }

    /// Returns the task of a file that an operand names; `None` if the file is left out or is walked.
    fn named(&mut self, found: Found) -> Option<Result<Task, Report>> {
        let shown = found.shown();
        let failed = |cause: &dyn Cause| Some(Err(Report::on("cannot read", &shown, cause)));
        let attr = match found.node.attr() {
            Ok(attr) => attr,
            Err(error) => return failed(&error),
        };
        let base = shown.rsplit(|&byte| byte == b'/' || byte == b':').next().unwrap_or_default();
        if !(self.filter)(base, &attr, true) {
            return None;
        }
        match (attr.kind, self.below) {
            (FileKind::Regular, _) => Some(Ok(self.task(shown, found.node, attr.size))),
            (FileKind::Directory, Below::Refuse) if !self.every_kind => {
                let help = format!("to list its contents: obento ls {}", shell_word(&shown));
                Some(Err(Report::on("cannot read", &shown, "is a directory").help(help)))
            }
            (FileKind::Directory, Below::RefuseWithoutOption) => {
                let help = "use -r to read all files below it";
                Some(Err(Report::on("cannot read", &shown, "is a directory").help(help)))
            }
            (FileKind::Directory, Below::Read(symlinks)) => {
                let walk = Walk::new(found.node.clone()).order(Order::Name).symlinks(symlinks);
                self.walk = Some((shown, found.node, walk));
                None
            }
            _ if self.every_kind => Some(Ok(self.task(shown, found.node, 0))),
            (kind, _) => failed(&crate::format::mode::not_regular(kind)),
        }
    }

    fn task(&self, shown: Vec<u8>, node: Node, size: u64) -> Task {
        Task { shown, input: Input::Image(node), size, index: self.index, is_alone: self.is_alone }
    }

    /// Returns the next task of the walk; `None` at its end.
    fn walked(&mut self) -> Option<Result<Task, Report>> {
        let (filter, index, every_kind) = (self.filter, self.index, self.every_kind);
        let (top, root, walk) = self.walk.as_mut()?;
        loop {
            let entry = match walk.next()? {
                Ok(entry) => entry,
                Err(damage) => {
                    let path = if damage.path.is_empty() { top.clone() } else { join(top, &damage.path) };
                    return Some(Err(Report::on("cannot read", path, damage.error)));
                }
            };
            if entry.step == Step::Leave || entry.depth == 0 && !every_kind {
                continue;
            }
            match entry.attr.kind {
                FileKind::Directory if !filter(entry.name(), &entry.attr, false) => walk.prune(),
                kind if every_kind && kind != FileKind::Regular => {
                    let shown = if entry.path.is_empty() { top.clone() } else { join(top, &entry.path) };
                    return Some(Ok(Task {
                        shown,
                        input: Input::Image(entry.node),
                        size: 0,
                        index,
                        is_alone: false,
                    }));
                }
                FileKind::Regular if filter(entry.name(), &entry.attr, false) => {
                    let (shown, size) = (join(top, &entry.path), entry.attr.size);
                    return Some(Ok(Task {
                        shown,
                        input: Input::Image(entry.node),
                        size,
                        index,
                        is_alone: false,
                    }));
                }
                // The walk has followed every other link.
                FileKind::Symlink
                    if self.below == Below::Read(Symlinks::Follow)
                        && filter(entry.name(), &entry.attr, false) =>
                {
                    let target = root.vfs().resolve(root, &entry.path, Symlinks::Follow, &Caller::Owner);
                    let error = target.err().unwrap_or(obento::Error::NotFound);
                    return Some(Err(Report::on("cannot read", join(top, &entry.path), error)));
                }
                _ => {}
            }
        }
    }

    /// Opens the next operand; `None` if no operand is left.
    fn operand(&mut self) -> Option<Option<Result<Task, Report>>> {
        let (index, opened) = self.operands.pop_front()?;
        self.index = index;
        let opened = match opened {
            Ok(opened) => opened,
            Err(report) => return Some(Some(Err(report))),
        };
        let location = match opened {
            Opened::Stdio => {
                let shown = b"-".to_vec();
                return Some(Some(Ok(Task { shown, input: Input::Stdin, size: 0, index, is_alone: true })));
            }
            Opened::Image(location) => location,
        };
        match location.find(self.symlinks, "cannot read") {
            Ok(found) => {
                self.is_alone = found.len() == 1;
                self.found = found.into();
            }
            Err(report) => return Some(Some(Err(report))),
        }
        Some(None)
    }
}

impl Iterator for Tasks<'_> {
    type Item = Result<Task, Report>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(task) = self.walked() {
                return Some(task);
            }
            self.walk = None;
            if let Some(found) = self.found.pop_front() {
                if let Some(task) = self.named(found) {
                    return Some(task);
                }
                continue;
            }
            if let Some(task) = self.operand()? {
                return Some(task);
            }
        }
    }
}
