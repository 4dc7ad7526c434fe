//! The developer's commands: `cargo xtask try | test | lint | no-std | dist | sample | coverage | mutants | miri | tsan | fuzz | crash |
//! schedules | stress | judge | bench-judges | matrix | types | alternate | check-crash | check-mutants | check-super-block |
//! build-campaign | world | new-driver | package`.
//!
//! Each does its own set-up: what a step needs from Debian it installs when it may (root and `apt-get`), and says so
//! when it may not.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use xshell::Shell;

use timed::Taken;

mod campaign;
mod corpus;
mod coverage;
mod demo;
mod dist;
mod fuzz;
mod lint;
mod mutants;
mod new_driver;
mod no_std;
mod package;
mod packages;
mod programs;
mod proof;
mod sample;
mod sanitize;
mod schedules;
mod test;
mod timed;
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
    /// Build obento and read the sample image with it.
    Try,
    /// Run every test, with the programs that judge them.
    Test(test::Options),
    /// Check formatting, words, clippy's warnings and the documentation.
    Lint,
    /// Prove that the core builds without the standard library, and that the proof can fail.
    NoStd,
    /// Build one static binary, `dist/obento`.
    Dist,
    /// Make the sample image and the seed of the fuzz targets anew (takes root).
    Sample,
    /// Tell which lines of the drivers, the journal, the cache and `vfs` the tests run.
    Coverage(coverage::Options),
    /// Tell which changes of the code no test notices.
    Mutants(mutants::Options),
    /// Run under Miri what it can run.
    Miri(sanitize::Options),
    /// Run what has threads under ThreadSanitizer.
    Tsan(sanitize::Options),
    /// Fuzz every decoder.
    Fuzz(fuzz::Options),
    /// Cut the power under ext4, FAT, exFAT and xv6, then fail every single request.
    Crash(proof::CrashOptions),
    /// Try one order of threads after the other on the transactions, the tables of `vfs` and ext4.
    Schedules(schedules::Options),
    /// Run the loads of mounts in their whole size.
    Stress(proof::StressOptions),
    /// Have pjdfstest, fsx, fio and stress-ng judge a mount of ours beside the kernel's (takes root).
    Judge(proof::JudgeOptions),
    /// Compare the engine of the laboratory with fio and bonnie++, on an idle machine (takes root).
    BenchJudges,
    /// Print driver x host x case, and write it to docs/matrix.md (takes root).
    Matrix,
    /// Hold every type of the kernel engine to what docs/engine.md says of it, and write its table anew (takes root).
    Types,
    /// Let the kernel and obento change images in turn (takes root).
    Alternate(proof::AlternateOptions),
    /// Cut the power at every write of repairs, and mend what is left.
    CheckCrash,
    /// Compare the check of images that were damaged at random with e2fsck, and what both mend.
    CheckMutants(proof::MutantOptions),
    /// Flip every bit of the super block of ext2, ext3 and ext4, and compare the repair with e2fsck's.
    CheckSuperBlock(proof::BitOptions),
    /// Write a repository for a driver of your own.
    NewDriver(new_driver::Options),
    /// Pack what a driver outside of this repository builds on, and build it from that.
    Package,
    /// Build images of a Debian root and the source of Linux, and let e2fsck and the kernel judge them (takes root).
    BuildCampaign(campaign::Options),
    /// Compare obento with other tools on the test files of other projects (takes root).
    World(world::Options),
}

fn main() -> ExitCode {
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
        Task::Dist => dist::run(&shell),
        Task::Sample => sample::run(&shell).and_then(|()| sample::fuzz_seed(&shell)),
        Task::Coverage(options) => coverage::run(&shell, &options, Vec::new(), &mut Taken::default()),
        Task::Mutants(options) => mutants::run(&shell, &options),
        Task::Miri(options) => sanitize::miri(&shell, &options),
        Task::Tsan(options) => sanitize::tsan(&shell, &options),
        Task::Fuzz(options) => fuzz::run(&shell, &options),
        Task::Crash(options) => proof::crash(&shell, &options),
        Task::Schedules(options) => schedules::run(&shell, &options),
        Task::Judge(options) => proof::judge(&shell, &options),
        Task::BenchJudges => proof::bench_judges(&shell),
        Task::Stress(options) => proof::stress(&shell, &options),
        Task::Matrix => proof::matrix(&shell),
        Task::Types => proof::types(&shell),
        Task::Alternate(options) => proof::alternate(&shell, &options),
        Task::CheckCrash => proof::check_crash(&shell),
        Task::CheckMutants(options) => proof::check_mutants(&shell, &options),
        Task::CheckSuperBlock(options) => proof::check_super_block(&shell, &options),
        Task::NewDriver(options) => new_driver::run(&options),
        Task::Package => package::run(&shell),
        Task::BuildCampaign(options) => campaign::run(&shell, &options),
        Task::World(options) => world::run(&shell, &options),
    }
}
