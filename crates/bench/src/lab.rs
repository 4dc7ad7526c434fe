//! Runs cells in rotation over the targets, until the figures are precise enough.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cell::{Cell, Outcome};
use crate::results::{CellResult, Results};
use crate::statistics::{StopRule, Summary, quantile};
use crate::target::TargetSetup;
use crate::{BenchError, Result};

/// The cells to run.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// The targets, in the order of the rotation.
    pub targets: Vec<String>,
    /// The workloads, in the order of the runs.
    pub workloads: Vec<String>,
    /// The time limit of one run, which includes its preparation.
    pub limit: Duration,
}

/// A way to run cells.
pub trait Runner {
    /// Runs `cell` until it ends or `limit` has passed.
    fn run(&self, cell: &Cell, limit: Duration) -> Outcome;
}

/// An observer of the progress.
pub trait RunObserver {
    /// Called before a run, with the number of the rotation from 0, the number of finished runs, and the estimated
    /// number of all runs.
    fn begins(&mut self, cell: &Cell, rotation: usize, done: usize, about: usize);
    /// Called after a run, with all results of the cell.
    fn ended(&mut self, known: &CellResult);
    /// Returns whether to stop.
    fn stop(&self) -> bool;
}

/// Runs a plan and adds the results to `results`. Calls `save` after each run. Skips runs that `results` already
/// contains. Returns whether the plan was completed.
pub fn run(
    plan: &RunPlan,
    runner: &dyn Runner,
    results: &mut Results,
    watch: &mut dyn RunObserver,
    save: &mut dyn FnMut(&Results) -> Result<()>,
) -> Result<bool> {
    let enough = results.enough;
    let about = plan.targets.len() * plan.workloads.len() * enough.least;
    let mut done = 0;
    for workload in &plan.workloads {
        for rotation in 0..enough.most {
            if rotation > 0
                && plan.targets.iter().all(|target| suffices(results.cell(target, workload), &enough))
            {
                break;
            }
            for target in &plan.targets {
                done += 1;
                let known = results.cell(target, workload);
                if known.ended.is_some() || known.samples.iter().any(|sample| sample.rotation == rotation) {
                    continue;
                }
                if watch.stop() {
                    return Ok(false);
                }
                let settings = results.settings.clone();
                let cell = Cell { target: target.clone(), workload: workload.clone(), settings };
                watch.begins(&cell, rotation, done - 1, about.max(done));
                let known = results.cell(target, workload);
                match runner.run(&cell, plan.limit) {
                    // An interrupted run is not a result.
                    _ if watch.stop() => return Ok(false),
                    Outcome::Measured(mut sample) => {
                        sample.rotation = rotation;
                        known.samples.push(sample);
                    }
                    outcome => known.ended = Some(outcome),
                }
                watch.ended(known);
                save(results)?;
            }
        }
    }
    Ok(true)
}

/// Returns whether a cell needs no more runs. If a cell has several phases, half of them must be precise enough,
/// because some phases never become precise.
fn suffices(cell: &CellResult, enough: &StopRule) -> bool {
    if cell.ended.is_some() || cell.samples.len() >= enough.most {
        return true;
    }
    let figures = |phase: &str| cell.figures(phase).into_iter().map(|(_, figure)| figure).collect::<Vec<_>>();
    let mut errors: Vec<f64> = cell
        .phases()
        .iter()
        .filter_map(|(phase, _)| Summary::of(&figures(phase)))
        .map(|summary| summary.relative_error())
        .collect();
    errors.sort_by(f64::total_cmp);
    cell.samples.len() >= enough.least && quantile(&errors, 0.5).is_some_and(|error| error <= enough.error)
}

/// Runs each cell in a separate process. The process reads the cell as JSON from its standard input and writes an
/// [`Outcome`] to its standard output. The process leads a process group, so that all its children can be ended at the
/// time limit.
pub struct Processes {
    /// The program.
    pub program: PathBuf,
    /// The arguments of the program.
    pub arguments: Vec<std::ffi::OsString>,
    /// The place of the file systems.
    pub setup: TargetSetup,
    /// Called regularly; returns whether to stop.
    pub stop: Box<dyn Fn() -> bool>,
}

impl Runner for Processes {
    fn run(&self, cell: &Cell, limit: Duration) -> Outcome {
        let outcome = self.ask(cell, limit).unwrap_or_else(|error| Outcome::Failed(error.to_string()));
        if !matches!(outcome, Outcome::Measured(_) | Outcome::Absent(_)) {
            if !cell.reads_existing_files() {
                self.setup.clear_folder(&cell.target);
            }
            self.setup.clear();
        }
        outcome
    }
}

/// The time after which a process that was asked to end is killed.
const GRACE: Duration = Duration::from_secs(20);

impl Processes {
    fn ask(&self, cell: &Cell, limit: Duration) -> Result<Outcome> {
        use std::os::unix::process::CommandExt as _;
        let failed =
            |message: String| BenchError::Program { program: self.program.display().to_string(), message };
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let question = serde_json::to_vec(cell).map_err(|error| failed(error.to_string()))?;
        if let Some(mut input) = child.stdin.take() {
            // A process that does not read its input reports the reason on its standard error.
            let _ = input.write_all(&question);
        }
        let answers = [child.stdout.take().map(reader), child.stderr.take().map(reader)];
        let begin = Instant::now();
        let finished = self.wait(&mut child, limit).map_err(|error| failed(error.to_string()))?;
        let [output, errors] =
            answers.map(|thread| thread.and_then(|thread| thread.join().ok()).unwrap_or_default());
        if !finished {
            return Ok(Outcome::NotFinished(begin.elapsed().as_secs_f64()));
        }
        serde_json::from_slice(&output).map_err(|_| {
            let said = String::from_utf8_lossy(&errors).trim().to_owned();
            failed(if said.is_empty() { "the process ended without a result".to_owned() } else { said })
        })
    }

