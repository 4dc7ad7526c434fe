//! Long files whose bytes are read where they are on the disk, past the guest, and proved by the checksums that the volume has of them.
//!
//! The guest works on one processor and makes checksums by tables, which takes it longer than all else; the host has an instruction for
//! them. What has no sum, or another than it should, is left to the guest, which knows of second copies and tells of damage.
//!
//! Only of a volume that nobody changes.

use std::sync::Arc;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Attr, Ino, Result, crc::crc32c};
use obento_block::BlockDevice;
use obento_linux_wire::{Answer, PROVED, Request, Run};

use crate::volume::{State, Volume, nonsense};

/// Types that have such sums.
const WITH_SUMS: &[&str] = &["btrfs"];

/// Files of this size at least are read so, and by whoever asks for so much at once: the answer is of use for long then.
const LONG: u64 = 1 << 20;
const LEAST: usize = 64 << 10;
/// Of how much of a file one answer is.
const WINDOW: u64 = 256 << 20;
/// What is read and proved at once stays in the processor's cache between the two.
const STEP: usize = 128 << 10;

/// What the guest said of a part of one file.
#[derive(Default)]
pub struct Proofs {
    ino: Option<Ino>,
    /// Where the first run begins.
    start: u64,
    runs: Vec<Run>,
    sums: Vec<u32>,
}

/// A part of a file.
#[derive(PartialEq, Eq, Debug)]
enum Part<'p> {
    Hole,
    /// Data, where it is on the disk, and its sums.
    Proved(u64, &'p [u32]),
    /// Data of which nothing is known.
    Unknown,
}

impl Proofs {
    /// What was said of `ino` from `start` on. Errors: nonsense.
    fn of(ino: Ino, start: u64, runs: Vec<Run>, sums: Vec<u32>) -> Result<Self> {
        let (mut at, mut left) = (start, to_u64(sums.len()));
        for run in &runs {
            let len = run.end.checked_sub(at).filter(|len| *len > 0).ok_or_else(nonsense)?;
            let proved = if run.is_data && run.place.is_some() { len.div_ceil(PROVED) } else { 0 };
            (at, left) = (run.end, left.checked_sub(proved).ok_or_else(nonsense)?);
        }
        if left > 0 || runs.is_empty() {
            return Err(nonsense());
        }
        Ok(Self { ino: Some(ino), start, runs, sums })
    }

    /// What is at `offset`, a multiple of [`PROVED`], and where that ends. `None`: nothing was said of it.
    fn at(&self, ino: Ino, offset: u64) -> Option<(u64, Part<'_>)> {
        if self.ino != Some(ino) || offset < self.start {
            return None;
        }
        let (mut start, mut sums) = (self.start, &self.sums[..]);
        for run in &self.runs {
            let (begin, proved) = (start, run.place.filter(|_| run.is_data));
            let own = proved.and_then(|_| sums.split_off(..to_usize((run.end - begin).div_ceil(PROVED))));
            start = run.end;
            let Some(skipped) = offset.checked_sub(begin).filter(|_| offset < run.end) else { continue };
            let own = own.and_then(|own| own.get(to_usize(skipped / PROVED)..));
            let place = proved.and_then(|place| place.checked_add(skipped));
            let is_whole = skipped.is_multiple_of(PROVED);
            let part = match (run.is_data, place.zip(own).filter(|_| is_whole)) {
                (false, _) => Part::Hole,
                (true, Some((place, sums))) => Part::Proved(place, sums),
                (true, None) => Part::Unknown,
            };
            return Some((run.end, part));
        }
        None
    }
}

