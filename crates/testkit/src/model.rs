//! A model of a volume: a plan runs on the volume and on a file system in memory, through the same calls.
//!
//! Each operation must have the same result on both and leave equal trees. An operation that the format does not
//! support ([`StoredProperties`]) is refused without a change, and such attributes are ignored in the comparison. The history
//! records the tree after each operation and the data that each sync made durable. The allowed states after a power
//! failure follow from both.
//!
//! Invariant: the trees of a history are those of the volume itself, including its times and inode numbers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use obento_base::{Error, FileKind, Timestamp};
use obento_driver::{FileSystem, Limits, StoredProperties};
use obento_env::Clock;
use obento_tmpfs::{Options, Tmpfs};
use obento_vfs::Vfs;

use crate::plan::{Actor, Op, Plan};
use crate::snapshot::{Id, Meta, Snapshot, Times};

/// A clock that a test sets.
#[derive(Debug, Default)]
pub struct StepClock(AtomicU64);

/// The start: 2001-09-09.
const EPOCH: u64 = 1_000_000_000;

impl StepClock {
    /// Sets the time to this number of seconds after the start.
    pub fn set(&self, secs: u64) {
        self.0.store(secs, Ordering::Relaxed);
    }

    /// Advances the time by this number of seconds.
    pub fn pass(&self, secs: u64) {
        self.0.fetch_add(secs, Ordering::Relaxed);
    }
}

impl Clock for StepClock {
    fn now(&self) -> Timestamp {
        let secs = EPOCH + self.0.load(Ordering::Relaxed);
        Timestamp::new(secs.try_into().unwrap_or(i64::MAX), 0)
    }
}

/// The promises at some moment of a run.
#[derive(Clone, Debug, Default)]
pub struct Point {
    /// The number of started operations; the last one may not have returned.
    pub begun: usize,
    /// The first tree that may be found; earlier changes are durable.
    pub durable: usize,
    /// For inodes that were synced, the index of the tree at that time: no byte is older.
    pub synced: HashMap<Id, usize>,
}

/// A run of a plan.
#[derive(Debug, Default)]
pub struct History {
    /// The operations.
    pub ops: Vec<Op>,
    /// The result of each operation.
    pub answers: Vec<Result<(), Error>>,
    /// The tree before the first operation, and after each.
    pub trees: Vec<Snapshot>,
    /// The promises before the first operation, and after each step.
    pub points: Vec<Point>,
}

/// A plan that runs on a volume and on the model.
pub struct Run {
    clock: Arc<StepClock>,
    subject: Actor,
    /// The model. `None` after a format with fewer features runs out of space; the volume is then not compared.
    model: Option<Actor>,
    limits: Limits,
    history: History,
}

impl Run {
    /// Starts with `fs`, which uses `clock` and contains only empty directories (`lost+found`), and with a model with
    /// the same contents.
    pub fn new(fs: Arc<dyn FileSystem>, clock: Arc<StepClock>) -> Result<Self, Error> {
        let model = Actor::new(Vfs::new(Arc::new(Tmpfs::new(Options::new(clock.clone())))));
        let mut run = Self::begin(fs, model, clock)?;
        for (path, dir) in run.history.trees[0].objects.iter().filter(|(path, _)| !path.is_empty()) {
            let path = String::from_utf8_lossy(path).into_owned();
            if let Some(model) = &mut run.model {
                model.act(0, &Op::Create(path, dir.meta.kind, dir.meta.mode))?;
            }
        }
        Ok(run)
    }

    /// Starts with `fs`, and with another implementation of its format as the model, on a volume with the same
    /// contents.
    pub fn beside(
        fs: Arc<dyn FileSystem>,
        other: Arc<dyn FileSystem>,
        clock: Arc<StepClock>,
    ) -> Result<Self, Error> {
        Self::begin(fs, Actor::new(Vfs::new(other)), clock)
    }

