//! Plans on a volume and on tmpfs: every operation has the same result and leaves the same tree, and the device is
//! consistent.

use std::ops::Range;
use std::sync::Arc;

use obento_block::{BlockDevice, MemDevice};
use obento_driver::{CheckOptions, Crash, Driver, Finding, Severity};
use obento_env::NO_CLOCK;

use crate::crash::campaign::Volume;
use crate::crash::volume::Open;
use crate::model::{Run, StepClock};
use crate::plan::{Limits, Op, Plan, random, shrink};

/// Findings of an open volume: of FAT and exFAT, and of ext4.
const OPEN: [&str; 2] = ["in-use", "journal-dirty"];

/// Tests random plans of supported operations, one for each of `seeds`. After each operation the volume is synced, and
/// a copy of it is checked. Panics with the failure of the shortest failing plan.
#[track_caller]
pub fn random_plans(volume: &Volume<'_>, driver: &dyn Driver, seeds: Range<u64>) {
    let (mut steps, mut compared) = (0, 0);
    for seed in seeds {
        let plan = volume.without_lacking(random(seed, &Limits { sync: 12, ..volume.limits.clone() }));
        match done(volume.subject.open, &volume.base, driver, &plan) {
            Ok(alike) => compared += alike,
            Err(_) => {
                let fails = |plan: &Plan| done(volume.subject.open, &volume.base, driver, plan).err();
                let (least, reason) = shrink(&plan, &fails);
                panic!("{}, seed {seed}: {reason}\n{least}", volume.name);
            }
        }
        steps += plan.ops.len();
    }
    assert!(compared > steps / 2, "{}: {compared} of {steps} operations were compared", volume.name);
}

/// Runs a plan, and returns how many of its operations were compared with the model. Fails with a difference or an
/// inconsistency.
fn done(open: &Open<'_>, base: &[u8], driver: &dyn Driver, plan: &Plan) -> Result<usize, String> {
    let (device, clock) = (Arc::new(MemDevice::new(base.to_vec())), Arc::new(StepClock::default()));
    let fs = open(device.clone(), clock.clone()).map_err(|e| format!("it does not open: {e}"))?;
    let mut run = Run::new(fs, clock).map_err(|e| format!("it does not read: {e}"))?;
    let (mut compared, mut are_held) = (0, false);
    let leaks = run.vfs().limits().crash == Crash::Repairable;
    for (number, op) in plan.ops.iter().enumerate() {
        run.step(op, &mut |_| ())?;
        compared += usize::from(run.is_compared());
        run.vfs().sync().map_err(|e| format!("sync after operation {number}: {e}"))?;
        are_held = *op != Op::Release && (are_held || matches!(op, Op::Hold(_)));
        // Space of an inode in use without a name has no owner on disk, if the format has no list of such inodes.
        if leaks && are_held {
            continue;
        }
        consistent(driver, device.snapshot())
            .map_err(|reason| format!("operation {number}, {op:?}: inconsistent: {reason}"))?;
    }
    let (vfs, _) = run.finish();
    vfs.close().map_err(|e| format!("it does not close: {e}"))?;
    super::check(driver, &(device as Arc<dyn BlockDevice>)).map(|()| compared)
}

/// Returns the findings of the check of an open volume, without notes.
fn consistent(driver: &dyn Driver, bytes: Vec<u8>) -> Result<(), String> {
    let mut found = Vec::<Finding>::new();
    let check = driver.check().expect("it checks");
    let checked = check.check(
        Arc::new(MemDevice::read_only(bytes)),
        &CheckOptions::new(Arc::new(NO_CLOCK)),
        &mut found,
    );
    checked.map_err(|error| error.to_string())?;
    found.retain(|finding| finding.severity != Severity::Note && !OPEN.contains(&finding.code));
    let reported: Vec<String> = found.iter().take(5).map(ToString::to_string).collect();
    if reported.is_empty() { Ok(()) } else { Err(reported.join("; ")) }
}
