//! Collapse and insert of files with more extents than one transaction moves, when a request of the device fails.
//! Afterwards, each block of data is at its old or at its new place, as the contract says, and the volume is
//! consistent.

mod common;

use std::ops::Range;
use std::sync::Arc;

use common::volumes::{SMALL, Shape, e2fsck, open};
use obento_base::{FileKind, Result};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::DataMode;
use obento_testkit::fault::{Fault, FaultDevice, FaultKind, Lasting, Request};
use obento_testkit::model::StepClock;
use obento_testkit::plan::{Actor, Op, Space};
use obento_testkit::{Oracle, require};
use obento_vfs::Vfs;

const BLOCK: usize = 1024;
/// Extents of the file: two blocks of data and a hole each.
const EXTENTS: usize = 1500;
/// It starts inside an extent.
const MOVED: Range<usize> = 100..105;

/// The blocks of a file as the numbers that [`write`] stored in them; 0 for a block of zeros.
type Blocks = Vec<u32>;

fn oracles() -> bool {
    require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")])
}

fn vfs(device: Arc<dyn BlockDevice>) -> Option<Vfs> {
    Some(Vfs::new(open(device, Arc::new(StepClock::default()), DataMode::Ordered).ok()?))
}

fn bytes_of(range: &Range<usize>) -> Range<u64> {
    (range.start * BLOCK) as u64..(range.end * BLOCK) as u64
}

/// Fills block `at` with `number`.
fn write(vfs: &Vfs, at: usize, number: u32) -> Result<usize> {
    let block = number.to_le_bytes().repeat(BLOCK / 4);
    Actor::new(vfs.clone()).node("f")?.write_at((at * BLOCK) as u64, &block)
}

fn blocks(vfs: &Vfs) -> Blocks {
    let node = Actor::new(vfs.clone()).node("f").unwrap();
    let mut bytes = vec![0; node.attr().unwrap().size as usize];
    assert_eq!(node.read_at(0, &mut bytes), Ok(bytes.len()));
    let number = |block: &[u8]| {
        let number = u32::from_le_bytes(block[..4].try_into().unwrap());
        assert!(block.chunks(4).all(|word| word == number.to_le_bytes()), "a block of two numbers");
        number
    };
    bytes.chunks(BLOCK).map(number).collect()
}

/// A volume with a file of many extents, whose blocks have the numbers 1, 2, 0, 4, 5, 0, ... (0 is a hole).
fn base() -> Vec<u8> {
    let device = Arc::new(MemDevice::new(Shape { len: 12, ..SMALL[0] }.bytes().to_vec()));
    let vfs = vfs(device.clone()).unwrap();
    Actor::new(vfs.clone()).act(0, &Op::Create("f".into(), FileKind::Regular, 0o644)).unwrap();
    (0..3 * EXTENTS).filter(|at| at % 3 < 2).for_each(|at| {
        assert_eq!(write(&vfs, at, at as u32 + 1), Ok(BLOCK));
    });
    vfs.close().unwrap();
    drop(vfs);
    let mut base = vec![0; device.len() as usize];
    device.read_at(0, &mut base).unwrap();
    base
}

/// Returns the part of `old` that a collapse of [`MOVED`] has moved, in blocks; `None` if blocks are lost.
fn collapsed(old: &Blocks, new: &Blocks) -> Option<usize> {
    let (by, holes) = (MOVED.len(), vec![0; MOVED.len()]);
    if new.len() + by == old.len() {
        let whole = [&old[..MOVED.start], &old[MOVED.end..]].concat();
        return (*new == whole).then_some(old.len() - MOVED.end);
    }
    if new == old {
        return Some(0);
    }
    let is_at =
        |end: &usize| *new == [&old[..MOVED.start], &old[MOVED.end..*end], &holes, &old[*end..]].concat();
    (MOVED.end..=old.len()).find(is_at).map(|end| end - MOVED.end)
}

/// The same for an insert, which moves the end of the file first.
fn inserted(old: &Blocks, new: &Blocks) -> Option<usize> {
    let holes = vec![0; MOVED.len()];
    if new == old {
        return Some(0);
    }
    let is_at = |start: &usize| *new == [&old[..*start], &holes, &old[*start..]].concat();
    (MOVED.start..=old.len()).rev().find(is_at).map(|start| old.len() - start)
}

/// Makes each request of a kind fail in turn, once or from then on, while `space` moves blocks of the file.
fn fail_each(space: Space, moved: fn(&Blocks, &Blocks) -> Option<usize>) {
    if !oracles() {
        return;
    }
    let base = base();
    let op = Op::Space("f".into(), space, bytes_of(&MOVED));
    let old = blocks(&vfs(Arc::new(MemDevice::new(base.clone()))).unwrap());
    let (mut midway, mut continued) = ([0; 3], 0);
    for (request, lasting) in [
        (Request::Read, Lasting::Once),
        (Request::Write, Lasting::ForGood),
        (Request::Flush, Lasting::ForGood),
    ] {
        for nth in 0.. {
            let what = format!("{request:?} {nth}");
            let memory = Arc::new(MemDevice::new(base.clone()));
            let fault = Fault { request, nth, lasting, failure: FaultKind::Io };
            let broken = Arc::new(FaultDevice::new(Arc::clone(&memory), Some(fault)));
            let Some(live) = vfs(broken.clone()) else { continue };
            let mut actor = Actor::new(live.clone());
            let done = actor.act(0, &op);
            // Most failed reads do not end the changes of the volume: what is written now must not be lost either.
            let goes_on = done.is_err() && request == Request::Read && {
                let seen = blocks(&live);
                assert!(moved(&old, &seen).is_some(), "{what}: blocks are lost before the close");
                write(&live, seen.len() + 1, 9999).is_ok()
            };
            continued += usize::from(goes_on);
            drop(actor);
            let closed = live.close();
            drop(live);
            assert!(!goes_on || closed.is_ok(), "{what}: {closed:?}");
            let reopened = vfs(memory.clone()).unwrap();
            let mut new = blocks(&reopened);
            reopened.close().unwrap();
            drop(reopened);
            if goes_on {
                assert_eq!(new.split_off(new.len() - 2), [0, 9999], "{what}");
            }
            let part = moved(&old, &new).unwrap_or_else(|| panic!("{what}: blocks are lost"));
            let is_whole = new.len() != old.len() && part == moved_by_all(&old, space);
            assert!(is_whole || done.is_err() || closed.is_err(), "{what}: reported as done");
            midway[request as usize] += usize::from(part > 0 && !is_whole);
            assert_eq!(e2fsck(&*memory), Ok(()), "{what}");
            if broken.hits() == 0 {
                break;
            }
        }
    }
    println!("{space:?}: partial moves after failed reads, writes and flushes: {midway:?}");
    assert!(midway.iter().any(|&count| count > 0), "nothing failed midway");
    assert!(continued > 0, "no volume was changed after the failure");
}

fn moved_by_all(old: &Blocks, space: Space) -> usize {
    old.len() - if space == Space::Collapse { MOVED.end } else { MOVED.start }
}

#[test]
fn a_collapse_that_fails_midway_loses_no_block() {
    fail_each(Space::Collapse, collapsed);
}

#[test]
fn an_insert_that_fails_midway_loses_no_block() {
    fail_each(Space::Insert, inserted);
}