    fn begin(fs: Arc<dyn FileSystem>, model: Actor, clock: Arc<StepClock>) -> Result<Self, Error> {
        let limits = fs.limits();
        let subject = Actor::new(Vfs::new(fs));
        let trees = vec![Snapshot::read(subject.vfs(), None)?];
        let history = History { trees, points: vec![Point::default()], ..History::default() };
        Ok(Self { clock, subject, model: Some(model), limits, history })
    }

    /// Returns the volume.
    pub fn vfs(&self) -> &Vfs {
        self.subject.vfs()
    }

    /// Returns whether the volume is still compared with the model.
    pub fn is_compared(&self) -> bool {
        self.model.is_some()
    }

    /// Returns the result of the last operation.
    pub fn last_answer(&self) -> Option<Result<(), Error>> {
        self.history.answers.last().copied()
    }

    /// Runs `plan` on both, and calls `reached` with the index of each new point. Fails with a description of a
    /// difference.
    pub fn all(&mut self, plan: &Plan, reached: &mut dyn FnMut(usize)) -> Result<(), String> {
        plan.ops.iter().try_for_each(|op| self.step(op, reached))
    }

    /// Runs one operation on both.
    pub fn step(&mut self, op: &Op, reached: &mut dyn FnMut(usize)) -> Result<(), String> {
        let number = self.history.ops.len();
        self.clock.set(number as u64 + 1);
        self.history.ops.push(op.clone());
        self.point(reached, |point| point.begun = number + 1);
        let found = self.subject.act(number, op);
        let reported = |what: String| format!("operation {number}, {op:?}: {what}");
        self.answer(number, op, found).map_err(reported)?;
        let read = |vfs: &Vfs, before: Option<&Snapshot>| Snapshot::read(vfs, before);
        let tree =
            read(self.vfs(), self.history.trees.last()).map_err(|e| reported(format!("the volume: {e}")))?;
        if let Some(model) = &self.model {
            let model = read(model.vfs(), None).map_err(|e| reported(format!("the model: {e}")))?;
            if let Some(difference) = difference(&self.limits, &model, &tree) {
                return Err(reported(difference));
            }
        }
        self.history.trees.push(tree);
        self.history.answers.push(found);
        if found.is_ok() {
            self.note_sync(op, reached);
        }
        Ok(())
    }

    /// Runs operation `number` on the model. Fails if the result differs from that of the volume, `found`.
    fn answer(&mut self, number: usize, op: &Op, found: Result<(), Error>) -> Result<(), String> {
        let Some(model) = &mut self.model else { return Ok(()) };
        match lacking(&self.limits, op) {
            Lacking::Refused if found.is_ok() => {
                return Err("the format does not support this, but it succeeds".into());
            }
            Lacking::Refused | Lacking::Ignored => return Ok(()),
            Lacking::Nothing => {}
        }
        let expected = model.act(number, op);
        match found {
            _ if found == expected => Ok(()),
            Err(Error::NoSpace) if self.limits.keeps != StoredProperties::all() => {
                self.model = None;
                Ok(())
            }
            _ => Err(format!("expected {expected:?}, found {found:?}")),
        }
    }

    fn point(&mut self, reached: &mut dyn FnMut(usize), change: impl FnOnce(&mut Point)) {
        let mut point = self.history.points.last().cloned().unwrap_or_default();
        change(&mut point);
        self.history.points.push(point);
        reached(self.history.points.len() - 1);
    }

    fn note_sync(&mut self, op: &Op, reached: &mut dyn FnMut(usize)) {
        let now = self.history.trees.len() - 1;
        match op {
            Op::Sync => {
                let all: Vec<Id> = self.history.trees[now].objects.values().map(|object| object.id).collect();
                self.point(reached, |point| {
                    point.durable = now;
                    point.synced.extend(all.into_iter().map(|id| (id, now)));
                });
            }
            Op::Fsync(path) => {
                let Ok(node) = self.subject.node(path) else { return };
                let ino = node.ino().0;
                let Some(id) =
                    self.history.trees[now].objects.values().map(|o| o.id).find(|id| id.ino == ino)
                else {
                    return;
                };
                let since = self.history.unchanged_since(id, path);
                self.point(reached, |point| {
                    point.durable = point.durable.max(since);
                    point.synced.insert(id, now);
                });
            }
            _ => {}
        }
    }

