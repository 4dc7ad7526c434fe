//! The choice of the writes of a window that reached the disk.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::crash::Options;
use crate::crash::window::Window;
use crate::mutants::Random;

/// The fate of one write.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Part {
    Lost,
    Done,
    /// For each sector, whether it was written.
    Torn(Vec<bool>),
}

/// The fate of each write of a window.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Choice(pub Vec<Part>);

impl Choice {
    fn of(kept: impl Iterator<Item = bool>) -> Self {
        Self(kept.map(|kept| if kept { Part::Done } else { Part::Lost }).collect())
    }

    /// Describes the choice: `3 of 5 writes: 101 done, 104 torn, 107 done`.
    pub fn describe(&self, window: &Window) -> String {
        let parts = self.0.iter().zip(&window.writes);
        let kept: Vec<String> = parts
            .filter(|(part, _)| **part != Part::Lost)
            .map(|(part, write)| {
                let state = if *part == Part::Done { "done" } else { "torn" };
                format!("{} {state} at {}+{}", write.event, write.offset, write.bytes.len())
            })
            .collect();
        let shown = kept.iter().take(12).map(String::as_str).collect::<Vec<_>>().join(", ");
        format!("{} of {} writes: {shown}", kept.len(), self.0.len())
    }
}

/// The greatest number of prefixes of a window. Each prefix needs memory for all its writes, which may be tens of
/// thousands.
const PREFIXES: usize = 256;

/// Returns the choices for `window` without duplicates, in an order that depends only on the seed.
pub(super) fn choices(window: &Window, options: &Options) -> Vec<Choice> {
    let len = window.writes.len();
    // The seed includes the window, so that two windows of the same size get different choices.
    let mut random = Random::new(options.seed ^ (window.end as u64).wrapping_mul(0x2545_f491_4f6c_dd1d));
    let ends = (0..=len).step_by(len.div_ceil(PREFIXES).max(1)).chain([len]);
    let mut all: Vec<Choice> = ends.map(|end| Choice::of((0..len).map(|n| n < end))).collect();
    if len <= options.every_subset as usize {
        all.extend((0..1_u64 << len).map(|mask| Choice::of((0..len).map(|n| mask >> n & 1 == 1))));
    } else {
        let some = |random: &mut Random| random.below(len as u64) as usize;
        for _ in 0..options.samples {
            let one = some(&mut random);
            all.push(Choice::of((0..len).map(|n| n == one)));
            let one = some(&mut random);
            all.push(Choice::of((0..len).map(|n| n != one)));
            let share = 1 + random.below(15);
            all.push(Choice::of((0..len).map(|_| random.below(16) < share)));
        }
    }
    let tearable = window.writes.iter().any(|write| write.pieces(&options.whole).nth(1).is_some());
    for _ in 0..if tearable { options.torn } else { 0 } {
        all.push(torn(window, options, &mut random));
    }
    let mut seen = HashSet::new();
    all.retain(|choice| {
        // Hashes are stored instead of the choices to save memory.
        let mut hasher = DefaultHasher::new();
        choice.hash(&mut hasher);
        seen.insert(hasher.finish())
    });
    all
}

/// Returns a choice in which one write is torn. The writes before it are present, or a random set of writes is present.
fn torn(window: &Window, options: &Options, random: &mut Random) -> Choice {
    let victims: Vec<usize> = (0..window.writes.len())
        .filter(|&n| window.writes[n].pieces(&options.whole).nth(1).is_some())
        .collect();
    let victim = victims[random.below(victims.len() as u64) as usize];
    let in_order = random.below(2) == 0;
    let sectors = window.writes[victim].pieces(&options.whole).count();
    let cut = 1 + random.below(sectors as u64 - 1) as usize;
    let pattern: Vec<bool> = match random.below(3) {
        0 => (0..sectors).map(|n| n < cut).collect(),
        1 => (0..sectors).map(|n| n >= cut).collect(),
        _ => (0..sectors).map(|_| random.below(2) == 0).collect(),
    };
    let part = |n: usize, random: &mut Random| match n {
        _ if n == victim => Part::Torn(pattern.clone()),
        _ if if in_order { n < victim } else { random.below(2) == 0 } => Part::Done,
        _ => Part::Lost,
    };
    Choice((0..window.writes.len()).map(|n| part(n, random)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::window::windows;
    use crate::record::Event;

    fn window(writes: usize, len: usize) -> Window {
        let events: Vec<Event> = (0..writes)
            .map(|n| Event::Write { offset: 4096 * n as u64, bytes: vec![1; len].into() })
            .collect();
        windows(&events).remove(0)
    }

    #[test]
    fn a_small_window_is_cut_in_every_subset() {
        let options = Options { torn: 0, ..Options::new(1) };
        assert_eq!(choices(&window(4, 512), &options).len(), 16);
    }

    #[test]
    fn a_large_window_is_cut_at_every_prefix_and_sampled_beyond() {
        let options = Options::new(1);
        let found = choices(&window(100, 1024), &options);
        for end in 0..=100 {
            assert!(found.contains(&Choice::of((0..100).map(|n| n < end))));
        }
        assert!(found.len() > 101 + 24 && found.len() <= 101 + 3 * 24 + 12);
        assert!(found.iter().any(|choice| choice.0.iter().any(|part| matches!(part, Part::Torn(_)))));
        assert_eq!(found, choices(&window(100, 1024), &options), "the seed alone decides");
    }

    #[test]
    fn a_window_of_very_many_writes_is_cut_at_some_of_its_prefixes_and_at_its_end() {
        let options = Options { torn: 0, samples: 0, ..Options::new(1) };
        let found = choices(&window(5000, 512), &options);
        assert!((250..=PREFIXES + 2).contains(&found.len()), "{}", found.len());
        let done = |choice: &Choice| choice.0.iter().filter(|part| **part == Part::Done).count();
        assert_eq!((done(&found[0]), found.iter().map(done).max()), (0, Some(5000)));
    }
}
