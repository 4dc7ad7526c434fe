//! The long tests: power failures, device errors, changes in turn with the kernel, and repairs of damaged volumes.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use xshell::{Shell, cmd};

use crate::packages::{self, Package};
use crate::programs::{self, Program};
use crate::{coverage, crates};

const ORACLES: &[Package] = &[("/sbin/mke2fs", "e2fsprogs")];
const FORMATS: &[Package] = &[
    ("/sbin/mke2fs", "e2fsprogs"),
    ("/sbin/mkfs.fat", "dosfstools"),
    ("/usr/bin/mcopy", "mtools"),
    ("/sbin/mkfs.exfat", "exfatprogs"),
];

/// The size of the campaigns.
#[derive(clap::Args)]
pub struct CrashOptions {
    /// Number of different disks to check for each format.
    #[arg(long, default_value_t = 200_000)]
    states: u64,
    /// Run for this many minutes in total, shared by the formats, instead of a number of disks. Building does not
    /// count, and the device errors are skipped.
    #[arg(long)]
    minutes: Option<u64>,
    /// Run all plans of one and of two operations with every placement of syncs, instead of a number of disks. The
    /// device errors are skipped.
    #[arg(long, conflicts_with = "minutes")]
    sequences: bool,
    /// Use the programs that `cargo xtask test --full` built, instead of a release build: slower, but without building.
    #[arg(long)]
    counted: bool,
    /// Test only this format: ext4, fat, exfat or xv6.
    #[arg(long)]
    only: Option<String>,
    /// Seed of the plans and samples.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder that records the tested disks, so that several campaigns together test no disk twice.
    #[arg(long)]
    seen: Option<PathBuf>,
    /// Check only the state with the name that a failure printed, with or without `OBENTO_CRASH=`; or all cases whose
    /// name contains this.
    name: Option<String>,
}

/// The result of a campaign.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Count {
    /// The number of different disks.
    states: u64,
    /// The number with those of earlier campaigns, if they are recorded.
    all: u64,
    /// The number of disks that failed the check.
    lost: u64,
    /// The number of completed plans and cases.
    plans: u64,
}

