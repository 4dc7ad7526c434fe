//! Searching and verifying the files of an image beside the kernel: `cargo bench -p obento-cli --bench search` (as root).
//!
//! The image holds a copy of `OBENTO_BENCH_TREE` (by default /usr/share). The kernel's side works on one loop mount, which
//! is made before the first round. Both sides are warm, or with `OBENTO_BENCH_COLD=1` both are cold: the caches of the host
//! are dropped before each run.

mod pairs;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use obento_testkit::oracle::{LoopMount, Oracle, call, program};
use obento_testkit::require;
use pairs::{chosen, compare, head, number, obento, run, scratch};

fn main() -> Result<()> {
    let programs = ["mke2fs", "grep", "sha256sum", "find", "xargs"].map(Oracle::Program);
    if !require(&[&programs[..], &[Oracle::LoopMount, Oracle::Root]].concat()) {
        return Ok(());
    }
    let folder = tempfile::Builder::new().prefix("obento-bench-").tempdir_in(scratch())?;
    let tree =
        std::env::var_os("OBENTO_BENCH_TREE").map_or_else(|| PathBuf::from("/usr/share"), PathBuf::from);
    let image = folder.path().join("search.img");
    let size = format!("{}G", number("GIB", 8));
    call(
        "mke2fs",
        ["-q", "-F", "-t", "ext4", "-N", "400000", "-d"].map(Into::into).into_iter().chain([
            tree.into_os_string(),
            image.clone().into_os_string(),
            size.into(),
        ]),
    )?;
    let mount = LoopMount::new(&image, "ro")?;
    head();
    for (line, options) in [
        ("rare string", &["-rF", "no-such-string-anywhere"][..]),
        ("common word", &["-rlw", "license"]),
        ("expression", &["-rnE", "(error|warning): [a-z]+ [0-9]{3,}"]),
        ("ignoring case", &["-rci", "copyright"]),
    ] {
        if chosen("grep") {
            search(line, options, &image, mount.path())?;
        }
    }
    if chosen("sha256sum") {
        sums(&image, mount.path())?;
    }
    mount.unmount()
}

/// Drops the caches of the host, if cold runs are requested.
fn prepare() -> Result<()> {
    if number("COLD", 0) > 0 {
        call("sync", [""; 0])?;
        fs::write("/proc/sys/vm/drop_caches", "3")?;
    }
    Ok(())
}

/// Runs a command that ends with 0 or, like grep without a match, with 1.
fn shell(command: &mut Command) -> Command {
    let mut shell = program("sh");
    shell.args(["-c", "\"$@\"; test $? -le 1", "sh"]).arg(command.get_program()).args(command.get_args());
    shell.env("LC_ALL", "C.UTF-8");
    shell
}

fn search(line: &str, options: &[&str], image: &Path, mount: &Path) -> Result<()> {
    let ours = || {
        prepare()?;
        run(&mut shell(obento().args(["--engine", "native", "grep"]).args(options).arg(image)), || Ok(()))
    };
    let theirs = || {
        prepare()?;
        run(&mut shell(program("grep").args(options).arg(mount)), || Ok(()))
    };
    compare(&format!("`grep {}`, {line}", options.join(" ")), "grep on a loop mount", ours, theirs, || Ok(()))
}

fn sums(image: &Path, mount: &Path) -> Result<()> {
    let ours = || {
        prepare()?;
        run(obento().args(["--engine", "native", "sha256sum", "-r"]).arg(image), || Ok(()))
    };
    let theirs = || {
        prepare()?;
        let line = "find \"$0\" -type f -print0 | xargs -0 sha256sum";
        run(program("sh").args(["-c", line]).arg(mount), || Ok(()))
    };
    compare("`sha256sum -r`", "find, xargs and sha256sum on a loop mount", ours, theirs, || Ok(()))
}
