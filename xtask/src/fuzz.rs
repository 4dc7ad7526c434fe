//! Fuzzing of every decoder.

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

/// Where cargo-fuzz puts the programs, below `fuzz`.
const PROGRAMS: &str = "target/x86_64-unknown-linux-gnu/release";
/// How often to look whether a target had its time.
const LOOK: Duration = Duration::from_secs(2);

/// How long to fuzz.
#[derive(clap::Args)]
pub struct Options {
    /// Minutes of the processor for each target.
    #[arg(long, default_value_t = 5)]
    minutes: u64,
    /// These targets alone; all of `fuzz/` otherwise.
    #[arg(long)]
    target: Vec<String>,
    /// How many at a time.
    #[arg(long, default_value = "1")]
    jobs: NonZeroUsize,
    /// Build nothing, and run the programs in this folder: copies, so that the sources may change meanwhile.
    #[arg(long)]
    programs: Option<PathBuf>,
}

/// Runs each target of `fuzz/`, beginning with the structures of sound volumes and with what earlier runs have kept in `fuzz/corpus`. Fails
/// where one has a finding, after all.
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

/// Every target: each has its program in a file.
fn all(shell: &Shell) -> Result<Vec<String>> {
    let files = shell.read_dir("fuzz/fuzz_targets")?;
    let names = files.iter().filter_map(|file| file.file_stem()?.to_str().map(str::to_owned));
    Ok(names.collect())
}

fn next(queue: &Mutex<VecDeque<String>>) -> Option<String> {
    queue.lock().expect("no thread panics").pop_front()
}

/// Targets that leave a thread to end by itself, as what reads a stream does: it may wait for who writes to that. What the C library holds for
/// such a thread counts as lost to a search for leaks that meets it just then.
const LEAVES_THREADS: [&str; 1] = ["build_source"];

/// Runs one target until it had `time` of the processor, and prints what came of it. Errors: a finding.
fn fuzz(here: &Path, program: &Path, target: &str, time: Duration) -> Result<()> {
    let (logs, artifacts) = (here.join("logs"), here.join("artifacts").join(target));
    let corpus = here.join("corpus").join(target);
    for folder in [&logs, &artifacts, &corpus] {
        fs::create_dir_all(folder)?;
    }
    let log = logs.join(target);
    // A program that is asked for its seeds writes them and ends.
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
    let told = fs::read_to_string(&log)?;
    ensure!(
        ended.success(),
        "{ended}: {}",
        told.lines().rfind(|line| line.contains("ERROR")).unwrap_or(&told)
    );
    println!("| `{target}` | {} |", figures(&told).join(" | "));
    Ok(())
}

/// Waits for `run`, which is asked to end once it had `time`.
fn wait(run: &mut Child, time: Duration) -> Result<ExitStatus> {
    loop {
        if let Some(ended) = run.try_wait()? {
            return Ok(ended);
        }
        if processor_time(run.id())? >= time {
            // libFuzzer ends by itself then, and prints its figures.
            Command::new("kill").args(["-USR1", &run.id().to_string()]).status()?;
            return Ok(run.wait()?);
        }
        thread::sleep(LOOK);
    }
}

/// What a process has had of the processor. Source: proc(5), fields 14 and 15 of `stat`, of which Linux has a hundred a second.
fn processor_time(process: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name, which may hold spaces, ends with the last bracket.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    Ok(Duration::from_millis((ticks(11) + ticks(12)) * 10))
}

/// Executions, features reached, inputs that were kept, and peak memory, of what libFuzzer printed.
fn figures(told: &str) -> Vec<String> {
    let last = told.lines().rfind(|line| line.contains(" ft: ")).unwrap_or_default();
    let word = |name: &str| {
        let rest = last.split_once(name).map(|(_, rest)| rest)?;
        Some(rest.split_whitespace().next()?.to_owned())
    };
    let stat = |name: &str| {
        let line = told.lines().rfind(|line| line.starts_with(&format!("stat::{name}:")))?;
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
    fn the_figures_of_a_run_are_found_in_what_it_printed() {
        let told = "#2 INITED cov: 7 ft: 8 corp: 1/1b\n#512 DONE   cov: 1020 ft: 3497 corp: 60/9Kb lim: 400\n\
                    stat::number_of_executed_units: 512\nstat::slowest_unit_time_sec:    1\nstat::peak_rss_mb: 413\n";
        assert_eq!(figures(told), ["512", "3497", "60/9Kb", "1 s", "413 MiB"]);
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
