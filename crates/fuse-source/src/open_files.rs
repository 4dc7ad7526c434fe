//! The files that are open on the server.
//!
//! A file stays open after its first use, for later calls. Invariant: a file is used only while the lock of the table is
//! held, since a server may crash if it gets a request about a file that was closed.
//! Locking: this lock is acquired before the lock of the connection and before that of the known inodes.

use std::collections::VecDeque;

use obento_base::{Error, Ino, Result};
use obento_fuse_abi::{FlushIn, FsyncIn, OpenIn, OpenOut, ReleaseIn, opcode};
use zerocopy::IntoBytes as _;

use crate::contract::{Mounted, lock};
use crate::error::{NOT_IMPLEMENTED, of_errno};
use crate::wire::{open, take};

/// Files that stay open. Those without a name do not count.
const OPEN_MAX: usize = 64;

/// An open file.
#[derive(Clone, Copy, Debug)]
pub struct OpenFile {
    /// Its inode.
    pub node: u64,
    /// Its handle.
    pub fh: u64,
    /// The flags with which it was opened.
    pub flags: u32,
}

/// The purpose of an open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Intent {
    Read,
    Write,
    /// Neither reading nor writing.
    Use,
}

impl OpenFile {
    fn is_written(&self) -> bool {
        self.flags & 3 != open::READ
    }

    fn permits(&self, intent: Intent) -> bool {
        match intent {
            Intent::Read => self.flags & 3 != open::WRITE,
            Intent::Write => self.is_written(),
            Intent::Use => true,
        }
    }
}

/// The open files, the oldest one first.
#[derive(Default, Debug)]
pub struct OpenFiles(VecDeque<OpenFile>);

impl OpenFiles {
    fn find(&self, ino: Ino, intent: Intent) -> Option<OpenFile> {
        self.0.iter().find(|file| file.node == ino.0 && file.permits(intent)).copied()
    }
}

/// Directories that stay open.
const DIRECTORIES_MAX: usize = 16;

/// The open directories whose listings were interrupted, the oldest one first. A directory in use is not among them.
#[derive(Default, Debug)]
pub struct OpenDirectories(VecDeque<OpenFile>);

impl OpenDirectories {
    /// Removes the open directory of this inode.
    pub fn take(&mut self, ino: Ino) -> Option<OpenFile> {
        let index = self.0.iter().position(|file| file.node == ino.0)?;
        self.0.remove(index)
    }

    /// Adds an open directory. Returns another one, which must be closed.
    pub fn keep(&mut self, file: OpenFile) -> Option<OpenFile> {
        let same = self.take(Ino(file.node));
        self.0.push_back(file);
        same.or_else(|| if self.0.len() > DIRECTORIES_MAX { self.0.pop_front() } else { None })
    }
}

impl Mounted {
    /// Opens an inode. A server without open files refuses the request, and handle 0 stands for all.
    pub(crate) fn open(&self, request: u32, node: u64, flags: u32) -> Result<OpenFile> {
        let flags = flags | open::LARGE;
        let body = OpenIn { flags, open_flags: 0 };
        let deadline = self.connection.deadline();
        let opened = self.connection.exchange(request, node, &[body.as_bytes()], deadline, |body| {
            Some(take::<OpenOut>(body)?.0.fh)
        })?;
        match opened {
            Ok(fh) => Ok(OpenFile { node, fh, flags }),
            Err(NOT_IMPLEMENTED) => Ok(OpenFile { node, fh: 0, flags }),
            Err(errno) => Err(of_errno(errno)),
        }
    }

    /// Closes a file. The result of the request concerns no caller.
    pub(crate) fn release(&self, request: u32, file: &OpenFile) {
        let body = ReleaseIn { fh: file.fh, flags: file.flags, release_flags: 0, lock_owner: 0 };
        let _ = self.connection.ask(request, file.node, &[body.as_bytes()], |_| Some(()));
    }

