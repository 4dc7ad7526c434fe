//! Reads the bytes of long files directly from the disk, without the guest, and verifies them with the volume's checksums.
//!
//! The guest uses one processor and computes checksums by tables, which takes most of its time; the host has an instruction
//! for them. Bytes without a checksum, or with another one, are read by the guest, which reads second copies and reports damage.
//!
//! Only for a volume that is open for reading.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Attr, Error, Ino, Result, crc::crc32c};
use obento_block::BlockDevice;
use obento_linux_wire::{Answer, PROVED, Request, Run};

use crate::volume::{State, Volume, nonsense};

/// The smallest file, and the smallest request, for which this is used. The answer then serves many later requests.
const LONG: u64 = 1 << 20;
pub(crate) const LEAST: usize = 64 << 10;
/// The length of the part of a file that the first answer describes; each part begins at a multiple of this. In sequential
/// reads, each following answer describes twice as much, up to the second value.
const WINDOW: u64 = 4 << 20;
const WINDOW_MAX: u64 = 256 << 20;
/// Number of answers that are stored. Their checksums have 256 KiB at most.
const KEPT: usize = 8;
/// The bytes that are read and verified together stay in the processor's cache.
const STEP: usize = 128 << 10;

/// The latest answers of the guest about long files.
#[derive(Default)]
pub struct Proofs {
    /// The latest answer is last.
    kept: VecDeque<Arc<Window>>,
    /// Whether no file of this volume can be verified.
    none: bool,
}

/// An answer about a part of one file.
#[derive(Debug)]
struct Window {
    ino: Ino,
    range: Range<u64>,
    runs: Vec<KnownRun>,
    sums: Vec<u32>,
}

/// A run, and the number of checksums before those of the run.
#[derive(Debug)]
struct KnownRun {
    start: u64,
    run: Run,
    before: usize,
}

/// A part of a file.
#[derive(PartialEq, Eq, Debug)]
enum ProvedPart<'p> {
    Hole,
    /// Data, its location on the disk, and its checksums.
    Proved(u64, &'p [u32]),
    /// Data without a known location.
    Unknown,
}

/// The result of reading without the guest.
#[derive(PartialEq, Eq, Debug)]
pub enum BypassRead {
    /// This many bytes were read.
    Read(usize),
    /// The guest must read this many bytes or fewer.
    Asks(usize),
}

impl Proofs {
    fn of(&self, ino: Ino, offset: u64) -> Option<&Arc<Window>> {
        self.kept.iter().rev().find(|window| window.ino == ino && window.range.contains(&offset))
    }

    /// Returns the part of a file of `size` bytes that a request about `offset` should cover.
    fn wanted(&self, ino: Ino, size: u64, offset: u64) -> Range<u64> {
        let is_before = |window: &&Arc<Window>| window.ino == ino && window.range.end == offset;
        let (start, len) = match self.kept.iter().rev().find(is_before) {
            Some(last) => (offset, (last.range.end - last.range.start).saturating_mul(2)),
            None => (offset / WINDOW * WINDOW, WINDOW),
        };
        start..start.saturating_add(len.clamp(WINDOW, WINDOW_MAX)).min(size)
    }

    fn keep(&mut self, window: &Arc<Window>) {
        while self.kept.len() >= KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(Arc::clone(window));
    }
}

impl Window {
    /// Stores the answer about `ino` from `start` on. Fails if the answer is invalid.
    fn new(ino: Ino, start: u64, runs: Vec<Run>, sums: Vec<u32>) -> Result<Self> {
        let (mut known, mut at, mut before) = (Vec::with_capacity(runs.len()), start, 0_u64);
        for run in runs {
            let len = run.end.checked_sub(at).filter(|len| *len > 0).ok_or_else(nonsense)?;
            let own = if run.is_data && run.place.is_some() { len.div_ceil(PROVED) } else { 0 };
            let start = std::mem::replace(&mut at, run.end);
            known.push(KnownRun { start, run, before: to_usize(before) });
            before = before.checked_add(own).filter(|all| *all <= to_u64(sums.len())).ok_or_else(nonsense)?;
        }
        if at == start || before < to_u64(sums.len()) {
            return Err(nonsense());
        }
        Ok(Self { ino, range: start..at, runs: known, sums })
    }

    /// Returns the part at `offset` and its end.
    fn at(&self, offset: u64) -> Option<(u64, ProvedPart<'_>)> {
        let at = self.runs.partition_point(|known| known.run.end <= offset);
        let KnownRun { start, run, before } = self.runs.get(at)?;
        let skipped = offset.checked_sub(*start)?;
        let own = before.checked_add(to_usize(skipped / PROVED)).and_then(|at| self.sums.get(at..));
        let place = run.place.and_then(|place| place.checked_add(skipped));
        let is_sector = skipped.is_multiple_of(PROVED);
        let part = match (run.is_data, place.zip(own).filter(|_| is_sector)) {
            (false, _) => ProvedPart::Hole,
            (true, Some((place, sums))) => ProvedPart::Proved(place, sums),
            (true, None) => ProvedPart::Unknown,
        };
        Some((run.end, part))
    }
}

