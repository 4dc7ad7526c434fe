//! A log that is read through its indexes.
//!
//! A segment without a valid index is decoded once, which yields the index. Nothing is written.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{ControlFlow, Range};

use hashbrown::HashMap;
use obento_base::{Error, FileKind, Ino, Result};
use obento_driver::history::Actor;

use crate::actor::ActorId;
use crate::block::verify;
use crate::directories::Location;
use crate::index::{Index, Key, Summary};
use crate::kinds;
use crate::parsed::ParsedBlock;
use crate::places::{Place, Places};
use crate::reader::{Segment, Segments};
use crate::record::{FileId, Record};
use crate::segment::{Damage, Entry, Header};

/// Bytes of blocks in memory. The blocks of the default log need at most 150 MiB, and those of ten million records 400 MB.
const BLOCKS_MAX: usize = 1 << 29;
/// Bytes of indexes in memory. The default log has at most 16 MiB.
const INDEXES_MAX: usize = 1 << 29;

/// A condition for the actor of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Performer<'a> {
    /// The process with this ID.
    Process(u32),
    /// Processes that executed the program with this name, of at most 16 bytes.
    Program(&'a [u8]),
    /// Processes of the user with this ID.
    User(u32),
}

/// The position of a record: of its segment in the log, and its sequence number. Compacted edges have numbers of their own.
pub(crate) type Position = (usize, u64);

/// The definitions of the number of an actor in a segment, with the sequence numbers after which they apply, in ascending
/// order. Each differs from the one before.
type Definitions = Vec<(u64, Actor)>;

/// The segments of a log with their indexes.
#[derive(Debug)]
pub struct IndexedLog {
    segments: Vec<Segment>,
    places: Places,
    /// The blocks that were read; `None` for a damaged block.
    blocks: HashMap<Place, Option<Arc<ParsedBlock>>>,
    /// Bytes of `blocks`.
    block_bytes: usize,
    actors: HashMap<(usize, ActorId), Definitions>,
    /// Damage of segments that was found and not taken.
    damage: Vec<(u32, Damage)>,
}

impl IndexedLog {
    /// Reads the indexes of all segments. Segments that cannot be read are passed to `failed`, and are not part of the
    /// log. A file with the name of another segment is damage, and is not part of the log either.
    pub fn open(segments: &Segments, failed: &mut dyn FnMut(u32, Error)) -> Self {
        Self::open_within(segments, INDEXES_MAX, failed)
    }

    /// Opens a log as [`open`](Self::open) does. When the indexes have `max` bytes, `failed` receives the other segments
    /// with `NoMemory`. A hostile volume has any number of segments, since one file can have many names.
    pub fn open_within(segments: &Segments, max: usize, failed: &mut dyn FnMut(u32, Error)) -> Self {
        let mut log = Self {
            segments: Vec::new(),
            places: Places::default(),
            blocks: HashMap::new(),
            block_bytes: 0,
            actors: HashMap::new(),
            damage: Vec::new(),
        };
        let mut bytes: usize = 0;
        for &number in segments.numbers() {
            let read = if bytes < max { log.read(segments, number) } else { Err(Error::NoMemory) };
            match read {
                Ok(Some((segment, index))) => {
                    bytes = bytes.saturating_add(index.bytes());
                    log.segments.push(segment);
                    log.places.push(index);
                }
                Ok(None) => {}
                Err(error) => failed(number, error),
            }
        }
        log
    }

    /// Reads the index of a segment. Returns `None` if the file contains another segment.
    fn read(&mut self, segments: &Segments, number: u32) -> Result<Option<(Segment, Index)>> {
        let segment = segments.segment(number)?;
        // A damaged header does not hide the records.
        if let Ok(header) = Header::decode(&segment.block(0)?)
            && let Err(damage) = header.expect_number(number)
        {
            self.damage.push((number, damage));
            return Ok(None);
        }
        let index = match segments.index(&segment) {
            Some(index) => index,
            None => Index::of(&segment.read()?, &mut |damage| self.damage.push((number, damage))),
        };
        Ok(Some((segment, index)))
    }

    /// Returns the damage that was found since the last call, with the numbers of the segments. A damaged block that no
    /// query reads is not found.
    pub fn take_damage(&mut self) -> Vec<(u32, Damage)> {
        core::mem::take(&mut self.damage)
    }

    /// Returns the number of segments. Segments have positions from 0 on, in the order of the log.
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// Returns whether the log has no segments.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Returns the number of the segment at a position; 0 for compacted edges.
    pub fn number(&self, at: usize) -> Option<u32> {
        self.segments.get(at).map(Segment::number)
    }

    /// Returns the ranges of the records of the segment at a position.
    pub fn summary(&self, at: usize) -> Option<Summary> {
        self.places.index(at).map(|index| index.summary)
    }

    /// Returns the sequence number with which the segment at a position begins; `None` if its header is damaged.
    pub fn first_sequence(&self, at: usize) -> Option<u64> {
        let header = Header::decode(&self.segments.get(at)?.block(0).ok()?).ok()?;
        Some(header.first)
    }