impl Volume {
    /// Reads a long regular file from `offset` on, past the guest. Answers how many bytes, no more than there are; 0 where the guest is to be asked.
    pub(crate) fn read_proved(
        &self,
        state: &mut State,
        attr: &Attr,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        let has_sums = self.kind.names.iter().any(|name| WITH_SUMS.contains(name));
        let is_long = attr.size >= LONG && buf.len() >= LEAST && offset.is_multiple_of(PROVED);
        if !has_sums || !is_long || self.is_writable() {
            return Ok(0);
        }
        if state.proofs.at(attr.ino, offset).is_none() {
            state.proofs = self.proofs(state, attr, offset)?;
        }
        let Some((end, part)) = state.proofs.at(attr.ino, offset) else { return Ok(0) };
        let len = buf.len().min(to_usize(end.min(attr.size).saturating_sub(offset)));
        let Some(buf) = buf.get_mut(..len) else { return Ok(0) };
        match part {
            Part::Hole => buf.fill(0),
            Part::Proved(place, sums) => return Ok(read(&self.device, place, sums, buf)),
            Part::Unknown => return Ok(0),
        }
        Ok(len)
    }

    fn proofs(&self, state: &mut State, attr: &Attr, offset: u64) -> Result<Proofs> {
        let end = attr.size.min(offset.saturating_add(WINDOW));
        match self.ask(state, &[attr.ino], Request::Prove { ino: attr.ino.0, offset, end }) {
            Ok(Answer::Proved { runs, sums }) => Proofs::of(attr.ino, offset, runs, sums),
            Ok(_) => Err(nonsense()),
            // A volume with other sums, or on several disks; or one that is damaged, of which the guest tells more when it is read.
            Err(_) => {
                let all = Run { end: attr.size, is_data: true, place: None };
                Proofs::of(attr.ino, offset, vec![all], Vec::new())
            }
        }
    }
}

/// Reads what is at `place` of `device` into `buf`. Answers how many bytes of it `sums` prove, up to the first that they do not, or that
/// cannot be read.
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

/// Reads the first bytes of what `sum` proves.
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
    fn each_part_of_a_file_has_the_sums_that_are_its_own() {
        let runs = vec![
            run(8192, true, Some(1 << 20)),
            run(12_288, false, None),
            run(16_384, true, None),
            run(20_000, true, Some(0)),
        ];
        let proofs = Proofs::of(FILE, 0, runs, vec![1, 2, 3]).unwrap();
        let expected = [
            Some((8192, Part::Proved(1 << 20, &[1, 2][..]))),
            Some((8192, Part::Proved((1 << 20) + 4096, &[2][..]))),
            Some((12_288, Part::Hole)),
            Some((16_384, Part::Unknown)),
            Some((20_000, Part::Proved(0, &[3][..]))),
            None,
        ];
        assert_eq!([0, 1, 2, 3, 4, 5].map(|sector| proofs.at(FILE, sector * 4096)), expected);
        assert_eq!(proofs.at(Ino(8), 0), None);
    }

    #[test]
    fn sums_that_are_too_few_or_too_many_and_runs_that_go_back_or_nowhere_are_nonsense() {
        let of = |runs: Vec<Run>, sums: usize| Proofs::of(FILE, 4096, runs, vec![0; sums]).map(drop);
        assert_eq!(of(vec![run(12_288, true, Some(0))], 2), Ok(()));
        assert_eq!(of(vec![run(12_288, true, Some(0))], 1), Err(nonsense()));
        assert_eq!(of(vec![run(12_288, true, Some(0))], 3), Err(nonsense()));
        assert_eq!(of(vec![run(u64::MAX, true, Some(0))], 3), Err(nonsense()));
        assert_eq!(of(vec![run(8192, false, None), run(8192, false, None)], 0), Err(nonsense()));
        assert_eq!(of(vec![run(1, false, None)], 0), Err(nonsense()));
        assert_eq!(of(Vec::new(), 0), Err(nonsense()));
    }

    #[test]
    fn bytes_are_answered_up_to_the_first_that_are_not_proved_or_not_there() {
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
            assert_eq!(read(&sums, 290_000), bad * 4096, "the sum {bad} is another");
        }
        // Neither is what no sum is there for, nor what is behind the end of the disk.
        assert_eq!(read(&sums[..10], 290_000), 40_960);
        assert_eq!(read(&[sums.clone(), vec![0; 9]].concat(), 310_000), 262_144);
    }
}
