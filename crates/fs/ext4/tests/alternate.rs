//! The kernel and obento change one image in turn. After each turn the other one finds the same tree, by hashes of
//! every byte, with every attribute and time, and e2fsck finds nothing.
//!
//! `OBENTO_ROUNDS` sets the number of rounds on each combination of features. `OBENTO_ONLY` selects one combination.
//! `OBENTO_KEEP` names the folder for an image on which the drivers differ. `cargo xtask alternate` is the long run.

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::volumes::{COMBINATIONS, Shape, e2fsck_file, open};
use obento_block::BlockDevice;
use obento_driver::DataMode;
use obento_env::SystemClock;
use obento_host::FileDevice;
use obento_testkit::oracle::LoopMount;
use obento_testkit::plan::{Actor, Limits, Op, act_on_host, random_over};
use obento_testkit::snapshot::{Snapshot, Times};
use obento_testkit::{Oracle, host_snapshot, require};
use obento_vfs::Vfs;

/// An image, and the tree after the last turn.
struct Table<'a> {
    shape: &'a Shape,
    image: &'a Path,
    tree: Snapshot,
    done: usize,
}

impl Table<'_> {
    fn compare(&self, found: &Snapshot, whose: &str) -> Result<(), String> {
        let difference = self.tree.difference(found, Times::Compared, None);
        difference
            .or_else(|| self.tree.content_difference(found))
            .map_or(Ok(()), |reason| Err(format!("{whose} finds a different tree: {reason}")))
    }

    /// Returns the operations of a turn: a few, planned for the current tree.
    fn ops(&self, seed: u64) -> Vec<Op> {
        let limits = Limits { ops: 12, sync: 12, names: 20, file: 60 << 10, ..self.shape.limits() };
        random_over(seed, &limits, &self.tree).ops
    }

    fn kernel(&mut self, seed: u64) -> Result<(), String> {
        let mount = LoopMount::new(self.image, "").map_err(|e| format!("{e:#}"))?;
        let read = || host_snapshot::read(mount.path()).map_err(|e| format!("the kernel's tree: {e:#}"));
        self.compare(&read()?, "the kernel")?;
        for (number, op) in self.ops(seed).iter().enumerate() {
            self.done += usize::from(act_on_host(mount.path(), number, op).is_ok());
        }
        self.tree = read()?;
        mount.unmount().map_err(|e| format!("{e:#}"))
    }

    fn obento(&mut self, seed: u64) -> Result<(), String> {
        let device: Arc<dyn BlockDevice> =
            Arc::new(FileDevice::open_writable(self.image).map_err(|e| format!("{e:?}"))?);
        let mode = [DataMode::Ordered, DataMode::Journal, DataMode::Writeback][seed as usize % 3];
        let fs =
            open(device, Arc::new(SystemClock), mode).map_err(|e| format!("obento does not open it: {e}"))?;
        let vfs = Vfs::new(fs);
        let read = || Snapshot::read(&vfs, None).map_err(|e| format!("obento does not read it: {e}"));
        self.compare(&read()?, "obento")?;
        let mut actor = Actor::new(vfs.clone());
        for (number, op) in self.ops(seed).iter().enumerate() {
            match actor.act(number, op) {
                Ok(()) => self.done += 1,
                Err(obento_base::Error::Refused(_) | obento_base::Error::Unsupported(_)) => {}
                Err(error) => return Err(format!("{op:?}: {error}")),
            }
        }
        drop(actor);
        self.tree = read()?;
        vfs.close().map_err(|e| format!("obento does not close it: {e}"))
    }
}

fn alternate(shape: &Shape, rounds: u64, seed: u64) -> Result<usize, String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let image = shape.make(folder.path());
    let mount = LoopMount::new(&image, "ro").map_err(|e| format!("{e:#}"))?;
    let tree = host_snapshot::read(mount.path()).map_err(|e| format!("{e:#}"))?;
    mount.unmount().map_err(|e| format!("{e:#}"))?;
    let mut table = Table { shape, image: &image, tree, done: 0 };
    for round in 0..rounds {
        let seed = seed * 1_000_000 + round;
        let turn = if round % 2 == 0 { table.kernel(seed) } else { table.obento(seed) };
        turn.and_then(|()| e2fsck_file(&image)).map_err(|reason| {
            if let Some(folder) = std::env::var_os("OBENTO_KEEP") {
                let _ = fs::copy(&image, Path::new(&folder).join(format!("{}.img", shape.name)));
            }
            format!("{}, round {round}: {reason}", shape.name)
        })?;
    }
    Ok(table.done)
}

fn number(name: &str, other: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(other)
}

fn run(shapes: &[Shape], rounds: u64) {
    if !require(&[Oracle::LoopMount, Oracle::Program("mke2fs"), Oracle::Program("e2fsck")]) {
        return;
    }
    let (seed, only) = (number("OBENTO_SEED", 1), std::env::var("OBENTO_ONLY").ok());
    let next = AtomicUsize::new(0);
    let work = || {
        let mut failures = Vec::new();
        while let Some(shape) = shapes.get(next.fetch_add(1, Ordering::Relaxed)) {
            if only.as_deref().is_some_and(|only| only != shape.name) {
                continue;
            }
            match alternate(shape, rounds, seed) {
                Ok(done) => eprintln!("{}: {rounds} rounds, {done} operations", shape.name),
                Err(reason) => failures.push(reason),
            }
        }
        failures
    };
    let failures: Vec<String> = std::thread::scope(|scope| {
        let threads = [scope.spawn(work), scope.spawn(work)];
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(failures.is_empty(), "seed {seed}:\n{}", failures.join("\n\n"));
}

#[test]
fn the_kernel_and_obento_change_one_image_in_turn() {
    run(&COMBINATIONS[..6], number("OBENTO_ROUNDS", 8));
}

#[test]
#[ignore = "takes minutes: cargo xtask alternate"]
fn the_kernel_and_obento_change_images_of_every_combination_in_turn() {
    run(COMBINATIONS, number("OBENTO_ROUNDS", 1000));
}