impl Count {
    /// Parses the line that `campaign::long` of the testkit prints.
    fn reported(said: &str) -> Option<Self> {
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

/// The message of a format without a case of the given name.
const UNKNOWN: &str = "no case is called ";

/// Runs the crash campaigns. Without a name, `--minutes` and `--sequences`, also runs the tests of device errors.
pub fn crash(shell: &Shell, options: &CrashOptions) -> Result<()> {
    packages::ensure(shell, FORMATS)?;
    let _states = shell.push_env("OBENTO_CRASH_STATES", options.states.to_string());
    let _seed = shell.push_env("OBENTO_CRASH_SEED", options.seed.to_string());
    let name = options.name.as_deref().map(|name| name.strip_prefix("OBENTO_CRASH=").unwrap_or(name));
    let _name = name.map(|name| shell.push_env("OBENTO_CRASH", name));
    let is_meant = |format: &str| options.only.as_deref().is_none_or(|only| only == format);
    let crates = crates::all(shell)?;
    let campaigns = crates.iter().filter_map(|one| Some((one.name(), one.crash.as_ref()?)));
    let cut: Vec<_> = campaigns.filter(|(format, _)| is_meant(format)).collect();
    ensure!(!cut.is_empty(), "no format is called {:?}", options.only);
    let seconds = options.minutes.map(|minutes| (60 * minutes / cut.len() as u64).to_string());
    let _seconds = seconds.map(|seconds| shell.push_env("OBENTO_CRASH_SECONDS", seconds));
    let _sequences = options.sequences.then(|| shell.push_env("OBENTO_CRASH_SEQUENCES", "1"));
    // The campaign allocates and frees the same sizes a million times, so glibc must not map each block separately.
    let _mapped = shell.push_env("MALLOC_MMAP_THRESHOLD_", (64 << 20).to_string());
    let _trimmed = shell.push_env("MALLOC_TRIM_THRESHOLD_", (256 << 20).to_string());
    if let Some(folder) = &options.seen {
        shell.create_dir(folder)?;
    }
    let built = if options.counted {
        // The programs of `cargo xtask test --full`: those of measured packages, and the others.
        [coverage::build_all(shell)?, coverage::build_others(shell)?].concat()
    } else {
        // All programs are built at once, so that common crates are built once and with the same features.
        let packages: Vec<_> =
            cut.iter().flat_map(|(format, _)| ["-p".into(), format!("obento-{format}")]).collect();
        let built =
            cmd!(shell, "cargo test --release --no-run --message-format=json {packages...} --test crash");
        Program::built(&built.read()?)?
    };
    let _uncounted = shell.push_env("LLVM_PROFILE_FILE", "/dev/null");
    let (mut reported, mut known) = (Vec::new(), 0);
    for (format, campaign) in cut {
        let program = programs::find(&built, format, "crash")
            .with_context(|| format!("cargo has built no program 'crash' of {format}"))?;
        let seen = options.seen.as_ref().map(|folder| shell.current_dir().join(folder).join(format));
        let _seen = seen.map(|seen| shell.push_env("OBENTO_CRASH_SEEN", seen));
        let said = cmd!(shell, "{program} --ignored --nocapture {campaign}").ignore_status().read()?;
        if said.lines().any(|line| line.starts_with(UNKNOWN)) {
            continue;
        }
        println!("{said}");
        known += 1;
        match Count::reported(&said) {
            Some(count) => reported.push(count),
            // A single case or state is not counted.
            None if name.is_some() => {
                ensure!(said.contains("test result: ok."), "the check failed, or the state does not exist")
            }
            None => bail!("the campaign on {format} did not end"),
        }
    }
    ensure!(known > 0, "no format has a case of the name {:?}", name.unwrap_or_default());
    let all = reported.iter().fold(Count::default(), |all, one| Count {
        states: all.states + one.states,
        all: all.all + one.all,
        lost: all.lost + one.lost,
        plans: all.plans + one.plans,
    });
    if !reported.is_empty() {
        println!("{} states, {} with those of the campaigns before; {} lost", all.states, all.all, all.lost);
    }
    ensure!(all.lost == 0, "a disk failed the check after a power failure");
    let is_part = name.is_some();
    ensure!(
        !is_part || all.plans > 0 || reported.len() < known,
        "no case has {:?} in its name",
        name.unwrap_or_default()
    );
    let is_bounded = is_part || options.minutes.is_some() || options.sequences;
    for one in crates.iter().filter(|one| one.faults && !is_bounded && is_meant(one.name())) {
        let package = &one.package;
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

const POSTGRESQL: &[Package] =
    &[("/usr/lib/postgresql/15/bin/postgres", "postgresql-15"), ("/usr/bin/pgrep", "procps")];

/// The size of the loads.
#[derive(clap::Args)]
pub struct StressOptions {
    /// Duration of all loads together, in minutes.
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// Run only tests whose name contains this: `stress::`, `judges::`, `together::`, or one test.
    #[arg(long)]
    only: Option<String>,
}

/// Installs the judges that are not Debian packages. They are in the path until the returned value is dropped.
fn with_judges(shell: &Shell) -> Result<xshell::PushEnv<'_>> {
    let tools = shell.current_dir().join("target/judges");
    cmd!(shell, "cargo install --locked --quiet --root {tools} pjdfstest@0.2.0 fsx@0.3.2").run()?;
    let path = std::env::var("PATH").unwrap_or_default();
    Ok(shell.push_env("PATH", format!("{}:{path}", tools.join("bin").display())))
}

/// The judges to run.
#[derive(clap::Args)]
pub struct JudgeOptions {
    /// Run only this judge: pjdfstest, fsx, fio or stress-ng.
    judge: Option<String>,
    /// Run a twentieth, and do not write docs/judges.md.
    #[arg(long)]
    quick: bool,
}

/// Runs programs that compare a mount of obento with the kernel's ext4, and writes docs/judges.md. Requires root.
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

/// Runs the workloads of fio and bonnie++ with these programs and with `obento bench`, and compares the figures.
/// Requires root, an idle machine and 10 GiB of temporary space.
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

/// Runs PostgreSQL and SQLite on a mount whose server is killed again and again. Requires root and 4 GiB of temporary
/// space.
pub fn databases(shell: &Shell) -> Result<()> {
    packages::ensure(shell, MOUNTING)?;
    packages::ensure(shell, POSTGRESQL)?;
    let _scale = shell.push_env("OBENTO_STRESS", "whole");
    let _require = shell.push_env("OBENTO_REQUIRE_ORACLES", "1");
    cmd!(
        shell,
        "cargo test --release -p obento-cli --test mount -- --include-ignored --nocapture databases::"
    )
    .run()?;
    Ok(())
}

/// The options of the replacements of servers.
#[derive(clap::Args)]
pub struct UpgradeOptions {
    /// The number of replacements.
    #[arg(long)]
    count: Option<usize>,
}

/// Replaces the server of a mount 1,000 times while programs use the mount.
pub fn upgrade(shell: &Shell, options: &UpgradeOptions) -> Result<()> {
    packages::ensure(shell, MOUNTING)?;
    let _path = with_judges(shell)?;
    let _count = shell.push_env("OBENTO_UPGRADES", options.count.unwrap_or(1000).to_string());
    let _require = shell.push_env("OBENTO_REQUIRE_ORACLES", "1");
    let tests = ["upgrade::", "living::programs_continue_while_the_server_is_replaced"];
    cmd!(shell, "cargo test --release -p obento-cli --test mount -- --nocapture {tests...}").run()?;
    Ok(())
}

/// The options of the failures of servers.
#[derive(clap::Args)]
pub struct FailoverOptions {
    /// The number of servers that are killed.
    #[arg(long, default_value_t = 200)]
    count: usize,
}

/// Kills the server of a mount 200 times while programs use the mount.
pub fn failover(shell: &Shell, options: &FailoverOptions) -> Result<()> {
    packages::ensure(shell, MOUNTING)?;
    packages::ensure(shell, POSTGRESQL)?;
    let _path = with_judges(shell)?;
    let _count = shell.push_env("OBENTO_FAILOVERS", options.count.to_string());
    let _require = shell.push_env("OBENTO_REQUIRE_ORACLES", "1");
    let tests = [
        "failover::",
        "living::programs_continue_while_the_server_is_killed",
        "postgresql_continues_while_the_server_is_killed",
    ];
    cmd!(
        shell,
        "cargo test --release -p obento-cli --test mount -- --include-ignored --nocapture {tests...}"
    )
    .run()?;
    Ok(())
}

/// Measures the longest wait for a request in 100 replacements of a server, with the image in memory.
pub fn upgrade_bench(shell: &Shell, options: &UpgradeOptions) -> Result<()> {
    packages::ensure(shell, MOUNTING)?;
    let _count = shell.push_env("OBENTO_UPGRADES", options.count.unwrap_or(100).to_string());
    let _memory = shell.push_env("TMPDIR", "/dev/shm");
    let _require = shell.push_env("OBENTO_REQUIRE_ORACLES", "1");
    cmd!(
        shell,
        "cargo test --release -p obento-cli --test mount -- --ignored --exact --nocapture upgrade::the_longest_wait_of_a_program_is_measured"
    )
    .run()?;
    Ok(())
}

/// Runs the loads of mounts at full size, one after the other and together, and then the judges. Requires 8 GiB of
/// temporary space.
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

/// Runs all drivers with all hosts and cases, and writes `docs/matrix.md` (requires root, for owners).
pub fn matrix(shell: &Shell) -> Result<()> {
    packages::ensure(shell, &[("/usr/bin/fusermount3", "fuse3")])?;
    let _module = shell.push_env("OBENTO_MODULE_ENDS", crate::kernel::hosts::page(shell)?);
    let _write = shell.push_env("OBENTO_WRITE_MATRIX", "1");
    let _require = shell.push_env("OBENTO_REQUIRE_ORACLES", "1");
    cmd!(shell, "cargo test -p obento-cli --test mount -- --nocapture matrix::").run()?;
    Ok(())
}

/// Tests reading, writing and the contract for every type of the kernel engine, and writes the results to
/// docs/engine.md (requires root, for owners).
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
    // Randomly damaged volumes of each type are opened, walked and changed.
    cmd!(shell, "cargo test -p obento-linux --test types -- --ignored --nocapture damaged::").run()?;
    // The page lacks the tests that did not run; this test notices that.
    cmd!(shell, "cargo test -p obento-linux --test types -- table::").run()?;
    Ok(())
}

/// The size of a run.
#[derive(clap::Args)]
pub struct AlternateOptions {
    /// Rounds for each combination of features. A round is a turn of one side, checked by the other and by e2fsck.
    #[arg(long, default_value_t = 1000)]
    rounds: u64,
    /// Seed of the operations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Test only this combination.
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

/// Tests power failures at every write of repairs.
pub fn check_crash(shell: &Shell) -> Result<()> {
    packages::ensure(shell, ORACLES)?;
    cmd!(
        shell,
        "cargo test --release -p obento-ext4 --test check_crash -- --ignored --nocapture campaign_over_many_cuts_of_repairs"
    )
    .run()?;
    Ok(())
}

/// The volumes whose bits are flipped.
#[derive(clap::Args)]
pub struct BitOptions {
    /// Test only this kind of volume.
    #[arg(long)]
    only: Option<String>,
}

/// Flips every bit of the super block, and compares the repair with that of e2fsck. As root, the kernel also mounts a
/// sample.
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

/// The size of a run.
#[derive(clap::Args)]
pub struct MutantOptions {
    /// Check only this format: ext4, fat or exfat.
    #[arg(long)]
    format: Option<String>,
    /// Number of mutants of each base image.
    #[arg(long, default_value_t = 1000)]
    mutants: u64,
    /// Seed of the first mutant.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Check only this base image of the format.
    #[arg(long, requires = "format")]
    only: Option<String>,
    /// Apply only this kind of damage to ext4, instead of a random one.
    #[arg(long, requires = "format")]
    harm: Option<String>,
    /// Correct every checksum of an ext4 volume after the damage, and compare names too.
    #[arg(long)]
    sealed: bool,
}

/// The crates whose checks are compared with another checker.
const CHECKED: [&str; 3] = ["ext4", "fat", "exfat"];

/// Compares checks of randomly damaged volumes with e2fsck, `fsck.fat` and `fsck.exfat`. For FAT and exFAT, also flips
/// each bit of the boot sectors.
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
    fn an_incomplete_campaign_is_ignored_and_the_figures_of_a_complete_one_count() {
        let said = "seed 1\n320 different disks, 400 judgements, 9 windows, 7 plans (3 of the 60 sequences of two gone through), 0.1 minutes; 2 lost\nok";
        assert_eq!(Count::reported(said), Some(Count { states: 320, all: 320, lost: 2, plans: 7 }));
        let again = format!("{said}\n1000 different disks with those of the campaigns before");
        assert_eq!(Count::reported(&again), Some(Count { states: 320, all: 1000, lost: 2, plans: 7 }));
        let sequences = "9 of 9 sequences of one and two operations\n50 different disks, 60 judgements, 9 windows, 9 plans, 0.1 minutes; 0 lost";
        assert_eq!(Count::reported(sequences), Some(Count { states: 50, all: 50, lost: 0, plans: 9 }));
        assert_eq!(Count::reported("running 1 test"), None);
    }
}