    /// Ends the run, and closes open files.
    pub fn finish(mut self) -> (Vfs, History) {
        let vfs = self.subject.vfs().clone();
        let _ = self.subject.act(0, &Op::Release);
        (vfs, self.history)
    }

    /// Ends the run as in a power failure: open files are never closed.
    pub fn cut(self) -> History {
        self.history
    }
}

/// Whether a format lacks a feature that an operation requires.
enum Lacking {
    Nothing,
    /// The format refuses the operation.
    Refused,
    /// The format ignores the operation, and its result does not matter.
    Ignored,
}

fn lacking(limits: &Limits, op: &Op) -> Lacking {
    let lacks = |what: StoredProperties| !limits.keeps.contains(what);
    match op {
        Op::Create(_, FileKind::Directory, _) if lacks(StoredProperties::DIRECTORIES) => Lacking::Refused,
        Op::Create(_, kind, _) if !matches!(kind, FileKind::Regular | FileKind::Directory) => {
            if lacks(StoredProperties::SPECIAL) { Lacking::Refused } else { Lacking::Nothing }
        }
        Op::Symlink(..) if lacks(StoredProperties::SYMLINKS) => Lacking::Refused,
        Op::Link(..) if limits.link_max == 1 => Lacking::Refused,
        Op::Chown(..) if lacks(StoredProperties::OWNERS) => Lacking::Ignored,
        Op::Chmod(..) | Op::Flags(..) if lacks(StoredProperties::MODES) => Lacking::Ignored,
        _ => Lacking::Nothing,
    }
}

/// Compares two trees in all that a format with these limits stores, except times, which follow different rules.
fn difference(limits: &Limits, model: &Snapshot, found: &Snapshot) -> Option<String> {
    let [model, found] = [model, found].map(|tree| tree.map_meta(|meta| kept(limits.keeps, meta)));
    model.difference(&found, Times::Ignored, None).or_else(|| model.content_difference(&found))
}

/// Returns `meta` without the properties that a format with these limits does not store.
fn kept(keeps: StoredProperties, meta: &Meta) -> Meta {
    let mut meta = meta.clone();
    if !keeps.contains(StoredProperties::MODES) {
        (meta.mode, meta.flags) = (0, 0);
    }
    if !keeps.contains(StoredProperties::OWNERS) {
        (meta.uid, meta.gid) = (0, 0);
    }
    if meta.kind == FileKind::Directory && !keeps.contains(StoredProperties::SUBDIRECTORIES) {
        meta.nlink = 1;
    }
    meta
}

impl History {
    /// Returns the first tree since which the object, and the name by which `path` refers to it in its directory, are
    /// unchanged. The names of directories above do not matter.
    fn unchanged_since(&self, id: Id, path: &str) -> usize {
        let now = self.trees.len() - 1;
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = self.trees[now].get(dir.as_bytes()).map(|object| object.id);
        let state = |tree: &Snapshot| {
            let entry = tree.names().find_map(|(known, object)| {
                let known = String::from_utf8_lossy(known);
                let (dir, last) = known.rsplit_once('/').unwrap_or(("", &known));
                let same =
                    last == name && object.id == id && tree.get(dir.as_bytes()).map(|o| o.id) == parent;
                same.then_some(())
            });
            (tree.by_id(id).cloned(), entry)
        };
        let current = state(&self.trees[now]);
        (0..now).rev().find(|&at| state(&self.trees[at]) != current).map_or(0, |at| at + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{self, random};
    use obento_block::{BlockDevice, MemDevice};

    /// The model compared with itself, with the data of files on a device.
    #[test]
    fn random_plans_do_the_same_to_two_volumes() {
        let mut done = 0;
        for seed in 0..60 {
            let clock = Arc::new(StepClock::default());
            let device = Arc::new(MemDevice::new(vec![0xee; 4 << 20]));
            let options = Options { device: Some(device), ..Options::new(clock.clone()) };
            let mut run = Run::new(Arc::new(Tmpfs::new(options)), clock).unwrap();
            let plan = random(seed, &plan::Limits::SMALL);
            run.all(&plan, &mut |_| ()).unwrap_or_else(|reason| panic!("{plan}{reason}"));
            let (_, history) = run.finish();
            done += history.trees.windows(2).filter(|pair| pair[0] != pair[1]).count();
        }
        assert!(done > 60 * 40 / 3, "most operations change something: {done}");
    }

    /// A device that loses the last byte of long writes.
    struct Forgetful(MemDevice);

    impl BlockDevice for Forgetful {
        fn len(&self) -> u64 {
            self.0.len()
        }
        fn is_read_only(&self) -> bool {
            false
        }
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
            self.0.read_at(offset, buf)
        }
        fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
            self.0.write_at(offset, if buf.len() > 3000 { &buf[..buf.len() - 1] } else { buf })
        }
        fn flush(&self) -> Result<(), Error> {
            Ok(())
        }
    }

