//! Statistics of repeated measurements.
//!
//! A figure is the median of its samples. Its standard error is the standard error of the mean. Two targets are
//! compared by the ratios of samples of the same rotation. A temporary slowdown of the machine therefore affects both
//! samples of a pair.

mod ratio;

use serde::{Deserialize, Serialize};

pub use ratio::{Ratio, geometric_mean, paired_ratio, unpaired_ratio};

/// The statistics of the samples of one figure.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct Summary {
    /// The number of samples.
    pub samples: usize,
    /// The median; the mean of the two middle samples if their number is even.
    pub median: f64,
    /// The mean.
    pub mean: f64,
    /// The standard deviation of the samples; 0 for one sample.
    pub deviation: f64,
    /// The smallest sample.
    pub least: f64,
    /// The largest sample.
    pub most: f64,
}

impl Summary {
    /// Returns the statistics of `samples`, or `None` without samples.
    ///
    /// ```
    /// use obento_bench::statistics::Summary;
    ///
    /// let summary = Summary::of(&[3.0, 1.0, 2.0]).unwrap();
    /// assert_eq!((summary.median, summary.mean, summary.deviation), (2.0, 2.0, 1.0));
    /// ```
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let count = sorted.len() as f64;
        let mean = sorted.iter().sum::<f64>() / count;
        let squares: f64 = sorted.iter().map(|sample| (sample - mean).powi(2)).sum();
        let deviation = if sorted.len() < 2 { 0.0 } else { (squares / (count - 1.0)).sqrt() };
        Some(Self { samples: sorted.len(), median: quantile(&sorted, 0.5)?, mean, deviation, least, most })
    }

    /// Returns the standard error of the mean.
    pub fn standard_error(&self) -> f64 {
        self.deviation / (self.samples as f64).sqrt()
    }

    /// Returns the standard error as a share of the mean; infinity for one sample.
    pub fn relative_error(&self) -> f64 {
        if self.samples < 2 || self.mean == 0.0 {
            f64::INFINITY
        } else {
            self.standard_error() / self.mean.abs()
        }
    }
}

/// Returns the quantile `at` of `sorted` samples, interpolated between two samples.
pub fn quantile(sorted: &[f64], at: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = at.clamp(0.0, 1.0) * last as f64;
    let (below, above) = (*sorted.get(place.floor() as usize)?, *sorted.get(place.ceil() as usize)?);
    Some(below + (above - below) * place.fract())
}

/// The condition under which a cell is not repeated further.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct StopRule {
    /// The least number of repetitions.
    pub least: usize,
    /// The greatest number of repetitions.
    pub most: usize,
    /// The relative standard error below which the figure is precise enough.
    pub error: f64,
}

impl Default for StopRule {
    /// Returns at least 3 and at most 10 repetitions, until the standard error is below 3 %.
    fn default() -> Self {
        Self { least: 3, most: 10, error: 0.03 }
    }
}

impl StopRule {
    /// Returns whether these samples suffice.
    pub fn reached(&self, samples: &[f64]) -> bool {
        let sure = || Summary::of(samples).is_some_and(|summary| summary.relative_error() <= self.error);
        samples.len() >= self.most || samples.len() >= self.least && sure()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Rng, normal};

    #[test]
    fn the_standard_error_is_how_far_means_of_such_samples_scatter() {
        let mut rng = Rng::with_seed(3);
        let mut draw = || (0..25).map(|_| 100.0 + 10.0 * normal(&mut rng)).collect::<Vec<_>>();
        let summaries: Vec<Summary> = (0..2_000).filter_map(|_| Summary::of(&draw())).collect();
        let means: Vec<f64> = summaries.iter().map(|summary| summary.mean).collect();
        let scatter = Summary::of(&means).unwrap().deviation;
        let said = summaries.iter().map(Summary::standard_error).sum::<f64>() / summaries.len() as f64;
        assert!((scatter - 2.0).abs() < 0.1, "{scatter}");
        assert!((said / scatter - 1.0).abs() < 0.05, "{said} {scatter}");
    }

    #[test]
    fn the_median_is_between_the_two_middle_values() {
        assert_eq!(Summary::of(&[4.0, 1.0, 3.0, 2.0]).unwrap().median, 2.5);
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[5.0]).unwrap().relative_error(), f64::INFINITY);
    }

    #[test]
    fn repeating_ends_when_the_figure_is_sure_or_the_limit_is_reached() {
        let enough = StopRule { least: 3, most: 5, error: 0.03 };
        assert!(!enough.reached(&[1.0, 1.0]));
        assert!(enough.reached(&[1.0, 1.0, 1.0]));
        assert!(!enough.reached(&[1.0, 2.0, 3.0, 1.0]));
        assert!(enough.reached(&[1.0, 2.0, 3.0, 1.0, 2.0]));
    }
}
