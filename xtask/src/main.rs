//! The developer's commands: `cargo xtask try | test | lint | no-std | dist | deb | deny | sample | coverage | mutants | miri | tsan
//! | fuzz | crash | schedules | stress | judge | databases | failover | upgrade | upgrade-from | upgrade-bench | bench-judges | matrix | types
//! | alternate | check-crash | check-mutants | check-super-block | build-campaign | world | new-driver | kernel | package`.
//!
//! Each command installs the Debian packages that it requires, if it may (root and `apt-get`). Otherwise it names them.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use xshell::Shell;

use timed::Taken;

mod campaign;
mod circles;
mod corpus;
mod counted;
mod coverage;
mod crates;
mod deb;
mod demo;
mod deny;
mod dist;
mod earlier;
mod fuzz;
mod kernel;
mod lint;
mod mutants;
mod new_driver;
mod no_std;
mod package;
mod packages;
mod programs;
mod proof;
mod python;
mod sample;
mod sanitize;
mod schedules;
mod test;
mod timed;
mod tokens;
mod type_names;
mod words;
mod world;

/// Developer's commands of obento.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build obento and read the sample image.
    Try,
    /// Run all tests, with the programs that verify results.
    Test(test::Options),
    /// Check formatting, words, clippy's warnings and the documentation.
    Lint,
    /// Prove that the core builds without the standard library, and that the proof can fail.
    NoStd,
    /// Build one static program, `dist/obento`, or that for another machine.
    Dist(dist::Options),
    /// Build a Debian package, and install, run and purge it in a clean Debian.
    Deb(deb::Options),
    /// Check the licences, sources and versions of the crates of other projects.
    Deny,
    /// Generate the sample image and the seed of the fuzz targets (requires root).
    Sample,
    /// Measure which lines of the drivers, the journal, the cache and `vfs` the tests run.
    Coverage(coverage::Options),
    /// Measure which changes of the code no test detects.
    Mutants(mutants::Options),
    /// Run the supported tests under Miri.
    Miri(sanitize::Options),
    /// Run the multithreaded tests under ThreadSanitizer.
    Tsan(sanitize::Options),
    /// Fuzz all decoders.
    Fuzz(fuzz::Options),
    /// Test power failures of ext4, FAT, exFAT and xv6 volumes, and then the failure of every single request.
    Crash(proof::CrashOptions),
    /// Test many thread schedules of the transactions, the tables of `vfs`, and ext4.
    Schedules(schedules::Options),
    /// Run the loads of mounts at full size.
    Stress(proof::StressOptions),
    /// Compare a mount of obento with the kernel's by pjdfstest, fsx, fio and stress-ng (requires root).
    Judge(proof::JudgeOptions),
    /// Run PostgreSQL and SQLite on a mount, kill its server, and look for lost transactions (requires root).
    Databases,
    /// Kill the server of a mount again and again while programs use the mount, with `-o failover`.
    Failover(proof::FailoverOptions),
    /// Replace the server of a mount again and again while programs use it.
    Upgrade(proof::UpgradeOptions),
    /// Replace the server of a mount by that of an earlier version, which is built from the history, and back.
    UpgradeFrom(earlier::Options),
    /// Measure how long a program waits while the server of its mount is replaced, on an idle machine.
    UpgradeBench(proof::UpgradeOptions),
    /// Compare `obento bench` with fio and bonnie++, on an idle machine (requires root).
    BenchJudges,
    /// Test all drivers with all hosts and cases, and write docs/matrix.md (requires root).
    Matrix,
    /// Test every type of the kernel engine against docs/engine.md, and generate its table (requires root).
    Types,
    /// Let the kernel and obento change images in turn (requires root).
    Alternate(proof::AlternateOptions),
    /// Test power failures at every write of repairs, and repair the result.
    CheckCrash,
    /// Compare check and repair of randomly damaged images with e2fsck, fsck.fat and fsck.exfat.
    CheckMutants(proof::MutantOptions),
    /// Flip every bit of the super block of ext2, ext3 and ext4, and compare the repair with that of e2fsck.
    CheckSuperBlock(proof::BitOptions),
    /// Create a repository for a driver of your own.
    NewDriver(new_driver::Options),
    /// Build obento's file systems as a Linux kernel module, and test it in a kernel.
    Kernel(kernel::Options),
    /// Package the crates on which drivers outside of this repository depend, and build them from the packages.
    Package,
    /// Build images of a Debian root and the source of Linux, and check them with e2fsck and the kernel (requires
    /// root).
    BuildCampaign(campaign::Options),
    /// Compare obento with other tools on the test files of other projects (requires root).
    World(world::Options),
}

fn main() -> ExitCode {
    if let Some(ended) = counted::compile() {
        return ended;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let shell = Shell::new()?;
    shell.change_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    match Arguments::parse().command {
        Task::Try => demo::run(&shell),
        Task::Test(options) => test::run(&shell, &options),
        Task::Lint => lint::run(&shell),
        Task::NoStd => no_std::run(&shell),
        Task::Dist(options) => dist::run(&shell, &options),
        Task::Deb(options) => deb::run(&shell, &options),
        Task::Deny => deny::run(&shell),
        Task::Sample => sample::run(&shell).and_then(|()| sample::fuzz_seed(&shell)),
        Task::Coverage(options) => coverage::run(&shell, &options, Vec::new(), &mut Taken::default()),
        Task::Mutants(options) => mutants::run(&shell, &options),
        Task::Miri(options) => sanitize::miri(&shell, &options),
        Task::Tsan(options) => sanitize::tsan(&shell, &options),
        Task::Fuzz(options) => fuzz::run(&shell, &options),
        Task::Crash(options) => proof::crash(&shell, &options),
        Task::Schedules(options) => schedules::run(&shell, &options),
        Task::Judge(options) => proof::judge(&shell, &options),
        Task::Databases => proof::databases(&shell),
        Task::Failover(options) => proof::failover(&shell, &options),
        Task::Upgrade(options) => proof::upgrade(&shell, &options),
        Task::UpgradeFrom(options) => earlier::run(&shell, &options),
        Task::UpgradeBench(options) => proof::upgrade_bench(&shell, &options),
        Task::BenchJudges => proof::bench_judges(&shell),
        Task::Stress(options) => proof::stress(&shell, &options),
        Task::Matrix => proof::matrix(&shell),
        Task::Types => proof::types(&shell),
        Task::Alternate(options) => proof::alternate(&shell, &options),
        Task::CheckCrash => proof::check_crash(&shell),
        Task::CheckMutants(options) => proof::check_mutants(&shell, &options),
        Task::CheckSuperBlock(options) => proof::check_super_block(&shell, &options),
        Task::NewDriver(options) => new_driver::run(&options),
        Task::Kernel(options) => kernel::run(&shell, &options),
        Task::Package => package::run(&shell),
        Task::BuildCampaign(options) => campaign::run(&shell, &options),
        Task::World(options) => world::run(&shell, &options),
    }
}
