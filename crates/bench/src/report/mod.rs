//! Reports: results as a page, a table or lines.
//!
//! All formats are generated from one [`Table`], in which a row is a phase of a workload and a column is a target. A speed
//! is relative to the baseline. A value above 1 is faster, for every unit of the figure.

mod compare;
mod csv;
mod html;
mod markdown;
mod text;

pub use compare::{Changed, Verdict, compare};
pub use csv::csv;
pub use html::html;
pub use markdown::markdown;
pub use text::text;

use crate::cell::Outcome;
use crate::results::{CellResult, Results};
use crate::statistics::{Ratio, Summary, geometric_mean, paired_ratio};
use crate::suite::{PUBLISHED, Published, Suite};
use crate::workload::Measure;

/// Results as rows and columns.
#[derive(Clone, Debug)]
pub struct Table {
    /// The columns.
    pub targets: Vec<String>,
    /// The index of the target with which the others are compared.
    pub baseline: usize,
    /// The rows, in the order of the runs.
    pub rows: Vec<Row>,
}

/// A phase of a workload.
#[derive(Clone, Debug)]
pub struct Row {
    /// The workload.
    pub workload: String,
    /// The phase; empty if the workload has only one.
    pub phase: String,
    /// The unit, and whether a larger figure is better.
    pub measure: Measure,
    /// A figure for each target.
    pub figures: Vec<Figure>,
}

/// The result of a phase on a target.
#[derive(Clone, Debug, Default)]
pub struct Figure {
    /// The statistics, if the phase was measured.
    pub summary: Option<Summary>,
    /// The speed relative to the baseline.
    pub speed: Option<Ratio>,
    /// The reason for the missing figure.
    pub why_not: Option<String>,
    /// The number of unreliable samples.
    pub disturbed: usize,
}

/// The summary of a target.
#[derive(Clone, Debug)]
pub struct OverallScore {
    /// The target.
    pub target: String,
    /// The geometric mean of the speeds.
    pub speed: Option<f64>,
    /// The number of rows in which the target is significantly faster than the baseline.
    pub faster: usize,
    /// The number of rows in which the target is significantly slower.
    pub slower: usize,
    /// The number of compared rows.
    pub rows: usize,
}

impl Table {
    /// Creates the table of `results`. Targets are compared with `baseline`, or by default with the baseline of the
    /// suite. If that was not measured, they are compared with the first target that was.
    pub fn of(results: &Results, baseline: Option<&str>) -> Self {
        let targets: Vec<String> = results.targets().into_iter().map(str::to_owned).collect();
        let wished = baseline.or_else(|| Suite::find(&results.suite).map(|suite| suite.baseline));
        let is_measured =
            |target: &str| results.cells.iter().any(|cell| cell.target == target && !cell.samples.is_empty());
        let wished = wished.filter(|target| baseline.is_some() || is_measured(target));
        let first = targets.iter().position(|target| is_measured(target)).unwrap_or(0);
        let baseline = targets.iter().position(|target| Some(target.as_str()) == wished).unwrap_or(first);
        let mut table = Self { targets, baseline, rows: Vec::new() };
        for workload in results.workloads() {
            table.add(results, workload);
        }
        table
    }

    fn add(&mut self, results: &Results, workload: &str) {
        let cells: Vec<Option<&CellResult>> = self
            .targets
            .iter()
            .map(|target| {
                results.cells.iter().find(|cell| cell.workload == workload && cell.target == *target)
            })
            .collect();
        let measured = cells.iter().flatten().map(|cell| cell.phases()).find(|phases| !phases.is_empty());
        // A workload that was not measured has a row with the reason.
        let phases = measured.unwrap_or_else(|| vec![("", Measure::Time)]);
        for (phase, measure) in phases {
            let base = cells
                .get(self.baseline)
                .copied()
                .flatten()
                .map(|cell| cell.figures(phase))
                .unwrap_or_default();
            let figure = |cell: &Option<&CellResult>| {
                cell.map_or_else(Figure::default, |cell| Figure::of(cell, phase, measure, &base))
            };
            let figures = cells.iter().map(figure).collect();
            self.rows.push(Row { workload: workload.to_owned(), phase: phase.to_owned(), measure, figures });
        }
    }

