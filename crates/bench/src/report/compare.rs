//! Significant differences between two runs.

use crate::results::Results;
use crate::statistics::{Ratio, unpaired_ratio};

/// The result of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Significantly faster.
    Faster,
    /// Significantly slower.
    Slower,
    /// No significant difference.
    Same,
    /// The base has figures, but the new run has none.
    Lost,
}

/// A phase of a cell in both runs.
#[derive(Clone, PartialEq, Debug)]
pub struct Changed {
    /// The target.
    pub target: String,
    /// The workload and the phase.
    pub name: String,
    /// The speed relative to the base run; above 1 is faster.
    pub speed: Option<Ratio>,
    /// The result of the comparison.
    pub verdict: Verdict,
}

/// Compares every phase for which `base` has figures. A difference smaller than the share `least`, such as `0.05` for 5
/// %, is ignored even if it is significant.
pub fn compare(base: &Results, new: &Results, least: f64) -> Vec<Changed> {
    let mut all = Vec::new();
    for cell in &base.cells {
        let now = new.cells.iter().find(|now| now.target == cell.target && now.workload == cell.workload);
        for (phase, measure) in cell.phases() {
            let values = |figures: Vec<(usize, f64)>| {
                figures.into_iter().map(|(_, figure)| figure).collect::<Vec<_>>()
            };
            let before = values(cell.figures(phase));
            let after = now.map(|now| values(now.figures(phase))).unwrap_or_default();
            let speed = match measure.more_is_better() {
                true => unpaired_ratio(&after, &before),
                false => unpaired_ratio(&before, &after),
            };
            let verdict = match speed {
                None => Verdict::Lost,
                Some(speed) if speed.low > 1.0 && speed.value >= 1.0 + least => Verdict::Faster,
                Some(speed) if speed.high < 1.0 && speed.value <= 1.0 - least => Verdict::Slower,
                Some(_) => Verdict::Same,
            };
            let name =
                if phase.is_empty() { cell.workload.clone() } else { format!("{}: {phase}", cell.workload) };
            all.push(Changed { target: cell.target.clone(), name, speed, verdict });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::results;

    fn verdict(before: &[f64], after: &[f64]) -> Verdict {
        let (before, after) = (results("", &[("a", before)]), results("", &[("a", after)]));
        compare(&before, &after, 0.05)[0].verdict
    }

    #[test]
    fn only_a_large_difference_beyond_the_noise_is_a_change() {
        assert_eq!(verdict(&[100.0, 101.0, 99.0], &[50.0, 51.0, 49.0]), Verdict::Slower);
        assert_eq!(verdict(&[100.0, 101.0, 99.0], &[150.0, 151.0, 149.0]), Verdict::Faster);
        assert_eq!(verdict(&[100.0, 101.0, 99.0], &[97.0, 97.5, 97.2]), Verdict::Same);
        assert_eq!(verdict(&[100.0, 30.0, 180.0], &[60.0, 150.0, 40.0]), Verdict::Same);
        assert_eq!(verdict(&[100.0], &[]), Verdict::Lost);
    }
}
