//! Open files: which process has which file open, and what it transferred.
//!
//! Data may be written long after the process wrote it, and by a thread of the host. Such a write belongs to
//! the process that opened the file for writing.

use alloc::vec::Vec;
use hashbrown::HashMap;
use obento_base::{Generation, Ino};
use obento_driver::history::{Actor, OpenFile, OpenMode, Transferred};

use crate::record::FileId;

/// Maximum number of files with writes that are not recorded yet.
const PENDING_MAX: usize = 1024;
/// Maximum number of files whose last writer is remembered after it closed the file.
const WRITERS_MAX: usize = 4096;

/// Writes of one process to one file that are not recorded yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingWrite {
    pub(crate) actor: Actor,
    pub(crate) file: FileId,
    pub(crate) written: Transferred,
}

/// The writes to one file that are not recorded yet: of one process, and of others.
#[derive(Debug)]
struct PendingFile {
    first: PendingWrite,
    others: Vec<PendingWrite>,
}

impl PendingFile {
    fn add(&mut self, actor: Actor, file: FileId, more: &Transferred) {
        let mut known = core::iter::once(&mut self.first).chain(&mut self.others);
        match known.find(|write| write.actor == actor) {
            Some(write) => write.written.add(more),
            None => self.others.push(PendingWrite { actor, file, written: *more }),
        }
    }

    fn into_writes(self) -> impl Iterator<Item = PendingWrite> {
        core::iter::once(self.first).chain(self.others)
    }
}

/// The last process that opened or created a file for writing.
#[derive(Clone, Copy, Debug)]
struct LastWriter {
    actor: Actor,
    /// The generation of the file, if it is known.
    generation: Option<Generation>,
}

/// The open files, the last writers, and the writes that are not recorded yet.
#[derive(Debug, Default)]
pub(crate) struct Opens {
    open: HashMap<Ino, Vec<OpenFile>>,
    writers: HashMap<Ino, LastWriter>,
    pending: HashMap<Ino, PendingFile>,
}

impl Opens {
    pub(crate) fn opened(&mut self, actor: Actor, file: FileId, mode: OpenMode) {
        let FileId { ino, generation } = file;
        if mode.write {
            self.note_writer(actor, ino, Some(generation));
        }
        let files = self.open.entry(ino).or_default();
        match files.iter_mut().find(|file| file.actor == actor) {
            Some(file) => {
                file.count = file.count.saturating_add(1);
                file.mode.read |= mode.read;
                file.mode.write |= mode.write;
            }
            None => {
                let (read, written) = <(Transferred, Transferred)>::default();
                files.push(OpenFile { ino, actor, count: 1, mode, read, written });
            }
        }
    }

    /// Returns all open files, by inode number and process.
    pub(crate) fn all(&self) -> Vec<OpenFile> {
        let mut files: Vec<_> = self.open.values().flatten().copied().collect();
        files.sort_unstable_by_key(|file| (file.ino, file.actor));
        files
    }

    /// Adds an open file of the process that passed the volume on.
    pub(crate) fn adopt(&mut self, file: OpenFile) {
        if file.mode.write {
            self.note_writer(file.actor, file.ino, None);
        }
        self.open.entry(file.ino).or_default().push(file);
    }

    pub(crate) fn note_writer(&mut self, actor: Actor, ino: Ino, generation: Option<Generation>) {
        if self.writers.len() >= WRITERS_MAX {
            self.writers.retain(|ino, _| self.open.contains_key(ino));
        }
        if self.writers.len() < WRITERS_MAX {
            self.writers.insert(ino, LastWriter { actor, generation });
        }
    }

    pub(crate) fn add_reads(&mut self, actor: Actor, ino: Ino, read: &Transferred) {
        let files = self.open.get_mut(&ino);
        // The kernel reads ahead on behalf of no process.
        let file = files.and_then(|files| match files.as_mut_slice() {
            [only] => Some(only),
            files => files.iter_mut().find(|file| file.actor == actor),
        });
        if let Some(file) = file {
            file.read.add(read);
        }
    }

    /// Returns what the process transferred, if this was its last close of the file.
    pub(crate) fn closed(&mut self, actor: Actor, ino: Ino) -> Option<(Transferred, Transferred)> {
        let files = self.open.get_mut(&ino)?;
        let at = files.iter().position(|file| file.actor == actor)?;
        let file = files.get_mut(at)?;
        file.count = file.count.saturating_sub(1);
        if file.count > 0 {
            return None;
        }
        let OpenFile { read, written, .. } = files.swap_remove(at);
        if files.is_empty() {
            self.open.remove(&ino);
        }
        Some((read, written))
    }

    /// Returns the process to which a write belongs that occurs while the thread works for `current`. This is `current`
    /// if it has the file open for writing, otherwise the last process that opened the file for writing, otherwise
    /// `current`.
    pub(crate) fn writer(&self, ino: Ino, current: Option<Actor>) -> Actor {
        let opened = |actor: &Actor| {
            let files = self.open.get(&ino).into_iter().flatten();
            files.into_iter().any(|file| file.actor == *actor && file.mode.write)
        };
        let last = || self.writers.get(&ino).map(|last| last.actor);
        current.filter(opened).or_else(last).or(current).unwrap_or_default()
    }

