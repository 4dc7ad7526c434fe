//! The long proofs: cuts of the power, faults of the device, turns taken with the kernel, and damage that is mended.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use xshell::{Shell, cmd};

use crate::coverage;
use crate::packages::{self, Package};
use crate::programs::{self, Program};

const ORACLES: &[Package] = &[("/sbin/mke2fs", "e2fsprogs")];
const FORMATS: &[Package] = &[
    ("/sbin/mke2fs", "e2fsprogs"),
    ("/sbin/mkfs.fat", "dosfstools"),
    ("/usr/bin/mcopy", "mtools"),
    ("/sbin/mkfs.exfat", "exfatprogs"),
];

/// How far to go.
#[derive(clap::Args)]
pub struct CrashOptions {
    /// Different disks to judge, of each format.
    #[arg(long, default_value_t = 200_000)]
    states: u64,
    /// Go on for so many minutes in all, shared by the formats, in place of a number of disks. Building is not counted, and the faults
    /// of the device are left out, which take as long as they take.
    #[arg(long)]
    minutes: Option<u64>,
    /// All plans of one and of two operations with every placement of what makes them durable, in place of a number of disks; without the
    /// faults of the device.
    #[arg(long, conflicts_with = "minutes")]
    sequences: bool,
    /// Take the programs that `cargo xtask test --full` built, in place of a release: slower, but nothing is left to build.
    #[arg(long)]
    counted: bool,
    /// One format alone: ext4, fat, exfat or xv6.
    #[arg(long)]
    only: Option<String>,
    /// What plans and samples are drawn by.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A folder that keeps which disks were tried, so that campaigns add up and none counts twice.
    #[arg(long)]
    seen: Option<PathBuf>,
    /// One state alone, by the name that a failure printed, with or without `OBENTO_CRASH=`; or all cases whose name has this in it.
    name: Option<String>,
}

/// The crates whose volumes are cut, and their campaigns.
const CUT: [(&str, &str); 4] = [
    ("ext4", "campaign_over_all_shapes_and_modes"),
    ("fat", "campaign_over_short_and_random_plans"),
    ("exfat", "campaign_over_short_and_random_plans"),
    ("xv6", "campaign_over_short_and_random_plans"),
];

/// Those whose every request is made to fail.
const FAULTS: [&str; 4] = ["ext4", "fat", "exfat", "xv6"];

/// What a campaign came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Count {
    /// Different disks.
    states: u64,
    /// The same with those of earlier campaigns, where these are kept.
    all: u64,
    /// Those that were refused.
    lost: u64,
    /// Plans and cases that were done.
    plans: u64,
}

impl Count {
    /// As `campaign::long` of the testkit tells it.
    fn told(said: &str) -> Option<Self> {
        let line = said.lines().find(|line| line.contains(" different disks, "))?;
        let states = line.split_once(' ')?.0.parse().ok()?;
        let lost = line.rsplit_once("; ")?.1.strip_suffix(" lost")?.parse().ok()?;
        let plans = line.split_once(" windows, ")?.1.split_once(" plans")?.0.parse().ok()?;
        let all = said
            .lines()
            .find_map(|line| line.strip_suffix(" different disks with those of the campaigns before"));
        let all = all.map_or(Ok(states), str::parse).ok()?;
        Some(Self { states, all, lost, plans })
    }
}

/// What a format says that has no case of the name that was asked for.
const UNKNOWN: &str = "no case is called ";

