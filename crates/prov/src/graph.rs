//! Derivation: versions of files, the activities that generated and used them, and the edges between them.
//!
//! A version of a file begins with the first write of an activity after it opened or created the file. An
//! activity is a process. A version may be derived from every version that its activity opened for reading before it
//! finished writing. The data flow between them is not recorded, so each edge is *possible*, not certain.

use alloc::vec::Vec;

use hashbrown::{HashMap, HashSet, hash_map};
use obento_base::{FileKind, Ino};
use obento_driver::history::Actor;

use crate::actor::ActorId;
use crate::directories::{Directories, Location};
use crate::record::{FileId, Record};
use crate::segment::Entry;

/// A process: process ID and start time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Activity {
    /// Process ID.
    pub pid: u32,
    /// Start time in clock ticks since boot.
    pub start: u64,
}

impl From<Actor> for Activity {
    fn from(actor: Actor) -> Self {
        Self { pid: actor.pid, start: actor.start }
    }
}

/// A version of a file. Version 0 is the contents before the log began.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version {
    /// The file.
    pub file: FileId,
    /// Number of the version.
    pub number: u64,
}

/// A use or the generation of a version by an activity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edge {
    /// The process, with the name of its program at that time.
    pub actor: Actor,
    /// The version.
    pub version: Version,
    /// Sequence number of the record by which the edge is known.
    pub sequence: u64,
    /// Sequence number of the last record of the edge: the last write or the close.
    pub last: u64,
    /// Time in microseconds since 1970; 0 for an edge whose segment was removed.
    pub time: i64,
}

impl Edge {
    /// Adds a repetition of a compacted edge. Only a damaged log has one of another process.
    pub(crate) fn repeats(&mut self, edge: &Self) {
        if Activity::from(self.actor) == edge.actor.into() {
            self.last = self.last.max(edge.last);
        }
    }
}

/// The newest version of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Newest {
    pub(crate) number: u64,
    activity: Option<Activity>,
    /// The activity closed the file.
    is_closed: bool,
    /// The activity opened the file for writing again.
    is_reopened: bool,
}

impl Newest {
    /// Returns the version of a compacted edge.
    pub(crate) fn compacted(number: u64, actor: Actor) -> Self {
        Self { number, activity: Some(actor.into()), is_closed: false, is_reopened: false }
    }

    /// Returns whether the version was written by the process of `actor`, whatever program it executed then.
    pub(crate) fn is_by(&self, actor: Actor) -> bool {
        self.activity == Some(actor.into())
    }

    /// Notes that the file is created. Formats without generations use a number again for another file, whose versions
    /// follow.
    pub(crate) fn is_created(&mut self) {
        self.activity = None;
    }

    pub(crate) fn opens_for_writing(&mut self, actor: Actor) {
        self.is_reopened = self.is_by(actor) && self.is_closed;
    }

    /// Notes a write. Returns whether it begins a version.
    pub(crate) fn writes(&mut self, actor: Actor) -> bool {
        if self.is_by(actor) && !self.is_reopened {
            return false;
        }
        *self = Self::compacted(self.number.saturating_add(1), actor);
        true
    }

    /// Notes that a process closes the file. Returns whether the process wrote the version.
    pub(crate) fn closes(&mut self, actor: Actor) -> bool {
        let is_own = self.is_by(actor);
        self.is_closed |= is_own;
        is_own
    }
}

/// The end of a file: its last name was removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Removal {
    /// The process that removed it.
    pub actor: Actor,
    /// Sequence number of the record.
    pub sequence: u64,
    /// Time in microseconds since 1970.
    pub time: i64,
}

