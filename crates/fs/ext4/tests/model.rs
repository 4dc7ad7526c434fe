//! Random plans compared with tmpfs, with a check of a copy of the volume after each operation; and compared with the
//! kernel's ext4.

mod common;
#[path = "common/consistency.rs"]
mod consistency;
#[path = "common/crash.rs"]
mod crash;

use std::fs;
use std::sync::Arc;

use common::volumes::{COMBINATIONS, SMALL, Shape, e2fsck_file, open};
use obento_block::MemDevice;
use obento_driver::{DataMode, Journalling};
use obento_env::SystemClock;
use obento_ext4::Ext4Driver;
use obento_testkit::oracle::LoopMount;
use obento_testkit::plan::{Actor, Limits, Op, Plan, act_on_host, random, shrink};
use obento_testkit::snapshot::{Snapshot, Times};
use obento_testkit::{Oracle, host_snapshot, require, trials};
use obento_vfs::Vfs;

#[test]
fn random_plans_do_as_in_memory_and_leave_a_consistent_volume_after_each_operation() {
    if !require(&["mke2fs", "e2fsck"].map(Oracle::Program)) {
        return;
    }
    let openers = crash::openers(&crash::MODES, Journalling::default());
    for volume in crash::volumes(SMALL, &openers) {
        trials::model::random_plans(&volume, &Ext4Driver, 0..3);
    }
}

const EINVAL: i32 = 22;

/// Returns whether the kernel executes an operation by the same rules: see [`act_on_host`].
fn is_comparable(op: &Op) -> bool {
    match op {
        Op::Flags(..) | Op::Hold(_) | Op::Release | Op::Fsync(_) => false,
        // An empty path is the root in our interface, and an error in the kernel's.
        Op::SetXattr(path, ..) | Op::RemoveXattr(path, _) => !path.is_empty(),
        _ => true,
    }
}

/// Executes `plan` with our driver and with the kernel, each on a volume of its own, and compares results and trees.
/// The error describes the difference.
fn side_by_side(shape: &Shape, plan: &Plan) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let image = shape.make(folder.path());
    let device = Arc::new(MemDevice::new(fs::read(&image).map_err(|e| e.to_string())?));
    let fs = open(device, Arc::new(SystemClock), DataMode::Ordered).map_err(|e| e.to_string())?;
    let mut actor = Actor::new(Vfs::new(fs));
    let mount = LoopMount::new(&image, "").map_err(|e| format!("{e:#}"))?;
    for (number, op) in plan.ops.iter().enumerate() {
        let ours = actor.act(number, op).map_err(|error| error.errno().0);
        let theirs = act_on_host(mount.path(), number, op);
        // Operations that its system calls do not support were excluded before.
        let theirs = theirs.map_err(|e| e.raw_os_error().unwrap_or(EINVAL));
        if ours != theirs {
            return Err(format!("operation {number}, {op:?}: ours returns {ours:?}, the kernel {theirs:?}"));
        }
        let ours = Snapshot::read(actor.vfs(), None).map_err(|e| format!("our tree: {e}"))?;
        let theirs = host_snapshot::read(mount.path()).map_err(|e| format!("the kernel's tree: {e:#}"))?;
        let differs =
            theirs.difference(&ours, Times::Ignored, None).or_else(|| theirs.content_difference(&ours));
        if let Some(differs) = differs {
            return Err(format!("operation {number}, {op:?}: {differs}"));
        }
    }
    mount.unmount().map_err(|e| format!("{e:#}"))?;
    actor.vfs().close().map_err(|e| e.to_string())?;
    e2fsck_file(&image)
}

#[test]
fn the_kernel_answers_the_same_plan_alike_and_leaves_the_same_trees() {
    if !require(&[Oracle::LoopMount, Oracle::Program("mke2fs"), Oracle::Program("e2fsck")]) {
        return;
    }
    for (shape, seed) in COMBINATIONS[..2].iter().flat_map(|shape| (0..4).map(move |seed| (shape, seed))) {
        let mut plan = random(seed, &Limits { sync: 0, ..shape.limits() });
        plan.ops.retain(is_comparable);
        if side_by_side(shape, &plan).is_err() {
            let (least, reason) = shrink(&plan, &|plan| side_by_side(shape, plan).err());
            panic!("{}, seed {seed}: {reason}\n{least}", shape.name);
        }
    }
}