    /// Returns whether the segment at a position may contain records of a performer.
    pub fn may_contain(&self, at: usize, performer: Performer<'_>) -> bool {
        let key = match performer {
            Performer::Process(pid) => Key::Process(pid),
            Performer::Program(name) => Key::Program(name),
            Performer::User(uid) => Key::User(uid),
        };
        self.places.index(at).is_some_and(|index| index.blocks(key.hash(), kinds::ALL).next().is_some())
    }

    /// Returns the bytes of the segment at a position.
    ///
    /// # Errors
    ///
    /// 1. `NotFound`: the log has fewer segments.
    /// 2. The errors of the volume.
    pub fn bytes(&self, at: usize) -> Result<Vec<u8>> {
        self.segments.get(at).ok_or(Error::NotFound)?.read()
    }

    /// Returns the blocks with records of `key` of these kinds in the segments of `range`, in the order of the log.
    pub(crate) fn places(&mut self, range: Range<usize>, key: Key<'_>, kinds: u8) -> Vec<Place> {
        self.places.find(range, key, kinds)
    }

    /// Returns the range of all segments.
    pub(crate) fn all(&self) -> Range<usize> {
        0..self.segments.len()
    }

    /// Returns a block; `None` if it cannot be read.
    fn block(&mut self, place: Place) -> Option<Arc<ParsedBlock>> {
        if let Some(block) = self.blocks.get(&place) {
            return block.clone();
        }
        let (at, number) = place;
        let segment = self.segments.get(at)?;
        let block = segment.block(number).ok().filter(|block| verify(block).is_some());
        if block.is_none() {
            self.damage.push((segment.number(), Damage::Checksum { block: number.into() }));
        }
        if self.block_bytes >= BLOCKS_MAX {
            self.blocks.clear();
            self.block_bytes = 0;
        }
        let block = block.and_then(ParsedBlock::new).map(Arc::new);
        let size = block.as_ref().map_or(0, |block| block.size());
        self.block_bytes = self.block_bytes.saturating_add(size);
        self.blocks.insert(place, block.clone());
        block
    }

