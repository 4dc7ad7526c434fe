//! The writing part of the contract.

use std::ops::Range;

use obento_base::wire::to_u64;
use obento_base::{Attr, Error, FileKind, Ino, Name, Result, Timestamp};
use obento_driver::{
    AskUsage, ExclusiveLayout, Extent, FileSystem, Layout, NewNode, RemovalKind, RenameFlags, SetAttr, Size,
    Span, StoredProperties, TimeChange, Usage, WritableFileSystem, WritePlace, WriteTicket,
};
use obento_linux_wire::{Moment, Node, Request, Shift, Space, Times};

use crate::volume::{State, Volume};

impl WritableFileSystem for Volume {
    fn create(&self, dir: Ino, name: &Name, node: &NewNode<'_>) -> Result<Attr> {
        let mut state = self.state();
        self.directory(&mut state, dir)?;
        self.expect_name(name.as_bytes())?;
        if node.kind == FileKind::Symlink {
            self.check_target(&mut state, dir, name, node.target)?;
        }
        if !self.limits().fits_owner(node.uid, node.gid) {
            return Err(self.after_those_of_name(&mut state, dir, name, Error::OutOfRange));
        }
        let made = Node {
            mode: node.kind.mode_bits() | node.mode.bits(),
            uid: self.kept_owner(node.uid),
            gid: self.kept_owner(node.gid),
            major: node.rdev.major,
            minor: node.rdev.minor,
            target: node.target.to_vec(),
        };
        let request = Request::Make { dir: dir.0, name: name.as_bytes().to_vec(), node: made };
        let made = self.node(&mut state, &[dir], request);
        state.changed(dir);
        let attr = made?;
        state.nodes.show(dir, name.as_bytes(), attr);
        state.nodes.keep(attr.ino);
        Ok(attr)
    }

    fn link(&self, ino: Ino, dir: Ino, name: &Name) -> Result<Attr> {
        let mut state = self.state();
        self.directory(&mut state, dir)?;
        let attr = self.attr(&mut state, ino)?;
        if attr.is_dir() {
            return Err(Error::NotPermitted);
        }
        if attr.nlink == 0 {
            return Err(Error::NotFound);
        }
        self.expect_name(name.as_bytes())?;
        if self.kind.link_max <= 1 {
            return Err(self.after_those_of_name(&mut state, dir, name, Error::TooManyLinks));
        }
        let request = Request::Link { ino: ino.0, dir: dir.0, name: name.as_bytes().to_vec() };
        let linked = self.node(&mut state, &[ino, dir], request);
        state.changed(dir);
        let attr = linked?;
        state.nodes.show(dir, name.as_bytes(), attr);
        Ok(attr)
    }

    fn remove(&self, dir: Ino, name: &Name, victim: RemovalKind, ask: &mut AskUsage<'_>) -> Result<()> {
        let mut state = self.state();
        self.directory(&mut state, dir)?;
        let attr = self.hold_named(&mut state, dir, name)?;
        let usage = ask(&attr)?;
        match (victim, attr.is_dir()) {
            (RemovalKind::File, true) => return Err(Error::IsDirectory),
            (RemovalKind::EmptyDirectory, false) => return Err(Error::NotDirectory),
            _ => {}
        }
        let is_dir = attr.is_dir();
        let request = Request::Unlink { dir: dir.0, name: name.as_bytes().to_vec(), is_dir };
        self.do_it(&mut state, &[dir], request)?;
        state.changed(dir);
        state.nodes.unname(dir, name.as_bytes(), attr.ino, is_last_name(&attr));
        if usage == Usage::Unused && is_last_name(&attr) {
            state.nodes.free(attr.ino);
        }
        Ok(())
    }

    fn rename(&self, from: Ino, name: &Name, to: Ino, new_name: &Name, flags: RenameFlags) -> Result<()> {
        if flags == RenameFlags::all() {
            return Err(Error::Invalid);
        }
        let mut state = self.state();
        self.directory(&mut state, from)?;
        self.directory(&mut state, to)?;
        let moved = self.hold_named(&mut state, from, name)?;
        self.expect_name(new_name.as_bytes())?;
        let other = match self.hold_named(&mut state, to, new_name) {
            Ok(other) => Some(other),
            Err(Error::NotFound | Error::NameTooLong) => None,
            Err(error) => return Err(error),
        };
        check_rename(&moved, other.as_ref(), flags)?;
        if other.is_some_and(|other| other.ino == moved.ino) {
            return Ok(());
        }
        let request = Request::Rename {
            from: from.0,
            name: name.as_bytes().to_vec(),
            to: to.0,
            new_name: new_name.as_bytes().to_vec(),
            flags: flags.bits(),
        };
        match self.do_it(&mut state, &[from, to], request) {
            // The type does not support the flag.
            Err(Error::Invalid) if flags.contains(RenameFlags::EXCHANGE) => return Err(Error::NotSupported),
            // rename(2) allows either error for a directory that is not empty.
            Err(Error::Exists) if other.is_some() => return Err(Error::NotEmpty),
            other => other?,
        }
        state.changed(from);
        state.changed(to);
        state.nodes.unname(from, name.as_bytes(), moved.ino, false);
        if let Some(other) = other {
            let is_lost = !flags.contains(RenameFlags::EXCHANGE) && is_last_name(&other);
            state.nodes.unname(to, new_name.as_bytes(), other.ino, is_lost);
        }
        place(&mut state, to, new_name, &moved)?;
        match other {
            Some(other) if flags.contains(RenameFlags::EXCHANGE) => place(&mut state, from, name, &other),
            _ => Ok(()),
        }
    }