    #[test]
    fn the_failure_of_a_broken_volume_is_reduced_to_one_file_and_one_write() {
        let fails = |plan: &Plan| {
            let clock = Arc::new(StepClock::default());
            let device = Arc::new(Forgetful(MemDevice::new(vec![0xee; 4 << 20])));
            let options = Options { device: Some(device), ..Options::new(clock.clone()) };
            Run::new(Arc::new(Tmpfs::new(options)), clock).unwrap().all(plan, &mut |_| ()).err()
        };
        let (least, reason) = plan::shrink(&random(1, &plan::Limits::SMALL), &fails);
        assert!(matches!(&least.ops[..], [Op::Create(..), Op::Write(..) | Op::Append(..)]), "{least}");
        assert!(reason.contains("bytes differ"), "{reason}");
    }

    #[test]
    fn an_operation_that_the_format_lacks_is_refused_and_skipped_in_the_model() {
        let limits = |keeps| Limits {
            keeps,
            link_max: 1,
            ..Tmpfs::new(Options::new(Arc::new(StepClock::default()))).limits()
        };
        let is_refused = |keeps, op: &Op| matches!(lacking(&limits(keeps), op), Lacking::Refused);
        let link = Op::Link("a".into(), "b".into());
        let pipe = Op::Create("p".into(), FileKind::Fifo, 0o600);
        assert!(is_refused(StoredProperties::all(), &link) && !is_refused(StoredProperties::all(), &pipe));
        assert!(is_refused(StoredProperties::DIRECTORIES, &pipe));
        assert!(is_refused(StoredProperties::DIRECTORIES, &Op::Symlink("s".into(), 3)));
    }

    #[test]
    fn a_synced_file_is_durable_since_it_and_its_own_name_last_changed() {
        use obento_base::FileKind::{Directory, Regular};
        let clock = Arc::new(StepClock::default());
        let mut run = Run::new(Arc::new(Tmpfs::new(Options::new(clock.clone()))), clock).unwrap();
        let ops = [
            Op::Create("d".into(), Directory, 0o755),
            Op::Create("d/f".into(), Regular, 0o644),
            Op::Write("d/f".into(), 0, 10),
            Op::Create("other".into(), Regular, 0o644),
            Op::Fsync("d/f".into()),
            Op::Rename("d/f".into(), "d/g".into(), obento_driver::RenameFlags::empty()),
            Op::Fsync("d/g".into()),
            Op::Create("last".into(), Regular, 0o644),
            Op::Sync,
        ];
        run.all(&Plan::new("syncs", ops), &mut |_| ()).unwrap();
        let durable: Vec<usize> = run.cut().points.iter().map(|point| point.durable).collect();
        assert_eq!(durable, [0, 0, 0, 0, 0, 0, 3, 3, 3, 6, 6, 6, 9]);
    }
}
