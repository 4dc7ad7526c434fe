//! Power failures of recorded volumes. The volume keeps its promises, as without a recorder. The log contains each
//! synced change, and contradicts no tree that the volume had. The next recorder continues the log.

mod common;

use std::sync::Arc;

use obento_base::{Ino, Name};
use obento_block::BlockDevice;
use obento_driver::{FileSystem, NewNode};
use obento_prov::{Entries, FileId, Mark, Record};
use obento_testkit::crash::campaign::{self, Depth, Volume};
use obento_testkit::crash::volume::{PlanEnd, Recording};
use obento_testkit::crash::{Options, SeenStates, State, explore};
use obento_testkit::model::{History, StepClock};
use obento_testkit::plan::Plan;
use obento_testkit::snapshot::Snapshot;
use obento_testkit::trials;
use obento_vfs::Vfs;

use common::replay::{Names, Paths, names_of, paths, step};
use common::segments;
use common::volumes::{self, OpenInner};

/// Returns the paths of a tree, without the root.
fn paths_of(tree: &Snapshot) -> Paths {
    let names = tree.names().filter(|(path, _)| !path.is_empty());
    names.map(|(path, object)| (path.clone(), object.id.ino)).collect()
}

/// The log of a state, compared with the history of its volume.
struct Comparison<'a> {
    history: &'a History,
    trees: Vec<Paths>,
    /// The newest tree that the log has reached.
    reached: usize,
    names: Names,
    /// The inodes with recorded writes.
    written: Vec<Ino>,
}

impl<'a> Comparison<'a> {
    fn new(history: &'a History) -> Self {
        let trees: Vec<_> = history.trees.iter().map(paths_of).collect();
        let root = root_of(history);
        // Names that are older than the log.
        let names = history.trees[0].names().filter(|(path, _)| !path.is_empty()).map(|(path, object)| {
            let file =
                FileId { ino: Ino(object.id.ino), generation: obento_base::Generation(object.id.generation) };
            ((root, path.clone()), file)
        });
        Self { history, trees, reached: 0, names: names.collect(), written: Vec::new() }
    }

    /// Executes the next record, after which the tree must be one of the history, up to operation `begun`.
    fn add(&mut self, record: &Record<'_>, begun: usize) -> Result<(), String> {
        if let Record::Write { file, .. } | Record::Truncate { file, .. } = record {
            self.written.push(file.ino);
        }
        if !step(&mut self.names, record)? {
            return Ok(());
        }
        let now = paths(&self.names, root_of(self.history));
        let next = (self.reached..=begun).find(|&tree| self.trees.get(tree) == Some(&now));
        self.reached = next.ok_or_else(|| format!("the volume never had the tree after {record:?}"))?;
        Ok(())
    }

    /// Fails if the log lacks a change of the tree `durable` or an earlier one.
    fn expect_all_until(&self, durable: usize) -> Result<(), String> {
        let has_all = self.reached >= durable
            || self.trees[self.reached..=durable].windows(2).all(|pair| pair[0] == pair[1]);
        if !has_all {
            return Err(format!(
                "the log ends at tree {} and lacks changes until tree {durable}",
                self.reached
            ));
        }
        let contents = self.history.trees[durable].objects.values();
        for object in contents.filter(|object| !object.content.is_empty()) {
            if !self.written.contains(&Ino(object.id.ino)) {
                return Err(format!("no write to inode {} is recorded", object.id.ino));
            }
        }
        Ok(())
    }
}

fn root_of(history: &History) -> Ino {
    Ino(history.trees[0].get(b"").expect("the root").id.ino)
}

/// Tests the log of a state: records without a gap from the start contain every synced change.
fn expect_log(recording: &Recording, state: &State<'_>, inner: &Arc<dyn FileSystem>) -> Result<(), String> {
    let mut log = Comparison::new(&recording.history);
    let point = &recording.history.points[state.mark.unwrap_or(0)];
    let mut next = None;
    let segments = segments(inner);
    for entry in segments.iter().flat_map(|segment| Entries::new(segment)).flatten() {
        // Records after a gap are uncertain.
        if next.is_some_and(|next| next != entry.sequence) {
            break;
        }
        next = Some(entry.sequence + 1);
        log.add(&entry.record, point.begun)?;
    }
    log.expect_all_until(point.durable)
}