    /// Passes each record of these kinds in these blocks to `visit` with its position. Records may be passed twice. With
    /// `file`, records of other files may be left out.
    pub(crate) fn each(
        &mut self,
        places: &[Place],
        kinds: u8,
        file: Option<FileId>,
        visit: &mut dyn FnMut(Position, &Entry<'_>),
    ) {
        for &place in places {
            let Some(block) = self.block(place) else { continue };
            block.entries(kinds, file).for_each(|entry| visit((place.0, entry.sequence), &entry));
        }
    }

    /// Returns the actor with this number for a record at `position`.
    pub(crate) fn actor(&mut self, position: Position, id: ActorId) -> Actor {
        let (at, sequence) = position;
        let last = |defined: &Definitions| {
            let count = defined.partition_point(|(defined, _)| *defined < sequence);
            let last = count.checked_sub(1).and_then(|last| defined.get(last));
            last.map(|(_, actor)| *actor).unwrap_or_default()
        };
        // Almost all actors are known.
        if let Some(known) = self.actors.get(&(at, id)) {
            return last(known);
        }
        let defined = self.definitions(at, id);
        let actor = last(&defined);
        self.actors.insert((at, id), defined);
        actor
    }

    fn definitions(&mut self, at: usize, number: ActorId) -> Definitions {
        let places = self.places(at..at.saturating_add(1), Key::Number(number), kinds::DEFINES);
        let mut found = Vec::new();
        self.each(&places, kinds::DEFINES, None, &mut |(_, sequence), entry| match entry.record {
            Record::Actor { id, actor } if id == number => found.push((sequence, actor)),
            _ => {}
        });
        found.sort_unstable_by_key(|(sequence, _)| *sequence);
        found.dedup_by_key(|(_, actor)| *actor);
        found
    }

    /// Passes the records that name the file or directory `key`, or remove a name of it, to `visit`: those of the first `end` segments, the newest
    /// first.
    fn each_name(
        &mut self,
        key: Key<'_>,
        end: usize,
        visit: &mut dyn FnMut(Position, &Entry<'_>) -> ControlFlow<()>,
    ) {
        let file = if let Key::File(file) = key { Some(file) } else { None };
        for place in self.places(0..end, key, kinds::NAMES).into_iter().rev() {
            let Some(block) = self.block(place) else { continue };
            let entries = block.entries(kinds::NAMES, file);
            let mut found: Vec<_> = entries.filter(|entry| names(&entry.record, key)).collect();
            found.sort_by_key(|entry| entry.sequence);
            for entry in found.iter().rev() {
                if visit((place.0, entry.sequence), entry).is_break() {
                    return;
                }
            }
        }
    }

    /// Returns the last name of a file in the first `end` segments. The name may be removed.
    pub fn last_name(&mut self, file: FileId, end: usize) -> Option<Location> {
        let mut last = None;
        self.each_name(Key::File(file), end, &mut |_, entry| {
            last = gained(&entry.record, file);
            if last.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        last
    }

    /// Returns the last name of a file in the first `end` segments, unless its last name is removed.
    pub fn name(&mut self, file: FileId, end: usize) -> Option<Location> {
        let mut last = None;
        self.each_name(Key::File(file), end, &mut |_, entry| {
            last = gained(&entry.record, file);
            let is_end = matches!(entry.record, Record::Remove { file: own, links: 0, .. } if own == file);
            if last.is_some() || is_end { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        last
    }

    /// Returns the location of a directory after the first `end` segments; `None` if the log does not contain its
    /// creation.
    pub fn directory(&mut self, ino: Ino, end: usize) -> Option<Location> {
        let (mut last, mut is_known) = (None, false);
        self.each_name(Key::Directory(ino), end, &mut |_, entry| {
            let location = match entry.record {
                Record::Create { parent, name, file, kind: FileKind::Directory, .. } if file.ino == ino => {
                    is_known = true;
                    Some(Location { parent, name: name.into() })
                }
                Record::Rename { to, new_name, moved, .. } if moved.ino == ino => {
                    Some(Location { parent: to, name: new_name.into() })
                }
                Record::Rename { from, name, replaced: Some(other), exchange: true, .. }
                    if other.ino == ino =>
                {
                    Some(Location { parent: from, name: name.into() })
                }
                _ => None,
            };
            last = last.take().or(location);
            if is_known { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        last.filter(|_| is_known)
    }

    /// Returns the record that removed the last name of a file: its position, time and actor.
    pub(crate) fn removal(&mut self, file: FileId) -> Option<(Position, i64, Actor)> {
        let mut found = None;
        self.each_name(Key::File(file), self.len(), &mut |position, entry| {
            match entry.record {
                Record::Remove { actor, file: own, links: 0, .. } if own == file => {
                    found = Some((position, entry.time, actor));
                }
                Record::Rename { actor, replaced, links: 0, exchange: false, .. }
                    if replaced == Some(file) =>
                {
                    found = Some((position, entry.time, actor));
                }
                Record::Create { file: own, kind: FileKind::Regular, .. } if own == file => {}
                _ => return ControlFlow::Continue(()),
            }
            ControlFlow::Break(())
        });
        let (position, time, actor) = found?;
        Some((position, time, self.actor(position, actor)))
    }

    /// Returns all names that a file has after the first `end` segments.
    pub fn names(&mut self, file: FileId, end: usize) -> BTreeSet<(Ino, Vec<u8>)> {
        // Whether each name exists, by the newest record of the name.
        let mut names: BTreeMap<(Ino, Vec<u8>), bool> = BTreeMap::new();
        self.each_name(Key::File(file), end, &mut |_, entry| {
            let mut changed = BTreeMap::new();
            each_name_change(&entry.record, &mut |own, parent, name, exists| {
                if own == file && !name.is_empty() {
                    changed.insert((parent, name.to_vec()), exists);
                }
            });
            for (name, exists) in changed {
                names.entry(name).or_insert(exists);
            }
            ControlFlow::Continue(())
        });
        names.into_iter().filter(|(_, exists)| *exists).map(|(name, _)| name).collect()
    }

    /// Returns the files that had this name in any directory, in ascending order.
    pub fn named(&mut self, wanted: &[u8]) -> Vec<FileId> {
        let places = self.places(self.all(), Key::Name(wanted), kinds::NAMES);
        let mut found = BTreeSet::new();
        self.each(&places, kinds::NAMES, None, &mut |_, entry| {
            each_name_change(&entry.record, &mut |file, _, name, exists| {
                if exists && name == wanted {
                    found.insert(file);
                }
            });
        });
        found.into_iter().collect()
    }
}

/// Returns whether a record gives or removes a name of the file or directory `key`.
fn names(record: &Record<'_>, key: Key<'_>) -> bool {
    let mut found = false;
    each_name_change(record, &mut |file, _, _, _| {
        found |= key == Key::File(file) || key == Key::Directory(file.ino);
    });
    found
}

/// Returns the name that a record gives to a file.
fn gained(record: &Record<'_>, file: FileId) -> Option<Location> {
    let mut location = None;
    each_name_change(record, &mut |own, parent, name, exists| {
        if own == file && exists && !name.is_empty() {
            location = Some(Location { parent, name: name.into() });
        }
    });
    location
}

/// Receives a file, the directory and the name of one of its names, and whether it has the name.
pub type NameSink<'a> = dyn FnMut(FileId, Ino, &[u8], bool) + 'a;

/// Passes each name that a record gives (`true`) or removes to `visit`. If a record does both to one name, the last call
/// is the result.
pub fn each_name_change(record: &Record<'_>, visit: &mut NameSink<'_>) {
    match *record {
        Record::Create { parent, name, file, .. }
        | Record::Link { parent, name, file, .. }
        | Record::Generated { parent, name, file, .. } => visit(file, parent, name, true),
        Record::Remove { parent, name, file, .. } => visit(file, parent, name, false),
        Record::Rename { from, name, to, new_name, moved, replaced, exchange, .. } => {
            if let Some(other) = replaced {
                visit(other, to, new_name, false);
            }
            visit(moved, from, name, false);
            visit(moved, to, new_name, true);
            if let Some(other) = replaced.filter(|_| exchange) {
                visit(other, from, name, true);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