/// Runs the campaigns of the crash explorer, and with neither a name, `--minutes` nor `--sequences` those of the fault device.
pub fn crash(shell: &Shell, options: &CrashOptions) -> Result<()> {
    packages::ensure(shell, FORMATS)?;
    let _states = shell.push_env("OBENTO_CRASH_STATES", options.states.to_string());
    let _seed = shell.push_env("OBENTO_CRASH_SEED", options.seed.to_string());
    let name = options.name.as_deref().map(|name| name.strip_prefix("OBENTO_CRASH=").unwrap_or(name));
    let _name = name.map(|name| shell.push_env("OBENTO_CRASH", name));
    let is_meant = |format: &str| options.only.as_deref().is_none_or(|only| only == format);
    let cut: Vec<_> = CUT.into_iter().filter(|(format, _)| is_meant(format)).collect();
    ensure!(!cut.is_empty(), "no format is called {:?}", options.only);
    let seconds = options.minutes.map(|minutes| (60 * minutes / cut.len() as u64).to_string());
    let _seconds = seconds.map(|seconds| shell.push_env("OBENTO_CRASH_SECONDS", seconds));
    let _sequences = options.sequences.then(|| shell.push_env("OBENTO_CRASH_SEQUENCES", "1"));
    // What states are made of is allocated and freed a million times: glibc is to keep such pieces, and not to map each anew.
    let _mapped = shell.push_env("MALLOC_MMAP_THRESHOLD_", (64 << 20).to_string());
    let _trimmed = shell.push_env("MALLOC_TRIM_THRESHOLD_", (256 << 20).to_string());
    if let Some(folder) = &options.seen {
        shell.create_dir(folder)?;
    }
    let built = if options.counted {
        coverage::build_all(shell)?
    } else {
        // In one go: what they share is built with the same features then, and once.
        let packages: Vec<_> =
            cut.iter().flat_map(|(format, _)| ["-p".into(), format!("obento-{format}")]).collect();
        let built =
            cmd!(shell, "cargo test --release --no-run --message-format=json {packages...} --test crash");
        Program::built(&built.read()?)?
    };
    let _uncounted = shell.push_env("LLVM_PROFILE_FILE", "/dev/null");
    let (mut told, mut known) = (Vec::new(), 0);
    for (format, campaign) in cut {
        let program = programs::find(&built, format, "crash").context("cargo tells what it built")?;
        let seen = options.seen.as_ref().map(|folder| shell.current_dir().join(folder).join(format));
        let _seen = seen.map(|seen| shell.push_env("OBENTO_CRASH_SEEN", seen));
        let said = cmd!(shell, "{program} --ignored --nocapture {campaign}").ignore_status().read()?;
        if said.lines().any(|line| line.starts_with(UNKNOWN)) {
            continue;
        }
        println!("{said}");
        known += 1;
        match Count::told(&said) {
            Some(count) => told.push(count),
            // A case or a state alone, which counts nothing.
            None if name.is_some() => {
                ensure!(said.contains("test result: ok."), "it was refused, or is not there")
            }
            None => bail!("the campaign on {format} did not end"),
        }
    }
    ensure!(known > 0, "no format has a case of the name {:?}", name.unwrap_or_default());
    let all = told.iter().fold(Count::default(), |all, one| Count {
        states: all.states + one.states,
        all: all.all + one.all,
        lost: all.lost + one.lost,
        plans: all.plans + one.plans,
    });
    if !told.is_empty() {
        println!("{} states, {} with those of the campaigns before; {} lost", all.states, all.all, all.lost);
    }
    ensure!(all.lost == 0, "what a cut left was refused");
    let is_part = name.is_some();
    ensure!(
        !is_part || all.plans > 0 || told.len() < known,
        "no case has {:?} in its name",
        name.unwrap_or_default()
    );
    let is_bounded = is_part || options.minutes.is_some() || options.sequences;
    for format in FAULTS.into_iter().filter(|format| !is_bounded && is_meant(format)) {
        let package = format!("obento-{format}");
        cmd!(
            shell,
            "cargo test --release -p {package} --test faults -- --ignored --nocapture every_single_request_fails_in_turn"
        )
        .run()?;
    }
    Ok(())
}

const MOUNTING: &[Package] = &[
    ("/sbin/mke2fs", "e2fsprogs"),
    ("/usr/bin/fusermount3", "fuse3"),
    ("/usr/bin/git", "git"),
    ("/usr/bin/fio", "fio"),
    ("/usr/bin/stress-ng", "stress-ng"),
];

/// How far to go.
#[derive(clap::Args)]
pub struct StressOptions {
    /// Minutes of all loads at once.
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// Only what has this in its name: `stress::`, `judges::`, `together::`, or one test.
    #[arg(long)]
    only: Option<String>,
}

/// Installs the judges that are no Debian packages. They are found for as long as the answer lives.
fn with_judges(shell: &Shell) -> Result<xshell::PushEnv<'_>> {
    let tools = shell.current_dir().join("target/judges");
    cmd!(shell, "cargo install --locked --quiet --root {tools} pjdfstest@0.2.0 fsx@0.3.2").run()?;
    let path = std::env::var("PATH").unwrap_or_default();
    Ok(shell.push_env("PATH", format!("{}:{path}", tools.join("bin").display())))
}

/// What to ask, and how much.
#[derive(clap::Args)]
pub struct JudgeOptions {
    /// One judge alone: pjdfstest, fsx, fio or stress-ng.
    judge: Option<String>,
    /// A twentieth of it, which docs/judges.md does not tell of.
    #[arg(long)]
    quick: bool,
}

