//! Reading an image with obento beside mounting it: `cargo bench -p obento-cli --bench reading` (as root).
//!
//! Each line is a ratio of whole commands, obento to its peer, the median of paired rounds in rotation. The kernel's
//! side is `mount -o loop,ro`, the tool, `umount`; the page cache is warm on both sides. The crate `fstool`'s command
//! takes part where it is in `PATH`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use obento_testkit::oracle::{LoopMount, Oracle, call, program};
use obento_testkit::require;

const ROUNDS: usize = 7;
const DIRECTORIES: usize = 1_000;
const FILES: usize = 100;
const LARGE: u64 = 4 << 30;

fn main() -> Result<()> {
    if !require(&[Oracle::LoopMount, Oracle::Program("mke2fs")]) {
        return Ok(());
    }
    let folder = tempfile::Builder::new().prefix("obento-bench-").tempdir_in(scratch())?;
    println!("{ROUNDS} rounds each; ratio below 1: obento is faster\n");
    println!("{:<44} {:>9} {:>9} {:>7} {:>7} {:>7}", "", "obento", "peer", "ratio", "least", "most");
    tree(folder.path())?;
    large_file(folder.path())
}

/// A folder with 12 GiB of free space.
fn scratch() -> PathBuf {
    std::env::var_os("OBENTO_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// 100,000 files of 1 KiB in 1,000 directories.
fn tree(folder: &Path) -> Result<()> {
    let image = format(folder, "tree.img", 1 << 30, &["-N", "110000"])?;
    let mount = LoopMount::new(&image, "")?;
    for directory in 0..DIRECTORIES {
        let path = mount.path().join(format!("d{directory:04}"));
        fs::create_dir(&path)?;
        for file in 0..FILES {
            fs::write(path.join(format!("f{file:03}")), [b'x'; 1024])?;
        }
    }
    mount.unmount()?;
    compare(
        "ls -lR, 100,000 files",
        "kernel",
        || ours(&["ls", "-lR"], &image),
        || mounted(&image, "ls", &["-lR"]),
    )?;
    let out = folder.join("out");
    let fresh = || match fs::remove_dir_all(&out) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    let source = format!("{}:/", image.display());
    compare(
        "cp -a of the tree",
        "kernel",
        || fresh().map_err(Into::into).and_then(|()| time(obento().args(["cp", "-a", &source]).arg(&out))),
        || {
            fresh()
                .map_err(Into::into)
                .and_then(|()| mounted(&image, "cp", &["-a", "--no-target-directory", "OUT"]))
        },
    )?;
    fresh()?;
    if require(&[Oracle::Program("fstool")]) {
        let list: String = (0..DIRECTORIES).map(|directory| format!("ls /d{directory:04}\n")).collect();
        let script = folder.join("script");
        fs::write(&script, list)?;
        compare(
            "ls -R, 100,000 files",
            "fstool",
            || ours(&["ls", "-R"], &image),
            || {
                time(
                    program("fstool")
                        .arg("shell")
                        .arg(&image)
                        .stdin(File::open(&script)?)
                        .stdout(Stdio::null()),
                )
            },
        )?;
        let tar = folder.join("tree.tar");
        compare(
            "all files into a tar",
            "fstool",
            || ours_to(&["export"], &image, &tar),
            || {
                let _ = fs::remove_file(&tar);
                time(program("fstool").arg("repack").arg(&image).arg(&tar).stdout(Stdio::null()))
            },
        )?;
    }
    Ok(())
}

fn large_file(folder: &Path) -> Result<()> {
    let image = format(folder, "large.img", LARGE + (512 << 20), &[])?;
    let plain = folder.join("plain");
    let block = vec![0x5a; 1 << 20];
    let mut file = File::create(&plain)?;
    for _ in 0..LARGE >> 20 {
        std::io::Write::write_all(&mut file, &block)?;
    }
    let mount = LoopMount::new(&image, "")?;
    call("cp", [plain.as_os_str(), mount.path().join("large").as_os_str()])?;
    mount.unmount()?;
    let out = folder.join("copy");
    let fresh = || fs::remove_file(&out).or_else(|error| if out.exists() { Err(error) } else { Ok(()) });
    let source = format!("{}:/large", image.display());
    compare(
        "cp of one 4 GiB file",
        "host cp",
        || fresh().map_err(Into::into).and_then(|()| time(obento().args(["cp", &source]).arg(&out))),
        || fresh().map_err(Into::into).and_then(|()| time(program("cp").arg(&plain).arg(&out))),
    )
}

fn format(folder: &Path, name: &str, len: u64, arguments: &[&str]) -> Result<PathBuf> {
    let image = folder.join(name);
    File::create(&image)?.set_len(len)?;
    let arguments = ["-q", "-F", "-t", "ext4"].iter().chain(arguments).map(|argument| (*argument).into());
    call("mke2fs", arguments.chain([image.clone().into_os_string()]))?;
    Ok(image)
}

fn obento() -> Command {
    Command::new(env!("CARGO_BIN_EXE_obento"))
}

fn ours(arguments: &[&str], image: &Path) -> Result<Duration> {
    time(obento().args(arguments).arg(image).stdout(Stdio::null()))
}

fn ours_to(arguments: &[&str], image: &Path, output: &Path) -> Result<Duration> {
    time(obento().args(arguments).arg(image).stdout(File::create(output)?))
}

/// Runs a command to its end and discards its output, unless it is written to a file.
fn time(command: &mut Command) -> Result<Duration> {
    let started = Instant::now();
    let quiet = command.stderr(Stdio::null());
    let status = quiet.status().with_context(|| format!("cannot start {quiet:?}"))?;
    let elapsed = started.elapsed();
    ensure!(status.success(), "{quiet:?}: {status}");
    Ok(elapsed)
}

/// Mounts, runs the tool, and unmounts. `OUT` among the arguments is the folder `out` beside the image, and
/// the mount precedes it.
fn mounted(image: &Path, tool: &str, arguments: &[&str]) -> Result<Duration> {
    let started = Instant::now();
    let mount = LoopMount::new(image, "ro")?;
    let mut command = program(tool);
    for argument in arguments {
        match *argument {
            "OUT" => command.arg(mount.path()).arg(image.with_file_name("out")),
            argument => command.arg(argument),
        };
    }
    if !arguments.contains(&"OUT") {
        command.arg(mount.path());
    }
    time(command.stdout(Stdio::null()))?;
    mount.unmount()?;
    Ok(started.elapsed())
}

/// Runs both in turn, once to warm up, and prints the medians and the ratio of each pair.
fn compare(
    what: &str,
    peer: &str,
    mut ours: impl FnMut() -> Result<Duration>,
    mut theirs: impl FnMut() -> Result<Duration>,
) -> Result<()> {
    ours()?;
    theirs()?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push((ours()?.as_secs_f64(), theirs()?.as_secs_f64()));
    }
    let sorted = |pick: fn(&(f64, f64)) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(pick).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let (mine, other, ratios) = (sorted(|r| r.0), sorted(|r| r.1), sorted(|r| r.0 / r.1));
    let middle = ROUNDS / 2;
    println!(
        "{:<44} {:>8.3}s {:>8.3}s {:>7.2} {:>7.2} {:>7.2}",
        format!("{what}, against {peer}"),
        mine[middle],
        other[middle],
        ratios[middle],
        ratios[0],
        ratios[ROUNDS - 1]
    );
    Ok(())
}