    fn open_for(&self, ino: Ino, intent: Intent) -> Result<OpenFile> {
        match intent {
            Intent::Read | Intent::Use => self.open(opcode::OPEN, ino.0, open::READ),
            Intent::Write => match self.open(opcode::OPEN, ino.0, open::READ_WRITE) {
                // A user may be permitted to write a file and not to read it.
                Err(Error::AccessDenied) => self.open(opcode::OPEN, ino.0, open::WRITE),
                opened => opened,
            },
        }
    }

    /// Calls `f` with an open file of this inode.
    pub(crate) fn with_file<T>(
        &self,
        ino: Ino,
        intent: Intent,
        f: impl FnOnce(&OpenFile) -> Result<T>,
    ) -> Result<T> {
        let mut files = lock(&self.open);
        let file = match files.find(ino, intent) {
            Some(file) => file,
            None => {
                let file = self.open_for(ino, intent)?;
                self.add(&mut files, file);
                file
            }
        };
        f(&file)
    }

    /// Stores a file that was opened.
    pub(crate) fn opened(&self, file: OpenFile) {
        self.add(&mut lock(&self.open), file);
    }

    fn add(&self, files: &mut OpenFiles, file: OpenFile) {
        files.0.push_back(file);
        if files.0.len() <= OPEN_MAX {
            return;
        }
        // A file without a name cannot be opened again.
        let is_removed =
            |file: &OpenFile| lock(&self.nodes).get(Ino(file.node)).is_ok_and(|node| node.is_removed());
        let oldest = files.0.iter().position(|old| old.node != file.node && !is_removed(old));
        if let Some(old) = oldest.and_then(|index| files.0.remove(index)) {
            self.close_file(&old);
        }
    }

    /// Returns the handle of an open file of this inode.
    pub(crate) fn handle_of(&self, ino: Ino) -> Option<u64> {
        lock(&self.open).find(ino, Intent::Use).map(|file| file.fh)
    }

    /// Returns whether a file of this inode is open for writing.
    pub(crate) fn has_written_file(&self, ino: Ino) -> bool {
        lock(&self.open).find(ino, Intent::Write).is_some()
    }

    /// Closes the files of an inode.
    pub(crate) fn close_files(&self, ino: Ino) {
        self.close_files_in(&mut lock(&self.open), ino);
    }

    /// Closes the files of an inode that are in `files`.
    pub(crate) fn close_files_in(&self, files: &mut OpenFiles, ino: Ino) {
        while let Some(index) = files.0.iter().position(|file| file.node == ino.0) {
            if let Some(file) = files.0.remove(index) {
                self.close_file(&file);
            }
        }
    }

    fn close_file(&self, file: &OpenFile) {
        if let Err(error) = self.flush(file) {
            lock(&self.unsynced).failed.get_or_insert(error);
        }
        self.release(opcode::RELEASE, file);
    }

    /// Sends FLUSH, as for a close(2): the server reports the errors of earlier writes.
    pub(crate) fn flush(&self, file: &OpenFile) -> Result<()> {
        if !file.is_written() {
            return Ok(());
        }
        let body = FlushIn { fh: file.fh, unused: 0, padding: 0, lock_owner: 0 };
        self.optional(opcode::FLUSH, file.node, &[body.as_bytes()])
    }

    /// Sends FSYNC or FSYNCDIR.
    pub(crate) fn fsync(&self, request: u32, file: &OpenFile) -> Result<()> {
        let body = FsyncIn { fh: file.fh, flags: 0, padding: 0 };
        self.optional(request, file.node, &[body.as_bytes()])
    }

    /// Sends a request without results. A server that does not implement the request has nothing to do.
    fn optional(&self, request: u32, node: u64, body: &[&[u8]]) -> Result<()> {
        match self.connection.exchange(request, node, body, self.connection.deadline(), |_| Some(()))? {
            Ok(()) | Err(NOT_IMPLEMENTED) => Ok(()),
            Err(errno) => Err(of_errno(errno)),
        }
    }
}
