//! Fuzzing of all decoders.

use std::collections::VecDeque;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use xshell::{Shell, cmd};

/// The folder of the programs that cargo-fuzz builds, below `fuzz`.
const PROGRAMS: &str = "target/x86_64-unknown-linux-gnu/release";
/// The interval at which the processor time of a target is read.
const LOOK: Duration = Duration::from_secs(2);

/// The options of a fuzzing run.
#[derive(clap::Args)]
pub struct Options {
    /// Processor time for each target, in minutes.
    #[arg(long, default_value_t = 5)]
    minutes: u64,
    /// Run only these targets; by default all of `fuzz/`.
    #[arg(long)]
    target: Vec<String>,
    /// Number of targets that run at the same time.
    #[arg(long, default_value = "1")]
    jobs: NonZeroUsize,
    /// Build nothing, and run the programs in this folder. Use copies, so that the sources may change during the run.
    #[arg(long)]
    programs: Option<PathBuf>,
}

/// Runs each target of `fuzz/`. The inputs are structures of sound volumes and those that earlier runs stored in
/// `fuzz/corpus`. Fails after all targets have run if one of them has a finding.
pub fn run(shell: &Shell, options: &Options) -> Result<()> {
    let has_fuzz =
        || cmd!(shell, "cargo fuzz --version").quiet().ignore_stdout().ignore_stderr().run().is_ok();
    if options.programs.is_none() && !has_fuzz() {
        cmd!(shell, "cargo install --locked cargo-fuzz").run()?;
    }
    let targets: Vec<String> = if options.target.is_empty() { all(shell)? } else { options.target.clone() };
    let here = shell.current_dir().join("fuzz");
    let programs = match &options.programs {
        Some(folder) => shell.current_dir().join(folder),
        None => {
            cmd!(shell, "cargo +nightly fuzz build").run()?;
            here.join(PROGRAMS)
        }
    };
    let time = Duration::from_secs(options.minutes * 60);
    let (queue, found) = (Mutex::new(VecDeque::from(targets)), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..options.jobs.get() {
            scope.spawn(|| {
                while let Some(target) = next(&queue) {
                    if let Err(error) = fuzz(&here, &programs.join(&target), &target, time) {
                        println!("{target}: {error:#}");
                        found.lock().expect("no thread panics").push(target);
                    }
                }
            });
        }
    });
    let found = found.into_inner().expect("no thread panics");
    ensure!(found.is_empty(), "findings of {}: fuzz/artifacts, fuzz/logs", found.join(", "));
    Ok(())
}

/// Returns all targets; each has a file.
fn all(shell: &Shell) -> Result<Vec<String>> {
    let files = shell.read_dir("fuzz/fuzz_targets")?;
    let names = files.iter().filter_map(|file| file.file_stem()?.to_str().map(str::to_owned));
    Ok(names.collect())
}

fn next(queue: &Mutex<VecDeque<String>>) -> Option<String> {
    queue.lock().expect("no thread panics").pop_front()
}

/// Targets that do not join a thread, because it may wait for the process that writes a stream. The search for leaks
/// would report the memory that the C library uses for the thread.
const LEAVES_THREADS: [&str; 1] = ["build_source"];

/// Runs one target until it has used `time` of the processor, and prints the figures. Fails if there is a finding.
fn fuzz(here: &Path, program: &Path, target: &str, time: Duration) -> Result<()> {
    let (logs, artifacts) = (here.join("logs"), here.join("artifacts").join(target));
    let corpus = here.join("corpus").join(target);
    for folder in [&logs, &artifacts, &corpus] {
        fs::create_dir_all(folder)?;
    }
    let log = logs.join(target);
    // A program writes its seeds and exits if the environment requests it.
    let sown = Command::new(program).env("OBENTO_SEEDS", &corpus).status();
    ensure!(sown.with_context(|| format!("{} does not start", program.display()))?.success(), "no seeds");
    let mut run = Command::new(program);
    run.arg(&corpus)
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(format!("-dict={}", here.join("dictionary.txt").display()))
        .args(["-timeout=60", "-rss_limit_mb=1024", "-print_final_stats=1"])
        .args(LEAVES_THREADS.contains(&target).then_some("-detect_leaks=0"))
        .stderr(fs::File::create(&log)?);
    let mut run = run.spawn().with_context(|| format!("{target} does not start"))?;
    let ended = wait(&mut run, time)?;
    let reported = fs::read_to_string(&log)?;
    ensure!(
        ended.success(),
        "{ended}: {}",
        reported.lines().rfind(|line| line.contains("ERROR")).unwrap_or(&reported)
    );
    println!("| `{target}` | {} |", figures(&reported).join(" | "));
    Ok(())
}

/// Waits for `run`. Asks it to end after `time`.
fn wait(run: &mut Child, time: Duration) -> Result<ExitStatus> {
    loop {
        if let Some(ended) = run.try_wait()? {
            return Ok(ended);
        }
        if processor_time(run.id())? >= time {
            // libFuzzer prints its figures and exits after this signal.
            Command::new("kill").args(["-USR1", &run.id().to_string()]).status()?;
            return Ok(run.wait()?);
        }
        thread::sleep(LOOK);
    }
}

/// Returns the processor time of a process. Source: proc(5), fields 14 and 15 of `stat`, in hundredths of a second on
/// Linux.
fn processor_time(process: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name may contain spaces. It ends with the last parenthesis.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    Ok(Duration::from_millis((ticks(11) + ticks(12)) * 10))
}

/// Returns the number of executions, the features, the size of the corpus, and the peak memory from the output of
/// libFuzzer.
fn figures(reported: &str) -> Vec<String> {
    let last = reported.lines().rfind(|line| line.contains(" ft: ")).unwrap_or_default();
    let word = |name: &str| {
        let rest = last.split_once(name).map(|(_, rest)| rest)?;
        Some(rest.split_whitespace().next()?.to_owned())
    };
    let stat = |name: &str| {
        let line = reported.lines().rfind(|line| line.starts_with(&format!("stat::{name}:")))?;
        Some(line.split_whitespace().last()?.to_owned())
    };
    let found = [
        stat("number_of_executed_units"),
        word("ft: "),
        word("corp: "),
        stat("slowest_unit_time_sec").map(|seconds| format!("{seconds} s")),
        stat("peak_rss_mb").map(|size| format!("{size} MiB")),
    ];
    found.map(Option::unwrap_or_default).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[test]
    fn no_jobs_at_all_are_refused() {
        assert!(Campaign::try_parse_from(["fuzz", "--jobs", "0"]).is_err());
        assert_eq!(Campaign::try_parse_from(["fuzz", "--jobs", "2"]).unwrap().options.jobs.get(), 2);
    }

    #[derive(clap::Parser)]
    struct Campaign {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn the_figures_of_a_run_are_found_in_its_output() {
        let reported = "#2 INITED cov: 7 ft: 8 corp: 1/1b\n#512 DONE   cov: 1020 ft: 3497 corp: 60/9Kb lim: 400\n\
                    stat::number_of_executed_units: 512\nstat::slowest_unit_time_sec:    1\nstat::peak_rss_mb: 413\n";
        assert_eq!(figures(reported), ["512", "3497", "60/9Kb", "1 s", "413 MiB"]);
        assert_eq!(figures("nothing"), ["", "", "", "", ""]);
    }

    #[test]
    fn the_processor_time_of_a_process_grows_with_its_work() {
        let before = processor_time(std::process::id()).unwrap();
        let mut sum = 0_u64;
        while processor_time(std::process::id()).unwrap() < before + Duration::from_millis(20) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
    }
}