    fn set_attr(&self, ino: Ino, change: &SetAttr) -> Result<Attr> {
        let mut state = self.state();
        let old = self.attr(&mut state, ino)?;
        let is_others = |asked: Option<u32>, has: u32| asked.is_some_and(|asked| asked != has);
        if !self.kind.keeps.contains(StoredProperties::OWNERS)
            && (is_others(change.uid, old.uid) || is_others(change.gid, old.gid))
        {
            return Err(Error::NotPermitted);
        }
        if !self.limits().fits_owner(change.uid.unwrap_or(0), change.gid.unwrap_or(0)) {
            return Err(Error::OutOfRange);
        }
        change.expect_no_project()?;
        let moment = |time: Option<TimeChange>| time.map(|time| self.moment(time));
        // Linux clears bits of the mode when the owner of a file changes.
        let changes_hands = change.uid.is_some() || change.gid.is_some();
        let mode = change.mode.or(changes_hands.then_some(old.mode));
        let request = Request::SetAttr {
            ino: ino.0,
            // Linux defines the permissions of a symbolic link.
            mode: mode.filter(|_| old.kind != FileKind::Symlink).map(obento_base::Mode::bits),
            uid: change.uid,
            gid: change.gid,
            times: Times { atime: moment(change.atime), mtime: moment(change.mtime) },
            flags: change.flags.map(|flags| flags.bits()),
        };
        let attr = self.node(&mut state, &[ino], request);
        state.changed(ino);
        let attr = attr?;
        state.nodes.learn(attr);
        Ok(attr)
    }

    fn truncate(&self, _: &ExclusiveLayout<'_>, ino: Ino, size: u64) -> Result<()> {
        self.file(&mut self.state(), ino)?;
        if size > self.file_size_max {
            return Err(Error::FileTooBig);
        }
        self.change_file(ino, Request::Truncate { ino: ino.0, size })
    }

