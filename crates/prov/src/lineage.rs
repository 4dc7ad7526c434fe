//! Lineage through the indexes: the same answers as a [`Graph`](crate::Graph) of all records, from the records of the
//! files and processes of the answer.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use hashbrown::{HashMap, HashSet};
use obento_base::{FileKind, Ino};
use obento_driver::history::Actor;

use crate::actor::ActorId;
use crate::directories::Location;
use crate::graph::{Activity, Edge, Newest, Removal, Version};
use crate::index::Key;
use crate::indexed::{IndexedLog, Position};
use crate::kinds;
use crate::places::Place;
use crate::record::{FileId, Record};
use crate::segment::Entry;

/// The versions of a file.
#[derive(Debug, Default)]
struct FileHistory {
    newest: Newest,
    /// The generation of each version by its number.
    generated: BTreeMap<u64, Edge>,
    /// The position from which each version is the newest one, in ascending order.
    turns: Vec<(Position, Newest)>,
    origins: BTreeMap<u64, Vec<u8>>,
}

impl FileHistory {
    /// Returns the newest version before `position`.
    fn at(&self, position: Position) -> Newest {
        let count = self.turns.partition_point(|(from, _)| *from < position);
        let last = count.checked_sub(1).and_then(|last| self.turns.get(last));
        last.map(|(_, newest)| *newest).unwrap_or_default()
    }

    /// Adds the next record of the file, which is one of `OwnRecord`.
    fn add(&mut self, file: FileId, position: Position, actor: Actor, record: &OwnRecord) {
        let (sequence, time) = (position.1, record.time);
        match record.kind {
            OwnKind::OpenForWriting => self.newest.opens_for_writing(actor),
            OwnKind::Close if self.newest.closes(actor) => self.extend(sequence),
            OwnKind::Close => {}
            OwnKind::Create => {
                self.newest.is_created();
                self.write(file, position, actor, time);
            }
            OwnKind::Write => self.write(file, position, actor, time),
            OwnKind::Generated { version, sequence } => {
                self.newest = Newest::compacted(version, actor);
                self.turns.push((position, self.newest));
                let version = Version { file, number: version };
                self.generate(Edge { actor, version, sequence, last: sequence, time: 0 });
            }
            OwnKind::Source(ref name) => drop(self.origins.insert(self.newest.number, name.clone())),
        }
    }

    fn write(&mut self, file: FileId, position: Position, actor: Actor, time: i64) {
        let sequence = position.1;
        if !self.newest.writes(actor) {
            self.extend(sequence);
            return;
        }
        self.turns.push((position, self.newest));
        let version = Version { file, number: self.newest.number };
        self.generate(Edge { actor, version, sequence, last: sequence, time });
    }

    /// Sets the end of the newest version.
    fn extend(&mut self, sequence: u64) {
        if let Some(edge) = self.generated.get_mut(&self.newest.number) {
            edge.last = sequence;
        }
    }

    fn generate(&mut self, edge: Edge) {
        match self.generated.get_mut(&edge.version.number) {
            None => drop(self.generated.insert(edge.version.number, edge)),
            Some(known) => known.repeats(&edge),
        }
    }
}

/// A record that changes the versions of its file.
#[derive(Debug)]
struct OwnRecord {
    time: i64,
    actor: ActorId,
    kind: OwnKind,
}

#[derive(Debug)]
enum OwnKind {
    Create,
    OpenForWriting,
    Write,
    Close,
    Generated { version: u64, sequence: u64 },
    Source(Vec<u8>),
}

impl OwnRecord {
    fn new(entry: &Entry<'_>, wanted: FileId) -> Option<Self> {
        let (actor, file, kind) = match entry.record {
            Record::Create { actor, file, kind: FileKind::Regular, .. } => (actor, file, OwnKind::Create),
            Record::Open { actor, file, mode } if mode.write => (actor, file, OwnKind::OpenForWriting),
            Record::Write { actor, file, .. } | Record::Truncate { actor, file, .. } => {
                (actor, file, OwnKind::Write)
            }
            Record::Close { actor, file, .. } => (actor, file, OwnKind::Close),
            Record::Generated { actor, file, version, sequence, .. } => {
                (actor, file, OwnKind::Generated { version, sequence })
            }
            Record::Source { actor, file, name } => (actor, file, OwnKind::Source(name.into())),
            _ => return None,
        };
        (file == wanted).then_some(Self { time: entry.time, actor, kind })
    }
}

/// A use of a file by an activity.
#[derive(Clone, Copy, Debug)]
struct Use {
    actor: Actor,
    file: FileId,
    /// The version and the sequence number of a compacted edge.
    compacted: Option<(u64, u64)>,
}