/// Tests that the next recorder marks the crash, and that its records lead from the tree that it found to the tree that
/// it leaves.
fn expect_continued(device: &Arc<dyn BlockDevice>, open: OpenInner, before: Names) -> Result<(), String> {
    let clock = Arc::new(StepClock::default());
    clock.set(1 << 20);
    let opened = |e| format!("does not open: {e}");
    let fs = volumes::record(open(device.clone(), clock.clone()).map_err(opened)?, clock.clone())
        .map_err(opened)?;
    let vfs = Vfs::new(fs);
    let node = NewNode {
        kind: obento_base::FileKind::Regular,
        mode: obento_base::Mode::new(0o644),
        uid: 0,
        gid: 0,
        rdev: obento_base::DeviceNumber::default(),
        target: b"",
    };
    let name = Name::new(b"after the crash").expect("a name");
    vfs.create(&obento_vfs::Caller::Owner, &vfs.root(), name, &node).map_err(|e| format!("no file: {e}"))?;
    vfs.close().map_err(|e| format!("does not close: {e}"))?;
    drop(vfs);
    let inner = open(device.clone(), clock).map_err(opened)?;
    let segments = segments(&inner);
    let records =
        || segments.iter().flat_map(|segment| Entries::new(segment)).flatten().map(|entry| entry.record);
    let mark = records().position(|record| matches!(record, Record::Mark(Mark::Mount { .. })));
    let crash = records().position(|record| record == Record::Mark(Mark::Crash));
    if crash.is_none() && !before.is_empty() {
        return Err("changes survived the crash, and the log has no mark of it".into());
    }
    let start = crash.or(mark).ok_or("the log has no mark")?;
    let mut names = before;
    for record in records().skip(start) {
        step(&mut names, &record)?;
    }
    if names == names_of(&*inner) {
        Ok(())
    } else {
        Err("records after the mark lead to another tree".into())
    }
}

/// Tests the log after each power failure of `plans`.
#[track_caller]
fn logs_of(volume: &Volume<'_>, open: OpenInner, plans: &[Plan], options: &Options) {
    let mut judged = 0;
    for plan in plans {
        let recording = volume.subject.record(&volume.base, plan, PlanEnd::Dropped).expect("as in memory");
        let options = Options { whole: volume.whole.clone(), from_mark: recording.from, ..options.clone() };
        let summary =
            explore(&recording.base, &recording.events, &options, &SeenStates::default(), &mut |state| {
                let clock = Arc::new(StepClock::default());
                let inner = open(state.device.clone(), clock).map_err(|e| format!("does not open: {e}"))?;
                expect_log(&recording, state, &inner)?;
                let names = names_of(&*inner);
                trials::close(&*inner);
                drop(inner);
                expect_continued(&state.device, open, names)
            });
        let failures: Vec<_> = summary.failures.iter().map(ToString::to_string).collect();
        assert!(failures.is_empty(), "{}: {plan}{}", volume.name, failures.join("\n"));
        judged += summary.judged;
    }
    assert!(judged > 5 * plans.len(), "{judged} states of {} plans", plans.len());
}

fn quick() -> Options {
    Depth::quick().options
}

/// Returns one plan in `every`.
fn some(volume: &Volume<'_>, every: usize) -> Vec<Plan> {
    volume.named.iter().step_by(every).cloned().collect()
}

#[test]
fn the_log_of_ext4_contains_every_synced_change_after_every_cut() {
    if let Some(volume) = volumes::ext4() {
        logs_of(&volume, volumes::open_ext4, &some(&volume, 4), &quick());
    }
}

#[test]
fn the_log_of_exfat_contains_every_synced_change_after_every_cut() {
    if let Some(volume) = volumes::exfat() {
        logs_of(&volume, volumes::open_exfat, &some(&volume, 4), &quick());
    }
}

#[test]
fn recorded_ext4_keeps_its_promises_at_every_cut() {
    if let Some(volume) = volumes::ext4() {
        trials::cuts::some_operations(&volume, 5);
    }
}

#[test]
fn recorded_exfat_keeps_its_promises_at_every_cut() {
    if let Some(volume) = volumes::exfat() {
        trials::cuts::some_operations(&volume, 5);
    }
}

/// The explorer can fail: without barriers it finds lost changes.
#[test]
fn without_barriers_synced_data_is_lost() {
    if let Some(volume) = volumes::ext4() {
        trials::cuts::without_barriers(&volume);
    }
}

#[test]
#[ignore = "takes minutes: cargo xtask crash"]
fn campaign_over_recorded_volumes() {
    let volumes: Vec<_> = [volumes::ext4(), volumes::exfat()].into_iter().flatten().collect();
    campaign::from_environment(&volumes).expect_clean();
}

#[test]
#[ignore = "takes minutes"]
fn the_logs_of_all_operations_contain_every_synced_change_after_every_cut() {
    if let (Some(ext4), Some(exfat)) = (volumes::ext4(), volumes::exfat()) {
        logs_of(&ext4, volumes::open_ext4, &ext4.named, &Options::new(1));
        logs_of(&exfat, volumes::open_exfat, &exfat.named, &Options::new(1));
    }
}
