//! Derives the index of a segment from its records.

use alloc::vec::Vec;

use hashbrown::HashMap;
use obento_base::FileKind;
use obento_driver::history::Actor;

use crate::actor::ActorId;
use crate::index::{Index, Key, Summary};
use crate::kinds;
use crate::record::{FileId, Record};

/// Gathers the entries of an index, block by block.
#[derive(Default)]
pub(crate) struct IndexBuilder {
    entries: Vec<u64>,
    /// The hashes of the current block with the kinds of their records.
    current: Vec<(u32, u8)>,
    block: u64,
    /// The hashes of the process, the program and the user of each actor.
    actors: HashMap<ActorId, [u32; 3]>,
    /// The last actor and the kinds of its records that are not in `current` yet.
    actor: Option<(ActorId, u8)>,
    /// The last file and the kinds of its records that are not in `current` yet.
    file: Option<(FileId, u8)>,
    summary: Option<Summary>,
}

impl IndexBuilder {
    /// Continues with this block.
    pub(crate) fn begin(&mut self, block: u64) {
        if block != self.block {
            self.end_block();
            self.block = block;
        }
    }

    pub(crate) fn note(&mut self, sequence: u64, time: i64) {
        let next = sequence.saturating_add(1);
        let summary =
            self.summary.get_or_insert(Summary { first: sequence, next, earliest: time, latest: time });
        summary.next = summary.next.max(next);
        (summary.earliest, summary.latest) = (summary.earliest.min(time), summary.latest.max(time));
    }

    pub(crate) fn add(&mut self, record: &Record<'_>) {
        if let Record::Actor { id, actor } = *record {
            self.end_actor();
            self.actors.insert(id, hashes(&actor));
            self.push(Key::Number(id), kinds::DEFINES);
            return;
        }
        let kind = kind_of(record);
        if let Some(id) = record.actor() {
            match &mut self.actor {
                Some((last, known)) if *last == id => *known |= kind,
                _ => {
                    self.end_actor();
                    self.actor = Some((id, kind));
                }
            }
        }
        if let Some(file) = record.file() {
            match &mut self.file {
                Some((last, known)) if *last == file => *known |= kind,
                _ => {
                    self.end_file();
                    self.file = Some((file, kind));
                }
            }
        }
        self.add_names(record);
    }

    fn add_names(&mut self, record: &Record<'_>) {
        match *record {
            Record::Create { name, file, kind, .. } => {
                self.push(Key::Name(name), kinds::NAMES);
                if kind == FileKind::Directory {
                    self.push(Key::Directory(file.ino), kinds::NAMES);
                }
            }
            Record::Link { name, .. } | Record::Generated { name, .. } => {
                self.push(Key::Name(name), kinds::NAMES);
            }
            Record::Rename { name, new_name, moved, replaced, exchange, .. } => {
                self.push(Key::Name(new_name), kinds::NAMES);
                self.push(Key::Directory(moved.ino), kinds::NAMES);
                if let Some(file) = replaced {
                    self.push(Key::File(file), kinds::NAMES);
                    self.push(Key::Directory(file.ino), kinds::NAMES);
                }
                if exchange {
                    self.push(Key::Name(name), kinds::NAMES);
                }
            }
            _ => {}
        }
    }

    fn push(&mut self, key: Key<'_>, kind: u8) {
        self.current.push((key.hash(), kind));
    }

    fn end_actor(&mut self) {
        let Some((id, kind)) = self.actor.take() else { return };
        // A record of an undefined actor belongs to the default one.
        let known = self.actors.entry(id).or_insert_with(|| hashes(&Actor::default()));
        self.current.extend(known.iter().map(|&hash| (hash, kind)));
    }

    fn end_file(&mut self) {
        if let Some((file, kind)) = self.file.take() {
            self.push(Key::File(file), kind);
        }
    }

    fn end_block(&mut self) {
        self.end_actor();
        self.end_file();
        self.current.sort_unstable();
        let mut last = None;
        for (hash, kind) in self.current.drain(..) {
            match (last, self.entries.last_mut()) {
                (Some(known), Some(entry)) if known == hash => *entry |= u64::from(kind),
                _ => {
                    self.entries.push(u64::from(hash) << 32 | self.block << 8 & 0xffff_ff00 | u64::from(kind))
                }
            }
            last = Some(hash);
        }
    }

    pub(crate) fn finish(mut self) -> Index {
        self.end_block();
        self.entries.sort_unstable();
        let summary = Summary { first: 0, next: 0, earliest: i64::MAX, latest: i64::MIN };
        Index::new(self.summary.unwrap_or(summary), self.entries)
    }
}

fn hashes(actor: &Actor) -> [u32; 3] {
    [Key::Process(actor.pid), Key::Program(actor.comm()), Key::User(actor.uid)].map(Key::hash)
}

/// Returns the kinds of a record, as bits.
pub(crate) fn kind_of(record: &Record<'_>) -> u8 {
    match *record {
        Record::Actor { .. } => kinds::DEFINES,
        Record::Open { mode, .. } => {
            let writes = if mode.write { kinds::WRITES } else { kinds::OTHERS };
            let uses = if mode.read { kinds::USES } else { kinds::OTHERS };
            writes | uses
        }
        Record::Close { .. } => kinds::CLOSES,
        Record::Create { kind: FileKind::Regular, .. } | Record::Generated { .. } => {
            kinds::NAMES | kinds::WRITES
        }
        Record::Create { .. } | Record::Link { .. } | Record::Remove { .. } | Record::Rename { .. } => {
            kinds::NAMES
        }
        Record::Write { .. } | Record::Truncate { .. } | Record::Source { .. } => kinds::WRITES,
        Record::Used { .. } => kinds::USES,
        Record::SetAttr { .. } | Record::Xattr { .. } | Record::Mark(_) | Record::Unknown { .. } => {
            kinds::OTHERS
        }
    }
}
