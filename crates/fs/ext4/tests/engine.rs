//! The ext4 of Linux, which the kernel engine runs without root, as an oracle. It executes the same plans as our
//! driver, and its writes are cut and judged like ours.

mod common;
#[path = "common/consistency.rs"]
mod consistency;

use std::sync::Arc;

use common::volumes::{self, SMALL, Shape};
use obento_base::Result;
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{Access, DataMode, Driver, FileSystem, OpenOptions};
use obento_env::Clock;
use obento_ext4::Ext4Driver;
use obento_linux::{KernelOpened, KernelUse};
use obento_testkit::crash::volume::{Recording, Subject};
use obento_testkit::crash::{Options, SeenStates};
use obento_testkit::model::{Run, StepClock};
use obento_testkit::plan::{Limits, Op, Plan, Space, catalogue, random};
use obento_testkit::{Oracle, require};

/// Data modes and their options of mount(8). Without `nodelalloc` Linux guarantees less about data than our driver:
/// sizes may be durable before the data.
const MODES: [(DataMode, &str); 2] =
    [(DataMode::Ordered, "data=ordered,nodelalloc"), (DataMode::Journal, "data=journal")];

/// Returns whether Linux (6.1) may lose data that our driver keeps. With ordered data it overwrites blocks in place,
/// although the journal does not yet contain their move within the file. With journalled data, bytes from before a
/// zeroing reappear after an fsync (Linux' own mount and e2fsck show them, too).
fn linux_loses(mode: DataMode, plan: &Plan) -> bool {
    plan.ops.iter().any(|op| match op {
        Op::Space(_, Space::Collapse | Space::Insert, _) => mode == DataMode::Ordered,
        Op::Space(_, Space::Zero(_), _) => mode == DataMode::Journal,
        _ => false,
    })
}

fn oracles() -> bool {
    require(&["mke2fs", "e2fsck", "linux.uml"].map(Oracle::Program))
}

/// Opens a volume with Linux.
fn linux(
    options: &'static str,
    device: Arc<dyn BlockDevice>,
    clock: Arc<dyn Clock>,
) -> Result<Arc<dyn FileSystem>> {
    let driver = KernelOpened::of(Arc::new(Ext4Driver), KernelUse { options, ..KernelUse::default() });
    driver.open(device, &OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(clock) })
}

#[test]
fn linux_and_ours_answer_alike_and_leave_the_same_trees() {
    if !oracles() {
        return;
    }
    let shape = Shape { len: 16, ..SMALL[0] };
    let base = shape.bytes();
    for ((mode, options), seed) in MODES.into_iter().flat_map(|mode| (0..3).map(move |seed| (mode, seed))) {
        let clock = Arc::new(StepClock::default());
        let [ours, theirs] = [(); 2].map(|()| Arc::new(MemDevice::new(base.to_vec())));
        let other = linux(options, theirs.clone(), clock.clone()).unwrap();
        let fs = volumes::open(ours, clock.clone(), mode).unwrap();
        let mut run = Run::beside(fs, other.clone(), clock).unwrap();
        let plan = without_flags(random(seed, &Limits { grain: 0, ..Limits::SMALL }));
        run.all(&plan, &mut |_| ()).unwrap_or_else(|reason| panic!("{mode:?}, {plan}{reason}"));
        other.writable().unwrap().close().unwrap();
        volumes::e2fsck(&*theirs).unwrap();
    }
}

/// Returns the plan without flags that Linux does not report: `statx(2)` has no bits for SYNC and NO_ATIME.
fn without_flags(mut plan: Plan) -> Plan {
    plan.ops.retain(|op| !matches!(op, Op::Flags(..)));
    plan
}

/// Tests one mode. Returns the number of states, and the first failures.
fn cut(mode: DataMode, options: &'static str, plans: &[Plan]) -> (usize, Vec<String>) {
    let base = SMALL[0].bytes();
    let subject = Subject {
        open: &|device, clock| volumes::open(device, clock, mode),
        check: &consistency::check_closed,
        second: &volumes::e2fsck,
        second_every: 150,
        recovery_every: 0,
        data: mode,
    };
    let (seen, mut failures) = (SeenStates::default(), Vec::new());
    for plan in plans {
        let recorded = subject.record_of(&|device, clock| linux(options, device, clock), &base, plan);
        let recording: Recording = match recorded {
            Ok(recording) => recording,
            Err(reason) => {
                failures.push(reason);
                continue;
            }
        };
        let options = Options { whole: 1024..2048, samples: 8, ..Options::new(7) };
        let summary = subject.explore(&recording, &options, &seen);
        failures.extend(summary.failures.iter().map(|failure| format!("{}: {failure}", plan.name)));
    }
    (seen.count(), failures)
}

#[test]
fn files_that_linux_synced_before_a_cut_read_as_synced() {
    if !oracles() {
        return;
    }
    let plans: Vec<Plan> = catalogue::every_operation(true).into_iter().map(without_flags).collect();
    for (mode, options) in MODES {
        let plans: Vec<Plan> = plans.iter().filter(|plan| !linux_loses(mode, plan)).cloned().collect();
        let (states, failures) = cut(mode, options, &plans);
        eprintln!("{mode:?}: {states} states of {} plans", plans.len());
        let shown = failures.iter().take(4).cloned().collect::<Vec<_>>().join("\n\n");
        assert!(failures.is_empty(), "{} of {states} states:\n{shown}", failures.len());
        assert!(states > 1000, "{mode:?}: {states} states");
    }
}