/// Has programs judge a mount of ours and the kernel's ext4 side by side, and writes docs/judges.md. Takes root.
pub fn judge(shell: &Shell, options: &JudgeOptions) -> Result<()> {
    packages::ensure(shell, MOUNTING)?;
    let _path = with_judges(shell)?;
    let _judge = options.judge.as_ref().map(|judge| shell.push_env("OBENTO_JUDGE", judge));
    let _scale = (!options.quick)
        .then(|| (shell.push_env("OBENTO_STRESS", "whole"), shell.push_env("OBENTO_WRITE_JUDGES", "1")));
    cmd!(shell, "cargo test --release -p obento-cli --test mount -- --include-ignored --nocapture judges::")
        .run()?;
    Ok(())
}

/// Runs the workloads of fio and bonnie++ by them and by the laboratory, and compares the figures. Takes root, an idle machine and 10 GiB
/// of temporary space.
pub fn bench_judges(shell: &Shell) -> Result<()> {
    packages::ensure(
        shell,
        &[("/usr/bin/fio", "fio"), ("/usr/sbin/bonnie++", "bonnie++"), ("/sbin/mke2fs", "e2fsprogs")],
    )?;
    let _require = shell.push_env("OBENTO_REQUIRE_ORACLES", "1");
    cmd!(
        shell,
        "cargo test --release -p obento-cli --test bench_judges -- --ignored --nocapture --test-threads=1"
    )
    .run()?;
    Ok(())
}

/// Runs the loads of mounts in their whole size, one after the other and all at once, and the programs that judge file
/// systems: 8 GiB of temporary space.
pub fn stress(shell: &Shell, options: &StressOptions) -> Result<()> {
    packages::ensure(shell, MOUNTING)?;
    let _path = with_judges(shell)?;
    let _scale = shell.push_env("OBENTO_STRESS", "whole");
    let _minutes = shell.push_env("OBENTO_STRESS_MINUTES", options.minutes.to_string());
    let parts = ["judges::", "stress::", "together::"];
    for tests in options.only.as_deref().map_or(parts.to_vec(), |only| vec![only]) {
        cmd!(
            shell,
            "cargo test --release -p obento-cli --test mount -- --include-ignored --nocapture --test-threads=1 {tests}"
        )
        .run()?;
    }
    Ok(())
}

/// Prints driver x host x case, and writes `docs/matrix.md` (takes root, for owners).
pub fn matrix(shell: &Shell) -> Result<()> {
    packages::ensure(shell, &[("/usr/bin/fusermount3", "fuse3")])?;
    let _write = shell.push_env("OBENTO_WRITE_MATRIX", "1");
    let _require = shell.push_env("OBENTO_REQUIRE_ORACLES", "1");
    cmd!(shell, "cargo test -p obento-cli --test mount -- --nocapture matrix::").run()?;
    Ok(())
}

/// Reads, writes and holds to the contract every type of the kernel engine, and writes what passed into docs/engine.md (takes root,
/// for owners).
pub fn types(shell: &Shell) -> Result<()> {
    packages::ensure(shell, crate::test::ORACLES)?;
    let _require = shell.push_env("OBENTO_REQUIRE_ORACLES", "1");
    let folder = shell.current_dir().join("target/types-passed");
    shell.remove_path(&folder)?;
    shell.create_dir(&folder)?;
    {
        let _passed = shell.push_env("OBENTO_PASSED", &folder);
        cmd!(shell, "cargo test -p obento-linux --test types -- contract::").run()?;
        cmd!(shell, "cargo test -p obento-cli --test engine -- reading:: writing::").run()?;
        cmd!(shell, "cargo test -p obento-linux --test types -- table::").run()?;
    }
    // Volumes of each type that are damaged at random, opened, walked and changed.
    cmd!(shell, "cargo test -p obento-linux --test types -- --ignored --nocapture damaged::").run()?;
    // What did not run is not in the page, which this one notices.
    cmd!(shell, "cargo test -p obento-linux --test types -- table::").run()?;
    Ok(())
}

/// How far to go.
#[derive(clap::Args)]
pub struct AlternateOptions {
    /// Rounds on each combination of features: a turn of one side, judged by the other and by e2fsck.
    #[arg(long, default_value_t = 1000)]
    rounds: u64,
    /// What the operations are drawn by.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One combination alone.
    #[arg(long)]
    only: Option<String>,
}

/// Lets the kernel and obento change images in turn.
pub fn alternate(shell: &Shell, options: &AlternateOptions) -> Result<()> {
    packages::ensure(shell, ORACLES)?;
    let _rounds = shell.push_env("OBENTO_ROUNDS", options.rounds.to_string());
    let _seed = shell.push_env("OBENTO_SEED", options.seed.to_string());
    let _only = options.only.as_ref().map(|only| shell.push_env("OBENTO_ONLY", only));
    cmd!(
        shell,
        "cargo test --release -p obento-ext4 --test alternate -- --ignored --nocapture the_kernel_and_obento_change_images_of_every_combination_in_turn"
    )
    .run()?;
    Ok(())
}

