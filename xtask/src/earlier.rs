//! Upgrades between this version and an earlier one, which is built from the history of the repository.
//!
//! The commit of the earlier version is in the file [`COMMIT`], and not only in a tag: a clone may have no tags.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use xshell::{Shell, cmd};

use crate::{coverage, dist, packages, programs};

/// The file with the commit of the earlier version. Its first word is the commit, the others describe it.
const COMMIT: &str = "xtask/earlier-version";

/// The folder of the earlier version and of its program.
const FOLDER: &str = "target/earlier";

/// The tests that need the program of the earlier version.
const TESTS: &str = "earlier::";

/// The options of upgrades between two versions.
#[derive(clap::Args)]
pub struct Options {
    /// The commit of the earlier version; the default is in xtask/earlier-version.
    #[arg(long)]
    commit: Option<String>,
    /// The profile of the earlier version.
    #[arg(long, default_value = "try")]
    profile: String,
    /// Use the test program that `cargo xtask test --full` built.
    #[arg(long)]
    counted: bool,
    /// Succeed if the clone does not contain the commit.
    #[arg(long)]
    if_present: bool,
    /// Only build the earlier version, and print the path of its program.
    #[arg(long)]
    build_only: bool,
}

/// Builds the earlier version, and passes mounts from it to this version and back.
pub fn run(shell: &Shell, options: &Options) -> Result<()> {
    packages::ensure(shell, &[("/sbin/mke2fs", "e2fsprogs"), ("/usr/bin/git", "git")])?;
    let stored = shell.read_file(COMMIT)?;
    let stored = stored.split_whitespace().next().with_context(|| format!("{COMMIT} is empty"))?;
    let commit = options.commit.as_deref().unwrap_or(stored);
    if !is_present(shell, commit, options.if_present)? {
        println!("skipped: this clone does not contain the commit {commit} of the earlier version");
        return Ok(());
    }
    let program = build(shell, commit, &options.profile)?;
    if options.build_only {
        return Ok(());
    }
    let _program = shell.push_env("OBENTO_EARLIER", program);
    let _require = shell.push_env("OBENTO_REQUIRE_ORACLES", "1");
    if options.counted {
        let built = coverage::build_others(shell)?;
        let tests =
            programs::find(&built, "cli", "mount").context("cargo has built no program 'mount' of cli")?;
        let _uncounted = shell.push_env("LLVM_PROFILE_FILE", "/dev/null");
        let tests = tests.to_owned();
        cmd!(shell, "{tests} --include-ignored --nocapture {TESTS}").run()?;
    } else {
        cmd!(
            shell,
            "cargo test --locked -p obento-cli --test mount -- --include-ignored --nocapture {TESTS}"
        )
        .run()?;
    }
    Ok(())
}

/// Returns whether the repository contains `commit`. Fails if it does not, although its history is complete, unless
/// `may_lack` it.
fn is_present(shell: &Shell, commit: &str, may_lack: bool) -> Result<bool> {
    let object = format!("{commit}^{{commit}}");
    if cmd!(shell, "git cat-file -e {object}").quiet().ignore_stderr().run().is_ok() {
        return Ok(true);
    }
    if may_lack || !shell.path_exists(".git") {
        return Ok(false);
    }
    let is_shallow = cmd!(shell, "git rev-parse --is-shallow-repository").quiet().ignore_stderr().read();
    ensure!(
        is_shallow? == "true",
        "the repository has no commit {commit}; write the last released commit to {COMMIT}"
    );
    Ok(false)
}

/// Builds the program of `commit`, and returns its path.
fn build(shell: &Shell, commit: &str, profile: &str) -> Result<PathBuf> {
    let root = shell.current_dir();
    let (folder, tree) = (root.join(FOLDER), root.join(FOLDER).join("tree"));
    shell.remove_path(&tree)?;
    shell.create_dir(&tree)?;
    let archive = folder.join("tree.tar");
    // Files get the time of the commit, so that cargo does not compile them again in a second run.
    cmd!(shell, "git archive --output {archive} {commit}").run()?;
    cmd!(shell, "tar -xf {archive} -C {tree}").run()?;
    shell.remove_path(&archive)?;
    let target = dist::host(shell)?;
    {
        let _folder = shell.push_dir(&tree);
        // Cargo identifies a crate by its path in the workspace, and would take crates of this version for those of the
        // earlier one in the same folder.
        let _target = shell.push_env("CARGO_TARGET_DIR", folder.join("target"));
        let _flags = shell.push_env("RUSTFLAGS", dist::FLAGS);
        cmd!(shell, "cargo build --profile {profile} --locked --target {target} -p obento-cli").run()?;
    }
    let program = folder.join("obento");
    shell.copy_file(folder.join(format!("target/{target}/{profile}/obento")), &program)?;
    println!("{}: version {commit}", program.display());
    Ok(program)
}