impl Volume {
    /// Reads before the end of a long regular file without the guest, if `asked`, the length of the whole request, is long too.
    pub(crate) fn read_past(
        &self,
        attr: &Attr,
        asked: usize,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<BypassRead> {
        let is_long = attr.size >= LONG && asked >= LEAST && offset.is_multiple_of(PROVED);
        let all = buf.len();
        if !is_long || !self.has_sums() || self.is_writable() {
            return Ok(BypassRead::Asks(all));
        }
        // The volume is not locked while its disk is read.
        let Some(window) = self.window(attr, offset)? else { return Ok(BypassRead::Asks(all)) };
        let Some((end, part)) = window.at(offset) else { return Ok(BypassRead::Asks(all)) };
        let len = all.min(to_usize(end.min(attr.size).saturating_sub(offset)));
        let Some(buf) = buf.get_mut(..len) else { return Ok(BypassRead::Asks(all)) };
        Ok(match part {
            ProvedPart::Hole => {
                buf.fill(0);
                BypassRead::Read(len)
            }
            ProvedPart::Proved(place, sums) => match read(&self.device, place, sums, buf) {
                0 => BypassRead::Asks(all.min(LEAST)),
                done => BypassRead::Read(done),
            },
            ProvedPart::Unknown => BypassRead::Asks(len.max(LEAST).min(all)),
        })
    }

    /// Returns the answer that covers `offset`. `None`: no file of the volume can be verified.
    fn window(&self, attr: &Attr, offset: u64) -> Result<Option<Arc<Window>>> {
        let mut state = self.state();
        if state.proofs.none {
            return Ok(None);
        }
        if let Some(window) = state.proofs.of(attr.ino, offset) {
            return Ok(Some(Arc::clone(window)));
        }
        let Some(window) = self.ask_window(&mut state, attr, offset)? else {
            state.proofs.none = true;
            return Ok(None);
        };
        let window = Arc::new(window);
        state.proofs.keep(&window);
        Ok(Some(window))
    }

    fn ask_window(&self, state: &mut State, attr: &Attr, offset: u64) -> Result<Option<Window>> {
        let Range { start, end } = state.proofs.wanted(attr.ino, attr.size, offset);
        let unknown = || {
            let all = Run { end, is_data: true, place: None };
            Window::new(attr.ino, offset, vec![all], Vec::new()).map(Some)
        };
        match self.ask(state, &[attr.ino], Request::Prove { ino: attr.ino.0, offset: start, end }) {
            Ok(Answer::Proved { runs, sums }) => {
                let window = Window::new(attr.ino, start, runs, sums)?;
                // A shorter answer would be as short at each further request.
                if window.range.contains(&offset) { Ok(Some(window)) } else { unknown() }
            }
            Ok(_) => Err(nonsense()),
            // The volume uses other checksums, or several disks.
            Err(Error::NotSupported) => Ok(None),
            // The guest reports the cause when it reads the bytes.
            Err(_) => unknown(),
        }
    }
}

/// Reads the bytes at `place` of `device` into `buf`. Returns the number of bytes that `sums` verify, up to the first that
/// fail or cannot be read.
fn read(device: &Arc<dyn BlockDevice>, place: u64, sums: &[u32], buf: &mut [u8]) -> usize {
    let (sector, mut done) = (to_usize(PROVED), 0);
    for (step, sums) in buf.chunks_mut(STEP).zip(sums.chunks(STEP / sector)) {
        let at = place.saturating_add(to_u64(done));
        let whole = step.len() / sector * sector;
        let (sectors, rest) = step.split_at_mut(whole);
        if device.read_at(at, sectors).is_err() {
            return done;
        }
        for (bytes, sum) in sectors.chunks(sector).zip(sums) {
            if !proves(*sum, bytes) {
                return done;
            }
            done += bytes.len();
        }
        if !rest.is_empty() {
            return done
                + read_part(device, at.saturating_add(to_u64(whole)), sums.get(whole / sector), rest);
        }
    }
    done
}

/// Reads and verifies the bytes of one checksum.
fn read_part(device: &Arc<dyn BlockDevice>, place: u64, sum: Option<&u32>, buf: &mut [u8]) -> usize {
    let mut bytes = [0; PROVED as usize];
    let is_read = device.read_at(place, &mut bytes).is_ok();
    match (sum.filter(|sum| is_read && proves(**sum, &bytes)), bytes.get(..buf.len())) {
        (Some(_), Some(bytes)) => {
            buf.copy_from_slice(bytes);
            buf.len()
        }
        _ => 0,
    }
}

fn proves(sum: u32, bytes: &[u8]) -> bool {
    !crc32c(!0, bytes) == sum
}

#[cfg(test)]
mod tests {
    use obento_block::MemDevice;

