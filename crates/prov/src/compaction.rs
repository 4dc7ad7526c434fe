//! Compaction: the edges of removed segments as one segment.
//!
//! Invariant: a compaction keeps at most twice as many edges, and twice as many bytes of names, as its result can have.
//! A segment may be longer than the result, and hostile. The oldest edges are dropped first, and the result would not
//! contain them. Segments that are no longer than the result never reach this bound.

use alloc::vec::Vec;
use core::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use obento_base::{FileKind, Ino};
use obento_driver::history::Actor;

use crate::actor::{ACTORS_MAX, ActorId};
use crate::directories::Location;
use crate::graph::{Activity, Newest, Version};
use crate::record::{FileId, Record};
use crate::segment::{Entries, Entry, Header};
use crate::writer::SegmentWriter;

/// Length of the shortest record that adds an edge in bytes.
const EDGE_MIN: usize = 8;
/// Length of the shortest record that defines an actor in bytes.
const ACTOR_MIN: usize = 26;
/// Bytes of a record for each name in it, besides the name.
const NAME_MIN: usize = 7;

/// A use or the generation of a version.
#[derive(Clone, Copy, Debug)]
struct KeptEdge {
    version: Version,
    /// Sequence number of the record of a use, or of the last record of a generation.
    last: u64,
    /// The position of the actor in `KnownActors`.
    actor: u32,
    generates: bool,
}

/// The actors of edges, each once.
#[derive(Debug, Default)]
struct KnownActors {
    list: Vec<Actor>,
    positions: HashMap<Actor, u32>,
}

impl KnownActors {
    fn position(&mut self, actor: Actor) -> u32 {
        let list = &mut self.list;
        *self.positions.entry(actor).or_insert_with(|| {
            list.push(actor);
            to_position(list.len().saturating_sub(1))
        })
    }

    fn get(&self, position: u32) -> Actor {
        usize::try_from(position).ok().and_then(|at| self.list.get(at)).copied().unwrap_or_default()
    }

    /// Returns the activity that uses the version of an edge; `None` for a generation.
    fn user(&self, edge: &KeptEdge) -> Option<Activity> {
        (!edge.generates).then(|| self.get(edge.actor).into())
    }
}

/// The definitions of actors of a segment: at least the last `max`.
#[derive(Debug)]
struct LastDefinitions {
    max: usize,
    recent: HashMap<ActorId, Actor>,
    earlier: HashMap<ActorId, Actor>,
}

impl LastDefinitions {
    fn define(&mut self, id: ActorId, actor: Actor) {
        if self.recent.len() >= self.max {
            self.earlier = core::mem::take(&mut self.recent);
        }
        self.recent.insert(id, actor);
    }

    fn get(&self, id: ActorId) -> Option<Actor> {
        self.recent.get(&id).or_else(|| self.earlier.get(&id)).copied()
    }
}

/// The edges that were gathered, and the part of a [`Graph`](crate::Graph) that finds and encodes them.
#[derive(Debug)]
pub(crate) struct Compaction {
    /// Length of the result in bytes.
    max: usize,
    definitions: LastDefinitions,
    actors: KnownActors,
    edges: Vec<KeptEdge>,
    /// The positions of the edges by their identity.
    positions: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// The newest versions of the files that were written.
    newest: HashMap<FileId, Newest>,
    locations: HashMap<FileId, Location>,
    origins: HashMap<Version, Vec<u8>>,
    /// Length of the records of `locations` and `origins` in bytes, or less.
    name_bytes: usize,
}

impl Compaction {
    /// Creates a compaction with a result of at most `max` bytes.
    pub(crate) fn new(max: usize) -> Self {
        let actors_max = max.checked_div(ACTOR_MIN).unwrap_or(0).max(ACTORS_MAX);
        Self {
            max,
            definitions: LastDefinitions { max: actors_max, recent: HashMap::new(), earlier: HashMap::new() },
            actors: KnownActors::default(),
            edges: Vec::new(),
            positions: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            newest: HashMap::new(),
            locations: HashMap::new(),
            origins: HashMap::new(),
            name_bytes: 0,
        }
    }

    /// Adds the records of the next blocks of a segment, the numbers of which begin at `next`. Returns the number after
    /// the last record.
    pub(crate) fn add_blocks(&mut self, blocks: &[u8], next: u64) -> u64 {
        let mut entries = Entries::of_blocks(blocks, next);
        for entry in entries.by_ref().flatten() {
            self.add(&entry);
            self.keep_bound();
        }
        entries.next_sequence()
    }

