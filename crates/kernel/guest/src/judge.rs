//! Derives the disks that a power failure could leave from the log of a disk in a guest, and checks them by the rules of
//! the crash explorer: `obento-kernel-judge LOG BASE DATA-MODE OUTPUT [PLAN [STATE]]`.
//!
//! `BASE` is the volume before each plan, `OUTPUT` the text that the guest printed. With `PLAN`, only this plan is judged,
//! and with `STATE`, only this state. The last line is the number of states. The exit code is 1 if a power cut loses data,
//! and another one than 0 and 1 if a plan could not be judged.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use obento_block::BlockDevice;
use obento_driver::{Access, DataMode, Driver as _, Journalling, OpenOptions};
use obento_env::Clock;
use obento_ext4::Ext4Driver;
use obento_testkit::crash::volume::Subject;
use obento_testkit::crash::{Options, SeenStates, StateName, Summary};
use obento_testkit::oracle::call;
use obento_testkit::plan::{Plan, catalogue};
use obento_testkit::record::Event;
use obento_testkit::{trials, write_log};

/// A torn super block cannot be distinguished from a damaged one, so it is never torn.
const SUPER_BLOCK: std::ops::Range<u64> = 1024..2048;
/// One of this number of states is also checked by `e2fsck`, and cut again during its recovery.
const SECOND: u64 = 50;

/// The exit code if a plan could not be judged.
const NOT_JUDGED: u8 = 2;

/// The error numbers of each plan by the number of the operation.
type Errors = BTreeMap<String, BTreeMap<usize, i32>>;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(NOT_JUDGED)
        }
    }
}

fn run() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [log, base, mode, output, only @ ..] = &arguments[..] else {
        bail!("usage: LOG BASE DATA-MODE OUTPUT [PLAN [STATE]]")
    };
    let state = only.get(1).map(|name| name.parse::<StateName>()).transpose()?;
    let base: Arc<[u8]> = fs::read(base)?.into();
    let mode_name = mode.as_str();
    let mode = match mode_name {
        "ordered" => DataMode::Ordered,
        "journal" => DataMode::Journal,
        "writeback" => DataMode::Writeback,
        other => bail!("unknown data mode '{other}'"),
    };
    // Without e2fsck, each state that it checks would look like a loss.
    call("e2fsck", ["-V"])?;
    let errors = errors(&fs::read_to_string(output)?);
    let events = write_log::read(BufReader::new(File::open(log)?), base.len() as u64)?;
    let logs = write_log::parts(events)?;
    let plans = catalogue::of_kernel(mode_name);
    ensure!(logs.len() == plans.len(), "the log has {} plans instead of {}", logs.len(), plans.len());
    let is_asked = |plan: &Plan| only.first().is_none_or(|name| *name == plan.name);
    let (mut count, mut judged, mut failed, mut unjudged) = (0, 0, 0, 0);
    for (plan, events) in plans.iter().zip(logs).filter(|(plan, _)| is_asked(plan)) {
        count += 1;
        let judge = || judge(plan, &base, mode, events, &errors, state);
        match catch_unwind(AssertUnwindSafe(judge)).unwrap_or_else(|_| Err("a panic".into())) {
            Ok(summary) => {
                summary.failures.iter().for_each(|failure| println!("{}: {failure}\n{plan}", plan.name));
                judged += summary.judged;
                failed += summary.failures.len();
            }
            Err(reason) => {
                println!("{}: not judged: {reason}\n{plan}", plan.name);
                unjudged += 1;
            }
        }
    }
    println!("{count} plans, {judged} states, {failed} failures, {unjudged} plans not judged");
    Ok(match (failed, unjudged) {
        (0, 0) if judged > 0 => ExitCode::SUCCESS,
        (0, _) => ExitCode::from(NOT_JUDGED),
        _ => ExitCode::FAILURE,
    })
}

/// Returns the errors that the guest printed. If a line was damaged by another message of the kernel, the missing mark
/// after the operation shows that it failed.
fn errors(output: &str) -> Errors {
    let mut errors = Errors::new();
    for line in output.lines().filter_map(|line| line.trim().strip_prefix("cuts: ")) {
        let mut words = line.splitn(3, ": ");
        if let (Some(plan), Some(Ok(number)), Some(Ok(errno))) =
            (words.next(), words.next().map(str::parse), words.next().map(str::parse))
        {
            errors.entry(plan.to_owned()).or_default().insert(number, errno);
        }
    }
    errors
}

/// Checks the states of a plan, or only `state`. Fails with the reason if the log or the results are not those of the
/// plan.
fn judge(
    plan: &Plan,
    base: &Arc<[u8]>,
    data: DataMode,
    events: Vec<Event>,
    errors: &Errors,
    state: Option<StateName>,
) -> Result<Summary, String> {
    let open = move |device: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>| {
        let journalling = Journalling { mode: data, ..Journalling::default() };
        let access = Access::ReadWrite;
        Ext4Driver
            .open(device, &OpenOptions { access, cache: 2 << 20, journalling, ..OpenOptions::new(clock) })
    };
    let subject = Subject {
        open: &open,
        check: &|device, _| trials::check(&Ext4Driver, device),
        second: &e2fsck,
        second_every: SECOND,
        recovery_every: SECOND,
        data,
    };
    let none = BTreeMap::new();
    let errors = errors.get(&plan.name).unwrap_or(&none);
    let recording = subject.recorded_by_host(base, plan, events, errors)?;
    let options = Options { whole: SUPER_BLOCK, ..Options::new(1) };
    let options = state.map_or(options.clone(), |state| options.with_only(state));
    Ok(subject.explore(&recording, &options, &SeenStates::default()))
}

fn e2fsck(device: &dyn BlockDevice) -> Result<(), String> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).map_err(|error| error.to_string())?;
    let image = tempfile::NamedTempFile::new_in("/dev/shm").map_err(|error| error.to_string())?;
    fs::write(image.path(), bytes).map_err(|error| error.to_string())?;
    call("e2fsck", ["-fn".as_ref(), image.path().as_os_str()]).map(drop).map_err(|error| format!("{error:#}"))
}