/// Versions of files, and which version was made from which.
#[derive(Debug)]
pub struct Lineage {
    log: IndexedLog,
    files: HashMap<FileId, FileHistory>,
    used_by: HashMap<Activity, Vec<(u64, Version)>>,
    directories: HashMap<Ino, Option<Location>>,
    locations: HashMap<FileId, Option<Location>>,
    removals: HashMap<FileId, Option<Removal>>,
}

impl Lineage {
    /// Creates the lineage of the files of a log.
    pub fn new(log: IndexedLog) -> Self {
        Self {
            log,
            files: HashMap::new(),
            used_by: HashMap::new(),
            directories: HashMap::new(),
            locations: HashMap::new(),
            removals: HashMap::new(),
        }
    }

    /// Returns the log.
    pub fn log(&mut self) -> &mut IndexedLog {
        &mut self.log
    }

    /// Returns the newest version of a file.
    pub fn newest(&mut self, file: FileId) -> Version {
        Version { file, number: self.history(file).newest.number }
    }

    /// Returns the generation of a version; `None` for version 0.
    pub fn generation(&mut self, version: Version) -> Option<Edge> {
        self.history(version.file).generated.get(&version.number).copied()
    }

    /// Returns the name of the file outside of the volume from which a version was copied when the volume was built.
    pub fn origin(&mut self, version: Version) -> Option<&[u8]> {
        self.history(version.file).origins.get(&version.number).map(Vec::as_slice)
    }

    /// Returns the last name of a file in the log, and its directory.
    pub fn location(&mut self, file: FileId) -> Option<Location> {
        let end = self.log.len();
        let log = &mut self.log;
        self.locations.entry(file).or_insert_with(|| log.last_name(file, end)).clone()
    }

    /// Returns the last location of a directory whose creation the log contains.
    pub fn directory(&mut self, ino: Ino) -> Option<Location> {
        if let Some(known) = self.directories.get(&ino) {
            return known.clone();
        }
        let end = self.log.len();
        let found = self.log.directory(ino, end);
        self.directories.insert(ino, found.clone());
        found
    }

    /// Returns the removal of the last name of a file.
    pub fn removed(&mut self, file: FileId) -> Option<Removal> {
        let log = &mut self.log;
        let found = self.removals.entry(file).or_insert_with(|| {
            let ((_, sequence), time, actor) = log.removal(file)?;
            Some(Removal { actor, sequence, time })
        });
        *found
    }

    /// Returns the versions that `version` may be derived from, in ascending order.
    pub fn sources(&mut self, version: Version) -> Vec<Version> {
        let Some(edge) = self.generation(version) else { return Vec::new() };
        let used = self.used_by(edge.actor.into());
        let before = used.iter().filter(|(sequence, _)| *sequence <= edge.last).map(|(_, used)| *used);
        let mut sources: Vec<_> = before.filter(|used| *used != version).collect();
        sources.sort_unstable();
        sources
    }

    /// Returns the versions that may be derived from `version`, in ascending order.
    pub fn products(&mut self, version: Version) -> Vec<Version> {
        let mut products = Vec::new();
        for (sequence, activity) in self.users(version) {
            for edge in self.generated_by(activity) {
                if sequence <= edge.last && edge.version != version {
                    products.push(edge.version);
                }
            }
        }
        products.sort_unstable();
        products.dedup();
        products
    }

    fn history(&mut self, file: FileId) -> &FileHistory {
        if !self.files.contains_key(&file) {
            let history = self.read_history(file);
            self.files.insert(file, history);
        }
        self.files.entry(file).or_default()
    }

    fn read_history(&mut self, file: FileId) -> FileHistory {
        let places = self.log.places(self.log.all(), Key::File(file), kinds::WRITES);
        let mut records = BTreeMap::new();
        self.add_records(file, &places, &mut records);
        self.add_closes(file, &places, &mut records);
        let mut history = FileHistory::default();
        for (position, record) in records {
            let actor = self.log.actor(position, record.actor);
            history.add(file, position, actor, &record);
        }
        history
    }

    fn add_records(&mut self, file: FileId, places: &[Place], records: &mut BTreeMap<Position, OwnRecord>) {
        self.log.each(places, kinds::WRITES | kinds::CLOSES, Some(file), &mut |position, entry| {
            if let Some(record) = OwnRecord::new(entry, file) {
                records.entry(position).or_insert(record);
            }
        });
    }

