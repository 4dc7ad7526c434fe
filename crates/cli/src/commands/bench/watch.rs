//! The progress of a run: on a terminal a live table of the current workload, elsewhere one line per
//! result.

use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use obento::host::interrupt;
use obento_bench::cell::{Cell, Outcome};
use obento_bench::lab::{RunObserver, RunPlan};
use obento_bench::results::CellResult;
use obento_bench::statistics::Summary;

use crate::context::Context;
use crate::messages::print_error;
use crate::report::{Report, hint_of_text, printable};

/// Phases of a cell that are shown while it runs.
const PHASES: usize = 6;

/// Shows the progress of a run.
pub struct RunDisplay<'c> {
    context: &'c Context,
    begun: Instant,
    runs: u32,
    live: Option<Live>,
}

/// The table on a terminal.
struct Live {
    all: MultiProgress,
    /// The progress of the whole run, below the table.
    whole: ProgressBar,
    workload: String,
    targets: Vec<String>,
    /// One line per target.
    rows: Vec<ProgressBar>,
}

impl<'c> RunDisplay<'c> {
    pub fn new(context: &'c Context, plan: &RunPlan) -> Self {
        let live = context.messages().has_progress().then(|| Live::new(&plan.targets));
        if let Some(live) = &live {
            context.messages().set_bar(Some(live.whole.clone()));
        }
        Self { context, begun: Instant::now(), runs: 0, live }
    }

    /// Returns the remaining time, if it can be estimated.
    fn left(&self, done: usize, about: usize) -> Option<Duration> {
        let each = self.begun.elapsed().checked_div(self.runs)?;
        Some(each * u32::try_from(about - done).unwrap_or(u32::MAX))
    }
}

impl Drop for RunDisplay<'_> {
    fn drop(&mut self) {
        self.context.messages().set_bar(None);
        if let Some(live) = &mut self.live {
            live.leave();
            live.whole.finish_and_clear();
        }
    }
}

impl RunObserver for RunDisplay<'_> {
    fn begins(&mut self, cell: &Cell, rotation: usize, done: usize, about: usize) {
        let left = self.left(done, about);
        self.runs += 1;
        let minutes = |left: Duration| format!(", about {} min left", left.as_secs().div_ceil(60));
        let left = left.map(minutes).unwrap_or_default();
        let what = format!("{} on {}, run {}", cell.workload, cell.target, rotation + 1);
        match &mut self.live {
            Some(live) => live.begins(cell, &format!("{}/{about}{left}: {what}", done + 1), (done, about)),
            None => print_error(format_args!("{}/{about}{left}: {what}\n", done + 1)),
        }
    }

    fn ended(&mut self, known: &CellResult) {
        let mut lines = figures(known);
        match &known.ended {
            Some(Outcome::Absent(why)) => {
                self.context.note(known.target.as_bytes(), why);
                lines = vec!["skipped".to_owned()];
            }
            Some(Outcome::Failed(why)) => {
                self.context.warn(&not_measured(&known.target, why));
                lines = vec!["failed".to_owned()];
            }
            Some(Outcome::NotFinished(seconds)) => {
                lines.insert(0, format!("not finished in {:.0} min", seconds / 60.0));
            }
            Some(Outcome::Measured(_)) | None => {}
        }
        lines.extend(warning(known));
        match &self.live {
            Some(live) => live.ended(known, &lines),
            None => lines.iter().for_each(|line| print_error(format_args!("  {line}\n"))),
        }
    }

    fn stop(&self) -> bool {
        interrupt::is_requested()
    }
}

/// Returns the report of a run that failed. The volume of a run, and not a disk of the host, is usually full.
fn not_measured(target: &str, why: &str) -> Report {
    let report = Report::on("cannot measure", target.as_bytes(), why);
    // The process of the cell reports its errors as texts.
    match hint_of_text(why) {
        Some(hint) if why.contains("of the image") => report.help(hint),
        Some(_) => report.help("use a larger --size, or reduce --scale or --file-size"),
        None => report,
    }
}