    /// Adds the next record, as [`Graph::add`](crate::Graph::add) does.
    fn add(&mut self, entry: &Entry<'_>) {
        if let Record::Actor { id, actor } = entry.record {
            self.definitions.define(id, actor);
        }
        let actor = entry.record.actor().and_then(|id| self.definitions.get(id)).unwrap_or_default();
        match entry.record {
            Record::Open { file, mode, .. } => {
                if mode.write
                    && let Some(newest) = self.newest.get_mut(&file)
                {
                    newest.opens_for_writing(actor);
                }
                if mode.read {
                    self.uses(actor, file, entry.sequence);
                }
            }
            Record::Close { file, .. } => {
                if let Some(newest) = self.newest.get_mut(&file)
                    && newest.closes(actor)
                {
                    let version = Version { file, number: newest.number };
                    self.extend(version, entry.sequence);
                }
            }
            Record::Create { parent, name, file, kind, .. } => {
                self.moves(file, parent, name);
                if kind == FileKind::Regular {
                    self.newest.get_mut(&file).into_iter().for_each(Newest::is_created);
                    self.writes(actor, file, entry.sequence);
                }
            }
            Record::Link { parent, name, file, .. } => self.moves(file, parent, name),
            Record::Rename { from, name, to, new_name, moved, replaced, exchange, .. } => {
                self.moves(moved, to, new_name);
                if let Some(other) = replaced.filter(|_| exchange) {
                    self.moves(other, from, name);
                }
            }
            Record::Write { file, .. } | Record::Truncate { file, .. } => {
                self.writes(actor, file, entry.sequence);
            }
            Record::Used { file, version, sequence, .. } => {
                self.add_use(actor, Version { file, number: version }, sequence);
            }
            Record::Generated { file, version, sequence, parent, name, .. } => {
                self.moves(file, parent, name);
                self.newest.insert(file, Newest::compacted(version, actor));
                self.generate(actor, Version { file, number: version }, sequence);
            }
            Record::Source { file, name, .. } => {
                let number = self.newest.get(&file).map_or(0, |newest| newest.number);
                let known = self.origins.insert(Version { file, number }, name.into());
                self.count_name(name.len(), known.as_deref());
            }
            _ => {}
        }
    }

    fn moves(&mut self, file: FileId, parent: Ino, name: &[u8]) {
        if !name.is_empty() {
            let known = self.locations.insert(file, Location { parent, name: name.into() });
            self.count_name(name.len(), known.as_ref().map(|location| location.name.as_slice()));
        }
    }

    fn count_name(&mut self, len: usize, replaced: Option<&[u8]>) {
        let before = replaced.map_or(0, |name| name.len().saturating_add(NAME_MIN));
        self.name_bytes = self.name_bytes.saturating_sub(before).saturating_add(len).saturating_add(NAME_MIN);
    }

    fn uses(&mut self, actor: Actor, file: FileId, sequence: u64) {
        let newest = self.newest.get(&file).copied().unwrap_or_default();
        // A process that reads its own output adds nothing.
        if !newest.is_by(actor) {
            self.add_use(actor, Version { file, number: newest.number }, sequence);
        }
    }

    fn add_use(&mut self, actor: Actor, version: Version, sequence: u64) {
        if self.find(version, Some(actor.into())).is_none() {
            self.push(actor, version, sequence, false);
        }
    }

    fn writes(&mut self, actor: Actor, file: FileId, sequence: u64) {
        let newest = self.newest.entry(file).or_default();
        let begins = newest.writes(actor);
        let version = Version { file, number: newest.number };
        match begins {
            true => self.generate(actor, version, sequence),
            false => self.extend(version, sequence),
        }
    }

    fn generate(&mut self, actor: Actor, version: Version, sequence: u64) {
        let Some(at) = self.find(version, None) else {
            return self.push(actor, version, sequence, true);
        };
        // Only a damaged log has a generation by another process.
        if let Some(edge) = self.edges.get_mut(at)
            && Activity::from(self.actors.get(edge.actor)) == actor.into()
        {
            edge.last = sequence.max(edge.last);
        }
    }

    /// Sets the end of the generation of a version.
    fn extend(&mut self, version: Version, sequence: u64) {
        if let Some(edge) = self.find(version, None).and_then(|at| self.edges.get_mut(at)) {
            edge.last = sequence;
        }
    }

    fn push(&mut self, actor: Actor, version: Version, last: u64, generates: bool) {
        let edge = KeptEdge { version, last, actor: self.actors.position(actor), generates };
        self.edges.push(edge);
        self.enter(self.edges.len().saturating_sub(1));
    }