    /// Returns the summary of each target.
    pub fn standings(&self) -> Vec<OverallScore> {
        let of = |(at, target): (usize, &String)| {
            let speeds: Vec<Ratio> = self
                .rows
                .iter()
                .filter_map(|row| row.figures.get(at).and_then(|figure| figure.speed))
                .collect();
            OverallScore {
                target: target.clone(),
                speed: geometric_mean(speeds.iter().map(|speed| speed.value)),
                faster: speeds.iter().filter(|speed| speed.low > 1.0).count(),
                slower: speeds.iter().filter(|speed| speed.high < 1.0).count(),
                rows: speeds.len(),
            }
        };
        self.targets.iter().enumerate().map(of).collect()
    }

    /// Returns the target with which the others are compared.
    pub fn baseline(&self) -> &str {
        self.targets.get(self.baseline).map_or("", String::as_str)
    }
}

impl Row {
    /// Returns the workload and the phase.
    pub fn name(&self) -> String {
        if self.phase.is_empty() {
            self.workload.clone()
        } else {
            format!("{}: {}", self.workload, self.phase)
        }
    }

    /// Returns the published figures of the workload.
    pub fn published(&self) -> Option<&'static Published> {
        PUBLISHED.iter().find(|row| row.workload == self.workload && self.phase.is_empty())
    }
}

impl Figure {
    fn of(cell: &CellResult, phase: &str, measure: Measure, base: &[(usize, f64)]) -> Self {
        let figures = cell.figures(phase);
        let values: Vec<f64> = figures.iter().map(|(_, figure)| *figure).collect();
        let pairs: Vec<(f64, f64)> = figures
            .iter()
            .filter_map(|(rotation, figure)| {
                let (_, base) = base.iter().find(|(of, _)| of == rotation)?;
                Some(if measure.more_is_better() { (*figure, *base) } else { (*base, *figure) })
            })
            .collect();
        let why_not = cell.ended.as_ref().and_then(|end| match end {
            Outcome::Measured(_) => None,
            Outcome::Absent(why) => Some(why.clone()),
            Outcome::Failed(why) => Some(format!("failed: {why}")),
            Outcome::NotFinished(seconds) => Some(format!("not finished in {:.0} min", seconds / 60.0)),
        });
        let disturbed = cell.samples.iter().filter(|sample| sample.disturbed.is_some()).count();
        Self { summary: Summary::of(&values), speed: paired_ratio(&pairs), why_not, disturbed }
    }
}

/// Returns a number with three significant digits and without trailing zeros.
pub(crate) fn short(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size if size >= 0.1 => 3,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    let (sign, whole) = text.strip_prefix('-').map_or(("", text.as_str()), |rest| ("-", rest));
    let (whole, fraction) = whole.split_once('.').map_or((whole, ""), |(whole, fraction)| (whole, fraction));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{grouped}{point}{fraction}")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::results::tests::results;

    pub fn sample() -> Results {
        let mut results = results(
            "",
            &[
                ("kernel:ext4", &[100.0, 200.0, 150.0]),
                ("image:ext4", &[200.0, 400.0, 300.0]),
                ("fuse2fs", &[]),
            ],
        );
        results.cell("fuse2fs", "load").ended = Some(Outcome::NotFinished(600.0));
        results
    }

    #[test]
    fn ratios_are_those_of_the_same_rotation() {
        let table = Table::of(&sample(), None);
        assert_eq!(table.baseline(), "kernel:ext4");
        let speeds: Vec<_> =
            table.rows[0].figures.iter().map(|figure| figure.speed.map(|speed| speed.value)).collect();
        assert_eq!(speeds, [Some(1.0), Some(2.0), None]);
        assert!(table.rows[0].figures[1].speed.unwrap().differs());
    }

    #[test]
    fn not_finished_is_a_result() {
        let table = Table::of(&sample(), None);
        assert_eq!(table.rows[0].figures[2].why_not.as_deref(), Some("not finished in 10 min"));
    }

    #[test]
    fn standings_count_rows_beyond_noise() {
        let table = Table::of(&sample(), Some("kernel:ext4"));
        let standing = &table.standings()[1];
        assert_eq!((standing.faster, standing.slower, standing.rows), (1, 0, 1));
        assert!((standing.speed.unwrap() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn numbers_are_short() {
        let numbers = [1234567.8, 123.4, 12.34, 1.234, 0.1234, 0.0123, 0.0, -1234.0].map(short);
        assert_eq!(numbers, ["1,234,568", "123", "12.3", "1.23", "0.123", "0.0123", "0", "-1,234"]);
    }
}