/// The graph of a log, up to the records that were added.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    actors: HashMap<ActorId, Actor>,
    newest: HashMap<FileId, Newest>,
    locations: HashMap<FileId, Location>,
    directories: Directories,
    removed: HashMap<FileId, Removal>,
    generated: HashMap<Version, Edge>,
    /// The files outside of the volume from which versions were copied.
    origins: HashMap<Version, Vec<u8>>,
    used: Vec<Edge>,
    seen: HashSet<(Activity, Version)>,
    used_by: HashMap<Activity, Vec<(u64, Version)>>,
    generated_by: HashMap<Activity, Vec<Version>>,
    users: HashMap<Version, Vec<(u64, Activity)>>,
}

impl Graph {
    /// Creates an empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next record of the log.
    pub fn add(&mut self, entry: &Entry<'_>) {
        if let Record::Actor { id, actor } = entry.record {
            self.actors.insert(id, actor);
        }
        let actor = entry.record.actor().and_then(|id| self.actors.get(&id)).copied().unwrap_or_default();
        let removal = Removal { actor, sequence: entry.sequence, time: entry.time };
        self.directories.add(&entry.record);
        match entry.record {
            Record::Open { file, mode, .. } => {
                if mode.write {
                    self.newest.entry(file).or_default().opens_for_writing(actor);
                }
                if mode.read {
                    self.uses(actor, file, entry);
                }
            }
            Record::Close { file, .. } => self.closes(actor, file, entry.sequence),
            Record::Create { parent, name, file, kind, .. } => {
                self.moves(file, parent, name);
                if kind == FileKind::Regular {
                    self.newest.entry(file).or_default().is_created();
                    self.removed.remove(&file);
                    self.generates(actor, file, entry);
                }
            }
            Record::Link { parent, name, file, .. } => self.moves(file, parent, name),
            Record::Remove { file, links: 0, .. } => drop(self.removed.insert(file, removal)),
            Record::Rename { from, name, to, new_name, moved, replaced, links, exchange, .. } => {
                self.moves(moved, to, new_name);
                match replaced {
                    Some(file) if exchange => self.moves(file, from, name),
                    Some(file) if links == 0 => drop(self.removed.insert(file, removal)),
                    _ => {}
                }
            }
            Record::Write { file, .. } | Record::Truncate { file, .. } => self.generates(actor, file, entry),
            Record::Used { file, version, sequence, .. } => {
                let (version, time) = (Version { file, number: version }, 0);
                self.add_use(Edge { actor, version, sequence, last: sequence, time });
            }
            Record::Generated { file, version, sequence, parent, name, .. } => {
                if !name.is_empty() {
                    self.moves(file, parent, name);
                }
                self.newest.insert(file, Newest::compacted(version, actor));
                let (version, time) = (Version { file, number: version }, 0);
                self.add_generation(Edge { actor, version, sequence, last: sequence, time });
            }
            Record::Source { file, name, .. } => {
                self.origins.insert(self.newest(file), name.into());
            }
            _ => {}
        }
    }

    fn moves(&mut self, file: FileId, parent: Ino, name: &[u8]) {
        if !name.is_empty() {
            self.locations.insert(file, Location { parent, name: name.into() });
        }
    }

    fn uses(&mut self, actor: Actor, file: FileId, entry: &Entry<'_>) {
        let newest = self.newest.get(&file).copied().unwrap_or_default();
        // A process that reads its own output adds nothing.
        if newest.is_by(actor) {
            return;
        }
        let version = Version { file, number: newest.number };
        let (sequence, time) = (entry.sequence, entry.time);
        self.add_use(Edge { actor, version, sequence, last: sequence, time });
    }

    fn add_use(&mut self, edge: Edge) {
        let activity = Activity::from(edge.actor);
        if !self.seen.insert((activity, edge.version)) {
            return;
        }
        self.used.push(edge);
        self.used_by.entry(activity).or_default().push((edge.sequence, edge.version));
        self.users.entry(edge.version).or_default().push((edge.sequence, activity));
    }