    /// Returns the generation of a file with writes that are not recorded yet, or with a last writer.
    pub(crate) fn generation(&self, ino: Ino) -> Option<Generation> {
        let pending = self.pending.get(&ino).map(|file| file.first.file.generation);
        pending.or_else(|| self.writers.get(&ino).and_then(|last| last.generation))
    }

    /// Adds a write. Returns whether all writes must be recorded now.
    pub(crate) fn wrote(&mut self, actor: Actor, file: FileId, more: &Transferred) -> bool {
        let files = self.open.get_mut(&file.ino).into_iter().flatten();
        if let Some(open) = files.into_iter().find(|open| open.actor == actor) {
            open.written.add(more);
        }
        let first = PendingWrite { actor, file, written: *more };
        self.pending
            .entry(file.ino)
            .and_modify(|known| known.add(actor, file, more))
            .or_insert(PendingFile { first, others: Vec::new() });
        self.pending.len() > PENDING_MAX
    }

    /// Returns the writes to `ino` that are not recorded yet.
    pub(crate) fn take(&mut self, ino: Ino) -> impl Iterator<Item = PendingWrite> + use<> {
        let pending = if self.pending.is_empty() { None } else { self.pending.remove(&ino) };
        pending.into_iter().flat_map(PendingFile::into_writes)
    }

    /// Returns all writes that are not recorded yet, by inode number.
    pub(crate) fn take_all(&mut self) -> Vec<PendingWrite> {
        let mut files: Vec<_> = self.pending.drain().collect();
        files.sort_unstable_by_key(|&(ino, _)| ino);
        files.into_iter().flat_map(|(_, file)| file.into_writes()).collect()
    }

    /// Forgets the last writer of a file without users.
    pub(crate) fn forget(&mut self, ino: Ino) {
        self.writers.remove(&ino);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actor(pid: u32) -> Actor {
        Actor { pid, ..Actor::default() }
    }

    const INO: Ino = Ino(5);
    const FILE: FileId = FileId { ino: INO, generation: Generation(7) };
    const WRITING: OpenMode = OpenMode { read: false, write: true };
    const READING: OpenMode = OpenMode { read: true, write: false };

    #[test]
    fn a_delayed_write_belongs_to_the_process_that_opened_the_file_for_writing() {
        let mut opens = Opens::default();
        assert_eq!(opens.writer(INO, Some(actor(1))), actor(1));
        opens.opened(actor(1), FILE, WRITING);
        opens.opened(actor(2), FILE, READING);
        assert_eq!(opens.writer(INO, Some(actor(2))), actor(1));
        assert_eq!(opens.writer(INO, None), actor(1));
        opens.closed(actor(1), INO);
        assert_eq!(opens.writer(INO, None), actor(1));
        opens.opened(actor(3), FILE, WRITING);
        opens.opened(actor(4), FILE, WRITING);
        assert_eq!(opens.writer(INO, Some(actor(3))), actor(3));
        assert_eq!(opens.writer(INO, Some(actor(2))), actor(4));
    }

    #[test]
    fn writes_are_merged_by_process_and_file() {
        let mut opens = Opens::default();
        let file = FileId { ino: INO, generation: Generation(0) };
        opens.wrote(actor(1), file, &Transferred::of(&(100..200)));
        opens.wrote(actor(1), file, &Transferred::of(&(0..50)));
        opens.wrote(actor(2), file, &Transferred::of(&(7..9)));
        let spans: Vec<_> = opens.take(INO).map(|write| (write.actor.pid, write.written)).collect();
        let first = Transferred { bytes: 150, start: 0, end: 200 };
        assert_eq!(spans, [(1, first), (2, Transferred { bytes: 2, start: 7, end: 9 })]);
        assert!(opens.take_all().is_empty());
    }

    #[test]
    fn a_file_that_is_not_open_has_the_generation_of_its_last_writer_until_it_is_forgotten() {
        let mut opens = Opens::default();
        assert_eq!(opens.generation(INO), None);
        opens.opened(actor(1), FILE, READING);
        assert_eq!(opens.generation(INO), None);
        opens.opened(actor(1), FILE, WRITING);
        assert_eq!(opens.generation(INO), Some(Generation(7)));
        opens.forget(INO);
        assert_eq!(opens.generation(INO), None);
    }

    #[test]
    fn the_last_close_of_a_process_returns_its_transfers() {
        let mut opens = Opens::default();
        opens.opened(actor(1), FILE, READING);
        opens.opened(actor(1), FILE, READING);
        opens.add_reads(actor(9), INO, &Transferred::of(&(10..30)));
        assert_eq!(opens.closed(actor(1), INO), None);
        let read = Transferred { bytes: 20, start: 10, end: 30 };
        assert_eq!(opens.closed(actor(1), INO), Some((read, Transferred::default())));
        assert_eq!(opens.closed(actor(1), INO), None);
    }
}