/// Cuts the power at every write of repairs.
pub fn check_crash(shell: &Shell) -> Result<()> {
    packages::ensure(shell, ORACLES)?;
    cmd!(
        shell,
        "cargo test --release -p obento-ext4 --test check_crash -- --ignored --nocapture campaign_over_many_cuts_of_repairs"
    )
    .run()?;
    Ok(())
}

/// Which volumes have their bits flipped.
#[derive(clap::Args)]
pub struct BitOptions {
    /// One shape of volume alone.
    #[arg(long)]
    only: Option<String>,
}

/// Flips every bit of the super block, and compares the repair with that of e2fsck. As root the kernel mounts a sample.
pub fn check_super_block(shell: &Shell, options: &BitOptions) -> Result<()> {
    packages::ensure(shell, ORACLES)?;
    let _only = options.only.as_ref().map(|only| shell.push_env("OBENTO_ONLY", only));
    cmd!(
        shell,
        "cargo test --release -p obento-ext4 --test check_super_block -- --ignored --nocapture campaign_over_every_bit"
    )
    .run()?;
    Ok(())
}

/// How far to go.
#[derive(clap::Args)]
pub struct MutantOptions {
    /// Check one format only: ext4, fat or exfat.
    #[arg(long)]
    format: Option<String>,
    /// Mutants of each base image.
    #[arg(long, default_value_t = 1000)]
    mutants: u64,
    /// The first one's seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Check one base image of the format only.
    #[arg(long, requires = "format")]
    only: Option<String>,
    /// One kind of damage of ext4 alone, in place of what the seed draws.
    #[arg(long, requires = "format")]
    harm: Option<String>,
    /// Correct every checksum of an ext4 after the damage, and compare names too.
    #[arg(long)]
    sealed: bool,
}

/// The crates whose checks are compared with the checker of their format.
const CHECKED: [&str; 3] = ["ext4", "fat", "exfat"];

/// Compares the checks of volumes that were damaged at random with e2fsck, `fsck.fat` and `fsck.exfat`. FAT and exFAT also have each bit of
/// their boot sectors flipped.
pub fn check_mutants(shell: &Shell, options: &MutantOptions) -> Result<()> {
    packages::ensure(shell, FORMATS)?;
    let _mutants = shell.push_env("OBENTO_MUTANTS", options.mutants.to_string());
    let _seed = shell.push_env("OBENTO_SEED", options.seed.to_string());
    let _only = options.only.as_ref().map(|only| shell.push_env("OBENTO_ONLY", only));
    let _harm = options.harm.as_ref().map(|harm| shell.push_env("OBENTO_HARM", harm));
    let _sealed = options.sealed.then(|| shell.push_env("OBENTO_SEALED", "1"));
    let is_meant = |format: &str| options.format.as_deref().is_none_or(|meant| meant == format);
    let meant: Vec<_> = CHECKED.into_iter().filter(|format| is_meant(format)).collect();
    ensure!(!meant.is_empty(), "no format is called {:?}", options.format);
    for format in meant {
        let package = format!("obento-{format}");
        let campaign = if options.only.is_some() { "campaign_over_many_mutants" } else { "campaign_over_" };
        cmd!(
            shell,
            "cargo test --release -p {package} --test check_mutants -- --ignored --nocapture {campaign}"
        )
        .run()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_campaign_that_did_not_end_counts_for_nothing_and_one_that_did_for_what_it_tells() {
        let said = "seed 1\n320 different disks, 400 judgements, 9 windows, 7 plans (3 of the 60 sequences of two gone through), 0.1 minutes; 2 lost\nok";
        assert_eq!(Count::told(said), Some(Count { states: 320, all: 320, lost: 2, plans: 7 }));
        let again = format!("{said}\n1000 different disks with those of the campaigns before");
        assert_eq!(Count::told(&again), Some(Count { states: 320, all: 1000, lost: 2, plans: 7 }));
        let sequences = "9 of 9 sequences of one and two operations\n50 different disks, 60 judgements, 9 windows, 9 plans, 0.1 minutes; 0 lost";
        assert_eq!(Count::told(sequences), Some(Count { states: 50, all: 50, lost: 0, plans: 9 }));
        assert_eq!(Count::told("running 1 test"), None);
    }
}