    fn generates(&mut self, actor: Actor, file: FileId, entry: &Entry<'_>) {
        let newest = self.newest.entry(file).or_default();
        let begins = newest.writes(actor);
        let version = Version { file, number: newest.number };
        let (sequence, time) = (entry.sequence, entry.time);
        if !begins {
            if let Some(edge) = self.generated.get_mut(&version) {
                edge.last = sequence;
            }
            return;
        }
        self.add_generation(Edge { actor, version, sequence, last: sequence, time });
    }

    fn add_generation(&mut self, edge: Edge) {
        match self.generated.entry(edge.version) {
            hash_map::Entry::Vacant(slot) => {
                slot.insert(edge);
                self.generated_by.entry(edge.actor.into()).or_default().push(edge.version);
            }
            hash_map::Entry::Occupied(mut known) => known.get_mut().repeats(&edge),
        }
    }

    fn closes(&mut self, actor: Actor, file: FileId, sequence: u64) {
        let Some(newest) = self.newest.get_mut(&file) else { return };
        if !newest.closes(actor) {
            return;
        }
        if let Some(edge) = self.generated.get_mut(&Version { file, number: newest.number }) {
            edge.last = sequence;
        }
    }

    /// Returns the generation of each version, in the order of the versions.
    pub fn generated(&self) -> Vec<&Edge> {
        let mut edges: Vec<_> = self.generated.values().collect();
        edges.sort_unstable_by_key(|edge| edge.version);
        edges
    }

    /// Returns the uses of versions, in the order of the log.
    pub fn used(&self) -> &[Edge] {
        &self.used
    }

    /// Returns the generation of a version; `None` for version 0.
    pub fn generation(&self, version: Version) -> Option<&Edge> {
        self.generated.get(&version)
    }

    /// Returns the name of the file outside of the volume from which a version was copied when the volume was built.
    pub fn origin(&self, version: Version) -> Option<&[u8]> {
        self.origins.get(&version).map(Vec::as_slice)
    }

    /// Returns the newest version of a file.
    pub fn newest(&self, file: FileId) -> Version {
        Version { file, number: self.newest.get(&file).map_or(0, |newest| newest.number) }
    }

    /// Returns the versions that `version` may be derived from, in ascending order.
    pub fn sources(&self, version: Version) -> Vec<Version> {
        let Some(edge) = self.generated.get(&version) else { return Vec::new() };
        let used = self.used_by.get(&Activity::from(edge.actor)).into_iter().flatten();
        let before = used.filter(|(sequence, _)| *sequence <= edge.last).map(|(_, used)| *used);
        let mut sources: Vec<_> = before.filter(|used| *used != version).collect();
        sources.sort_unstable();
        sources
    }

    /// Returns the versions that may be derived from `version`, in ascending order.
    pub fn products(&self, version: Version) -> Vec<Version> {
        let mut products = Vec::new();
        for (sequence, activity) in self.users.get(&version).into_iter().flatten() {
            for generated in self.generated_by.get(activity).into_iter().flatten() {
                let finished = self.generated.get(generated).map_or(0, |edge| edge.last);
                if sequence <= &finished && *generated != version {
                    products.push(*generated);
                }
            }
        }
        products.sort_unstable();
        products.dedup();
        products
    }

    /// Returns the last name of a file in the log, and its directory.
    pub fn location(&self, file: FileId) -> Option<(Ino, &[u8])> {
        self.locations.get(&file).map(|location| (location.parent, location.name.as_slice()))
    }

    /// Returns the last names of the directories in the log.
    pub fn directories(&self) -> &Directories {
        &self.directories
    }

    /// Returns the removal of the last name of a file.
    pub fn removed(&self, file: FileId) -> Option<&Removal> {
        self.removed.get(&file)
    }

    /// Returns the files with a known name, in ascending order.
    pub fn files(&self) -> Vec<FileId> {
        let mut files: Vec<_> = self.locations.keys().copied().collect();
        files.sort_unstable();
        files
    }
}