    /// Returns whether the process ended within the limit.
    fn wait(&self, child: &mut Child, limit: Duration) -> std::io::Result<bool> {
        let begin = Instant::now();
        let mut reported = None;
        loop {
            if child.try_wait()?.is_some() {
                return Ok(reported.is_none());
            }
            match reported {
                None if begin.elapsed() >= limit || (self.stop)() => {
                    signal(child, rustix::process::Signal::TERM);
                    reported = Some(Instant::now());
                }
                Some(then) if Instant::now() - then >= GRACE => signal(child, rustix::process::Signal::KILL),
                _ => {}
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process_group(group, signal);
    }
}

fn reader(mut pipe: impl std::io::Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        // The existing output of a killed process is read.
        let _ = pipe.by_ref().take(64 << 20).read_to_end(&mut all);
        all
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::machine::Machine;
    use crate::results::tests::results;
    use crate::workload::Settings;

    /// Returns outcomes from a list, and records the requests.
    struct Script {
        asked: RefCell<Vec<String>>,
        outcome: fn(&str, usize) -> Outcome,
    }

    impl Runner for Script {
        fn run(&self, cell: &Cell, _: Duration) -> Outcome {
            let before = self.asked.borrow().iter().filter(|target| **target == cell.target).count();
            self.asked.borrow_mut().push(cell.target.clone());
            (self.outcome)(&cell.target, before)
        }
    }

    struct Quiet {
        runs_left: RefCell<usize>,
    }

    impl RunObserver for Quiet {
        fn begins(&mut self, _: &Cell, _: usize, _: usize, _: usize) {
            *self.runs_left.borrow_mut() -= 1;
        }
        fn ended(&mut self, _: &CellResult) {}
        fn stop(&self) -> bool {
            *self.runs_left.borrow() == 0
        }
    }

    fn measured(figure: f64) -> Outcome {
        let mut known = results("", &[("x", &[figure])]);
        known.cells.pop().and_then(|mut cell| cell.samples.pop()).map(Outcome::Measured).unwrap()
    }

    fn lab(outcome: fn(&str, usize) -> Outcome, runs: usize, known: &mut Results) -> (String, bool) {
        let script = Script { asked: RefCell::default(), outcome };
        let plan = RunPlan {
            targets: vec!["a".into(), "b".into(), "c".into()],
            workloads: vec!["load".into()],
            limit: Duration::MAX,
        };
        let mut watch = Quiet { runs_left: RefCell::new(runs) };
        let ended = run(&plan, &script, known, &mut watch, &mut |_| Ok(())).unwrap();
        (script.asked.into_inner().concat(), ended)
    }

    fn empty() -> Results {
        let enough = StopRule { least: 3, most: 5, error: 0.03 };
        Results::new("test", Machine::default(), Settings::default(), 0, enough)
    }

    #[test]
    fn targets_take_turns_and_sure_figures_end_the_rotation() {
        assert_eq!(lab(|_, _| measured(100.0), 100, &mut empty()), ("abcabcabc".into(), true));
    }

    #[test]
    fn one_uncertain_target_keeps_every_target_in_the_rotation_up_to_the_limit() {
        let unsure =
            |target: &str, run: usize| measured(if target == "b" { 100.0 * (run + 1) as f64 } else { 100.0 });
        assert_eq!(lab(unsure, 100, &mut empty()), ("abcabcabcabcabc".into(), true));
    }

    #[test]
    fn a_missing_target_is_queried_once_and_its_reason_is_stored() {
        let absent = |target: &str, _: usize| match target {
            "b" => Outcome::Absent("no root".into()),
            _ => measured(100.0),
        };
        let mut known = empty();
        assert_eq!(lab(absent, 100, &mut known), ("abcacac".into(), true));
        assert_eq!(known.cell("b", "load").ended, Some(Outcome::Absent("no root".into())));
    }

    #[test]
    fn an_interrupted_run_continues() {
        let mut known = empty();
        assert!(!lab(|_, _| measured(100.0), 4, &mut known).1);
        // The interrupted run is repeated.
        assert_eq!(lab(|_, _| measured(100.0), 100, &mut known), ("abcabc".into(), true));
    }

    fn shell(script: &str) -> Processes {
        let arguments = ["-c", script].map(Into::into).into();
        let setup = TargetSetup {
            folder: "/nowhere".into(),
            size: 0,
            obento: "obento".into(),
            registry: Default::default(),
            zram: false,
        };
        Processes { program: "sh".into(), arguments, setup, stop: Box::new(|| false) }
    }

    #[test]
    fn a_process_over_the_time_limit_is_killed_with_its_children() {
        let processes = shell("sleep 1000 & wait");
        let cell = Cell { target: "a".into(), workload: "load".into(), settings: Settings::default() };
        let outcome = processes.run(&cell, Duration::from_millis(200));
        assert!(matches!(outcome, Outcome::NotFinished(seconds) if seconds < 10.0), "{outcome:?}");
    }

    #[test]
    fn a_process_that_dies_is_a_failure_with_its_messages() {
        let processes = shell("echo no such disk >&2; exit 3");
        let cell = Cell { target: "a".into(), workload: "load".into(), settings: Settings::default() };
        let Outcome::Failed(why) = processes.run(&cell, Duration::from_secs(60)) else { panic!() };
        assert!(why.contains("no such disk"), "{why}");
    }
}