/// Returns a warning if the last sample is unreliable.
fn warning(known: &CellResult) -> Option<String> {
    let why = known.samples.last()?.disturbed.as_deref()?;
    Some(format!("unreliable: {why}"))
}

/// Returns the figures of the first phases.
fn figures(known: &CellResult) -> Vec<String> {
    let shown = |(phase, measure): (&str, obento_bench::workload::Measure)| {
        let figures: Vec<f64> = known.figures(phase).into_iter().map(|(_, figure)| figure).collect();
        let (summary, last) = Summary::of(&figures).zip(figures.last().copied())?;
        let gap = if phase.is_empty() { "" } else { ": " };
        let (unit, median, runs) = (measure.unit(), summary.median, summary.samples);
        Some(format!("{phase}{gap}{last:.1} {unit} (median {median:.1} of {runs})"))
    };
    known.phases().into_iter().take(PHASES).filter_map(shown).collect()
}

impl Live {
    fn new(targets: &[String]) -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("[{bar:20}] {wide_msg}");
        let whole = ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let whole = all.add(whole);
        Self { all, whole, workload: String::new(), targets: targets.to_vec(), rows: Vec::new() }
    }

    fn begins(&mut self, cell: &Cell, what: &str, (done, about): (usize, usize)) {
        if self.workload != cell.workload {
            self.leave();
            self.workload.clone_from(&cell.workload);
            let head = self.row();
            head.finish_with_message(cell.workload.clone());
            self.rows = self.targets.iter().map(|_| self.row()).collect();
            self.rows.iter().zip(&self.targets).for_each(|(row, target)| row.set_message(line(target, "")));
        }
        self.whole.set_length(about as u64);
        self.whole.set_position(done as u64);
        self.whole.set_message(what.to_owned());
        self.whole.tick();
    }

    /// Adds a line above the line of the whole run.
    fn row(&self) -> ProgressBar {
        let style = ProgressStyle::with_template("{wide_msg}");
        let row = ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        self.all.insert_before(&self.whole, row)
    }

    fn ended(&self, known: &CellResult, lines: &[String]) {
        let at = self.targets.iter().position(|target| *target == known.target);
        if let Some(row) = at.and_then(|at| self.rows.get(at)) {
            row.set_message(line(&known.target, &lines.join("; ")));
        }
    }

    /// Preserves the rows on the screen.
    fn leave(&mut self) {
        self.rows.drain(..).for_each(|row| row.abandon());
    }
}

fn line(target: &str, what: &str) -> String {
    format!("  {:<28} {what}", printable(target.as_bytes()))
}

#[cfg(test)]
mod tests {
    use obento_bench::cell::Sample;

    use super::*;

    #[test]
    fn a_run_on_a_full_volume_is_reported_with_the_option_for_a_larger_volume() {
        for words in ["no space left", "No space left on device (os error 28)"] {
            let report = not_measured("image:ext4", &format!("the workload failed: {words}")).to_string();
            let cause = "cannot measure 'image:ext4': the workload failed: no space left";
            assert!(report.starts_with(cause), "{report}");
            let help = "\n  help: use a larger --size, or reduce --scale or --file-size";
            assert!(report.ends_with(help), "{report}");
        }
        assert_eq!(not_measured("a", "it died").to_string(), "cannot measure 'a': it died");
    }

    #[test]
    fn a_sample_of_a_busy_machine_is_reported_as_unreliable() {
        let mut sample = Sample {
            rotation: 0,
            phases: Vec::new(),
            durable_seconds: 0.0,
            processor_seconds: 0.0,
            peak_memory: 0,
            traffic: None,
            disturbed: None,
        };
        let mut known = CellResult {
            target: "image:ext4".into(),
            workload: "varmail".into(),
            samples: vec![sample.clone()],
            ended: None,
        };
        assert_eq!(warning(&known), None);
        sample.disturbed = obento_bench::machine::busy(19);
        known.samples.push(sample);
        assert_eq!(warning(&known).unwrap(), "unreliable: the machine was busy (19 runnable threads)");
    }
}
