//! Runs cells in rotation over the targets, until the figures are sure.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cell::{Cell, Outcome};
use crate::results::{CellResult, Results};
use crate::statistics::{Enough, Summary, quantile};
use crate::target::Ground;
use crate::{BenchError, Result};

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The targets, in the order of the rotation.
    pub targets: Vec<String>,
    /// The workloads, one after another.
    pub workloads: Vec<String>,
    /// How long a run may take, with everything that is made for it.
    pub limit: Duration,
}

/// Runs a cell somewhere.
pub trait Runner {
    /// To its end, or until `limit` is over.
    fn run(&self, cell: &Cell, limit: Duration) -> Outcome;
}

/// Is told how far a run is.
pub trait Watch {
    /// A cell begins: the rotation, from 0, and how many runs are done of about how many.
    fn begins(&mut self, cell: &Cell, rotation: usize, done: usize, about: usize);
    /// It ended; what is known of it with that.
    fn ended(&mut self, known: &CellResult);
    /// Whether to end here.
    fn stop(&self) -> bool;
}

/// Runs a plan, adding to `results`; `save` keeps them after each run. What is there already is not run again. Answers
/// whether it came to its end.
pub fn run(
    plan: &Plan,
    runner: &dyn Runner,
    results: &mut Results,
    watch: &mut dyn Watch,
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
                    // What was cut short because the run ends here is not a result.
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

/// Whether a cell needs no more runs. Of many phases half must be sure: single ones may never be.
fn suffices(cell: &CellResult, enough: &Enough) -> bool {
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

/// Runs each cell in a process of its own, which is given the cell as JSON on its standard input and answers an
/// [`Outcome`] on its standard output. It leads a process group, so that nothing of it outlives the limit.
pub struct Processes {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<std::ffi::OsString>,
    /// Where its file systems lie.
    pub ground: Ground,
    /// Asked now and then whether to give up.
    pub stop: Box<dyn Fn() -> bool>,
}

impl Runner for Processes {
    fn run(&self, cell: &Cell, limit: Duration) -> Outcome {
        let outcome = self.ask(cell, limit).unwrap_or_else(|error| Outcome::Failed(error.to_string()));
        if !matches!(outcome, Outcome::Measured(_) | Outcome::Absent(_)) {
            self.ground.clear(&cell.target);
        }
        outcome
    }
}

/// After this a process that was told to end is killed.
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
            // A child that does not read says why on its standard error.
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
        serde_json::from_slice(&output).map_err(|error| {
            let said = String::from_utf8_lossy(&errors).trim().to_owned();
            failed(if said.is_empty() { error.to_string() } else { said })
        })
    }

    /// Whether it ended by itself.
    fn wait(&self, child: &mut Child, limit: Duration) -> std::io::Result<bool> {
        let begin = Instant::now();
        let mut told = None;
        loop {
            if child.try_wait()?.is_some() {
                return Ok(told.is_none());
            }
            match told {
                None if begin.elapsed() >= limit || (self.stop)() => {
                    signal(child, rustix::process::Signal::TERM);
                    told = Some(Instant::now());
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
        // What a dying child said until then.
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

    /// Answers from a list, and notes what it was asked.
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

    impl Watch for Quiet {
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
        let plan = Plan {
            targets: vec!["a".into(), "b".into(), "c".into()],
            workloads: vec!["load".into()],
            limit: Duration::MAX,
        };
        let mut watch = Quiet { runs_left: RefCell::new(runs) };
        let ended = run(&plan, &script, known, &mut watch, &mut |_| Ok(())).unwrap();
        (script.asked.into_inner().concat(), ended)
    }

    fn empty() -> Results {
        let enough = Enough { least: 3, most: 5, error: 0.03 };
        Results::new("test", Machine::default(), Settings::default(), 0, enough)
    }

    #[test]
    fn targets_take_turns_and_sure_figures_end_the_rotation() {
        assert_eq!(lab(|_, _| measured(100.0), 100, &mut empty()), ("abcabcabc".into(), true));
    }

    #[test]
    fn one_unsure_target_keeps_all_in_the_rotation_up_to_the_limit() {
        let unsure =
            |target: &str, run: usize| measured(if target == "b" { 100.0 * (run + 1) as f64 } else { 100.0 });
        assert_eq!(lab(unsure, 100, &mut empty()), ("abcabcabcabcabc".into(), true));
    }

    #[test]
    fn a_target_that_is_not_there_is_asked_once_and_its_reason_is_kept() {
        let absent = |target: &str, _: usize| match target {
            "b" => Outcome::Absent("no root".into()),
            _ => measured(100.0),
        };
        let mut known = empty();
        assert_eq!(lab(absent, 100, &mut known), ("abcacac".into(), true));
        assert_eq!(known.cell("b", "load").ended, Some(Outcome::Absent("no root".into())));
    }

    #[test]
    fn an_interrupted_run_goes_on_where_it_was() {
        let mut known = empty();
        assert!(!lab(|_, _| measured(100.0), 4, &mut known).1);
        // The run that was under way when it was stopped is done again.
        assert_eq!(lab(|_, _| measured(100.0), 100, &mut known), ("abcabc".into(), true));
    }

    fn shell(script: &str) -> Processes {
        let arguments = ["-c", script].map(Into::into).into();
        let ground = Ground {
            folder: "/nowhere".into(),
            size: 0,
            obento: "obento".into(),
            registry: Default::default(),
            zram: false,
        };
        Processes { program: "sh".into(), arguments, ground, stop: Box::new(|| false) }
    }

    #[test]
    fn a_process_over_the_limit_is_ended_with_all_that_it_began() {
        let processes = shell("sleep 1000 & wait");
        let cell = Cell { target: "a".into(), workload: "load".into(), settings: Settings::default() };
        let outcome = processes.run(&cell, Duration::from_millis(200));
        assert!(matches!(outcome, Outcome::NotFinished(seconds) if seconds < 10.0), "{outcome:?}");
    }

    #[test]
    fn a_process_that_dies_is_a_failure_with_its_words() {
        let processes = shell("echo no such disk >&2; exit 3");
        let cell = Cell { target: "a".into(), workload: "load".into(), settings: Settings::default() };
        let Outcome::Failed(why) = processes.run(&cell, Duration::from_secs(60)) else { panic!() };
        assert!(why.contains("no such disk"), "{why}");
    }
}