    fn begin_write<'a>(&'a self, _: &'a Layout<'_>, ino: Ino, range: Range<u64>) -> Result<WriteTicket<'a>> {
        let Attr { size, mtime, .. } = self.file(&mut self.state(), ino)?;
        let len = range.end.checked_sub(range.start).filter(|len| *len > 0).ok_or(Error::Invalid)?;
        if range.end > self.file_end_max() {
            return Err(Error::FileTooBig);
        }
        let (extent, was) = (Extent { len, span: Span::Driver }, Span::Driver);
        Ok(WriteTicket::new(ino, &range, WritePlace { extent, was, size, mtime }, None))
    }

    fn resume_write<'a>(&'a self, _: &'a Layout<'_>, ino: Ino, range: Range<u64>) -> WriteTicket<'a> {
        WriteTicket::resumed(ino, &range, None)
    }

    fn end_write(&self, _: WriteTicket<'_>, _: TimeChange) -> Result<()> {
        // No file is ever mapped for writing.
        Err(Error::Invalid)
    }

    fn write(&self, _: &Layout<'_>, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize> {
        self.write_file(ino, offset, bytes)
    }

    fn punch(&self, _: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()> {
        self.reserve(ino, &range, Space::Punch {})
    }

    fn allocate(&self, _: &Layout<'_>, ino: Ino, range: Range<u64>, size: Size) -> Result<()> {
        self.reserve(ino, &range, Space::Allocate { grow: size == Size::Grow })
    }

    fn zero_range(&self, _: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>, size: Size) -> Result<()> {
        self.reserve(ino, &range, Space::Zero { grow: size == Size::Grow })
    }

    fn collapse(&self, _: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()> {
        self.shift(ino, &range, Shift::Collapse {})
    }

    fn insert(&self, _: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()> {
        self.shift(ino, &range, Shift::Insert {})
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn sync_file(&self, _: Ino) -> Result<()> {
        // On some types, only `syncfs` also guarantees the names.
        self.sync_all()
    }

    fn sync_files(&self, _: &[Ino]) -> Result<()> {
        self.sync_all()
    }

    fn sync(&self) -> Result<()> {
        self.sync_all()
    }

    fn close(&self) -> Result<()> {
        self.seal()
    }
}

impl Volume {
    fn moment(&self, time: TimeChange) -> Moment {
        match time {
            TimeChange::Now => self.kept_moment(self.clock.now()),
            TimeChange::At(at) => self.kept_moment(at),
        }
    }

    /// Returns the nearest time to `at` that the type can store, if Linux does not round it.
    pub(crate) fn kept_moment(&self, at: Timestamp) -> Moment {
        let (first, last) = self.kind.seconds;
        let seconds = at.secs().clamp(first, last);
        Moment { seconds, nanos: if seconds == at.secs() { at.nanos() } else { 0 } }
    }

    /// Returns the inode of `name` in `dir`, which the guest holds from now on.
    fn hold_named(&self, state: &mut State, dir: Ino, name: &Name) -> Result<Attr> {
        // Linux would find another file by this name.
        self.expect_name(name.as_bytes()).map_err(|_| Error::NotFound)?;
        let attr = self.node(state, &[dir], Request::Look { dir: dir.0, name: name.as_bytes().to_vec() })?;
        state.nodes.show(dir, name.as_bytes(), attr);
        state.nodes.keep(attr.ino);
        Ok(attr)
    }

    /// Returns the owner or group of a new inode: that of all inodes if the type stores none.
    pub(crate) fn kept_owner(&self, asked: u32) -> u32 {
        if self.kind.keeps.contains(StoredProperties::OWNERS) { asked } else { 0 }
    }

    /// Returns the errors of the target of a new symbolic link, which follow those of its name.
    fn check_target(&self, state: &mut State, dir: Ino, name: &Name, target: &[u8]) -> Result<()> {
        let error = match target.len() {
            0 => Error::Invalid,
            len if to_u64(len) > self.symlink_max().into() => Error::NameTooLong,
            _ if !(self.kind.keeps_target)(target) => Error::Invalid,
            _ => return Ok(()),
        };
        Err(self.after_those_of_name(state, dir, name, error))
    }

    /// Returns the reason why `name` cannot be created in `dir`: an error of the name, else `error`.
    fn after_those_of_name(&self, state: &mut State, dir: Ino, name: &Name, error: Error) -> Error {
        if state.nodes.get(dir).is_ok_and(|dir| dir.nameless) {
            return Error::NotFound;
        }
        match self.hold_named(state, dir, name) {
            Ok(_) => Error::Exists,
            Err(Error::NotFound) => error,
            Err(other) => other,
        }
    }

    fn change_file(&self, ino: Ino, request: Request) -> Result<()> {
        let mut state = self.state();
        self.file(&mut state, ino)?;
        let done = self.do_it(&mut state, &[ino], request);
        state.changed(ino);
        done
    }

    fn reserve(&self, ino: Ino, range: &Range<u64>, space: Space) -> Result<()> {
        let attr = self.file(&mut self.state(), ino)?;
        let len = range.end.checked_sub(range.start).filter(|len| *len > 0).ok_or(Error::Invalid)?;
        // Linux also zeroes parts of blocks.
        let takes_parts = matches!(space, Space::Allocate { .. });
        if !takes_parts
            && (!self.is_aligned(range.start) || !self.is_aligned(range.end) && range.end < attr.size)
        {
            return Err(Error::Invalid);
        }
        if range.end > self.file_size_max {
            return Err(Error::FileTooBig);
        }
        self.change_file(ino, Request::Reserve { ino: ino.0, offset: range.start, len, space })
    }

    /// Returns the largest size of a file in whole blocks.
    fn file_end_max(&self) -> u64 {
        let block = u64::from(self.block_size);
        self.file_size_max.checked_next_multiple_of(block).unwrap_or(self.file_size_max)
    }

    fn is_aligned(&self, offset: u64) -> bool {
        offset.is_multiple_of(u64::from(self.block_size))
    }

    fn shift(&self, ino: Ino, range: &Range<u64>, shift: Shift) -> Result<()> {
        self.file(&mut self.state(), ino)?;
        let len = range.end.checked_sub(range.start).filter(|len| *len > 0).ok_or(Error::Invalid)?;
        self.change_file(ino, Request::Move { ino: ino.0, offset: range.start, len, shift })
    }
}

/// Returns whether the inode with these attributes has one name.
fn is_last_name(attr: &Attr) -> bool {
    attr.is_dir() || attr.nlink <= 1
}

/// Returns the error of a rename that is refused before the guest is asked, in the order of the contract.
fn check_rename(moved: &Attr, other: Option<&Attr>, flags: RenameFlags) -> Result<()> {
    match other {
        Some(_) if flags.contains(RenameFlags::NO_REPLACE) => Err(Error::Exists),
        None if flags.contains(RenameFlags::EXCHANGE) => Err(Error::NotFound),
        Some(_) if flags.contains(RenameFlags::EXCHANGE) => Ok(()),
        Some(other) if other.ino == moved.ino => Ok(()),
        Some(other) if other.is_dir() && !moved.is_dir() => Err(Error::IsDirectory),
        Some(other) if !other.is_dir() && moved.is_dir() => Err(Error::NotDirectory),
        _ => Ok(()),
    }
}

/// Records that `name` in `dir` leads to the inode with `attr`.
fn place(state: &mut State, dir: Ino, name: &Name, attr: &Attr) -> Result<()> {
    let known = state.nodes.get_mut(attr.ino)?;
    if attr.is_dir() || known.name.is_none() {
        (known.parent, known.name) = (dir, Some(name.as_bytes().into()));
    }
    known.attr = None;
    Ok(())
}