    /// Adds the records of the closes by processes that wrote to the file. A file may have many other closes. The records
    /// in the blocks `done` are added already.
    fn add_closes(&mut self, file: FileId, done: &[Place], records: &mut BTreeMap<Position, OwnRecord>) {
        let positions: Vec<_> = records.iter().map(|(position, record)| (*position, record.actor)).collect();
        let writers: BTreeSet<u32> =
            positions.into_iter().map(|(position, actor)| self.log.actor(position, actor).pid).collect();
        let closes = self.log.places(self.log.all(), Key::File(file), kinds::CLOSES);
        let mut places = BTreeSet::new();
        for pid in writers {
            let own = self.log.places(self.log.all(), Key::Process(pid), kinds::CLOSES);
            let is_left =
                |place: &Place| closes.binary_search(place).is_ok() && done.binary_search(place).is_err();
            places.extend(own.into_iter().filter(is_left));
        }
        let places: Vec<_> = places.into_iter().collect();
        self.add_records(file, &places, records);
    }

    /// Returns the versions that an activity used, with the sequence numbers of the first uses.
    fn used_by(&mut self, activity: Activity) -> Vec<(u64, Version)> {
        if let Some(known) = self.used_by.get(&activity) {
            return known.clone();
        }
        let places = self.log.places(self.log.all(), Key::Process(activity.pid), kinds::USES);
        let uses = self.uses(&places, None);
        let own = uses.into_iter().filter(|(_, one)| Activity::from(one.actor) == activity);
        let found = self.resolved(own.collect());
        let found: Vec<_> = found.into_iter().map(|(sequence, version, _)| (sequence, version)).collect();
        self.used_by.insert(activity, found.clone());
        found
    }

    /// Returns the activities that used a version, with the sequence numbers of their first uses.
    fn users(&mut self, version: Version) -> Vec<(u64, Activity)> {
        let places = self.log.places(self.log.all(), Key::File(version.file), kinds::USES);
        let uses = self.uses(&places, Some(version.file));
        let found = self.resolved(uses).into_iter().filter(|(_, used, _)| *used == version);
        found.map(|(sequence, _, activity)| (sequence, activity)).collect()
    }

    /// Returns the uses in these blocks, of `file` if that is given.
    fn uses(&mut self, places: &[Place], file: Option<FileId>) -> BTreeMap<Position, Use> {
        let mut found = BTreeMap::new();
        self.log.each(places, kinds::USES, file, &mut |position, entry| {
            let (actor, used, compacted) = match entry.record {
                Record::Open { actor, file, mode } if mode.read => (actor, file, None),
                Record::Used { actor, file, version, sequence } => (actor, file, Some((version, sequence))),
                _ => return,
            };
            if file.is_none_or(|file| file == used) {
                found.insert(position, (actor, used, compacted));
            }
        });
        let with_actor = |(position, (actor, file, compacted))| {
            let actor = self.log.actor(position, actor);
            (position, Use { actor, file, compacted })
        };
        found.into_iter().map(with_actor).collect()
    }

    /// Returns the used versions, each once for each activity, with the sequence numbers of the first uses.
    fn resolved(&mut self, uses: BTreeMap<Position, Use>) -> Vec<(u64, Version, Activity)> {
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        for (position, Use { actor, file, compacted }) in uses {
            let (number, sequence) = match compacted {
                Some(edge) => edge,
                None => {
                    let newest = self.history(file).at(position);
                    // A process that reads its own output adds nothing.
                    if newest.is_by(actor) {
                        continue;
                    }
                    (newest.number, position.1)
                }
            };
            let (version, activity) = (Version { file, number }, Activity::from(actor));
            if seen.insert((activity, version)) {
                found.push((sequence, version, activity));
            }
        }
        found
    }

    /// Returns the generations of versions by an activity.
    fn generated_by(&mut self, activity: Activity) -> Vec<Edge> {
        let places = self.log.places(self.log.all(), Key::Process(activity.pid), kinds::WRITES);
        let mut written = BTreeSet::new();
        self.log.each(&places, kinds::WRITES, None, &mut |position, entry| match entry.record {
            Record::Create { actor, file, .. }
            | Record::Write { actor, file, .. }
            | Record::Truncate { actor, file, .. }
            | Record::Generated { actor, file, .. } => drop(written.insert((position, actor, file))),
            _ => {}
        });
        // A block contains records of other processes, too.
        let is_own = |&(position, actor, _): &(Position, ActorId, FileId)| {
            Activity::from(self.log.actor(position, actor)) == activity
        };
        let files: BTreeSet<_> = written.into_iter().filter(is_own).map(|(_, _, file)| file).collect();
        let mut found = Vec::new();
        for file in files {
            let edges = self.history(file).generated.values();
            found.extend(edges.filter(|edge| Activity::from(edge.actor) == activity));
        }
        found
    }
}
