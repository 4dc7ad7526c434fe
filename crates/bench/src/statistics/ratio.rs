//! Ratios of speeds, with confidence intervals.
//!
//! The interval is a percentile bootstrap (B. Efron, "Bootstrap methods", 1979): the samples are drawn again with
//! replacement, pairs as pairs, and the interval is the middle 95 % of the resulting ratios.

use serde::{Deserialize, Serialize};

use super::quantile;
use crate::random::Rng;

const DRAWS: usize = 2_000;
const SEED: u64 = 0x0b37_70b3;

/// A ratio of two figures, with its 95 % confidence interval.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct Ratio {
    /// The ratio.
    pub value: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

impl Ratio {
    /// Returns whether the interval excludes 1, so that the difference is significant.
    pub fn differs(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }
}

/// Returns the median ratio of pairs, each measured in one rotation. Returns `None` without pairs, or if a divisor is
/// 0.
pub fn paired_ratio(pairs: &[(f64, f64)]) -> Option<Ratio> {
    if pairs.is_empty() || pairs.iter().any(|(_, divisor)| *divisor == 0.0) {
        return None;
    }
    let ratios: Vec<f64> = pairs.iter().map(|(value, divisor)| value / divisor).collect();
    let mut rng = Rng::with_seed(SEED);
    let drawn = std::iter::repeat_with(|| middle(redraw(&ratios, &mut rng)));
    interval(middle(ratios.clone())?, drawn)
}

/// Returns the ratio of the medians of two independent sets of samples, such as those of runs on different days.
pub fn unpaired_ratio(values: &[f64], divisors: &[f64]) -> Option<Ratio> {
    let of = |values: Vec<f64>, divisors: Vec<f64>| {
        let divisor = middle(divisors).filter(|divisor| *divisor != 0.0)?;
        Some(middle(values)? / divisor)
    };
    let mut rng = Rng::with_seed(SEED);
    let drawn = std::iter::repeat_with(|| of(redraw(values, &mut rng), redraw(divisors, &mut rng)));
    interval(of(values.to_vec(), divisors.to_vec())?, drawn)
}

/// Returns the geometric mean of ratios: 0.5 and 2 have the mean 1.
pub fn geometric_mean(ratios: impl IntoIterator<Item = f64>) -> Option<f64> {
    let logarithms: Vec<f64> = ratios.into_iter().filter(|ratio| *ratio > 0.0).map(f64::ln).collect();
    let count = logarithms.len();
    (count > 0).then(|| (logarithms.iter().sum::<f64>() / count as f64).exp())
}

fn redraw(samples: &[f64], rng: &mut Rng) -> Vec<f64> {
    samples.iter().filter_map(|_| rng.choice(samples).copied()).collect()
}

fn middle(mut samples: Vec<f64>) -> Option<f64> {
    samples.sort_by(f64::total_cmp);
    quantile(&samples, 0.5)
}

fn interval(value: f64, drawn: impl Iterator<Item = Option<f64>>) -> Option<Ratio> {
    let mut ratios: Vec<f64> = drawn.take(DRAWS).flatten().collect();
    ratios.sort_by(f64::total_cmp);
    Some(Ratio { value, low: quantile(&ratios, 0.025)?, high: quantile(&ratios, 0.975)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::normal;

    /// Returns pairs from a machine whose speed changes by a factor of three, where the first figure is `ratio` times
    /// the second.
    fn pairs(ratio: f64, count: usize, rng: &mut Rng) -> Vec<(f64, f64)> {
        (0..count)
            .map(|at| {
                let drift = 1.0 + 2.0 * at as f64 / count as f64;
                let mut noisy = |time: f64| time * drift * (1.0 + 0.05 * normal(rng));
                (noisy(ratio), noisy(1.0))
            })
            .collect()
    }

    #[test]
    fn pairs_show_the_ratio_through_the_drift_of_the_machine() {
        let ratio = paired_ratio(&pairs(0.8, 20, &mut Rng::with_seed(5))).unwrap();
        assert!((ratio.value - 0.8).abs() < 0.05 && ratio.differs(), "{ratio:?}");
        assert!(ratio.low <= ratio.value && ratio.value <= ratio.high);
    }

    #[test]
    fn the_interval_contains_the_true_ratio_at_its_stated_rate() {
        let mut rng = Rng::with_seed(6);
        let held = (0..200)
            .filter_map(|_| paired_ratio(&pairs(1.25, 15, &mut rng)))
            .filter(|ratio| ratio.low <= 1.25 && 1.25 <= ratio.high)
            .count();
        assert!((176..=200).contains(&held), "{held} of 200");
    }

    #[test]
    fn equal_sides_do_not_differ() {
        let ratio = unpaired_ratio(&[1.0, 1.1, 0.9, 1.0], &[1.0, 1.05, 0.95, 1.0]).unwrap();
        assert!(!ratio.differs(), "{ratio:?}");
    }

    #[test]
    fn nothing_is_concluded_from_nothing() {
        assert_eq!(paired_ratio(&[]), None);
        assert_eq!(paired_ratio(&[(1.0, 0.0)]), None);
        assert_eq!(unpaired_ratio(&[1.0], &[]), None);
    }

    #[test]
    fn half_and_twice_have_the_same_geometric_mean() {
        assert!((geometric_mean([0.5, 2.0]).unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(geometric_mean([]), None);
    }
}