    /// Returns the position of the use of a version by an activity, or of the generation of the version.
    fn find(&self, version: Version, user: Option<Activity>) -> Option<usize> {
        let hash = self.hasher.hash_one((version, user));
        let is_found = |at: &u32| {
            let edge = to_index(*at).and_then(|at| self.edges.get(at));
            edge.is_some_and(|edge| edge.version == version && self.actors.user(edge) == user)
        };
        self.positions.find(hash, is_found).copied().and_then(to_index)
    }

    fn enter(&mut self, at: usize) {
        let Self { positions, edges, actors, hasher, .. } = self;
        let hash_of = |edge: &KeptEdge| hasher.hash_one((edge.version, actors.user(edge)));
        let Some(hash) = edges.get(at).map(hash_of) else { return };
        positions.insert_unique(hash, to_position(at), |at| {
            to_index(*at).and_then(|at| edges.get(at)).map_or(0, hash_of)
        });
    }

    fn edges_max(&self) -> usize {
        self.max.checked_div(EDGE_MIN).unwrap_or(0)
    }

    /// Drops edges and names if there are more than twice as many as the result can have.
    fn keep_bound(&mut self) {
        let has_too_many = self.edges.len() >= self.edges_max().saturating_mul(2);
        if !has_too_many && self.name_bytes < self.max.saturating_mul(2) {
            return;
        }
        if has_too_many {
            self.drop_older_half();
        }
        self.drop_names();
        while self.name_bytes > self.max && !self.edges.is_empty() {
            self.drop_older_half();
            self.drop_names();
        }
    }

    fn sort(&mut self) {
        let Self { edges, actors, .. } = self;
        edges.sort_unstable_by_key(|edge| (edge.last, edge.generates, edge.version, actors.get(edge.actor)));
    }

    fn drop_older_half(&mut self) {
        self.sort();
        // One more than half, so that a loop ends.
        self.edges.drain(..self.edges.len().div_ceil(2));
        let known = core::mem::take(&mut self.actors);
        for edge in &mut self.edges {
            edge.actor = self.actors.position(known.get(edge.actor));
        }
        self.positions.clear();
        (0..self.edges.len()).for_each(|at| self.enter(at));
    }

    /// Drops the newest versions without an edge, and the names that belong to none.
    fn drop_names(&mut self) {
        let mut newest = core::mem::take(&mut self.newest);
        newest
            .retain(|file, newest| self.find(Version { file: *file, number: newest.number }, None).is_some());
        self.newest = newest;
        self.locations.retain(|file, _| self.newest.contains_key(file));
        let mut origins = core::mem::take(&mut self.origins);
        origins.retain(|version, _| self.find(*version, None).is_some());
        self.origins = origins;
        let names = self.locations.values().map(|location| &location.name).chain(self.origins.values());
        self.name_bytes = names.map(|name| name.len().saturating_add(NAME_MIN)).sum();
    }

    /// Returns the segment of the edges. Drops the older half of them until it is at most `max` bytes long.
    #[inline(never)]
    pub(crate) fn finish(mut self, header: &Header) -> Vec<u8> {
        self.positions = HashTable::new();
        self.sort();
        loop {
            if let Some(bytes) = self.encode(header) {
                return bytes;
            }
            // One more than half, so that the loop ends.
            self.edges.drain(..self.edges.len().div_ceil(2));
        }
    }

    /// Returns the segment, if it is not too long. Its stack is not in use while records are decoded.
    #[inline(never)]
    fn encode(&self, header: &Header) -> Option<Vec<u8>> {
        let (mut out, mut ids) = (SegmentWriter::new(header), HashMap::new());
        for edge in &self.edges {
            // A short record of a new version may repeat a long name of its file.
            if out.len() > self.max {
                return None;
            }
            let (next, own) = (to_position(ids.len()), self.actors.get(edge.actor));
            let actor = *ids.entry(edge.actor).or_insert_with(|| {
                out.push(0, &Record::Actor { id: ActorId(next), actor: own });
                ActorId(next)
            });
            let Version { file, number: version } = edge.version;
            let (parent, name) =
                self.locations.get(&file).map_or((Ino(0), &b""[..]), |known| (known.parent, &known.name));
            let sequence = edge.last;
            out.push(
                0,
                &match edge.generates {
                    true => Record::Generated { actor, file, version, sequence, parent, name },
                    false => Record::Used { actor, file, version, sequence },
                },
            );
            if let Some(name) = self.origins.get(&edge.version).filter(|_| edge.generates) {
                out.push(0, &Record::Source { actor, file, name });
            }
        }
        let bytes = out.finish();
        (bytes.len() <= self.max || self.edges.is_empty()).then_some(bytes)
    }
}

fn to_position(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

fn to_index(at: u32) -> Option<usize> {
    usize::try_from(at).ok()
}

#[cfg(test)]
mod tests;