    use super::*;

    const FILE: Ino = Ino(7);

    fn run(end: u64, is_data: bool, place: Option<u64>) -> Run {
        Run { end, is_data, place }
    }

    #[test]
    fn each_part_of_a_file_has_its_own_checksums() {
        let runs = vec![
            run(8192, true, Some(1 << 20)),
            run(12_288, false, None),
            run(16_384, true, None),
            run(20_000, true, Some(0)),
        ];
        let window = Window::new(FILE, 0, runs, vec![1, 2, 3]).unwrap();
        let expected = [
            Some((8192, ProvedPart::Proved(1 << 20, &[1, 2, 3][..]))),
            Some((8192, ProvedPart::Proved((1 << 20) + 4096, &[2, 3][..]))),
            Some((12_288, ProvedPart::Hole)),
            Some((16_384, ProvedPart::Unknown)),
            Some((20_000, ProvedPart::Proved(0, &[3][..]))),
            None,
        ];
        assert_eq!([0, 1, 2, 3, 4, 5].map(|sector| window.at(sector * 4096)), expected);
    }

    #[test]
    fn a_wrong_number_of_checksums_and_invalid_runs_are_rejected() {
        let of = |runs: Vec<Run>, sums: usize| Window::new(FILE, 4096, runs, vec![0; sums]).map(drop);
        assert_eq!(of(vec![run(12_288, true, Some(0))], 2), Ok(()));
        assert_eq!(of(vec![run(12_288, true, Some(0))], 1), Err(nonsense()));
        assert_eq!(of(vec![run(12_288, true, Some(0))], 3), Err(nonsense()));
        assert_eq!(of(vec![run(u64::MAX, true, Some(0))], 3), Err(nonsense()));
        assert_eq!(of(vec![run(8192, false, None), run(8192, false, None)], 0), Err(nonsense()));
        assert_eq!(of(vec![run(1, false, None)], 0), Err(nonsense()));
        assert_eq!(of(Vec::new(), 0), Err(nonsense()));
    }

    #[test]
    fn sequential_reads_request_larger_parts_and_random_reads_small_parts() {
        let (mut proofs, size) = (Proofs::default(), 1 << 40);
        let mut keep = |range: Range<u64>, ino| {
            let runs = vec![run(range.end, false, None)];
            proofs.keep(&Arc::new(Window::new(ino, range.start, runs, Vec::new()).unwrap()));
        };
        keep(0..WINDOW, FILE);
        keep(0..WINDOW, Ino(8));
        keep(8 * WINDOW..8 * WINDOW + WINDOW_MAX, FILE);
        assert_eq!(proofs.wanted(FILE, size, WINDOW), WINDOW..3 * WINDOW);
        assert_eq!(proofs.wanted(FILE, WINDOW + 5, WINDOW), WINDOW..WINDOW + 5);
        assert_eq!(proofs.wanted(FILE, size, 4 * WINDOW - 4096), 3 * WINDOW..4 * WINDOW, "back");
        let next = 8 * WINDOW + WINDOW_MAX;
        assert_eq!(proofs.wanted(FILE, size, next), next..next + WINDOW_MAX);
        assert_eq!(proofs.of(FILE, WINDOW - 1).map(|window| window.ino), Some(FILE));
        assert!(proofs.of(FILE, WINDOW).is_none());
        (0..2 * KEPT as u64).for_each(|number| {
            let runs = vec![run(1, false, None)];
            proofs.keep(&Arc::new(Window::new(Ino(number), 0, runs, Vec::new()).unwrap()));
        });
        assert_eq!(proofs.kept.len(), KEPT);
    }

    #[test]
    fn bytes_are_returned_up_to_the_first_unverified_or_missing_byte() {
        let disk: Vec<u8> = (0..300_000_u32).map(|at| (at / 7).to_le_bytes()[0]).collect();
        let sums: Vec<u32> = disk.chunks(4096).map(|bytes| !crc32c(!0, bytes)).collect();
        let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::read_only(disk.clone()));
        let read = |sums: &[u32], len: usize| {
            let mut buf = vec![0; len];
            let done = super::read(&device, 0, sums, &mut buf);
            assert!(buf[..done] == disk[..done], "{done}");
            done
        };
        assert_eq!(read(&sums, 290_000), 290_000);
        assert_eq!(read(&sums, 777), 777);
        for bad in [0, 5, 31, 32, 70] {
            let mut sums = sums.clone();
            sums[bad] ^= 1;
            assert_eq!(read(&sums, 290_000), bad * 4096, "reading ends at checksum {bad}");
        }
        // Checksums of later bytes, bytes without a checksum, and bytes past the end of the disk do not matter.
        assert_eq!(read(&sums[..10], 290_000), 40_960);
        assert_eq!(read(&[sums.clone(), vec![0; 9]].concat(), 310_000), 262_144);
    }
}
